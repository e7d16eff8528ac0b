# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""A contiguous [M, N, K] with few K, read as rows of N * K elements: every K-th element is of the same class."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from .elements import identity_of, is_best, store_located, store_values
from .row import load_edges, locate_tiles, reduce_tiles, whole_vectors


@entry()
@triton.jit
def reduce_classes_kernel(
    x_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    M,
    N,
    count,
    OP: tl.constexpr,
    K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STEP: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGE_LANES: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """Reduce N.

    Grid: M, programs that share a row.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, K].
        partial_ptr: [splits, M, K] of accumulators, None without splits.
        arrived_ptr: [M] of zeros, None without splits.
        count: number of elements of which each final result is made.
        STEP: how many elements of a tile are used; a multiple of VECTOR, and where there is more than one tile of K
            too, so that an accumulator meets elements of one class only.

    The rest is as in ``reduce_rows_kernel``.
    """
    tl.static_assert(STEP % VECTOR == 0)
    tl.static_assert(STEP % K == 0 or (ONE_TILE_PER_CTA and BLOCK_SPLITS == 1))
    m = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK_K)[None, :]
    lane = tl.arange(0, BLOCK_N)[None, :]
    split = tl.program_id(1)
    length = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32) * K
    start, head, body = whole_vectors(m, length, VECTOR)
    if EDGE_LANES:
        edges, edge_positions = load_edges(x_ptr, start, head, body, length, split == 0, OP, VECTOR, EDGE_LANES)
    acc = reduce_tiles(
        x_ptr,
        body_ptr=x_ptr + (start + head) // VECTOR * VECTOR,
        first=split * STEP + lane,
        body=body,
        length=length,
        mask=lane < STEP,
        OP=OP,
        BLOCK_M=1,
        BLOCK_N=BLOCK_N,
        STEP=STEP,
        ONE_TILE_PER_CTA=ONE_TILE_PER_CTA,
        STAGES=STAGES,
        EVICT=EVICT,
    )
    identity = identity_of(x_ptr, OP)
    result = tl.full([1, BLOCK_K], identity, OP.accumulator)
    for c in tl.static_range(K):
        part = tl.reduce(tl.where((head + lane) % K == c, acc, identity), 1, OP.combine)
        if EDGE_LANES:
            edge = tl.where(edge_positions % K == c, edges, identity)
            part = OP.combine(part, tl.reduce(edge, 1, OP.combine))
        result = tl.where(k == c, part[:, None], result)
    store_values(
        result,
        out_ptr,
        partial_ptr,
        arrived_ptr,
        offsets=m * K + k,
        mask=k < K,
        size=tl.full([], M, tl.int64) * K,
        count=count,
        identity=identity,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )


@entry()
@triton.jit
def locate_classes_kernel(
    x_ptr,
    out_ptr,
    position_ptr,
    partial_ptr,
    partial_position_ptr,
    arrived_ptr,
    M,
    N,
    OP: tl.constexpr,
    K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STEP: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGE_LANES: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """As :func:`reduce_classes_kernel`, and where along N the first element is that equals the result.

    Args:
        out_ptr: [M, K], None if only positions are wanted.
        position_ptr: [M, K] of int64.
        partial_position_ptr: [splits, M, K] of the type of offsets, None without splits.
    """
    tl.static_assert(STEP % VECTOR == 0)
    tl.static_assert(STEP % K == 0 or (ONE_TILE_PER_CTA and BLOCK_SPLITS == 1))
    m = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK_K)[None, :]
    lane = tl.arange(0, BLOCK_N)[None, :]
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    length = N * K
    start, head, body = whole_vectors(m, length, VECTOR)
    if EDGE_LANES:
        edges, edge_positions = load_edges(x_ptr, start, head, body, length, split == 0, OP, VECTOR, EDGE_LANES)
    best, best_tile = locate_tiles(
        x_ptr,
        body_ptr=x_ptr + (start + head) // VECTOR * VECTOR,
        first=split * STEP + lane,
        body=body,
        length=length,
        mask=lane < STEP,
        OP=OP,
        BLOCK_M=1,
        BLOCK_N=BLOCK_N,
        STEP=STEP,
        NEIGHBOURS=1,
        ONE_TILE_PER_CTA=ONE_TILE_PER_CTA,
        STAGES=STAGES,
        EVICT=EVICT,
    )
    offsets = best_tile + split * STEP + lane
    identity = identity_of(x_ptr, OP)
    values = tl.full([1, BLOCK_K], identity, OP.accumulator)
    positions = tl.full([1, BLOCK_K], 0, length.dtype)
    # A lane without an element holds the identity; should it be the result, real elements before it are that too.
    for c in tl.static_range(K):
        in_class = (head + lane) % K == c
        value = tl.reduce(tl.where(in_class, best, identity), 1, OP.combine)
        if EDGE_LANES:
            edge = tl.where(edge_positions % K == c, edges, identity)
            value = OP.combine(value, tl.reduce(edge, 1, OP.combine))
        value = value[:, None]
        position = head + tl.min(tl.where(in_class & is_best(best, value), offsets, length), 1)[:, None]
        if EDGE_LANES:
            found = (edge_positions % K == c) & is_best(edges, value)
            position = tl.minimum(position, tl.min(tl.where(found, edge_positions, length), 1)[:, None])
        values = tl.where(k == c, value, values)
        positions = tl.where(k == c, position // K, positions)
    store_located(
        values,
        positions,
        out_ptr,
        position_ptr,
        partial_ptr,
        partial_position_ptr,
        arrived_ptr,
        offsets=m * K + k,
        mask=k < K,
        size=tl.full([], M, tl.int64) * K,
        N=N,
        identity=identity,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )
