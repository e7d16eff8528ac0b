# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Products."""

from __future__ import annotations

import torch
import triton

from .policy import Policy, promoted


@triton.jit
def multiply(a, b):
    return a * b


def _narrow(dtype: torch.dtype) -> torch.dtype | None:
    """Holds the product of four elements of 8 bits or two of 16: a product of int64 takes three multiplications."""
    if dtype in (torch.int8, torch.int16):
        return torch.int32
    return torch.uint32 if dtype is torch.uint8 else None


PRODUCT = Policy("prod", multiply, lambda dtype: 1.0 if dtype.is_floating_point else 1, promoted, narrow=_narrow)
