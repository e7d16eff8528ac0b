# SPDX-License-Identifier: Apache-2.0
"""What a reduction of rows is launched with where no table says better.

Constants were chosen on an H200 (132 SMs, Triton 3.6.0) with the L2 cache full of clean lines. A time is of amax on
that GPU where the comment names no operator or no GPU.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import (
    KNOWN_MULTIPLE,
    MAX_DEPTH,
    MAX_HALF_ROW,
    MAX_SHORT,
    MAX_WORDS,
    MIN_SHARED_TILES,
    Configuration,
    Problem,
    grouped_rows,
)
from .programs import (
    BYTES_WITH_ALL_WARPS,
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

# Warps of a multiprocessor that rows of bytes are planned for. With more, 8 bytes spill in 64 registers; with fewer,
# too little is in flight. 261017568 bool: 84.5 us, with 16 warps 99.
BYTES_OCCUPANCY = 24
# Rows for each multiprocessor up to which one program has a whole row, in a tile of twice the size.
# 256 x 65536 bf16: 13.7 us, otherwise 15.3.
FEW_ROWS = 6
# Rows for each multiprocessor above which rows a little longer than a tile are in one (``_is_little_more``).
LITTLE_MORE_ROWS = 2
# Bytes of a row above which it is long: programs of few rows have a larger tile.
# 774 x 95096 bf16: 60 us, otherwise 62; below the bound 359 x 18367 float32: 15.1 us, otherwise 13.6.
LONG_ROW_BYTES = 131072
# Part of the multiprocessors that must have a row before a tile is four times as large.
# 128 x 131072 bf16: 19.4 us by one program, by four 21.2 (H100); sum 20 x 131072: 7.7 us by one, by 13 7.1 (H100).
NEARLY_ALL = 3 / 4
# Bytes of a row, at most, where each multiprocessor has two rows (``two_to_each``). Longer rows were not timed.
MAX_OF_TWO_BYTES = 262144
# Elements of a row, at most, that is read in half vectors (``_has_idle_vectors``).
HALF_VECTORS_MAX_N = 128
# By bytes of an element, rows without idle lanes whose moments are read in half vectors too.
# var_mean 1000000 x 64 bf16: 42.6 us, in vectors 51.1; 1000000 x 64 float32: 74.5 and 91.0 (H200).
HALF_VECTORS_N = {2: (16, 32, 64), 4: (64,)}
# Part of the lanes of a row of values, at most, that is used where a program has four times as many elements to a
# thread and half as many warps; and programs for each multiprocessor, at least.
# sum 96153 x 520 bf16: 30.4 us, otherwise 42.9; 367647 x 136: 35.6 and 40.4; 65104 x 768: 31.1 and 31.8; amax 71022 x
# 704: 30.7 and 32.0; 65104 x 768: 30.9 and 30.1 (H200).
IDLE_PART, IDLE_PROGRAMS = 0.75, 8
# Elements of a row of 16 bits whose moments one program loads at once where few multiprocessors have a row (more than,
# up to), and its warps. var_mean 10 x 20000 bf16: 3.88 us, shared by programs 4.59; 50 x 20000: 4.48, 5.47 (H200).
FEW_MOMENTS, FEW_MOMENTS_WARPS = (16384, 20480), 16
# Bytes of a tile, and warps, of moments of long rows that programs share.
# var_mean 4 x 1267915 bf16: 9.5 us, with twice as many of both 10.3; std 32 x 2121270 float32, which has edges: 84.1
# and 77.9 (H200).
MOMENTS_TILE_BYTES, MOMENTS_WARPS = 8192, 4
# Elements of an even row of 32 bits (more than, up to) that is read in pairs: in whole vectors it would have edges.
# prod 21296 x 294 float32: 16.0 us, otherwise 24.5 (H100).
EVEN_ROWS = 256, 512
# By bytes of a value, elements of a row with edges (more than, up to) that is read by a single warp: a tile of four
# warps would leave lanes idle. vector_norm 100000 x 545 float16: 45.7 us, otherwise 86.2 (H100);
# amax 20000 x 1101: 24.5 us, otherwise 22.4 (H100).
NARROW_WITH_EDGES = {1: (1024, 2048), 2: (256, 1024)}
# By bytes of a value, such programs for each multiprocessor, at least: of eight rows of bytes, or of four of 16 bits.
NARROW_PROGRAMS = {1: 4, 2: 3}
# Warps of a multiprocessor that single warps of 16 bits are planned for.
SINGLE_OCCUPANCY = 48
# Elements of an odd row of 32 bits (more than, up to), added up in 64 bits, that is read by a single warp.
# sum_dim 300000 x 131 int32: 70 us, by warps that share rows 174; nansum 134161 x 437: 93 us, shared 90 (H100).
WIDE_WITH_EDGES = 128, 256
# Such rows for each multiprocessor, at least. Fewer are faster by warps that share them.
WIDE_ROWS = 750
# Rows of a program of single warps, two to each: tiles of a vector to each thread of a warp.
NARROW_ROWS = SHORT_BYTES // (WARP * VECTOR_BYTES)
# Elements of a program where there is too little for all multiprocessors: 8 to a thread of four warps.
# max.dim 1000 x 50 bf16: 2.8 us, with 16 to a thread 3.5.
LITTLE_TILE = 1024
# By whether positions are wanted, elements for each multiprocessor up to which a problem is little.
LITTLE = {False: 8192, True: 2048}
# Bytes of a row of a little problem, at most: one program reads it. 1 x 11264 bf16: 3.0 us, by two programs 3.8.
MAX_LITTLE_BYTES = 32768
# Multiprocessors for each row, at least, where positions of 16 and 32 bits may be of rows twice as long.
# argmax 1 x 16384 float32: 3.50 us, by four programs 4.07 (H100).
SHARE_WITH_LONGER = 4
# Elements of a thread in such a row.
LONGER_POSITIONS = 32
# Lanes of a little odd row from which it is read in vectors with edges: positions of up to 4 bytes, values of up to 2.
# argmax 12 x 13001 uint8: 3.81 us, otherwise 4.30; 3 x 3001 float32: 3.36 us, otherwise 3.35 (H100).
MIN_LITTLE_WITH_EDGES = 4096
# Bytes of a thread of moments of a little, longer odd row, which is one tile read in vectors.
# std 9 x 3333 float32: 3.96 us, element by element 4.34; var_mean 6 x 2671 bfloat16: 3.74 us, otherwise 3.72 (H100).
LITTLE_MOMENTS_BYTES = 64
# Elements of a row of float64 whose moments are read in groups: more than the first, up to the second, or up to the
# third if the row is odd (a thread of an even row has twice as many elements).
# var_mean 8000 x 3001: 70.9 us, in a loop with edges 107 (H100).
WIDE_MOMENTS = 2048, 7166, 8192
# Warps of a program of moments that loads a long row at once, in groups of whole vectors (``_moments_in_groups``).
GROUP_WARPS = 4, 8, 16
# Groups of a thread of such a program, fewer than this.
MAX_GROUPS = 12
# Bytes of a row of values, at most, that is one tile where each multiprocessor has one row (``_alone``).
MAX_ALONE_BYTES = 131072
# Elements of such a row of positions or moments, at most; half as many positions of 8 bytes.
MAX_ALONE = 16384
# Bytes of values of a thread of such a tile: fewer warps wait for each other less.
# sum 40 x 32768 bf16: 4.79 us by 16 warps, 4.89 by 32 (H100).
ALONE_BYTES = 128
# Elements of positions or moments of such a thread.
# argmax 100 x 5001 float32: 4.71 us by 8 warps, 4.89 by 16 (H100).
ALONE_ELEMENTS = 32
# Positions of 8 bytes of such a thread.
# argmax 27 x 4 x 3225 float64: 5.25 us by 16 warps, 6.19 by 8 (H100).
ALONE_WIDE_POSITIONS = 8
# Lanes of a row, at most, where positions of 32 and 64 bits are read element by element by a single warp.
# argmax 100000 x 33: 13.0 us, by two warps 18.5 (H100).
SINGLY_N = 256
# Bytes of the lanes from which such a warp has half as many elements; fewer of 64 bits are not read this way.
# argmin 20000 x 235 float64: 19.8 us, otherwise 21.9; max.dim 13992 x 27: 5.35 us, otherwise 5.08 (H100).
SINGLY_BYTES = 1024
# By whether elements have 16 bits or less, elements of a row above which neighbours are combined before they are
# compared. max.dim 2**20 x 64 bf16: 40 us, otherwise 49; max.dim 2**20 x 16 bf16: 25 us, otherwise 15.
MAX_LENGTH_WITHOUT_NEIGHBOURS = {True: 32, False: 128}
# Elements of a program of rows that are loaded element by element, where each multiprocessor has one program at most.
# aminmax 125 x 39 float32: 2.91 us, with twice as many elements 3.15 (H100). Moments were not timed.
SMALLEST_TILE = 4 * WARP


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
    elif accumulators == 3 and size == 8 and WIDE_MOMENTS[0] < N <= WIDE_MOMENTS[1 + N % 2]:
        vector = math.gcd(N, VECTOR_BYTES // size)
        warps = LONG_WARPS * (2 if N // (LONG_WARPS * WARP) > MAX_DEPTH else 1) // vector
        tile = vector * warps * WARP
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
            # Element by element. argmax 64 x 7001 float64: 5.72 us, in vectors 6.70 (H100).
            vector = math.gcd(N, vector)
    elif little:
        vector = vector if in_vectors_with_edges(problem, limits) else math.gcd(N, vector)
        if (positions and N % KNOWN_MULTIPLE == 0 and block_n <= LITTLE_PROGRAM) or (
            accumulators < 3 and M * block_n <= WARP
        ):
            # Neighbours are not combined, and a lane has one element at most.
            # max.dim 1 x 112 float16: 2.76 us, otherwise 2.90; amax 7 x 2 float32: 2.76 us, otherwise 2.87 (H100).
            vector = 1
        single = M * block_n <= LITTLE_PROGRAM * LITTLE_PROGRAMS * limits.sm_count
        tile = LITTLE_PROGRAM if single or (positions and size == 8 and vector == 1) else LITTLE_TILE
        if vector == 1 and accumulators < 3 and M * block_n <= SMALLEST_TILE * limits.sm_count:
            tile = SMALLEST_TILE
        tile = min(max(tile, block_n), power_of_2(M) * block_n)
        # Elements of a thread: of float64 no more fit.
        # var_mean 28 x 2209 float64: 3.88 us by 16 warps, by eight in two iterations 4.87 (H200).
        most = (8 if size == 8 else 16) if accumulators == 3 else 32
        # Moments of float64 have a vector to a thread. var_mean 6 x 24: 3.35 us with 8 elements, torch.compile 3.01.
        few = vector if single and accumulators == 3 and size == 8 else 8
        warps = max(1, min(tile // (few * WARP), max(4, tile // (most * WARP)), 16))
    elif accumulators == 3 and (grouped := _moments_in_groups(problem, limits)) is not None:
        return grouped
    elif accumulators == 3 and size == 2 and limits.sm_count >= 2 * M and FEW_MOMENTS[0] < N <= FEW_MOMENTS[1]:
        return Configuration("rows", vector, FEW_MOMENTS_WARPS, MOMENTS_OCCUPANCY[True], vector)
    elif accumulators == 3 and _is_full_row_of_moments(problem):
        tile, warps = block_n, SHORT_WARPS
    elif accumulators == 3 and grouped_rows(problem, vector):
        return narrow(problem, MOMENTS_OCCUPANCY[False], vector)
    elif accumulators == 3 and narrow_rows(problem, vector):
        return narrow(problem, MOMENTS_OCCUPANCY[True], vector)
    elif narrow_with_edges(problem, limits) and size == 2:
        return by_single_warps(vector, SINGLE_OCCUPANCY)
    elif narrow_with_edges(problem, limits) and not wide:
        return narrow(problem, occupancy, vector)
    elif N * size <= SHORT_BYTES:
        several = positions and N * size >= MIN_BYTES_OF_LONG
        tile, warps = SHORT_BYTES * (2 if edges or (several and size > 2) else 1) // size, SHORT_WARPS
        if positions and N * size > BYTES_WITH_ALL_WARPS and limits.capability < (10, 0):
            # On sm_100 8 bytes of 300000 x 50 bf16 spill.
            shortest = SINGLY_BYTES // size if size == 8 else 1
            singly = vector == 1 and size >= 4 and shortest <= block_n <= SINGLY_N
            warps = 1 if edges or singly else 2
            most = min(128 // size, 32 * vector, MAX_WORDS)
            most //= 2 if singly and block_n * size >= SINGLY_BYTES else 1
            tile = min(tile, warps * WARP * most)
            while warps == 1 and 2 * block_n <= tile and _few_programs(M * block_n, tile, limits):
                tile //= 2
        elif accumulators == 3 and (_has_idle_vectors(problem) or N in HALF_VECTORS_N.get(size, ())):
            vector = math.gcd(N, VECTOR_BYTES // size // 2)
        elif in_pairs(problem):
            vector = 2
        elif _has_idle_lanes(problem, limits):
            tile, warps = 2 * tile, warps // 2
    elif accumulators == 3 and (size == 2 or (size == 4 and not edges)) and limits.sm_count >= M:
        tile, warps = MOMENTS_TILE_BYTES // size, MOMENTS_WARPS
    else:
        tile, warps = min(TILE_BYTES // size, TILE_WITH_EDGES if edges else MAX_TILE, block_n), LONG_WARPS
        few = accumulators == 1 or (positions and size < 8)
        # Threads of 32 warps have 64 registers, of 8 bytes 128.
        nearly_all = accumulators == 1 and size < 8 and limits.sm_count >= M >= NEARLY_ALL * limits.sm_count
        few = few and (nearly_all or limits.sm_count <= M <= FEW_ROWS * limits.sm_count) and not (edges and size <= 2)
        # With two rows to a multiprocessor, those longer than a tile would be shared otherwise. Rows of 8 bytes keep
        # their tile and are not shared. sum 256 x 5216 float64: 8.22 us by 8 warps, by 16 9.12 (H200).
        longest = LONG_ROW_BYTES if 2 * limits.sm_count < M or size == 8 else TILE_BYTES
        split = not (few and size == 8 and vector > 1 and not edges and N * size <= LONG_ROW_BYTES)
        if few and size > 1 and N * size > longest:
            times = 4 if nearly_all else 2
            tile, warps = min(times * tile, block_n), times * warps
        elif edges and positions:
            # Twice as much of 64 bits. max.dim of 47276349 int64: 100 us, otherwise 129 (H200).
            # A few rows to a multiprocessor too, so that fewer programs share a row.
            # min.dim 281 x 6967 float32: 8.90 us, otherwise 9.56 (H100).
            few = limits.sm_count <= M <= FEW_ROWS * limits.sm_count and N * size <= LONG_ROW_BYTES
            tile, warps = SHORT_BYTES // size, SHORT_WARPS
            if few and size == 4 and block_n <= 2 * tile:
                # All of a row, by as few warps. argmax 221 x 1481 float32: 3.61 us, by eight warps 3.78 (H200).
                tile = block_n
            elif size == 8 or (few and size > 1):
                tile, warps = 2 * tile, warps * (1 if size == 2 else 2)
        elif size == 8 and not edges and vector > 1 and block_n <= SHORT_BYTES // 4:
            # Two iterations, not eight warps for a row. max.dim 47424 x 544 int64: 68 us, otherwise 94 (H200).
            tile, warps = tile // 2, warps // 2
        elif size == 8 and vector == 1 and positions:
            # Eight elements to a thread. max.dim 32911 x 561 float64: 56.7 us, by eight warps 63.7 (H100).
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
            # amax 16384 x 16384 uint8: 75 us, otherwise 83; prod: 136 us, otherwise 177.
            tile, warps = tile // 2, warps // 2
    if accumulators == 3:
        occupancy = min(occupancy, MOMENTS_OCCUPANCY[vector > 1])
    neighbours = positions and vector > 1 and MAX_LENGTH_WITHOUT_NEIGHBOURS[size <= 2] < N
    return fitting(
        problem,
        Configuration("rows", max(tile // (warps * WARP), 1), warps, occupancy, vector, 1, split, stages, neighbours),
    )


def _moments_in_groups(problem: Problem, limits: Limits) -> Configuration | None:
    """Moments of long rows: a program loads all of its row at once. None where it cannot or need not.

    It need not where half of the multiprocessors have no row, or where rows are short and some have none.
    var_mean 20000 x 9001 bf16: 127.1 us, otherwise 174.5; 300 x 12000: 12.9 us, otherwise 12.9 (H100).
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
    """Whether moments are of odd rows of 16 or 32 bits that have 128 lanes of several elements each.

    Each multiprocessor has one row at most.
    var_mean 6 x 691 float32: 3.28 us, with a lane for each element 3.65 (H100).
    Of 16 bits this is estimated: shorter rows have such lanes anyway, std 228 x 505 bf16 gains as much by them.
    """
    M, N, _, size, accumulators = problem
    odd = accumulators == 3 and N % 2 == 1
    fewest = {2: MAX_HALF_ROW, 4: MAX_DEPTH * WARP}.get(size, N)
    return odd and limits.sm_count >= M and fewest < N <= SHORT_BYTES // size


def _alone(problem: Problem, limits: Limits) -> bool:
    """Whether a long row is one tile of one program, because each multiprocessor has one row at most.

    Otherwise programs share a row and exchange results, or read it in a loop.
    sum 40 x 32768 bf16: 4.79 us, otherwise 5.66; argmax 120 x 20000 float32: 10.4 us, otherwise 10.3 to 10.9 (H100).
    """
    M, N, _, size, accumulators = problem
    block_n = power_of_2(N)
    most = {1: MAX_ALONE_BYTES // size, 2: MAX_ALONE // (2 if size == 8 else 1), 3: 0 if size == 8 else MAX_ALONE}
    fewest = MAX_ALONE if accumulators == 3 else 2 * TILE_BYTES // size
    return limits.sm_count >= M and size > 1 and fewest <= block_n <= most[accumulators]


def _is_little_more(problem: Problem, tile: int, limits: Limits) -> bool:
    """Whether many rows are one tile of twice the size, because a second tile would be half full at most.

    min.dim 44520 x 2560 int64: 300 us, in two tiles 343; 544 x 10312 bf16: 9.32 us, in two 10.2 (H100).
    Half is estimated: a quarter was timed.
    """
    M, N, *_, accumulators = problem
    return accumulators < 3 and LITTLE_MORE_ROWS * limits.sm_count < M and tile < N <= 3 * tile // 2


def two_to_each(problem: Problem, limits: Limits) -> bool:
    """Whether values of up to 16 bits are of long rows, about two to a multiprocessor: each row has 16 warps.

    sum 256 x 30338 bf16: 13.2 us, in a loop, shared or by eight warps 14.6 (H100).
    Few long rows are slower in this way: amax 134 x 865750: 64.4 us, otherwise 63.0 (H100).
    """
    M, N, _, size, accumulators = problem
    about = NEARLY_ALL * 2 * limits.sm_count <= M <= 2 * limits.sm_count
    long = MIN_SHARED_TILES * TILE_WITH_EDGES < N and N * size <= MAX_OF_TWO_BYTES
    return accumulators == 1 and size <= 2 and about and long


def _few_programs(elements: int, tile: int, limits: Limits) -> bool:
    """Whether a multiprocessor would have too few programs.

    min.dim 2344 x 163 float16: 4.16 us by 586 programs, 4.30 by 293.
    """
    return elements < LITTLE_PROGRAMS * limits.sm_count * tile


def _in_one_tile(problem: Problem, limits: Limits) -> bool:
    """Whether a row with edges is one tile, not two iterations: any number of values, or few rows of 16 bits.

    prod 8792 x 4203 bf16: 25.4 us, in a loop of two 44.1 (H200).
    Of many positions this is slower: argmax 8792 x 5635 bf16: 32.6 us, in a loop 30.9 (H200).
    """
    M, N, _, size, accumulators = problem
    return N <= MAX_TILE and (accumulators == 1 or (size == 2 and FEW_ROWS * limits.sm_count >= M))


def _in_one_large_tile(problem: Problem, limits: Limits) -> bool:
    """Whether values of 16 bits are one tile by twice as many warps, in rows that programs would share otherwise.

    Each multiprocessor has two rows at most, or there are many. Where it has one at most, see ``_alone``.
    mean 150 x 16181: 6.4 us, otherwise 7.8; mean 400 x 16181: 11.3 us, otherwise 10.6 (bf16, H100).
    """
    M, N, *_ = problem
    at_once = limits.sm_count < M <= 2 * limits.sm_count or FEW_ROWS * limits.sm_count < M
    return at_once and (MIN_SHARED_TILES - 1) * TILE_WITH_EDGES < N <= MIN_SHARED_TILES * TILE_WITH_EDGES


def _has_idle_vectors(problem: Problem) -> bool:
    """Whether moments of short rows are loaded half a vector at a time, because whole vectors leave lanes idle.

    In whole vectors at least a quarter of the lanes would be idle.
    var_mean 300000 x 40: 15.1 us, otherwise 18.9 (bf16, H100). Longer rows are estimated.
    """
    _, N, _, size, _ = problem
    timed = size == 4 or (size == 2 and N % (VECTOR_BYTES // size) == 0)
    return timed and MAX_SHORT < N <= HALF_VECTORS_MAX_N and 3 * power_of_2(N) >= 4 * N


def _has_idle_lanes(problem: Problem, limits: Limits) -> bool:
    """Whether many rows of values, in whole vectors, leave so many lanes of a tile idle that it has more rows."""
    M, N, _, size, accumulators = problem
    block_n = power_of_2(N)
    whole = accumulators == 1 and 1 < size < 8 and N % (VECTOR_BYTES // size) == 0
    programs = M * block_n * size // (2 * SHORT_BYTES)
    return whole and IDLE_PART * block_n >= N and programs >= IDLE_PROGRAMS * limits.sm_count


def _is_full_row_of_moments(problem: Problem) -> bool:
    """Whether a row fills more than three quarters of the tile of short rows: it is a program of four warps.

    var_mean 4096 x 2047 bf16: 13.4 us, by a warp for each two rows 15.9 (H100). Two warps are as fast as four.
    """
    _, N, _, size, _ = problem
    return size < 8 and 3 * SHORT_BYTES < 4 * N * size <= 4 * SHORT_BYTES


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
    """A warp for each two rows, in a loop, a vector of either to a thread.

    No lane is beyond the row, and no warp waits for another. Sums of 65536 x 768 bf16 take 6 instructions for an
    element; in one tile of 2 x 1024 they take 11.
    """
    elements = SHORT_BYTES // problem.itemsize // (SHORT_WARPS * WARP)
    return Configuration("rows", elements, SHORT_WARPS, occupancy, vector, block_k=NARROW_ROWS)
