# SPDX-License-Identifier: Apache-2.0
"""Configurations of programs that hold whole channels, which read everything once."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, power_of_2, power_of_2_within
from .launches import MAX_WARPS, block_of, held, may_have_edges, needed_registers
from .types import TWO_TILES, Configuration, Problem

# Bytes of a row of columns that a program has, one of these, or as many as make MIN_LANES elements.
BYTES_OF_COLUMNS = (16, 32, 64, 128, 256)
# Elements of a program that has short columns, divided by the number of inputs.
MIN_LANES = 512
# Maximum columns of a program with part of a sector: there may be too few columns for as many programs as
# multiprocessors, and the rest of each sector is read from L2.
PARTS_OF_SECTORS = (1, 2, 4)
# Minimum rows for which a program may have parts of sectors where there are many columns.
ROWS_OF_PARTS = 1024
# Bytes of neighbouring runs that a program has at most, and elements.
# Gradient of 445 x 29 x 2 bf16: 6.0 us by 4096 elements, by twice as many 8.9.
BYTES_OF_RUNS, ELEMENTS_OF_RUNS = 512, 4096
# Gradients of float64 have half as many elements, but at least this number of runs: few programs of 16 warps run.
# 77 x 14069 x 6: 78.2 us by 8 runs and 16 warps, 61.2 by 4 runs and 8 warps (H200).
MIN_RUNS_OF_FLOAT64 = 2
# Maximum elements of a thread that has parts of several channels. 7 x 3000000 x 4 bf16: 154 us by 16, 173 by 32;
# gradient of 3 x 700000 x 11 bf16: 75.7 and 92.9 (H100).
HELD_OF_SHORT = 16
# Elements of several channels: a program may have so many of any runs, and the first of two tiles no more.
ELEMENTS_OF_TWO_TILES = 1024
# The first of two tiles of two channels of 16 bits that share sectors, no more.
# Forward 81 x 52645 x 15 bf16: 151 us, channel by channel 186 (H200).
ELEMENTS_OF_TWO_CHANNELS = 2048
# Maximum elements of the first of two tiles of one channel.
MAX_OF_TWO_TILES = 8192
# Maximum bytes of loads with which a thread of a gradient does not hold more elements in two tiles than in one. With
# more of them 456 bytes spill: gradient of 176 x 1058 x 95 bf16.
BYTES_OF_SHORT_LOADS = 4
# Forward float32 and float64: minimum warps of programs whose threads hold all elements that they can. 2 warps spill 8
# bytes, 8 x 25152 x 216 float32; 8 warps do, 343 x 6139 x 20 float32: 167 us, by 16 warps 144 (H200).
MIN_WARPS_OF_WIDE = 16
# Bytes of a row of a program that holds short runs as columns, one of these.
# 168 x 3479 x 4 float32: 14.7 us, channel by channel 22.6.
BYTES_OF_RUNS_AS_COLUMNS = (16, 32, 64, 128)
# The same of gradients of float32 whose runs fill a sector: L2 moves two at a time.
# 181 x 84866 x 8: 393 us by rows of 128 bytes, 451 of 64, channel by channel 709 (H200).
BYTES_OF_SECTORS_AS_COLUMNS = (64, 128)
# Maximum lanes for each element of one channel in a tile with heads and tails, if it is larger than two tiles are.
# 7 x 16384 x 1259 float32: 530 us by 1.86 lanes, 351 by two tiles (H200).
MAX_PADDING = 1.5
# Warps of a program that holds a channel in tiles, of 16 bits as pairs.
WARPS_IN_TILES: tuple[int, ...] = (4, 8, 16)
# Maximum words of a thread of these, with which 8 warps are better than 16.
# Gradient of 64 x 1024 x 196 bf16: 30.9 us by 8 warps, 33.8 by 16; 16 x 512 x 784 bf16: 18.9 and 19.7 (H200).
MAX_WORDS = 104
# Minimum bytes of a channel, of all inputs, that is held so. Gradient of 64 x 1024 x 196 bf16: 30.9 us, otherwise 44.7;
# forward 64 x 1024 x 196 bf16 22.7 and 25.9, 8 x 512 x 784 float32 11.4 and 13.2 (H200).
BYTES_IN_TILES = 24 << 10
# Smaller ones, at least so large, by programs of 4 warps where other programs have no second tile and at least so many
# lanes for each element, and minimum channels for each multiprocessor. Forward 32 x 1024 x 196 bf16: 13.7 us by 8 warps
# and 14.6 otherwise; gradient of 16 x 1024 x 196 bf16 11.7 and 13.0; forward 8 x 512 x 784 bf16 8.2 and 7.9 (H200).
BYTES_OF_SMALL, MIN_LANES_OF_SMALL, CHANNELS_OF_SMALL = 12 << 10, 1.2, 6
# Minimum channels for each multiprocessor, by whether channels have more than BYTES_OF_WIDE bytes, which other programs
# hold alone on a multiprocessor, if at all. Forward 4 x 256 x 3136 bf16: 8.2 to 9.3 us, otherwise 8.2 to 8.4; 8 x 256 x
# 3136 bf16: 12.9 and 15.8; gradient of 64 x 256 x 196 bf16: 12.0, by groups, which read it twice, 17.2 (H200).
CHANNELS_PER_SM = {False: 3, True: 1.5}
BYTES_OF_WIDE = 48 << 10
# Maximum bytes of a channel with heads and tails that is held so. More were not timed. Other programs are few on a
# multiprocessor if their tile, of both inputs, is larger than MAX_OF_TWO_TILES. Forward 3 x 2000 x 3301 float32: 47.0
# us, otherwise 79.9; gradient of 6 x 5000 x 2501 bf16 133 and 153; forward 7 x 1500 x 1003 bf16 19.9 and 19.1 (H200).
MAX_BYTES_OF_EDGES = 80 << 10
# Minimum bytes of their runs. Shorter ones were not timed.
BYTES_OF_LONG = 128
# Shares of the elements that a thread can hold: 1, 1 / 2 or 1 / 4. Fewer elements make more warps.
SHARES = (1, 2, 4)
# One row: channels of a program of 4 warps, and the fewest of a row. 1 x 11254831 bf16, gradient: 82.8 us, by one warp
# 133; 1 x 879385 bf16: 11.1 us, 512 channels by 2 warps 14.4 (H100).
CHANNELS_OF_ROW, MIN_CHANNELS_OF_ROW = 256, 1 << 16
# Maximum rows of the first of two tiles of float64, and of other columns, whose second tile may have half as many rows.
# With a longer second tile 8 bytes spill, 760 x 40000 float64.
MAX_ROWS = {2: 512, 4: 512, 8: 0}


def channels_of(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Some may not be legal, or be the same launch."""
    if problem.K == 1:
        yield from _columns(problem, limits)
    else:
        yield from _runs(problem, limits)


def _columns(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    A, C, _, size, inputs = problem
    if A == 1 and C >= MIN_CHANNELS_OF_ROW:
        yield Configuration("channels", CHANNELS_OF_ROW, 4)
        return
    rows, first = power_of_2(A), power_of_2_within(A)
    # Forward float64 of as many elements as a thread can hold spills 8 bytes (83 x 34007, sm_80), as do gradients of 16
    # bits (2500 x 40, sm_80; 72 x 154744, sm_100).
    per_thread = held(problem) // (2 if limits.capability[0] != 9 or (size == 8 and inputs == 1) else 1)
    found = {max(each // size, 1) for each in (*BYTES_OF_COLUMNS, MIN_LANES // inputs // rows * size)}
    if ROWS_OF_PARTS < A or C * size < VECTOR_BYTES * limits.sm_count:
        found.update(PARTS_OF_SECTORS)
    two_tiles = limits.capability[0] == 9 and (first <= MAX_ROWS[size] or A - first <= first // 4)
    for channels in sorted({min(each, power_of_2(C)) for each in found}):
        for warps in _warps(channels * rows, per_thread):
            yield Configuration("channels", channels, warps)
        if two_tiles:
            for warps in _warps(channels * first, held(problem)):
                yield Configuration("channels", channels, warps, 1)


def _runs(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    A, C, B, size, inputs = problem
    whole, first = power_of_2(A * B), power_of_2_within(A * B)
    hopper, short = limits.capability[0] == 9, math.gcd(B, VECTOR_BYTES // size) * size <= BYTES_OF_SHORT_LOADS
    runs = ELEMENTS_OF_RUNS // whole
    if size == 8 and inputs == 2:
        runs = min(runs, max(runs // 2, MIN_RUNS_OF_FLOAT64))
    most = max(min(BYTES_OF_RUNS // (B * size), runs), ELEMENTS_OF_TWO_TILES // whole, 1)
    channels, most = 1, min(most, power_of_2(C))
    while channels <= most:
        per_thread = held(problem) if channels == 1 else min(held(problem), HELD_OF_SHORT)
        for warps in (*_warps(channels * whole, per_thread), *((MAX_WARPS,) if channels == 1 else ())):
            full = 2 * channels * whole > held(problem) * warps * WARP
            if not (full and inputs == 1 and size > 2 and warps < MIN_WARPS_OF_WIDE):
                yield Configuration("channels", channels, warps)
        if hopper and channels * first <= (MAX_OF_TWO_TILES if channels == 1 else ELEMENTS_OF_TWO_TILES):
            per_thread *= inputs if channels == 1 and not short else 1
            for warps in _warps(channels * first, per_thread):
                yield Configuration("channels", channels, warps, TWO_TILES)
        sharing = channels == 2 and inputs == 1 and size == 2 and B * size < SECTOR_BYTES
        if hopper and sharing and ELEMENTS_OF_TWO_TILES < channels * first <= ELEMENTS_OF_TWO_CHANNELS:
            yield Configuration("channels", channels, channels * first // (held(problem) * WARP), TWO_TILES)
        channels *= 2
    as_rows: tuple[int, ...] = BYTES_OF_RUNS_AS_COLUMNS if B * size <= VECTOR_BYTES else ()
    if B * size == SECTOR_BYTES and size == 4 and inputs == 2 and A * C * B * size > limits.l2_bytes:
        as_rows = BYTES_OF_SECTORS_AS_COLUMNS
    for row in as_rows if hopper and power_of_2(B) == B else ():
        as_columns = min(row // (B * size), power_of_2(C))
        for rows, two in ((power_of_2(A), 0), (power_of_2_within(A), 1))[: 1 if B * size > VECTOR_BYTES else None]:
            for warps in _warps(as_columns * B * rows, held(problem)):
                yield Configuration("channels", as_columns, warps, two, padded=True)
    yield from _in_tiles(problem, limits, short)
    block = block_of(problem, True)
    for warps in _warps(block, 2 * held(problem)) if block <= max(MAX_OF_TWO_TILES, MAX_PADDING * A * B) else ():
        yield Configuration("channels", 1, warps, 1)


def _in_tiles(problem: Problem, limits: Limits, short: bool) -> Iterator[Configuration]:
    """Programs that hold a channel in tiles, with heads and tails where other loads are ``short``."""
    A, C, B, size, inputs = problem
    bytes_of_one, count = A * B * size * inputs, A * B
    legal = B * size >= BYTES_OF_LONG
    if short:
        alone = block_of(problem, True) * inputs > MAX_OF_TWO_TILES
        legal = may_have_edges(problem) and alone and bytes_of_one <= MAX_BYTES_OF_EDGES
    found = WARPS_IN_TILES
    least = CHANNELS_PER_SM[bytes_of_one > BYTES_OF_WIDE and not short]
    if bytes_of_one < BYTES_IN_TILES:
        masked = 3 * power_of_2_within(count) < 2 * count and MIN_LANES_OF_SMALL * count <= power_of_2(count)
        legal &= masked and not short and bytes_of_one >= BYTES_OF_SMALL
        least, found = CHANNELS_OF_SMALL, found[:1]
    if not legal or limits.capability[0] != 9 or size == 8 or least * limits.sm_count >= C:
        return
    # Forward, and with pairs, 16 to 400 bytes spill with more words and heads and tails.
    bounded = not (short and size == 4 and inputs == 2)
    per_warp = bytes_of_one // (4 * WARP)
    for warps in found:
        if (per_warp > MAX_WORDS * warps and bounded) or (warps == MAX_WARPS and per_warp <= MAX_WORDS * warps // 2):
            continue
        registers = needed_registers(problem, warps, short)
        programs = min(limits.registers_per_sm // (registers * WARP), limits.threads_per_sm // WARP) // warps
        if programs > 0:
            yield Configuration("channels", 1, warps, int(short), programs * warps)


def _warps(lanes: int, per_thread: int) -> list[int]:
    return sorted({max(1, min(MAX_WARPS, share * lanes // (per_thread * WARP))) for share in SHARES})
