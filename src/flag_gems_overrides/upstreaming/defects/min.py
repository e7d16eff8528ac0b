# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/min.py."""

from __future__ import annotations

import math

import torch

from ._defect import check_raises, check_value, defect, everywhere


@defect(
    "N1",
    title="NaN is dropped",
    pytorch="NaN, and the index of the first one",
    references=("#6082",),
    upstream=everywhere("AssertionError"),
)
def n1(device: torch.device) -> None:
    x = torch.tensor([2.0, math.nan, 1.0], device=device)
    values, indices = torch.min(x, 0)
    for value in (torch.min(x), values):
        assert math.isnan(value.item()), f"{value.item()}, not NaN"
    check_value(indices, 1, torch.int64)


@defect(
    "N2",
    title="a 0-dim input fails an assertion",
    pytorch="the element, at index 0",
    upstream=everywhere("AssertionError: Invalid dim"),
)
def n2(device: torch.device) -> None:
    values, indices = torch.min(torch.tensor(3.0, device=device), 0)
    check_value(values, 3.0, torch.float32)
    check_value(indices, 0, torch.int64)


@defect(
    "N3",
    title="an empty input divides by zero",
    pytorch="RuntimeError for the whole tensor, IndexError along a dimension of size 0",
    upstream=everywhere("ZeroDivisionError"),
)
def n3(device: torch.device) -> None:
    whole = "Expected reduction dim to be specified for input.numel() == 0"
    check_raises(RuntimeError, whole, lambda: torch.min(torch.empty(0, device=device)))
    along = "Expected reduction dim 1 to have non-zero size"
    check_raises(IndexError, along, lambda: torch.min(torch.empty(3, 0, device=device), 1))


@defect(
    "N4",
    title="a strided input is read linearly",
    pytorch="the smallest element of the view",
    upstream=everywhere("AssertionError: 1.0"),
)
def n4(device: torch.device) -> None:
    check_value(torch.min(torch.tensor([9.0, 1.0, 8.0, 2.0], device=device)[::2]), 8.0, torch.float32)
