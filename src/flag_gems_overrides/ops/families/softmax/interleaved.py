# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Few long columns ([M, N, K] with K up to 8) as they lie in memory: M rows of N * K elements.

Every K-th element of a row is of one *class*, which is a column. A tile is of STEP elements, a multiple of K and of a
vector, so that a lane meets elements of one class only, and loads vectors whatever K is. By columns each element is
loaded by itself; where K is 3 one lane of four has no element.

Two launches, of ``splits`` programs for each row: statistics of each program's tiles, then the result. Rows that start
anywhere have edges, as :mod:`.tile` says.
"""

import triton
import triton.language as tl

from .tile import row_edges, row_interior


@triton.jit
def interior(N, K: tl.constexpr, VEC: tl.constexpr, UNALIGNED: tl.constexpr):
    """(row, its length, offset and length of its aligned part)."""
    row = tl.program_id(0).to(tl.int64)
    length = tl.cast(N, tl.int64) * K
    start, inside = row_interior(row, length, VEC, UNALIGNED)
    return row, length, start, inside


@triton.jit
def load_tiles(
    x_ptr,
    first,
    inside,
    other: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    DEPTH: tl.constexpr,
    VEC: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """DEPTH tiles, one after the other, from ``first`` of the ``inside`` elements on."""
    tiles = ()
    for i in tl.static_range(DEPTH):
        mask = tile_mask(first, inside, i, BLOCK, STEP, VEC)
        x = tl.load(x_ptr + first + i * STEP + tl.arange(0, BLOCK), mask=mask, other=other)
        tiles = tiles + (x.to(COMPUTE),)
    return tiles


@triton.jit
def tile_mask(first, inside, i, BLOCK: tl.constexpr, STEP: tl.constexpr, VEC: tl.constexpr):
    """Of the i-th tile. The compiler sees that it is of whole vectors."""
    left = tl.minimum(tl.maximum(inside - first - i * STEP, 0), STEP).to(tl.int32) // VEC * VEC
    return tl.arange(0, BLOCK) < left


@triton.jit
def edges(row, length, start, K: tl.constexpr, VEC: tl.constexpr):
    """(offsets, mask, classes) of the elements of a row that are in no tile. Its first program has them."""
    offsets, mask = row_edges(row, length, VEC)
    return offsets, mask & (tl.program_id(1) == 0), (offsets - start + VEC * K) % K
