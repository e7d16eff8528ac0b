# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""How the programs of a reduction go through [M, N, K] along N.

Along a contiguous N, and with few K, a row of N * K elements is read as it lies in memory, whatever its alignment
(`flat`). With more K a tile is [N, K], so that reading along K is contiguous (`tiled`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from .combine import beats, combine, combine_neighbours, fold, is_best


@triton.jit
def _row(m, length, VECTOR: tl.constexpr):
    """Where row m starts, how many elements before its first whole vector, and how many in whole vectors.

    Written so that the compiler sees what is a multiple of VECTOR.
    """
    start = m * length
    head = ((start + VECTOR - 1) // VECTOR * VECTOR - start).to(tl.int32)
    return start, head, (length - head) // VECTOR * VECTOR


@triton.jit
def _left(body, tile):
    """How many elements there are from ``tile`` on, or very many: so that lanes need not count in 64 bits."""
    return tl.minimum(body - tile, 1 << 30).to(tl.int32)


@triton.jit
def _edges(x_ptr, start, head, body, length, wanted, other, VECTOR: tl.constexpr, EDGES: tl.constexpr):
    """The elements before and behind the whole vectors of rows, and their positions in the row."""
    e = tl.arange(0, EDGES)[None, :]
    at = tl.where(e < VECTOR, e, head + body + e - VECTOR)
    mask = wanted & tl.where(e < VECTOR, e < head, at < length)
    return tl.load(x_ptr + start + at, mask=mask, other=other), at


@triton.jit
def reduce_flat(
    x_ptr, m, M, length, k, split, identity,
    FLAT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr, VECTOR: tl.constexpr,
    EDGES: tl.constexpr, ONE_TILE_PER_CTA: tl.constexpr, STAGES: tl.constexpr, EVICT: tl.constexpr,
    COMBINE: tl.constexpr, IDENTITY: tl.constexpr, CAST: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Of rows in which every K-th element belongs together, [BLOCK_M, BLOCK_K].

    A tile advances by STEP, a multiple of K, so that an accumulator meets elements of one k only.
    """
    start, head, body = _row(m, length, VECTOR)
    lane = tl.arange(0, BLOCK_N)[None, :]
    if EDGES:
        edges, edges_at = _edges(x_ptr, start, head, body, length, (m < M) & (split == 0), IDENTITY, VECTOR, EDGES)
        edges = edges.to(CAST).to(ACC)
    x_ptrs = x_ptr + (start + head) // VECTOR * VECTOR
    mine = (m < M) & (lane < STEP)
    first = split * STEP + lane
    if ONE_TILE_PER_CTA:
        x = tl.load(x_ptrs + first, mask=mine & (first < body), other=IDENTITY, eviction_policy=EVICT)
        acc = x.to(CAST).to(ACC)
    else:
        acc = tl.full([BLOCK_M, BLOCK_N], identity, ACC)
        for tile in tl.range(0, length, tl.num_programs(1) * STEP, num_stages=STAGES):
            mask = mine & (first < _left(body, tile))
            x = tl.load(x_ptrs + tile + first, mask=mask, other=IDENTITY, eviction_policy=EVICT).to(CAST).to(ACC)
            acc = combine(acc, x, COMBINE)

    result = tl.full([BLOCK_M, k.shape[1]], identity, ACC)
    for j in tl.static_range(FLAT_K):
        part = fold(tl.where((head + lane) % FLAT_K == j, acc, identity), 1, COMBINE)
        if EDGES:
            edge = tl.where(edges_at % FLAT_K == j, edges, identity)
            part = combine(part, fold(edge, 1, COMBINE), COMBINE)
        result = tl.where(k == j, part[:, None], result)
    return result


@triton.jit
def reduce_tiled(
    x_ptr, m, M, N, k, K, split, identity,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr, EVICT: tl.constexpr, COMBINE: tl.constexpr, IDENTITY: tl.constexpr, CAST: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    x_ptrs = x_ptr + (m * N * K + k)[:, None, :]
    wanted = ((m < M) & (k < K))[:, None, :]
    first = split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :, None]
    if ONE_TILE_PER_CTA:
        n = first.to(N.dtype)
        acc = tl.load(x_ptrs + n * K, mask=wanted & (n < N), other=IDENTITY, eviction_policy=EVICT).to(CAST).to(ACC)
    else:
        acc = tl.full([BLOCK_M, BLOCK_N, BLOCK_K], identity, ACC)
        for tile in tl.range(0, N, tl.num_programs(1) * BLOCK_N, num_stages=STAGES):
            n = tile + first
            x = tl.load(x_ptrs + n * K, mask=wanted & (n < N), other=IDENTITY, eviction_policy=EVICT).to(CAST).to(ACC)
            acc = combine(acc, x, COMBINE)
    return fold(acc, 1, COMBINE)


@triton.jit
def locate_flat(
    x_ptr, m, M, length, k, split, identity,
    FLAT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr, VECTOR: tl.constexpr,
    EDGES: tl.constexpr, GROUP: tl.constexpr, ONE_TILE_PER_CTA: tl.constexpr, STAGES: tl.constexpr,
    EVICT: tl.constexpr, COMBINE: tl.constexpr, IDENTITY: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """As :func:`reduce_flat`, and the position along N of the first element that equals the result.

    Each accumulator remembers the tile of its best value. That takes two comparisons and two selections an element,
    about as long as reading it. So GROUP neighbours in a row, which are in one thread, are combined first, and the
    winner is looked for among them at the end.
    """
    start, head, body = _row(m, length, VECTOR)
    if EDGES:
        edges, edges_at = _edges(x_ptr, start, head, body, length, (m < M) & (split == 0), IDENTITY, VECTOR, EDGES)
        edges = edges.to(ACC)
    x_ptrs = x_ptr + (start + head) // VECTOR * VECTOR
    lane = tl.arange(0, BLOCK_N)[None, :]
    mine = (m < M) & (lane < STEP)
    first = split * STEP + lane
    GROUPS: tl.constexpr = BLOCK_N // GROUP
    if ONE_TILE_PER_CTA:
        x = tl.load(x_ptrs + first, mask=mine & (first < body), other=IDENTITY, eviction_policy=EVICT).to(ACC)
        best = combine_neighbours(x, GROUP, COMBINE)
        best_tile = tl.full([BLOCK_M, GROUPS], 0, length.dtype)
    else:
        best = tl.full([BLOCK_M, GROUPS], identity, ACC)
        best_tile = tl.full([BLOCK_M, GROUPS], 0, length.dtype)
        for tile in tl.range(0, length, tl.num_programs(1) * STEP, num_stages=STAGES):
            mask = mine & (first < _left(body, tile))
            x = tl.load(x_ptrs + tile + first, mask=mask, other=IDENTITY, eviction_policy=EVICT).to(ACC)
            x = combine_neighbours(x, GROUP, COMBINE)
            better = beats(x, best, COMBINE)
            best = tl.where(better, x, best)
            best_tile = tl.where(better, tile, best_tile)

    group = tl.arange(0, GROUPS)[None, :] * GROUP
    position = best_tile + split * STEP + group  # behind head
    value = tl.full([BLOCK_M, k.shape[1]], identity, ACC)
    index = tl.full([BLOCK_M, k.shape[1]], 0, length.dtype)
    # A lane without an element holds the identity; should it be the result, real elements before it are that too.
    for j in tl.static_range(FLAT_K):
        candidates = (head + group) % FLAT_K == j
        top = fold(tl.where(candidates, best, identity), 1, COMBINE)
        if EDGES:
            edge = tl.where(edges_at % FLAT_K == j, edges, identity)
            top = combine(top, fold(edge, 1, COMBINE), COMBINE)
        top = top[:, None]
        p = tl.min(tl.where(candidates & is_best(best, top), position, length), 1)[:, None]
        if GROUP > 1:
            # Where no group has it, an edge has, and nothing is loaded.
            at = p + tl.arange(0, GROUP)[None, :]
            x = tl.load(x_ptrs + at, mask=(m < M) & (at < body), other=IDENTITY).to(ACC)
            p = tl.min(tl.where(is_best(x, top), at, length), 1)[:, None]
        p += head
        if EDGES:
            hits = (edges_at % FLAT_K == j) & is_best(edges, top)
            p = tl.minimum(p, tl.min(tl.where(hits, edges_at, length), 1)[:, None])
        value = tl.where(k == j, top, value)
        index = tl.where(k == j, p // FLAT_K, index)
    return value, index


@triton.jit
def locate_tiled(
    x_ptr, m, M, N, k, K, split, identity,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr, EVICT: tl.constexpr, COMBINE: tl.constexpr, IDENTITY: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    x_ptrs = x_ptr + (m * N * K + k)[:, None, :]
    wanted = ((m < M) & (k < K))[:, None, :]
    first = split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :, None]
    best_tile = tl.full([BLOCK_M, BLOCK_N, BLOCK_K], 0, N.dtype)
    if ONE_TILE_PER_CTA:
        n = first.to(N.dtype)
        best = tl.load(x_ptrs + n * K, mask=wanted & (n < N), other=IDENTITY, eviction_policy=EVICT).to(ACC)
    else:
        best = tl.full([BLOCK_M, BLOCK_N, BLOCK_K], identity, ACC)
        for tile in tl.range(0, N, tl.num_programs(1) * BLOCK_N, num_stages=STAGES):
            n = tile + first
            x = tl.load(x_ptrs + n * K, mask=wanted & (n < N), other=IDENTITY, eviction_policy=EVICT).to(ACC)
            better = beats(x, best, COMBINE)
            best = tl.where(better, x, best)
            best_tile = tl.where(better, tile, best_tile)
    value = fold(best, 1, COMBINE)
    return value, tl.min(tl.where(is_best(best, value[:, None, :]), best_tile + first, N), 1)
