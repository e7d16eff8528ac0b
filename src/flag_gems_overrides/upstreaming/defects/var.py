# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/var.py."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ._defect import FIXED, Seen, check_close, check_value, defect, sample

_NOT_BEFORE = "flag_gems has no var_correction before 5.0.2"


def _since_5_0_2(outcome: str) -> Mapping[str, Seen]:
    return {"4.2.0": Seen(None, None), "5.0.2": Seen(outcome, outcome)}


@defect(
    "W1",
    title="beside a large mean the variance is lost, or negative",
    pytorch="the variance",
    upstream={**_since_5_0_2("AssertionError: 4 of 4"), "5.3.1": Seen(FIXED, FIXED)},
    hidden=_NOT_BEFORE,
)
def w1(device: torch.device) -> None:
    x = sample(4, 4096, device=device) + 1e4
    expected = torch.full((4,), 1.0, device=device)
    check_close(torch.var(x, [1], correction=1), expected, 0.1)


@defect(
    "W2",
    title="partial sums of halves are kept in half: the variance is inf",
    pytorch="the variance, when that is in range",
    upstream=_since_5_0_2("AssertionError: inf"),
    hidden=_NOT_BEFORE,
)
def w2(device: torch.device) -> None:
    x = torch.full((4096,), 200.0, dtype=torch.float16, device=device)
    x[::2] = -200.0
    check_value(torch.var(x, correction=0), 40000.0, torch.float16)


@defect(
    "W3",
    title="a strided input is read linearly",
    pytorch="the variance of the view",
    upstream=_since_5_0_2("AssertionError: 16.0"),
    hidden=_NOT_BEFORE,
)
def w3(device: torch.device) -> None:
    x = torch.tensor([1.0, 9.0, 1.0, 9.0], device=device)[::2]
    check_value(torch.var(x, correction=0), 0.0, torch.float32)
