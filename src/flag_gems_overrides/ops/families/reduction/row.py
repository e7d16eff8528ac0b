# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Rows as they lie in memory, read in vectors whatever their alignment.

A row is its whole vectors (the body), the elements before them (the head) and those after them (the tail). A program
keeps a tile of accumulators and combines into it, elementwise, each tile of the body that it meets in its grid-stride
loop; only then is the tile reduced, as a binary tree. Head and tail together are the edges.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .elements import identity_of, load


@triton.jit
def whole_vectors(m, length, VECTOR: tl.constexpr):
    """Where row m starts, the length of its head, and of its body.

    Written so that the compiler sees what is a multiple of VECTOR.
    """
    start = m * length
    head = ((start + VECTOR - 1) // VECTOR * VECTOR - start).to(tl.int32)
    return start, head, (length - head) // VECTOR * VECTOR


@triton.jit
def program_of_row(BLOCK_SPLITS: tl.constexpr):
    """Which of the programs that share a row this is. A constant where it has none to share with: else no neighbouring
    rows of one element could be loaded as vectors."""
    if BLOCK_SPLITS == 1:
        return tl.full([], 0, tl.int32)
    else:
        return tl.program_id(1)


@triton.jit
def load_edges(
    x_ptr, start, head, body, length, mask, OP: tl.constexpr, VECTOR: tl.constexpr, EDGE_LANES: tl.constexpr
):
    """Head and tail of rows as accumulators, [BLOCK_M, EDGE_LANES], and the positions of their elements in the row."""
    lane = tl.arange(0, EDGE_LANES)[None, :]
    positions = tl.where(lane < VECTOR, lane, head + body + lane - VECTOR)
    mask = mask & tl.where(lane < VECTOR, lane < head, positions < length)
    return load(x_ptr + start + positions, mask, OP, EVICT=""), positions


@triton.jit
def fold(x, edges, OP: tl.constexpr, VECTOR: tl.constexpr, APART: tl.constexpr = False):
    """What threads have of a tile of accumulators, [BLOCK_M, BLOCK_N], and of its edges, along a row.

    Combined before warps exchange it, so that they do that once.

    Args:
        VECTOR: neighbours that are in one thread.
        APART: whether warps exchange them one after the other.
    """
    WIDTH: tl.constexpr = edges.shape[1]
    if APART or x.shape[1] % (WIDTH * VECTOR):
        return OP.combine(tl.reduce(x, 1, OP.combine), tl.reduce(edges, 1, OP.combine))
    else:
        apart = tl.reshape(x, [x.shape[0], x.shape[1] // (WIDTH * VECTOR), WIDTH, VECTOR])
        own = tl.reduce(tl.reduce(apart, 3, OP.combine), 1, OP.combine)
        return tl.reduce(OP.combine(own, edges), 1, OP.combine)


@triton.jit
def _lesser(a, b, c, d):
    return tl.minimum(a, c), tl.minimum(b, d)


@triton.jit
def least(positions, edge_positions, VECTOR: tl.constexpr):
    """The least of either along a row, exchanged together as in :func:`fold`."""
    WIDTH: tl.constexpr = edge_positions.shape[1]
    if positions.shape[1] % (WIDTH * VECTOR):
        return tl.min(positions, 1), tl.min(edge_positions, 1)
    else:
        apart = tl.reshape(positions, [positions.shape[0], positions.shape[1] // (WIDTH * VECTOR), WIDTH, VECTOR])
        return tl.reduce((tl.min(tl.min(apart, 3), 1), edge_positions), 1, _lesser)


@triton.jit
def remaining(body, tile):
    """How many elements there are from ``tile`` on, or very many: so that lanes need not count in 64 bits."""
    return tl.minimum(body - tile, 1 << 30).to(tl.int32)


@triton.jit
def reduce_tiles(
    x_ptr, body_ptr, first, body, length, mask,
    OP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr, STAGES: tl.constexpr, EVICT: tl.constexpr, NEIGHBOURS: tl.constexpr = 1,
):  # fmt: skip
    """The tiles of a program, combined elementwise, [BLOCK_M, BLOCK_N // NEIGHBOURS].

    Args:
        body_ptr: [BLOCK_M, 1], the bodies of the rows.
        first: [1, BLOCK_N], offsets of the first tile.
        mask: the elements of a tile that are used.
        STEP: elements of a row that a tile advances by.
        STAGES: tiles in flight.
        NEIGHBOURS: elements in a row that are combined before, in OP.narrow if there is one.
    """
    if ONE_TILE_PER_CTA:
        return _load_combined(body_ptr + first, mask & (first < body), NEIGHBOURS, OP, EVICT)
    else:
        acc = tl.full([BLOCK_M, BLOCK_N // NEIGHBOURS], identity_of(x_ptr, OP), OP.accumulator)
        for tile in tl.range(0, length, tl.num_programs(1) * STEP, num_stages=STAGES):
            x = _load_combined(body_ptr + tile + first, mask & (first < remaining(body, tile)), NEIGHBOURS, OP, EVICT)
            acc = OP.combine(acc, x)
        return acc


@triton.jit
def _load_combined(pointers, mask, NEIGHBOURS: tl.constexpr, OP: tl.constexpr, EVICT: tl.constexpr):
    if OP.narrow is None:
        return _combine_neighbours(load(pointers, mask, OP, EVICT), NEIGHBOURS, OP)
    elif NEIGHBOURS == 1:
        return load(pointers, mask, OP, EVICT)
    else:
        x = tl.load(pointers, mask=mask, other=OP.identity, eviction_policy=EVICT).to(OP.narrow)
        return _combine_neighbours(x, NEIGHBOURS, OP).to(OP.accumulator)


@triton.jit
def _combine_neighbours(x, NEIGHBOURS: tl.constexpr, OP: tl.constexpr):
    if NEIGHBOURS == 1:
        return x
    else:
        return tl.reduce(tl.reshape(x, [x.shape[0], x.shape[1] // NEIGHBOURS, NEIGHBOURS]), 2, OP.combine)


@triton.jit
def locate_tiles(
    x_ptr, body_ptr, first, body, length, mask,
    OP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr, NEIGHBOURS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr, STAGES: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """As :func:`reduce_tiles`, and for each accumulator the tile of its value, [BLOCK_M, BLOCK_N // NEIGHBOURS].

    That takes two comparisons and two selections an element, about as long as reading it. So NEIGHBOURS in a row,
    which are in one thread, are combined first and share an accumulator.
    """
    best_tile = tl.full([BLOCK_M, BLOCK_N // NEIGHBOURS], 0, length.dtype)
    if ONE_TILE_PER_CTA:
        best = _combine_neighbours(load(body_ptr + first, mask & (first < body), OP, EVICT), NEIGHBOURS, OP)
    else:
        best = tl.full([BLOCK_M, BLOCK_N // NEIGHBOURS], identity_of(x_ptr, OP), OP.accumulator)
        for tile in tl.range(0, length, tl.num_programs(1) * STEP, num_stages=STAGES):
            x = load(body_ptr + tile + first, mask & (first < remaining(body, tile)), OP, EVICT)
            x = _combine_neighbours(x, NEIGHBOURS, OP)
            better = OP.replaces(x, best)
            best = tl.where(better, x, best)
            best_tile = tl.where(better, tile, best_tile)
    return best, best_tile
