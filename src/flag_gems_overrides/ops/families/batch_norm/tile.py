# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Which elements of [A, C, B] a program has, and how it adds them up.

A tile is two-dimensional. Either it has some channels and, of each, some of the A * B elements (B contiguous ones at a
time), or, where B is 1, some rows of A and some neighbouring channels (COLUMNS):

    COLUMNS   tile                  numbers of a channel   summed along
    False     [CHANNELS, BLOCK]     [CHANNELS, 1]          1
    True      [BLOCK, CHANNELS]     [1, CHANNELS]          0

A load is of VEC elements, which divides B, or C. ``vectors`` is how many of them a run of B has, or a row of C.

RUN, if it is not 0, is a power of two: a run of B is read in pieces of RUN elements, the last of them masked, so
that no thread divides by B. Either a run is one piece and a tile has several runs, or a tile is one piece.

Long runs that VEC does not divide are read as heads, vectors and tails: unaligned_tile_at and edges_at.
"""

import triton
import triton.language as tl

from ..norm.statistics import add_pairs


@triton.jit
def channels_of(block, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr):
    """The channels of a program: [1, CHANNELS] or [CHANNELS, 1]."""
    channels = block * CHANNELS + tl.arange(0, CHANNELS)
    if COLUMNS:
        return channels[None, :]
    else:
        return channels[:, None]


@triton.jit
def held_channels(block, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same for a program that holds channels: a scalar for one channel, and tiles are [BLOCK].

    Of [1, 1] numbers and [1, BLOCK] elements Triton gives each thread all elements, which it loads and adds one by one.
    """
    if CHANNELS == 1:
        return block
    else:
        return channels_of(block, CHANNELS, COLUMNS)


@triton.jit
def columns_and_channels(block, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr, RUN: tl.constexpr):
    """What a program of a *_channels kernel holds, and of which channels: RUN columns to a channel, or 0 for one."""
    held = held_channels(block, CHANNELS, COLUMNS)
    if RUN:
        return held, held // RUN
    else:
        return held, held


@triton.jit
def over_runs(x, RUN: tl.constexpr):
    """[1, CHANNELS] sums of columns as those of all RUN columns of their channel."""
    if RUN:
        runs = tl.reshape(x, [x.numel // RUN, RUN])
        return tl.reshape(tl.broadcast_to(tl.sum(runs, 1, keep_dims=True), runs.shape), x.shape)
    else:
        return x


@triton.jit
def merged_channels(block, CHANNELS: tl.constexpr):
    """The channels of a block whose parts are merged: [1, CHANNELS], or a scalar."""
    if CHANNELS == 1:
        return block
    else:
        return (block * CHANNELS + tl.arange(0, CHANNELS))[None, :]


@triton.jit
def merged_parts(first, CHANNELS: tl.constexpr, PARTS: tl.constexpr):
    """The parts next to merged_channels: [PARTS, 1], or [PARTS].

    Of [PARTS, 1] for one channel Triton 3.6 gives each thread all parts, and spills 12 KB.
    """
    parts = first + tl.arange(0, PARTS)
    if CHANNELS == 1:
        return parts
    else:
        return parts[:, None]


@triton.jit
def over_parts(x):
    return tl.sum(x, 0, keep_dims=len(x.shape) == 2)


@triton.jit
def begin_and_end(
    part,
    slice_size,
    total,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    RUN: tl.constexpr = 0,
):
    """(first, end) of this part's elements of each channel, masked ones included: rows, vectors, or pieces.

    The code is written so that the compiler sees what divides both.
    """
    if INT64_OFFSETS:
        part = tl.cast(part, tl.int64)
    begin = part * slice_size
    end = tl.minimum(begin + slice_size, total)
    if COLUMNS:
        return begin, end
    elif RUN > 0:
        return begin * RUN, end * RUN
    else:
        return begin * VEC, end * VEC


@triton.jit
def lanes_of(channels, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    """[0, BLOCK) along the dimension of a tile that has no channels."""
    lanes = tl.arange(0, BLOCK)
    if len(channels.shape) == 0:
        return lanes
    elif COLUMNS:
        return lanes[:, None]
    else:
        return lanes[None, :]


@triton.jit
def quotient(number, divisor):
    """number // divisor where ``number * divisor`` is less than 2**30, by a multiplication.

    A division of each element takes 20 instructions or more.
    3128 x 71 x 3 float16: 12.9 us, with divisions 13.8 (H100).

    ``inverse`` is (2**31 + e) / divisor with e < divisor. So what is rounded down is (number + 1/2) / divisor and less
    than 1/2 / divisor more, as (number + 1/2) * e is less than 2**30.
    """
    inverse = tl.cast(tl.cast(0x7FFFFFFF // divisor, tl.uint32) + 1, tl.uint64)
    twice = tl.cast(tl.cast(2 * number + 1, tl.uint32), tl.uint64)
    return tl.cast((twice * inverse) >> 32, tl.int32)


@triton.jit
def run_of(first, lanes, vectors, BLOCK: tl.constexpr, VEC: tl.constexpr):
    """The runs that the elements first + lanes are of, ``vectors`` of VEC elements to a run."""
    unit = first // VEC
    run = unit // vectors
    units = tl.cast(unit - run * vectors, tl.int32) + lanes // VEC
    # A tile has at most two long runs; their product may be too large.
    UNITS: tl.constexpr = BLOCK // VEC
    tl.static_assert(2 * UNITS * UNITS < 1 << 30)
    after = tl.where(vectors < UNITS, quotient(units, tl.minimum(vectors, UNITS)), (units >= vectors).to(tl.int32))
    return run + after


@triton.jit
def tile_at(
    first,
    end,
    channels,
    C,
    vectors,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    RUN: tl.constexpr = 0,
):
    """(offsets, mask) of the elements [first, first + BLOCK) of these channels."""
    width = vectors * VEC
    if COLUMNS:
        rows = first + lanes_of(channels, BLOCK, COLUMNS)
        return rows * width + channels, (rows < end) & (channels < width)
    elif RUN == 0:
        lanes = lanes_of(channels, BLOCK, COLUMNS)
        elements = first + lanes
        before = run_of(first, lanes, vectors, BLOCK, VEC)
        # before * C * B + channel * B + (elements - before * B)
        return (before * (C - 1) + channels) * width + elements, (elements < end) & (channels < C)
    elif RUN < BLOCK:
        lanes = tl.arange(0, BLOCK)[None, :]
        runs = first // RUN + lanes // RUN
        places = lanes % RUN
        return (runs * C + channels) * width + places, (runs < end // RUN) & (places < width) & (channels < C)
    else:
        piece = first // RUN
        pieces = (width + RUN - 1) // RUN
        places = piece % pieces * RUN + tl.arange(0, BLOCK)[None, :]
        return (piece // pieces * C + channels) * width + places, (places < width) & (channels < C)


@triton.jit
def unaligned_tile_at(first, end, channels, C, B, BLOCK: tl.constexpr, VEC: tl.constexpr):
    """(offsets, mask) of the elements [first, first + BLOCK) of these channels where runs begin anywhere.

    A run is a head of fewer than VEC elements, whole vectors, and a tail. Of each run B // VEC vectors are counted; the
    last is masked where a head leaves no room for it, and then its elements are the tail's.
    """
    lanes = lanes_of(channels, BLOCK, False)
    elements = first + lanes
    vectors = B // VEC
    # At most the last run, so that offsets stay in the tensor.
    last = (end - 1) // VEC // vectors
    if VEC == 2:
        # float64 is faster with divisions; the reason is not known.
        # 8 x 760 x 5421: 301 us, by run_of 330 (H100).
        before = tl.minimum(elements // VEC // vectors, last)
    else:
        before = tl.minimum(run_of(first, lanes, vectors, BLOCK, VEC), last)
    run = (before * C + channels) * B
    body = (run + VEC - 1) // VEC * VEC
    after = body + (elements // VEC - before * vectors + 1) * VEC
    offsets = body + (elements - before * (vectors * VEC))
    return offsets, (elements < end) & (channels < C) & (after <= run + B)


@triton.jit
def any_tile_at(
    first,
    end,
    channels,
    C,
    vectors,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    RUN: tl.constexpr,
    EDGES: tl.constexpr,
):
    """The same where runs begin anywhere if EDGES is not 0, else as tile_at has it."""
    if EDGES > 0:
        return unaligned_tile_at(first, end, channels, C, vectors, BLOCK, VEC)
    else:
        return tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS, RUN)


@triton.jit
def edges_at(first, end, channels, C, B, BLOCK: tl.constexpr, VEC: tl.constexpr):
    """(offsets, mask) of the heads and tails of the runs from ``first`` on, 2 * VEC lanes to a run."""
    lanes = lanes_of(channels, BLOCK, False)
    number = first + lanes // (2 * VEC)
    before = tl.minimum(number, end - 1)
    lane = lanes % (2 * VEC)
    run = (before * C + channels) * B
    body = (run + VEC - 1) // VEC * VEC
    offsets = tl.where(lane < VEC, run + lane, (run + B) // VEC * VEC + lane - VEC)
    mask = offsets < tl.where(lane < VEC, body, run + B)
    return offsets, mask & (number < end) & (channels < C)


@triton.jit
def runs_of(begin, end, B, VEC: tl.constexpr):
    """The first and the last run, exclusive, whose last vector is in [begin, end): this part has their edges."""
    vectors = B // VEC
    return begin // VEC // vectors, end // VEC // vectors


@triton.jit
def elements_before(units, vectors, UNIT: tl.constexpr, RUN: tl.constexpr, EDGES: tl.constexpr = 0):
    """Elements of a channel before ``units`` rows, or vectors (UNIT is 1, or VEC), or pieces. With EDGES ``vectors`` is
    elements of a run, and its head and tail are counted with its last vector, the only one that may be masked."""
    if EDGES > 0:
        whole = vectors // UNIT
        return units // whole * vectors + units % whole * UNIT
    elif RUN == 0:
        return units * UNIT
    else:
        pieces = (vectors * UNIT + RUN - 1) // RUN
        return units // pieces * (vectors * UNIT) + tl.minimum(units % pieces * RUN, vectors * UNIT)


@triton.jit
def count_between(begin, end, vectors, UNIT: tl.constexpr, RUN: tl.constexpr, EDGES: tl.constexpr = 0):
    """Elements of a channel in [begin, end) without the masked ones; both are of :func:`begin_and_end`, or of tiles."""
    if EDGES > 0:
        return elements_before(end // UNIT, vectors, UNIT, RUN, EDGES) - elements_before(
            begin // UNIT, vectors, UNIT, RUN, EDGES
        )
    elif RUN == 0:
        return end - begin
    else:
        return elements_before(end // RUN, vectors, UNIT, RUN) - elements_before(begin // RUN, vectors, UNIT, RUN)


@triton.jit
def over_tile(x, COLUMNS: tl.constexpr):
    """The sum of each channel's elements."""
    if len(x.shape) == 1:
        return tl.sum(x, 0)
    else:
        return tl.sum(x, 0 if COLUMNS else 1, keep_dims=True)


@triton.jit
def both_over_tile(x, y, COLUMNS: tl.constexpr):
    """The sums of both, one exchange between threads."""
    if len(x.shape) == 1:
        return tl.reduce((x, y), 0, add_pairs)
    else:
        return tl.reduce((x, y), 0 if COLUMNS else 1, add_pairs, keep_dims=True)


@triton.jit
def in_shape_of(merged, COLUMNS: tl.constexpr):
    """Numbers of merged_channels as those of channels_of."""
    if len(merged.shape) == 0 or COLUMNS:
        return merged
    else:
        return tl.trans(merged)


@triton.jit
def load_of_channels(ptr, channels, C, DTYPE: tl.constexpr, absent: tl.constexpr):
    """ptr: [C], or None, which stands for ``absent`` everywhere."""
    if ptr is None:
        return tl.full(channels.shape, absent, DTYPE)
    else:
        return tl.load(ptr + channels, mask=channels < C, other=absent).to(DTYPE)
