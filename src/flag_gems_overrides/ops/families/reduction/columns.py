# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, no-untyped-def"
"""A contiguous [M, N, K] in tiles of BLOCK_K results by BLOCK_N elements of each.

Results lie side by side, even those of different [N, K]: whatever K is, no lane is without one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.triton_versions import LANES_BEFORE_DEPTH
from .elements import identity_of, is_best, load, store_located, store_values

# Where nothing tells Triton which dimension of a tile is contiguous in memory, it lays threads along the first (3.6) or
# the last (3.7): results are there.
N_AXIS = 1 if LANES_BEFORE_DEPTH else 0


@triton.jit
def results_of(
    M, N, K, BLOCK_K: tl.constexpr, K_DIVISOR: tl.constexpr, MATRICES: tl.constexpr, STARTS: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """(indices, start, offsets from it, mask) of the results of a program, [BLOCK_K], and of their first elements.

    MATRICES: how many [N, K] they are of at most; 3 stands for more, 0 for one, of which each program has BLOCK_K. This
    saves a division for each vector: 4 results of amax 6 x 2 x 8388582 float16 take 140 instructions, not 187 (sm_90).
    STARTS: in which [N, K] the first result of a program is: in the "first" one, in that of the grid's third "axis", or
    "divided", which a load waits for.
    """
    # Neighbours that are in one row of K are loaded as a vector. Triton finds them for itself from 3.9 on.
    # 1024 x 1024 x 1024 bfloat16: 477 us, element by element (3.6) 619.
    NEIGHBOURS: tl.constexpr = min(K_DIVISOR, BLOCK_K)
    lane = tl.arange(0, BLOCK_K)
    if MATRICES == 0:
        blocks = tl.cdiv(K, BLOCK_K)
        m = tl.program_id(0).to(K.dtype) // blocks
        column = tl.program_id(0).to(K.dtype) % blocks * BLOCK_K + lane
        first = m * K + tl.program_id(0).to(K.dtype) % blocks * BLOCK_K
    elif STARTS == "divided":
        first = tl.program_id(0).to(K.dtype) * BLOCK_K
        m = first // K
        column = first % K + lane  # counted from the [N, K] where the first lies
    else:
        m = tl.program_id(2).to(K.dtype) if STARTS == "axis" else tl.full([], 0, K.dtype)
        start = tl.program_id(0).to(K.dtype) * BLOCK_K
        first = m * K + start
        column = start + lane
    if MATRICES <= 1:
        offsets = column
    elif MATRICES == 2:
        offsets = column + tl.where(column < K, 0, (N - 1) * K)
    else:
        offsets = column // K * (N * K) + column % K
    offsets = tl.max_contiguous(tl.multiple_of(offsets, NEIGHBOURS), NEIGHBOURS)
    mask = tl.max_constancy(column < (K if MATRICES == 0 else (M - m) * K), NEIGHBOURS)
    results = first + lane
    if BLOCK_SPLITS == 1:
        # The mask lets no more be stored together. Triton would move longer vectors to each thread, through shared
        # memory, and store them in pieces that lie apart.
        results = tl.max_contiguous(results, NEIGHBOURS)
    return results, m.to(tl.int64) * N * K, offsets, mask


@triton.jit
def full_tile(value, dtype: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, AXIS: tl.constexpr):
    """A tile of one value."""
    if AXIS == 0:
        return tl.full([BLOCK_N, BLOCK_K], value, dtype)
    else:
        return tl.full([BLOCK_K, BLOCK_N], value, dtype)


@triton.jit
def load_tile(
    pointers, mask, first, N, K,
    OP: tl.constexpr, BLOCK_N: tl.constexpr, DEPTH: tl.constexpr, REST: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """A tuple of tiles, which together have all elements: DEPTH whole ones, with REST one in part.

    No lanes beyond N are loaded then, but a few of the last: a tile of a power of two has up to half of them there.
    """
    elements = ()
    for i in tl.static_range(DEPTH):
        elements = elements + (load(pointers + i * BLOCK_N * K, mask, OP, EVICT),)
    if REST:
        exists = first + DEPTH * BLOCK_N < N
        elements = elements + (load(pointers + DEPTH * BLOCK_N * K, mask & exists, OP, EVICT),)
    return elements


@entry()
@triton.jit
def reduce_columns_kernel(
    x_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    M,
    N,
    K,
    count,
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
    """Reduce N.

    Grid: blocks of BLOCK_K results, programs that share them, and M where STARTS says so.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, K].
        partial_ptr: [splits, M, K] of accumulators, None without splits.
        arrived_ptr: [blocks] of zeros, None without splits.
        count: number of elements of which each final result is made.
        DEPTH, REST: as in :func:`load_tile`, of ONE_TILE_PER_CTA.
        K_DIVISOR: a power of two that divides K, for the compiler to know.
        MATRICES, STARTS: as in :func:`results_of`.
        AXIS: the one of N in a tile.

    The rest is as in ``reduce_rows_kernel``.
    """
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    K = tl.cast(K, N.dtype) // K_DIVISOR * K_DIVISOR
    results, start, offsets, mask = results_of(M, N, K, BLOCK_K, K_DIVISOR, MATRICES, STARTS, BLOCK_SPLITS)
    offsets = tl.expand_dims(offsets, AXIS)
    tile_mask = tl.expand_dims(mask, AXIS)
    first = tl.expand_dims(split * BLOCK_N + tl.arange(0, BLOCK_N), 1 - AXIS)
    identity = identity_of(x_ptr, OP)
    if ONE_TILE_PER_CTA:
        pointers = x_ptr + start + (offsets + first.to(N.dtype) * K)
        elements = load_tile(pointers, tile_mask, first, N, K, OP, BLOCK_N, DEPTH, REST, EVICT)
        acc = elements[0]
        for i in tl.static_range(1, DEPTH + REST):
            acc = OP.combine(acc, elements[i])
    else:
        acc = full_tile(identity, OP.accumulator, BLOCK_N, BLOCK_K, AXIS)
        for tile in tl.range(0, N, tl.num_programs(1) * BLOCK_N, num_stages=STAGES):
            n = tile + first
            x = load(x_ptr + start + (offsets + n * K), tile_mask & (n < N), OP, EVICT)
            acc = OP.combine(acc, x)
    store_values(
        tl.reduce(acc, AXIS, OP.combine)[None, :],
        out_ptr,
        partial_ptr,
        arrived_ptr,
        offsets=results[None, :],
        mask=mask[None, :],
        size=tl.full([], M, tl.int64) * K,
        count=count,
        identity=identity,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )


@entry()
@triton.jit
def locate_columns_kernel(
    x_ptr,
    out_ptr,
    position_ptr,
    partial_ptr,
    partial_position_ptr,
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
    """As :func:`reduce_columns_kernel`, and where along N the first element is that equals the result.

    Args:
        out_ptr: [M, K], None if only positions are wanted.
        position_ptr: [M, K] of int64.
        partial_position_ptr: [splits, M, K] of the type of offsets, None without splits.
    """
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    K = tl.cast(K, N.dtype) // K_DIVISOR * K_DIVISOR
    results, start, offsets, mask = results_of(M, N, K, BLOCK_K, K_DIVISOR, MATRICES, STARTS, BLOCK_SPLITS)
    offsets = tl.expand_dims(offsets, AXIS)
    tile_mask = tl.expand_dims(mask, AXIS)
    first = tl.expand_dims(split * BLOCK_N + tl.arange(0, BLOCK_N), 1 - AXIS)
    identity = identity_of(x_ptr, OP)
    best_tile = full_tile(0, N.dtype, BLOCK_N, BLOCK_K, AXIS)
    if ONE_TILE_PER_CTA:
        pointers = x_ptr + start + (offsets + first.to(N.dtype) * K)
        elements = load_tile(pointers, tile_mask, first, N, K, OP, BLOCK_N, DEPTH, REST, EVICT)
        best = elements[0]
        for i in tl.static_range(1, DEPTH + REST):
            better = OP.replaces(elements[i], best)
            best = tl.where(better, elements[i], best)
            best_tile = tl.where(better, i * BLOCK_N, best_tile)
    else:
        best = full_tile(identity, OP.accumulator, BLOCK_N, BLOCK_K, AXIS)
        for tile in tl.range(0, N, tl.num_programs(1) * BLOCK_N, num_stages=STAGES):
            n = tile + first
            x = load(x_ptr + start + (offsets + n * K), tile_mask & (n < N), OP, EVICT)
            better = OP.replaces(x, best)
            best = tl.where(better, x, best)
            best_tile = tl.where(better, tile, best_tile)
    values = tl.reduce(best, AXIS, OP.combine)
    found = is_best(best, tl.expand_dims(values, AXIS))
    store_located(
        values[None, :],
        tl.min(tl.where(found, best_tile + first, N), AXIS)[None, :],
        out_ptr,
        position_ptr,
        partial_ptr,
        partial_position_ptr,
        arrived_ptr,
        offsets=results[None, :],
        mask=mask[None, :],
        size=tl.full([], M, tl.int64) * K,
        N=N,
        identity=identity,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )
