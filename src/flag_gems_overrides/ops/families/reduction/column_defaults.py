# SPDX-License-Identifier: Apache-2.0
"""What a reduction along a dimension that is not the last is launched with where no table says better.

Constants were chosen on an H200 (132 SMs, triton 3.6.0) with the L2 cache full of clean lines; times are of amax.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import MAX_CLASSES, MAX_PARTIALS, MAX_WORDS, ROOMY_WARPS, Configuration, Problem, words
from .programs import (
    COLUMNS_OCCUPANCY,
    LITTLE_ELEMENTS,
    LITTLE_PROGRAM,
    LITTLE_PROGRAMS,
    MAX_LITTLE_WARPS,
    MAX_TILE,
    MOMENTS_OCCUPANCY,
    OCCUPANCY,
    STAGES,
    TILE_BYTES,
    fitting,
    starts_many,
)

# Positions in an [N, K] for each multiprocessor, so few elements for each in all: a program of 8 warps for its columns,
# as FlagGems', which finds all positions at once, not one class after the other, and shares no result. argmax 1082 x
# 739 x 2 bf16 6.9 us in classes by single warps, 10.5 in columns that programs share (FlagGems 5.3), 166 x 5275 x 3
# float16 10.4 in classes by eight warps, 10.0 by twelve programs (8.2), 256 x 3551 x 2 bf16 8.4 by eight (5.8); so they
# are estimated, not timed. Of more, classes: 20000 x 1000 x 3 bf16 54 us (94), 200 x 40999 x 3 28 (43).
MAX_ELEMENTS_OF_TILES = 32768
# Tiles of 64 x 32 by 4 warps were best or within 5 % for every split shape, 32 x 64 where there are outputs enough
# (256 x 1024 x 1024 bf16 along 1 129 us, not 157). Of 16-bit elements several tiles are in flight (64 x 512 x 512
# bf16 along 1 14.3 us, without 16.3), of larger ones that costs more than it brings. 64 columns also where a program
# has a dozen tiles or more: 64 x 16384 x 64 bf16 along 1 43 us, not 49, x 128 78, not 95; with 8 it is 5 % slower.
# Where partial results are too few for all programs, programs are twice as large: amax of 1000000 x 64 along 0 bf16
# 43 us, not 74. So they are where not even each multiprocessor has one: prod 146925 x 21 along 0 float16 (H100) 17.2
# us, so 9.9, amax 120000 x 24 11.05 and 9.5, sum 90000 x 31 float32 14.7 and 11.3, max.dim 100000 x 30 16.5 and 12.65,
# argmax 150000 x 18 float16 12.4 and 11.8; but not if they are more than are resident: 330 of 8 warps in 96 registers
# for min.dim 65536 x 42 bf16 13.9 us, 256 of 4 warps 10.1. Of no whole vectors one tile is in flight where L2 does not
# hold them: max.dim 3 x 1680 x 21508 bf16 89 us, not 114, amax 3 x 1680 x 21506 87, not 94. So are rows of one vector:
# any of 52512 x 352 x 8 bf16 97 us, not 146, max.dim 5408 x 6048 x 8 194, not 272. And positions of odd K are never 64
# columns wide: max.dim 3 x 1680 x 21509 103, not 164 (PyTorch 129; H100).
TILED_ELEMENTS, TILED_WARPS, BLOCK_K, WIDE_BLOCK_K, WIDEST_BLOCK_K = 2048, 4, 32, 64, 128
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
# Half of these elements or more, in columns of which there are too few for single warps: all of 32 results in one tile,
# as many elements by four warps. In two tiles of 64 x 32, one after the other, and so (H100): amax 385 x 117 x 50
# int16 7.59 us and 5.94 (by twice as many warps 6.14), 385 x 100 x 50 bf16 7.15 and 5.39 (5.70), nansum 6 x 69 x 3712
# float32 7.17 and 6.63 (7.23), sum 12 x 80 x 2048 8.03 and 7.59 (8.22), argmax 6 x 69 x 3712 7.68 and 7.03. Up to so
# many bytes for each multiprocessor: sum 1 x 83 x 82954 bf16 14.7 and 13.0, logsumexp 1456 x 73 x 32 float32 15.2 and
# 12.5; but amax 472 x 96 x 156, 214 KB for each, 18.1 and 18.5.
LARGE_TILE, LARGE_TILE_WARPS, LARGE_TILE_OCCUPANCY, LARGE_TILE_BYTES = 4096, 4, 16, 131072
# Values of up to 16 bits of few elements, so many that programs of 64 columns start slower than they read: as many
# columns as such a tile has (``_start_slower``). Bytes (H100): amin 1008445 x 14 x 11 int8 110 us and 85 (as large by
# twice as many warps 97), any 400000 x 10 x 7 bool 32.0 and 19.8, 2528 x 9 x 212 int8 8.95 and 7.6; but sum to 64 bits
# 100000 x 24 x 7 uint8 17.9 and 18.3. Of 16 bits nansum 2048 x 9 x 8155 bf16 165 and 127, amax 191 x 18 x 61506 201 and
# 161, all 6674 x 31 x 1091 180 and 171; but amax 2048 x 10 x 240, in vectors, 10.0 and 23.9, count_nonzero 663226 x 11
# x 10 75 and 86, sum 100 x 16 x 8193 15.2 and 15.6, mean 5000 x 32 x 131 21.4 and 21.7. Positions, of
# fewer bytes than start a program: max.dim 2048 x 9 x 8155 bf16 171 and 165.
# Two million results or more on 132 multiprocessors; and elements of positions, 64 columns of which are 2 KB.
MANY_ROUNDS, MAX_STARTED_POSITIONS = 32, 15
# In vectors half as many rows of twice as many columns to a warp, of less than so many bytes to a program (H100):
# prod 13 x 10 x 507704 float16 69.7 us and 59.6, max.dim 21 x 16 x 524288 173 and 159; of bytes again: amax 2000 x 12 x
# 2048 int8 45.3, 28.6 and, of 256 columns, 27.4.
STARTED_BYTES = 2560
# Few results of one element are of single warps, two to a thread.
MAX_RESULTS_OF_ONE_WARP = 4
# But no more than so many programs read a cache line, and they ask for no more than this in sectors: amax 1 x 34 x 426
# bf16 (H200) by 107 programs of a warp 3.05 us, by 27 of four 2.95. The bytes are estimated, not timed.
MAX_SHARING, MAX_SECTOR_BYTES = 16, 2 << 20
# Of programs that have a multiprocessor each: 24 x 3168 x 15 bf16 4.9 us with 9 MB by four results, 5.3 with 18 by two.
MAX_SECTOR_BYTES_OF_FEW = 10 << 20
# More of them, of many results: a warp for each tile of 8 x 64. It takes 24 warps on a multiprocessor, fewer if they
# are soon done: 1024 of them (8 x 300 x 8192) take 1.4 times as long. 1000 elements (16 x 1000 x 4096) take up to 7 %
# longer.
BY_WARPS_BLOCK_N, BY_WARPS_BLOCK_K, BY_WARPS_MAX_N, BY_WARPS_PER_SM, FEW_ROUNDS = 8, 64, 512, 24, 4
# Of odd K, a load for each element, more warps to a tile and as many elements to a thread: values by four warps, amax
# (H100, by single warps in parentheses) 30 x 108 x 20559 bf16 61.1 us (67.5), 8 x 500 x 30001 104.3 (105.7), 4 x 117 x
# 80115 float32 67.6 (72.1), vector_norm of float16 37.4 (41.9). Positions of 16 bits by two: max.dim 8 x 500 x 30001
# bf16 116 us (124), 30 x 108 x 20559 68.8 (69.3), also of six programs for each multiprocessor or more: 16 x 300 x 4095
# float16 26.8, shared 29.3; but 4 x 117 x 80115 float32 68.4 (64.5), and of fewer elements amax 20 x 40 x 60001 bf16
# 50.4 (45.4), argmax 58.5 (52.6). Values of 32 bits from three quarters of a tile's elements on: any 2400 x 48 x 545
# int32 by single warps of four elements of 128 columns 107 us, by four 98.0 (torch.compile 96). Of 16
# bits in less than a sector sum 16384 x 256 x 9 bf16 by two warps of 16 elements 49.6, by four 41.5.
ODD_VALUES_WARPS, ODD_POSITIONS_WARPS, ODD_POSITIONS_OCCUPANCY, ODD_POSITIONS_PER_SM = 4, 2, 24, 6
MAX_IN_TILES_OF_A_WARP, MIN_ODD_WORDS_N = 64, 48
# Moments of few columns, which so many programs share at least: four vectors or more of a thread, and 16 warps, for as
# many registers as the partial results take. bf16 (H100, before in parentheses): var_mean 100000 x 200 along 0 26.1 us
# (29.5; amax 24.3), 200000 x 100 26.5 (29.5), 65536 x 256 22.7 (23.2), std 30000 x 520 float16 22.4 (24.2), var_mean
# 60000 x 160 float32 24.0 (25.2).
SHARED_MOMENTS_ELEMENTS, MIN_SHARING = 32, 24
# K up to which a program may have all of it.
MAX_WITHIN = 128


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


def columns(problem: Problem, limits: Limits, wide: bool = False) -> Configuration:
    """By what is known of columns; ``wide`` if smaller elements are added up in 64 bits, or bytes to be."""
    M, N, K, size, accumulators = problem
    found = _little_in_one_tile(problem, limits) or _few_results(problem, limits)
    if found is None and of_eight_columns(problem, limits):
        return Configuration("columns", LITTLE_ELEMENTS, TILED_WARPS, OCCUPANCY // 2, 1, MAX_CLASSES, False)
    found = found or _few_elements(problem, limits, wide)
    if found is not None:
        return found
    positions = accumulators == 2
    if in_two_tiles(problem, limits):
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
        if _are_few_odd_positions(problem, limits):
            block_k = WIDEST_BLOCK_K
        else:
            # By 24 warps 8 bytes of 3 x 1680 x 21509 spill.
            block_k, occupancy = BLOCK_K, min(occupancy, 20)
    elif _are_one_wave(problem, blocks, programs):
        block_k = WIDEST_BLOCK_K
    within = _within(problem, limits)
    if within:
        block_k = power_of_2(K)
    block_k = min(block_k, power_of_2(M * K))
    if accumulators == 3 and (size == 8 or K % 2 == 1) and tiles >= 2 and not within:
        # Half as many columns, whose partial results are half as many, while programs of twice the warps (below) that
        # can share them leave multiprocessors without one (H100): var_mean 1 x 2000003 x 18 float64 by 64 programs 299
        # us, by 256 130, std 4 x 309425 x 7 64.6 and 37.2, with a quarter of the columns 132 and 38.4; x 17 float32 96
        # and 66, std 1 x 3000001 x 19 bf16 131 and 66.6.
        while cdiv(M * K, block_k) * (2 * max_partials // block_k) < limits.sm_count and block_k > BLOCK_K // 2:
            block_k //= 2
    half = block_k // 2
    # Where a quarter of the lanes would be idle otherwise, as long as results are a cache line: sum 3 x 449136 x 15
    # int64, 64 lanes for 45 results, 62.8 us (PyTorch 60.3; with 48 estimated, not timed).
    if not within and half * size >= LINE_BYTES and 4 * half * cdiv(M * K, half) <= 3 * block_k * cdiv(M * K, block_k):
        block_k = half
    if K == AS_IT_LIES and size == 2 and accumulators == 1 and tiles >= TILES_TO_WIDEN:
        block_k = K
    shared = cdiv(M * K, block_k) * (max_partials // block_k)
    few = shared < limits.sm_count and accumulators < 3 and size < 8
    if tiles >= (1 if few else 2) and 4 * shared < 3 * programs:
        tile, warps = 2 * tile, 2 * warps
        if few and positions:
            occupancy = min(occupancy, 20)  # 8 bytes of 100000 x 31 int32 spill
    elif positions and K % 4 == 2 and size == 2 and M == 1:
        occupancy = min(occupancy, 20)  # 8 bytes of 65536 x 42 spill
    if _many_share(problem, limits):
        block_k, warps, occupancy = BLOCK_K, TILED_WARPS, MOMENTS_OCCUPANCY[False]
        tile = SHARED_MOMENTS_ELEMENTS * warps * WARP
    elif not wide and _ends_with_few(problem, cdiv(M * K, block_k), programs):
        tile, warps = tile // warps, 1
    block_k = min(max(block_k, tile // power_of_2(N)), power_of_2(M * K))
    tile = min(tile, power_of_2(N) * block_k)
    warps = max(1, min(warps, tile // WARP))
    vectors = K % (VECTOR_BYTES // size) == 0
    pipelined = size <= 2 and K * size > VECTOR_BYTES and (vectors or M * N * K * size <= limits.l2_bytes)
    return fitting(
        problem,
        Configuration(
            "columns",
            tile // (warps * WARP) or 1,
            warps,
            occupancy,
            1,
            block_k,
            split=True,
            stages=STAGES if pipelined else 1,
            within=within,
        ),
    )


def _within(problem: Problem, limits: Limits) -> bool:
    """Whether a program has all results of an [N, K], read as it lies, with up to 3 of 10 lanes idle.

    Otherwise two programs share most rows of K, and read the sectors on their border twice. By columns and in this way
    (H100): nansum 328 x 3073 x 51 float32 120 us and 90, var_mean 114 and 95.5, mean 20 x 50000 x 57 100 and 95,
    max.dim 3000 x 600 x 51 148 and 143, amax 1000 x 700 x 47 70.6 and 59.8, x 91 117.5 and 102.7; but with more lanes
    idle amax 1000 x 1500 x 35 88 and 91, sum 328 x 3073 x 43 bf16 47.3 and 50.3, x 3000 x 75 float16 78.8 and 83.3.
    """
    M, N, K, size, _ = problem
    from_memory = M * N * K * size > limits.l2_bytes // 2
    used = BLOCK_K < K <= MAX_WITHIN and 7 * power_of_2(K) <= 10 * K
    return from_memory and M > 1 and used and K * size % SECTOR_BYTES != 0


def _are_few_odd_positions(problem: Problem, limits: Limits) -> bool:
    """Whether programs of many odd columns of 16 bits can share nearly all results, and those of few much less.

    By 516 programs of 32 columns, of 660 that run at once, and by 774 of 128, of 792 (H100): argmin 5 x 3127 x 1097
    float16 25.8 us and 24.0, max.dim 5 x 1833 x 1661 bf16 23.1 and 21.6.
    """
    M, _, K, *_ = problem
    fewer, more = cdiv(M * K, BLOCK_K), cdiv(M * K, WIDEST_BLOCK_K)
    first, second = (limits.sm_count * occupancy // TILED_WARPS for occupancy in (20, COLUMNS_OCCUPANCY[2]))
    shared = 2 * fewer <= first and second // more <= TILED_WARPS * MAX_PARTIALS[0] // WIDEST_BLOCK_K
    return shared and 7 * fewer * (first // fewer) <= 5 * more * (second // more)


def _are_one_wave(problem: Problem, blocks: int, programs: int) -> bool:
    """Whether programs of values of whole vectors of 32 bits run at once if they have twice as many columns.

    amax 10 x 1567 x 8192 float32 by 1280 programs, of 792 that run at once, 190 us, by 640 179 (H100).
    """
    M, _, K, size, accumulators = problem
    wider = cdiv(M * K, WIDEST_BLOCK_K)
    vectors = accumulators == 1 and size == 4 and K % (VECTOR_BYTES // size) == 0
    return vectors and 3 * programs <= 4 * wider <= 4 * programs < 4 * blocks


def _ends_with_few(problem: Problem, blocks: int, programs: int) -> bool:
    """Whether a quarter to half of the programs that run at once would start when the others are done.

    Of single warps, which share results, all run at once. By four warps, and so (H100): sum 40 x 752 x 1735 float32 102
    us and 93 (PyTorch 93), max.dim 106 and 93, amax 64 x 500 x 1025 63.3 and 61.2 (PyTorch 64.5); but sums of 64 bits,
    33 x 900 x 1999 int32, 100 and 111.
    """
    _, _, K, size, accumulators = problem
    return accumulators < 3 and size == 4 and K % 2 == 1 and 5 * programs <= 4 * blocks and 2 * blocks <= 3 * programs


def _many_share(problem: Problem, limits: Limits) -> bool:
    """Whether moments are of so few columns that many programs share them, but not more than can merge results."""
    M, N, K, size, accumulators = problem
    programs, blocks = limits.sm_count * MOMENTS_OCCUPANCY[False] // TILED_WARPS, cdiv(M * K, BLOCK_K)
    vectors = size <= 4 and math.gcd(K, VECTOR_BYTES // size) * size >= VECTOR_BYTES // 2
    most = ROOMY_WARPS * MAX_PARTIALS[1] // BLOCK_K
    many = MIN_SHARING * blocks <= programs and 10 * blocks * most >= 9 * programs
    long = 2 * programs * SHARED_MOMENTS_ELEMENTS * TILED_WARPS * WARP <= M * N * K
    # On sm_100 8 bytes spill (60000 x 160 float32).
    return accumulators == 3 and size > 1 and vectors and many and long and limits.capability[0] < 10


def in_two_tiles(problem: Problem, limits: Limits) -> bool:
    """Whether a program has some columns of an [N, K], as many as a power of two, in one tile or two."""
    M, N, K, size, accumulators = problem
    few = limits.sm_count <= M and limits.sm_count * MAX_ELEMENTS_OF_TILES >= M * N * K
    fits = MAX_IN_ONE_TILE_OF_LITTLE < N and power_of_2(N) * (power_of_2(K + 1) // 2) <= 2 * MAX_TILE
    return accumulators == 2 and size < 8 and K <= MAX_CLASSES and few and fits


def of_eight_columns(problem: Problem, limits: Limits) -> bool:
    """Whether a program has all positions of eight columns of six or seven of 32 bits, in one tile.

    In classes by single warps, and so (H100): argmin 5350 x 168 x 7 float32 23.4 us and 18.7 (torch.compile 21). Six
    columns, and other lengths that fill such a tile as far, are estimated.
    """
    _, N, K, size, accumulators = problem
    full = MAX_IN_ONE_TILE_OF_LITTLE < N < 2 * MAX_IN_ONE_TILE_OF_LITTLE
    return accumulators == 2 and size == 4 and 6 <= K < MAX_CLASSES and full and not in_two_tiles(problem, limits)


def _little_in_one_tile(problem: Problem, limits: Limits) -> Configuration | None:
    """As few results to a program as leave a multiprocessor some programs, if all their elements are one tile."""
    M, N, K, size, accumulators = problem
    results, block_n = M * K, power_of_2(N)
    fewest = max(cdiv(results, LITTLE_PROGRAMS * limits.sm_count), min(K * size, LINE_BYTES) // (MAX_SHARING * size))
    block_k = max(power_of_2(max(fewest, 1)), min(LITTLE_PROGRAM // block_n, WARP))
    block_k = min(block_k, power_of_2(results))
    if size == 8 and accumulators < 3 and WARP < N <= MAX_IN_ONE_TILE_OF_LITTLE and K % (LINE_BYTES // size) == 0:
        # Whole lines, for which programs are enough: count_nonzero 2 x 64 x 512 int64 4.16 us and 3.51, sum 1 x 112 x
        # 528 3.65 and 3.47 (H200), max.dim 1 x 128 x 976 4.17 and 3.90 (H200).
        lines = LINE_BYTES // size
        block_k = max(block_k, lines) if 4 * results >= lines * limits.sm_count else block_k
    dividing = K & -K
    whole = dividing * size >= SECTOR_BYTES and block_n * dividing >= 2 * WARP and fewest <= dividing
    if accumulators == 3 and size == 4 and block_k < K and whole:
        # var_correction 4 x 8 x 88 float32 by 8 results 3.02 us, by 32 3.40, 3 x 8 x 120 3.10 and 3.41 (H100).
        block_k = min(block_k, dividing)
    warps = power_of_2(max(block_n * block_k * words(problem) // (LITTLE_ELEMENTS * WARP), 1))
    # What is asked of the L2 cache: a program reads whole sectors of a row of K.
    sectors = M * N * max(K * size, cdiv(K, block_k) * min(K * size, SECTOR_BYTES))
    if N == 1 or block_k > WARP or warps > MAX_LITTLE_WARPS or sectors > MAX_SECTOR_BYTES:
        return None
    if accumulators == 2 and size == 4 and K in (2, 4) and block_n == block_k == WARP:
        # Whole matrices of single warps: min.dim 8024 x 32 x 2 float32 by two warps of as many elements each 5.34 us,
        # so 4.61 (torch.compile 4.86; H100); of four columns estimated.
        block_k, warps = block_k // warps, 1
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


def _enough(N: int) -> int:
    """Programs of single warps for each multiprocessor, of which each loops over the elements of its results."""
    return min(cdiv(N, BY_WARPS_BLOCK_N), BY_WARPS_PER_SM) if FEW_ROUNDS * BY_WARPS_BLOCK_N < N else 0


def _in_groups(problem: Problem, limits: Limits) -> bool:
    """Whether results of more elements than half a tile are all in one, in groups that leave few lanes without any.

    Of odd K, too few for single warps. By programs that loop over two tiles or four, and so (H100): any 1352 x 80 x 37
    float32 14.8 us and 14.0, sum of bf16 10.1 and 8.8, argmax 16.4 and 14.8, amax 1100 x 100 x 51 17.9 and 17.2.
    """
    M, N, K, size, accumulators = problem
    few = cdiv(M * K, BY_WARPS_BLOCK_K) < _enough(N) * limits.sm_count
    return accumulators < 3 and size <= 4 and K % 2 == 1 and 2 * N > MAX_IN_ONE_TILE_OF_LITTLE and few


def _in_one_large_tile(problem: Problem, limits: Limits) -> bool:
    """Whether all elements of results, too many for a tile of ``TILED_ELEMENTS``, are one twice as large."""
    M, N, K, size, accumulators = problem
    long = MAX_IN_ONE_TILE_OF_LITTLE // 2 < N <= MAX_IN_ONE_TILE_OF_LITTLE
    some = limits.sm_count * 4 * BLOCK_K < M * K and K * size >= SECTOR_BYTES
    few = cdiv(M * K, BY_WARPS_BLOCK_K) < _enough(N) * limits.sm_count
    few = few and M * N * K * size <= LARGE_TILE_BYTES * limits.sm_count
    return accumulators < 3 and size <= 4 and long and some and few and not _in_groups(problem, limits)


def _are_odd_halves(problem: Problem, limits: Limits) -> bool:
    """Whether odd columns of 16 bits, enough for single warps, nearly fill such a tile; values more than half of it.

    By single warps in a loop, and so (H100): var 3900 x 128 x 197 bf16 99.6 us and 79.5 (torch.compile 85), by four
    warps of 64 columns, in a loop, 86.2, by programs of all columns of a matrix 89.3. Values by four warps, and so:
    vector_norm 487 x 128 x 1153 float16 65.6 and 63.1, mean 1500 x 100 x 301 bf16 43.4 and 40.9.
    """
    M, N, K, size, accumulators = problem
    moments = accumulators == 3 and MAX_WITHIN < K and 3 * MAX_IN_ONE_TILE_OF_LITTLE < 4 * N
    full = moments or (accumulators == 1 and K * size >= SECTOR_BYTES and MAX_IN_ONE_TILE_OF_LITTLE < 2 * N)
    odd = size == 2 and K % 2 == 1 and full and N <= MAX_IN_ONE_TILE_OF_LITTLE
    return odd and cdiv(M * K, BY_WARPS_BLOCK_K) >= _enough(N) * limits.sm_count


def _start_slower(problem: Problem, limits: Limits) -> bool:
    """Whether programs have as many columns of few values as they can."""
    M, N, K, size, accumulators = problem
    if accumulators > 2 or size > 2 or not 8 < N <= (MAX_IN_ONE_TILE if accumulators == 1 else MAX_STARTED_POSITIONS):
        return False
    block_k = LARGE_TILE // power_of_2(N)
    if size == 1:
        return accumulators == 1 and K % VECTOR_BYTES > 0 and starts_many(M * K, block_k, limits)
    singly = K % (2 if power_of_2(N) < MAX_IN_ONE_TILE else 4) > 0
    return singly and block_k <= K and starts_many(M * K, MANY_ROUNDS * IN_ONE_TILE_BLOCK_K, limits)


def _are_odd_values(problem: Problem) -> bool:
    """Whether a tile that values are loaded into one by one is of several warps."""
    _, N, K, size, accumulators = problem
    fewest = MIN_ODD_WORDS_N if size == 4 else MAX_IN_TILES_OF_A_WARP + 1
    return accumulators == K % 2 == 1 and 2 <= size <= 4 and fewest <= N


def _few_elements(problem: Problem, limits: Limits, wide: bool) -> Configuration | None:
    """Results of few elements each: in one tile, or in one warp's where there are many. Little is folded across."""
    M, N, K, size, accumulators = problem
    results, block_n = M * K, power_of_2(N)
    little, slower = results <= limits.sm_count * 4 * BLOCK_K, not wide and _start_slower(problem, limits)
    occupancy = OCCUPANCY if accumulators == 1 and N > 8 and size > 1 else OCCUPANCY // 2
    stages = STAGES if size <= 2 and K * size > VECTOR_BYTES else 1
    if N <= 8:
        block_k, warps = max(512 // max(size, 2), 256 // block_n), 2
        if N > 1 and K % 2 and size <= 2 and not little:
            # A load for each element: all of 8 x 5 x 1659497 bf16 by four warps 61.7 us, by two 67.2 (H100).
            warps *= 2
        if N == 1 and MAX_RESULTS_OF_ONE_WARP * limits.sm_count >= results:
            block_k, warps = 2 * WARP, 1
        elif starts_many(results, block_k, limits) and not (
            block_n == 4 and accumulators == 2 and size == 2 and K % 2 and block_k <= K < 2 * block_k
        ):
            # But not if they reached into more than two matrices only then (H100): logsumexp 6597 x 3 x 387 bf16 17.8
            # us, so 16.5 (torch.compile 16.3).
            block_k, warps = block_k * 8 // block_n, warps * 8 // block_n
            if block_n == 4 and accumulators == 1 and size == 2 and K % 2 and 2 * block_k <= K:
                # Twice as many for as many warps (H100): all 8178 x 4 x 7915 float16 228 us and 213 (torch.compile
                # 204); but any 36416 x 3 x 99 bf16 18.6 and 18.6, of eight lanes sum 300 x 7 x 33333 63.2 and 65.1.
                block_k *= 2
    elif N <= MAX_IN_ONE_TILE and (K % (VECTOR_BYTES // size) or K < BY_WARPS_BLOCK_K):
        block_k, warps = IN_ONE_TILE_BLOCK_K, block_n // 8
        if slower:
            block_k, warps = LARGE_TILE // block_n, LARGE_TILE_WARPS
    elif N <= MAX_IN_ONE_TILE_OF_LITTLE and (little or K * size < SECTOR_BYTES or _in_groups(problem, limits)):
        # Of bytes, which are loaded one by one where K is odd, twice as many: aminmax 59304 x 57 x 9 bool 26.4 us, by
        # 32 30.2, int8 27.7 and 30.3, any of bool 24.7 and 26.4; aminmax 20000 x 57 x 9 bf16 18.7 and 18.5 (H100).
        twice = size == 1 and K % 2 and not little
        block_k, warps = IN_ONE_TILE_BLOCK_K if twice else BLOCK_K, block_n // 16
    elif _in_one_large_tile(problem, limits) or _are_odd_halves(problem, limits):
        elements = LARGE_TILE // (LARGE_TILE_WARPS * WARP)
        return Configuration("columns", elements, LARGE_TILE_WARPS, LARGE_TILE_OCCUPANCY, 1, BLOCK_K, False)
    else:
        block_n, block_k, warps = BY_WARPS_BLOCK_N, BY_WARPS_BLOCK_K, 1
        many = accumulators < 3 and N <= MAX_IN_ONE_TILE and starts_many(results, MANY_ROUNDS * block_k, limits)
        while many and block_k * N * size < STARTED_BYTES:
            block_n, block_k = block_n // 2, block_k * 2
        if accumulators == 3:  # a thread has all of its results
            block_k = max(block_k, WARP * math.gcd(K, VECTOR_BYTES // size))
        enough = _enough(N)
        if _are_odd_values(problem):
            warps, stages = ODD_VALUES_WARPS, 1
        elif K % 2 == 1 and N > MAX_IN_TILES_OF_A_WARP and accumulators == 2 and size == 2:
            warps, stages, occupancy = ODD_POSITIONS_WARPS, 1, ODD_POSITIONS_OCCUPANCY
            enough = min(enough, ODD_POSITIONS_PER_SM)
        block_n *= warps
        if N > BY_WARPS_MAX_N or block_k >= 2 * results or cdiv(results, block_k) < enough * limits.sm_count:
            return None
    block_k = min(block_k, power_of_2(results))
    warps = max(1, min(warps, block_n * block_k // (2 * WARP)))
    vector = math.gcd(K, VECTOR_BYTES // size)
    if N > 1 and vector > 2 and not (little or slower):
        warps = max(1, min(warps, block_k // (WARP * vector)))
    # Fewer results rather than a second tile, as long as a warp loads whole vectors: var_mean 69825 x 5 x 93 float16 65
    # us, in several tiles 105; amax 4096 x 5 x 1000 bf16 19.4 us in two tiles of 256 results, in one of 128 25.3.
    while block_k > WARP * vector and block_n * block_k * words(problem) > MAX_WORDS // 2 * warps * WARP:
        block_k //= 2
    # Of a tile that is no power of two fewer are loaded: argmin 4096 x 5 x 1000 bf16 in one 30.0 us, in two of 4 x 256
    # 36.9, max.dim 32.5 and 38.7 (H100).
    most = MAX_WORDS if (accumulators == 3 and size == 2) or N < block_n <= 8 else MAX_WORDS // 2
    elements = min(max(block_n * block_k // (warps * WARP), 1), most)
    return fitting(problem, Configuration("columns", elements, warps, occupancy, 1, block_k, False, stages))
