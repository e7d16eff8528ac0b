# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/max.py (and, for NaN, ops/amax.py with it)."""

from __future__ import annotations

import math

import torch

from ._defect import check_raises, check_value, defect, everywhere


@defect(
    "X1",
    title="NaN is dropped",
    pytorch="NaN, and the index of the first one",
    references=("#6082",),
    upstream=everywhere("AssertionError"),
)
def x1(device: torch.device) -> None:
    x = torch.tensor([1.0, math.nan, 2.0], device=device)
    values, indices = torch.max(x, 0)
    for value in (torch.max(x), values, torch.amax(x, 0), torch.amax(x, ())):
        assert math.isnan(value.item()), f"{value.item()}, not NaN"
    check_value(indices, 1, torch.int64)


@defect(
    "X2",
    title="a 0-dim input fails an assertion",
    pytorch="the element, at index 0",
    upstream=everywhere("AssertionError: Invalid dim"),
)
def x2(device: torch.device) -> None:
    values, indices = torch.max(torch.tensor(3.0, device=device), 0)
    check_value(values, 3.0, torch.float32)
    check_value(indices, 0, torch.int64)


@defect(
    "X3",
    title="an empty input divides by zero",
    pytorch="RuntimeError for the whole tensor, IndexError along a dimension of size 0",
    upstream=everywhere("ZeroDivisionError"),
)
def x3(device: torch.device) -> None:
    whole = "Expected reduction dim to be specified for input.numel() == 0"
    check_raises(RuntimeError, whole, lambda: torch.max(torch.empty(0, device=device)))
    along = "Expected reduction dim 1 to have non-zero size"
    check_raises(IndexError, along, lambda: torch.max(torch.empty(3, 0, device=device), 1))
