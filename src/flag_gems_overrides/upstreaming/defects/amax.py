# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/amax.py."""

from __future__ import annotations

import torch

from ._defect import check_raises, check_value, defect, everywhere, sample


@defect(
    "X4",
    title="over all dimensions, a strided input is read linearly",
    pytorch="the largest element of the view",
    upstream=everywhere("AssertionError: 9.0"),
)
def x4(device: torch.device) -> None:
    check_value(torch.amax(torch.tensor([1.0, 9.0, 2.0, 8.0], device=device)[::2], ()), 2.0, torch.float32)


@defect(
    "X5",
    title="a dimension out of range is taken modulo the number of dimensions",
    pytorch="IndexError",
    upstream=everywhere("AssertionError: answered"),
)
def x5(device: torch.device) -> None:
    x = sample(2, 3, device=device)
    check_raises(IndexError, "Dimension out of range", lambda: torch.amax(x, [5]))
