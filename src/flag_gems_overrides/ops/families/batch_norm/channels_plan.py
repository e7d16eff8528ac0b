# SPDX-License-Identifier: Apache-2.0
"""Configurations of programs that hold whole channels, which read everything once."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .columns_plan import (
    LITTLE_ELEMENTS,
    MAX_BYTES_OF_SECTORS,
    WARPS_AT_ONCE,
    WAVES,
    gradient_by_groups,
    gradient_of_sectors,
    held_by_sectors,
    runs_as_columns,
    sector_bytes,
    two_tiles_forward,
    two_tiles_of_gradient,
)
from .estimate import MAX_EARLY_COLUMNS
from .launches import (
    LITTLE_BYTES,
    MAX_WARPS,
    TWO_TILES,
    Channels,
    Configuration,
    Problem,
    block_of,
    has_vectors,
    held,
    held_of_one,
    launch_or_none,
)
from .side_by_side import NEIGHBOUR_BYTES, ROW_BYTES, neighbours

# Most elements that a program has of neighbouring channels: the gradient of 445 x 29 x 2 bf16 takes 6.0 us, 8.9 with
# twice as many.
NEIGHBOUR_ELEMENTS = 4096
# Half as many of 16 bits where there are more than so many programs to a multiprocessor, which has registers for two:
# 121 x 1789 x 6 bf16 takes 11.1 us by programs of two channels and 4 warps, 13.1 by twice as large ones, 121 x 1500 x 6
# 9.4 and 10.3, 121 x 1000 x 6 7.1, and 8.0 by 250 of 16 warps, 100 x 3000 x 6 float16 14.4 and 15.2, but 121 x 1789 x 6
# float32 16.1 both, and 200 x 2000 x 5 bf16, which is loaded one by one, 14.0 and 11.8 (H100).
NEIGHBOURS_AT_ONCE = 1.5
# Elements of float64 that a program of one warp has of neighbouring channels forward, where a multiprocessor has more
# warps than run at once: two channels, or at least, and at most, so many. 1 x 16384 x 82 takes 14.5 us with two
# channels, 15.0 with four, 20.1 with four by two warps, 1 x 30000 x 50 16.5 with two, 17.7 with four, and with eight by
# two warps, 1 x 16384 x 164 22.2 with one, 22.8 with two by two warps (H100).
FEW_OF_WARP, MANY_OF_WARP = 128, 256
# Rows that a program has of neighbouring channels at most, unless all multiprocessors have more, where a row is one
# load: each lane of a warp then has another line for L1 to look up, one a cycle, for each tensor. 256 x 150 x 2 float16
# takes 6.5 us with 8 channels, 5.0 with 4; 1024 x 5 x 2 float32 7.4 with 4, 5.3 with 2; the gradients of 445 x 29 x 2
# bf16 8.9 with 8, 6.0 with 4, of 114 x 45 x 2 float16 5.0 with 8, 3.8 with 2 (H100).
NEIGHBOUR_ROWS = 64
# Programs that hold channels: where a multiprocessor has more warps than run at once, programs of more than FEW_WARPS
# get half as many, so that fewer warps wait for each other. 39 x 912883 bf16 takes 89 us so, 117 with 8; 32 x 2048 x 49
# 11.1 and 12.7, its gradient 15.2 and 17.6; the gradients of 5 x 980 x 425 13.8 and 15.1, of 17 x 524288 float64 82 and
# 183. But with 2 instead of 4 that of 16 x 57253 x 36 float32 120 and 116. Programs of columns get as few as hold them,
# of little too: the gradient of 9 x 131072 bf16 takes 10.8 us with 2, 17.5 with 4, 25.0 with 8 (H100; PyTorch 13.4),
# of 8 x 197184 float16 8.3 with 1, 13.6 with 4 (torch.compile 10.8), of 2 x 300000 bf16 6.5 with 1, 8.5 with 2.
FEW_WARPS = 4
# With more rows than these a program has registers for one column of a gradient, and reads all sectors of all columns
# from L2: at most so many bytes of a tensor, which take as long as flat's three launches. 7200 x 13 bf16 takes 9.4 us
# so, 7552 x 17 13.5, 17259 x 26 with flat 10.2; 8192 x 5 float32 7.8, 6376 x 9 bf16 7.1, 5687 x 2 4.9, 4200 x 16 7.6
# (H100).
BYTES_OF_ONE_COLUMN = 160 << 10
# Forward of more rows than these only where a row has no more bytes: 8233 x 32 float32 18.8 us, with flat 10.9, 5000 x
# 64 13.2 and 10.7, 4500 x 64 12.4 and 11.8, 6319 x 144 bf16 17.4 and 17.0, but 7000 x 20 10.7. The bytes of a row up to
# which they do, and the rows of two bytes, are estimated between these, not timed. Of two bytes and more columns than
# FEW_COLUMNS, which flat's programs add up all at a time or groups share, 4581 x 120 float16 takes 13.2 us and 10.7,
# 5000 x 200 bf16 17.4, with flat 13.0, by groups 13.1, but 6000 x 30 9.7 and 11.0. With twice as many rows not even
# those of more than a sector: 9000 x 16 float32 takes 14.0 us, with flat 10.2, 14255 x 17 float16 15.5 and 12.1.
ROWS_OF_ONE_COLUMN, ROWS_OF_ONE_COLUMN_FORWARD, MAX_ROW_BYTES, FEW_COLUMNS = 4096, {2: 6144, 4: 4096}, 64, 64
# Rows of a gradient that a program holds two columns of, with more of them than these as they lie, where a row is of so
# many bytes: 3000 x 200 bf16 takes 13.5 us held, 10.3 by flat, 2500 x 100 float32 9.0 and 8.8, but 2100 x 50 bf16 7.2
# and 8.1 (H100).
ROWS_OF_TWO_COLUMNS, MIN_BYTES_OF_LONG = 2048, 400
# Forward programs of one warp have twice as many elements of 16 bits of so few rows, in so many waves of as many as run
# at once, 32 to a multiprocessor, which have more bytes in flight so: 4 x 9877648 x 4 bf16 takes 293 us so, 321 by
# 308677 of 512 elements (torch.compile 291), 4 x 3000000 x 8 164 and 173, 3 x 1000000 x 4 float16 29.8 and 32.1, but
# 7 x 3000000 x 4 bf16 170 and 154, 5 x 1000000 x 4 float32 84 and 74 (H100).
WAVES_OF_WARPS, BYTES_OF_LARGE_WARPS, MIN_OF_LARGE_WARPS, ROWS_OF_LARGE_WARPS = 4, range(8, 17), 16, 4
# Many channels of 16 bits of a little more than a power of two of elements, in two tiles, as a second one has fewer
# masked lanes than twice as large a one. Of loads of so few bytes, whose instructions take longer than their bytes, by
# programs of one warp and so many elements, in which no warp waits for another one: 6 x 436044 x 22 float16 takes 112
# us so, by 2 warps 140, in one tile 156 (torch.compile 261), its gradient 149, by 2 warps 218, by 4 206, in one tile
# 234 (219), of 20 x 549510 x 2 bf16 87 and 140, but of 3 x 400000 x 48 151 and 136. Tiles of so many elements, of odd
# runs of no fewer than 64, as many sums of few elements take longer: the gradients of 3 x 700000 x 11 bf16 93 and 86,
# of 7 x 190000 x 13 float16 53 and 56, of 11 x 80000 x 34 bf16 85 and 83, forward 15 x 86126 x 49 float16 145 and 140.
# Odd runs of 16 bits are not estimated: the gradients of 15 x 300000 x 9 bf16 take 118 us so, by flat 198, of 13 x
# 50000 x 11 float16 26.9 and 40.1, of 19 x 100000 x 7 bf16, of the fewest bytes side by side, 52.2 and 76.0.
# Gradients of float32 from 128 on, whose threads have 125 registers of 64, of whole lines: 9 x 150000 x 15 96 and 102,
# forward 71 and 72, but 19 x 100000 x 7 75.3 and 67.3 (H100).
BYTES_OF_SHORT_LOADS, ELEMENTS_OF_WARP, MAX_OF_TWO_TILES, BYTES_OF_ODD_RUNS = 4, 512, 128, 56
# Nor are odd runs of so many sectors at least in one tile of NEIGHBOUR_ELEMENTS by 8 warps, with few masked lanes: the
# gradient of 88 x 1906 x 43 float16 takes 29.0 us so, by flat 39.0 (torch.compile 36.9; H100).
SECTORS_OF_ODD_RUNS, MAX_MASKED_OF_ODD_RUNS = 2, 1 / 8
# Gradients with loads of four bytes, of four channels of so many elements in one tile, have two warps instead of four:
# 8 x 300000 x 30 float16 171 us and 193 (H100). Fewer and more elements were not timed.
BLOCK_OF_TWO_WARPS = 256
# And of so many elements in the first tile, which take all registers of a multiprocessor in one: 60 x 1000 x 180
# float16 24.8 us by 8 warps, 26.5 by 16 in one tile, the gradient of 119 x 512 x 72 bf16 16.0, in one tile, whose
# inputs are read again, 17.7 (H100). With short loads a thread has 177 registers (100 x 1000 x 105 float16). Gradients
# of no whole vectors have 76 by 16 warps, so that one program runs at a time, 128 by 8, so that two do: 60 x 1000 x 180
# bf16 44.1 us and 35.5, by groups 50.9 (H100).
# Gradients of float64 of up to so many times as many elements take all of them by 16 warps; with more, or offsets of 64
# bits, they spill. 5 x 4096 x 1745 takes 309 us so, by groups alone, which read twice, 468 (torch.compile 352), 12 x
# 600 x 800 53.3 and 74.5 (69.8; H100).
ELEMENTS_OF_HALF, MAX_OF_HALF_FLOAT64 = 8192, 5 / 4
# Programs of one warp of a gradient that a multiprocessor has many of get four warps and so many times the channels:
# 3 x 3216 x 32 bf16 takes 4.08 us by 402, 4.38 by 1608 (torch.compile 3.92), but 5 x 1148 x 6 float16, of 144, 3.33 and
# 3.40, 3 x 6000 x 16 float32 4.62 both (H100). More than run at once, too, which begin every 93 ns: 1 x 59229 x 224
# float16 34.7 us so, 41.6 by 59229 (torch.compile 34.3), 3 x 40000 x 64 bf16 21.4 and 29.9 (24.0).
MANY_WARPS, WARPS_OF_MANY = 8, 4
# Rows, forward of odd numbers of many columns, of which a thread has one column, so that the lanes of a warp lie side
# by side, and one row of any that are no whole vectors: 1 x 9850925 float32 takes 87.6 us so, with several to a thread
# 110, 1 x 3000001 float16 23.9 and 33.5, 2 x 2000001 float32 36.5 and 40.2, 4 x 1000001 bf16 18.1 and 19.0 (H100).
ROWS_OF_LANES = 4
# Odd numbers of columns of 4 and 8 bytes, whose programs would read parts of two lines: of up to so many rows, tiles of
# so many bytes of at least two lines, if they are many. 17 x 5556595 float32 takes 349 us so, 431 by a line, 12 x
# 3000001 152 and 181, gradients of 5 x 5212815 146 and 159, 20 x 1000001 101 and 116, of float64 195 and 218, 40 x
# 1000001 188 and 223. Not of 16 bits: 25 x 1000001 bf16 63.8 and 59.2 (H100).
MAX_ROWS_OF_LINES, BYTES_OF_LINES, BYTES_OF_WARP_OF_LINES = 64, 8192, 2048
# Gradients of few runs that begin anywhere: the share of what a program holds that is loaded element by element.
MAX_SINGLES = 3 / 4


def whole_channels(problem: Problem, limits: Limits) -> Configuration | None:
    """None if a program does not hold a channel."""
    A, C, B, size, inputs = problem
    unaligned = unaligned_channels(problem, limits)
    if unaligned is not None:
        return unaligned
    runs = runs_as_columns(problem, limits)
    if runs is not None:
        return runs
    two_tiles_of_runs = _two_tiles_of_runs(problem, limits)
    if two_tiles_of_runs is not None:
        return two_tiles_of_runs
    most = held(problem) * MAX_WARPS * WARP
    block = power_of_2(A * B)
    if block > most:
        alone = block <= held_of_one(problem, False, limits) * MAX_WARPS * WARP
        return Configuration("channels", 1, MAX_WARPS) if alone else None
    thin = half = False
    if B == 1:
        long = inputs == 2 and size < 8 and A > ROWS_OF_TWO_COLUMNS and C * size >= MIN_BYTES_OF_LONG
        if long or gradient_by_groups(problem, limits):
            return None
        # Sectors of 32 bytes, or more as long as there is a program for each multiprocessor.
        channels = min(max(ROW_BYTES // size, 512 // inputs // block), power_of_2(C))
        while channels > 1 and (
            (channels > SECTOR_BYTES // size and channels * limits.sm_count > C)
            or (channels * block > LITTLE_ELEMENTS and sector_bytes(problem, channels // 2) <= LITTLE_BYTES)
        ):
            channels //= 2
        if channels * block > most:
            wide = two_tiles_forward(problem, channels, limits) if inputs == 1 else gradient_of_sectors(problem, limits)
            if wide is not None:
                return wide
            # Half of it of two inputs: 2500 x 40 float16 spills 8 bytes on sm_80.
            channels = most // block // (inputs if limits.capability[0] < 9 else 1)
            much = channels == 0 or inputs * sector_bytes(problem, channels) > MAX_BYTES_OF_SECTORS
            if much and not held_by_sectors(problem, channels, limits):
                return None
            some = size == 2 and C > FEW_COLUMNS and (C <= MAX_EARLY_COLUMNS or has_vectors(problem))
            if inputs == 2 and ROWS_OF_ONE_COLUMN < A and A * C * size > BYTES_OF_ONE_COLUMN:
                return None
            max_held_rows = ROWS_OF_ONE_COLUMN if some else ROWS_OF_ONE_COLUMN_FORWARD.get(size, A)
            if inputs == 1 and max_held_rows < A and C * size > MAX_ROW_BYTES:
                return None
            if inputs == 1 and 2 * ROWS_OF_ONE_COLUMN < A and C * size > SECTOR_BYTES:
                return None
        # A program that fills the registers of a multiprocessor loads, computes, and stores in turns: 139 x 179633 bf16
        # takes 72 us with 32 channels, 81 with 64 (torch.compile 78); many gradients even with half a sector: 368 x
        # 10763 float16 22.6 with 8 (8 bytes spill by 8 warps), 24.6 with 16 (H200; on an H100 27.2 and 26.4).
        full = channels * block == most
        thin = full and inputs == 2 and SECTOR_BYTES <= channels * size <= 2 * SECTOR_BYTES
        thin = thin and WAVES * channels * limits.sm_count < C
        of_one_tile = channels
        # Forward 400 x 131072 float16 takes 110 us by 16 columns and 8 warps, 164 by 32 and 16 (H100).
        halved = inputs == 1 and size == 2 and channels * size > SECTOR_BYTES and 2 * channels * limits.sm_count < C
        if thin or (full and (halved or channels > 2 * SECTOR_BYTES // size)):
            channels //= 2
    else:
        # Several channels of few elements; one warp is enough for 16 of a thread.
        share = power_of_2(cdiv(C, limits.sm_count))
        channels = min(neighbours(problem), power_of_2(C), NEIGHBOUR_ELEMENTS // block)
        if VECTOR_BYTES // size % B == 0:
            if inputs == 2 and share * B * size >= SECTOR_BYTES and limits.sm_count > cdiv(C, share):
                # As many programs as multiprocessors, down to half of a sector: the gradient of 128 x 296 x 4 float16
                # takes 4.2 us with 2 channels, 4.5 with 4 (H100).
                share //= 2
            elif inputs == 1 and share * B * size >= SECTOR_BYTES:
                # Two to each, with half of a sector at least: 24 x 1024 x 2 float32 takes 3.6 us with 4 channels, 4.4
                # with 8 (torch.compile 3.8), 163 x 512 x 4 bfloat16 5.3 with 2, 5.6 with 4, 300 x 512 x 2 float32 6.7
                # and 7.3, 16 x 512 x 4 bfloat16 3.1 and 3.2 (H100).
                share //= 2
            channels = min(channels, max(share, power_of_2(NEIGHBOUR_ROWS // A)))
        else:
            # As many programs as multiprocessors: the gradients of 64 x 40 x 7 bf16 take 3.4 us by one channel each,
            # 3.6 by four, of 140 x 130 x 5 4.1 and 4.4, of 140 x 24 x 3 float32 3.5 and 3.7; forward 64 x 77 x 5
            # float16 3.67 and 3.94, 55 x 9 x 6 bf16 3.44 and 3.87, 72 x 64 x 3 float16 3.68, 3.98 by eight, 128 x 200 x
            # 5 4.37 by two, 4.62 by four (H100).
            channels = min(channels, share)
        channels = max(1, channels, min(512 // inputs // block, share))
        waves = cdiv(C, channels) > NEIGHBOURS_AT_ONCE * limits.sm_count
        narrow = size == 2 and B % 2 == 0
        half = inputs == 2 and narrow and channels > 1 and channels * block == NEIGHBOUR_ELEMENTS and waves
        if half:
            channels //= 2
        many_warps = C * block > WARPS_AT_ONCE * WARP * limits.sm_count * held(problem) // 2
        if inputs == 1 and size == 8 and VECTOR_BYTES // size % B and many_warps:
            channels = max(1, min(channels, max(2, FEW_OF_WARP // block), MANY_OF_WARP // block))
    # Two columns in half as many elements of a thread: 64 x 64 bf16 3.4 us, 3.7 with as many.
    per_thread = held(problem) // 2 // (inputs if B == 1 else 1)
    at_once = WARPS_AT_ONCE * WARP * limits.sm_count
    few_warps = FEW_WARPS // 2 if _has_two_warps(problem, block, limits) else FEW_WARPS
    many = half or cdiv(C, channels) * channels * block > at_once * per_thread
    if many and B == 1:
        two_tiles = (two_tiles_forward if inputs == 1 else two_tiles_of_gradient)(problem, of_one_tile, limits)
        if two_tiles is not None:
            return two_tiles
    # Forward 8 bytes of float64 spill (83 x 34007, sm_80).
    if many and B == 1 and inputs == 2 and not thin:
        per_thread = held(problem)
        # Half as many columns of 16 bits, a sector at least, by 4 warps: the gradient of 72 x 154744 bf16 takes 48.1 us
        # with 16 columns, 53.4 with 32 by 8 warps, of 90 x 100000 35.9 and 40.2, of 40 x 200000 35.0 with 32, 46.6 with
        # 64, of 60 x 150000 33.0 and 39.7 (H100). On sm_100 8 bytes of the first spill (Triton 3.7).
        # Not of odd numbers of columns that L2 does not hold, whose 32 bytes of a row are in two sectors: 112 x 1979813
        # bf16 670 us with 32, 890 with 16 (H100; torch.compile 775).
        narrow = size == 2 and channels > SECTOR_BYTES // size and limits.capability[0] < 10
        odd = C % 2 == 1 and channels * size == 2 * SECTOR_BYTES and inputs * A * C * size > limits.l2_bytes
        narrow = narrow and not odd
        if narrow and channels * block > FEW_WARPS * WARP * per_thread:
            channels //= 2
    elif many and channels * block > few_warps * WARP * per_thread and (size < 8 or inputs == 2 or B > 1):
        per_thread *= 2
    elif _has_large_warps(problem, channels, limits) and channels * block == per_thread * WARP:
        channels, per_thread = 2 * channels, 2 * per_thread
    elif B == 1:
        if limits.sm_count * channels >= 2 * C and channels * block * inputs >= 1024:
            per_thread //= 2
    elif limits.sm_count >= C and channels == 1 and (B % 2 or VECTOR_BYTES // size % B == 0):
        # A load is of one element, or of a row: the gradients of 63 x 4 x 27 bf16 take 3.7 us by 16 warps, 4.1 by 8, of
        # 1 x 1 x 349 float32 2.9 by 4, 3.2 by 2; 18 x 128 x 27 float16 3.6 by 4, 4.1 by 2. Of other vectors more warps
        # are slower: 1 x 15 x 2538 bf16 takes 3.8 us by 16, 3.6 by 8.
        per_thread //= 4 if inputs == 1 and B % 2 and A > 1 else 2
    few_odd_rows = many and inputs == 1 and size < 8 and A <= ROWS_OF_LANES and C % 2 == 1
    if B == 1 and not has_vectors(problem) and (A == 1 or few_odd_rows):
        per_thread = block  # several side by side would be loaded one by one, as masks begin anywhere
    warps = max(1, min(MAX_WARPS, channels * block // (per_thread * WARP)))
    of_lines = max(2 * channels, BYTES_OF_LINES // (block * size))
    if _reads_parts_of_lines(problem, channels) and cdiv(C, of_lines) > WAVES * limits.sm_count:
        channels, warps = of_lines, of_lines * block * size // BYTES_OF_WARP_OF_LINES
    if inputs == 2 and B > 1 and warps == 1 and cdiv(C, channels) > MANY_WARPS * limits.sm_count:
        by_one_warp = block <= math.gcd(B, VECTOR_BYTES // size) * WARP  # of four, too
        channels, warps = (WARPS_OF_MANY * channels, WARPS_OF_MANY) if by_one_warp else (channels, warps)
    return Configuration("channels", channels, warps)


def _reads_parts_of_lines(problem: Problem, channels: int) -> bool:
    A, C, B, size, _ = problem
    return B == 1 and C % 2 == 1 and size > 2 and channels * size == ROW_BYTES and A <= MAX_ROWS_OF_LINES


def _two_tiles_of_runs(problem: Problem, limits: Limits) -> Configuration | None:
    """None where one tile has few masked lanes, or these take no time."""
    A, C, B, size, inputs = problem
    tile, of_warp = power_of_2_within(A * B), held(problem) * WARP
    wide_gradient = size == 8 and inputs == 2 and tile * MAX_OF_HALF_FLOAT64 >= A * B
    if B == 1 or limits.capability[0] != 9 or (size > 2 * inputs and not wide_gradient):
        return None
    short = math.gcd(B, BYTES_OF_SHORT_LOADS) * size <= BYTES_OF_SHORT_LOADS
    many = 2 * C * tile > WAVES * WARPS_AT_ONCE * of_warp * limits.sm_count // 2
    channels, least = ELEMENTS_OF_WARP // tile, WARP * (size if B % 2 else 1)
    side_by_side = NEIGHBOUR_BYTES if size == 4 else NEIGHBOUR_BYTES // 2
    wide = channels * B * size >= (BYTES_OF_ODD_RUNS if inputs == size == 2 else side_by_side)
    if short and many and least <= tile <= MAX_OF_TWO_TILES and wide:
        configuration = Configuration("channels", channels, 1, TWO_TILES)
    elif size != 4 and not short and tile == ELEMENTS_OF_HALF and limits.sm_count < C:
        whole = size == 8 or (inputs == 2 and has_vectors(problem))
        configuration = Configuration("channels", 1, MAX_WARPS if whole else MAX_WARPS // 2, TWO_TILES)
    else:
        return None
    launched = launch_or_none(problem, configuration, limits)
    far = size == 8 and isinstance(launched, Channels) and launched.tiling.int64_offsets
    return configuration if launched is not None and not far else None


def holds_odd_runs(problem: Problem, configuration: Configuration, limits: Limits) -> bool:
    """Whether programs hold channels of a gradient's odd runs of 16 bits so well that they are not estimated."""
    A, C, B, size, inputs = problem
    odd = inputs == size == 2 and B % 2 == 1 and B * size >= SECTORS_OF_ODD_RUNS * SECTOR_BYTES
    few_masked = (1 - MAX_MASKED_OF_ODD_RUNS) * NEIGHBOUR_ELEMENTS <= A * B <= NEIGHBOUR_ELEMENTS
    many = WAVES * limits.sm_count < C and limits.capability[0] == 9
    return odd and few_masked and many and configuration.channels == 1 and not configuration.loads


def _has_two_warps(problem: Problem, block: int, limits: Limits) -> bool:
    _, _, B, size, inputs = problem
    short = B % 2 == 0 and B % BYTES_OF_SHORT_LOADS > 0
    return short and inputs == size == 2 and block == BLOCK_OF_TWO_WARPS and limits.capability[0] == 9


def _has_large_warps(problem: Problem, channels: int, limits: Limits) -> bool:
    """Whether programs of one warp that hold so many channels forward are so many that twice as many are faster."""
    A, C, B, size, inputs = problem
    whole = B > 1 and VECTOR_BYTES // size % B == 0 and B * size in BYTES_OF_LARGE_WARPS
    few = A <= ROWS_OF_LARGE_WARPS and power_of_2(A * B) >= MIN_OF_LARGE_WARPS
    forward = inputs == 1 and size == 2 and limits.capability[0] == 9
    return whole and few and forward and cdiv(C, channels) >= WAVES_OF_WARPS * WARPS_AT_ONCE * limits.sm_count


def unaligned_channels(problem: Problem, limits: Limits) -> Configuration | None:
    """A program that holds a channel whose runs it reads as a head, vectors and a tail: 3 x 4232 x 759 float16 takes
    22.0 us so, 33.8 element by element, 16 x 2000 x 875 bf16 53.4 and 90.6, 8 x 64 x 1001 float16 5.4 and 5.8, 2 x 500
    x 801 bf16 5.0 and 5.4.

    Gradients where a multiprocessor has more warps of them than run at once: of 3 x 4232 x 759 float16 29.0 us so, 38.7
    element by element, 54.5 with groups, of 2 x 5000 x 759 21.7 and 25.6 element by element, of 8 x 1000 x 1001 bf16
    24.2 and 34.2 with groups (H100). Of fewer channels those that a program hardly holds element by element: of one
    channel of 8453 float32 5.3 us so, with groups 7.9, of 7001 4.6 and 8.1, of 16 channels of 12001 5.9 and 10.2, of
    120 of 8195 bf16 6.5 and 9.3, of 3 x 64 x 4001 6.6 and 10.0, but of one of 5001 float32 4.4, element by element 4.1.
    """
    if problem.K == 1:
        return None
    block, per_thread = block_of(problem, True), held(problem)
    few = problem.N * block <= WARPS_AT_ONCE * WARP * limits.sm_count * per_thread // 2
    short = MAX_SINGLES * per_thread * MAX_WARPS * WARP > problem.M * problem.K
    if few and problem.inputs == 2 and short:
        return None
    warps = block // (per_thread * WARP)
    if problem.inputs == 1:
        warps = max(warps, power_of_2(problem.M) * 2 * (VECTOR_BYTES // problem.itemsize) // WARP)
    configuration = Configuration("channels", 1, max(1, min(MAX_WARPS, warps)), 1)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None
