# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/nansum.py, which is there from 5.3.3 on."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ._defect import Seen, check_close, check_raises, check_value, defect, sample

_NOT_BEFORE = "flag_gems has no nansum before 5.3.3"


def _since_5_3_3(outcome: str) -> Mapping[str, Seen]:
    return {"4.2.0": Seen(None, None), "5.3.3": Seen(outcome, outcome)}


@defect(
    "H1",
    title="integers are added in float32",
    pytorch="the sum, exactly",
    upstream=_since_5_3_3("AssertionError: 16777216, not 16777217"),
    hidden=_NOT_BEFORE,
)
def h1(device: torch.device) -> None:
    x = torch.tensor([2**24, 1], device=device)
    check_value(torch.nansum(x), 2**24 + 1, torch.int64)
    check_value(torch.nansum(x, out=torch.zeros((), dtype=torch.int64, device=device)), 2**24 + 1, torch.int64)


@defect(
    "H2",
    title="the sum of integers has their dtype",
    pytorch="int64",
    upstream=_since_5_3_3("AssertionError: dtype torch.int32"),
    hidden=_NOT_BEFORE,
)
def h2(device: torch.device) -> None:
    check_value(torch.nansum(torch.ones(3, dtype=torch.int32, device=device)), 3, torch.int64)


@defect(
    "H3",
    title="a dimension that does not exist is accepted, or one that comes twice",
    pytorch="IndexError, RuntimeError",
    upstream=_since_5_3_3("AssertionError: answered"),
    hidden=_NOT_BEFORE,
)
def h3(device: torch.device) -> None:
    x = sample(3, device=device)
    check_raises(RuntimeError, "appears multiple times", lambda: torch.nansum(x, (0, 0)))
    check_raises(IndexError, "Dimension out of range", lambda: torch.nansum(x, 5))


@defect(
    "H4",
    title="an out of another shape keeps it, and one of another dtype than the one asked for is accepted",
    pytorch="resizes it; RuntimeError",
    upstream=_since_5_3_3("AssertionError: shape (0,)"),
    hidden=_NOT_BEFORE,
)
def h4(device: torch.device) -> None:
    x, out = torch.ones(3, device=device), torch.empty(0, device=device)
    torch.nansum(x, out=out)
    check_close(out, torch.tensor(3.0, device=device))
    # The texts of PyTorch's kernels and of the override differ.
    check_raises(RuntimeError, "dtype", lambda: torch.nansum(x, dtype=torch.float64, out=out))
