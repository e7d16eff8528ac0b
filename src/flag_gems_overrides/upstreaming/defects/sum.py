# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/sum.py."""

from __future__ import annotations

import torch

from ._defect import FIXED, Seen, check_close, check_raises, check_value, defect, everywhere, sample

aten = torch.ops.aten

_UNWRITTEN = "AssertionError: 0.0, not 6.0"


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
    upstream={**everywhere("ZeroDivisionError"), "5.4.0.dev0": Seen(FIXED, FIXED)},
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


@defect(
    "U7",
    title="into an out, a strided input is read linearly",
    pytorch="the sum of the view",
    upstream=everywhere("AssertionError: 3.0"),
)
def u7(device: torch.device) -> None:
    x = torch.tensor([1.0, 2.0, 1.0, 2.0], device=device)[::2]
    check_value(aten.sum.out(x, out=torch.zeros((), device=device)), 2.0, torch.float32)


@defect(
    "U8",
    title="a sum of integers goes into an out of their dtype, and wraps",
    pytorch="RuntimeError: Expected out tensor to have dtype long int",
    upstream=everywhere("AssertionError: answered"),
)
def u8(device: torch.device) -> None:
    x, out = (torch.full(shape, 2**30, dtype=torch.int32, device=device) for shape in ((4,), ()))
    text = "Expected out tensor to have dtype long int, but got int instead"
    check_raises(RuntimeError, text, lambda: aten.sum.out(x, out=out))


@defect(
    "U9",
    title="into an out, the sum of an empty input divides by zero",
    pytorch="0",
    upstream=everywhere("ZeroDivisionError"),
)
def u9(device: torch.device) -> None:
    x = torch.empty(0, 3, device=device)
    check_value(aten.sum.out(x, out=torch.ones((), device=device)), 0.0, torch.float32)
    assert torch.sum(x, 0, out=torch.ones(3, device=device)).tolist() == [0, 0, 0]


@defect(
    "U10",
    title="over all dimensions, the out is not written",
    pytorch="the sum in it",
    upstream={**everywhere("TypeError: 'NoneType'"), "5.0.2": Seen(_UNWRITTEN, _UNWRITTEN)},
)
def u10(device: torch.device) -> None:
    out = torch.zeros((), device=device)
    torch.sum(torch.ones(2, 3, device=device), None, out=out)
    check_value(out, 6.0, torch.float32)


@defect(
    "U11",
    title="a strided out is written as if it were contiguous",
    pytorch="the sums, in its strides",
    upstream=everywhere("AssertionError"),
)
def u11(device: torch.device) -> None:
    x, out = sample(3, 4, device=device), torch.zeros(4, 2, device=device)[:, 0]
    torch.sum(x, 0, out=out)
    check_close(out, x.double().cpu().sum(0).to(device))


@defect(
    "U12",
    title="elements are added in the dtype of the input, and converted to that of the out after that",
    pytorch="converts them first",
    upstream=everywhere("AssertionError: 16777216.0"),
)
def u12(device: torch.device) -> None:
    x, out = torch.tensor([2.0**24, 1.0], device=device), torch.zeros((), dtype=torch.float64, device=device)
    check_value(torch.sum(x, 0, out=out), 2**24 + 1, torch.float64)
