# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/all.py."""

from __future__ import annotations

import torch

from ._defect import check_value, defect, everywhere


@defect(
    "Z1",
    title="a strided input is read linearly",
    pytorch="the elements of the view",
    upstream=everywhere("AssertionError: False"),
)
def z1(device: torch.device) -> None:
    x = torch.tensor([True, False, True, False], device=device)[::2]
    check_value(torch.all(x), True, torch.bool)


@defect(
    "Z2",
    title="an empty input divides by zero",
    pytorch="True",
    references=("#6074",),
    upstream=everywhere("ZeroDivisionError"),
)
def z2(device: torch.device) -> None:
    check_value(torch.all(torch.empty(0, device=device)), True, torch.bool)


@defect(
    "Z3",
    title="uint8 gives bool",
    pytorch="uint8",
    upstream=everywhere("AssertionError: dtype torch.bool"),
)
def z3(device: torch.device) -> None:
    x = torch.ones(2, 3, dtype=torch.uint8, device=device)
    for actual in torch.all(x, 1), torch.all(x, (0, 1)), torch.all(x):
        assert actual.dtype == torch.uint8, f"dtype {actual.dtype}"


@defect(
    "Z4",
    title="a 0-dim input fails an assertion",
    pytorch="the element",
    upstream=everywhere("AssertionError: Invalid dim"),
)
def z4(device: torch.device) -> None:
    check_value(torch.all(torch.tensor(3.0, device=device), 0), True, torch.bool)
