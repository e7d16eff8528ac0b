# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Means and sums of squared deviations of rows of a contiguous [M, N], as :mod:`.moments` says.

Elements that are loaded together share a lane: their own mean and squares take 4 instructions an element, a step of
Welford's 8 and more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from ..norm.statistics import divide
from .columns import load_tile
from .elements import load
from .moments import first_of, in_share, merged, moments_of_one_tile, store_moments
from .row import load_edges, program_of_row, remaining, whole_vectors


@triton.jit
def _neighbours(x, NEIGHBOURS: tl.constexpr):
    """Mean and sum of squares of every NEIGHBOURS in a row, which are in one thread."""
    if NEIGHBOURS == 1:
        return x, tl.zeros_like(x)
    else:
        elements = _apart(x, NEIGHBOURS)
        mean = elements[0]
        for i in tl.static_range(1, NEIGHBOURS):
            mean += elements[i]
        mean *= 1.0 / NEIGHBOURS
        squares = (elements[0] - mean) * (elements[0] - mean)
        for i in tl.static_range(1, NEIGHBOURS):
            squares += (elements[i] - mean) * (elements[i] - mean)
        return mean, squares


@triton.jit
def _apart(x, N: tl.constexpr):
    """Every N in a row as a tuple of N tensors.

    Triton moves them to one thread where they are not, as without alignment. A sum of their squares over an axis would
    be one over lanes there, of products that are not rounded: see ``launch/products.py``.
    """
    a, b = tl.split(tl.reshape(x, [x.shape[0], x.shape[1] // 2, 2]))
    if N == 2:
        return a, b
    else:
        return _apart(a, N // 2) + _apart(b, N // 2)


@triton.jit
def _merged_with_edges(
    mean, squares, count, edges, edge_squares, edge_count, total, NEIGHBOURS: tl.constexpr
):  # fmt: skip
    """As ``moments.merged`` of lanes and of edges together, so that warps exchange either sum once.

    NEIGHBOURS: lanes side by side that are in one thread.
    """
    sums = _sum(product(count, mean), product(edge_count, edges), NEIGHBOURS)
    center = divide(sums, tl.maximum(total, 1.0))
    delta = mean - center[:, None]
    edge_delta = edges - center[:, None]
    return center, _sum(
        squares + count * delta * delta, edge_squares + edge_count * edge_delta * edge_delta, NEIGHBOURS
    )


@triton.jit
def _sum(x, edges, NEIGHBOURS: tl.constexpr):
    """Of both along a row: first of what a thread has of either."""
    if NEIGHBOURS > 1:
        x = tl.sum(tl.reshape(x, [x.shape[0], x.shape[1] // NEIGHBOURS, NEIGHBOURS]), 2)
    WIDTH: tl.constexpr = edges.shape[1]
    if x.shape[1] % WIDTH:
        return tl.sum(x, 1) + tl.sum(edges, 1)
    else:
        return tl.sum(tl.sum(tl.reshape(x, [x.shape[0], x.shape[1] // WIDTH, WIDTH]), 1) + edges, 1)


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
    DEPTH: tl.constexpr,
    REST: tl.constexpr,
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
        DEPTH: 0, or for rows of a single tile how many elements a lane has, with REST up to one more.
            BLOCK_N are the lanes then.

    The rest is as in ``reduce_rows_kernel``.
    """
    tl.static_assert(BLOCK_N % VECTOR == 0)
    tl.static_assert(DEPTH == 0 or (squares_ptr is None and BLOCK_SPLITS == 1))
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    split = program_of_row(BLOCK_SPLITS)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    weight = tl.full([], weight, OP.accumulator)
    start, head, body = whole_vectors(m, N, VECTOR)
    shift = first_of(x_ptr + start, (m < M) & (N > 0), OP)
    body_start = (start + head) // VECTOR * VECTOR
    first = split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    if EDGE_LANES:
        # On their way with the first tile.
        edges, positions = load_edges(x_ptr, start, head, body, N, (m < M) & (split == 0), OP, VECTOR, EDGE_LANES)
        lane = tl.arange(0, EDGE_LANES)[None, :]
        is_edge = (m < M) & (split == 0) & tl.where(lane < VECTOR, lane < head, positions < N)
        edge_squares = tl.zeros_like(edges)
        if squares_ptr is not None:
            edge_squares = tl.load(squares_ptr + start + positions, mask=is_edge, other=0.0)
    # The sums of squares behind means are for each its own.
    NEIGHBOURS: tl.constexpr = VECTOR if squares_ptr is None else 1
    lane_first = split * BLOCK_N + tl.arange(0, BLOCK_N // NEIGHBOURS)[None, :] * NEIGHBOURS
    lane_weight = weight * NEIGHBOURS
    if DEPTH:
        zeros = tl.full([BLOCK_M, BLOCK_N], 0.0, OP.accumulator)
        # Of whole vectors, for the compiler to know.
        length = body if EDGE_LANES else N // VECTOR * VECTOR
        tiles = load_tile(x_ptr + body_start + first, m < M, first, length, 1, OP, BLOCK_N, DEPTH, REST, EVICT)
        mean, squares, lane_count = moments_of_one_tile(tiles, shift, zeros, first, length, OP, BLOCK_N, DEPTH, REST)
        lane_count = tl.broadcast_to(lane_count, mean.shape)
    elif ONE_TILE_PER_CTA:
        stride = BLOCK_N
        mask = (m < M) & (first < body)
        lane_mask = (m < M) & (lane_first < body)
        x = load(x_ptr + body_start + first, mask, OP, EVICT) - shift
        mean, squares = _neighbours(x, NEIGHBOURS)
        mean = tl.where(lane_mask, mean, 0.0)
        squares = tl.where(lane_mask, squares, 0.0)
        if squares_ptr is not None:
            squares += tl.load(squares_ptr + body_start + first, mask=mask, other=0.0)
        lane_count = lane_weight * lane_mask.to(OP.accumulator)
    else:
        stride = tl.num_programs(1) * BLOCK_N
        mean = tl.full([BLOCK_M, BLOCK_N // NEIGHBOURS], 0.0, OP.accumulator)
        squares = tl.full([BLOCK_M, BLOCK_N // NEIGHBOURS], 0.0, OP.accumulator)
        seen = tl.full([], 0.0, OP.accumulator)
        for tile in tl.range(0, N, stride, num_stages=STAGES):
            left = remaining(body, tile)
            mask = (m < M) & (first < left)
            lane_mask = (m < M) & (lane_first < left)
            x = load(x_ptr + body_start + tile + first, mask, OP, EVICT) - shift
            tile_mean, tile_squares = _neighbours(x, NEIGHBOURS)
            seen += 1.0
            delta = tl.where(lane_mask, tile_mean - mean, 0.0)
            mean += delta * (1.0 / seen)
            squares += delta * (lane_weight * (1.0 - 1.0 / seen)) * delta
            if NEIGHBOURS > 1:
                squares += tl.where(lane_mask, tile_squares, 0.0)
            if squares_ptr is not None:
                squares += tl.load(squares_ptr + body_start + tile + first, mask=mask, other=0.0)
        tiles = (tl.maximum(body - lane_first, 0) + stride - 1) // stride
        lane_count = lane_weight * tl.broadcast_to(tiles.to(OP.accumulator), mean.shape)
    if DEPTH:
        total = tl.broadcast_to((body if EDGE_LANES else N).to(OP.accumulator), [BLOCK_M, 1])
    else:
        total = weight * in_share(body, split * BLOCK_N, stride, BLOCK_N).to(OP.accumulator)
    total = tl.reshape(total, [BLOCK_M])
    if EDGE_LANES:
        edges = tl.where(is_edge, edges - shift, 0.0)
        edge_count = weight * is_edge.to(OP.accumulator)
        total += weight * tl.reshape(tl.where(split == 0, N - body, 0), [BLOCK_M]).to(OP.accumulator)
        own: tl.constexpr = VECTOR if DEPTH else 1
        mean, squares = _merged_with_edges(mean, squares, lane_count, edges, edge_squares, edge_count, total, own)
    else:
        mean, squares = merged(mean, squares, lane_count, total, 1)
    store_moments(
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
