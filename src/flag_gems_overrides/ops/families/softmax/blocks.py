# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""An [N, K] of one program, as it lies in memory: N * K neighbouring elements, whatever K is.

By columns of no whole vectors each element is loaded by itself. Here, as in :mod:`.interleaved`, a tile is of ``step``
elements, a multiple of K and of a vector, so that an element of all tiles is of one *class*, which is a column: every
K-th element of a tile is of the same. At its end a program adds up what it has for each element of a tile by classes.
"""

import triton
import triton.language as tl

from .tile import row_edges, row_interior


@triton.jit
def load_raw(
    x_ptr, first, inside, step, other: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr, VEC: tl.constexpr
):
    """DEPTH tiles, one after the other, from ``first`` of the ``inside`` elements on, in the precision of memory."""
    tiles = ()
    for i in tl.static_range(DEPTH):
        pointers, mask = place(x_ptr, first, inside, step, i, BLOCK, VEC)
        tiles = tiles + (tl.load(pointers, mask=mask, other=other),)
    return tiles


@triton.jit
def place(x_ptr, first, inside, step, i, BLOCK: tl.constexpr, VEC: tl.constexpr):
    """(pointers, mask) of the i-th tile. The compiler sees that both are of whole vectors."""
    start = first + i * (step // VEC * VEC)
    left = tl.minimum(tl.maximum(inside - start, 0), step) // VEC * VEC
    return x_ptr + start + tl.arange(0, BLOCK), tl.arange(0, BLOCK) < left


@triton.jit
def by_classes(values, K, step, other: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS] of the values of a tile's elements: those of a class in a column."""
    entry = tl.arange(0, ROWS * COLUMNS)
    row, column = entry // COLUMNS, entry % COLUMNS
    place = row * K + column
    mask = (column < K) & (place < step)
    gathered = tl.where(mask, tl.gather(values, tl.where(mask, place, 0), 0), other)
    return gathered.reshape([ROWS, COLUMNS])


@triton.jit
def block_edges(row, length, start, K, VEC: tl.constexpr):
    """(offsets, mask, classes) of the elements of a block that are in no tile."""
    offsets, mask = row_edges(row, length, VEC)
    return offsets, mask, ((offsets - start).to(tl.int32) + VEC * K) % K


@triton.jit
def edges_by_classes(edge, mask, classes, other: tl.constexpr, COLUMNS: tl.constexpr):
    """[2 * VEC, COLUMNS]"""
    is_of = (classes[:, None] == tl.arange(0, COLUMNS)[None, :]) & mask[:, None]
    return tl.where(is_of, edge[:, None], other)


@triton.jit
def block_interior(N, K, VEC: tl.constexpr, UNALIGNED: tl.constexpr):
    """(row, elements of a block, offset and length of its aligned part)."""
    row = tl.program_id(0).to(tl.int64)
    length = N * K
    start, inside = row_interior(row, length, VEC, UNALIGNED)
    return row, length, start, tl.cast(inside, tl.int32)
