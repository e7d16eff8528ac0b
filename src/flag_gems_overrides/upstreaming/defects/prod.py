# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/prod.py."""

from __future__ import annotations

import torch

from ._defect import FIXED, Seen, check_close, check_value, defect, everywhere


@defect(
    "P1",
    title="integers and booleans give their own dtype",
    pytorch="int64",
    upstream=everywhere("AssertionError: dtype torch.int32"),
)
def p1(device: torch.device) -> None:
    numbers = torch.tensor([2, 3], dtype=torch.int32, device=device)
    truths = torch.tensor([True, True], device=device)
    for x, expected in ((numbers, 6), (truths, 1)):
        check_value(torch.prod(x), expected, torch.int64)
        check_value(torch.prod(x, 0), expected, torch.int64)


@defect(
    "P2",
    title="int64 and float64 are multiplied in float32",
    pytorch="exact int64 (wrapping), float64 accuracy",
    references=("#4618",),
    upstream=everywhere("AssertionError: 10460"),
)
def p2(device: torch.device) -> None:
    threes = torch.full((21,), 3, device=device)
    nearly_one = torch.tensor([1 + 1e-9, 1.0], dtype=torch.float64, device=device)
    for x, expected in ((threes, 3**21), (nearly_one, 1 + 1e-9)):
        check_value(torch.prod(x), expected, x.dtype)
        check_value(torch.prod(x, 0), expected, x.dtype)


@defect(
    "P3",
    title="partial products of halves are kept in half: they overflow and underflow",
    pytorch="the product, when that is in range",
    upstream=everywhere("AssertionError: inf"),
    native_cpu="multiplies halves in half",
)
def p3(device: torch.device) -> None:
    x = torch.tensor([4.0] * 16 + [0.25] * 16, dtype=torch.float16, device=device)
    check_value(torch.prod(x), 1.0, torch.float16)


@defect(
    "P4",
    title="a strided input is read linearly",
    pytorch="the product of the view's elements",
    upstream=everywhere("AssertionError: 10.0"),
)
def p4(device: torch.device) -> None:
    check_value(torch.prod(torch.tensor([2.0, 5.0, 3.0, 7.0], device=device)[::2]), 6.0, torch.float32)


@defect(
    "P5",
    title="an empty input divides by zero",
    pytorch="1",
    references=("#5501", "#5567", "#6333", "#6074"),
    upstream=everywhere("ZeroDivisionError"),
)
def p5(device: torch.device) -> None:
    check_value(torch.prod(torch.empty(0, device=device)), 1.0, torch.float32)


@defect(
    "P6",
    title="a dimension of size 0 divides by zero",
    pytorch="ones",
    references=("#4618",),
    upstream={**everywhere("ZeroDivisionError"), "5.3.1": Seen(FIXED, FIXED)},
)
def p6(device: torch.device) -> None:
    check_close(torch.prod(torch.empty(3, 0, device=device), 1), torch.ones(3, device=device), 0)


@defect(
    "P7",
    title="a 0-dim input raises",
    pytorch="the element",
    upstream={**everywhere("AssertionError: Invalid dim"), "5.3.1": Seen("IndexError", "IndexError")},
)
def p7(device: torch.device) -> None:
    check_value(torch.prod(torch.tensor(3.0, device=device), 0), 3.0, torch.float32)
