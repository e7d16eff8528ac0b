# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""An [N, K] of one program, as it lies in memory: N * K neighbouring elements, whatever K is.

By columns of no whole vectors each element is loaded by itself. Here, as in :mod:`.interleaved`, a tile is of ``step``
elements, a multiple of K and of a vector, so that an element of all tiles is of one *class*, which is a column: every
K-th element of a tile is of the same. At its end a program adds up what it has for each element of a tile by classes.
"""

import triton
import triton.language as tl

from .tile import row_interior


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
def by_classes(values, K, step, part: tl.constexpr, other: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS] of the values of a tile's elements, those of a class in a column: its ``part``-th ROWS."""
    entry = tl.arange(0, ROWS * COLUMNS)
    row, column = entry // COLUMNS + part * ROWS, entry % COLUMNS
    place = row * K + column
    mask = (column < K) & (place < step)
    gathered = tl.where(mask, tl.gather(values, tl.where(mask, place, 0), 0), other)
    return gathered.reshape([ROWS, COLUMNS])


@triton.jit
def block_edges(row, length, start, inside, K, VEC: tl.constexpr, COLUMNS: tl.constexpr):
    """(offsets, mask) of the elements of a block that are in no tile, from ``start`` on: [edges, COLUMNS], those of a
    class in a column. There are fewer than VEC before the interior, and as few after it.
    """
    EDGES: tl.constexpr = max(2 * VEC // COLUMNS, 1)  # of a class on each side, for 2 * K > COLUMNS
    edge, column = tl.arange(0, 2 * EDGES)[:, None], tl.arange(0, COLUMNS)[None, :]
    before = tl.cast(start - row * length, tl.int32)
    following = inside % K  # the class of the first element after the interior
    column_after = inside + column - following + tl.where(column < following, K, 0)
    offsets = tl.where(edge < EDGES, column - K - edge * K, column_after + (edge - EDGES) * K)
    return offsets, (column < K) & (offsets >= -before) & (offsets < length - before)


@triton.jit
def block_interior(N, K, VEC: tl.constexpr, UNALIGNED: tl.constexpr):
    """(row, elements of a block, offset and length of its aligned part)."""
    row = tl.program_id(0).to(tl.int64)
    length = N * K
    start, inside = row_interior(row, length, VEC, UNALIGNED)
    return row, length, start, tl.cast(inside, tl.int32)
