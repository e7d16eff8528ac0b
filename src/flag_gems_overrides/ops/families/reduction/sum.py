# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Sums and means."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .policy import Dtypes, Policy, accumulator, promoted


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def without_nan(x, OP: tl.constexpr):
    x = x.to(OP.accumulator)
    return tl.where(x == x, x, 0.0)


@triton.jit
def divide(result, count, OP: tl.constexpr):
    count = tl.full([], count, OP.accumulator)
    if OP.converted == tl.float32:  # a half result shows nothing of the last bit, which takes 12 instructions
        return tl.div_rn(result, tl.broadcast_to(count, result.shape))
    else:
        return result / count


def zero(dtype: torch.dtype) -> int | float:
    return 0.0 if dtype.is_floating_point else 0


def _summed(dtype: torch.dtype, requested: torch.dtype | None, count: int) -> Dtypes:
    """Integers are added in 32 bits where no sum of ``count`` of them needs more: half the registers."""
    dtypes = promoted(dtype, requested, count)
    if dtypes.accumulator is torch.int64 and not dtype.is_floating_point:
        largest = 1 if dtype is torch.bool else 1 << (8 * dtype.itemsize)
        if count * largest < 2**31:
            return dtypes._replace(accumulator=torch.int32)
    return dtypes


def _floating(dtype: torch.dtype, requested: torch.dtype | None, count: int) -> Dtypes:
    converted = requested or dtype
    return Dtypes(converted, accumulator(converted), converted)


SUM = Policy("sum", add, zero, _summed)
MEAN = Policy("mean", add, zero, _floating, epilogue=divide, single=Policy("mean", add, zero, _floating))
NANSUM = Policy("nansum", add, zero, _floating, prologue=without_nan)
