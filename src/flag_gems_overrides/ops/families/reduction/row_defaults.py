# SPDX-License-Identifier: Apache-2.0
"""What a reduction of rows is launched with where no table says better.

Constants were chosen on an H200 (132 SMs, triton 3.6.0) with the L2 cache full of clean lines; times are of amax.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import (
    MAX_DEPTH,
    MAX_SHORT,
    MAX_WORDS,
    MIN_SHARED_TILES,
    Configuration,
    Problem,
    grouped_rows,
    is_short,
    words,
)
from .programs import (
    BYTES_WITH_ALL_WARPS,
    COLUMNS_OCCUPANCY,
    LITTLE_PROGRAM,
    LITTLE_PROGRAMS,
    LONG_WARPS,
    MAX_TILE,
    MIN_BYTES_OF_LONG,
    MOMENTS_OCCUPANCY,
    OCCUPANCY,
    SHORT_BYTES,
    SHORT_WARPS,
    STAGES,
    TILE_BYTES,
    TILE_WITH_EDGES,
    fitting,
    row_vector,
    starts_many,
)

# Of bytes 8 spill in 64 registers. With 16 warps all of 261017568 bool took 99 us, FlagGems 84, for too little is in
# flight, with 24 84.5.
BYTES_OCCUPANCY = 24
# One program for a row where that is enough for the device, up to so many for a multiprocessor, twice as large where
# others would share a row, or rows are long: amax 256 x 65536 bf16 13.7 us, not 15.3, float32 22.2, not 24.6, 774 x
# 95096 bf16 60 and 62, 445 x 53459 float64 56 and 59, 141 x 8192 float32 (H100) 5.8 and 6.8; but 359 x 18367 float32
# 15.1 and 13.6. Rows of bytes that need care are read several tiles at a time anyway. Values of one row for about
# three of four multiprocessors, or each, four times as large: 128 x 131072 bf16 (H100) by four programs for each 21.2
# us, by one of 16 warps 19.95, of 32 19.4, 132 x 131072 by two of 16 20.5, by one of 32 19.6, 100 x 131072 by five of 8
# 19.2, by one of 32 17.9; but not of much fewer: sum 20 x 131072 by 13 of 8 warps 7.1, by one of 32 7.7.
FEW_ROWS, LONG_ROW_BYTES, NEARLY_ALL = 6, 131072, 3 / 4
# Long rows of 16 bits for each multiprocessor, at most, of which each has twice as many warps (``_are_long_halves``).
MAX_LONG_HALVES = 16
# Rows of 8 bytes for each multiprocessor from which programs have two of four warps each, and no loop: amax 45299 x 624
# float64 by one in two iterations 89.6 us, so 86.2 (H100), 150272 x 800 222 and 220 (H200); of fewer sum_dim 5306 x 624
# int64 in a loop 16.2.
MANY_WIDE_ROWS = 256
# Bytes of a row of which each multiprocessor has two (``two_to_each``): longer ones were not timed.
MAX_OF_TWO_BYTES = 262144
# Most elements of a row by half vectors, or by fewer.
HALF_VECTORS_MAX_N = 128
# Values of 32 bits in even rows that are no whole vectors, longer than the first and up to the second: two at a time,
# for then rows have no edges. With edges, and so (H100): prod 21296 x 294 float32 24.5 us and 16.0 (FlagGems 19.2).
EVEN_ROWS = 256, 512
# Values of 8 or 16 bits in rows that are no whole vectors, longer than the first and up to the second: by single warps.
# Of a tile of 1024 of 16 bits, which four warps share, two have nothing of the shortest. So, by single warps of two
# rows, as whole vectors are (``narrow``), and of one (H100): vector_norm 100000 x 545 float16 86.2 us, 49.1 and 45.7
# (PyTorch 73.6), mean 87057 x 786 bf16 78.2, 58.8 and 56.6, amax 4300 x 844 9.0, 8.9 and 8.3, 2000 x 531 5.79, 5.40 and
# 4.91, sum 1567 x 1017 float16 6.05, 6.60 and 6.04, 100000 x 301 bf16 33.2 and 29.9; but amax 20000 x 1101 22.4, 26.5
# and 24.5, sum 60000 x 531 float32 50.3, 56.9 and 55.5. Of bytes any 60000 x 1101 49.1, 41.5 and 42.6.
NARROW_WITH_EDGES = {1: (1024, 2048), 2: (256, 1024)}
# Programs for each multiprocessor, of eight rows of bytes or of four of 16 bits, of which there are more then.
NARROW_PROGRAMS, SINGLE_OCCUPANCY = {1: 4, 2: 3}, 48
# Odd rows of 32 bits that are added up in 64, longer than the first and up to the second, so many or more rows for each
# multiprocessor: by single warps. sum_dim 300000 x 131 int32 70 us, by warps that share rows 174; but nansum 134161 x
# 437 93 and 90 since these are reduced before their edges, sum_dim 8745 x 479 15.1 and 13.2, 2000 x 501 6.4 and 5.4,
# 20000 x 1001 38.4 and 35.3, 3000 x 777 10.4 and 8.5 (H100).
WIDE_WITH_EDGES, WIDE_ROWS = (128, 256), 750
# Rows of a program of single warps, two to each: tiles of a vector to each thread of a warp.
NARROW_ROWS = SHORT_BYTES // (WARP * VECTOR_BYTES)
# Rows of a thread that has whole ones, at most: its elements, of 32 bits, are 56 then; with 56 of 16 bits and their
# positions 16 bytes spill.
SHORT_ROWS, SHORT_WORDS = 8, {1: MAX_WORDS, 2: 48, 3: MAX_WORDS}
# Where there is not enough for all multiprocessors, 8 elements to a thread, and single warps while those are few. bf16
# with 16: 33 x 100 2.5 us, not 2.4, max.dim 128 x 32 2.5, not 2.4, 1000 x 50 3.5, not 2.8; argmin 64 x 64 uint8 with
# 32 2.8, not 2.4.
LITTLE_TILE = 1024
# What that is: elements for each multiprocessor, and bytes of a row. One program reads a row, if it is not aligned
# element by element: amax 7 x 405 bf16 2.8 us, not 3.2, 1 x 605 float16 2.6, not 3.0; 1 x 11264 bf16 3.0, by two 3.8.
LITTLE, MAX_LITTLE_BYTES = {False: 8192, True: 2048}, 32768
# Positions of 16 and 32 bits twice as long, in whole vectors, while one multiprocessor of four has a row: 32 to a
# thread. By four programs for a row, and so (H100): argmax 1 x 16384 float32 4.07 and 3.50 us (by twice as many warps
# 3.62), 1 x 32768 bf16 4.04 and 3.72. Values are as other long rows (``_alone``): amax 1 x 16384 float32 by 32 warps
# 3.50, so, by 16, 3.40, sum 14 x 21952 bf16 3.84 and 3.73.
SHARE_WITH_LONGER, LONGER_POSITIONS = 4, 32
# Positions of up to 4 bytes, of odd rows for which a tile has so many elements, are read in vectors with edges, 32
# elements to a thread. Of twice as many warps, single elements, and so (H100): argmax 3 x 6801 bf16 3.89 and 3.55 us
# (FlagGems 3.59), argmin 60 x 3501 3.95 and 3.85, max.dim 33 x 4101 float16 3.98 and 3.74, argmax 12 x 13001 uint8 4.30
# and 3.81, 3 x 3001 float32 3.35 and 3.36, 60 x 2101 3.81 and 3.74; in vectors by twice as many warps 0.1 more. Shorter
# ones have 16 elements to a thread: 30 x 1801 float32 3.63 and 3.64, 3 x 1501 bf16 3.23 and 3.20. So are values of up
# to 16 bits: amax 4 x 6665 int16 3.67 (24 bytes spill) and 3.04, amin 20 x 7001 uint8 3.38 and 3.15.
MIN_LITTLE_WITH_EDGES = 4096
# Moments of longer odd rows are read in vectors all the same, so many bytes by a thread, in one tile. Each element by
# itself, and so (H100): std 9 x 3333 float32 4.34 and 3.96 us, var_mean 20 x 7001 float16 4.6 and 4.26, 6 x 2671
# bfloat16 3.72 and 3.74; 5 x 12345 bfloat16 by two programs for each row 6.54, in one tile 4.47. But more rows of
# float32 than multiprocessors by twice as many warps, and no vectors: var 216 x 2081 4.19 us, in vectors 4.57 (FlagGems
# 4.35), 150 x 3001 4.38 and 4.53, std 216 x 1025 3.50 and 4.00; 216 x 3333 bfloat16 4.34 and 4.26 (H200).
LITTLE_MOMENTS_BYTES = 64
# Many rows of float64 of so many elements: 512 lanes have a group of them each, or 256 up to MAX_DEPTH. In a loop, with
# edges, and so (H100): var_mean 5896 x 4129 96.5 us and 71.4 (PyTorch 101), by half as many lanes 74.0, 8000 x 3001 107
# and 70.9, by half 72.7, 3000 x 7001 77.3 and 64.9, std 5896 x 4128 81 and 73, 10000 x 2209, by 256 lanes, 99 and 67.4.
WIDE_MOMENTS = 2048, 7166, 8192  # more than, up to, and of odd rows: of even ones a thread has twice as many elements
# Moments of long rows in groups of whole vectors, all of them loaded together (``_moments_in_groups``): warps of a
# program, and more groups than a thread has.
GROUP_WARPS, MAX_GROUPS = (4, 8, 16), 12
# One tile of one program, where each multiprocessor has one row at most (``_alone``): its bytes, elements of positions
# (of 8 bytes half as many) and of moments, and elements of a thread. By 16 and 32 warps for each row (H100): sum 40 x
# 32768 bf16 4.79 us and 4.89, mean 46 x 16403 bf16 4.21 and 4.32, sum 8 x 24949 float16 3.72 and 3.95, 100 x 16384
# float32 7.06 and 7.16; by 8 and 16 115 x 8207 float16 4.31 and 4.31, 128 x 5535 float32 4.76 and 4.96, argmax 100 x
# 5001 float32 4.71 and 4.89, 27 x 4 x 3225 float64 6.19 and 5.25.
MAX_ALONE_BYTES, MAX_ALONE, ALONE_BYTES, ALONE_ELEMENTS, ALONE_WIDE_POSITIONS = 131072, 16384, 128, 32, 8
# Positions of 32 and 64 bits, element by element, up to so many lanes: by single warps, of lanes of so many bytes with
# half as many elements. By two warps, of twice as many, and so (H100): argmin 20000 x 235 float64 21.9 us and 19.8, 26
# x 78 x 137 6.40 and 4.89, argmax 1933 x 191 float32 4.66 and 4.09, 100000 x 33 18.5 and 13.0; max.dim 60000 x 101
# float64 by four rows 25.6, so 24.6. But of the most lanes of 32 bits up to so many rows: 300000 x 201 95.1 and 99.9;
# and of 64 bits not of fewer bytes: argmin 9556 x 19 float64 4.32 and 5.04, max.dim 13992 x 27 5.08 and 5.35.
SINGLY_N, SINGLY_BYTES, SINGLY_ROWS = 256, 1024, 64
# Of short rows by lanes (``rows_by_lanes``): the longest, rows and bytes of a program at least, elements of a thread at
# most, bytes that are loaded together at most, and programs of each multiprocessor at least (of up to 16 bits; of 32).
MAX_LANES_N, MIN_LANES_ROWS, LANES_BYTES, LANES_ELEMENTS, LANES_VECTOR_BYTES = 255, 32, 2048, 32, 4
LANES_PROGRAMS, WIDE_LANES_PROGRAMS = 2, 8
# Odd rows of values of 8 bytes: the longest, and elements of a program.
MAX_LONG_LANES_N, LONG_LANES_TILE = 31, 1024
# Elements of a program of positions where there are fewer, down to one for each multiprocessor, and its rows at least,
# as timed: so few of rows longer than this. By rows, and by eight (H100): argmax 2000 x 75 bf16 3.88 us and 3.64 (by
# 16, 125 programs, 3.62), max.dim 2000 x 201 uint8 3.83 and 3.66; 4000 x 21 float16 3.43 and, by 32, 3.41. Pairs of
# rows no longer than this go so too, with fewer idle lanes: max.dim 8000 x 50 bf16 4.23 and 3.80.
LITTLE_LANES_TILE, MIN_LITTLE_LANES_ROWS, LITTLE_LANES_N = 2048, 8, 64
# Neighbours are combined before they are compared in rows longer than this, of 16-bit and of larger elements: max.dim
# 2**20 x 16 bf16 25 us, without 15; 2**20 x 64 bf16 40 us, without 49; 262144 x 128 float32 38 us, without 37.
MAX_LENGTH_WITHOUT_NEIGHBOURS = {True: 32, False: 128}
# Rows that are loaded element by element: half as many elements to a program, if there is then at most one program for
# each multiprocessor. aminmax 125 x 39 float32 (H100) by 63 programs 2.91 us, by 32 3.15, mean 22 x 75 by 22 2.72, by
# 11 2.83; logsumexp 61 x 55 2.92 by either. Moments were not timed.
SMALLEST_TILE = 4 * WARP
# Rows of so many elements have a thread each: mean 176 x 2 float32 2.91 us, with four 3.19, with eight
# 3.47, 3000 x 2 3.08, 3.12 and 3.44; not of four or eight, where sum 500 x 4 float32 takes 2.95 so, before 2.90, amax
# 2000 x 8 bf16 3.02 and 2.95 (H100).
SHORTEST = 2


def rows(problem: Problem, limits: Limits, wide: bool = False) -> Configuration:
    """Several rows to a program, one, or several programs for a row; ``wide`` if bytes are added up in 64 bits."""
    M, N, _, size, accumulators = problem
    positions = accumulators == 2
    vector, block_n = row_vector(N, size, accumulators), power_of_2(N)
    edges = N % vector != 0
    longer = positions and not edges and 2 <= size <= 4 and limits.sm_count >= SHARE_WITH_LONGER * M
    longest = MAX_LITTLE_BYTES * (2 if longer else 1)
    little = M * block_n <= limits.sm_count * LITTLE[positions] and max(N * size, 2 * block_n) <= longest
    occupancy = BYTES_OCCUPANCY if size == 1 and not positions else OCCUPANCY
    stages, split = 1, True
    if N == 1:
        tile, warps = (VECTOR_BYTES // size * 4 * WARP, 4) if starts_many(M, 256, limits) else (256, 2)
        tile = min(tile, power_of_2(M))
        warps = max(1, min(warps, tile // WARP))
    elif little and accumulators == 3 and size == 4 and vector > math.gcd(N, vector) == 1 and limits.sm_count < M:
        vector, tile, warps = 1, block_n, max(1, min(block_n // (8 * WARP), 16))
    elif little and _few_odd_moments(problem, limits):
        return Configuration("rows", 1, SHORT_WARPS, MOMENTS_OCCUPANCY[False], 1)
    elif little and accumulators == 3 and N * size > SHORT_BYTES and math.gcd(N, vector) * size < VECTOR_BYTES // 2:
        tile, warps = block_n, block_n * size // (LITTLE_MOMENTS_BYTES * WARP)
    elif little and max(N * size, 2 * block_n) > MAX_LITTLE_BYTES:
        tile, warps = block_n, block_n // (WARP * LONGER_POSITIONS)
    elif _alone(problem, limits):
        each = ALONE_BYTES // size if accumulators == 1 else ALONE_WIDE_POSITIONS if size == 8 else ALONE_ELEMENTS
        # All others have 128 registers to a thread, of which a program has 16 warps.
        most = 32 if accumulators == 1 and size < 8 else 16
        tile, warps, occupancy = block_n, min(max(block_n // (each * WARP), LONG_WARPS), most), most
        if positions and size == 8:
            # Element by element: argmax 64 x 7001 float64 5.72 us, in vectors 6.70, 27 x 4 x 3225 5.16 and 5.25 (H100).
            vector = math.gcd(N, vector)
    elif little:
        vector = vector if in_vectors_with_edges(problem, limits) else math.gcd(N, vector)
        single = M * block_n <= LITTLE_PROGRAM * LITTLE_PROGRAMS * limits.sm_count
        tile = LITTLE_PROGRAM if single or (positions and size == 8 and vector == 1) else LITTLE_TILE
        if vector == 1 and accumulators < 3 and M * block_n <= SMALLEST_TILE * limits.sm_count:
            tile = SMALLEST_TILE
        if accumulators == 1 and N == SHORTEST and SMALLEST_TILE * limits.sm_count >= M * N:
            tile, vector = SHORTEST * WARP, 1
        tile = min(max(tile, block_n), power_of_2(M) * block_n)
        most = 16 if accumulators == 3 else 32  # elements of a thread
        # Of moments of float64 a vector: var_mean 6 x 24 3.35 us by 8 elements to a thread (torch.compile 3.01).
        few = vector if single and accumulators == 3 and size == 8 else 8
        warps = max(1, min(tile // (few * WARP), max(4, tile // (most * WARP)), 16))
    elif accumulators == 3 and (grouped := _moments_in_groups(problem, limits)) is not None:
        return grouped
    elif accumulators == 3 and _is_full_row_of_moments(problem):
        tile, warps = block_n, SHORT_WARPS
    elif accumulators == 3 and grouped_rows(problem, vector):
        return narrow(problem, MOMENTS_OCCUPANCY[False], vector)
    elif accumulators == 3 and narrow_rows(problem, vector):
        return narrow(problem, MOMENTS_OCCUPANCY[True], vector)
    elif accumulators == 3 and size == 8 and WIDE_MOMENTS[0] < N <= WIDE_MOMENTS[1 + N % 2]:
        vector = math.gcd(N, VECTOR_BYTES // size)
        warps = LONG_WARPS * (2 if N // (LONG_WARPS * WARP) > MAX_DEPTH else 1) // vector
        tile = vector * warps * WARP
    elif narrow_with_edges(problem, limits) and size == 2:
        return by_single_warps(vector, SINGLE_OCCUPANCY)
    elif narrow_with_edges(problem, limits) and not wide:
        return narrow(problem, occupancy, vector)
    elif N * size <= SHORT_BYTES:
        several = positions and N * size >= MIN_BYTES_OF_LONG
        tile, warps = SHORT_BYTES * (2 if edges or (several and size > 2) else 1) // size, SHORT_WARPS
        if positions and N * size > BYTES_WITH_ALL_WARPS and limits.capability < (10, 0):
            # On sm_100 8 bytes of 300000 x 50 bf16 spill.
            longest = SINGLY_N // (2 if size == 4 and SINGLY_ROWS * limits.sm_count < M else 1)
            shortest = SINGLY_BYTES // size if size == 8 else 1
            singly = vector == 1 and size >= 4 and shortest <= block_n <= longest
            warps = 1 if edges or singly else 2
            most = min(128 // size, 32 * vector, MAX_WORDS)
            most //= 2 if singly and block_n * size >= SINGLY_BYTES else 1
            tile = min(tile, warps * WARP * most)
            while warps == 1 and 2 * block_n <= tile and _few_programs(M * block_n, tile, limits):
                tile //= 2
        elif accumulators == 3 and _has_idle_vectors(problem):
            vector = math.gcd(N, VECTOR_BYTES // size // 2)
        elif in_pairs(problem):
            vector = 2
    else:
        tile, warps = min(TILE_BYTES // size, TILE_WITH_EDGES if edges else MAX_TILE, block_n), LONG_WARPS
        few = accumulators == 1 or (positions and size < 8)
        # Threads of 32 warps have 64 registers, of 8 bytes 128.
        nearly_all = accumulators == 1 and size < 8 and limits.sm_count >= M >= NEARLY_ALL * limits.sm_count
        few = few and (nearly_all or limits.sm_count <= M <= FEW_ROWS * limits.sm_count) and not (edges and size <= 2)
        # Rows of two to a multiprocessor, longer than a tile, others would share; but of 8 bytes: sum 256 x 5216
        # float64 by 16 warps 9.12 us, by 8 8.22 (H200), 158 x 7864 by three programs each 10.04, by one 9.75 (H100).
        longest = LONG_ROW_BYTES if 2 * limits.sm_count < M or size == 8 else TILE_BYTES
        split = not (few and size == 8 and vector > 1 and not edges and N * size <= LONG_ROW_BYTES)
        if (few and size > 1 and N * size > longest) or _are_long_halves(problem, limits):
            times = 4 if nearly_all else 2
            tile, warps = min(times * tile, block_n), times * warps
        elif edges and positions:
            # Of 64 bits twice as much: max.dim of 47276349 int64 100 us, not 129; 149 x 125647 49.7, not 47.8 (H200).
            # Of a few rows to a multiprocessor too, so that fewer programs share one, of 16 bits by as many warps
            # (H100): min.dim 281 x 6967 float32 9.56 us and 8.90, argmax 136 x 9447 bf16 6.32 and 6.04; but longer
            # ones are shared: logsumexp 144 x 101219 float16 20.4 and 21.0.
            few = limits.sm_count <= M <= FEW_ROWS * limits.sm_count and N * size <= LONG_ROW_BYTES
            tile, warps = SHORT_BYTES // size, SHORT_WARPS
            if size == 8 or (few and size > 1):
                tile, warps = 2 * tile, warps * (1 if size == 2 else 2)
        elif size == 8 and not edges and vector > 1 and block_n <= SHORT_BYTES // 4:
            # Two iterations, not eight warps for a row: max.dim 47424 x 544 int64 68 us, not 94, amax 150272 x 800
            # float64 222, not 233 (H200).
            if accumulators == 1 and MANY_WIDE_ROWS * limits.sm_count <= M:
                tile *= 2
            else:
                tile, warps = tile // 2, warps // 2
        elif size == 8 and vector == 1 and positions:
            # Eight elements to a thread: max.dim 32911 x 561 float64 56.7 us, by eight warps 63.7, by two 57.8 (H100).
            warps //= 2
        elif size > 1 and (_in_one_tile(problem, limits) if edges else _is_little_more(problem, tile, limits)):
            tile = block_n
        elif edges and two_to_each(problem, limits):
            tile, warps, stages = 2 * tile, 2 * warps, 1 if size == 2 else STAGES
        elif edges and accumulators == 1 and size == 2 and _in_one_large_tile(problem, limits):
            tile, warps = block_n, 2 * warps
        elif edges and (size == 1 or (size == 2 and accumulators == 3)):
            stages = STAGES
        elif size == 1 and not positions and not few:
            # amax 16384 x 16384 uint8 75 us, not 83, bool 91, not 104, prod 136, not 177.
            tile, warps = tile // 2, warps // 2
    if accumulators == 3:
        occupancy = min(occupancy, MOMENTS_OCCUPANCY[vector > 1])
    neighbours = positions and vector > 1 and MAX_LENGTH_WITHOUT_NEIGHBOURS[size <= 2] < N
    return fitting(
        problem,
        Configuration("rows", max(tile // (warps * WARP), 1), warps, occupancy, vector, 1, split, stages, neighbours),
    )


def _moments_in_groups(problem: Problem, limits: Limits) -> Configuration | None:
    """Moments of long rows, all of a row loaded at once, by a program for each; None where that cannot or need not be.

    Not of so few rows that half of the multiprocessors have none, nor of short ones while some have none. In a loop, or
    shared, and so (H100): var_mean 20000 x 9001 bf16 174.5 us and 127.1, 728 x 9383 15.1 and 12.4, std 601 x 5240
    float32 12.0 and 10.3, var_mean 90 x 20000 9.44 and 7.89, 300 x 12000 12.9 and 12.9, 1500 x 3001 14.1 and 14.1. By
    twice as many warps of half as many groups 130.4, 12.6 and 10.5.
    """
    M, N, _, size, _ = problem
    vector = VECTOR_BYTES // size
    each = limits.sm_count < M or (limits.sm_count < 2 * M and N * size > 2 * TILE_BYTES)
    warps = next((each for each in GROUP_WARPS if MAX_GROUPS * each * WARP * vector > N), None)
    if size not in (2, 4) or not each or N * size <= SHORT_BYTES or warps is None:
        return None
    # The groups, and the last, in words; a mean and a sum of squares for each element of a vector.
    held = (N // (warps * WARP * vector) + 1) * VECTOR_BYTES // 4 + 2 * vector
    most = limits.registers_per_sm // (2 * WARP * held)  # warps whose threads have as many registers for all else
    occupancy = next((each for each in (OCCUPANCY, MOMENTS_OCCUPANCY[True]) if each <= most), MOMENTS_OCCUPANCY[False])
    return Configuration("rows", vector, warps, occupancy, vector)


def _few_odd_moments(problem: Problem, limits: Limits) -> bool:
    """Whether moments of odd rows of float32, one for each multiprocessor at most, have 128 lanes of several elements.

    With a lane for each element var_mean 6 x 691 takes 3.65 us, by twice as many warps 3.40, so 3.28 (H100).
    """
    M, N, _, size, accumulators = problem
    odd = accumulators == 3 and size == 4 and N % 2 == 1
    return odd and limits.sm_count >= M and MAX_DEPTH * WARP < N <= SHORT_BYTES // size


def _alone(problem: Problem, limits: Limits) -> bool:
    """Whether a long row is one tile of one program, for each multiprocessor has one at most.

    Shared by programs, which exchange results, in a loop, or odd rows element by element, and so (H100): sum 40 x 32768
    bf16 5.66 us and 4.79, 36 x 21080 float32 5.98 and 5.16, 24 x 36053 bf16 5.23 and 4.73, 64 x 65536 bf16 8.97 and
    8.02, 96 x 32768 float32 11.3 and 10.6, 4 x 30896 4.4 and 4.1, 64 x 9001 5.38 and 4.58, mean 64 x 16181 bf16 4.88
    and 4.46, 128 x 5535 float32 4.90 and 4.76, sum 63 x 7633 float64 5.43 and 5.44; argmax 27 x 4 x 3225 float64 6.5
    and 5.16, 64 x 7001 6.78 and 5.72, 100 x 5001 float32 5.72 and 4.71, max.dim 40 x 15431 bf16 5.22 and 4.77, but
    argmax 120 x 20000 float32 10.3 to 10.9 and 10.4; var 17 x 8871 float32 5.03 and 4.24.
    """
    M, N, _, size, accumulators = problem
    block_n = power_of_2(N)
    most = {1: MAX_ALONE_BYTES // size, 2: MAX_ALONE // (2 if size == 8 else 1), 3: 0 if size == 8 else MAX_ALONE}
    fewest = MAX_ALONE if accumulators == 3 else 2 * TILE_BYTES // size
    return limits.sm_count >= M and size > 1 and fewest <= block_n <= most[accumulators]


def _are_long_halves(problem: Problem, limits: Limits) -> bool:
    """Whether rows of 16 bits, more than a few for each multiprocessor, are so long that each has 16 warps.

    By 8 warps, and so (H100): prod 1100 x 32768 bf16 33.1 us and 31.6, amax 1979 x 47072 73.6 and 71.8.
    """
    M, N, _, size, accumulators = problem
    whole = accumulators == 1 and size == 2 and N % (VECTOR_BYTES // size) == 0
    return whole and limits.sm_count <= M <= MAX_LONG_HALVES * limits.sm_count and 2 * N * size >= LONG_ROW_BYTES


def _is_little_more(problem: Problem, tile: int, limits: Limits) -> bool:
    """Whether many rows are better one tile of twice the size, for a second would have half of its elements at most.

    In two tiles, and so (H100): min.dim 44520 x 2560 int64 343 us and 300 (FlagGems 305), sum 16000 x 10240 bf16 123
    and 116, max.dim 30000 x 5120 float32 207.4 and 206.8, amax of it 206.1 and 205.8, 30000 x 2560 float64 207.2 and
    206.3. Half is estimated: a quarter was timed.
    """
    M, N, *_, accumulators = problem
    return accumulators < 3 and FEW_ROWS * limits.sm_count < M and tile < N <= 3 * tile // 2


def two_to_each(problem: Problem, limits: Limits) -> bool:
    """Whether values of up to 16 bits are of long rows, of which about each multiprocessor has two: 16 warps to each.

    In a pipelined loop, shared or by eight warps, and so (H100): sum 256 x 30338 bf16 14.6 us and 13.2 (FlagGems 14.0),
    by twice as many elements, of which 24 bytes of count_nonzero spill, 13.0, amax 200 x 30001 11.8 and 10.7, any 263 x
    137715 uint8 27.9 and 23.9; but amax 134 x 865750 63.0 and 64.4.
    """
    M, N, _, size, accumulators = problem
    about = NEARLY_ALL * 2 * limits.sm_count <= M <= 2 * limits.sm_count
    long = MIN_SHARED_TILES * TILE_WITH_EDGES < N and N * size <= MAX_OF_TWO_BYTES
    return accumulators == 1 and size <= 2 and about and long


def _few_programs(elements: int, tile: int, limits: Limits) -> bool:
    """Whether each multiprocessor would have less than a few: min.dim 2344 x 163 float16 by 293 4.30, by 586 4.16."""
    return elements < LITTLE_PROGRAMS * limits.sm_count * tile


def _in_one_tile(problem: Problem, limits: Limits) -> bool:
    """Whether rows with edges, which two iterations would take, are better one tile.

    Few rows: var 274 x 5074 float16 (H100) 6.0 us, in a pipelined loop of two 6.7; count_nonzero 236 x 5769 4.5, by two
    programs for each row 5.4. And any number of values: prod 8792 x 4203 bf16 25.4 us, in a loop of two 44.1, 8792 x
    5635 29.0 and 45.4 (FlagGems 39.1), 60000 x 5635 174 and 259, sum 8792 x 5001 float32 45.9 and 54.7, amax 2000 x
    7001 18.6 and 19.4, but argmax 8792 x 5635 bf16 32.6 and 30.9 (H200).
    """
    M, N, _, size, accumulators = problem
    return N <= MAX_TILE and (accumulators == 1 or (size == 2 and FEW_ROWS * limits.sm_count >= M))


def _in_one_large_tile(problem: Problem, limits: Limits) -> bool:
    """Whether values of 16 bits, rows of as many tiles as programs would share, are better one tile by twice the warps.

    Where a multiprocessor has two rows at most, or there are many. Shared or in a loop, and so, bf16 (H100): mean 234 x
    16181 9.0 us and 8.0, 150 x 16181 7.8 and 6.4, amax 1000 x 16181 20.8 and 18.6; but mean 400 x 16181 10.6 and 11.3,
    300 x 12001, three tiles, 7.9 and 8.0. Where each multiprocessor has one row at most, see ``_alone``.
    """
    M, N, *_ = problem
    at_once = limits.sm_count < M <= 2 * limits.sm_count or FEW_ROWS * limits.sm_count < M
    return at_once and (MIN_SHARED_TILES - 1) * TILE_WITH_EDGES < N <= MIN_SHARED_TILES * TILE_WITH_EDGES


def _has_idle_vectors(problem: Problem) -> bool:
    """Whether moments of short rows are better loaded half a vector at a time, several by a thread, with no lane idle.

    In vectors a quarter of the lanes would be idle or more. By 1 to 4 threads a row, bf16 (H100, in vectors in
    parentheses): var_mean 524288 x 24 15.6 us (17.1), 300000 x 40 15.1 (18.9); up to 128 elements estimated, not timed.
    Of float32 by 2 to 8: 524288 x 24 26.1 (27.2), 200000 x 40 18.7 (22.2), std 600000 x 20 24.8 (29.8), var_mean 100000
    x 96 estimated (22.9; as many threads of whole vectors 19.9); and element by element what had edges: std 300000 x 65
    35.4 (61.8).
    """
    _, N, _, size, _ = problem
    timed = size == 4 or (size == 2 and N % (VECTOR_BYTES // size) == 0)
    return timed and MAX_SHORT < N <= HALF_VECTORS_MAX_N and 3 * power_of_2(N) >= 4 * N


def _is_full_row_of_moments(problem: Problem) -> bool:
    """Whether a row fills more than three quarters of the tile of short rows: a program of four warps each.

    By a warp for each two rows, in a loop, and so (H100): var_mean 4096 x 1023 float32 15.4 us and 13.6 (amax 13.6),
    4096 x 1024 14.8 and 13.4, 16384 x 1023 33.4 and 30.0, 4096 x 2047 bf16 15.9 and 13.4, std 2000 x 777 float32, whose
    rows three programs shared, 9.2 and 6.8. By two warps as by four.
    """
    _, N, _, size, _ = problem
    return size < 8 and 3 * SHORT_BYTES < 4 * N * size <= 4 * SHORT_BYTES


def short_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """Whole rows to a thread, where that leaves no multiprocessor without a warp."""
    M, N, _, size, accumulators = problem
    if not is_short(problem):
        return None
    vector = VECTOR_BYTES // size if N == 1 else min(VECTOR_BYTES // size, SHORT_ROWS)
    while N * vector * words(problem) > SHORT_WORDS[accumulators]:
        vector //= 2
    warps = M // (limits.sm_count * WARP * vector)  # of a multiprocessor
    if not warps:
        return None
    # Of few warps those wait for each other least that have little each: std 55550 x 4 bf16 3.21 us by eight rows to a
    # thread (torch.compile 2.92).
    while N > 1 and vector > 1 and warps < SHORT_WARPS:
        vector, warps = vector // 2, warps * 2
    # Of one element a program of four would be started for every 2 KB; few as two programs or more for each (H100):
    # prod 310356 x 1 int16 by 152 programs of eight warps 4.00 us, by 303 of four 3.76.
    most, programs = (2 * SHORT_WARPS, 2) if N == 1 else (SHORT_WARPS, 1)
    warps = max(min(power_of_2(warps + 1) // 2 // programs, most), 1)
    occupancy = COLUMNS_OCCUPANCY[accumulators] if accumulators > 1 else OCCUPANCY
    return Configuration("short", N * vector, warps, occupancy, vector)


def rows_by_lanes(problem: Problem, limits: Limits) -> Configuration | None:
    """Short rows that are loaded element by element, each by a few lanes, as columns are: none of them is idle.

    Rows with a lane for each element up to a power of two, and so, by 32 rows to a program (H100): nansum 493032 x 17
    float16 23.1 us and 15.5, amin 361388 x 83 bf16 64 and 29, sum 900000 x 33 float16 80 and 29, 200000 x 125 bf16 39.8
    and 25.3, amax 400000 x 23 float32 21.5 and 19.5; any 1000000 x 9 uint8 18.2 and 22.7, by 64 13.9, for programs of
    less than ``LANES_BYTES`` start slower than they read; any 400000 x 201 uint8 56.2 and 41.4, sum 30000 x 33 float16
    6.08 and 4.16. But max.dim 300000 x 63 float32 35.1 and 38.5, sum 300000 x 61 float64 58.8 and 63.4. Even rows, a
    word to a load, while a quarter of the lanes is idle: sum 900000 x 34 float16 54 and 30, any 500000 x 76 uint8 35.6
    and 23.7, amax 400000 x 22 bf16 16.8 and 15.0; but sum 400000 x 62 float32 41.1 and 46.0. Odd rows of 8 bytes, by
    1024 lanes: nansum 14686637 x 9 int64 467 and 390, 1000000 x 21 74.7 and 66.2, amax 3000000 x 13 125 and 122.
    """
    M, N, _, size, accumulators = problem
    long = size == 8 and N % 2 == 1 and N <= MAX_LONG_LANES_N
    timed = size <= 2 or (accumulators == 1 and (size == 4 or long))
    vector = row_vector(N, size, accumulators)
    slow = vector == 1 or (vector * size <= LANES_VECTOR_BYTES and 3 * power_of_2(N) >= 4 * N)
    if accumulators == 3 or not timed or not MAX_SHORT < N <= MAX_LANES_N:
        return None
    elements = LANES_ELEMENTS * SHORT_WARPS * WARP
    rows = LONG_LANES_TILE // power_of_2(N) if long else min(MIN_LANES_ROWS, elements // power_of_2(N))
    while rows * N * size < LANES_BYTES and 2 * rows * power_of_2(N) <= elements:
        rows *= 2
    if limits.sm_count * (LANES_PROGRAMS if size <= 2 else WIDE_LANES_PROGRAMS) * rows > M:
        # Of positions fewer, by smaller programs: in rows argmax 8000 x 41 float16 takes 4.23 us, so 3.57, max.dim 8000
        # x 75 bf16 4.70 and 4.15 (H100).
        rows = min(rows, LITTLE_LANES_TILE // power_of_2(N))
        if limits.sm_count * rows > M and N > LITTLE_LANES_N:
            rows = MIN_LITTLE_LANES_ROWS
        slow = accumulators == 2 and (slow or (vector == 2 and N <= LITTLE_LANES_N)) and limits.sm_count * rows <= M
    if not slow:
        return None
    occupancy = OCCUPANCY // accumulators
    return Configuration(
        "columns", rows * power_of_2(N) // (SHORT_WARPS * WARP), SHORT_WARPS, occupancy, 1, rows, False
    )


def in_vectors_with_edges(problem: Problem, limits: Limits) -> bool:
    """Whether little is odd rows, read in whole vectors and what is left of them."""
    M, N, K, size, accumulators = problem
    block_n = power_of_2(N)
    timed = size < 8 if accumulators == 2 else accumulators == 1 and size <= 2 and not _alone(problem, limits)
    single = math.gcd(N, VECTOR_BYTES // size) == K == 1
    few = block_n <= limits.sm_count * LITTLE[accumulators == 2] // M
    little = few and max(N * size, 2 * block_n) <= MAX_LITTLE_BYTES
    return timed and single and little and block_n >= MIN_LITTLE_WITH_EDGES


def in_pairs(problem: Problem) -> bool:
    """Whether values are read two at a time, not in whole vectors."""
    _, N, K, size, accumulators = problem
    return accumulators == 1 and size == 4 and K == 1 and N % 4 == 2 and EVEN_ROWS[0] < N <= EVEN_ROWS[1]


def narrow_with_edges(problem: Problem, limits: Limits) -> bool:
    """Whether many values of rows with edges are read by single warps."""
    M, N, K, size, accumulators = problem
    if size not in NARROW_WITH_EDGES or accumulators > 1 or K > 1 or N % (VECTOR_BYTES // size) == 0:
        return False
    shortest, longest = NARROW_WITH_EDGES[size]
    of_program = NARROW_ROWS if size == 1 else SHORT_WARPS
    fewest = limits.sm_count * max(NARROW_PROGRAMS[size] * of_program, LITTLE[False] // power_of_2(N))
    return shortest < N <= longest and fewest < M


def wide_with_edges(problem: Problem, limits: Limits) -> bool:
    """Whether many odd rows of 32 bits, added up in 64, are read by single warps."""
    M, N, K, size, accumulators = problem
    shortest, longest = WIDE_WITH_EDGES
    odd = size == 4 and accumulators == K == 1 and N % (VECTOR_BYTES // size) > 0
    return odd and shortest < N <= longest and limits.sm_count * WIDE_ROWS <= M


def by_single_warps(vector: int, occupancy: int) -> Configuration:
    """A warp for each row, a vector to a thread, in a loop."""
    return Configuration("rows", vector, SHORT_WARPS, occupancy, vector, block_k=SHORT_WARPS, split=False)


def narrow_rows(problem: Problem, vector: int) -> bool:
    """Whether rows are of several vectors for each thread of a warp, but no longer than a tile."""
    _, N, K, size, _ = problem
    return K == 1 and 2 * WARP * vector < N <= SHORT_BYTES // size and vector * size == VECTOR_BYTES


def narrow(problem: Problem, occupancy: int, vector: int) -> Configuration:
    """A warp for each two rows, a vector of either to a thread, in a loop: no lanes beyond the row, no warp has to hear
    of another's. Sums of 65536 x 768 bf16 take 6 instructions an element so, in one tile of 2 x 1024 11.
    """
    elements = SHORT_BYTES // problem.itemsize // (SHORT_WARPS * WARP)
    return Configuration("rows", elements, SHORT_WARPS, occupancy, vector, block_k=NARROW_ROWS)
