# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Means and sums of squared deviations over N of a contiguous [M, N, K], as :mod:`.moments` says."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from .columns import full_tile, load_tile, results_of
from .elements import load
from .moments import first_of, in_share, lane_moments, merged, moments_of_one_tile, store_moments


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
    LANES: tl.constexpr,
    DEPTH: tl.constexpr,
    REST: tl.constexpr,
    BLOCK_K: tl.constexpr,
    K_DIVISOR: tl.constexpr,
    MATRICES: tl.constexpr,
    STARTS: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    AXIS: tl.constexpr,
):
    """Reduce N of [M, N, K] to [M, K].

    LANES: elements of a column side by side in a tile. DEPTH: elements of a lane that are loaded together. ONE_TILE:
    they are all, and with REST up to one more to a lane. Grid and other parameters as in ``reduce_columns_kernel`` and
    ``moments_of_rows_kernel``.
    """
    tl.static_assert(squares_ptr is None or (DEPTH == 1 and not ONE_TILE))
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    K = tl.cast(K, N.dtype) // K_DIVISOR * K_DIVISOR
    weight = tl.full([], weight, OP.accumulator)
    results, block_start, offsets, column_mask = results_of(M, N, K, BLOCK_K, K_DIVISOR, MATRICES, STARTS, BLOCK_SPLITS)
    mask = tl.expand_dims(column_mask, AXIS)
    first = tl.expand_dims(split * LANES + tl.arange(0, LANES), 1 - AXIS)
    pointers = x_ptr + block_start + (tl.expand_dims(offsets, AXIS) + first.to(N.dtype) * K)
    if ONE_TILE:
        tiles = load_tile(pointers, mask, first, N, K, OP, LANES, DEPTH, REST, EVICT)
    shift = first_of(x_ptr + block_start + offsets, column_mask & (N > 0), OP)
    tile_shift = tl.expand_dims(shift, AXIS)
    zeros = full_tile(0.0, OP.accumulator, LANES, BLOCK_K, AXIS)
    stride = tl.num_programs(1) * LANES
    if ONE_TILE:
        mean, squares, lane_count = moments_of_one_tile(tiles, tile_shift, zeros, first, N, OP, LANES, DEPTH, REST)
        lane_count = tl.broadcast_to(lane_count, mean.shape)
        total = N.to(OP.accumulator)
    elif squares_ptr is None:
        mean, squares, lane_count = lane_moments(
            pointers, tile_shift, zeros, mask, first, N, stride, K, OP, DEPTH, STAGES, EVICT
        )
        lane_count = tl.broadcast_to(lane_count, mean.shape)
        total = in_share(N, split * LANES, stride, LANES).to(OP.accumulator)
    else:
        mean = zeros
        squares = zeros
        seen = tl.full([], 0.0, OP.accumulator)
        for tile in tl.range(0, N, stride, num_stages=STAGES):
            here = mask & (tile + first < N)
            x = load(pointers + tile * K, here, OP, EVICT) - tile_shift
            seen += 1.0
            delta = tl.where(here, x - mean, 0.0)
            mean += delta * (1.0 / seen)
            squares += delta * (weight * (1.0 - 1.0 / seen)) * delta
            squares += tl.load(
                squares_ptr + block_start + (tl.expand_dims(offsets, AXIS) + (tile + first).to(N.dtype) * K),
                mask=here,
                other=0.0,
            )
        tiles = (tl.maximum(N - first, 0) + stride - 1) // stride
        lane_count = weight * tl.broadcast_to(tiles.to(OP.accumulator), mean.shape)
        total = weight * in_share(N, split * LANES, stride, LANES).to(OP.accumulator)
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
