# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/argmax.py (and, for NaN and 0-dim inputs, ops/argmin.py with it)."""

from __future__ import annotations

import math

import torch

from ._defect import check_raises, check_value, defect, everywhere, since_4_2


@defect(
    "A1",
    title="NaN is passed over",
    pytorch="the index of the first NaN",
    upstream=everywhere("AssertionError"),
)
def a1(device: torch.device) -> None:
    rising = torch.tensor([1.0, math.nan, 2.0, 3.0], device=device)
    check_value(torch.argmax(rising), 1, torch.int64)
    check_value(torch.argmax(rising, 0), 1, torch.int64)
    check_value(torch.argmin(-rising), 1, torch.int64)
    check_value(torch.argmin(-rising, 0), 1, torch.int64)


@defect(
    "A2",
    title="a 0-dim input fails an assertion",
    pytorch="0",
    upstream=everywhere("AssertionError: Invalid dim"),
)
def a2(device: torch.device) -> None:
    scalar = torch.tensor(3.0, device=device)
    check_value(torch.argmax(scalar, 0), 0, torch.int64)
    check_value(torch.argmin(scalar, 0), 0, torch.int64)


@defect(
    "A3",
    title="rows of no elements are answered with 0",
    pytorch="IndexError",
    upstream=everywhere("AssertionError: answered"),
)
def a3(device: torch.device) -> None:
    along = "Expected reduction dim 1 to have non-zero size"
    check_raises(IndexError, along, lambda: torch.argmax(torch.empty(3, 0, device=device), 1))


@defect(
    "A4",
    title="along a dimension that is not the last, sizes up to 128 that are no power of two do not compile",
    pytorch="the indices for any size",
    upstream=since_4_2("InterpreterError", "CompilationError"),
)
def a4(device: torch.device) -> None:
    x = torch.arange(12.0, device=device).view(6, 2)
    for index in torch.argmax(x, 0):
        check_value(index, 5, torch.int64)
