# SPDX-License-Identifier: Apache-2.0
"""Softmax of columns that a thread or a program holds. Figures are those of :mod:`.defaults`."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import (
    MAX_WORDS,
    Blocks,
    Configuration,
    Problem,
    Split,
    lanes_side_by_side,
    launch_or_none,
)
from .little import LITTLE, MAX_SHORT_OF_TINY, is_little

# Columns from which programs have 256 of 33 to 64 elements, for fewer sectors that two of them read: softmax 4 x 33 x
# 216585 bf16 44 us, with 128 46.6. If rows are as long as this and odd, 128 of two threads each: softmax 5 x 56 x
# 135919 bf16 75 us so, by one thread 82, float32 128 and 139, 5 x 40 x 60001 42 and 44 (H100). Shorter ones were not
# timed.
MANY_COLUMNS, LONG_ODD_ROW = 1 << 18, 1 << 15
# The same of half as long columns of 16 bits, of so many: log_softmax 1351 x 29 x 2871 float16 199 us by two threads
# to a column and 8 warps, 229 by single ones and 4, 1351 x 27 x 2871 bf16 176 and 216, 1200 x 30 x 3001 193 and 220.
MANY_SHORT_COLUMNS, ODD_ROW = 1 << 21, 1 << 11
# The same of 9 to 16 elements of float64, by 4 warps: log_softmax 56 x 16 x 15207 81 us so, by one thread 88, 100 x 15
# x 12001 105 and 113 (H100).
MANY_COLUMNS_OF_FLOAT64, ODD_ROW_OF_FLOAT64 = 3 << 18, 12000
# Warps of a program of such columns: at most MAX_SHARED_WARPS where a row of K is longer than a sector, so that
# programs share sectors: softmax 26 x 1079 x 317 float32 by 16 49 us, in a loop 38.
MAX_SHORT_WARPS, MAX_SHARED_WARPS = 32, 8
# Elements for each multiprocessor up to which threads hold half a vector of each input of odd gradients of 16 bits:
# that of 3 x 2 x 27041 bf16 3.58 us so, 4.10 by a vector (FlagGems 3.50), 30 x 2 x 5001 3.94 and 4.43 (FlagGems 3.92),
# 8 x 3 x 9001 3.74 and 3.77, 2 x 4 x 20001 3.60 and 3.68 (H100).
MAX_OF_HALF_VECTORS = 2400
# Threads to a multiprocessor, by inputs, fewer of which have half as many elements of a column, MIN_SHARED at least,
# and share it: with one warp to a scheduler nothing hides what it waits for. The gradients of 399 x 32 x 51 bf16 5.22
# us so and 5.81 by 154 threads with 32 elements of each input (FlagGems 5.09), of 800 x 32 x 51 7.41 and 8.05, of 1000
# x 24 x 25 float16 5.07 and 5.45. Forward, by threads: 399 x 32 x 51 bf16 154 4.74, 308 4.53, 617 4.46; 150 x 60 x 201
# float32 228 12.4, 457 11.7, 913 11.3; 100 x 50 x 255 float16 193 6.33, 386 6.15, 773 5.76; 207 x 35 x 255 float32 400
# 12.3, 800 11.0, 1600 11.4; 600 x 35 x 255 1159 24.8, 2318 23.9, 4636 26.8 (H100).
FEW_THREADS, MIN_SHARED = {1: 600, 2: 320}, {1: 16, 2: 8}
# Of [N, K], of all inputs, of which each column has a program to itself that reads whole sectors for it, in place of a
# group: the gradients of log_softmax 6296 x 12 float16 (302 KB) 7.9 us so, by groups 5.6, of softmax 8000 x 5 bf16 (160
# KB) 5.7 and 5.2, softmax 5000 x 7 float32 (140 KB) 7.0 and 5.8, but 3 x 5000 x 3 (60 KB) 5.4 and 8.1, the gradient of
# 1 x 5843 x 3 bf16 (70 KB) 4.4 and 5.0 (H100).
MAX_LITTLE_BYTES = 100 << 10
# Columns of several threads, by programs of so many, or half as many where those are too few or hold too little, and so
# many programs to a multiprocessor at least: rows that begin anywhere have their first and last sectors in two programs
# each, which is each sector where a program has no more than one. softmax 3 x 503 x 44043 float16 166 us by 64 columns,
# by 16 265 (FlagGems 213), 8 x 300 x 10001 bf16 58 and 87, 3 x 251 x 44043 float32 132, by 32 153 and by 16 200; 20 x
# 700 x 3001 bf16 102.5 by 32, in a loop 118; 1 x 300 x 12001 13.5 by 32, by 64 13.9, by 16 14.7. Two inputs are half as
# many columns: the gradient of 3 x 251 x 44043 float16 108 us by 32, by 64 of 32 warps 118, by 16 141 (H100). Up to
# four times as many of shorter ones, with 16 elements to a thread: the gradients of 5 x 56 x 135919 float32 172 us by
# 128 columns, by 64 186, by 32 227 (FlagGems 202), float16 100, 109 and 126, of 5 x 100 x 60001 float32 148 by 64 and
# 176 by 32, of 20 x 40 x 20001 72.8 by 128 and 91 by 32, of log_softmax 3 x 120 x 80001 bf16 87 by 64 and 99 by 32; by
# 128 twice as many for each multiprocessor, so that not all run at once: the gradient of 2 x 56 x 20001 bf16, 313, 10.8
# us, by 32 10.4 (H100; by 64 not timed). Forward 128: softmax 3 x 100 x 100001 bf16 59 us so, by 64 74, by 256 72.
WIDE_COLUMNS, WIDE_PROGRAMS, MAX_WIDE_PROGRAMS, WIDE_WARPS = 64, 2, 4, 16
# Rows of a thread, by inputs, up to which two programs of WIDE_WARPS run at once by 64 registers, so that each may have
# up to twice as many columns: the gradients of log_softmax 2 x 160 x 131043 bf16, 20 rows to a thread, 121 us by 64
# columns, by 32 145, of softmax float32 213 and 258, of 3 x 140 x 60001 124 and 152, of 2 x 100 x 131043 float16, 25
# rows, 73 by 128 and 81 by 64, of log_softmax 20 x 160 x 4001 bf16 40.4 and 43.4; log_softmax 2 x 160 x 131043 bf16, 40
# rows, 84 by 128 and 107 by 64; the gradient of 8 x 160 x 20002 bf16 71 by 64 and 82 by 32, others of even rows were
# not timed. Of 32 rows one runs: that of 2 x 250 x 80001 133 us by 64, by 32 126 (H100).
MAX_ROWS_OF_TIGHT = {1: 40, 2: 25}
# The fewest to a program that reads and writes one [N, K]: 1520 such start in the time that memory takes for 2.3 MB.
# The gradient of 20000 x 8 x 16 float32, 1536 bytes each, 16.5 us so, 16.0 by threads, of 40000 x 6 x 44 bf16, 1584
# bytes, 29.2 and 31.5 (H100).
MIN_BLOCK_BYTES = 1536
# [N, K] of rows that a sector holds have a program each, which holds them, where the columns kernel would need a loop
# or a group, whose programs wait for each other: softmax 48 x 4479 x 2 float32 5.4 us, by groups 8.8 (FlagGems 6.2),
# its gradient 5.8 and 7.1, 20 x 4479 x 2 4.8 and 7.2, 40 x 5000 x 4 bf16 6.0 and 6.9, log_softmax 30 x 6000 x 2 bf16
# 4.8 and 6.9; 300 x 4479 x 2 float32 10.1, in a loop 13.3. With 32 warps none is faster. In place of a group up to as
# many registers for the elements of a thread as were timed, for one multiprocessor moves all of it; gradients of 16
# bits: 100 x 1500 x 8 bf16 6.5 us, by groups 8.6, 20 x 2000 x 8 5.2 and 6.1 (H100). By 32 warps where 16 hold too few
# and most multiprocessors have an [N, K]: softmax 88 x 4766 x 8 bf16 14.1 us, by groups in a loop 20.3, but 40 x 4766 x
# 8 10.5 and, by groups that hold them, 8.9 (H100).
WHOLE_WARPS, MAX_REGISTERS_FOR_GROUP = 16, 40
# The share of a tile of a gradient, of no more of which a program holds what there is. Between 0.69 and 0.97 none was
# timed.
MAX_HALF_EMPTY = 0.7
# What takes time of 16 bits in tiles and in blocks as they lie, in ps of the device (132 SMs), by inputs: an element of
# a tile, whether it exists or not, of 8 warps and of fewer; one that exists; a block that is not held as a whole; an
# element of it. Forward log_softmax 3000 x 250 x 68 bf16 105 us in tiles of 256 x 32 (by this 104)
# and as it lies 101 (94), softmax 3000 x 140 x 72 114 in tiles of 256 x 64 and 58 (116 and 59), 5000 x 70 x 68 float16
# 69 and 56 (70 and 54), 5000 x 100 x 68 in blocks 72 (71), log_softmax 2000 x 140 x 140 bf16 74 (71); gradients of 5000
# x 120 x 68 float16 122 and 92 (132 and 114), of 2000 x 100 x 140 bf16 83 and 75 (84 and 72), of blocks that are held
# 5000 x 100 x 36 62 and 43 (63 and 41), 10000 x 40 x 100 99 and 86 (99 and 92). Such blocks have at most so many warps,
# are so many for each multiprocessor, at least, and take no more than that share of the time of tiles, or less of these
# exists than MAX_OF_EMPTY_TILES. Rows of whole lines were not timed.
PS_OF_TILE, PS_OF_TILED = {(True, 1): 1.0, (False, 1): 0.68, (True, 2): 0.92, (False, 2): 0.54}, {1: 0.6, 2: 1.38}
PS_OF_BLOCK, PS_OF_LAID = {1: 2800, 2: 4000}, {1: 1.68, 2: 2.3}
MAX_WARPS_FOR_EMPTY, MANY_BLOCKS_PER_SM, MAX_SHARE_OF_TILED, MAX_OF_EMPTY_TILES = 8, 4, 0.97, 0.45
# A program that has an [N, K] as it lies: elements of a thread, and how many bytes it may have before there are twice
# as many warps. softmax of bf16 (H100) 3000 x 150 x 37 44 us by 4 warps, 55 by 8, 1000 x 200 x 100 41 by 8, 48 by 16,
# 1444 x 1500 x 40 176 by 16, 184 by 8, the gradients of 2000 x 300 x 33 float16 54 by 8, 59 by 16, 3000 x 7000 x 3 bf16
# 146 by 16, 170 by 8. The fewest elements, the least share of a tile that has some, and the most warps.
ELEMENTS_OF_BLOCK, BYTES_OF_THREAD, MIN_ELEMENTS_OF_BLOCK, MIN_FILLED, MAX_WARPS = 16, 192, 3072, 0.75, 32
# Of ``small_block``: the fewest elements of an [N, K] by bytes of each, of a column, and of all for a multiprocessor;
# then the elements of a thread, by bytes and inputs, for so many warps, their registers, and the least share of a tile
# that has some.
MIN_ELEMENTS_OF_SMALL_BLOCK = {(4, 1): 1024, (4, 2): 400, (2, 2): 2048}
MIN_COLUMN_OF_SMALL_BLOCK, MIN_ELEMENTS_PER_SM = 16, 8192
# Of odd rows of a gradient of float32 that L2 does not hold: softmax's of 95119 x 6 x 105 263 us by threads (FlagGems,
# by programs, 242, H100).
MIN_SHORT_COLUMN_OF_SMALL_BLOCK = 5
MAX_ELEMENTS_OF_SMALL_BLOCK = {4: 5120, 2: MIN_ELEMENTS_OF_BLOCK}
SHAPES_OF_SMALL_BLOCK = {4: ((4, 16), (8, 16), (8, 20)), 2: ((4, 32), (8, 16))}
# Columns of float32 in pairs or vectors that a tile has whole rows of, and the longest that threads have whole.
MAX_TILED_ROW, MAX_COLUMN_OF_THREAD = 32, 128
REGISTERS_OF_SMALL_BLOCK, MIN_FILLED_OF_SMALL_BLOCK = {4: 96, 8: 80}, 0.55
# The fewest elements of a column that are read side by side, one to a load and several. Then how many elements a thread
# has, if those of one [N, K] are no more, and otherwise: softmax 400000 x 29 x 3 bf16 62.1 us with 8, 67.2 with 16,
# 8000 x 30 x 3 float32 5.54 and 5.72, the gradients of 300000 x 10 x 5 bf16 47.3 and 50.2, of 60000 x 60 x 4 36.1 and
# 37.3; of 5729 x 56 x 5, 14 to a thread, 9.37 with 8 and 8.74 with 16, softmax 60000 x 40 x 8 bf16 70.1 and 34.4. Where
# several are loaded together three vectors of 8: 60000 x 35 x 8 29.4 us, with 16 33.3, 100000 x 20 x 8 27.8 and 29.3,
# 6000 x 260 x 8 24.1 and 34.9, 6000 x 300 x 10 32.4 and 47.3; with 32 within 1 %. More of float64 was not timed (H100).
MIN_SIDE_BY_SIDE, MIN_VECTORS_SIDE_BY_SIDE = 3, 6
FEW_SIDE_BY_SIDE, ELEMENTS_SIDE_BY_SIDE, VECTORS_SIDE_BY_SIDE = 8, 16, 24
# Columns of such a program up to which two of them have registers at once, on sm_90; elsewhere half as many.
MAX_TIGHT_COLUMNS = 128


def short_columns(problem: Problem, limits: Limits, wide: bool = True) -> Configuration | None:
    """A thread has whole columns where it can: no exchange, and neighbours read what lies side by side. None if so many
    neighbours that memory is read by are more than a program can hold.

    Args:
        wide: whether columns of several threads may be of WIDE_WARPS.
    """
    M, N, K, size, inputs = problem
    block_n, registers = power_of_2(N), size // 8 + 1  # of an element
    most = MAX_WORDS // registers // inputs
    little = is_little(problem, limits)
    if little and N <= MAX_SHORT_OF_TINY:
        few = 8 if limits.sm_count * LITTLE // registers >= 2 * M * N * K else 16
        elements = min(block_n, few // registers)
        columns, warps = (1, max(1, min(4, power_of_2(M * K) // WARP))) if block_n == elements else (2, 1)
    elif (
        (little or limits.sm_count >= M * K) and K * size <= SECTOR_BYTES and N * K * size * inputs <= MAX_LITTLE_BYTES
    ):
        # Those of neighbours are in the same sectors, but L2 has them. By 9 programs of 4 columns 12 x 5681 x 3 bf16
        # takes 8.6 us (FlagGems 5.2, H100).
        elements, columns, warps = 8 // registers, 1, 1
    elif block_n <= most:
        # A vector of each input at least: softmax 262144 x 3 x 6 float32 15.1 us, with two 18.2.
        vector = VECTOR_BYTES // size
        if size == inputs == 2 and K % 2 == 1 and limits.sm_count * MAX_OF_HALF_VECTORS >= M * N * K:
            vector //= 2
        elements, columns, warps = max(block_n, vector), 1, 4
        if block_n == MAX_WORDS and M * K >= MANY_COLUMNS:
            warps = 8
        if is_of_two_threads(problem):
            elements, warps = block_n // 2, 4 if size == 8 else 8
        if size == 2 and K % 2 == 0:
            # Two columns to a thread, if it can hold them: the gradient of log_softmax 664 x 16 x 542 bf16 20.9 us so,
            # one by one 22.4, of 1000 x 10 x 602 float16 21.5 and 23.0, softmax 500 x 30 x 762 bf16 25.6 and 28.3
            # (H100).
            elements = max(elements, min(2 * block_n, most))
    else:  # of several threads
        elements, columns = most // 2, min(SECTOR_BYTES // size, power_of_2(K))
        warps = 4 if K * size >= SECTOR_BYTES else 1
    max_warps = MAX_SHORT_WARPS // registers if K * size <= SECTOR_BYTES else MAX_SHARED_WARPS
    tight = _tight_columns(problem, limits) if columns > 1 and size < 8 and wide else 0
    if tight:
        columns, elements, max_warps = tight, most, WIDE_WARPS
    elif columns > 1 and size < 8 and wide:
        # 24 bytes of log_softmax 20 x 720 x 3001 bf16 would spill, with 45 elements to a thread (sm_100, Triton 3.7).
        held = most if limits.capability[0] == 9 else most // 2
        few = most // 2 * WIDE_WARPS * WARP // block_n  # columns, with half as many elements to a thread
        for many in (*_wider(few), WIDE_COLUMNS // inputs, WIDE_COLUMNS // 2):
            programs = WIDE_PROGRAMS if many <= WIDE_COLUMNS else MAX_WIDE_PROGRAMS
            enough = many <= K and programs * limits.sm_count * many <= M * K
            if enough and many * block_n <= held * WIDE_WARPS * WARP:
                columns, max_warps = many, WIDE_WARPS
                elements = most // 2 if many <= few else held
                break
    warps = max(warps, columns * block_n // (elements * WARP))
    if warps > max_warps or K >= 2**30 or M * K + elements * warps * WARP >= 2**31:
        return None
    return Configuration("short", elements, warps)


def for_more_threads(problem: Problem, short: Configuration, limits: Limits) -> Configuration:
    """Whole columns to a thread, where too few threads would be on each multiprocessor."""
    M, N, K, size, inputs = problem
    elements = short.elements
    if size == 8 or is_little(problem, limits) or is_of_two_threads(problem):
        return short
    if inputs == 1 and elements > power_of_2(N):
        return short  # of two columns to a thread, which are loaded together
    least = MIN_SHARED[inputs]
    while elements > least and M * K * power_of_2(N) < FEW_THREADS[inputs] * limits.sm_count * elements:
        elements //= 2
    return short._replace(elements=elements)


def is_of_two_threads(problem: Problem) -> bool:
    M, N, K, size, inputs = problem
    long = K >= LONG_ODD_ROW and M * K >= MANY_COLUMNS and size < 8 and power_of_2(N) == MAX_WORDS
    short = K >= ODD_ROW and M * K >= MANY_SHORT_COLUMNS and size == 2 and power_of_2(N) == MAX_WORDS // 2
    doubles = K >= ODD_ROW_OF_FLOAT64 and M * K >= MANY_COLUMNS_OF_FLOAT64 and size == 8 and power_of_2(N) == 16
    return K % 2 == 1 and inputs == 1 and (long or short or doubles)


def _tight_columns(problem: Problem, limits: Limits) -> int:
    """As many as programs of WIDE_WARPS hold, where two of them run at once; 0 if those are not, or too few."""
    M, N, K, size, inputs = problem
    elements = MAX_WORDS // inputs
    columns, rows = elements * WIDE_WARPS * WARP // power_of_2(N), cdiv(N, power_of_2(cdiv(N, elements)))
    enough = columns <= K and MAX_WIDE_PROGRAMS * limits.sm_count * columns <= M * K
    timed = WIDE_COLUMNS // inputs < columns <= 2 * WIDE_COLUMNS and rows <= MAX_ROWS_OF_TIGHT[inputs]
    timed &= K % 2 == 1 or size == inputs == 2
    return columns if limits.capability[0] == 9 and enough and timed else 0


def _wider(few: int) -> list[int]:
    return [many for many in (2 * WIDE_COLUMNS, WIDE_COLUMNS) if many <= few]


def wide_pairs(problem: Problem, limits: Limits) -> Configuration | None:
    """Programs of WIDE_WARPS also for long columns that tiles load in pairs, if no program can have an [N, K].

    Tiles of 32 columns of float32 have 128 bytes of a row in five sectors, 64 256 in nine: softmax 3 x 251 x 44042 128
    us, by tiles 142, 8 x 300 x 10002 89 and 94, 20 x 150 x 6002 63.4 and 62.7. Gradients of 16 bits are held, where
    tiles read them twice: of 3 x 251 x 44042 float16 103 and 113, of 10 x 160 x 10002 bf16 47.3 and 56.9. Others gain
    neither: the gradient of 5 x 200 x 30002 float32 172 and 164, log_softmax 10 x 180 x 20002 bf16 85 and 77 (H100).
    """
    _, N, K, size, inputs = problem
    if K % 4 != 2 or size * inputs != 4 or block_as_it_lies(problem, limits) is not None:
        return None
    found = short_columns(problem, limits)
    if found is None or found.elements * found.warps * WARP // power_of_2(N) < WIDE_COLUMNS // inputs:
        return None
    return found


def side_by_side(problem: Problem, limits: Limits) -> Configuration | None:
    """Several [N, K] of rows no longer than a sector to a program, whose threads lie as memory does.

    By columns the threads of a warp read a line for each [N, K], of which there are WARP / K, and as many times as a
    column has elements: softmax 400000 x 29 x 3 bf16 245 us, side by side 62, 60000 x 13 x 13 float16 34.6 and 22.2,
    60000 x 40 x 8 bf16 54.3 and 34.4, 30000 x 90 x 10 60.6 and 43.9, the gradients of 30000 x 40 x 7 float32 47.6 and
    42.0, of 50000 x 30 x 3 float64 46.1 and 44.3. A tile for each [N, K] is half empty: softmax 60000 x 50 x 12 bf16
    66.6 us, side by side 55.1. Of few elements, by columns: 320512 x 3 x 13 bf16 30.4 us, side by side 27.5, 625000 x 4
    x 5 44.1 and 29.8, 240384 x 4 x 13 34.8 and 27.6, 357142 x 5 x 7 28.0 and 27.4; of rows that fill a sector: 40000 x
    40 x 8 float32 46.0 and 40.3, 40000 x 20 x 16 bf16 26.8 and 24.7, 30000 x 50 x 4 float64 41.2 and 38.6. Not of few
    elements that are loaded together: 1000000 x 3 x 4 bf16 31.2 us, by columns 22.5 (H100).
    """
    _, N, K, size, _ = problem
    if is_little(problem, limits) or K * size > SECTOR_BYTES:
        return None
    vec = math.gcd(K, VECTOR_BYTES // size)
    min_column = MIN_SIDE_BY_SIDE if vec == 1 else MIN_VECTORS_SIDE_BY_SIDE
    if min_column > N or N * K >= MIN_ELEMENTS_OF_BLOCK:
        return None
    elements = ELEMENTS_SIDE_BY_SIDE if vec == 1 else VECTORS_SIDE_BY_SIDE
    if size == 8 or cdiv(N, lanes_side_by_side(problem)) * vec <= FEW_SIDE_BY_SIDE:
        elements = FEW_SIDE_BY_SIDE
    warps = max(4, power_of_2(cdiv(N, elements) * power_of_2(K)) // WARP)
    found = Configuration("short", elements, warps, block_k=power_of_2(K))
    return found if launch_or_none(problem, found, limits) is not None else None


def vectors_of_columns(problem: Problem, divisor: int = 1) -> Configuration | None:
    """A thread has a vector of neighbours, or a part of one, all of each column; fewer if it cannot hold them. None if
    columns would be counted in more than 32 bits.
    """
    if problem.M * problem.K >= 2**30:
        return None
    elements = VECTOR_BYTES // problem.itemsize // divisor * power_of_2(problem.N)
    return Configuration("short", min(elements, MAX_WORDS // problem.inputs), 2)


def held_block(
    problem: Problem, max_registers: int, warps: int = WHOLE_WARPS, vec_bytes: int = VECTOR_BYTES
) -> Configuration | None:
    """A program for each [N, K]; None if its columns are not a power of two that a sector holds, or a thread would
    need more than ``max_registers`` for its elements.
    """
    _, N, K, size, inputs = problem
    vec = math.gcd(K, vec_bytes // size)
    elements = cdiv(N * K, warps * WARP * vec) * vec
    if power_of_2(K) != K or K * size > SECTOR_BYTES or elements * inputs * (size // 8 + 1) > max_registers:
        return None
    return Configuration("short", elements, warps, vec=vec)


def held_by_most_warps(problem: Problem, limits: Limits) -> Configuration | None:
    """The forward in place of groups, unless half of the multiprocessors would be idle."""
    nearly_one_wave = limits.sm_count // 2 < problem.M <= limits.sm_count
    return held_block(problem, MAX_REGISTERS_FOR_GROUP, MAX_WARPS) if problem.inputs == 1 and nearly_one_wave else None


def registers_for_group(problem: Problem) -> int:
    return MAX_WORDS if problem.itemsize == problem.inputs == 2 else MAX_REGISTERS_FOR_GROUP


def held_forward(problem: Problem) -> Configuration | None:
    """By 8 warps, with half a vector to a load, where all of it fits: softmax 48 x 4479 x 2 float32 and 300 x 4479 x 2
    take 4 % less than by 16 (H100).
    """
    half = VECTOR_BYTES // 2
    return held_block(problem, MAX_WORDS, WHOLE_WARPS // 2, half) if problem.itemsize < half else None


def is_better_held(problem: Problem, tiled: Split, limits: Limits) -> bool:
    """Whether few [N, K] of the forward would each be one tile of 8 warps, as long as a power of two: softmax 13 x 1107
    x 8 bf16 5.4 us so, held by as many warps 4.6, 20 x 2000 x 8 5.8 and 5.5, 100 x 1500 x 8 6.8 and 6.1, 5 x 3000 x 4
    5.1 and 4.8, 40 x 900 x 4 float32 4.5 and 4.3 (H100).
    """
    one_tile = tiled.programs == problem.M and tiled.warps == WHOLE_WARPS // 2
    return problem.inputs == 1 and one_tile and limits.sm_count >= problem.M


def is_half_empty(problem: Problem, tiled: Split, limits: Limits) -> bool:
    """Whether gradients of 16 bits are in tiles of 8 warps with 128 registers, as long as a power of two, of which as
    many warps would hold what there is by 64, so that four run at once: that of log_softmax 18990 x 1263 x 4 bf16 194.6
    us so, 210 by tiles (torch.compile 200), of softmax 9000 x 700 x 8 106.3 and 109.0, but 10000 x 1000 x 4 float16
    86.4 and 85.8, of log_softmax 4000 x 1263 x 4 float32 87.2 and 87.4 (H100). Not where all run at once.
    """
    if (problem.itemsize, problem.inputs) != (2, 2) or 2 * limits.sm_count >= problem.M:
        return False
    whole = tiled.block_k == problem.K  # others no program holds
    return whole and tiled.warps == WHOLE_WARPS // 2 and MAX_HALF_EMPTY * tiled.depth * tiled.lanes >= problem.N


def block_in_place_of_empty_tiles(problem: Problem, tiled: Split, limits: Limits) -> Configuration | None:
    """``block_as_it_lies`` where many tiles take longer, for elements that do not exist: log_softmax 7404 x 129 x 68
    bf16 281 us in tiles of 256 x 64, as it lies 124 (torch.compile 208, H100). None elsewhere, and where the blocks of
    a multiprocessor are more than L1 holds; by 16 warps 8 bytes of softmax 3000 x 135 x 200 would spill (sm_90, Triton
    3.6).
    """
    M, N, K, size, inputs = problem
    if size != 2 or MANY_BLOCKS_PER_SM * limits.sm_count > M:
        return None
    block = block_as_it_lies(problem, limits, MAX_WARPS_FOR_EMPTY)
    if block is None or block.warps > MAX_WARPS_FOR_EMPTY:
        return None
    if block.warps == MAX_WARPS_FOR_EMPTY:
        block = block._replace(elements=ELEMENTS_OF_BLOCK, registers=REGISTERS_OF_SMALL_BLOCK[block.warps])
    elements = cdiv(K, tiled.block_k) * tiled.block_k * tiled.lanes * tiled.depth
    tiles = PS_OF_TILE[tiled.warps >= MAX_WARPS_FOR_EMPTY, inputs] * elements + PS_OF_TILED[inputs] * N * K
    held = block.elements * block.warps * WARP >= N * K
    laid = (0 if held else PS_OF_BLOCK[inputs]) + PS_OF_LAID[inputs] * N * K
    whole_lines = K * size % (4 * SECTOR_BYTES) == 0
    if MAX_OF_EMPTY_TILES * elements <= N * K and (whole_lines or laid > MAX_SHARE_OF_TILED * tiles):
        return None
    at_once = limits.registers_per_sm // (block.registers * block.warps * WARP)
    return block if at_once * N * K * size * inputs <= limits.shared_bytes else None


def block_as_it_lies(problem: Problem, limits: Limits, max_warps: int = 16) -> Configuration | None:
    """A program for each [N, K], read as it lies, of which it holds the last part and reads what is before it again;
    None where that leaves multiprocessors idle, L1 does not hold columns of whole vectors for the second time, or a
    tile of any size is mostly empty.

    The gradients of 1444 x 588 x 39 bf16 take 65 us so, column by column in a loop 202 (FlagGems 178), of 400 x 700 x
    501 float16 375 and 594, softmax 1444 x 588 x 39 bf16 64 and 122, in whole vectors 1444 x 588 x 40 56 and 74, by
    threads that hold columns 1444 x 588 x 39 float32 82 and 215 (H200), 2000 x 300 x 33 64 and 155; as
    :mod:`.interleaved` 3000 x 7000 x 3 bf16 118 and 159, its gradient 146 and 235 (H100).
    """
    M, N, K, size, inputs = problem
    vec, block_bytes = VECTOR_BYTES // size, N * K * size * inputs
    if size == 8 or limits.sm_count > M or N * K < MIN_ELEMENTS_OF_BLOCK:
        return None
    if K % vec == 0 and 2 * block_bytes > limits.shared_bytes:
        return None
    warps, elements = 4 * inputs, ELEMENTS_OF_BLOCK
    while BYTES_OF_THREAD * WARP * warps < block_bytes and warps < max_warps:
        warps *= 2
    while warps * WARP * vec // math.lcm(vec, K) * math.lcm(vec, K) < MIN_FILLED * warps * WARP * vec:
        if warps == MAX_WARPS:
            return None
        warps *= 2
    # By 80 registers 8 bytes of softmax 3000 x 150 x 37 bf16 would spill, by 96 of log_softmax 1899 x 771 x 5.
    # Two of 32 warps would have 32 each, by which all spill, up to 740 bytes.
    registers = {4: 96 if K > 8 else 128, 8: 80}.get(warps, limits.registers_per_sm // (MAX_WARPS * WARP))
    # By 64 registers 104 bytes of the gradient of log_softmax 400 x 700 x 501 float16 would spill.
    tight = MAX_TIGHT_COLUMNS if limits.capability[0] == 9 else MAX_TIGHT_COLUMNS // 2
    if size == inputs == 2 and warps < MAX_WARPS and tight < K:
        elements, registers = 3 * vec, limits.registers_per_sm // (max(warps, 16) * WARP)
    found = Configuration("blocks", elements, warps, registers)
    return found if launch_or_none(problem, found, limits) is not None else None


def small_block(problem: Problem, limits: Limits) -> Configuration | None:
    """A program for each small [N, K], as it lies, if its columns are loaded by 4 bytes or less, or are float32 in rows
    of no whole sectors; None where it would read something twice, or all of it is little.

    Threads with columns of their own begin and end within sectors: the gradients of softmax 12000 x 48 x 41 float32
    142 us so, by programs 100, 20000 x 35 x 33 137 and 98, 8184 x 30 x 99 123 and 103, 8184 x 40 x 75 131 and 104, 500
    x 40 x 75 13.2 and 12.7, of log_softmax 6000 x 100 x 29 123 and 76, softmax 8000 x 72 x 41 111 and 70, 20000 x 33 x
    33 86 and 67, the gradient of 8184 x 40 x 75 bf16 64 and 59, of 9000 x 50 x 42 float16 54 and 45, of log_softmax
    9000 x 50 x 45 bf16 50 by 4 warps, by 8 61. In pairs the gradient of 12000 x 48 x 42 float32 142 and 102, softmax 91
    and 70, in vectors the gradient of 8000 x 70 x 60 148 and 139, of few elements that of 20000 x 24 x 17 44.1 and
    40.1, of more than MIN_ELEMENTS_OF_BLOCK, which more warps read once, log_softmax 6000 x 90 x 45 98 and 78, in
    vectors softmax 9000 x 28 x 52 49.5 and 42.5. Not the forwards of 16 bits: 9000 x 50 x 45 float16 43 and 49, 27309 x
    45 x 49 bf16 115 and 131 (H100).
    """
    M, N, K, size, inputs = problem
    vec = VECTOR_BYTES // size
    much = (size, inputs, K % 2) == (4, 2, 1) and M * N * K * size * inputs > limits.l2_bytes
    at_least = MIN_SHORT_COLUMN_OF_SMALL_BLOCK if much else MIN_COLUMN_OF_SMALL_BLOCK
    if (size, inputs) not in MIN_ELEMENTS_OF_SMALL_BLOCK or K * size <= SECTOR_BYTES or at_least > N:
        return None
    by_columns = math.gcd(K, vec)
    if size == 4:
        in_tile = MAX_TILED_ROW >= K and (by_columns == vec or N > MAX_COLUMN_OF_THREAD)
        if by_columns > 1 and (in_tile or K * size % SECTOR_BYTES == 0):
            return None
    elif by_columns * size > 4:
        return None
    at_least = MIN_ELEMENTS_OF_SMALL_BLOCK[size, inputs]
    if not at_least <= N * K < MAX_ELEMENTS_OF_SMALL_BLOCK[size] or limits.sm_count * MIN_ELEMENTS_PER_SM > M * N * K:
        return None
    for warps, elements in SHAPES_OF_SMALL_BLOCK[size]:
        if limits.capability[0] != 9:
            elements = min(elements, ELEMENTS_OF_BLOCK)
        found = Configuration("blocks", elements, warps, REGISTERS_OF_SMALL_BLOCK[warps])
        launched = launch_or_none(problem, found, limits)
        if not isinstance(launched, Blocks) or launched.looped:
            continue
        if launched.step >= MIN_FILLED_OF_SMALL_BLOCK * launched.block:
            return found
    return None


def is_gradient_of_vectors(problem: Problem) -> bool:
    """Whether a program for each [N, K] loads four elements or more of each input together, and a thread with whole
    columns fewer: the gradients of log_softmax 3000 x 24 x 20 bf16 7.0 us so, by threads 8.0, of softmax 20000 x 4 x 36
    float32 17.4 and 18.7; where both load four, 1558 x 2 x 132 float16 4.1 and 3.9 (H100).
    """
    _, N, K, size, inputs = problem
    vec = VECTOR_BYTES // size
    by_thread, by_program = math.gcd(K, max(vec // power_of_2(N), 1)), math.gcd(K, vec)
    bytes_moved = N * K * size * (inputs + 1)
    return inputs == 2 and by_program >= 4 and by_program > by_thread and bytes_moved >= MIN_BLOCK_BYTES
