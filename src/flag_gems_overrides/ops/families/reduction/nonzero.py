# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Whether any, all, or how many elements are not zero. NaN is not."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .policy import Dtypes, Policy
from .sum import add, zero


@triton.jit
def is_nonzero(x, OP: tl.constexpr):
    return x != 0


@triton.jit
def either(a, b):
    return a | b


@triton.jit
def both(a, b):
    return a & b


def _one(dtype: torch.dtype) -> int | float:
    return 1.0 if dtype.is_floating_point else 1


def _truth(dtype: torch.dtype, requested: torch.dtype | None, count: int) -> Dtypes:
    """The result is bool, but of uint8 uint8 unless bool is requested."""
    return Dtypes(dtype, torch.int32, requested or (torch.uint8 if dtype is torch.uint8 else torch.bool))


def _counted(dtype: torch.dtype, requested: torch.dtype | None, count: int) -> Dtypes:
    return Dtypes(dtype, torch.int32 if count < 2**31 else torch.int64, torch.int64)


ANY = Policy("any", either, zero, _truth, prologue=is_nonzero)
ALL = Policy("all", both, _one, _truth, prologue=is_nonzero)
COUNT = Policy("count_nonzero", add, zero, _counted, prologue=is_nonzero)
