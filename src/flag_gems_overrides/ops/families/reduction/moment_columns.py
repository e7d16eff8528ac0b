# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Means and sums of squared deviations over N of a contiguous [M, N, K], as :mod:`.moments` says."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from .columns import full_tile, results_of
from .elements import load
from .moments import first_of, in_share, merged, pair_step, store_moments


@triton.jit
def _pairs_of_columns(
    pointers, shift, mask, N, K,
    OP: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr, EVICT: tl.constexpr,
    AXIS: tl.constexpr,
):  # fmt: skip
    """(mean, squares, count) of each lane of a program's share, two elements to a lane in each iteration.

    Args:
        pointers, shift, mask: of the results, to be broadcast over a tile; pointers to their first elements.
    """
    HALF: tl.constexpr = BLOCK_N // 2
    first = tl.expand_dims(tl.program_id(1) * BLOCK_N + tl.arange(0, HALF), 1 - AXIS)
    stride = tl.num_programs(1) * BLOCK_N
    mean = full_tile(0.0, OP.accumulator, HALF, BLOCK_K, AXIS)
    squares = full_tile(0.0, OP.accumulator, HALF, BLOCK_K, AXIS)
    seen = tl.full([], 0.0, OP.accumulator)
    for tile in tl.range(0, N, stride, num_stages=STAGES):
        n = tile + first
        both = n + HALF < N
        a = load(pointers + n * K, mask & (n < N), OP, EVICT) - shift
        b = load(pointers + tl.where(both, n + HALF, n) * K, mask & (n < N), OP, EVICT) - shift
        count = (n < N).to(OP.accumulator) + both.to(OP.accumulator)
        mean, squares = pair_step(mean, squares, seen, a, b, count)
        seen += 2.0
    counts = tl.zeros(first.shape, tl.int32)
    for each in tl.static_range(2):
        counts += ((tl.maximum(N - first - each * HALF, 0) + stride - 1) // stride).to(tl.int32)
    return mean, squares, tl.broadcast_to(counts.to(OP.accumulator), mean.shape)


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
    shift = first_of(x_ptr + block_start + offsets, column_mask & (N > 0), OP)
    tile_shift = tl.expand_dims(shift, AXIS)
    offsets = tl.expand_dims(offsets, AXIS)
    tile_mask = tl.expand_dims(column_mask, AXIS)
    first = tl.expand_dims(split * BLOCK_N + tl.arange(0, BLOCK_N), 1 - AXIS)
    if ONE_TILE_PER_CTA:
        stride = BLOCK_N
        n = first.to(N.dtype)
        mask = tile_mask & (n < N)
        x = load(x_ptr + block_start + (offsets + n * K), mask, OP, EVICT) - tile_shift
        mean = tl.where(mask, x, 0.0)
        squares = tl.zeros_like(x)
        if squares_ptr is not None:
            squares = tl.load(squares_ptr + block_start + (offsets + n * K), mask=mask, other=0.0)
        lane_count = weight * mask.to(OP.accumulator)
    elif squares_ptr is None and BLOCK_N > 1:
        mean, squares, lane_count = _pairs_of_columns(
            x_ptr + block_start + offsets, tile_shift, tile_mask, N, K, OP, BLOCK_N, BLOCK_K, STAGES, EVICT, AXIS
        )
        stride = tl.num_programs(1) * BLOCK_N
    else:
        stride = tl.num_programs(1) * BLOCK_N
        mean = full_tile(0.0, OP.accumulator, BLOCK_N, BLOCK_K, AXIS)
        squares = full_tile(0.0, OP.accumulator, BLOCK_N, BLOCK_K, AXIS)
        seen = tl.full([], 0.0, OP.accumulator)
        for tile in tl.range(0, N, stride, num_stages=STAGES):
            n = tile + first
            mask = tile_mask & (n < N)
            x = load(x_ptr + block_start + (offsets + n * K), mask, OP, EVICT) - tile_shift
            seen += 1.0
            delta = tl.where(mask, x - mean, 0.0)
            mean += delta * (1.0 / seen)
            squares += delta * (weight * (1.0 - 1.0 / seen)) * delta
            if squares_ptr is not None:
                squares += tl.load(squares_ptr + block_start + (offsets + n * K), mask=mask, other=0.0)
        tiles = (tl.maximum(N - first, 0) + stride - 1) // stride
        lane_count = weight * tl.broadcast_to(tiles.to(OP.accumulator), mean.shape)
    total = weight * in_share(N, split * BLOCK_N, stride, BLOCK_N).to(OP.accumulator)
    total = tl.broadcast_to(total, [BLOCK_K])
    mean, squares = merged(mean, squares, lane_count, total, AXIS)
    store_moments(
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
