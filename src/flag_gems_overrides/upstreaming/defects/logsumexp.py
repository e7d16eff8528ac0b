# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/logsumexp.py, which is there from 5.3.0 on."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from ._defect import Seen, check_raises, check_value, defect, sample

_NOT_BEFORE = "flag_gems has no logsumexp before 5.3.0"


def _since_5_3_0(outcome: str) -> Mapping[str, Seen]:
    return {"4.2.0": Seen(None, None), "5.3.0": Seen(outcome, outcome)}


@defect(
    "LS1",
    title="an infinite element makes NaN",
    pytorch="inf",
    upstream=_since_5_3_0("AssertionError: nan"),
    hidden=_NOT_BEFORE,
)
def ls1(device: torch.device) -> None:
    x = torch.tensor([math.inf, 1.0], device=device)
    check_value(torch.logsumexp(x, 0), math.inf, torch.float32)


@defect(
    "LS2",
    title="float64 is computed in float32",
    pytorch="in float64",
    upstream=_since_5_3_0("AssertionError: off by"),
    hidden=_NOT_BEFORE,
)
def ls2(device: torch.device) -> None:
    x = torch.tensor([0.1, 0.2], dtype=torch.float64, device=device)
    error = abs(torch.logsumexp(x, 0).item() - math.log(math.exp(0.1) + math.exp(0.2)))
    assert error < 1e-12, f"off by {error}"


@defect(
    "LS3",
    title="an empty input divides by zero, and a dimension that does not exist is an AssertionError",
    pytorch="-inf, and IndexError",
    upstream=_since_5_3_0("ZeroDivisionError"),
    hidden=_NOT_BEFORE,
)
def ls3(device: torch.device) -> None:
    check_value(torch.logsumexp(torch.empty(0, device=device), 0), -math.inf, torch.float32)
    check_raises(IndexError, "Dimension out of range", lambda: torch.logsumexp(sample(2, 3, device=device), 5))
