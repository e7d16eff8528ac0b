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

# Maximum elements of neighbouring channels in a program.
# Gradient of 445 x 29 x 2 bf16: 6.0 us, with twice as many 8.9.
NEIGHBOUR_ELEMENTS = 4096
# Gradients of even runs of 16 bits have half of NEIGHBOUR_ELEMENTS above this number of programs to a multiprocessor,
# which has registers for two programs.
# 121 x 1789 x 6 bf16: 11.1 us, otherwise 13.1; odd runs, 200 x 2000 x 5 bf16: 14.0, otherwise 11.8 (H100).
NEIGHBOURS_AT_ONCE = 1.5
# float64 forward, elements of neighbouring channels in a program of one warp, where a multiprocessor has more warps
# than run at once: two channels, or more channels up to FEW_OF_WARP elements, and at most MANY_OF_WARP elements.
# 1 x 16384 x 82: 14.5 us with two channels, 20.1 with four by two warps (H100).
FEW_OF_WARP, MANY_OF_WARP = 128, 256
# Maximum rows of all neighbouring channels of a program where one load is a whole row. Each lane of a warp has its own
# cache line then, and L1 looks up one line a cycle. More rows if there are more channels than multiprocessors.
# 256 x 150 x 2 float16: 5.0 us with 4 channels, 6.5 with 8 (H100).
NEIGHBOUR_ROWS = 64
# Programs of more warps get half as many where a multiprocessor has more warps than run at once: fewer warps wait for
# each other. 39 x 912883 bf16: 89 us, with 8 warps 117; gradient of 16 x 57253 x 36 float32, with 2 warps instead of
# 4: 120, otherwise 116 (H100).
FEW_WARPS = 4
# Gradients of more than ROWS_OF_ONE_COLUMN rows: maximum bytes of a tensor whose columns programs hold one by one, as
# they read whole sectors from L2. 7200 x 13 bf16: 9.4 us; 17259 x 26 bf16 by flat: 10.2 (H100).
BYTES_OF_ONE_COLUMN = 160 << 10
# With more rows a program has registers for only one column of a gradient. Forward of 16 bits it is the limit where
# there are more than FEW_COLUMNS columns.
ROWS_OF_ONE_COLUMN = 4096
# Forward, by the bytes of an element: with more rows, programs hold columns only if a row has at most MAX_ROW_BYTES.
# 8233 x 32 float32: 18.8 us held, 10.9 by flat (H100). The limit of 16 bits is estimated.
ROWS_OF_ONE_COLUMN_FORWARD = {2: 6144, 4: 4096}
# Maximum bytes of a row for ROWS_OF_ONE_COLUMN_FORWARD, estimated.
MAX_ROW_BYTES = 64
# 16 bits forward: with more columns and ROWS_OF_ONE_COLUMN rows, flat or groups are faster.
# 4581 x 120 float16: 13.2 us held, 10.7 by flat; 6000 x 30: 9.7 held, 11.0 by flat (H100).
FEW_COLUMNS = 64
# Gradients of more rows, whose programs hold two columns or one, are not held if a row has MIN_BYTES_OF_LONG bytes.
# 3000 x 200 bf16: 13.5 us held, 10.3 by flat; 2100 x 50 bf16: 7.2 held, 8.1 by flat (H100).
ROWS_OF_TWO_COLUMNS = 2048
# Minimum bytes of a row for ROWS_OF_TWO_COLUMNS.
MIN_BYTES_OF_LONG = 400

# Forward, short runs of 16 bits in many programs of one warp: a program has twice as many elements, so more bytes are
# in flight. 4 x 9877648 x 4 bf16: 293 us, otherwise 321; 7 x 3000000 x 4 bf16: 170, otherwise 154 (H100).

# Minimum waves of such programs, where 32 to a multiprocessor run at once.
WAVES_OF_WARPS = 4
# Bytes of a run.
BYTES_OF_LARGE_WARPS = range(8, 17)
# Minimum elements of a channel, rounded up to a power of two.
MIN_OF_LARGE_WARPS = 16
# Maximum rows.
ROWS_OF_LARGE_WARPS = 4

# Two tiles hold many channels that have a little more elements than a power of two: the second tile has fewer masked
# lanes than one tile of twice the size. 6 x 436044 x 22 float16: 112 us, in one tile 156 (H100).

# Maximum bytes of a load: the instructions of short loads take longer than their bytes.
# Gradient of 3 x 400000 x 48 bf16, loads of 8 bytes: 151 us in two tiles, in one tile 136 (H100).
BYTES_OF_SHORT_LOADS = 4
# Elements of all channels in the first tile of a program, which is one warp, so that no warp waits for another.
# 6 x 436044 x 22 float16: 112 us, by 2 warps 140 (H100).
ELEMENTS_OF_WARP = 512
# Maximum elements of a channel in the first tile.
# 15 x 86126 x 49 float16, a tile of 512: 145 us, in one tile 140 (H100).
MAX_OF_TWO_TILES = 128
# Minimum bytes side by side for gradients of 16 bits. Odd runs are not estimated.
# 19 x 100000 x 7 bf16, of just these bytes: 52.2 us, by flat 76.0 (H100).
BYTES_OF_ODD_RUNS = 56

# Gradients of odd runs of 16 bits that are held in one tile of NEIGHBOUR_ELEMENTS by 8 warps, without an estimate.
# 88 x 1906 x 43 float16: 29.0 us, by flat 39.0 (H100).

# Minimum sectors of a run.
SECTORS_OF_ODD_RUNS = 2
# Maximum share of masked lanes.
MAX_MASKED_OF_ODD_RUNS = 1 / 8

# Gradients of 16 bits with loads of four bytes: programs of four channels of this number of elements, in one tile, have
# two warps instead of four. 8 x 300000 x 30 float16: 171 us, otherwise 193 (H100). Other sizes were not timed.
BLOCK_OF_TWO_WARPS = 256
# Two tiles of one channel by 8 warps: elements of the first tile. One tile would take all registers of a
# multiprocessor, and two programs by 8 warps run at once. 60 x 1000 x 180 float16: 24.8 us, in one tile 26.5 (H100).
# Gradient of 60 x 1000 x 180 bf16, no whole vectors: 35.5 us by 8 warps, 44.1 by 16 (H100).
ELEMENTS_OF_HALF = 8192
# Gradients of float64 in two tiles by 16 warps: maximum elements of a channel in first tiles. With more elements, or
# offsets of 64 bits, threads spill. 5 x 4096 x 1745: 309 us, by groups 468 (H100).
MAX_OF_HALF_FLOAT64 = 5 / 4
# Gradients: with more programs of one warp than this to a multiprocessor, a program gets WARPS_OF_MANY warps and
# channels times WARPS_OF_MANY, because each start of a program takes 93 ns.
# 1 x 59229 x 224 float16: 34.7 us, by 59229 programs of one warp 41.6 (H100).
MANY_WARPS = 8
# Warps of a program, and the factor of its channels, above MANY_WARPS.
WARPS_OF_MANY = 4
# Forward of many odd columns: maximum rows where a thread has one column, so that lanes of a warp load neighbouring
# elements. One row of any columns that are no whole vectors is read the same way.
# 1 x 9850925 float32: 87.6 us, with several columns to a thread 110 (H100).
ROWS_OF_LANES = 4

# Odd numbers of columns of 4 and 8 bytes: one cache line of columns lies in parts of two lines. Programs get at least
# two lines of each row where there are many.
# 17 x 5556595 float32: 349 us, with one line 431; 16 bits, 25 x 1000001 bf16: 63.8, otherwise 59.2 (H100).

# Maximum rows.
MAX_ROWS_OF_LINES = 64
# Bytes of a tile.
BYTES_OF_LINES = 8192
# Bytes of a tile for each warp.
BYTES_OF_WARP_OF_LINES = 2048

# Gradients of few channels whose runs begin anywhere: a channel of less than this share of the elements that a program
# can hold is loaded element by element, without heads and tails.
MAX_SINGLES = 3 / 4


def whole_channels(problem: Problem, limits: Limits) -> Configuration | None:
    """Programs that hold whole channels. None if they cannot, or if another kernel is known to be faster."""
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
        # Sectors of 32 bytes, or wider rows while there is a program for each multiprocessor.
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
            # Half as many for gradients: 2500 x 40 float16 spills 8 bytes on sm_80.
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
        # A program that fills the registers of a multiprocessor loads, computes and stores in turns. Half of the
        # columns are faster: 139 x 179633 bf16: 72 us with 32 columns, 81 with 64. Many gradients gain even with half a
        # sector: 368 x 10763 float16: 22.6 us with 8 columns, 24.6 with 16 (H200); 27.2 and 26.4 (H100).
        full = channels * block == most
        thin = full and inputs == 2 and SECTOR_BYTES <= channels * size <= 2 * SECTOR_BYTES
        thin = thin and WAVES * channels * limits.sm_count < C
        of_one_tile = channels
        # Forward 400 x 131072 float16: 110 us by 16 columns and 8 warps, 164 by 32 and 16 (H100).
        halved = inputs == 1 and size == 2 and channels * size > SECTOR_BYTES and 2 * channels * limits.sm_count < C
        if thin or (full and (halved or channels > 2 * SECTOR_BYTES // size)):
            channels //= 2
    else:
        # Several channels of few elements. One warp is enough for 16 elements of a thread.
        share = power_of_2(cdiv(C, limits.sm_count))
        channels = min(neighbours(problem), power_of_2(C), NEIGHBOUR_ELEMENTS // block)
        if VECTOR_BYTES // size % B == 0:
            if inputs == 2 and share * B * size >= SECTOR_BYTES and limits.sm_count > cdiv(C, share):
                # As many programs as multiprocessors, down to half a sector.
                # Gradient of 128 x 296 x 4 float16: 4.2 us with 2 channels, 4.5 with 4 (H100).
                share //= 2
            elif inputs == 1 and share * B * size >= SECTOR_BYTES:
                # Two programs to each multiprocessor, down to half a sector.
                # 24 x 1024 x 2 float32: 3.6 us with 4 channels, 4.4 with 8 (H100).
                share //= 2
            channels = min(channels, max(share, power_of_2(NEIGHBOUR_ROWS // A)))
        else:
            # As many programs as multiprocessors.
            # 55 x 9 x 6 bf16: 3.44 us by one channel each, 3.87 by four (H100).
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
    # Half of the elements for each thread, a quarter for columns of gradients. 64 x 64 bf16: 3.4 us, otherwise 3.7.
    per_thread = held(problem) // 2 // (inputs if B == 1 else 1)
    at_once = WARPS_AT_ONCE * WARP * limits.sm_count
    few_warps = FEW_WARPS // 2 if _has_two_warps(problem, block, limits) else FEW_WARPS
    many = half or cdiv(C, channels) * channels * block > at_once * per_thread
    if many and B == 1:
        two_tiles = (two_tiles_forward if inputs == 1 else two_tiles_of_gradient)(problem, of_one_tile, limits)
        if two_tiles is not None:
            return two_tiles
    # Not forward: float64 spills 8 bytes (83 x 34007, sm_80).
    if many and B == 1 and inputs == 2 and not thin:
        per_thread = held(problem)
        # Half as many columns of 16 bits, at least a sector, by 4 warps. Not on sm_100, where 8 bytes spill. Gradient
        # of 72 x 154744 bf16: 48.1 us, otherwise 53.4 (H100). Not odd numbers that L2 does not hold: 32 bytes of a row
        # lie in two sectors. 112 x 1979813 bf16: 890 us with 16 columns, 670 with 32 (H100).
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
        # More warps help where a load is of one element or of a whole run. Gradient of 63 x 4 x 27 bf16: 3.7 us by
        # 16 warps, 4.1 by 8. Not other vectors, 1 x 15 x 2538 bf16: 3.8 by 16, 3.6 by 8.
        per_thread //= 4 if inputs == 1 and B % 2 and A > 1 else 2
    few_odd_rows = many and inputs == 1 and size < 8 and A <= ROWS_OF_LANES and C % 2 == 1
    if B == 1 and not has_vectors(problem) and (A == 1 or few_odd_rows):
        per_thread = block  # several neighbours would be loaded one by one, as masks begin anywhere
    warps = max(1, min(MAX_WARPS, channels * block // (per_thread * WARP)))
    of_lines = max(2 * channels, BYTES_OF_LINES // (block * size))
    if _reads_parts_of_lines(problem, channels) and cdiv(C, of_lines) > WAVES * limits.sm_count:
        channels, warps = of_lines, of_lines * block * size // BYTES_OF_WARP_OF_LINES
    if inputs == 2 and B > 1 and warps == 1 and cdiv(C, channels) > MANY_WARPS * limits.sm_count:
        by_one_warp = block <= math.gcd(B, VECTOR_BYTES // size) * WARP  # also in a program of four warps
        channels, warps = (WARPS_OF_MANY * channels, WARPS_OF_MANY) if by_one_warp else (channels, warps)
    return Configuration("channels", channels, warps)


def _reads_parts_of_lines(problem: Problem, channels: int) -> bool:
    A, C, B, size, _ = problem
    return B == 1 and C % 2 == 1 and size > 2 and channels * size == ROW_BYTES and A <= MAX_ROWS_OF_LINES


def _two_tiles_of_runs(problem: Problem, limits: Limits) -> Configuration | None:
    """Two tiles for runs. None where one tile has few masked lanes, or masked lanes take no time."""
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
    """Whether programs that hold odd runs of a gradient of 16 bits are chosen without an estimate."""
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
    """Whether there are enough forward programs of one warp that twice as many elements for each are faster."""
    A, C, B, size, inputs = problem
    whole = B > 1 and VECTOR_BYTES // size % B == 0 and B * size in BYTES_OF_LARGE_WARPS
    few = A <= ROWS_OF_LARGE_WARPS and power_of_2(A * B) >= MIN_OF_LARGE_WARPS
    forward = inputs == 1 and size == 2 and limits.capability[0] == 9
    return whole and few and forward and cdiv(C, channels) >= WAVES_OF_WARPS * WARPS_AT_ONCE * limits.sm_count


def unaligned_channels(problem: Problem, limits: Limits) -> Configuration | None:
    """A program that holds one channel and reads its runs as a head, vectors and a tail. None for other problems.

    3 x 4232 x 759 float16: 22.0 us, element by element 33.8. Gradients are read this way where a multiprocessor has
    more warps than run at once, or where a program hardly holds the channel element by element.
    Gradient of one channel of 8453 float32: 5.3 us, by groups 7.9; of 5001: 4.4, element by element 4.1 (H100).
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
