# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/sum.py."""

from __future__ import annotations

import torch

from ._defect import check_close, check_raises, check_value, defect, everywhere


@defect(
    "U1",
    title="integers are added in their own dtype",
    pytorch="int64",
    upstream=everywhere("AssertionError: dtype torch.int32"),
)
def u1(device: torch.device) -> None:
    x = torch.tensor([2**31 - 1, 1], dtype=torch.int32, device=device)
    check_value(torch.sum(x), 2**31, torch.int64)
    check_value(torch.sum(x, 0), 2**31, torch.int64)


@defect(
    "U2",
    title="partial sums of halves are kept in half: inf - inf is NaN",
    pytorch="the sum, when that is in range",
    upstream=everywhere("AssertionError: nan"),
)
def u2(device: torch.device) -> None:
    x = torch.full((4096,), 3000.0, dtype=torch.float16, device=device)
    x[2048:] = -3000.0
    check_value(torch.sum(x), 0.0, torch.float16)


@defect(
    "U3",
    title="an empty input divides by zero",
    pytorch="0",
    references=("#5501", "#5567"),
    upstream=everywhere("ZeroDivisionError"),
)
def u3(device: torch.device) -> None:
    check_value(torch.sum(torch.empty(0, device=device)), 0.0, torch.float32)


@defect(
    "U4",
    title="the dtype that is asked for is applied after the elements are added",
    pytorch="each element is converted first",
    upstream=everywhere("AssertionError: 16777216.0"),
)
def u4(device: torch.device) -> None:
    x = torch.tensor([2.0**24, 1.0], device=device)
    check_value(torch.sum(x, dtype=torch.float64), 2**24 + 1, torch.float64)
    check_value(torch.sum(x, 0, dtype=torch.float64), 2**24 + 1, torch.float64)


@defect(
    "U5",
    title="of many booleans along a dimension most are lost",
    pytorch="how many are true",
    upstream=everywhere("AssertionError: 2 of 2 elements wrong"),
)
def u5(device: torch.device) -> None:
    x = torch.ones(40000, 2, dtype=torch.bool, device=device)
    check_close(torch.sum(x, 0), torch.full((2,), 40000, device=device), 0)


@defect(
    "U6",
    title="a dimension that does not exist is accepted",
    pytorch="IndexError",
    upstream=everywhere("AssertionError: answered"),
)
def u6(device: torch.device) -> None:
    check_raises(IndexError, "Dimension out of range", lambda: torch.sum(torch.ones(2, 3, device=device), 5))
