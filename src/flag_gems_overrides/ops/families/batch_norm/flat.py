# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Batch normalization of rows as they lie in memory, [A, C, B] in whole vectors, whatever C and B are.

Several rows of A are one long row of ``width`` elements, of which VEC divides the number. A program has the same
*places* of each long row, those of a block, and each thread the same few vectors; so it asks once for what it needs
to know of channels. What it has added up for each place is added up for each channel: at its end by the program, if the
block is a whole long row, or else by what merges the parts.

    block                    LANES * VEC neighbouring places of a long row; channels may begin at any of them
    channel of a place       place // B % C
    places of channel c      (i * C + c) * B + b for each row i of a long row and each b < B

A tile is ROWS long rows, ROWS times [LANES, VEC], whose loads are in flight together. The last rows of A, which make no
tile, are the ``rest``, counted in elements; the last program of each group has them.

There are three launches: GROUP programs to a block for the sums, one for some channels that adds up what these have,
and as many as before for the result. One launch whose programs wait for each other has the registers of all, and
spills.

In all kernels

    x_ptr, y_ptr, dy_ptr, dx_ptr: [A, C, B] as [tiles, ROWS, width] and [rest]
    mean_ptr, rstd_ptr: [C]      weight_ptr, bias_ptr: [C] or None
    columns_ptr: [num_programs, planes, LANES * VEC], what a program has added up for each place, or None if programs
        do not add it up for channels
    partial_ptr: [planes, GROUP, C], the same for each channel, or [planes, GROUP, width], for each place; forward
        pivots, means minus pivots, sums of squared deviations, backward sums of dy and of dy * (x - mean)
    per_row: elements of a channel in a long row      SLICE: tiles of a program
"""

import triton
import triton.language as tl


@triton.jit
def places_of_block(LANES: tl.constexpr, VEC: tl.constexpr):
    """[LANES, VEC], counted from the first of the block."""
    return tl.arange(0, LANES)[:, None] * VEC + tl.arange(0, VEC)[None, :]


@triton.jit
def block_of(block, width, LANES: tl.constexpr, VEC: tl.constexpr):
    """(first place of a block, mask of the vectors that it has: [LANES, 1])."""
    start = block * (LANES * VEC)
    return start, tl.arange(0, LANES)[:, None] < (width - start) // VEC


@triton.jit
def row_of_part(part, start, width, VEC: tl.constexpr):
    """Offset of the block among the sums of places. Written so that the compiler sees that VEC divides it."""
    return part * (width // VEC * VEC) + start


@triton.jit
def row_of_tile(tile, r: tl.constexpr, start, width, ROWS: tl.constexpr, VEC: tl.constexpr):
    """Offset of the block in a long row. Written so that the compiler sees that VEC divides it."""
    return (tl.cast(tile, tl.int64) * ROWS + r) * (width // VEC * VEC) + start


@triton.jit
def load_tile(ptr, tile, start, width, mask, ROWS: tl.constexpr, LANES: tl.constexpr, VEC: tl.constexpr):
    """ROWS long rows, as a tuple. What is masked is 0."""
    rows = ()
    for r in tl.static_range(ROWS):
        row_ptr = ptr + row_of_tile(tile, r, start, width, ROWS, VEC)
        rows = rows + (tl.load(row_ptr + places_of_block(LANES, VEC), mask=mask, other=0.0),)
    return rows


@triton.jit
def of_places(ptr, channels, DTYPE: tl.constexpr, absent: tl.constexpr):
    """ptr: [C], or None, which stands for ``absent`` everywhere."""
    if ptr is None:
        return tl.full(channels.shape, absent, DTYPE)
    else:
        return tl.load(ptr + channels).to(DTYPE)


@triton.jit
def places_of_channels(channels, entries, C, B):
    """Of these channels of the block those with these numbers, which count rows of A and elements of B."""
    return (entries // B * C + channels) * B + entries % B


@triton.jit
def rows_of_places(places, tiles, rest, with_rest, width, ROWS: tl.constexpr):
    """How many long rows have these places: those of ``tiles``, and some of the rest."""
    count = tiles * ROWS + tl.zeros_like(places)
    for r in tl.static_range(ROWS):
        count += tl.where((places < rest - r * width) & with_rest, 1, 0)
    return count


@triton.jit
def part_of_block(program, GROUP, SLICE, tiles):
    """(block, part, first tile, tile after the last, whether the rest is this part's)."""
    part = program % GROUP
    begin = part * SLICE
    return program // GROUP, part, begin, tl.minimum(begin + SLICE, tiles), part == GROUP - 1


@triton.jit
def places_in_rest(places, mask, start, r: tl.constexpr, tiles, rest, width, ROWS: tl.constexpr):
    """(offsets, mask) of a block's places in the rest's long row r."""
    begin = (tl.cast(tiles, tl.int64) * ROWS + r) * width + start
    return begin + places, mask & (start + places < rest - r * width)
