# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Means, and sums of squared deviations from them: what the kernels of rows, columns and classes share.

All is computed of what elements are above the first one of their result, so that a large mean costs no digits. A lane
keeps a mean and a sum of squares of its own (Welford); lanes, and then programs, are merged by two sums: of what they
have, and of what their means deviate from the mean of all.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.products import product
from ...launch.workspace import is_last
from ..norm.statistics import divide
from .elements import load


@triton.jit
def variance(squares, count, OP: tl.constexpr):
    """OP.parameter is the correction."""
    return squares / tl.maximum(tl.full([], count, OP.accumulator) - OP.parameter, 0.0)


@triton.jit
def deviation(squares, count, OP: tl.constexpr):
    if OP.accumulator == tl.float32:
        return tl.sqrt_rn(variance(squares, count, OP))
    else:
        return tl.sqrt(variance(squares, count, OP))


@triton.jit
def first_of(pointers, mask, OP: tl.constexpr):
    """What is subtracted from all elements: 0 of 16 bits, whose digits float32 keeps beside any mean."""
    if pointers.dtype.element_ty.primitive_bitwidth == 16:
        return tl.zeros(pointers.shape, OP.accumulator)
    else:
        return load(pointers, mask, OP, EVICT="")


@triton.jit
def in_share(length, first, stride, BLOCK_N: tl.constexpr):
    """How many of ``length`` elements are in tiles of BLOCK_N that begin at first, first + stride, ..."""
    tiles = length // stride
    return tiles * BLOCK_N + tl.minimum(tl.maximum(length - tiles * stride - first, 0), BLOCK_N)


@triton.jit
def pair_step(mean, squares, seen, a, b, count):
    """Welford's step for two elements of each lane at once, after ``seen`` others.

    A pair's own mean and squares take 4 instructions, and one step is left where two would be; half of the registers,
    too.

    Args:
        a, b: the elements; twice the same where there is one, which has its mean and no squares.
        count: how many there are, 0 to 2; to be broadcast.
    """
    share = count / tl.maximum(seen + count, 1.0)
    delta = (a + b) * 0.5 - mean
    mean += delta * share
    squares += delta * (seen * share) * delta
    delta = a - b
    return mean, squares + delta * (count * 0.25) * delta


@triton.jit
def merged(mean, squares, count, total, AXIS: tl.constexpr):
    """(mean, sum of squares) of all along an axis: ``count`` elements to a lane, ``total`` of them.

    The mean of equal halves is theirs, and their variance 0, as long as float32 has their sum.
    """
    center = divide(tl.sum(product(count, mean), AXIS), tl.maximum(total, 1.0))
    delta = mean - tl.expand_dims(center, AXIS)
    return center, tl.sum(squares + count * delta * delta, AXIS)


@triton.jit
def merged_pair(mean, squares, count, other_mean, other_squares, other_count):
    """Two as one."""
    total = count + other_count
    delta = other_mean - mean
    share = other_count / tl.maximum(total, 1.0)
    return mean + delta * share, squares + other_squares + delta * delta * count * share, total


@triton.jit
def store_moments(
    mean, squares, total, shift, out_ptr, mean_ptr, partial_squares_ptr, partial_mean_ptr, partial_count_ptr,
    arrived_ptr, offsets, mask, size, count, OP: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """As ``elements.store_values``, for [BLOCK_M, BLOCK_K] of means above ``shift`` and sums of squares."""
    if BLOCK_SPLITS == 1:
        _store_final(mean, shift, squares, out_ptr, mean_ptr, offsets, mask, count, OP)
    else:
        here = offsets + tl.program_id(1) * size
        tl.store(partial_squares_ptr + here, squares, mask=mask)
        tl.store(partial_mean_ptr + here, mean, mask=mask)
        tl.store(partial_count_ptr + here, total, mask=mask)
        if is_last(arrived_ptr + tl.program_id(0), tl.num_programs(1), "acq_rel"):
            split = tl.arange(0, BLOCK_SPLITS)[None, :, None]
            each = mask[:, None, :] & (split < tl.num_programs(1))
            there = offsets[:, None, :] + split * size
            parts = tl.load(partial_squares_ptr + there, mask=each, other=0.0, cache_modifier=".cg")
            means = tl.load(partial_mean_ptr + there, mask=each, other=0.0, cache_modifier=".cg")
            counts = tl.load(partial_count_ptr + there, mask=each, other=0.0, cache_modifier=".cg")
            mean, squares = merged(means, parts, counts, tl.sum(counts, 1), 1)
            _store_final(mean, shift, squares, out_ptr, mean_ptr, offsets, mask, count, OP)


@triton.jit
def _store_final(mean, shift, squares, out_ptr, mean_ptr, offsets, mask, count, OP: tl.constexpr):
    if OP.epilogue is not None:
        squares = OP.epilogue(squares, count, OP)
    tl.store(out_ptr + offsets, squares, mask=mask)
    if mean_ptr is not None:
        if mean_ptr.dtype.element_ty == tl.float64:
            mean, shift = mean.to(tl.float64), shift.to(tl.float64)
        tl.store(mean_ptr + offsets, tl.where(count > 0, mean + shift, float("nan")), mask=mask)
