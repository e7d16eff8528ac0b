# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Logarithms of sums of exponentials: the largest element and the sum of what the others are beside it.

The largest is at least the smallest finite number. So of -inf alone the exponentials are 0, and no infinity is
subtracted from itself but inf, which is then the result.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from ...launch.products import product
from .extremum import larger
from .pair_policy import PairPolicy
from .policy import accumulator


@triton.jit
def exp(x):
    """e**x; in float32 a result below 2**-126 is 0, which halves the instructions of tl.exp."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        return tl.exp2(x * 1.4426950408889634)


@triton.jit
def one_of_each(x, mask, OP: tl.constexpr):
    return x, tl.full(x.shape, 1.0, x.dtype)


@triton.jit
def fold_exponentials(a, b, AXIS: tl.constexpr, OP: tl.constexpr):
    largest = larger(tl.reduce(a, AXIS, larger), tl.full([], OP.first, OP.accumulator))
    return largest, tl.sum(product(b, exp(a - tl.expand_dims(largest, AXIS))), AXIS)


@triton.jit
def fold_elements_of_lanes(a, b, OP: tl.constexpr):
    largest = tl.full(a[0].shape, OP.first, OP.accumulator)
    for i in tl.static_range(len(a)):
        largest = larger(largest, a[i])
    total = exp(a[0] - largest)
    for i in tl.static_range(1, len(a)):
        total += exp(a[i] - largest)
    return largest, total


@triton.jit
def merge_exponentials(a, b, c, d, OP: tl.constexpr):
    largest = larger(a, c)
    return largest, b * exp(a - largest) + d * exp(c - largest)


@triton.jit
def logarithm(largest, total, OP: tl.constexpr):
    return tl.where(largest == float("inf"), largest, largest + tl.log(total))


def _minus_infinity(dtype: torch.dtype) -> float:
    return -math.inf


def _of_none(dtype: torch.dtype) -> tuple[float, float]:
    return torch.finfo(accumulator(dtype)).min, 0.0


LOGSUMEXP = PairPolicy(
    "logsumexp",
    one_of_each,
    fold_exponentials,
    fold_elements_of_lanes,
    merge_exponentials,
    _minus_infinity,
    _of_none,
    epilogue=logarithm,
    tiled=False,
)
