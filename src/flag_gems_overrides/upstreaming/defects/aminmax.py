# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/aminmax.py, which is there from 5.0.2 on."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from ._defect import Seen, check_raises, check_value, defect, sample

_NOT_BEFORE = "flag_gems has no aminmax before 5.0.2"


def _since_5_0_2(outcome: str) -> Mapping[str, Seen]:
    return {"4.2.0": Seen(None, None), "5.0.2": Seen(outcome, outcome)}


@defect(
    "AM1",
    title="NaN is dropped",
    pytorch="NaN, twice",
    references=("#3816",),
    upstream=_since_5_0_2("AssertionError"),
    hidden=_NOT_BEFORE,
)
def am1(device: torch.device) -> None:
    x = torch.tensor([2.0, math.nan, 1.0], device=device)
    for value in (*torch.aminmax(x), *torch.aminmax(x, dim=0)):
        assert math.isnan(value.item()), f"{value.item()}, not NaN"


@defect(
    "AM2",
    title="over all dimensions, a strided input is read linearly",
    pytorch="the extremes of the view",
    upstream=_since_5_0_2("AssertionError: 1.0"),
    hidden=_NOT_BEFORE,
)
def am2(device: torch.device) -> None:
    low, high = torch.aminmax(torch.tensor([8.0, 1.0, 9.0, 10.0], device=device)[::2])
    check_value(low, 8.0, torch.float32)
    check_value(high, 9.0, torch.float32)


@defect(
    "AM3",
    title="a dimension out of range is taken modulo the number of dimensions",
    pytorch="IndexError",
    upstream=_since_5_0_2("AssertionError: answered"),
    hidden=_NOT_BEFORE,
)
def am3(device: torch.device) -> None:
    x = sample(2, 3, device=device)
    check_raises(IndexError, "Dimension out of range", lambda: torch.aminmax(x, dim=5))


@defect(
    "AM4",
    title="a 0-dim or an empty input divides by zero",
    pytorch="the element; an error that says that there is no element",
    upstream=_since_5_0_2("ZeroDivisionError"),
    hidden=_NOT_BEFORE,
)
def am4(device: torch.device) -> None:
    check_value(torch.aminmax(torch.tensor(3.0, device=device), dim=0)[1], 3.0, torch.float32)
    check_raises(RuntimeError, "has no identity", lambda: torch.aminmax(torch.empty(0, device=device)))
