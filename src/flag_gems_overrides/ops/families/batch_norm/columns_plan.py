# SPDX-License-Identifier: Apache-2.0
"""Configurations of programs that hold many columns, and short runs as columns (H100)."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import MAX_WARPS, Configuration, Problem, has_vectors, held, launch_or_none

# Programs that hold columns of fewer bytes than a sector of the cache read the rest of it for nothing, from L2:
# LITTLE_BYTES for more programs, down to so many elements of each (64 x 64 bf16 3.15 us with 256, 3.38 with 512, the
# gradient 3.37 and 3.73 with 1024), and so much for programs that hold their columns at all: 17.2 MB of the gradient of
# 536 x 4013 bf16 take 19.9 us so, 21.5 with flat (H100), but 33.6 of that of 2048 x 1024 float32 28.2, 25.8 with groups
# (H100; on an H200 20.7 and 21.4, PyTorch 20.4).
LITTLE_ELEMENTS, MAX_BYTES_OF_SECTORS = 256, 20 << 20
# Many columns forward, of so many rows and a few more, in two tiles by so many warps at most, or fewer columns, down to
# a sector. Of 16 bits 72 x 154744 takes 35.4 us by programs of 64 and 8 rows of 64 bytes, with 4 warps instead of 2
# 39.6, with 128 bytes 43.5, in one tile of 128 rows 51.6; 139 x 100000 41.7, with 8 warps instead of 4 50.6, in one
# tile 45.7 (PyTorch 74.0 and 83.1); 96 x 120000 28.1, in one tile 38.5, 40 x 200000 21.8, with 2 warps instead of one
# 24.8, in one tile 27.3; 700 x 30000 52.7, by 16 warps 65.7, by groups 71.7, 520 x 14320 31.2, 37.5 and 37.2. Of
# float32 300 x 100000 99.0, with 64 bytes 104.7, in one tile 111; 600 x 40000 86.4, by groups 107; 1200 x 20000, of at
# least so many waves, 92.9, by groups 116, but float16 1100 x 20000 111 and 73. By few programs one tile of fewer
# columns: 270 x 4600 float32 10.4 us, 11.9 by 144 programs in two tiles, but 600 x 5000 18.7 by 313, 22.8 in one.
MIN_TWO_TILES, MAX_TWO_TILES, BYTES_OF_TWO_TILES, WARPS_OF_TWO_TILES = 32, 512, {2: 64, 4: 128, 8: 128}, 8
PROGRAMS_OF_TWO_TILES = 2
# Forward one tile of so many bytes of a row at least is held whatever the bytes, unless more of its rows are masked:
# 1000 x 40000 float32 takes 136 us by 16 columns and 16 warps, 149 by 8 and 8, by groups 181, 2000 x 20000 156 by 8 and
# 16, by groups 204, 1024 x 20000 float16 57.3 and 68.5, 1000 x 20000 float64 135 by 8 columns, by 4 195, by groups 178,
# but 2000 x 30000 bf16 241 by rows of 16 bytes, 145 by groups; 400 x 131073, not of whole vectors, 212 and by flat 156.
MIN_BYTES_HELD, MAX_MASKED = {2: SECTOR_BYTES, 4: SECTOR_BYTES, 8: 2 * SECTOR_BYTES}, 1 / 4
# Gradients in two tiles, of so many rows at least in the first: by so many columns at most, by 8 warps, where there are
# more programs than multiprocessors. 257 x 14320 bf16 takes 23.9 us by 16 columns, 28.4 by 16 warps, 34.7 by 32 columns
# and 16 warps, in one tile of 512 rows 33.6, of float32 29.3 by 8, 30.7 by 16, in one tile 33.7, of float64 46.0 by 8,
# 48.2 by 4, by groups 59.1; 301 x 10355 float16 18.4, one tile 22.9, 611 x 3448 bf16 18.3 by 8, 19.5 by 16 and 16
# warps, one tile 20.1, 1205 x 776 11.3 and 13.4. But 150 x 262144 bf16 162, in one tile 148, and where columns have
# groups: 300 x 40000 68.0 and 53.6, 640 x 20000 78.4 and 60.7, 513 x 8000 33.6 and 21.1. So with a group of so many
# columns of 16 bits to each multiprocessor: 257 x 14320 20.9 us by groups, 380 x 10000 21.1, in two tiles 23.3, but 320
# x 5000 15.3 and 14.7.
MIN_ROWS_OF_GRADIENT, COLUMNS_OF_GRADIENT, COLUMNS_OF_GROUPS = 256, {2: 16, 4: 8, 8: 8}, 64
# Gradients of more bytes, of at most so many rows, where each load is of so many bytes at least, by whole sectors:
# of 229 x 70236 float16, of 8 bytes to a load, 54.9 us by 32 columns and 16 warps, 63.0 by 16 and 8, by groups 94.0, of
# 268 x 225776 float32 291 and 414, 1000 x 40000 222 and 284. Not of two bytes with more rows, which are one program to
# a multiprocessor: 500 x 131072 float16 235 and 219; nor of single columns: 382 x 23795 float32 82.4, flat 80.3. Of two
# bytes in whole vectors by 16 columns and 8 warps, three programs to a multiprocessor: 229 x 702368 458 us, by 32 and
# 16 605, by groups 672 (torch.compile 469), 229 x 33000 32.9, by 16 and 16 40.7, 150 x 262144 bf16 147, by 32 230, by
# groups 157. Two sectors in two tiles instead of one in one, of many waves: 700 x 30000 float32 107
# and 118, 700 x 60000 205 and 225, but 600 x 5000, of 313 programs, 29.7 and 25.0.
# Of float64 two sectors in one tile where two tiles have as many masked lanes: 447 x 10080 51.9 us, by 4 columns and 8
# warps 54.6, by groups 66.1, 500 x 6000 39.6, 40.2 and 50.1. One sector of even numbers: 900 x 6000 66.9, by flat 83.9.
MAX_ROWS_OF_SECTORS, MIN_BYTES_OF_SECTORS = {2: 256, 4: 1024, 8: 1024}, 8
# Runs of a power of two, of so many bytes at most, of so many rows at least, held as columns, by so many bytes of a row
# or fewer, for half as many programs as multiprocessors at least: the lanes of a warp have the same lines. 139 x 1309 x
# 2 float32 takes 5.2 us so, 9.7 channel by channel (FlagGems 8.8), 168 x 3479 x 4 14.7 by 4 channels and 4 warps, 19.2
# by 8 and 8, channel by channel 22.6, 89 x 603 x 2 bf16 3.7 and 5.0, 300 x 2000 x 4 10.4 and 17.4, 250 x 3000 x 8 19.3
# and 26.1; the gradients of 140 x 1209 x 2 bf16 4.7 and 9.0, of 200 x 1500 x 2 float16 6.3 and 11.5, of 150 x 2000 x 4
# float32 12.3 and 16.2. But 451 x 64 x 2, of 64 programs of 8 bytes, 4.35 and 4.28, 100 x 4000 x 16 24.9 and 25.6. Half
# as many rows by more programs: 40 x 3000 x 2 float32 4.35 and 6.46, the gradient of 33 x 20000 x 4 bf16 15.8 and 22.4.
# In a tile of more rows than these 900 x 3001 x 4 float16 takes 44.1 and by flat 37.7, 1400 x 6000 x 2 79.0 and 53.1,
# the gradient of 1000 x 3000 x 2 44.6 and 34.3, of 400 x 2000 x 8 bf16 38.9 and 36.7, but of 500 x 300 x 4 float32 7.5
# and 10.3.
MAX_RUN_BYTES, MIN_ROWS_OF_RUNS, ROW_BYTES_OF_RUNS = 16, 64, {2: 32, 4: 64, 8: 64}
MAX_ROWS_OF_RUNS = {2: 256, 4: 512, 8: 256}
# Gradients of no more channels to a multiprocessor are held channel by channel, by more warps: 285 x 128 x 2 float64
# takes 4.5 us by 128 programs of 8 warps, 5.8 as columns by 128 of 2 (torch.compile 4.75), 150 x 200 x 4 float32 4.43
# by 200 of 4, 5.13 by 100 of 2 (4.41), 230 x 120 x 2 float64 4.33 and 4.46. And float64 forward: 285 x 128 x 2 4.5 and
# 5.2, but 150 x 200 x 4 float32 4.3 and 4.4 (H100).
MIN_CHANNELS_OF_RUNS = 2
# Forward float32 in so many rows, and a few more: 2080 x 150 x 4 takes 11.4 us so, by flat 15.8, channel by channel
# 16.0, 2080 x 860 x 4 39.8, 42.9 and 67.2, 2500 x 400 x 4 27.4, 27.9 and 40.5, 1200 x 900 x 4 29.1, 29.5 and 43.9; 4000
# x 300 x 4 by flat 32.5, channel by channel 54.0. And half as many more where all programs run at once: 1400 x 400 x 4
# 16.5 by 100 programs, 22.1 and 22.4 (H100).
MAX_ROWS_OF_LONG_RUNS = 2048
# Forward of so many rows at least, and runs so short, by more of a row, and by many programs: 9 x 1000000 x 2 float16
# takes 44.0 us by 32 channels and a warp, in one tile 48.9, channel by channel 73.7, but 5 x 300001 x 2 float32 21.6
# and 20.0, 9 x 300000 x 8 bf16 48.5 and 44.5, the gradient of 9 x 4322024 x 2 311 and 275. Of 16 bits by half as many
# channels where all warps run at once: 9 x 20000 x 2 4.5 us, 4.9, channel by channel 5.2 (H100).
# Of so many rows and more, pairs of 16 bits in sectors, by a few programs to a multiprocessor: 24 x 1370 x 2 bf16 takes
# 3.47 us by 172 of a warp in two tiles, in one by two warps 3.66, channel by channel 4.97 (torch.compile 4.93; H100).
MIN_FEW_ROWS, MAX_RUN_OF_FEW_ROWS, ROW_BYTES_OF_FEW_ROWS, MIN_ROWS_OF_PAIRS = 8, 4, 128, 17
# Programs that do not wait for each other: of so many waves the last one is a small part.
WAVES = 4
# Warps of a multiprocessor that run at once where each thread has half of its elements.
WARPS_AT_ONCE = 32


def two_tiles_forward(problem: Problem, channels: int, limits: Limits) -> Configuration | None:
    """Instead of one tile of so many columns; None where there would be hardly fewer masked lanes."""
    rows, size = power_of_2_within(problem.M), problem.itemsize
    most = MAX_TWO_TILES * (2 if size == 4 else 1)
    if not MIN_TWO_TILES <= rows <= most or not has_vectors(problem):
        return None
    if limits.capability[0] != 9 and (size > 2 or rows > MAX_TWO_TILES // 2):
        return None  # neither timed nor compiled
    if (size == 8 or rows > MAX_TWO_TILES) and problem.M - rows > rows // 4:
        return None  # 8 bytes spill with half as many rows in the second tile (760 x 40000 float64)
    found = _in_two_tiles(problem, min(channels, BYTES_OF_TWO_TILES[size] // size), WARPS_OF_TWO_TILES, limits)
    if found is None or size == 2:
        return found
    least = (WAVES if rows > MAX_TWO_TILES else PROGRAMS_OF_TWO_TILES) * limits.sm_count
    return found if cdiv(problem.N, found.channels) > least else None


def two_tiles_of_gradient(problem: Problem, channels: int, limits: Limits) -> Configuration | None:
    """By so many columns at most."""
    channels = min(channels, COLUMNS_OF_GRADIENT[problem.itemsize])
    if limits.capability[0] != 9 or power_of_2_within(problem.M) < MIN_ROWS_OF_GRADIENT:
        return None
    found = _in_two_tiles(problem, channels, MAX_WARPS if problem.itemsize == 8 else WARPS_OF_TWO_TILES, limits)
    return found if found is not None and cdiv(problem.N, found.channels) > limits.sm_count else None


def _in_two_tiles(problem: Problem, channels: int, warps: int, limits: Limits) -> Configuration | None:
    """By at most so many columns and warps, whose threads have as many elements as they may hold."""
    rows, of_warp = power_of_2_within(problem.M), held(problem) * WARP
    channels = min(channels, warps * of_warp // rows)
    configuration = Configuration("channels", channels, max(channels * rows // of_warp, 1), 1)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None


def gradient_by_groups(problem: Problem, limits: Limits) -> bool:
    """Whether groups of columns take less than programs that hold some of more rows than two tiles are worth."""
    wide = problem.inputs == 2 and problem.itemsize == 2 and has_vectors(problem) and limits.capability[0] == 9
    many = cdiv(problem.N, COLUMNS_OF_GROUPS) > limits.sm_count
    return wide and many and problem.M > MIN_ROWS_OF_GRADIENT


def held_by_sectors(problem: Problem, channels: int, limits: Limits) -> bool:
    """Whether so many columns forward are held in one tile however many there are."""
    wide = channels * problem.itemsize >= MIN_BYTES_HELD[problem.itemsize] and has_vectors(problem)
    few_masked = power_of_2(problem.M) - problem.M <= MAX_MASKED * power_of_2(problem.M)
    return problem.inputs == 1 and limits.capability[0] == 9 and wide and few_masked


def gradient_of_sectors(problem: Problem, limits: Limits) -> Configuration | None:
    """Many columns of a gradient, of which a program of all warps holds fewer than it reads side by side."""
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
    """None where runs are not short, or few programs would hold them."""
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
    """By as many warps as hold the rows of the tile, the first one of these that is legal."""
    for rows, two in tiles:
        warps = max(1, min(MAX_WARPS, channels * problem.K * rows // of_warp))
        configuration = Configuration("channels", channels, warps, two, padded=True)
        if launch_or_none(problem, configuration, limits) is not None:
            return configuration
    return None


def sector_bytes(problem: Problem, channels: int) -> int:
    """Of the sectors that programs of so few columns read."""
    return cdiv(problem.N, channels) * problem.M * SECTOR_BYTES
