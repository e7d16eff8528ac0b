# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def,assignment,misc"
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
from .row import remaining


@triton.jit
def variance(squares, count, OP: tl.constexpr):
    """OP.parameter is the correction."""
    # Divided once, and not for each result.
    return squares * (1.0 / tl.maximum(tl.full([], count, OP.accumulator) - OP.parameter, 0.0))


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
def lane_moments(
    pointers, shift, zeros, mask, first, length, stride, K,
    OP: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, EVICT: tl.constexpr, TAIL: tl.constexpr = None,
):  # fmt: skip
    """(mean, squares, count) of each lane, which has every ``stride``-th of ``length`` elements from ``first`` on.

    DEPTH of them are a group: they are loaded together, and only the last group can be in part, so that the others need
    no masks. A pair at a time, with masks, took 127 instructions for 16 elements of bfloat16 columns on sm_90.

    Args:
        pointers: to a lane's first element; K elements from one of a column to the next.
        shift: to be subtracted from all.
        zeros: a tile of accumulators.
        mask: lanes that are used.
        first: as int32.
        TAIL: how many elements a lane has in the last group at most, where that is known when this is compiled: no more
            are loaded, and before it is known whether there are any.
    """
    mean = zeros
    squares = zeros
    seen = tl.full([], 0.0, OP.accumulator)
    begin = tl.full([], 0, length.dtype)
    for tile in tl.range(0, length - DEPTH * stride + 1, DEPTH * stride, num_stages=STAGES):
        elements = ()
        for i in tl.static_range(DEPTH):
            elements = elements + (load(pointers + (tile + i * stride) * K, mask, OP, EVICT) - shift,)
        mean, squares = group_step(mean, squares, seen, elements, DEPTH)
        seen += DEPTH
        begin += DEPTH * stride
    left = remaining(length, begin)
    count = seen + tl.zeros(first.shape, OP.accumulator)
    if TAIL is None:
        if left > 0:
            mean, squares, count = _last_group(
                mean, squares, seen, pointers, shift, zeros, mask, first, begin, left, stride, K, OP, DEPTH, EVICT
            )
    elif TAIL > 0:
        mean, squares, count = _last_group(
            mean, squares, seen, pointers, shift, zeros, mask, first, begin, left, stride, K, OP, TAIL, EVICT
        )
    return mean, squares, count


@triton.jit
def _last_group(
    mean, squares, seen, pointers, shift, zeros, mask, first, begin, left, stride, K,
    OP: tl.constexpr, DEPTH: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """One step for all that a lane has of ``left`` elements, as in ``group_step``; of none nothing changes."""
    elements = ()
    for i in tl.static_range(DEPTH):
        here = mask & (first + i * stride < left)
        elements = elements + (load(pointers + (begin + i * stride) * K, here, OP, EVICT) - shift,)
    some = (first < left).to(OP.accumulator)
    above_sum = zeros
    own = zeros
    for i in tl.static_range(1, DEPTH):
        exists = first + i * stride < left
        above = tl.where(exists, elements[i] - elements[0], 0.0)
        above_sum += above
        own += above * above
        some += exists.to(OP.accumulator)
    above_mean = above_sum * (1.0 / tl.maximum(some, 1.0))
    delta = tl.where(first < left, elements[0] + above_mean - mean, 0.0)
    share = some / tl.maximum(seen + some, 1.0)
    mean += delta * share
    squares += own - above_sum * above_mean + delta * (seen * share) * delta
    return mean, squares, seen + some


@triton.jit
def moments_of_one_tile(
    tiles, shift, zeros, first, N, OP: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, REST: tl.constexpr
):
    """As :func:`lane_moments` for a single group, of what :func:`columns.load_tile` has loaded.

    It is loaded before the shift, which columns move to other threads: that would wait first.
    """
    elements = ()
    for i in tl.static_range(DEPTH):
        elements = elements + (tiles[i] - shift,)
    exists = first + DEPTH * LANES < N
    count = tl.full(first.shape, DEPTH, OP.accumulator)
    if REST:
        last = tiles[DEPTH] - shift
        count += exists.to(OP.accumulator)
    if DEPTH == 1:
        mean, squares = group_step(zeros, zeros, tl.full([], 0.0, OP.accumulator), elements, DEPTH)
    else:
        above, squares = moments_of_elements(elements, DEPTH)
        mean = elements[0] + above
    if REST:
        delta = tl.where(exists, last - mean, 0.0)
        mean += delta * (1.0 / (DEPTH + 1))
        squares += delta * (DEPTH / (DEPTH + 1)) * delta
    return mean, squares, count


@triton.jit
def moments_of_elements(elements, DEPTH: tl.constexpr):
    """How much the mean of several elements of each lane is above the first of them, and their sum of squares.

    It is computed of what they are above the first: sums of squares that are at most DEPTH times as large as the
    result, and 0 where all are equal. That takes 3 instructions an element, a step of Welford's 5.
    """
    above = elements[DEPTH > 1] - elements[0]  # of one 0, or NaN
    above_sum = above
    squares = above * above
    for i in tl.static_range(2, DEPTH):
        above = elements[i] - elements[0]
        above_sum += above
        squares += above * above
    above_mean = above_sum * (1.0 / DEPTH)
    return above_mean, squares - above_sum * above_mean


@triton.jit
def group_step(mean, squares, seen, elements, DEPTH: tl.constexpr):
    """Welford's step for DEPTH elements of each lane at once, after ``seen`` others."""
    delta = elements[0] - mean
    if DEPTH > 1:
        above_mean, own = moments_of_elements(elements, DEPTH)
        delta += above_mean
        squares += own
    before = seen / (seen + DEPTH)
    share = 1.0 - before  # exactly 1 at first
    return mean + delta * share, squares + delta * (DEPTH * before) * delta


@triton.jit
def merged(mean, squares, count, total, AXIS: tl.constexpr):
    """(mean, sum of squares) of all along an axis: ``count`` elements to a lane, ``total`` of them.

    The mean of equal halves is theirs, and their variance 0, as long as float32 has their sum.
    """
    if mean.shape[AXIS] == 1:
        return tl.sum(mean, AXIS), tl.sum(squares, AXIS)
    center = divide(tl.sum(product(count, mean), AXIS), tl.maximum(total, 1.0))
    delta = mean - tl.expand_dims(center, AXIS)
    return center, tl.sum(squares + count * delta * delta, AXIS)


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
    # Where squares overflow, group_step takes infinity from infinity, or from the elements themselves where that is one
    # operation: NaN or -inf. Their mean is finite, that of infinities is not.
    squares = tl.where((squares > float("-inf")) | (mean - mean != 0.0), squares, float("inf"))
    if OP.epilogue is not None:
        squares = OP.epilogue(squares, count, OP)
    tl.store(out_ptr + offsets, squares, mask=mask)
    if mean_ptr is not None:
        if mean_ptr.dtype.element_ty == tl.float64:
            mean, shift = mean.to(tl.float64), shift.to(tl.float64)
        # An infinite element less itself is NaN.
        mean = tl.where((count == 1) & (shift - shift != 0.0), 0.0, mean)
        tl.store(mean_ptr + offsets, tl.where(count > 0, mean + shift, float("nan")), mask=mask)
