# SPDX-License-Identifier: Apache-2.0
"""What a reduction along a dimension that is not the last is launched with where no table says better.

Constants were chosen on an H200 (132 SMs, Triton 3.6.0) with the L2 cache full of clean lines. A time is of amax on
that GPU where the comment names no operator or no GPU.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import MAX_CLASSES, MAX_DEPTH, MAX_PARTIALS, MAX_WORDS, ROOMY_WARPS, Configuration, Problem, words
from .programs import (
    COLUMNS_OCCUPANCY,
    LITTLE_ELEMENTS,
    LITTLE_PROGRAM,
    LITTLE_PROGRAMS,
    MAX_LITTLE_WARPS,
    MOMENTS_OCCUPANCY,
    OCCUPANCY,
    STAGES,
    TILE_BYTES,
    fitting,
    starts_many,
)

# Elements of a tile of columns, at most; half of TILE_BYTES of larger ones. 64 x 32 by 4 warps is within 5 % of the
# best for every shape that programs share.
TILED_ELEMENTS = 2048
# Warps of such a tile.
TILED_WARPS = 4
# Columns of a tile where 64 would leave too few programs.
BLOCK_K = 32
# Columns of a tile otherwise. 256 x 1024 x 1024 bf16 along 1: 129 us, with 32 columns 157.
WIDE_BLOCK_K = 64
# Tiles of a program from which it has 64 columns even if that leaves few programs.
# 64 x 16384 x 64 bf16 along 1: 43 us, otherwise 49; with 8 tiles it is 5 % slower.
TILES_TO_WIDEN = 12
# Elements of a result, at most, that are one tile of 64 results unless rows of K are whole vectors.
# 300000 x 21 x 7 float32: 51.7 us, by warps that loop 72.
MAX_IN_ONE_TILE = 32
# Results of such a tile: 16 elements to a thread.
IN_ONE_TILE_BLOCK_K = 64
# Elements of a result, at most, that are one tile of 32 results, where all is little or K is shorter than a sector.
# 239148 x 70 x 3 float32: 64 us, by warps that loop 118.
MAX_IN_ONE_TILE_OF_LITTLE = 128
# Elements of a tile of 32 results with more than half of those elements each, where columns are too few for single
# warps. 385 x 117 x 50 int16: 5.94 us, in two tiles of 64 x 32 7.59 (H100).
LARGE_TILE = 4096
# Warps of such a tile. 385 x 117 x 50 int16: 5.94 us, by twice as many 6.14 (H100).
LARGE_TILE_WARPS = 4
# Warps of a multiprocessor that such a tile is planned for.
LARGE_TILE_OCCUPANCY = 16
# Bytes for each multiprocessor up to which such tiles are used.
# logsumexp 1456 x 73 x 32 float32: 12.5 us, otherwise 15.2; amax 472 x 96 x 156: 18.5 us, otherwise 18.1 (H100).
LARGE_TILE_BYTES = 131072
# Rounds of programs of 64 columns from which programs of 16 bits have a whole LARGE_TILE: they start slower than they
# read. nansum 2048 x 9 x 8155 bf16: 127 us, otherwise 165; sum 100 x 16 x 8193: 15.6 us, otherwise 15.2 (H100).
MANY_ROUNDS = 32
# Bytes of a single warp's program below which a tile has half as many rows of twice as many columns.
# prod 13 x 10 x 507704 float16: 59.6 us, otherwise 69.7 (H100).
STARTED_BYTES = 2560
# Bytes of a row of values of 16 bits that a program reads as it lies.
# sum 743 x 19483 x 16 bf16: 174 us, with four matrices side by side 195 (H100).
AS_IT_LIES_BYTES = 32
# Results of one element for each multiprocessor up to which a program is a single warp, with two results to a thread.
MAX_RESULTS_OF_ONE_WARP = 4
# Programs of little problems that read the same cache line, at most.
# 1 x 34 x 426 bf16: 2.95 us by 27 programs of four warps, 3.05 by 107 of one (H200).
MAX_SHARING = 16
# Bytes of sectors that such programs ask the L2 cache for, at most. This is estimated.
MAX_SECTOR_BYTES = 2 << 20
# The same for programs that have a multiprocessor each.
# 24 x 3168 x 15 bf16: 4.9 us with 9 MB by four results, 5.3 with 18 MB by two.
MAX_SECTOR_BYTES_OF_FEW = 10 << 20
# Elements and results of a tile of a single warp, of which there are many.
BY_WARPS_BLOCK_N, BY_WARPS_BLOCK_K = 8, 64
# Elements of a result that a single warp loops over, at most. With 1000 (16 x 1000 x 4096) it takes up to 7 % longer.
BY_WARPS_MAX_N = 512
# Such warps for each multiprocessor, at least. With 1024 warps in all (8 x 300 x 8192) it takes 1.4 times as long.
BY_WARPS_PER_SM = 24
# Iterations up to which single warps are done so soon that any number of them will do.
FEW_ROUNDS = 4
# Warps of a tile of values of odd K, each loaded by itself, with as many elements to a thread as a single warp.
# vector_norm 4 x 117 x 80115 float16: 37.4 us, by single warps 41.9 (H100).
ODD_VALUES_WARPS = 4
# Warps of a tile of positions of odd K and 16 bits, and of a multiprocessor that they are planned for.
# max.dim 13007 x 236 x 21 bf16: 65.9 us, by single warps 73.2 (H100).
ODD_POSITIONS_WARPS, ODD_POSITIONS_OCCUPANCY = 2, 24
# Such programs for each multiprocessor, at least.
ODD_POSITIONS_PER_SM = 6
# Elements of a result of odd K up to which a tile is a single warp's.
# 20 x 40 x 60001 bf16: 45.4 us, by four warps 50.4 (H100).
MAX_IN_TILES_OF_A_WARP = 64
# Elements of an odd column of 32 bits (more than, up to) that is one tile of WIDE_BLOCK_K columns where there are many:
# all loads of a thread are on their way at once. any 5 x 201 x 13315 float32: 20.9 us, in a loop 23.6;
# 6 x 215 x 17201: 30.2 us, in a loop 33.4 (H200).
ODD_WORDS = 128, 256
# Elements of a thread of such a tile, and warps.
ODD_WORDS_ELEMENTS, ODD_WORDS_WARPS = 32, 16
# Elements of a thread of longer odd columns of 32 bits where programs have some of their own, but too few to be many,
# and warps of a multiprocessor that have the registers. amax 338 x 1208 x 129 float32: 74.2 us by eight warps, by four
# with half as many elements 80.7; 300 x 1000 x 131: 58.1 and 59.0 (H200).
SOME_ODD_WORDS_ELEMENTS, SOME_ODD_WORDS_OCCUPANCY = 32, 16
# Elements of a thread of a tile of whole lines of little values of 32 bits, if most multiprocessors have one.
# prod 32 x 81 x 128 float32: 3.67 us, with 16 elements 3.77, by 8 columns 3.88 (H200).
LITTLE_LINES_ELEMENTS = 32
# Elements of a thread of moments of few columns (``_many_share``): four vectors or more.
# var_mean 100000 x 200 bf16 along 0: 26.1 us, otherwise 29.5 (H100).
SHARED_MOMENTS_ELEMENTS = 32
# Programs that share such columns, at least. var_mean 65536 x 256 bf16 along 0: 22.7 us, otherwise 23.2 (H100).
MIN_SHARING = 24
# K up to which a program may have all of it.
MAX_WITHIN = 128


def _is_deep(problem: Problem, limits: Limits) -> bool:
    """Whether a thread of moments loads eight vectors together: half as many warps have half as many lanes to merge.

    std 2000 x 300 x 40 float16 along 1: 27.1 us, otherwise 31.1 (H100).
    Few results would be shared by too few programs: var_mean 1000000 x 64 bf16 along 0: 60.1 us, otherwise 58.4 (H100).
    On sm_100 8 bytes spill (64 x 16384 x 64, Triton 3.7).
    """
    M, _, K, size, accumulators = problem
    vectors, few = K % (VECTOR_BYTES // size) == 0, M * K <= 2 * WIDE_BLOCK_K
    return accumulators == 3 and size == 2 and vectors and not few and limits.capability[0] < 10


def are_many_words(problem: Problem, limits: Limits) -> bool:
    """Whether values of 32 bits have enough columns for each program to have some of its own."""
    M, _, K, size, accumulators = problem
    programs = limits.sm_count * COLUMNS_OCCUPANCY[1] // TILED_WARPS
    return accumulators == 1 and size == 4 and WIDE_BLOCK_K < K and programs <= cdiv(M * K, WIDE_BLOCK_K)


def are_some_odd_words(problem: Problem, limits: Limits) -> bool:
    """Whether values of 32 bits are loops over odd columns, with four blocks or more for each multiprocessor."""
    M, N, K, size, accumulators = problem
    odd = accumulators == 1 and size == 4 and K % 2 == 1 and WIDE_BLOCK_K < K
    return odd and ODD_WORDS[1] < N and limits.sm_count * 4 <= cdiv(M * K, WIDE_BLOCK_K)


def columns(problem: Problem, limits: Limits, wide: bool = False) -> Configuration:
    """By what is known of columns; ``wide`` if smaller elements are added up in 64 bits, or bytes to be."""
    M, N, K, size, accumulators = problem
    found = _little_in_one_tile(problem, limits) or _few_results(problem, limits)
    found = found or _few_elements(problem, limits, wide)
    if found is not None:
        return found
    positions = accumulators == 2
    # Means and squares are computed of groups of elements, the larger the fewer instructions.
    tile = min(TILE_BYTES // 2 // size, TILED_ELEMENTS * (2 if accumulators == 3 and size == 2 and K % 2 == 0 else 1))
    occupancy = COLUMNS_OCCUPANCY[accumulators]
    # With 4 vectors to a thread ptxas may make two of them wait. min.dim 64 x 512 x 512 int64: 41 us, otherwise 55.
    warps = TILED_WARPS * (2 if positions and size == 8 else 1)
    if positions and size == 8 and N > BY_WARPS_MAX_N:
        # Positions of 2832 x 5504 x 16 int64: 452 us, with one tile of four elements 593 (H200).
        tile *= 2
    if _is_deep(problem, limits):
        warps, occupancy = warps // 2, MOMENTS_OCCUPANCY[False]
    programs = limits.sm_count * occupancy // warps
    max_partials = max(warps, 4) * MAX_PARTIALS[(size > 4) + (accumulators == 3)]
    tiles = M * N * K // (programs * tile)  # of a program, if all had as many
    block_k, blocks = WIDE_BLOCK_K, cdiv(M * K, WIDE_BLOCK_K)
    if blocks < programs and (tiles < TILES_TO_WIDEN or 8 * blocks * (max_partials // block_k) < 7 * programs):
        block_k = BLOCK_K
    elif are_many_words(problem, limits):
        if K % 2 == 1 and not wide and ODD_WORDS[0] < N <= ODD_WORDS[1]:
            return Configuration(
                "columns", ODD_WORDS_ELEMENTS, ODD_WORDS_WARPS, OCCUPANCY, 1, WIDE_BLOCK_K, split=False
            )
        # By two warps, or by eight of odd K. 10 x 1567 x 8192 float32: 178.7 us, by four warps 190.5;
        # 40 x 752 x 1735: 90.0 us by eight, 94.7 by two, 101.9 by four (H100).
        tile, warps = (2 * tile, 2 * warps) if K % 2 == 1 else (tile // 2, warps // 2)
    elif not wide and are_some_odd_words(problem, limits):
        warps, occupancy = 2 * warps, SOME_ODD_WORDS_OCCUPANCY
        tile = SOME_ODD_WORDS_ELEMENTS * warps * WARP
    if positions and K % 2 == 1 and size == 2:
        # Never 64 columns. max.dim 3 x 1680 x 21509: 103 us, otherwise 164 (H100).
        # By 24 warps 8 bytes of 3 x 1680 x 21509 spill.
        block_k, occupancy = BLOCK_K, min(occupancy, 20)
    within = _within(problem, limits)
    if within:
        block_k = power_of_2(K)
    block_k = min(block_k, power_of_2(M * K))
    if accumulators == 3 and (size == 8 or K % 2 == 1) and tiles >= 2 and not within:
        # Half as many columns have half as many partial results, so that more programs can share them.
        # var_mean 1 x 2000003 x 18 float64: 130 us by 256 programs, 299 by 64 (H100).
        while cdiv(M * K, block_k) * (2 * max_partials // block_k) < limits.sm_count and block_k > BLOCK_K // 2:
            block_k //= 2
    half = block_k // 2
    # Where a quarter of the lanes would be idle otherwise, as long as results are a cache line.
    # sum 3 x 449136 x 15 int64, 64 lanes for 45 results: 62.8 us. 48 lanes are estimated.
    if not within and half * size >= LINE_BYTES and 4 * half * cdiv(M * K, half) <= 3 * block_k * cdiv(M * K, block_k):
        block_k = half
    shared = cdiv(M * K, block_k) * (max_partials // block_k)
    few = shared < limits.sm_count and accumulators < 3 and size < 8
    # Twice as large where partial results are too few for all programs. 1000000 x 64 bf16 along 0: 43 us, otherwise 74.
    if tiles >= (1 if few else 2) and 4 * shared < 3 * programs:
        tile, warps = 2 * tile, 2 * warps
        if few and positions:
            occupancy = min(occupancy, 20)  # 8 bytes of 100000 x 31 int32 spill
        elif few and accumulators == 1 and size == 2 and BLOCK_K // 2 < K and K % 4 > 0 and block_k == BLOCK_K:
            # Half as many columns let more programs share them, which have few bytes in flight.
            # prod 1 x 146925 x 21 float16: 8.25 us, otherwise 9.38; 1 x 144892 x 18: 7.92 us, otherwise 8.77 (H200).
            block_k //= 2
    elif positions and K % 4 == 2 and size == 2 and (M == 1 or BLOCK_K < K < WIDE_BLOCK_K):
        occupancy = min(occupancy, 20)  # 16 bytes of 4 x 16384 x 38 spill
    if accumulators == 1 and size == 2 and K * size == AS_IT_LIES_BYTES and tiles >= TILES_TO_WIDEN:
        block_k = K
    if _many_share(problem, limits):
        block_k, warps, occupancy = BLOCK_K, TILED_WARPS, MOMENTS_OCCUPANCY[False]
        tile = SHARED_MOMENTS_ELEMENTS * warps * WARP
    block_k = min(max(block_k, tile // power_of_2(N)), power_of_2(M * K))
    tile = min(tile, power_of_2(N) * block_k)
    warps = max(1, min(warps, tile // WARP))
    load, in_l2 = math.gcd(K * size, VECTOR_BYTES), M * N * K * size <= limits.l2_bytes
    # One tile in flight of rows of one vector, and of no whole vectors where L2 does not hold them.
    # any 52512 x 352 x 8 bf16: 97 us, otherwise 146.
    # Of words too, except moments, which were not timed. max.dim 6 x 29514 x 22 bf16: 11.3 us, otherwise 13.6 (H100).
    stays = in_l2 and (load != 4 or accumulators == 3)
    pipelined = size <= 2 and K * size > VECTOR_BYTES and (load == VECTOR_BYTES or stays)
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

    Of values of few columns with 3 of 16. Otherwise two programs share most rows of K, and read the sectors on their
    border twice.
    nansum 328 x 3073 x 51 float32: 90 us, by columns 120; amax 5 x 2629275 x 14 float32: 280 and 327 us (H100).
    With more lanes idle this is slower: sum 328 x 3073 x 43 bf16: 50.3 us, by columns 47.3 (H100).
    """
    M, N, K, size, accumulators = problem
    from_memory = M * N * K * size > limits.l2_bytes // 2
    few = accumulators == 1 and MAX_CLASSES < K < power_of_2(K) <= BLOCK_K and 13 * power_of_2(K) <= 16 * K
    used = few or (BLOCK_K < K <= MAX_WITHIN and 7 * power_of_2(K) <= 10 * K)
    return from_memory and M > 1 and used and K * size % SECTOR_BYTES != 0


def _many_share(problem: Problem, limits: Limits) -> bool:
    """Whether many programs share the columns of moments, but not more than can merge results.

    Columns are few, or programs could be deep, but rows of K are no whole blocks. Longer ones have wider tiles.
    var_mean 8 x 4096 x 1000 bf16: 36.5 us, deep 42.3; 8 x 4096 x 1024: 35.2 us, deep 34.7 (H100).
    """
    M, N, K, size, accumulators = problem
    programs, blocks = limits.sm_count * MOMENTS_OCCUPANCY[False] // TILED_WARPS, cdiv(M * K, BLOCK_K)
    vectors = size <= 4 and math.gcd(K, VECTOR_BYTES // size) * size >= VECTOR_BYTES // 2
    most = ROOMY_WARPS * MAX_PARTIALS[1] // BLOCK_K
    many = MIN_SHARING * blocks <= programs and 10 * blocks * most >= 9 * programs
    tiles = M * N * K // (2 * programs * SHARED_MOMENTS_ELEMENTS * TILED_WARPS * WARP)
    pieces = MAX_WITHIN < K and K % BLOCK_K > 0 and 2 * blocks <= programs and tiles < TILES_TO_WIDEN
    many = many or (pieces and _is_deep(problem, limits))
    # On sm_100 8 bytes spill (60000 x 160 float32).
    return accumulators == 3 and size > 1 and vectors and many and tiles > 0 and limits.capability[0] < 10


def _little_in_one_tile(problem: Problem, limits: Limits) -> Configuration | None:
    """As few results to a program as leave a multiprocessor some programs, if all their elements are one tile."""
    M, N, K, size, accumulators = problem
    results, block_n = M * K, power_of_2(N)
    words_of_lines = accumulators == 1 and size == 4 and WARP <= K and 2 * WARP < N <= MAX_IN_ONE_TILE_OF_LITTLE
    if words_of_lines and 4 * results >= 3 * WARP * limits.sm_count and M * N * K * size <= MAX_SECTOR_BYTES:
        return Configuration(
            "columns", LITTLE_LINES_ELEMENTS, block_n // LITTLE_LINES_ELEMENTS, OCCUPANCY // 2, 1, WARP, False
        )
    fewest = max(cdiv(results, LITTLE_PROGRAMS * limits.sm_count), min(K * size, LINE_BYTES) // (MAX_SHARING * size))
    block_k = max(power_of_2(max(fewest, 1)), min(LITTLE_PROGRAM // block_n, WARP))
    block_k = min(block_k, power_of_2(results))
    if size == 8 and accumulators < 3 and WARP < N <= MAX_IN_ONE_TILE_OF_LITTLE and K % (LINE_BYTES // size) == 0:
        # Whole lines, where programs are enough.
        # count_nonzero 2 x 64 x 512 int64: 3.51 us, otherwise 4.16 (H200).
        lines = LINE_BYTES // size
        block_k = max(block_k, lines) if 4 * results >= lines * limits.sm_count else block_k
    dividing = K & -K
    whole = dividing * size >= SECTOR_BYTES and block_n * dividing >= 2 * WARP and fewest <= dividing
    if accumulators == 3 and size == 4 and block_k < K and whole:
        # var_correction 4 x 8 x 88 float32: 3.02 us by 8 results, 3.40 by 32 (H100).
        block_k = min(block_k, dividing)
    warps = power_of_2(max(block_n * block_k * words(problem) // (LITTLE_ELEMENTS * WARP), 1))
    if accumulators == 3 and N <= MAX_DEPTH:
        warps = 1  # a thread has a column, and exchanges nothing
    # What is asked of the L2 cache: a program reads whole sectors of a row of K.
    sectors = M * N * max(K * size, cdiv(K, block_k) * min(K * size, SECTOR_BYTES))
    if accumulators == 2 and size == 4 and K in (2, 4) and block_n == block_k == WARP:
        # Whole matrices of single warps. min.dim 8024 x 32 x 2 float32: 4.67 us, by two warps 5.42 (H100).
        block_k, warps = block_k // warps, 1
    if N == 1 or block_k > WARP or warps > MAX_LITTLE_WARPS or sectors > MAX_SECTOR_BYTES:
        return None
    elements = max(block_n * block_k // (warps * WARP), 1)
    return Configuration("columns", elements, warps, OCCUPANCY // 2, 1, block_k, False)


def _few_results(problem: Problem, limits: Limits) -> Configuration | None:
    """All elements of two or four results to a program, where no multiprocessor has two programs.

    Programs that share results wait for each other. argmax 10 x 2000 x 12 float32: 4.1 us, shared 5.6 (H100).
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

    K is odd, and columns are too few for single warps.
    max.dim 2983 x 120 x 41 float16: 19.7 us, in a loop over two tiles 22.0 (H100).
    """
    M, N, K, size, accumulators = problem
    few = cdiv(M * K, BY_WARPS_BLOCK_K) < _enough(N) * limits.sm_count
    return accumulators < 3 and size <= 4 and K % 2 == 1 and 2 * N > MAX_IN_ONE_TILE_OF_LITTLE and few


def in_one_large_tile(problem: Problem, limits: Limits) -> bool:
    """Whether all elements of results, too many for a tile of ``TILED_ELEMENTS``, are one twice as large."""
    M, N, K, size, accumulators = problem
    long = MAX_IN_ONE_TILE_OF_LITTLE // 2 < N <= MAX_IN_ONE_TILE_OF_LITTLE
    some = limits.sm_count * 4 * BLOCK_K < M * K and K * size >= SECTOR_BYTES
    few = cdiv(M * K, BY_WARPS_BLOCK_K) < _enough(N) * limits.sm_count
    few = few and M * N * K * size <= LARGE_TILE_BYTES * limits.sm_count
    return accumulators < 3 and size <= 4 and long and some and few and not _in_groups(problem, limits)


def _are_odd_halves(problem: Problem, limits: Limits) -> bool:
    """Whether odd columns of 16 bits, enough for single warps, nearly fill such a tile; values more than half of it.

    var 3900 x 128 x 197 bf16: 79.5 us, by single warps in a loop 99.6 (H100).
    vector_norm 487 x 128 x 1153 float16: 63.1 us, by four warps 65.6 (H100).
    """
    M, N, K, size, accumulators = problem
    moments = accumulators == 3 and MAX_WITHIN < K and 3 * MAX_IN_ONE_TILE_OF_LITTLE < 4 * N
    full = moments or (accumulators == 1 and K * size >= SECTOR_BYTES and MAX_IN_ONE_TILE_OF_LITTLE < 2 * N)
    odd = size == 2 and K % 2 == 1 and full and N <= MAX_IN_ONE_TILE_OF_LITTLE
    return odd and cdiv(M * K, BY_WARPS_BLOCK_K) >= _enough(N) * limits.sm_count


def _start_slower(problem: Problem, limits: Limits) -> bool:
    """Whether programs have as many columns of few values as they can."""
    M, N, K, size, accumulators = problem
    if accumulators > 1 or size > 2 or not 8 < N <= MAX_IN_ONE_TILE:
        return False
    block_k = LARGE_TILE // power_of_2(N)
    if size == 1:
        return K % VECTOR_BYTES > 0 and starts_many(M * K, block_k, limits)
    singly = K % (2 if power_of_2(N) < MAX_IN_ONE_TILE else 4) > 0
    return singly and block_k <= K and starts_many(M * K, MANY_ROUNDS * IN_ONE_TILE_BLOCK_K, limits)


def _are_odd_values(problem: Problem) -> bool:
    """Whether a tile that values are loaded into one by one is of several warps."""
    _, N, K, size, accumulators = problem
    return accumulators == K % 2 == 1 and 2 <= size <= 4 and N > MAX_IN_TILES_OF_A_WARP


def _are_odd_positions(problem: Problem) -> bool:
    """Whether a tile that positions are loaded into one by one is of several warps."""
    _, N, K, size, accumulators = problem
    return accumulators == size == 2 and K % 2 == 1 and N > MAX_IN_TILES_OF_A_WARP


def _few_elements(problem: Problem, limits: Limits, wide: bool) -> Configuration | None:
    """Results of few elements each: in one tile, or in one warp's where there are many. Little is folded across."""
    M, N, K, size, accumulators = problem
    results, block_n = M * K, power_of_2(N)
    little, slower = results <= limits.sm_count * 4 * BLOCK_K, not wide and _start_slower(problem, limits)
    occupancy = OCCUPANCY if accumulators == 1 and N > 8 and size > 1 else OCCUPANCY // 2
    stages = STAGES if size <= 2 and K * size > VECTOR_BYTES else 1
    if N <= 8:
        block_k, warps = max(512 // max(size, 2), 256 // block_n), 2
        if N == 1 and MAX_RESULTS_OF_ONE_WARP * limits.sm_count >= results:
            block_k, warps = 2 * WARP, 1
        elif N > 4 and accumulators < 3 and size == 2 and K % 2 == 1 and not little:
            # A load for each element. all of 8 x 5 x 1659497 bf16: 61.7 us, by two warps 67.2 (H100).
            warps *= 2
        elif starts_many(results, block_k, limits):
            block_k, warps = block_k * 8 // block_n, warps * 8 // block_n
    elif N <= MAX_IN_ONE_TILE and (K % (VECTOR_BYTES // size) or K < BY_WARPS_BLOCK_K):
        block_k, warps = IN_ONE_TILE_BLOCK_K, block_n // 8
        if slower:
            block_k, warps = LARGE_TILE // block_n, LARGE_TILE_WARPS
    elif N <= MAX_IN_ONE_TILE_OF_LITTLE and (little or K * size < SECTOR_BYTES or _in_groups(problem, limits)):
        block_k, warps = BLOCK_K, block_n // 16
    elif in_one_large_tile(problem, limits) or _are_odd_halves(problem, limits):
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
        elif _are_odd_positions(problem) and not _within(problem, limits):
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
    # Fewer results rather than a second tile, as long as a warp loads whole vectors.
    # var_mean 69825 x 5 x 93 float16: 65 us, in several tiles 105.
    # amax 4096 x 5 x 1000 bf16: 19.4 us in two tiles of 256 results, 25.3 in one of 128.
    while block_k > WARP * vector and block_n * block_k * words(problem) > MAX_WORDS // 2 * warps * WARP:
        block_k //= 2
    # Fewer elements are loaded of a tile that is no power of two.
    # argmin 4096 x 5 x 1000 bf16: 30.0 us in one tile, 36.9 in two of 4 x 256 (H100).
    most = MAX_WORDS if (accumulators == 3 and size == 2) or N < block_n <= 8 else MAX_WORDS // 2
    elements = min(max(block_n * block_k // (warps * WARP), 1), most)
    within = block_k == power_of_2(K) and _within(problem, limits)
    chosen = Configuration("columns", elements, warps, occupancy, 1, block_k, False, stages, within=within)
    return fitting(problem, chosen)
