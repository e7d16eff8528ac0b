# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Rows of a contiguous [M, N], each to one result."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from .elements import identity_of, is_best, load, store_located, store_values
from .row import fold, least, load_edges, locate_tiles, program_of_row, reduce_tiles, whole_vectors


@entry()
@triton.jit
def reduce_rows_kernel(
    x_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    M,
    N,
    count,
    OP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ALIGN: tl.constexpr,
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
        x_ptr: [M, N].
        out_ptr: [M].
        partial_ptr: [splits, M] of accumulators, None without splits.
        arrived_ptr: [blocks] of zeros, None without splits.
        count: number of elements of which each final result is made.
        VECTOR: elements that a load takes together; divides BLOCK_N.
        ALIGN: the body of a row begins at a multiple of so many elements; a multiple of VECTOR.
        EDGE_LANES: lanes for the elements of a row that are in no whole ALIGN, 0 if there are none.
        BLOCK_SPLITS: programs that share a row, rounded up to a power of two.
        STAGES: tiles in flight.
        EVICT: the policy of the L2 cache for tiles.
        INT64_OFFSETS: whether offsets in a row may exceed 32 bits.
    """
    tl.static_assert(BLOCK_N % VECTOR == 0 and ALIGN % VECTOR == 0)
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    split = program_of_row(BLOCK_SPLITS)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    start, head, body = whole_vectors(m, N, ALIGN)
    if EDGE_LANES and not ONE_TILE_PER_CTA:
        edges, _ = load_edges(x_ptr, start, head, body, N, (m < M) & (split == 0), OP, ALIGN, EDGE_LANES)
    bits: tl.constexpr = max(x_ptr.dtype.element_ty.primitive_bitwidth, 8)
    together: tl.constexpr = (OP.narrow is not None or OP.together) and VECTOR * bits >= 32
    acc = reduce_tiles(
        x_ptr,
        body_ptr=x_ptr + (start + head) // ALIGN * ALIGN,
        first=split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :],
        body=body,
        length=N,
        mask=m < M,
        OP=OP,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        STEP=BLOCK_N,
        ONE_TILE_PER_CTA=ONE_TILE_PER_CTA,
        STAGES=STAGES,
        EVICT=EVICT,
        NEIGHBOURS=32 // bits if together else 1,
    )
    if EDGE_LANES and ONE_TILE_PER_CTA:
        # Not before the tile, which would wait until warps have exchanged the edges.
        edges, _ = load_edges(x_ptr, start, head, body, N, (m < M) & (split == 0), OP, ALIGN, EDGE_LANES)
    # Rows of several warps are reduced before their edges. nansum 134161 x 437 int32: 90 us, otherwise 191 (H100);
    # of 16 bits this is slower: amax 60000 x 1101 bf16: 53.6 us, otherwise 51.7 (H100).
    apart: tl.constexpr = bits >= 32 and BLOCK_M > 1 and BLOCK_N > 32 * VECTOR
    result = fold(acc, edges, OP, VECTOR, apart) if EDGE_LANES else tl.reduce(acc, 1, OP.combine)
    store_values(
        result[:, None],
        out_ptr,
        partial_ptr,
        arrived_ptr,
        offsets=m,
        mask=m < M,
        size=tl.full([], M, tl.int64),
        count=count,
        identity=identity_of(x_ptr, OP),
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )


@entry()
@triton.jit
def locate_rows_kernel(
    x_ptr,
    out_ptr,
    position_ptr,
    partial_ptr,
    partial_position_ptr,
    arrived_ptr,
    M,
    N,
    OP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGE_LANES: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """As :func:`reduce_rows_kernel`, and where along N the first element is that equals the result.

    Args:
        out_ptr: [M], None if only positions are wanted.
        position_ptr: [M] of int64.
        partial_position_ptr: [splits, M] of the type of offsets, None without splits.
        NEIGHBOURS: elements that share an accumulator; divides VECTOR.
    """
    tl.static_assert(BLOCK_N % VECTOR == 0)
    tl.static_assert(VECTOR % NEIGHBOURS == 0)
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    split = program_of_row(BLOCK_SPLITS)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    start, head, body = whole_vectors(m, N, VECTOR)
    if EDGE_LANES:
        edges, edge_positions = load_edges(x_ptr, start, head, body, N, (m < M) & (split == 0), OP, VECTOR, EDGE_LANES)
    body_ptr = x_ptr + (start + head) // VECTOR * VECTOR
    best, best_tile = locate_tiles(
        x_ptr,
        body_ptr,
        first=split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :],
        body=body,
        length=N,
        mask=m < M,
        OP=OP,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        STEP=BLOCK_N,
        NEIGHBOURS=NEIGHBOURS,
        ONE_TILE_PER_CTA=ONE_TILE_PER_CTA,
        STAGES=STAGES,
        EVICT=EVICT,
    )
    if EDGE_LANES:
        value = fold(best, edges, OP, VECTOR // NEIGHBOURS)[:, None]
    else:
        value = tl.reduce(best, 1, OP.combine)[:, None]

    # A lane without an element holds the identity; should it be the result, real elements before it are that too.
    offsets = best_tile + split * BLOCK_N + tl.arange(0, BLOCK_N // NEIGHBOURS)[None, :] * NEIGHBOURS
    candidates = tl.where(is_best(best, value), offsets, N)
    if EDGE_LANES:
        edge_candidates = tl.where(is_best(edges, value), edge_positions, N)
        offset, edge_position = least(candidates, edge_candidates, VECTOR // NEIGHBOURS)
    else:
        offset = tl.min(candidates, 1)
    offset = offset[:, None]
    if NEIGHBOURS > 1:
        # Where no accumulator has it, an edge has, and nothing is loaded.
        offsets = offset + tl.arange(0, NEIGHBOURS)[None, :]
        x = load(body_ptr + offsets, (m < M) & (offsets < body), OP, EVICT="")
        offset = tl.min(tl.where(is_best(x, value), offsets, N), 1)[:, None]
    position = offset + head
    if EDGE_LANES:
        position = tl.minimum(position, edge_position[:, None])
    store_located(
        value,
        position,
        out_ptr,
        position_ptr,
        partial_ptr,
        partial_position_ptr,
        arrived_ptr,
        offsets=m,
        mask=m < M,
        size=tl.full([], M, tl.int64),
        N=N,
        identity=identity_of(x_ptr, OP),
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )
