# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def, assignment, var-annotated"
"""Reductions that keep two numbers of what they have read, in one reading.

``OP`` is a :class:`.pair_policy.Pairing`: ``OP.lift`` makes elements pairs, ``OP.merge`` makes two pairs one, and
``OP.fold`` all pairs along an axis.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import is_last
from .columns import full_tile, load_tile, results_of
from .elements import load
from .row import program_of_row, remaining, whole_vectors


@triton.jit
def _load_pairs(x_ptr, second_ptr, offsets, mask, OP: tl.constexpr, EVICT: tl.constexpr):
    """Pairs of elements, or those that an earlier launch has stored; of nothing outside of ``mask``."""
    if second_ptr is None:
        return OP.lift(load(x_ptr + offsets, mask, OP, EVICT), mask, OP)
    else:
        first = tl.load(x_ptr + offsets, mask=mask, other=OP.first)
        return first, tl.load(second_ptr + offsets, mask=mask, other=OP.second)


@triton.jit
def _load_whole(x_ptr, second_ptr, offsets, mask, OP: tl.constexpr, EVICT: tl.constexpr):
    """As :func:`_load_pairs`, but outside of ``mask``, of columns that are none, they are anything."""
    if second_ptr is None:
        x = load(x_ptr + offsets, mask, OP, EVICT)
        return OP.lift(x, tl.full(x.shape, True, tl.int1), OP)
    else:
        return _load_pairs(x_ptr, second_ptr, offsets, mask, OP, EVICT)


@triton.jit
def _fold_neighbours(a, b, NEIGHBOURS: tl.constexpr, OP: tl.constexpr):
    if NEIGHBOURS == 1:
        return a, b
    else:
        shape: tl.constexpr = [a.shape[0], a.shape[1] // NEIGHBOURS, NEIGHBOURS]
        return OP.fold(tl.reshape(a, shape), tl.reshape(b, shape), 2, OP)


@triton.jit
def _fold_with_edges(a, b, edge_a, edge_b, VECTOR: tl.constexpr, OP: tl.constexpr):
    """Pairs of a tile and of its edges along a row, as ``row.fold`` has single accumulators."""
    WIDTH: tl.constexpr = edge_a.shape[1]
    if a.shape[1] % (WIDTH * VECTOR):
        a, b = OP.fold(a, b, 1, OP)
        edge_a, edge_b = OP.fold(edge_a, edge_b, 1, OP)
        return OP.merge(a, b, edge_a, edge_b, OP)
    else:
        shape: tl.constexpr = [a.shape[0], a.shape[1] // (WIDTH * VECTOR), WIDTH, VECTOR]
        a, b = OP.fold(tl.reshape(a, shape), tl.reshape(b, shape), 3, OP)
        a, b = OP.fold(a, b, 1, OP)
        a, b = OP.merge(a, b, edge_a, edge_b, OP)
        return OP.fold(a, b, 1, OP)


@triton.jit
def _store_final(a, b, out_ptr, second_out_ptr, offsets, mask, OP: tl.constexpr):
    if OP.epilogue is not None:
        tl.store(out_ptr + offsets, OP.epilogue(a, b, OP), mask=mask)
    else:
        tl.store(out_ptr + offsets, a, mask=mask)
        tl.store(second_out_ptr + offsets, b, mask=mask)


@triton.jit
def store_pairs(
    a, b, out_ptr, second_out_ptr, partial_ptr, partial_second_ptr, arrived_ptr, offsets, mask, size,
    OP: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """As ``elements.store_values``, for pairs of [BLOCK_M, BLOCK_K]."""
    if BLOCK_SPLITS == 1:
        _store_final(a, b, out_ptr, second_out_ptr, offsets, mask, OP)
    else:
        here = offsets + tl.program_id(1) * size
        tl.store(partial_ptr + here, a, mask=mask)
        tl.store(partial_second_ptr + here, b, mask=mask)
        if is_last(arrived_ptr + tl.program_id(0), tl.num_programs(1), "acq_rel"):
            split = tl.arange(0, BLOCK_SPLITS)[None, :, None]
            each = mask[:, None, :] & (split < tl.num_programs(1))
            there = offsets[:, None, :] + split * size
            a = tl.load(partial_ptr + there, mask=each, other=OP.first, cache_modifier=".cg")
            b = tl.load(partial_second_ptr + there, mask=each, other=OP.second, cache_modifier=".cg")
            a, b = OP.fold(a, b, 1, OP)
            _store_final(a, b, out_ptr, second_out_ptr, offsets, mask, OP)


@entry()
@triton.jit
def reduce_pairs_of_rows_kernel(
    x_ptr,
    second_ptr,
    out_ptr,
    second_out_ptr,
    partial_ptr,
    partial_second_ptr,
    arrived_ptr,
    M,
    N,
    OP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DEPTH: tl.constexpr,
    REST: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGE_LANES: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """Reduce N.

    Grid: blocks of BLOCK_M rows, programs that share them.

    Args:
        x_ptr: [M, N] of elements, or of the first numbers of pairs.
        second_ptr: [M, N], their second numbers; None for elements.
        out_ptr: [M], what OP.epilogue makes of the pairs, or their first numbers.
        second_out_ptr: [M], their second numbers, None with OP.epilogue.
        partial_ptr, partial_second_ptr: [splits, M] of accumulators, None without splits.
        arrived_ptr: [blocks] of zeros, None without splits.
        DEPTH: 0, or for elements of short rows, without edges, how many a lane has, with REST up to one more. BLOCK_N
            are the lanes then.
        NEIGHBOURS: elements that share an accumulator; divides VECTOR.

    The rest is as in ``reduce_rows_kernel``.
    """
    tl.static_assert(BLOCK_N % VECTOR == 0)
    tl.static_assert(VECTOR % NEIGHBOURS == 0)
    tl.static_assert(DEPTH == 0 or (second_ptr is None and EDGE_LANES == 0 and BLOCK_SPLITS == 1))
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    split = program_of_row(BLOCK_SPLITS)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    start, head, body = whole_vectors(m, N, VECTOR)
    body_start = (start + head) // VECTOR * VECTOR
    first = split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    if EDGE_LANES:
        # On their way with the first tile.
        lane = tl.arange(0, EDGE_LANES)[None, :]
        positions = tl.where(lane < VECTOR, lane, head + body + lane - VECTOR)
        is_edge = (m < M) & (split == 0) & tl.where(lane < VECTOR, lane < head, positions < N)
        edge_a, edge_b = _load_pairs(x_ptr, second_ptr, start + positions, is_edge, OP, EVICT="")
    if DEPTH > 0:
        firsts = ()
        seconds = ()
        for i in tl.static_range(DEPTH + REST):
            mask = m < M if i < DEPTH else (m < M) & (first + i * BLOCK_N < N)
            c, d = _load_pairs(x_ptr, second_ptr, body_start + i * BLOCK_N + first, mask, OP, EVICT)
            firsts = firsts + (c,)
            seconds = seconds + (d,)
        a, b = OP.fold_lanes(firsts, seconds, OP)
    elif ONE_TILE_PER_CTA:
        a, b = _load_pairs(x_ptr, second_ptr, body_start + first, (m < M) & (first < body), OP, EVICT)
    else:
        a = tl.full([BLOCK_M, BLOCK_N // NEIGHBOURS], OP.first, OP.accumulator)
        b = tl.full([BLOCK_M, BLOCK_N // NEIGHBOURS], OP.second, OP.accumulator)
        for tile in tl.range(0, N, tl.num_programs(1) * BLOCK_N, num_stages=STAGES):
            mask = (m < M) & (first < remaining(body, tile))
            c, d = _load_pairs(x_ptr, second_ptr, body_start + tile + first, mask, OP, EVICT)
            c, d = _fold_neighbours(c, d, NEIGHBOURS, OP)
            a, b = OP.merge(a, b, c, d, OP)
    if EDGE_LANES:
        a, b = _fold_with_edges(a, b, edge_a, edge_b, VECTOR // (BLOCK_N // a.shape[1]), OP)
    else:
        a, b = OP.fold(a, b, 1, OP)
    store_pairs(
        a[:, None],
        b[:, None],
        out_ptr,
        second_out_ptr,
        partial_ptr,
        partial_second_ptr,
        arrived_ptr,
        offsets=m,
        mask=m < M,
        size=tl.full([], M, tl.int64),
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )


@entry()
@triton.jit
def reduce_pairs_of_columns_kernel(
    x_ptr,
    second_ptr,
    out_ptr,
    second_out_ptr,
    partial_ptr,
    partial_second_ptr,
    arrived_ptr,
    M,
    N,
    K,
    OP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DEPTH: tl.constexpr,
    REST: tl.constexpr,
    BLOCK_K: tl.constexpr,
    K_DIVISOR: tl.constexpr,
    MATRICES: tl.constexpr,
    STARTS: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    AXIS: tl.constexpr,
):
    """Reduce N of [M, N, K] to [M, K]. Grid and parameters as in ``reduce_columns_kernel`` and above.

    DEPTH is 0 where ONE_TILE_PER_CTA has BLOCK_N elements of each result and no more.
    """
    if x_ptr.dtype.element_ty == tl.int1:
        # Of single bits LLVM makes vectors, for which it reserves 8 bytes of local memory.
        x_ptr = x_ptr.to(tl.pointer_type(tl.uint8), bitcast=True)
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    K = tl.cast(K, N.dtype) // K_DIVISOR * K_DIVISOR
    results, start, offsets, column_mask = results_of(M, N, K, BLOCK_K, K_DIVISOR, MATRICES, STARTS, BLOCK_SPLITS)
    offsets = tl.expand_dims(offsets, AXIS)
    tile_mask = tl.expand_dims(column_mask, AXIS)
    first = tl.expand_dims(split * BLOCK_N + tl.arange(0, BLOCK_N), 1 - AXIS)
    n = first.to(N.dtype)
    if ONE_TILE_PER_CTA and DEPTH > 0:
        pointers = x_ptr + start + (offsets + n * K)
        elements = load_tile(pointers, tile_mask, first, N, K, OP, BLOCK_N, DEPTH, REST, EVICT)
        every = tl.full(elements[0].shape, True, tl.int1)
        a, b = OP.lift(elements[0], every, OP)
        for i in tl.static_range(1, DEPTH):
            c, d = OP.lift(elements[i], every, OP)
            a, b = OP.merge(a, b, c, d, OP)
        if REST:
            exists = first + DEPTH * BLOCK_N < N
            c, d = OP.lift(elements[DEPTH], tl.broadcast_to(exists, every.shape), OP)
            a, b = OP.merge(a, b, c, d, OP)
    elif ONE_TILE_PER_CTA:
        a, b = _load_pairs(x_ptr, second_ptr, start + (offsets + n * K), tile_mask & (n < N), OP, EVICT)
    else:
        a = full_tile(OP.first, OP.accumulator, BLOCK_N, BLOCK_K, AXIS)
        b = full_tile(OP.second, OP.accumulator, BLOCK_N, BLOCK_K, AXIS)
        for tile in tl.range(0, N, tl.num_programs(1) * BLOCK_N, num_stages=STAGES):
            # The last row again in the place of those that do not exist. With a mask for each row, which its pairs need
            # too, there are more than predicates, and loads wait for each other: ten times for 8 rows of two columns.
            last = tl.minimum(tile + n, N - 1)
            c, d = _load_whole(x_ptr, second_ptr, start + (offsets + last * K), tile_mask, OP, EVICT)
            c = tl.where(tile + n < N, c, tl.full([], OP.first, c.dtype))
            d = tl.where(tile + n < N, d, tl.full([], OP.second, d.dtype))
            a, b = OP.merge(a, b, c, d, OP)
    a, b = OP.fold(a, b, AXIS, OP)
    store_pairs(
        a[None, :],
        b[None, :],
        out_ptr,
        second_out_ptr,
        partial_ptr,
        partial_second_ptr,
        arrived_ptr,
        offsets=results[None, :],
        mask=column_mask[None, :],
        size=tl.full([], M, tl.int64) * K,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )
