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

# Columns (M * K) of 33 to 64 elements from which a program has 256 of them: two programs share fewer sectors.
# softmax 4 x 33 x 216585 bf16: 44 us, by 128 columns 46.6.
MANY_COLUMNS = 1 << 18
# K from which odd rows of such columns have two threads for each column.
# softmax 5 x 56 x 135919 bf16: 75 us, by one thread 82 (H100).
LONG_ODD_ROW = 1 << 15
# M * K and K from which odd rows of 16 bits have two threads for each column of 17 to 32 elements.
# log_softmax 1351 x 29 x 2871 float16: 199 us, by one thread 229.
MANY_SHORT_COLUMNS, ODD_ROW = 1 << 21, 1 << 11
# M * K and K from which odd rows of float64 have two threads for each column of 9 to 16 elements.
# log_softmax 56 x 16 x 15207: 81 us, by one thread 88 (H100).
MANY_COLUMNS_OF_FLOAT64, ODD_ROW_OF_FLOAT64 = 3 << 18, 12000
# Warps of a program of short columns, at most.
MAX_SHORT_WARPS = 32
# The same where a row of K is longer than a sector, so that programs share sectors.
# softmax 26 x 1079 x 317 float32: 49 us by 16 warps, in a loop 38.
MAX_SHARED_WARPS = 8
# Elements for each multiprocessor up to which a thread holds half a vector of each input of odd gradients of 16 bits.
# 30 x 2 x 5001 bf16: 3.94 us, by a vector 4.43; 8 x 3 x 9001: 3.74 and 3.77 (H100).
MAX_OF_HALF_VECTORS = 2400
# Threads to a multiprocessor, by inputs, below which twice as many threads share a column: one warp to a scheduler
# hides no latency.
# Forward 100 x 50 x 255 float16: 5.76 us by 773 threads, by 193 6.33 (H100).
FEW_THREADS = {1: 600, 2: 320}
# Elements of a column, by inputs, that each of these threads holds at least.
MIN_SHARED = {1: 16, 2: 8}
# Bytes of all inputs of an [N, K] up to which each of its columns has a program, in place of a group.
# softmax 3 x 5000 x 3 float32 (60 KB): 5.4 us, by groups 8.1; 5000 x 7 (140 KB): 7.0 and 5.8 (H100).
MAX_LITTLE_BYTES = 100 << 10
# Columns of a program of WIDE_WARPS, with several threads for each column. Rows that begin anywhere share their first
# and last sectors with other programs; wide programs share fewer.
# softmax 3 x 503 x 44043 float16: 166 us by 64 columns, by 16 265 (H100).
WIDE_COLUMNS = 64
# Such programs for each multiprocessor, at least.
WIDE_PROGRAMS = 2
# The same where a program has more than WIDE_COLUMNS, so that the programs do not all run at once.
# The gradient of 5 x 56 x 135919 float32: 172 us by 128 columns, by 32 227; 2 x 56 x 20001 bf16: 10.8 and 10.4 (H100).
MIN_WIDER_PROGRAMS = 4
# Warps of all these programs.
WIDE_WARPS = 16
# Rows of a thread, by inputs, up to which two programs of WIDE_WARPS run at once by 64 registers, so that each may have
# twice as many columns.
# log_softmax 2 x 160 x 131043 bf16 (40 rows): 84 us by 128 columns, by 64 107 (H100).
MAX_ROWS_OF_TIGHT = {1: 40, 2: 25}
# Bytes that a program of one [N, K] reads and writes, at least. 1520 programs start while memory moves 2.3 MB.
# The gradient of 40000 x 6 x 44 bf16 (1584 bytes): 29.2 us, by threads 31.5; 20000 x 8 x 16 float32 (1536 bytes): 16.5
# and 16.0 (H100).
MIN_BLOCK_BYTES = 1536
# Warps of a program that holds an [N, K] of rows within a sector, in place of a loop or a group.
# softmax 48 x 4479 x 2 float32: 5.4 us, by groups 8.8; 300 x 4479 x 2: 10.1, in a loop 13.3 (H100).
WHOLE_WARPS = 16
# Registers of a thread for elements in place of a group, at most. More were not timed: one multiprocessor moves it all.
MAX_REGISTERS_FOR_GROUP = 40
# Share of a gradient's tile that exists up to which a program holds only that. None between 0.69 and 0.97 was timed.
MAX_HALF_EMPTY = 0.7
# Estimate of tiles of 16 bits, in ps of 132 multiprocessors: an element of a tile, whether it exists or not, by
# (8 warps or more, inputs); an element that exists, by inputs.
# softmax 5000 x 70 x 68 float16: 69 us, by this 70 (H100).
PS_OF_TILE = {(True, 1): 1.0, (False, 1): 0.68, (True, 2): 0.92, (False, 2): 0.54}
PS_OF_TILED = {1: 0.6, 2: 1.38}
# The same of blocks as they lie, by inputs: a block that is not held as a whole; an element of a block.
# softmax 3000 x 140 x 72 bf16: 58 us, by this 59, in tiles 114 (H100).
PS_OF_BLOCK = {1: 2800, 2: 4000}
PS_OF_LAID = {1: 1.68, 2: 2.3}
# Warps of a block that takes the place of such tiles, at most.
MAX_WARPS_FOR_EMPTY = 8
# Such blocks for each multiprocessor, at least.
MANY_BLOCKS_PER_SM = 4
# Share of the tiles' estimated time that blocks may take. Rows of whole lines were not timed.
MAX_SHARE_OF_TILED = 0.97
# Share of the tiles that exists below which blocks need no estimate.
MAX_OF_EMPTY_TILES = 0.45
# Elements of a thread of a program that has an [N, K] as it lies.
ELEMENTS_OF_BLOCK = 16
# Bytes of an [N, K] to a thread above which the program has twice as many warps.
# softmax 3000 x 150 x 37 bf16: 44 us by 4 warps, by 8 55; 1444 x 1500 x 40: 176 by 16, by 8 184 (H100).
BYTES_OF_THREAD = 192
# Elements of such an [N, K], at least.
MIN_ELEMENTS_OF_BLOCK = 3072
# Share of a tile that a step fills, at least; with less the program has twice as many warps.
MIN_FILLED = 0.75
# Warps of a program, at most.
MAX_WARPS = 32
# Elements of an [N, K] of ``small_block``, at least, by (bytes of an element, inputs).
MIN_ELEMENTS_OF_SMALL_BLOCK = {(4, 1): 1024, (4, 2): 400, (2, 2): 2048}
# Elements of a column of it, at least.
MIN_COLUMN_OF_SMALL_BLOCK = 16
# Elements of all [N, K] for each multiprocessor, at least.
MIN_ELEMENTS_PER_SM = 8192
# Elements of a column, at least, of odd rows of a gradient of float32 that L2 does not hold.
# softmax's of 95119 x 6 x 105: 263 us by threads, by FlagGems' programs 242 (H100).
MIN_SHORT_COLUMN_OF_SMALL_BLOCK = 5
# Elements of an [N, K] from which ``small_block`` does not take it, by bytes of an element.
MAX_ELEMENTS_OF_SMALL_BLOCK = {4: 5120, 2: MIN_ELEMENTS_OF_BLOCK}
# (warps, elements of a thread) in the order in which they are tried, by bytes of an element.
SHAPES_OF_SMALL_BLOCK = {4: ((4, 16), (8, 16), (8, 20)), 2: ((4, 32), (8, 16))}
# K of float32 in pairs or vectors up to which a tile has whole rows.
MAX_TILED_ROW = 32
# Elements of a column of float32 in pairs up to which a thread may hold all of it.
MAX_COLUMN_OF_THREAD = 128
# Registers of a thread, by warps.
REGISTERS_OF_SMALL_BLOCK = {4: 96, 8: 80}
# Share of a tile that a step fills, at least.
MIN_FILLED_OF_SMALL_BLOCK = 0.55
# Elements of a column, at least, for several [N, K] side by side, where columns are loaded one by one.
# softmax 320512 x 3 x 13 bf16: 27.5 us, by columns 30.4 (H100).
MIN_SIDE_BY_SIDE = 3
# The same where several columns are loaded together.
# softmax 1000000 x 3 x 4 bf16: 31.2 us, by columns 22.5 (H100).
MIN_VECTORS_SIDE_BY_SIDE = 6
# Elements of a thread, where it has no more of one [N, K], and for all of float64.
# softmax 400000 x 29 x 3 bf16: 62.1 us, with 16 67.2 (H100).
FEW_SIDE_BY_SIDE = 8
# Elements of a thread that has more of one [N, K].
# The gradient of 5729 x 56 x 5 bf16: 8.74 us, with 8 9.37 (H100).
ELEMENTS_SIDE_BY_SIDE = 16
# The same where several columns are loaded together: three vectors of 8.
# softmax 6000 x 300 x 10 bf16: 32.4 us, with 16 47.3 (H100).
VECTORS_SIDE_BY_SIDE = 24
# K of a gradient of 16 bits up to which two programs of ``block_as_it_lies`` have registers at once on sm_90; elsewhere
# half as many columns.
MAX_TIGHT_COLUMNS = 128


def short_columns(problem: Problem, limits: Limits, wide: bool = True) -> Configuration | None:
    """A thread has whole columns where it can: threads exchange nothing, and neighbours read what lies side by side.
    None if a program cannot hold as many neighbours as memory is read by.

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
        # Neighbours are in the same sectors, but L2 has them.
        elements, columns, warps = 8 // registers, 1, 1
    elif block_n <= most:
        # A vector of each input at least.
        vector = VECTOR_BYTES // size
        if size == inputs == 2 and K % 2 == 1 and limits.sm_count * MAX_OF_HALF_VECTORS >= M * N * K:
            vector //= 2
        elements, columns, warps = max(block_n, vector), 1, 4
        if block_n == MAX_WORDS and M * K >= MANY_COLUMNS:
            warps = 8
        if is_of_two_threads(problem):
            elements, warps = block_n // 2, 4 if size == 8 else 8
        if size == 2 and K % 2 == 0:
            # Two columns to a thread, if it can hold them: softmax 500 x 30 x 762 bf16 25.6 us, one by one 28.3 (H100).
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
            programs = WIDE_PROGRAMS if many <= WIDE_COLUMNS else MIN_WIDER_PROGRAMS
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
    """The columns that programs of WIDE_WARPS hold where two of them run at once; 0 if those are not, or too few."""
    M, N, K, size, inputs = problem
    elements = MAX_WORDS // inputs
    columns, rows = elements * WIDE_WARPS * WARP // power_of_2(N), cdiv(N, power_of_2(cdiv(N, elements)))
    enough = columns <= K and MIN_WIDER_PROGRAMS * limits.sm_count * columns <= M * K
    timed = WIDE_COLUMNS // inputs < columns <= 2 * WIDE_COLUMNS and rows <= MAX_ROWS_OF_TIGHT[inputs]
    timed &= K % 2 == 1 or size == inputs == 2
    return columns if limits.capability[0] == 9 and enough and timed else 0


def _wider(few: int) -> list[int]:
    return [many for many in (2 * WIDE_COLUMNS, WIDE_COLUMNS) if many <= few]


def wide_pairs(problem: Problem, limits: Limits) -> Configuration | None:
    """Programs of WIDE_WARPS also for long columns that tiles load in pairs, if no program can have an [N, K].

    Tiles of 32 columns of float32 have 128 bytes of a row in five sectors; 64 columns have 256 bytes in nine. Tiles
    read gradients of 16 bits twice; these programs hold them. Gradients of float32 and forwards of 16 bits gain
    nothing.

    softmax 3 x 251 x 44042 float32: 128 us, in tiles 142; 20 x 150 x 6002: 63.4 and 62.7 (H100).
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

    By columns the threads of a warp read a line for each of WARP / K [N, K], as often as a column has elements. A tile
    for each [N, K] is half empty. Few elements that are loaded together are faster by columns.

    softmax 400000 x 29 x 3 bf16: 62 us, by columns 245; 60000 x 50 x 12: 55.1, in tiles 66.6 (H100).
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
    """The forward in place of groups, unless half of the multiprocessors would be idle.

    softmax 88 x 4766 x 8 bf16: 14.1 us, by groups in a loop 20.3; 40 x 4766 x 8: 10.5, by groups that hold them 8.9
    (H100).
    """
    nearly_one_wave = limits.sm_count // 2 < problem.M <= limits.sm_count
    return held_block(problem, MAX_REGISTERS_FOR_GROUP, MAX_WARPS) if problem.inputs == 1 and nearly_one_wave else None


def registers_for_group(problem: Problem) -> int:
    return MAX_WORDS if problem.itemsize == problem.inputs == 2 else MAX_REGISTERS_FOR_GROUP


def held_forward(problem: Problem) -> Configuration | None:
    """By 8 warps, with half a vector to a load, where all of it fits.

    softmax 48 x 4479 x 2 float32: 4 % less than by 16 warps (H100).
    """
    half = VECTOR_BYTES // 2
    return held_block(problem, MAX_WORDS, WHOLE_WARPS // 2, half) if problem.itemsize < half else None


def is_better_held(problem: Problem, tiled: Split, limits: Limits) -> bool:
    """Whether few [N, K] of the forward would each be one tile of 8 warps, as long as a power of two.

    softmax 13 x 1107 x 8 bf16: 4.6 us held by as many warps, in tiles 5.4; 20 x 2000 x 8: 5.5 and 5.8 (H100).
    """
    one_tile = tiled.programs == problem.M and tiled.warps == WHOLE_WARPS // 2
    return problem.inputs == 1 and one_tile and limits.sm_count >= problem.M


def is_half_empty(problem: Problem, tiled: Split, limits: Limits) -> bool:
    """Whether gradients of 16 bits are better held by 8 warps than in tiles of 8 warps, as long as a power of two.

    Tiles take 128 registers. What exists takes 64, so that four programs run at once. Not where all run at once.

    The gradient of log_softmax 18990 x 1263 x 4 bf16: 194.6 us, in tiles 210; of softmax 10000 x 1000 x 4 float16: 86.4
    and 85.8 (H100).
    """
    if (problem.itemsize, problem.inputs) != (2, 2) or 2 * limits.sm_count >= problem.M:
        return False
    whole = tiled.block_k == problem.K  # others no program holds
    return whole and tiled.warps == WHOLE_WARPS // 2 and MAX_HALF_EMPTY * tiled.depth * tiled.lanes >= problem.N


def block_in_place_of_empty_tiles(problem: Problem, tiled: Split, limits: Limits) -> Configuration | None:
    """``block_as_it_lies`` where many tiles take longer, for elements that do not exist. None elsewhere, and where L1
    does not hold the blocks of a multiprocessor.

    By 16 warps 8 bytes of softmax 3000 x 135 x 200 would spill (sm_90, Triton 3.6).
    log_softmax 7404 x 129 x 68 bf16: 124 us, in tiles of 256 x 64 281 (H100).
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
    """A program for each [N, K], read as it lies. It holds the last part and reads what is before it again.

    None where that leaves multiprocessors idle, where L1 does not hold columns of whole vectors for the second time, or
    where a tile of any size is mostly empty.

    The gradient of 1444 x 588 x 39 bf16: 65 us, column by column in a loop 202; softmax 1444 x 588 x 39 float32: 82, by
    threads that hold columns 215 (H200).
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
    of no whole sectors. None where it would read something twice, or all of it is little.

    Threads with columns of their own begin and end within sectors. Forwards of 16 bits gain nothing.

    The gradient of log_softmax 6000 x 100 x 29 float32: 76 us, by threads 123; of softmax 500 x 40 x 75: 12.7 and 13.2
    (H100).
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
    columns fewer.

    The gradient of log_softmax 3000 x 24 x 20 bf16: 7.0 us, by threads 8.0; where both load four, softmax 1558 x 2 x
    132 float16: 4.1 and 3.9 (H100).
    """
    _, N, K, size, inputs = problem
    vec = VECTOR_BYTES // size
    by_thread, by_program = math.gcd(K, max(vec // power_of_2(N), 1)), math.gcd(K, vec)
    bytes_moved = N * K * size * (inputs + 1)
    return inputs == 2 and by_program >= 4 and by_program > by_thread and bytes_moved >= MIN_BLOCK_BYTES
