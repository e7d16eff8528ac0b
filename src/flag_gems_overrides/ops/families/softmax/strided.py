# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Long columns of no whole vectors ([M, N, K]), as they lie in memory: M rows of N * K elements.

As in :mod:`.interleaved`, a tile is BLOCK neighbours of a row of ``step`` elements, a multiple of K and of a vector, so
that a lane meets elements of one class only; here ``step`` may be longer than a tile. Programs that run at the same
time read neighbouring tiles of the same rows. Three launches: statistics of ``splits`` programs for each tile of a
row, those of each column, which are merged from them, and the result.

Rows that start anywhere have edges, as :mod:`.tile` says. The second launch has them.
"""

import triton
import triton.language as tl

from .tile import row_interior


@triton.jit
def part(N, K, step, VEC: tl.constexpr, BLOCK: tl.constexpr, UNALIGNED: tl.constexpr):
    """(row, offset and length of its aligned part, this program's first element of each ``step``)."""
    row = tl.program_id(2).to(tl.int64)
    start, inside = row_interior(row, tl.cast(N, tl.int64) * K, VEC, UNALIGNED)
    return row, start, inside, tl.program_id(0) * BLOCK


@triton.jit
def rounds(split, chunk, inside):
    """(first element, elements to the next, how many) of what one of ``splits`` programs reads, ``chunk`` at a time."""
    first = tl.cast(split, tl.int64) * chunk
    stride = tl.cast(tl.num_programs(1), tl.int64) * chunk
    return first, stride, ((tl.maximum(inside - first, 0) + (stride - 1)) // stride).to(tl.int32)


@triton.jit
def tile_mask(first, inside, i, before, step, BLOCK: tl.constexpr, VEC: tl.constexpr):
    """Of the i-th tile. The compiler sees that it is of whole vectors."""
    left = tl.minimum(tl.maximum(inside - first - i * step, 0), step).to(tl.int32) - before
    return tl.arange(0, BLOCK) < left // VEC * VEC


@triton.jit
def load_tiles(
    x_ptr,
    first,
    inside,
    before,
    step,
    other: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    VEC: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """DEPTH tiles, ``step`` from one to the next, from ``first`` of the ``inside`` elements on."""
    tiles = ()
    for i in tl.static_range(DEPTH):
        mask = tile_mask(first, inside, i, before, step, BLOCK, VEC)
        x = tl.load(x_ptr + first + i * step + before + tl.arange(0, BLOCK), mask=mask, other=other)
        tiles = tiles + (x.to(COMPUTE),)
    return tiles


@triton.jit
def edges(row, N, K, column, VEC: tl.constexpr):
    """(offset, mask) twice: of the only element of each column before the aligned part, and of the one after it."""
    length = tl.cast(N, tl.int64) * K
    start, inside = row_interior(row, length, VEC, True)
    before = start - row * length
    following = column - (inside % K).to(tl.int32)
    following += tl.where(following < 0, K, 0)
    exists = column < K
    first = exists & (K - column <= before)
    last = exists & (following < length - before - inside)
    return start + column - K, first, start + inside + following, last
