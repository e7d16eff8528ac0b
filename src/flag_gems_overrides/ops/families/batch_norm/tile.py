# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Which elements of [A, C, B] a program has, and how it adds them up.

A tile is two-dimensional. Either it has some channels and, of each, some of the A * B elements (B contiguous ones at a
time), or, where B is 1, some rows of A and some neighbouring channels (COLUMNS):

    COLUMNS   tile                  numbers of a channel   summed along
    False     [CHANNELS, BLOCK]     [CHANNELS, 1]          1
    True      [BLOCK, CHANNELS]     [1, CHANNELS]          0

A load is of VEC elements, which divides B, or C. ``vectors`` is how many of them a run of B has, or a row of C.
"""

import triton
import triton.language as tl


@triton.jit
def channels_of(block, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr):
    """The channels of a program: [1, CHANNELS] or [CHANNELS, 1]."""
    channels = block * CHANNELS + tl.arange(0, CHANNELS)
    if COLUMNS:
        return channels[None, :]
    else:
        return channels[:, None]


@triton.jit
def merged_channels(block, CHANNELS: tl.constexpr):
    """The channels of a block whose parts are merged: [1, CHANNELS], or a scalar."""
    if CHANNELS == 1:
        return block
    else:
        return (block * CHANNELS + tl.arange(0, CHANNELS))[None, :]


@triton.jit
def merged_parts(first, CHANNELS: tl.constexpr, PARTS: tl.constexpr):
    """The parts beside them: [PARTS, 1], or [PARTS]. Of [PARTS, 1] Triton 3.6 gives each thread all parts, and
    spills 12 KB."""
    parts = first + tl.arange(0, PARTS)
    if CHANNELS == 1:
        return parts
    else:
        return parts[:, None]


@triton.jit
def over_parts(x):
    return tl.sum(x, 0, keep_dims=len(x.shape) == 2)


@triton.jit
def begin_and_end(part, slice_size, total, VEC: tl.constexpr, COLUMNS: tl.constexpr, INT64_OFFSETS: tl.constexpr):
    """The elements of each channel that are of this part: rows, or vectors. Written so that the compiler sees that VEC
    divides both."""
    if INT64_OFFSETS:
        part = tl.cast(part, tl.int64)
    begin = part * slice_size
    end = tl.minimum(begin + slice_size, total)
    if COLUMNS:
        return begin, end
    else:
        return begin * VEC, end * VEC


@triton.jit
def tile_at(first, end, channels, C, vectors, BLOCK: tl.constexpr, VEC: tl.constexpr, COLUMNS: tl.constexpr):
    """(offsets, mask) of the elements [first, first + BLOCK) of these channels."""
    if COLUMNS:
        rows = first + tl.arange(0, BLOCK)[:, None]
        width = vectors * VEC
        return rows * width + channels, (rows < end) & (channels < width)
    else:
        elements = first + tl.arange(0, BLOCK)[None, :]
        before = elements // VEC // vectors
        # before * C * B + channel * B + (elements - before * B)
        return (before * (C - 1) + channels) * (vectors * VEC) + elements, (elements < end) & (channels < C)


@triton.jit
def over_tile(x, COLUMNS: tl.constexpr):
    """The sum of each channel's elements."""
    return tl.sum(x, 0 if COLUMNS else 1, keep_dims=True)


@triton.jit
def load_of_channels(ptr, channels, C, DTYPE: tl.constexpr, absent: tl.constexpr):
    """ptr: [C], or None, which stands for ``absent`` everywhere."""
    if ptr is None:
        return tl.full(channels.shape, absent, DTYPE)
    else:
        return tl.load(ptr + channels, mask=channels < C, other=absent).to(DTYPE)
