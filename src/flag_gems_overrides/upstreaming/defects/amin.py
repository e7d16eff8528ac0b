# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/amin.py, which is there from 5.3.1 on."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from ._defect import Seen, check_raises, check_value, defect, sample

_NOT_BEFORE = "flag_gems has no amin before 5.3.1"


def _since_5_3_1(outcome: str) -> Mapping[str, Seen]:
    return {"4.2.0": Seen(None, None), "5.3.1": Seen(outcome, outcome)}


@defect(
    "M1",
    title="NaN is dropped",
    pytorch="NaN",
    references=("#6082",),
    upstream=_since_5_3_1("AssertionError"),
    hidden=_NOT_BEFORE,
)
def m1(device: torch.device) -> None:
    x = torch.tensor([2.0, math.nan, 1.0], device=device)
    for value in (torch.amin(x, 0), torch.amin(x, ())):
        assert math.isnan(value.item()), f"{value.item()}, not NaN"


@defect(
    "M2",
    title="over all dimensions, a strided input is read linearly",
    pytorch="the smallest element of the view",
    upstream=_since_5_3_1("AssertionError: 1.0"),
    hidden=_NOT_BEFORE,
)
def m2(device: torch.device) -> None:
    check_value(torch.amin(torch.tensor([9.0, 1.0, 8.0, 2.0], device=device)[::2], ()), 8.0, torch.float32)


@defect(
    "M3",
    title="a dimension out of range is taken modulo the number of dimensions",
    pytorch="IndexError",
    upstream=_since_5_3_1("AssertionError: answered"),
    hidden=_NOT_BEFORE,
)
def m3(device: torch.device) -> None:
    x = sample(2, 3, device=device)
    check_raises(IndexError, "Dimension out of range", lambda: torch.amin(x, [5]))


@defect(
    "M4",
    title="integers and bool are refused",
    pytorch="the smallest element",
    upstream=_since_5_3_1("AssertionError: amin only"),
    hidden=_NOT_BEFORE,
)
def m4(device: torch.device) -> None:
    check_value(torch.amin(torch.tensor([7, 3, 5], device=device), 0), 3, torch.int64)
    check_value(torch.amin(torch.tensor([True, False], device=device), 0), False, torch.bool)
