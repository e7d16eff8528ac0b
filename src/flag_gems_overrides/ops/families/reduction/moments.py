# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Means, and sums of squared deviations from them.

All is computed of what elements are above the first one of their result, so that a large mean costs no digits. A lane
keeps a mean and a sum of squares of its own (Welford); lanes, and then programs, are merged by two sums: of what they
have, and of what their means deviate from the mean of all.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import is_last
from .columns import full_tile, results_of
from .elements import load
from .row import load_edges, remaining, whole_vectors


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
def _squares_of(squares_ptr, offsets, mask, x):
    """The sums of squares behind inputs that are means, zeros if they are elements."""
    if squares_ptr is None:
        return tl.zeros_like(x)
    else:
        return tl.load(squares_ptr + offsets, mask=mask, other=0.0)


@triton.jit
def _merged(mean, squares, count, AXIS: tl.constexpr):
    """(mean, sum of squares, count) of all along an axis."""
    total = tl.sum(count, AXIS)
    center = tl.sum(count * mean, AXIS) / tl.maximum(total, 1.0)
    delta = mean - tl.expand_dims(center, AXIS)
    return center, tl.sum(squares + count * delta * delta, AXIS), total


@triton.jit
def _pair(mean, squares, count, other_mean, other_squares, other_count):
    """Two as one."""
    total = count + other_count
    delta = other_mean - mean
    share = other_count / tl.maximum(total, 1.0)
    return mean + delta * share, squares + other_squares + delta * delta * count * share, total


@triton.jit
def _store(
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
            squares = tl.load(partial_squares_ptr + there, mask=each, other=0.0, cache_modifier=".cg")
            mean = tl.load(partial_mean_ptr + there, mask=each, other=0.0, cache_modifier=".cg")
            total = tl.load(partial_count_ptr + there, mask=each, other=0.0, cache_modifier=".cg")
            mean, squares, total = _merged(mean, squares, total, 1)
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


@entry()
@triton.jit
def moments_of_rows_kernel(
    x_ptr,
    squares_ptr,
    out_ptr,
    mean_ptr,
    partial_squares_ptr,
    partial_mean_ptr,
    partial_count_ptr,
    arrived_ptr,
    M,
    N,
    weight,
    count,
    OP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGE_LANES: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """Reduce N.

    Grid: blocks of BLOCK_M rows, programs that share them.

    Args:
        x_ptr: [M, N] of elements, or of means.
        squares_ptr: [M, N], the sums of squares of means, None for elements.
        out_ptr: [M], what OP.epilogue makes of the sums of squares.
        mean_ptr: [M], None if means are not wanted.
        partial_squares_ptr, partial_mean_ptr, partial_count_ptr: [splits, M] of accumulators, None without splits.
        arrived_ptr: [blocks] of zeros, None without splits.
        weight: number of elements behind each input.
        count: number of elements of which each final result is made.

    The rest is as in ``reduce_rows_kernel``.
    """
    tl.static_assert(BLOCK_N % VECTOR == 0)
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    weight = tl.full([], weight, OP.accumulator)
    start, head, body = whole_vectors(m, N, VECTOR)
    shift = load(x_ptr + start, (m < M) & (N > 0), OP, EVICT="")
    body_start = (start + head) // VECTOR * VECTOR
    first = split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    if ONE_TILE_PER_CTA:
        mask = (m < M) & (first < body)
        x = load(x_ptr + body_start + first, mask, OP, EVICT) - shift
        mean = tl.where(mask, x, 0.0)
        squares = _squares_of(squares_ptr, body_start + first, mask, x)
        lanes = mask.to(OP.accumulator)
    else:
        mean = tl.full([BLOCK_M, BLOCK_N], 0.0, OP.accumulator)
        squares = tl.full([BLOCK_M, BLOCK_N], 0.0, OP.accumulator)
        seen = tl.full([], 0.0, OP.accumulator)
        stride = tl.num_programs(1) * BLOCK_N
        for tile in tl.range(0, N, stride, num_stages=STAGES):
            mask = (m < M) & (first < remaining(body, tile))
            x = load(x_ptr + body_start + tile + first, mask, OP, EVICT) - shift
            seen += 1.0
            delta = tl.where(mask, x - mean, 0.0)
            mean += delta * (1.0 / seen)
            squares += weight * delta * tl.where(mask, x - mean, 0.0)
            squares += _squares_of(squares_ptr, body_start + tile + first, mask, x)
        lanes = ((tl.maximum(body - first, 0) + stride - 1) // stride).to(OP.accumulator)
    mean, squares, total = _merged(mean, squares, weight * tl.broadcast_to(lanes, mean.shape), 1)
    if EDGE_LANES:
        edges, positions = load_edges(x_ptr, start, head, body, N, (m < M) & (split == 0), OP, VECTOR, EDGE_LANES)
        lane = tl.arange(0, EDGE_LANES)[None, :]
        mask = (m < M) & (split == 0) & tl.where(lane < VECTOR, lane < head, positions < N)
        edge_squares = _squares_of(squares_ptr, start + positions, mask, edges)
        edge_mean, edge_squares, edge_total = _merged(
            tl.where(mask, edges - shift, 0.0), edge_squares, weight * mask.to(OP.accumulator), 1
        )
        mean, squares, total = _pair(mean, squares, total, edge_mean, edge_squares, edge_total)
    _store(
        mean[:, None],
        squares[:, None],
        total[:, None],
        shift,
        out_ptr,
        mean_ptr,
        partial_squares_ptr,
        partial_mean_ptr,
        partial_count_ptr,
        arrived_ptr,
        offsets=m,
        mask=m < M,
        size=tl.full([], M, tl.int64),
        count=count,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )


@entry()
@triton.jit
def moments_of_columns_kernel(
    x_ptr,
    squares_ptr,
    out_ptr,
    mean_ptr,
    partial_squares_ptr,
    partial_mean_ptr,
    partial_count_ptr,
    arrived_ptr,
    M,
    N,
    K,
    weight,
    count,
    OP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    K_DIVISOR: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    AXIS: tl.constexpr,
):
    """Reduce N of [M, N, K] to [M, K]. Grid and parameters as in ``reduce_columns_kernel`` and above."""
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    K = tl.cast(K, N.dtype) // K_DIVISOR * K_DIVISOR
    weight = tl.full([], weight, OP.accumulator)
    results, block_start, offsets, column_mask = results_of(M, N, K, BLOCK_K, K_DIVISOR)
    shift = load(x_ptr + block_start + offsets, column_mask & (N > 0), OP, EVICT="")
    tile_shift = tl.expand_dims(shift, AXIS)
    offsets = tl.expand_dims(offsets, AXIS)
    tile_mask = tl.expand_dims(column_mask, AXIS)
    first = tl.expand_dims(split * BLOCK_N + tl.arange(0, BLOCK_N), 1 - AXIS)
    if ONE_TILE_PER_CTA:
        n = first.to(N.dtype)
        mask = tile_mask & (n < N)
        x = load(x_ptr + block_start + (offsets + n * K), mask, OP, EVICT) - tile_shift
        mean = tl.where(mask, x, 0.0)
        squares = _squares_of(squares_ptr, block_start + (offsets + n * K), mask, x)
        lanes = mask.to(OP.accumulator)
    else:
        mean = full_tile(0.0, OP.accumulator, BLOCK_N, BLOCK_K, AXIS)
        squares = full_tile(0.0, OP.accumulator, BLOCK_N, BLOCK_K, AXIS)
        seen = tl.full([], 0.0, OP.accumulator)
        stride = tl.num_programs(1) * BLOCK_N
        for tile in tl.range(0, N, stride, num_stages=STAGES):
            n = tile + first
            mask = tile_mask & (n < N)
            x = load(x_ptr + block_start + (offsets + n * K), mask, OP, EVICT) - tile_shift
            seen += 1.0
            delta = tl.where(mask, x - mean, 0.0)
            mean += delta * (1.0 / seen)
            squares += weight * delta * tl.where(mask, x - mean, 0.0)
            squares += _squares_of(squares_ptr, block_start + (offsets + n * K), mask, x)
        lanes = ((tl.maximum(N - first, 0) + stride - 1) // stride).to(OP.accumulator)
    mean, squares, total = _merged(mean, squares, weight * tl.broadcast_to(lanes, mean.shape), AXIS)
    _store(
        mean[None, :],
        squares[None, :],
        total[None, :],
        shift[None, :],
        out_ptr,
        mean_ptr,
        partial_squares_ptr,
        partial_mean_ptr,
        partial_count_ptr,
        arrived_ptr,
        offsets=results[None, :],
        mask=column_mask[None, :],
        size=tl.full([], M, tl.int64) * K,
        count=count,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )
