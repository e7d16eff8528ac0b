# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/any.py."""

from __future__ import annotations

import torch

from ._defect import check_value, defect, everywhere


@defect(
    "Y1",
    title="a strided input is read linearly",
    pytorch="the elements of the view",
    upstream=everywhere("AssertionError: True"),
)
def y1(device: torch.device) -> None:
    x = torch.tensor([False, True, False, True], device=device)[::2]
    check_value(torch.any(x), False, torch.bool)


@defect(
    "Y2",
    title="an empty input divides by zero",
    pytorch="False",
    references=("#6074",),
    upstream=everywhere("ZeroDivisionError"),
)
def y2(device: torch.device) -> None:
    check_value(torch.any(torch.empty(0, device=device)), False, torch.bool)


@defect(
    "Y3",
    title="uint8 gives bool",
    pytorch="uint8",
    upstream=everywhere("AssertionError: dtype torch.bool"),
)
def y3(device: torch.device) -> None:
    x = torch.ones(2, 3, dtype=torch.uint8, device=device)
    for actual in torch.any(x, 1), torch.any(x, (0, 1)), torch.any(x):
        assert actual.dtype == torch.uint8, f"dtype {actual.dtype}"


@defect(
    "Y4",
    title="a 0-dim input fails an assertion",
    pytorch="the element",
    upstream=everywhere("AssertionError: Invalid dim"),
)
def y4(device: torch.device) -> None:
    check_value(torch.any(torch.tensor(3.0, device=device), 0), True, torch.bool)
