# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""One reduction for prod, max, min and their relatives, over a whole tensor or some of its dimensions.

A contiguous tensor is [M, N, K] in memory, N the reduced elements. A program holds a register block of accumulators
and combines into it, elementwise, every tile that it meets on its grid-stride walk along N; only then is the block
folded, as a binary tree. When there are too few outputs to fill the device, several programs share one of them: each
publishes its partial result, and the last to arrive combines the partials, in the order of their numbers and not of
their arrival, so that one launch is enough and the bits are the same every time.

There are two walks. Along a contiguous N, and with few K, a row of N * K elements is read as it lies in memory,
whatever its alignment (`flat`). With more K a tile is [N, K], so that reading along K is contiguous (`tiled`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._launch import entry


@triton.jit
def _multiply(a, b):
    return a * b


# GPUs have no maximum of float64; what LLVM makes of it also orders 0.0 and -0.0, at twice the instructions.


@triton.jit
def _larger(a, b):
    if a.dtype == tl.float64:
        return tl.where((a <= b) | (b != b), b, a)
    else:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _smaller(a, b):
    if a.dtype == tl.float64:
        return tl.where((a >= b) | (b != b), b, a)
    else:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


# Functions as constexpr parameters would do instead of names, but tl.reduce takes none (Triton 3.6).


@triton.jit
def _combine(a, b, COMBINE: tl.constexpr):
    if COMBINE == "multiply":
        return _multiply(a, b)
    elif COMBINE == "larger":
        return _larger(a, b)
    else:
        return _smaller(a, b)


@triton.jit
def _fold(x, axis: tl.constexpr, COMBINE: tl.constexpr):
    if COMBINE == "multiply":
        return tl.reduce(x, axis, _multiply)
    elif COMBINE == "larger":
        return tl.reduce(x, axis, _larger)
    else:
        return tl.reduce(x, axis, _smaller)


@triton.jit
def _beats(x, best, COMBINE: tl.constexpr):
    """Whether ``x`` replaces ``best``. A NaN beats every number and nothing beats a NaN, which compares to nothing."""
    if COMBINE == "larger":
        return (best == best) & ~(x <= best)
    else:
        return (best == best) & ~(x >= best)


@triton.jit
def _is(x, best):
    """Whether ``x`` is what ``best`` was found among; of elements with a NaN, NaN is."""
    return (x == best) | (x != x)


@triton.jit
def _combine_neighbours(x, GROUP: tl.constexpr, COMBINE: tl.constexpr):
    if GROUP == 1:
        return x
    else:
        return _fold(tl.reshape(x, [x.shape[0], x.shape[1] // GROUP, GROUP]), 2, COMBINE)


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
def _reduce_flat(
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
            acc = _combine(acc, x, COMBINE)

    result = tl.full([BLOCK_M, k.shape[1]], identity, ACC)
    for j in tl.static_range(FLAT_K):
        part = _fold(tl.where((head + lane) % FLAT_K == j, acc, identity), 1, COMBINE)
        if EDGES:
            edge = tl.where(edges_at % FLAT_K == j, edges, identity)
            part = _combine(part, _fold(edge, 1, COMBINE), COMBINE)
        result = tl.where(k == j, part[:, None], result)
    return result


@triton.jit
def _reduce_tiled(
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
            acc = _combine(acc, x, COMBINE)
    return _fold(acc, 1, COMBINE)


@triton.jit
def _locate_flat(
    x_ptr, m, M, length, k, split, identity,
    FLAT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr, VECTOR: tl.constexpr,
    EDGES: tl.constexpr, GROUP: tl.constexpr, ONE_TILE_PER_CTA: tl.constexpr, STAGES: tl.constexpr,
    EVICT: tl.constexpr, COMBINE: tl.constexpr, IDENTITY: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """As :func:`_reduce_flat`, and the position along N of the first element that equals the result.

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
        best = _combine_neighbours(x, GROUP, COMBINE)
        best_tile = tl.full([BLOCK_M, GROUPS], 0, length.dtype)
    else:
        best = tl.full([BLOCK_M, GROUPS], identity, ACC)
        best_tile = tl.full([BLOCK_M, GROUPS], 0, length.dtype)
        for tile in tl.range(0, length, tl.num_programs(1) * STEP, num_stages=STAGES):
            mask = mine & (first < _left(body, tile))
            x = tl.load(x_ptrs + tile + first, mask=mask, other=IDENTITY, eviction_policy=EVICT).to(ACC)
            x = _combine_neighbours(x, GROUP, COMBINE)
            better = _beats(x, best, COMBINE)
            best = tl.where(better, x, best)
            best_tile = tl.where(better, tile, best_tile)

    group = tl.arange(0, GROUPS)[None, :] * GROUP
    position = best_tile + split * STEP + group  # behind head
    value = tl.full([BLOCK_M, k.shape[1]], identity, ACC)
    index = tl.full([BLOCK_M, k.shape[1]], 0, length.dtype)
    # A lane without an element holds the identity; should it be the result, real elements before it are that too.
    for j in tl.static_range(FLAT_K):
        candidates = (head + group) % FLAT_K == j
        top = _fold(tl.where(candidates, best, identity), 1, COMBINE)
        if EDGES:
            edge = tl.where(edges_at % FLAT_K == j, edges, identity)
            top = _combine(top, _fold(edge, 1, COMBINE), COMBINE)
        top = top[:, None]
        p = tl.min(tl.where(candidates & _is(best, top), position, length), 1)[:, None]
        if GROUP > 1:
            # Where no group has it, an edge has, and nothing is loaded.
            at = p + tl.arange(0, GROUP)[None, :]
            x = tl.load(x_ptrs + at, mask=(m < M) & (at < body), other=IDENTITY).to(ACC)
            p = tl.min(tl.where(_is(x, top), at, length), 1)[:, None]
        p += head
        if EDGES:
            hits = (edges_at % FLAT_K == j) & _is(edges, top)
            p = tl.minimum(p, tl.min(tl.where(hits, edges_at, length), 1)[:, None])
        value = tl.where(k == j, top, value)
        index = tl.where(k == j, p // FLAT_K, index)
    return value, index


@triton.jit
def _locate_tiled(
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
            better = _beats(x, best, COMBINE)
            best = tl.where(better, x, best)
            best_tile = tl.where(better, tile, best_tile)
    value = _fold(best, 1, COMBINE)
    return value, tl.min(tl.where(_is(best, value[:, None, :]), best_tile + first, N), 1)


@triton.jit
def _is_last(arrived_ptr, block):
    """Whether the other programs of this block have published their results, which this one can then see."""
    tl.debug_barrier()
    last = tl.atomic_add(arrived_ptr + block, 1, sem="acq_rel") == tl.num_programs(1) - 1
    if last:
        tl.store(arrived_ptr + block, 0)
    return last


@triton.jit
def _partials(partial_ptr, outputs, wanted, size, other, BLOCK_SPLITS: tl.constexpr):
    """What the programs of a block have published, [M, splits, K]."""
    s = tl.arange(0, BLOCK_SPLITS)[None, :, None]
    mask = wanted[:, None, :] & (s < tl.num_programs(1))
    # Not from L1, which may hold what was there before.
    return tl.load(partial_ptr + outputs[:, None, :] + s * size, mask=mask, other=other, cache_modifier=".cg")


@entry()
@triton.jit
def reduce_kernel(
    x_ptr,  # [M, N, K]
    out_ptr,  # [M, K]
    partial_ptr,  # [splits, M, K] in ACC, None without splits
    arrived_ptr,  # a zero for each block, None without splits
    M,
    N,
    K,
    FLAT_K: tl.constexpr,  # K for the flat walk, 0 for the tiled one
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STEP: tl.constexpr,  # how much of a tile is used; less than all only if flat
    VECTOR: tl.constexpr,  # elements that a load takes together; divides K if tiled
    EDGES: tl.constexpr,  # lanes for what is outside of whole vectors in a row, 0 if there is nothing
    BLOCK_SPLITS: tl.constexpr,  # number of splits, rounded up to a power of two
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,  # tiles in flight
    EVICT: tl.constexpr,  # the policy of the L2 cache for tiles
    OFFSET: tl.constexpr,  # tl.int64 where 32 bits may not do
    COMBINE: tl.constexpr,
    IDENTITY: tl.constexpr,
    CAST: tl.constexpr,  # what the input is converted to first
    ACC: tl.constexpr,  # what is computed with
):
    block = tl.program_id(0)
    split = tl.program_id(1)
    identity = tl.full([], IDENTITY, x_ptr.dtype.element_ty).to(CAST).to(ACC)
    N = tl.full([], N, OFFSET)
    if FLAT_K:
        m = block.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        k = tl.arange(0, BLOCK_K)[None, :]
        result = _reduce_flat(
            x_ptr, m, M, N * K, k, split, identity, FLAT_K, BLOCK_M, BLOCK_N, STEP, VECTOR, EDGES,
            ONE_TILE_PER_CTA, STAGES, EVICT, COMBINE, IDENTITY, CAST, ACC,
        )  # fmt: skip
    else:
        K = K // VECTOR * VECTOR
        k_blocks = tl.cdiv(K, BLOCK_K)
        m = (block // k_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        k = (block % k_blocks) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
        result = _reduce_tiled(
            x_ptr, m, M, N, k, K, split, identity, BLOCK_M, BLOCK_N, BLOCK_K, ONE_TILE_PER_CTA, STAGES, EVICT,
            COMBINE, IDENTITY, CAST, ACC,
        )  # fmt: skip

    outputs = m * K + k
    wanted = (m < M) & (k < K)
    if BLOCK_SPLITS == 1:
        tl.store(out_ptr + outputs, result, mask=wanted)
    else:
        size = tl.full([], M, tl.int64) * K
        tl.store(partial_ptr + outputs + split * size, result, mask=wanted)
        if _is_last(arrived_ptr, block):
            partials = _partials(partial_ptr, outputs, wanted, size, identity, BLOCK_SPLITS)
            tl.store(out_ptr + outputs, _fold(partials, 1, COMBINE), mask=wanted)


@entry()
@triton.jit
def reduce_with_index_kernel(
    x_ptr,  # [M, N, K]
    out_ptr,  # [M, K], None if only indices are wanted
    index_ptr,  # [M, K] of int64
    partial_ptr,  # [splits, M, K] in ACC, None without splits
    partial_index_ptr,  # [splits, M, K] of OFFSET, None without splits
    arrived_ptr,  # a zero for each block, None without splits
    M,
    N,
    K,
    FLAT_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STEP: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    GROUP: tl.constexpr,  # neighbours that are combined before they are compared
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    OFFSET: tl.constexpr,
    COMBINE: tl.constexpr,
    IDENTITY: tl.constexpr,
    ACC: tl.constexpr,
):
    """As :func:`reduce_kernel`, and where along N the first element that equals the result is."""
    block = tl.program_id(0)
    split = tl.program_id(1)
    identity = tl.full([], IDENTITY, x_ptr.dtype.element_ty).to(ACC)
    N = tl.full([], N, OFFSET)
    if FLAT_K:
        m = block.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        k = tl.arange(0, BLOCK_K)[None, :]
        value, index = _locate_flat(
            x_ptr, m, M, N * K, k, split, identity, FLAT_K, BLOCK_M, BLOCK_N, STEP, VECTOR, EDGES, GROUP,
            ONE_TILE_PER_CTA, STAGES, EVICT, COMBINE, IDENTITY, ACC,
        )  # fmt: skip
    else:
        K = K // VECTOR * VECTOR
        k_blocks = tl.cdiv(K, BLOCK_K)
        m = (block // k_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        k = (block % k_blocks) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
        value, index = _locate_tiled(
            x_ptr, m, M, N, k, K, split, identity, BLOCK_M, BLOCK_N, BLOCK_K, ONE_TILE_PER_CTA, STAGES, EVICT,
            COMBINE, IDENTITY, ACC,
        )  # fmt: skip

    outputs = m * K + k
    wanted = (m < M) & (k < K)
    if BLOCK_SPLITS == 1:
        if out_ptr is not None:
            tl.store(out_ptr + outputs, value, mask=wanted)
        tl.store(index_ptr + outputs, index, mask=wanted)
    else:
        size = tl.full([], M, tl.int64) * K
        tl.store(partial_ptr + outputs + split * size, value, mask=wanted)
        tl.store(partial_index_ptr + outputs + split * size, index, mask=wanted)
        if _is_last(arrived_ptr, block):
            partials = _partials(partial_ptr, outputs, wanted, size, identity, BLOCK_SPLITS)
            indices = _partials(partial_index_ptr, outputs, wanted, size, N, BLOCK_SPLITS)
            value = _fold(partials, 1, COMBINE)
            index = tl.min(tl.where(_is(partials, value[:, None, :]), indices, N), 1)
            if out_ptr is not None:
                tl.store(out_ptr + outputs, value, mask=wanted)
            tl.store(index_ptr + outputs, index, mask=wanted)
