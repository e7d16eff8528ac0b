# SPDX-License-Identifier: Apache-2.0
"""Configurations of programs that hold many columns, and short runs as columns (H100)."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import MAX_WARPS, Configuration, Problem, has_vectors, held, launch_or_none

# Minimum elements of a program of little data, which has fewer columns than a sector, so that there are more programs.
# The rest of each sector is read from L2 for nothing. 64 x 64 bf16: 3.15 us with 256, 3.38 with 512.
LITTLE_ELEMENTS = 256
# Maximum bytes of all sectors that programs of less than a sector read. With more they do not hold columns.
# Gradient of 536 x 4013 bf16, 17.2 MB: 19.9 us, by flat 21.5 (H100).
# Gradient of 2048 x 1024 float32, 33.6 MB: 28.2 us, by groups 25.8 (H100).
MAX_BYTES_OF_SECTORS = 20 << 20

# Forward, many columns in two tiles: the first has a power of two of rows, the second the few other ones.

# Limits of the rows of the first tile; float32 may have twice the maximum.
# 72 x 154744, 16 bits: 35.4 us, in one tile of 128 rows 51.6; 1100 x 20000 float16: 111, otherwise 73.
MIN_TWO_TILES, MAX_TWO_TILES = 32, 512
# Maximum bytes of a row of a program, by the bytes of an element.
# 72 x 154744, 16 bits: 35.4 us, with 128 bytes 43.5; 300 x 100000 float32: 99.0, with 64 bytes 104.7.
BYTES_OF_TWO_TILES = {2: 64, 4: 128, 8: 128}
# Maximum warps of a program, which has fewer columns instead of more.
# 700 x 30000, 16 bits: 52.7 us, by 16 warps 65.7.
WARPS_OF_TWO_TILES = 8
# Minimum programs to a multiprocessor for 4 and 8 bytes. With fewer, one tile of fewer columns is faster.
# 600 x 5000 float32, 313 programs: 18.7 us, in one tile 22.8; 270 x 4600 float32, 144 programs: 11.9, in one tile 10.4.
PROGRAMS_OF_TWO_TILES = 2

# Forward: minimum bytes of a row, by the bytes of an element, with which one tile holds columns of any total size.
# 2000 x 20000 float32: 156 us, by groups 204; 2000 x 30000 bf16, rows of 16 bytes: 241, by groups 145.
MIN_BYTES_HELD = {2: SECTOR_BYTES, 4: SECTOR_BYTES, 8: 2 * SECTOR_BYTES}
# Maximum share of masked rows of that tile.
MAX_MASKED = 1 / 4
# Gradients in two tiles, where there are more programs than multiprocessors: minimum rows of the first tile.
# 257 x 14320 bf16: 23.9 us, in one tile 33.6; 150 x 262144 bf16: 162, in one tile 148.
MIN_ROWS_OF_GRADIENT = 256
# Maximum columns of a program of them, by the bytes of an element; 8 warps, float64 16.
# 257 x 14320 bf16: 23.9 us by 16 columns, 34.7 by 32 and 16 warps.
COLUMNS_OF_GRADIENT = {2: 16, 4: 8, 8: 8}
# Gradients of 16 bits use groups instead if each multiprocessor has a group of this number of columns.
# 380 x 10000: 21.1 us by groups, 23.3 in two tiles; 320 x 5000: 15.3 by groups, 14.7 in two tiles.
COLUMNS_OF_GROUPS = 64
# Gradients that read whole sectors, by the bytes of an element: maximum rows. 16 bits of more rows are one program to a
# multiprocessor. 268 x 225776 float32: 291 us, by groups 414; 500 x 131072 float16: 235, otherwise 219.
MAX_ROWS_OF_SECTORS = {2: 256, 4: 1024, 8: 1024}
# Minimum bytes of a load of them. 229 x 70236 float16, 8 bytes: 54.9 us, by groups 94.0; 382 x 23795 float32, 4 bytes:
# 82.4, by flat 80.3.
MIN_BYTES_OF_SECTORS = 8

# Short runs of a power of two are held as columns, where there are half as many programs as multiprocessors: channel by
# channel the lanes of a warp read the same lines. 168 x 3479 x 4 float32: 14.7 us, channel by channel 22.6.

# Maximum bytes of a run.
MAX_RUN_BYTES = 16
# Minimum rows; half as many are enough if there are more than two programs to a multiprocessor.
MIN_ROWS_OF_RUNS = 64
# Maximum bytes of a row of a program, by the bytes of an element.
ROW_BYTES_OF_RUNS = {2: 32, 4: 64, 8: 64}
# Maximum rows of a tile, by the bytes of an element.
# 900 x 3001 x 4 float16: 44.1 us, by flat 37.7; gradient of 500 x 300 x 4 float32: 7.5, by flat 10.3.
MAX_ROWS_OF_RUNS = {2: 256, 4: 512, 8: 256}
# Gradients, and float64 forward: with no more channels to a multiprocessor they are held channel by channel, by more
# warps. Gradient of 285 x 128 x 2 float64: 4.5 us, as columns 5.8; of 230 x 120 x 2: 4.33, as columns 4.46 (H100).
MIN_CHANNELS_OF_RUNS = 2
# Forward float32: maximum rows of the first of two tiles of runs as columns.
# 2080 x 150 x 4: 11.4 us, by flat 15.8 (H100).
MAX_ROWS_OF_LONG_RUNS = 2048

# Forward, fewer rows than half of MIN_ROWS_OF_RUNS: runs are held as columns by many programs.
# 9 x 1000000 x 2 float16: 44.0 us, channel by channel 73.7 (H100).

# Minimum rows. 5 x 300001 x 2 float32: 21.6 us, otherwise 20.0 (H100).
MIN_FEW_ROWS = 8
# Maximum elements of a run. 9 x 300000 x 8 bf16: 48.5 us, otherwise 44.5 (H100).
MAX_RUN_OF_FEW_ROWS = 4
# Bytes of a row of a program.
ROW_BYTES_OF_FEW_ROWS = 128
# Minimum rows for pairs of 16 bits in sectors, by a few programs to a multiprocessor.
# 24 x 1370 x 2 bf16: 3.47 us, channel by channel 4.97 (H100).
MIN_ROWS_OF_PAIRS = 17

# Waves of programs that do not wait for each other, so that the last wave is a small part of the time.
WAVES = 4
# Warps of a multiprocessor that run at once where each thread has half of its elements.
WARPS_AT_ONCE = 32


def two_tiles_forward(problem: Problem, channels: int, limits: Limits) -> Configuration | None:
    """Two tiles instead of one of this number of columns. None where they have hardly fewer masked lanes."""
    rows, size = power_of_2_within(problem.M), problem.itemsize
    most = MAX_TWO_TILES * (2 if size == 4 else 1)
    if not MIN_TWO_TILES <= rows <= most or not has_vectors(problem):
        return None
    if limits.capability[0] != 9 and (size > 2 or rows > MAX_TWO_TILES // 2):
        return None  # not timed or compiled on other devices
    if (size == 8 or rows > MAX_TWO_TILES) and problem.M - rows > rows // 4:
        return None  # with half as many rows in the second tile 8 bytes spill (760 x 40000 float64)
    found = _in_two_tiles(problem, min(channels, BYTES_OF_TWO_TILES[size] // size), WARPS_OF_TWO_TILES, limits)
    if found is None or size == 2:
        return found
    least = (WAVES if rows > MAX_TWO_TILES else PROGRAMS_OF_TWO_TILES) * limits.sm_count
    return found if cdiv(problem.N, found.channels) > least else None


def two_tiles_of_gradient(problem: Problem, channels: int, limits: Limits) -> Configuration | None:
    """Two tiles of at most this number of columns, or None."""
    channels = min(channels, COLUMNS_OF_GRADIENT[problem.itemsize])
    if limits.capability[0] != 9 or power_of_2_within(problem.M) < MIN_ROWS_OF_GRADIENT:
        return None
    found = _in_two_tiles(problem, channels, MAX_WARPS if problem.itemsize == 8 else WARPS_OF_TWO_TILES, limits)
    return found if found is not None and cdiv(problem.N, found.channels) > limits.sm_count else None


def _in_two_tiles(problem: Problem, channels: int, warps: int, limits: Limits) -> Configuration | None:
    """At most this number of columns and warps. Threads hold as many elements as they may."""
    rows, of_warp = power_of_2_within(problem.M), held(problem) * WARP
    channels = min(channels, warps * of_warp // rows)
    configuration = Configuration("channels", channels, max(channels * rows // of_warp, 1), 1)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None


def gradient_by_groups(problem: Problem, limits: Limits) -> bool:
    """Whether groups of columns are faster than programs that hold columns in two tiles."""
    wide = problem.inputs == 2 and problem.itemsize == 2 and has_vectors(problem) and limits.capability[0] == 9
    many = cdiv(problem.N, COLUMNS_OF_GROUPS) > limits.sm_count
    return wide and many and problem.M > MIN_ROWS_OF_GRADIENT


def held_by_sectors(problem: Problem, channels: int, limits: Limits) -> bool:
    """Whether this number of columns forward is held in one tile whatever the total size."""
    wide = channels * problem.itemsize >= MIN_BYTES_HELD[problem.itemsize] and has_vectors(problem)
    few_masked = power_of_2(problem.M) - problem.M <= MAX_MASKED * power_of_2(problem.M)
    return problem.inputs == 1 and limits.capability[0] == 9 and wide and few_masked


def gradient_of_sectors(problem: Problem, limits: Limits) -> Configuration | None:
    """Many columns of a gradient, where a program of 16 warps cannot hold as many as it would read side by side."""
    block, size = power_of_2(problem.M), problem.itemsize
    most = held(problem) * MAX_WARPS * WARP
    if size == 8:
        channels = most // power_of_2_within(problem.M)
        wide = channels >= COLUMNS_OF_GRADIENT[size]
        two_tiles = two_tiles_of_gradient(problem, channels, limits) if wide else None
        if two_tiles is not None:
            return two_tiles
    vector = math.gcd(problem.N, VECTOR_BYTES // size) * size
    if limits.capability[0] != 9 or block > MAX_ROWS_OF_SECTORS[size] or vector < MIN_BYTES_OF_SECTORS:
        return None
    channels = most // block
    if size == 8:
        split = channels * size == SECTOR_BYTES and vector < VECTOR_BYTES
        return None if split else Configuration("channels", channels, MAX_WARPS)
    if size == 2 and vector == VECTOR_BYTES and WAVES * channels * limits.sm_count < problem.N:
        return Configuration("channels", channels // 2, MAX_WARPS // 2)
    if 2 * sector_bytes(problem, channels) <= MAX_BYTES_OF_SECTORS:
        return None
    two_tiles = None
    if size * channels == SECTOR_BYTES and cdiv(problem.N, 2 * channels) > WAVES * limits.sm_count:
        two_tiles = _in_two_tiles(problem, 2 * channels, MAX_WARPS, limits)
    return two_tiles or Configuration("channels", channels, MAX_WARPS)


def runs_as_columns(problem: Problem, limits: Limits) -> Configuration | None:
    """None where runs are not short, or where there are few programs."""
    A, C, B, size, inputs = problem
    if B == 1 or power_of_2(B) != B or B * size > MAX_RUN_BYTES or limits.capability[0] != 9:
        return None
    if 2 * A < MIN_ROWS_OF_RUNS:
        return _few_rows_of_runs(problem, limits)
    if (inputs == 2 or size == 8) and MIN_CHANNELS_OF_RUNS * limits.sm_count >= C:
        return None
    rows, of_warp = power_of_2_within(A), held(problem) * WARP
    max_rows, tile_rows = MAX_ROWS_OF_RUNS[size], power_of_2(A)
    long = inputs == 1 and size == 4 and max_rows < rows <= MAX_ROWS_OF_LONG_RUNS and A - rows <= rows // 2
    if long:
        max_rows, tile_rows = MAX_ROWS_OF_LONG_RUNS, rows
    channels = ROW_BYTES_OF_RUNS[size] // (B * size)
    while channels * B * size > VECTOR_BYTES and (
        2 * cdiv(C, channels) <= limits.sm_count or channels * B * tile_rows > MAX_WARPS * of_warp
    ):
        channels //= 2
    few_rows = A < MIN_ROWS_OF_RUNS and cdiv(C, channels) <= 2 * limits.sm_count
    several_waves = long and A - rows > rows // 4 and cdiv(C, channels) > limits.sm_count
    if few_rows or several_waves or 2 * cdiv(C, channels) < limits.sm_count:
        return None
    at_once = WARPS_AT_ONCE * WARP * limits.sm_count
    many = cdiv(C, channels) * channels * B * power_of_2(A) > at_once * held(problem) // 2
    if inputs == 1 and not (many and size == 2):
        of_warp //= 2
    tiles = [(each, two) for each, two in ((rows, 1), (tile_rows, 0)) if each <= max_rows]
    return _runs_in_tiles(problem, channels, tiles, of_warp, limits)


def _few_rows_of_runs(problem: Problem, limits: Limits) -> Configuration | None:
    A, C, B, size, inputs = problem
    channels, of_warp = ROW_BYTES_OF_FEW_ROWS // (B * size), held(problem) * WARP // 2
    tiles = [(power_of_2_within(A), 1), (power_of_2(A), 0)]
    of_sector = SECTOR_BYTES // (B * size)
    pairs = inputs == 1 and B == size == 2 and A >= MIN_ROWS_OF_PAIRS
    if pairs and limits.sm_count < cdiv(C, of_sector) <= WAVES * limits.sm_count:
        return _runs_in_tiles(problem, of_sector, tiles, of_warp // 2, limits)
    few = A < MIN_FEW_ROWS or B > MAX_RUN_OF_FEW_ROWS or cdiv(C, channels) <= WAVES * limits.sm_count
    if inputs == 2 or few:
        return None
    if size == 2 and C * B * power_of_2(A) <= WARPS_AT_ONCE * WARP * limits.sm_count * held(problem) // 4:
        channels //= 2
    return _runs_in_tiles(problem, channels, tiles, of_warp, limits)


def _runs_in_tiles(
    problem: Problem, channels: int, tiles: list[tuple[int, int]], of_warp: int, limits: Limits
) -> Configuration | None:
    """The first legal tile, by as many warps as hold its rows."""
    for rows, two in tiles:
        warps = max(1, min(MAX_WARPS, channels * problem.K * rows // of_warp))
        configuration = Configuration("channels", channels, warps, two, padded=True)
        if launch_or_none(problem, configuration, limits) is not None:
            return configuration
    return None


def sector_bytes(problem: Problem, channels: int) -> int:
    """Bytes of the sectors that programs of this number of columns, less than a sector, read."""
    return cdiv(problem.N, channels) * problem.M * SECTOR_BYTES
