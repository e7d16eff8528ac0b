# SPDX-License-Identifier: Apache-2.0
"""What a reduction is launched with where no table says better.

Constants were chosen on an H200 (132 SMs, triton 3.6.0) with the L2 cache full of clean lines; times are of amax.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import (
    MAX_CLASSES,
    MAX_PARTIALS,
    MAX_SPLITS_OF_A_WARP,
    MAX_WORDS,
    Configuration,
    Problem,
    is_short,
    short_class_lanes,
    words,
)

# Warps that a multiprocessor has to work on. More programs than fit at once leave a part of the last round idle:
# 64 x 16384 x 64 bf16 along 1 took 47 us with 4 programs of 8 warps, 57 us with 6. With 80 registers and more a
# thread, as an index reduction has that keeps every element apart, fewer fit. Columns of 1024 x 1024 x 1024 bf16 in
# 64 registers took 677 us (sum), in 80 495 (amax).
OCCUPANCY, COLUMNS_OCCUPANCY = 32, {1: 24, 2: 24, 3: 24}
# Of bytes 8 spill in 64 registers. With 16 warps all of 261017568 bool took 99 us, FlagGems 84, for too little is in
# flight, with 24 84.5.
BYTES_OCCUPANCY = 24
# Means and squares of rows: 45 to 68 registers with 16 to 32 elements in vectors, of which each has one of either.
MOMENTS_OCCUPANCY = {True: 24, False: 16}
# A program of 8 warps has 16 KB in flight: 2**29 bf16 at 4283 GB/s; half of that or 4 warps cost 1 to 4 %.
TILE_BYTES, LONG_WARPS, MAX_TILE = 16384, 8, 8192
# One program for a row where that is enough for the device, up to so many for a multiprocessor, twice as large where
# others would share a row, or rows are long: amax 256 x 65536 bf16 13.7 us, not 15.3, float32 22.2, not 24.6, 774 x
# 95096 bf16 60 and 62, 445 x 53459 float64 56 and 59, 141 x 8192 float32 (H100) 5.8 and 6.8; but 359 x 18367 float32
# 15.1 and 13.6. Rows of 16 bits that need care are read several tiles at a time anyway.
FEW_ROWS, LONG_ROW_BYTES = 6, 131072
# Where row ends need care, fewer, and of 16-bit elements several tiles in flight: 8192 x 50257 bf16 202 us, without
# the second 210, without the first 241.
TILE_WITH_EDGES, STAGES = 4096, 3
# But one tile of few such rows: var 274 x 5074 float16 (H100) 6.0 us, in a pipelined loop of two 6.7; count_nonzero
# 236 x 5769 4.5, by two programs for each row 5.4. And of any number of values: prod 8792 x 4203 bf16 25.4 us, in a
# loop of two 44.1, 8792 x 5635 29.0 and 45.4 (FlagGems 39.1), 60000 x 5635 174 and 259, sum 8792 x 5001 float32 45.9
# and 54.7, amax 2000 x 7001 18.6 and 19.4, but argmax 8792 x 5635 bf16 32.6 and 30.9 (H200).
# Shorter rows than so many vectors are not worth reading their ends apart from the rest. Positions, by (accumulators,
# bytes): max.dim 93967 x 87 float32 13.9 us element by element, in vectors 15.7 to 22.4, 2123 x 293 4.4 and 4.3 to 4.7,
# 3177 x 193 uint8 4.0 and 5.1. And two elements are hardly a vector: amax 154903 x 271 float64 92 and 135, 63801 x 737
# 106 and 147, but 241 x 31847 24.9 and 24.0; max.dim 144625 x 109 35.5 and 41.6, 88937 x 235 47 and 53 (H200).
MIN_VECTORS, MIN_VECTORS_OF = 16, {(1, 8): 512, (2, 8): 512, (2, 4): 64, (2, 1): 64}
# Rows up to 4 KB, several to a program, with 4 warps: less to fold across warps. Twice as many for a warp where a row
# needs more than reading: 65536 x 1023 bf16 36 us, not 42, max.dim 65536 x 768 bf16 30 us by 2 warps, not 38 by 4,
# 65536 x 1023 41 us, not 50, 200000 x 130 float32 57, not 72; not if rows are very short (1048576 x 16). Where row ends
# need care too, a single warp: max.dim 1436552 x 147 bf16 198 us, by 2 warps 227, 999 x 1001 4.0, not 4.7; and half of
# the warps in longer rows: 31032 x 2729 bf16 54 us, by 8 warps 72, 60000 x 2049 float32 121, with 16 elements 131.
SHORT_BYTES, SHORT_WARPS, MIN_BYTES_OF_LONG, BYTES_WITH_ALL_WARPS = 4096, 4, 512, 64
# Most elements of a row by half vectors.
HALF_VECTORS_MAX_N = 128
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
# Values and positions of 16 and 32 bits twice as long, in whole vectors, while one multiprocessor of four has a row:
# with 64 bytes of values to a thread, or 32 positions. By four programs for a row, and so (H100): amax 1 x 16384
# float32 3.73 and 3.22 us, argmax 4.07 and 3.50 (by twice as many warps 3.62), argmax 1 x 32768 bf16 4.04 and 3.72.
SHARE_WITH_LONGER, LONGER_BYTES, LONGER_POSITIONS = 4, 64, 32
# Moments of longer odd rows are read in vectors all the same, so many bytes by a thread, in one tile. Each element by
# itself, and so (H100): std 9 x 3333 float32 4.34 and 3.96 us, var_mean 20 x 7001 float16 4.6 and 4.26, 6 x 2671
# bfloat16 3.72 and 3.74; 5 x 12345 bfloat16 by two programs for each row 6.54, in one tile 4.47. But more rows of
# float32 than multiprocessors by twice as many warps, and no vectors: var 216 x 2081 4.19 us, in vectors 4.57 (FlagGems
# 4.35), 150 x 3001 4.38 and 4.53, std 216 x 1025 3.50 and 4.00; 216 x 3333 bfloat16 4.34 and 4.26 (H200).
LITTLE_MOMENTS_BYTES = 64
# K classes in a row: a warp for each tile of 512, where that leaves few enough partial results. bf16 by programs of
# four warps, and so: max.dim 20000 x 1000 x 3 158 and 54 us, 200 x 40999 x 3 32 and 28, amax of the first 73 and 42.
# Columns where that is little: max.dim 4 x 512 x 7 bf16 4.3 us, so 6.2.
MIN_BYTES_OF_CLASSES = 4 << 20
CLASSES_TILE, CLASSES_OCCUPANCY = 512, {1: 24, 2: 16, 3: 16}
# Positions in an [N, K] for each multiprocessor, so few elements for each in all: a program of 8 warps for its columns,
# as FlagGems', which finds all positions at once, not one class after the other, and shares no result. argmax 1082 x
# 739 x 2 bf16 6.9 us in classes by single warps, 10.5 in columns that programs share (FlagGems 5.3), 166 x 5275 x 3
# float16 10.4 in classes by eight warps, 10.0 by twelve programs (8.2), 256 x 3551 x 2 bf16 8.4 by eight (5.8); so they
# are estimated, not timed. Of more, classes: 20000 x 1000 x 3 bf16 54 us (94), 200 x 40999 x 3 28 (43).
MAX_ELEMENTS_OF_TILES = 32768
# Neighbours are combined before they are compared in rows longer than this, of 16-bit and of larger elements: max.dim
# 2**20 x 16 bf16 25 us, without 15; 2**20 x 64 bf16 40 us, without 49; 262144 x 128 float32 38 us, without 37.
MAX_LENGTH_WITHOUT_NEIGHBOURS = {True: 32, False: 128}
# Tiles of 64 x 32 by 4 warps were best or within 5 % for every split shape, 32 x 64 where there are outputs enough
# (256 x 1024 x 1024 bf16 along 1 129 us, not 157). Of 16-bit elements several tiles are in flight (64 x 512 x 512
# bf16 along 1 14.3 us, without 16.3), of larger ones that costs more than it brings. 64 columns also where a program
# has a dozen tiles or more: 64 x 16384 x 64 bf16 along 1 43 us, not 49, x 128 78, not 95; with 8 it is 5 % slower.
# Where partial results are too few for all programs, programs are twice as large: amax of 1000000 x 64 along 0 bf16
# 43 us, not 74. Of no whole vectors one tile is in flight where L2 does not hold them: max.dim 3 x 1680 x 21508 bf16 89
# us, not 114, amax 3 x 1680 x 21506 87, not 94. So are rows of one vector: any of 52512 x 352 x 8 bf16 97 us, not 146,
# max.dim 5408 x 6048 x 8 194, not 272. And positions of odd K are never 64 columns wide: max.dim 3 x 1680 x
# 21509 103, not 164 (PyTorch 129; H100).
TILED_ELEMENTS, TILED_WARPS, BLOCK_K, WIDE_BLOCK_K = 2048, 4, 32, 64
TILES_TO_WIDEN = 12
# So many columns of an [N, K] are a program's, which reads it as it lies: sum 743 x 19483 x 16 bf16 174 us, with four
# of them side by side 195 (FlagGems 182; H100).
AS_IT_LIES = 16
# Results of few elements each. Up to 8 are one tile of 512 bytes by two warps (amax 680 x 1 x 6730 bf16 in tiles of
# 2048 results 17.3 us, of 256 15.1), up to 32 one of 64 results, 16 elements to a thread (300000 x 21 x 7 float32
# 51.7, by warps that loop 72) unless rows of K are whole vectors,
# up to 128 one of 32 where that is little (100 x 100 x 100 bf16 4.4, in a loop 5.3), or where columns are shorter than
# what memory is read by (239148 x 70 x 3 float32 64 us, by warps that loop 118). Many results that are loaded as
# vectors need fewer warps, for more divide the elements of a result among them: 8 x 957728 bytes, max.dim, 10 us, by
# two 43; 653552 x 16 x 16 bf16 111, not 184; 939472 x 8 x 16 float32, max.dim, 163, not 224.
MAX_IN_ONE_TILE, IN_ONE_TILE_BLOCK_K, MAX_IN_ONE_TILE_OF_LITTLE = 32, 64, 128
# 1520 programs start in a microsecond, however small they are: 57232 x 2 x 312 bf16 by 69759 of 256 results 46 us (30
# to read and write), var 32768 x 2 x 1156 bf16 by 147968 95 us (H100, torch.compile 82). With more than these to each
# multiprocessor they are larger: 30.5 us and 66.7 (var before on this device 93.6).
STARTED_AT_ONCE = 8
# Few results of one element are of single warps, two to a thread.
MAX_RESULTS_OF_ONE_WARP = 4
# Little is one tile to a program, of as few results as leave a multiprocessor no more than four programs: less to fold
# across warps, and most multiprocessors read. Up to 16 elements to a thread (8 of 64 bits): argmin 40 x 60 x 16 bf16
# (H200) by 160 single warps 2.96 us, by 20 programs of 4 warps 3.39, of 8 3.69; amax 3 x 317 x 25 float32 by 19
# programs 3.13, by 3 3.58. On an H100 argmax 348 x 128 x 4 float16 by 44 of 8 warps 4.22, by 348 3.47; mean
# 11 x 1489 x 3 by 9 of 16 warps 3.64, by 33 3.17. At least 8 elements to a thread, but no more than
# one result, for where it begins takes divisions: amax 9 x 9 x 8 bf16 (H200) by 5 warps 2.60 us, by 9 2.56, by 18 2.66;
# argmax 7 x 2 x 48 with 8 results to a thread 3.2, FlagGems, 2 x 32 to a program, 2.4.
LITTLE_PROGRAMS, LITTLE_ELEMENTS, LITTLE_PROGRAM, MAX_LITTLE_WARPS = 4, 16, 8 * WARP, 16
# Rows that are loaded element by element: half as many elements to a program, if there is then at most one program for
# each multiprocessor. aminmax 125 x 39 float32 (H100) by 63 programs 2.91 us, by 32 3.15, mean 22 x 75 by 22 2.72, by
# 11 2.83; logsumexp 61 x 55 2.92 by either. Moments were not timed.
SMALLEST_TILE = 4 * WARP
# But no more than so many programs read a cache line, and they ask for no more than this in sectors: amax 1 x 34 x 426
# bf16 (H200) by 107 programs of a warp 3.05 us, by 27 of four 2.95. The bytes are estimated, not timed.
MAX_SHARING, MAX_SECTOR_BYTES = 16, 2 << 20
# Of programs that have a multiprocessor each: 24 x 3168 x 15 bf16 4.9 us with 9 MB by four results, 5.3 with 18 by two.
MAX_SECTOR_BYTES_OF_FEW = 10 << 20
# More of them, of many results: a warp for each tile of 8 x 64. It takes 24 warps on a multiprocessor, fewer if they
# are soon done: 1024 of them (8 x 300 x 8192) take 1.4 times as long. 1000 elements (16 x 1000 x 4096) take up to 7 %
# longer.
BY_WARPS_BLOCK_K, BY_WARPS_MAX_N, BY_WARPS_PER_SM, FEW_ROUNDS = 64, 512, 24, 4


def kinds(problem: Problem, limits: Limits) -> list[Configuration]:
    """A configuration of each kernel that can be, the best first."""
    M, N, K, size, _ = problem
    if K == 1:
        short = _short_rows(problem, limits)
        return [_rows(problem, limits)] if short is None else [short, _rows(problem, limits)]
    kinds = [_columns(problem, limits)]
    if K <= MAX_CLASSES and (problem.accumulators < 3 or size < 8):  # means of float64 spill 16 to 230 bytes
        worth = N * K * size > SHORT_BYTES and M * N * K * size > MIN_BYTES_OF_CLASSES
        # Eight columns of many rows are whole vectors (H200): max.dim 3744 x 5840 x 8 uint8 84 us, in classes 113 to
        # 169, 33440 x 256 x 8 float32 76 and 107, any of 52512 x 352 x 8 bf16 97 and 104 to 120.
        worth &= (K < MAX_CLASSES or limits.sm_count > M) and not _in_two_tiles(problem, limits)
        kinds.insert(0 if worth else 1, _classes(problem, limits))
        short = _short_classes(problem, limits)
        if short is not None:
            kinds.insert(0, short)
    return kinds


def _rows(problem: Problem, limits: Limits) -> Configuration:
    """Several rows to a program, one, or several programs for a row."""
    M, N, _, size, accumulators = problem
    positions = accumulators == 2
    vector, block_n = _row_vector(N, size, accumulators), power_of_2(N)
    edges = N % vector != 0
    longer = not edges and accumulators < 3 and 2 <= size <= 4 and limits.sm_count >= SHARE_WITH_LONGER * M
    longest = MAX_LITTLE_BYTES * (2 if longer else 1)
    little = M * block_n <= limits.sm_count * LITTLE[positions] and max(N * size, 2 * block_n) <= longest
    occupancy = BYTES_OCCUPANCY if size == 1 and not positions else OCCUPANCY
    stages = 1
    if N == 1:
        tile, warps = (VECTOR_BYTES // size * 4 * WARP, 4) if _starts_many(M, 256, limits) else (256, 2)
        tile = min(tile, power_of_2(M))
        warps = max(1, min(warps, tile // WARP))
    elif little and accumulators == 3 and size == 4 and vector > math.gcd(N, vector) == 1 and limits.sm_count < M:
        vector, tile, warps = 1, block_n, max(1, min(block_n // (8 * WARP), 16))
    elif little and accumulators == 3 and N * size > SHORT_BYTES and math.gcd(N, vector) * size < VECTOR_BYTES // 2:
        tile, warps = block_n, block_n * size // (LITTLE_MOMENTS_BYTES * WARP)
    elif little and max(N * size, 2 * block_n) > MAX_LITTLE_BYTES:
        tile, warps = block_n, block_n // (WARP * (LONGER_POSITIONS if positions else LONGER_BYTES // size))
    elif little:
        vector = math.gcd(N, vector)
        alone = M * block_n <= LITTLE_PROGRAM * LITTLE_PROGRAMS * limits.sm_count
        tile = LITTLE_PROGRAM if alone else LITTLE_TILE
        if vector == 1 and accumulators < 3 and M * block_n <= SMALLEST_TILE * limits.sm_count:
            tile = SMALLEST_TILE
        tile = min(max(tile, block_n), power_of_2(M) * block_n)
        most = 16 if accumulators == 3 else 32  # elements of a thread
        warps = max(1, min(tile // (8 * WARP), max(4, tile // (most * WARP)), 16))
    elif accumulators == 3 and narrow_rows(problem, vector):
        return narrow(problem, MOMENTS_OCCUPANCY[True], vector)
    elif N * size <= SHORT_BYTES:
        several = positions and N * size >= MIN_BYTES_OF_LONG
        tile, warps = SHORT_BYTES * (2 if edges or (several and size > 2) else 1) // size, SHORT_WARPS
        if positions and N * size > BYTES_WITH_ALL_WARPS and limits.capability < (10, 0):
            # On sm_100 8 bytes of 300000 x 50 bf16 spill.
            warps = 1 if edges else 2
            tile = min(tile, warps * WARP * min(128 // size, 32 * vector, MAX_WORDS))
        elif accumulators == 3 and _by_half_vectors(problem, vector):
            vector //= 2
    else:
        tile, warps = min(TILE_BYTES // size, TILE_WITH_EDGES if edges else MAX_TILE, block_n), LONG_WARPS
        few = accumulators == 1 or (positions and size < 8)
        few = few and limits.sm_count <= M <= FEW_ROWS * limits.sm_count and not (edges and size <= 2)
        alone = 2 * limits.sm_count < M  # without another program, by the rules for many rows
        if few and size > 1 and N * size > (LONG_ROW_BYTES if alone else TILE_BYTES):
            tile, warps = min(2 * tile, block_n), 2 * warps
        elif edges and positions:
            # Of 64 bits twice as much: max.dim of 47276349 int64 100 us, not 129; 149 x 125647 49.7, not 47.8 (H200).
            large = 2 if size == 8 else 1
            tile, warps = SHORT_BYTES // size * large, SHORT_WARPS * large
        elif size == 8 and not edges and vector > 1 and block_n <= SHORT_BYTES // 4:
            # Two iterations, not eight warps for a row: max.dim 47424 x 544 int64 68 us, not 94, amax 150272 x 800
            # float64 222, not 233 (H200).
            tile, warps = tile // 2, warps // 2
        elif edges and size > 1 and block_n <= MAX_TILE and _in_one_tile(problem, limits):
            tile = block_n
        elif edges and size <= 2:
            stages = STAGES
        elif size == 1 and not positions and not few:
            # amax 16384 x 16384 uint8 75 us, not 83, bool 91, not 104, prod 136, not 177.
            tile, warps = tile // 2, warps // 2
    if accumulators == 3:
        occupancy = MOMENTS_OCCUPANCY[vector > 1]
    neighbours = positions and vector > 1 and MAX_LENGTH_WITHOUT_NEIGHBOURS[size <= 2] < N
    return _fitting(
        problem,
        Configuration("rows", max(tile // (warps * WARP), 1), warps, occupancy, vector, 1, True, stages, neighbours),
    )


def _in_one_tile(problem: Problem, limits: Limits) -> bool:
    """Whether rows with edges, which two iterations would take, are better one tile."""
    M, _, _, size, accumulators = problem
    return accumulators == 1 or (size == 2 and FEW_ROWS * limits.sm_count >= M)


def _by_half_vectors(problem: Problem, vector: int) -> bool:
    """Whether moments of short rows are better loaded half a vector at a time, several by a thread, with no lane idle.

    In vectors a quarter of the lanes would be idle or more. By 1 to 4 threads a row, bf16 (H100, in vectors in
    parentheses): var_mean 524288 x 24 15.6 us (17.1), 300000 x 40 15.1 (18.9); up to 128 elements estimated, not timed.
    """
    _, N, _, size, _ = problem
    whole = size == 2 and vector * size == VECTOR_BYTES and N % vector == 0
    return whole and N <= HALF_VECTORS_MAX_N and 3 * power_of_2(N) >= 4 * N


def _short_rows(problem: Problem, limits: Limits) -> Configuration | None:
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
    # Of one element a program of four would be started for every 2 KB.
    most = SHORT_WARPS * (2 if N == 1 else 1)
    occupancy = COLUMNS_OCCUPANCY[accumulators] if accumulators > 1 else OCCUPANCY
    return Configuration("short", N * vector, min(power_of_2(warps + 1) // 2, most), occupancy, vector)


def narrow_rows(problem: Problem, vector: int) -> bool:
    """Whether rows are of several vectors for each thread of a warp, but no longer than a tile."""
    _, N, K, size, _ = problem
    return K == 1 and 2 * WARP * vector < N <= SHORT_BYTES // size and vector * size == VECTOR_BYTES


def narrow(problem: Problem, occupancy: int, vector: int) -> Configuration:
    """A warp for each two rows, a vector of either to a thread, in a loop: no lanes beyond the row, no warp has to hear
    of another's. Sums of 65536 x 768 bf16 take 6 instructions an element so, in one tile of 2 x 1024 11.
    """
    elements = SHORT_BYTES // problem.itemsize // (SHORT_WARPS * WARP)
    return Configuration("rows", elements, SHORT_WARPS, occupancy, vector, block_k=SHORT_BYTES // (WARP * VECTOR_BYTES))


def _row_vector(length: int, size: int, accumulators: int) -> int:
    """Elements that a load takes together."""
    vector = VECTOR_BYTES // size
    fewest = MIN_VECTORS_OF.get((accumulators, size), MIN_VECTORS)
    return vector if length >= fewest * vector else math.gcd(length, vector)


def _classes(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, accumulators = problem
    positions = accumulators == 2
    occupancy, stages = CLASSES_OCCUPANCY[accumulators], 1
    tile, warps = CLASSES_TILE // (1 if K <= 4 and size > 1 else 2), 1
    if limits.sm_count * occupancy > MAX_SPLITS_OF_A_WARP * M:
        tile, warps = SHORT_BYTES // size, SHORT_WARPS
        if positions:
            stages = STAGES
        elif accumulators == 1:
            occupancy = OCCUPANCY
        partials = SHORT_WARPS * MAX_PARTIALS[size > 4] // power_of_2(K)
        if accumulators == 1 and 4 * M * partials < 3 * limits.sm_count * occupancy // warps:
            # Twice as large, where partial results are too few for all programs: nansum 2 x 6974730 x 6 int64 169 us,
            # by four warps 211 (PyTorch 184), sum 1 x 3000001 x 6 float32 26.8 and 29.5 (H200).
            tile, warps = 2 * tile, 2 * warps
    if accumulators == 3:
        tile = CLASSES_TILE // 2 * warps  # two tiles are read at a time
    tile = min(tile, power_of_2(N * K))
    vector = _row_vector(N * K, size, accumulators)
    return _fitting(
        problem,
        Configuration("classes", max(tile // (warps * WARP), 1), warps, occupancy, vector, stages=stages),
    )


def _short_classes(problem: Problem, limits: Limits) -> Configuration | None:
    """An [N, K] by a few lanes, where that is no longer than a short row and there are many."""
    M, N, K, size, accumulators = problem
    vector = math.gcd(N * K, VECTOR_BYTES // size)
    if N * K * size > SHORT_BYTES or M * N * K * size <= MIN_BYTES_OF_CLASSES or not short_class_lanes(problem, vector):
        return None
    return Configuration("short_classes", vector, SHORT_WARPS, CLASSES_OCCUPANCY[accumulators], vector)


def _is_deep(problem: Problem, limits: Limits) -> bool:
    """Moments of which a thread loads eight vectors together: half as many warps have half as many lanes to merge.

    bf16 (H100, not deep in parentheses): var_mean 64 x 512 x 512 along 1 20.9 us (22.5), 300 x 700 x 96 22.9 (23.8),
    64 x 16384 x 64 58.9 (62.1), 65536 x 256 along 0 22.1 (23.2), std 2000 x 300 x 40 float16 27.1 (31.1); but 100000 x
    200 28.0 (27.6), 1024 x 1024 x 1024 along 1 755 (745). Not of few results: these are shared by too few programs of
    half as many warps, 1000000 x 64 along 0 60.1 us (58.4). On sm_100 8 bytes spill (64 x 16384 x 64, Triton 3.7).
    """
    M, _, K, size, accumulators = problem
    vectors, few = K % (VECTOR_BYTES // size) == 0, M * K <= 2 * WIDE_BLOCK_K
    return accumulators == 3 and size == 2 and vectors and not few and limits.capability[0] < 10


def _columns(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, accumulators = problem
    found = _little_in_one_tile(problem, limits) or _few_results(problem, limits) or _few_elements(problem, limits)
    if found is not None:
        return found
    positions = accumulators == 2
    if _in_two_tiles(problem, limits):
        block_k = power_of_2(K + 1) // 2
        tile = min(power_of_2(N) * block_k, MAX_TILE)
        warps = min(tile // (8 * WARP), 8)
        elements = tile // (warps * WARP)
        # 32 elements spill in 64 registers.
        return Configuration("columns", elements, warps, OCCUPANCY * 16 // max(elements, 16), 1, block_k, False)
    # Means and squares are computed of groups of elements, the larger the fewer instructions.
    tile = min(TILE_BYTES // 2 // size, TILED_ELEMENTS * (2 if accumulators == 3 and size == 2 and K % 2 == 0 else 1))
    occupancy = COLUMNS_OCCUPANCY[accumulators]
    # With 4 vectors to a thread ptxas may make two of them wait: min.dim of 64 x 512 x 512 int64 41 us, not 55; max.dim
    # 42, not 40.
    warps = TILED_WARPS * (2 if positions and size == 8 else 1)
    if positions and size == 8 and N > BY_WARPS_MAX_N:
        # 13 x 98069 x 361 int64 880 us, with one of four elements 991, 2832 x 5504 x 16 452 and 593, 21 x 4805 x 2165
        # 418 and 476; but 1 x 208 x 32576 25 and 21 (H200).
        tile *= 2
    if _is_deep(problem, limits):
        warps, occupancy = warps // 2, MOMENTS_OCCUPANCY[False]
    programs = limits.sm_count * occupancy // warps
    max_partials = max(warps, 4) * MAX_PARTIALS[(size > 4) + (accumulators == 3)]
    tiles = M * N * K // (programs * tile)  # of a program, if all had as many
    block_k, blocks = WIDE_BLOCK_K, cdiv(M * K, WIDE_BLOCK_K)
    if blocks < programs and (tiles < TILES_TO_WIDEN or 8 * blocks * (max_partials // block_k) < 7 * programs):
        block_k = BLOCK_K
    if positions and K % 2 == 1 and size == 2:
        # By 24 warps 8 bytes of 3 x 1680 x 21509 spill.
        block_k, occupancy = BLOCK_K, min(occupancy, 20)
    block_k = min(block_k, power_of_2(M * K))
    half = block_k // 2
    # Where a quarter of the lanes would be idle otherwise, as long as results are a cache line: sum 3 x 449136 x 15
    # int64, 64 lanes for 45 results, 62.8 us (PyTorch 60.3; with 48 estimated, not timed).
    if half * size >= LINE_BYTES and 4 * half * cdiv(M * K, half) <= 3 * block_k * cdiv(M * K, block_k):
        block_k = half
    if K == AS_IT_LIES and size == 2 and accumulators == 1 and tiles >= TILES_TO_WIDEN:
        block_k = K
    if tiles >= 2 and 4 * cdiv(M * K, block_k) * (max_partials // block_k) < 3 * programs:
        tile, warps = 2 * tile, 2 * warps
    block_k = min(max(block_k, tile // power_of_2(N)), power_of_2(M * K))
    tile = min(tile, power_of_2(N) * block_k)
    warps = max(1, min(warps, tile // WARP))
    vectors = K % (VECTOR_BYTES // size) == 0
    pipelined = size <= 2 and K * size > VECTOR_BYTES and (vectors or M * N * K * size <= limits.l2_bytes)
    return _fitting(
        problem,
        Configuration(
            "columns", tile // (warps * WARP) or 1, warps, occupancy, 1, block_k, True, STAGES if pipelined else 1
        ),
    )


def _in_two_tiles(problem: Problem, limits: Limits) -> bool:
    """Whether a program has some columns of an [N, K], as many as a power of two, in one tile or two."""
    M, N, K, size, accumulators = problem
    few = limits.sm_count <= M and limits.sm_count * MAX_ELEMENTS_OF_TILES >= M * N * K
    fits = MAX_IN_ONE_TILE_OF_LITTLE < N and power_of_2(N) * (power_of_2(K + 1) // 2) <= 2 * MAX_TILE
    return accumulators == 2 and size < 8 and K <= MAX_CLASSES and few and fits


def _little_in_one_tile(problem: Problem, limits: Limits) -> Configuration | None:
    """As few results to a program as leave a multiprocessor some programs, if all their elements are one tile."""
    M, N, K, size, _ = problem
    results, block_n = M * K, power_of_2(N)
    fewest = max(cdiv(results, LITTLE_PROGRAMS * limits.sm_count), min(K * size, LINE_BYTES) // (MAX_SHARING * size))
    block_k = max(power_of_2(max(fewest, 1)), min(LITTLE_PROGRAM // block_n, WARP))
    block_k = min(block_k, power_of_2(results))
    warps = power_of_2(max(block_n * block_k * words(problem) // (LITTLE_ELEMENTS * WARP), 1))
    # What is asked of the L2 cache: a program reads whole sectors of a row of K.
    sectors = M * N * max(K * size, cdiv(K, block_k) * min(K * size, SECTOR_BYTES))
    if N == 1 or block_k > WARP or warps > MAX_LITTLE_WARPS or sectors > MAX_SECTOR_BYTES:
        return None
    elements = max(block_n * block_k // (warps * WARP), 1)
    return Configuration("columns", elements, warps, OCCUPANCY // 2, 1, block_k, False)


def _few_results(problem: Problem, limits: Limits) -> Configuration | None:
    """All elements of two or four results to a program, where no multiprocessor has two programs.

    Programs that share results wait for each other: argmax 24 x 3168 x 15 bf16 6.6 us, so 5.4, amax 6.1 and 4.9,
    argmax 10 x 2000 x 12 float32 5.6 and 4.1, with twice as many results 4.4 (H100).
    """
    M, N, K, size, accumulators = problem
    for block_k in (2, 4):
        tile = power_of_2(N) * block_k
        warps = min(tile * words(problem) // (LITTLE_ELEMENTS * WARP), MAX_LITTLE_WARPS)
        elements = tile // (max(warps, 1) * WARP)
        sectors = M * N * cdiv(K, block_k) * min(K * size, SECTOR_BYTES)
        alone = limits.sm_count * block_k >= M * K and elements * words(problem) <= 2 * LITTLE_ELEMENTS
        if alone and accumulators < 3 and tile > TILED_ELEMENTS and sectors <= MAX_SECTOR_BYTES_OF_FEW:
            return Configuration("columns", elements, warps, OCCUPANCY // 2, 1, block_k, False)
    return None


def _few_elements(problem: Problem, limits: Limits) -> Configuration | None:
    """Results of few elements each: in one tile, or in one warp's where there are many. Little is folded across."""
    M, N, K, size, accumulators = problem
    results, block_n = M * K, power_of_2(N)
    little = results <= limits.sm_count * 4 * BLOCK_K
    occupancy = OCCUPANCY if accumulators == 1 and N > 8 and size > 1 else OCCUPANCY // 2
    stages = STAGES if size <= 2 and K * size > VECTOR_BYTES else 1
    if N <= 8:
        block_k, warps = max(512 // max(size, 2), 256 // block_n), 2
        if N > 1 and K % 2 and size <= 2 and not little:
            # A load for each element: all of 8 x 5 x 1659497 bf16 by four warps 61.7 us, by two 67.2 (H100).
            warps *= 2
        if N == 1 and MAX_RESULTS_OF_ONE_WARP * limits.sm_count >= results:
            block_k, warps = 2 * WARP, 1
        elif _starts_many(results, block_k, limits):
            block_k, warps = block_k * 8 // block_n, warps * 8 // block_n
    elif N <= MAX_IN_ONE_TILE and (K % (VECTOR_BYTES // size) or K < BY_WARPS_BLOCK_K):
        block_k, warps = IN_ONE_TILE_BLOCK_K, block_n // 8
    elif N <= MAX_IN_ONE_TILE_OF_LITTLE and (little or K * size < SECTOR_BYTES):
        block_k, warps = BLOCK_K, block_n // 16
    else:
        block_n, block_k, warps = 8, BY_WARPS_BLOCK_K, 1
        if accumulators == 3:  # a thread has all of its results
            block_k = max(block_k, WARP * math.gcd(K, VECTOR_BYTES // size))
        enough = min(cdiv(N, block_n), BY_WARPS_PER_SM) if FEW_ROUNDS * block_n < N else 0
        if N > BY_WARPS_MAX_N or block_k >= 2 * results or cdiv(results, block_k) < enough * limits.sm_count:
            return None
    block_k = min(block_k, power_of_2(results))
    warps = max(1, min(warps, block_n * block_k // (2 * WARP)))
    vector = math.gcd(K, VECTOR_BYTES // size)
    if N > 1 and vector > 2 and not little:
        warps = max(1, min(warps, block_k // (WARP * vector)))
    # Fewer results rather than a second tile, as long as a warp loads whole vectors: var_mean 69825 x 5 x 93 float16 65
    # us, in several tiles 105; amax 4096 x 5 x 1000 bf16 19.4 us in two tiles of 256 results, in one of 128 25.3.
    while block_k > WARP * vector and block_n * block_k * words(problem) > MAX_WORDS // 2 * warps * WARP:
        block_k //= 2
    # Of a tile that is no power of two fewer are loaded: argmin 4096 x 5 x 1000 bf16 in one 30.0 us, in two of 4 x 256
    # 36.9, max.dim 32.5 and 38.7 (H100).
    most = MAX_WORDS if (accumulators == 3 and size == 2) or N < block_n <= 8 else MAX_WORDS // 2
    elements = min(max(block_n * block_k // (warps * WARP), 1), most)
    return _fitting(problem, Configuration("columns", elements, warps, occupancy, 1, block_k, False, stages))


def _starts_many(results: int, block: int, limits: Limits) -> bool:
    """Whether starting so many programs would take longer than reading."""
    return results > block * STARTED_AT_ONCE * limits.sm_count


def _fitting(problem: Problem, configuration: Configuration) -> Configuration:
    """With no more elements than a thread can hold."""
    elements = configuration.elements
    while elements * words(problem) > MAX_WORDS:
        elements //= 2
    return configuration._replace(elements=elements)
