# SPDX-License-Identifier: Apache-2.0
"""What a launch of a cumsum takes, about: plain numbers. The one of the lowest estimate is the default."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP, power_of_2
from .launches import (
    Alone,
    Configuration,
    Flat,
    Interleaved,
    Problem,
    Shared,
    Stacked,
    at_once,
    few_from_memory,
    launch,
    resident_programs,
    vector,
)

# Fitted to 272 launches of 99 problems on an H200: the one of a problem's lowest estimate took at most 1.064 times as
# long as the fastest, 1.004 times on the average.
# A launch, and what is before and after its loop; a second launch, which waits for the first, and with PDL has started
# by then: 1 x 175128 int64 takes 6.45 us in chunks, by programs that share a block 7.99, 1 x 134366 uint8 4.94 and
# 5.10, 5 x 1826 x 51 float16 7.94, in segments 9.39. PDL saves about 1.1 us; but where that says so by half a
# microsecond or less, chunks gain nothing: 1 x 197526 float32 5.44 and 5.41 (H100).
LAUNCH_US, SECOND_LAUNCH_US, SECOND_LAUNCH_WITH_PDL_US = 2.0, 2.0, 1.5
# A step of a program: the latency of its loads, then the elements of a thread one after the other. Each element of a
# column is a load of its own: 512 x 3 bfloat16 along 0 takes 3.4 us with 16 elements in each thread of 4 warps, 3.2
# with 4 in 16 warps.
LOAD_US, ELEMENT_US, COLUMN_ELEMENT_US = 0.5, 0.007, 0.03
# More of columns of their own of many rows in programs of several warps, of which a multiprocessor has one: 512 x 30 x
# 12 bfloat16 takes 4.03 us in 128 of two warps, 3.66 in 256 of one, 3.60 in segments (H100).
UNIT_WARPS_US = 0.1
# Of few columns as they lie: what a thread divides by K before its loads, and an element. 185 x 5 bfloat16 takes 3.13
# us in one warp with 40 elements to a thread, 2.88 in two with 20, 2.48 in segments, 1 x 58 x 4 int64 2.72, in segments
# 2.30 (H200). The first of 8 bytes twice: 91 x 27 x 5 int64 3.55, in segments 3.06 (H100).
INTERLEAVED_US, INTERLEAVED_ELEMENT_US = 0.2, 0.014
# Each tile after the first of a row that a warp has for itself: 16 x 611 float32 takes 3.4 us with 5 tiles to a warp,
# 3.0 in 4 warps with 2 (H200). More in rows of 2 bytes that have edges, where a multiprocessor has so few of them:
# 240 x 402 float16 3.52 us by a warp for each row, by two with a tile each 3.23 (H100). Others were not timed.
UNIT_TILE_US, EDGES_TILE_US, EDGES_ROWS = 0.1, 0.2, 2
# The exchange of sums between the warps of a program, and its share of each warp, for rows and for columns; half of it
# where they scan one tile at once: 100 x 1024 float32 2.88 us in 8 warps, in 4 with two tiles 3.03 (H200).
SYNC_US, SYNC_ROW_WARP_US, SYNC_COLUMN_WARP_US = 0.1, 0.015, 0.018
# Of few columns as they lie a thread has a sum of each: for each of them, of 64 bits four times as long. 66 x 196 x 6
# float32 takes 4.1 us in 4 warps, in segments 3.7, 478 x 3791 x 5 int32 81 and 67, float64 91 and 66; but 347 x 1385 x
# 5 float32 16.2 and 18.1, 676 x 30 x 3 in a single warp 3.2 and 3.4 (H100).
SYNC_INTERLEAVED_WARP_US = 0.009
# The exchange between programs: of each step, of each warp, and for columns of each word that a program reads. 2**28
# float32 takes 2.63 us a step with 4 warps, 2.83 with 8, 3.15 with 16, of which 2.0 us move bytes. The first exchange
# takes longer, by each program of the group: 196560 float32 take 5.6 us in 192 programs, 5.2 in 96 of twice as many
# warps.
EXCHANGE_US, EXCHANGE_WARP_US, EXCHANGE_WORD_US = 0.55, 0.05, 0.0015
FIRST_EXCHANGE_US, FIRST_MEMBER_US = 1.4, 0.003
# Sums of int64 are two words, of which the second takes no latency of its own (H100): 130 x 16384 int32 takes 16.7 us
# by four programs for each row, 120 x 16384 16.4, by two of twice as many warps 17.6, and 3 x 5 x 1597 x 5 int16 along
# 2, whose tiles have sums of int32, 5.2 by 13 programs of 8 warps for each block, in chunks 6.8.
EXCHANGE_OF_TWO_WORDS = 1.5
# Of rows in several steps, where a program has a multiprocessor to itself: none moves bytes while it computes. 100 x
# 20000 float32 takes 11.3 us in two steps of 16 warps, by five programs for each row 10.8 (H100).
LONE_STEPS_US = 1.0
# What a multiprocessor moves and issues in a microsecond; microseconds of a program (46 x 712 x 21 takes 5.4 us in
# 4094 programs, 4.3 in 2047); share of the shorter of the two that the longer does not hide.
BYTES_PER_US, INSTRUCTIONS_PER_US, PROGRAM_US, NOT_HIDDEN = 32500, 200000, 0.1, 0.03
# What it moves where others have nothing to do, of one row whose loads are issued all at once: 16384 float16 take 4.06
# us in one program of 16 warps, 4.3 to 4.4 by 16 programs that share the row, 4.4 to 4.7 by fewer or larger ones
# (H100). Nor have others of few rows: 8 x 8192 float32 takes 3.96 us in a program for each, 4.65 in 16. Not of more:
# 46 x 13962 float32 6.72 in a program for each, 6.44 by two.
ALONE_BYTES_PER_US, FEW_ALONE = 65000, 8
# More of floating point of up to 4 bytes that are no longer than this, in elements and bytes, of so many elements in
# all. By programs that share a row, and alone (H100): 18 x 8480 float32 5.15 and 4.41 us (FlagGems 4.86), 24 x 9001
# 5.32 and 5.05, 24 x 12000 5.40 and 5.06, 32 x 12001 5.82 and 5.51, 50 x 12001 6.83 and 6.24, 18 x 16960 bf16 5.15 and
# 4.96; but 12 x 16000 float32 5.07 and 5.17, 12 x 24001 bf16 5.27 and 5.38, 18 x 6000 float64 5.42 and 5.89, 16 x 5192
# int64 5.56 and 5.84. Of 40 x 9000 float32 and more rows they are alone by the estimate of all rows.
SOME_ALONE, SOME_ALONE_ELEMENTS, SOME_ALONE_BYTES, ALL_ALONE_ELEMENTS = 50, 16960, 49152, 50 * 12288
# Instructions for an element, and for a vector of a row or of columns; for 8 bytes twice as many.
ELEMENT_INSTRUCTIONS, ROW_INSTRUCTIONS, COLUMN_INSTRUCTIONS = 4, 40, 10
# For an element of rows as they lie in memory, whose sums begin again with each row (counted, not timed).
FLAT_INSTRUCTIONS = 22
# For an element of few columns as they lie, in whole vectors and else (counted, not timed).
INTERLEAVED_INSTRUCTIONS = {True: 12, False: 25}
# For an element of several [N, K] of few columns, and for each word that a thread scans across a warp, two of a column:
# 205085 x 16 x 8 bfloat16 47.1 us with two vectors to a thread, with one 74.4 (H100).
STACKED_INSTRUCTIONS, STACKED_WORD_INSTRUCTIONS = 20, 25
# For an element of the first row of a segment of columns, which is a vector, scanned across the warp, and for each of
# the warps: 16384 x 256 x 8 float16 68.2 us by 8 warps of one row to a thread, by 4 of two 50.3 (H100).
UNIT_SCAN_INSTRUCTIONS, WARP_SCAN_INSTRUCTIONS = 25, 3
# Cache lines that the loads and stores of a multiprocessor touch in a microsecond: 90557 x 416 x 4 float16 along 1
# takes 561 us with 16 rows to a thread and 8 lanes to a warp.
LINES_PER_US = 1250
# Of several [N, K] to a program half as many, whose threads are further apart than a vector: 20000 x 40 x 5 float32
# 22.7 us, one to a program 17.8 (H100).
STACKED_LINES = 2
# Memory is read in sectors. Of columns that are no whole lines it also takes so many bytes more for each piece:
# 8192 x 4096 float32 along 0 98 us with pieces of 32 bytes, 80 with 64. Programs with columns of their own drift apart,
# so that what two share is read and written again: 61 x 1024 x 2483 bfloat16 396 us, in segments 274.
PIECE_BYTES, DRIFT_STEPS = 10, 32
# Chunks are read twice. Where L2 does not keep what was read, few rows of 8 bytes take as long to read and to add up as
# all else: 40000003 float64 351 us in chunks, shared 310, int64 347 and 327, 12000000 int64 114 and 95, 4 x 10000001
# float64 352 and 298. Not of a narrower input: 40000003 int32 241 and 290, bool 164 and 241 (H100).
SUMMED, SUMMED_FROM_MEMORY = 0.5, 1.0
# Registers of a thread, and for each of its elements (of 4 bytes) in rows and in columns; for each row of columns that
# is added up as it is stored; and for those of many rows, each with an address and a mask. More of 8 bytes: 506 x
# 131072 int32 has 3 of its programs of 8 warps at once, 80 registers to a thread, and takes 502 us (H100), 416
# upstream's; 2571 x 14960 float64 has as many and takes 224, by 16 warps, of which one program runs at once, 265.
REGISTERS, ROW_REGISTERS, COLUMN_REGISTERS = 14, 1.25, 1.6
WIDE_ROW_REGISTERS, INTEGER_COLUMN_REGISTERS = 2, 2.4
STORED_ROW_REGISTERS, MANY_ROWS, MANY_ROWS_REGISTERS = 1.5, 16, 2.5
# More for segments of columns in several steps, unless they have many rows: 975 x 851 x 3 float16 57 with 4 rows in 4
# steps, 26 with 8 rows in one.
STEP_REGISTERS = 25
# Programs of a multiprocessor move while others wait: so many programs, with so many bytes, hide all.
MAX_OVERLAP, OVERLAP_BYTES = 8, 8192


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: what all programs move and issue, and what one of them waits for."""
    M, N, K, size, integer, _ = problem
    found = launch(problem, configuration, limits)
    wide, tile = 2 if size == 8 else 1, configuration.elements * found.depth
    vec = _neighbours(problem, configuration) if K == 1 and not isinstance(found, Flat) else configuration.elements
    accesses = 1
    if K > 1:
        vec = min(vec, vector(problem)[0])
        accesses = configuration.elements // vec
    instructions = ELEMENT_INSTRUCTIONS + (ROW_INSTRUCTIONS if K == 1 else COLUMN_INSTRUCTIONS) / vec
    if isinstance(found, Flat):
        instructions = FLAT_INSTRUCTIONS
    if isinstance(found, Interleaved):
        instructions, accesses = INTERLEAVED_INSTRUCTIONS[N * K % found.vec == 0], K
    if isinstance(found, Stacked):
        words = 2 * power_of_2(K) + 1
        instructions = STACKED_INSTRUCTIONS + STACKED_WORD_INSTRUCTIONS * words / configuration.elements
        accesses = configuration.elements // found.width
    if K > 1 and configuration.kernel == "segments" and _has_rows_in_vectors(configuration):
        instructions += (UNIT_SCAN_INSTRUCTIONS + WARP_SCAN_INSTRUCTIONS * found.warps) / found.depth
    issues = found.programs * found.warps * WARP * found.steps * tile * wide * instructions
    # Of each multiprocessor.
    active = min(limits.sm_count, found.programs)
    bandwidth = float(BYTES_PER_US)
    if K == 1 and found.steps == 1 and _has_bandwidth_left(problem):
        bandwidth = min(BYTES_PER_US * limits.sm_count / active, ALONE_BYTES_PER_US)
    moved = _bytes(problem, configuration, found.steps) / bandwidth
    requests = 2 * found.programs * found.steps * found.depth * found.warps * accesses * _lines(problem, configuration)
    requests *= STACKED_LINES if isinstance(found, Stacked) else 1
    issued = max(issues / INSTRUCTIONS_PER_US, found.programs * PROGRAM_US, requests / LINES_PER_US)
    work = (max(moved, issued) + NOT_HIDDEN * min(moved, issued)) / active
    if K == 1:
        # Elements of a thread that are no neighbours are scanned across the warp each by themselves, integers of 8
        # bytes in two words: 2 x 8 x 95 int32 takes 3.3 us by a warp for each row.
        words = 2 if integer and size == 8 and configuration.kernel == "units" and tile > vec else 1
        step = tile * wide * ELEMENT_US * (2 if isinstance(found, Flat) else max(4 // vec, 1) * words)
        few_edges = size == 2 and vector(problem)[1] and EDGES_ROWS * limits.sm_count >= M
        tile_us = EDGES_TILE_US if few_edges else UNIT_TILE_US
        step += (found.depth - 1) * tile_us if configuration.kernel == "units" else 0
    else:
        units = configuration.kernel == "units"
        step = tile * wide * (ELEMENT_US if units else COLUMN_ELEMENT_US)
        lone = units and found.warps > 1 and found.depth > MANY_ROWS and found.programs <= limits.sm_count
        step += UNIT_WARPS_US if lone else 0
        if isinstance(found, Interleaved | Stacked):
            step = wide * (INTERLEAVED_US + tile * INTERLEAVED_ELEMENT_US)
    if isinstance(found, Shared):
        exchange = EXCHANGE_US + EXCHANGE_WARP_US * found.warps
        exchange += 0 if K == 1 else EXCHANGE_WORD_US * found.group * found.lanes
        exchange *= EXCHANGE_OF_TWO_WORDS if size == 8 and integer else 1
        first = FIRST_EXCHANGE_US + FIRST_MEMBER_US * found.group
        return LAUNCH_US + LOAD_US + first + work + found.steps * (step + exchange)
    if configuration.kernel != "units":
        per_warp = SYNC_ROW_WARP_US if K == 1 else SYNC_COLUMN_WARP_US * wide
        if isinstance(found, Interleaved | Stacked):
            per_warp = SYNC_INTERLEAVED_WARP_US * power_of_2(K) * wide**2
        # Not of int64, whose scan takes two words through each exchange: 1580 x 512 int32 6.8 us in 8 warps, 6.0 in 4
        # with two tiles (H100).
        one_scan = isinstance(found, Alone) and at_once(problem, found) and not (integer and size == 8)
        step += (SYNC_US / 2 if one_scan else SYNC_US) + per_warp * found.warps if found.warps > 1 else 0
    # Chunks of rows load a step ahead.
    step += LOAD_US / (2 if configuration.kernel == "chunks" and K == 1 else 1)
    registers = configuration.registers or _registers(problem, configuration, found.steps)
    programs = found.programs / limits.sm_count
    resident = min(resident_programs(registers, found.warps, limits) // limits.sm_count, max(math.ceil(programs), 1))
    overlap = max(min(resident, MAX_OVERLAP, resident * tile * size * found.warps * WARP / OVERLAP_BYTES), 1)
    alone = LAUNCH_US + (LONE_STEPS_US if K == 1 and resident == 1 < found.steps else 0)
    alone += _overlapped(work, step, found.steps, programs, resident, overlap)
    if isinstance(found, Alone | Flat | Interleaved | Stacked):
        return alone
    # The first launch reads, and adds up.
    again = SUMMED_FROM_MEMORY if few_from_memory(problem, limits) else SUMMED
    second = SECOND_LAUNCH_WITH_PDL_US if limits.capability >= (9, 0) else SECOND_LAUNCH_US
    return alone + second + again * work + (found.steps - 1) * LOAD_US / overlap + 2 * LOAD_US


def _has_rows_in_vectors(columns: Configuration) -> bool:
    """Whether a warp has several rows, in vectors."""
    return columns.elements > 1 and columns.lanes < WARP * columns.elements


def _has_bandwidth_left(problem: Problem) -> bool:
    """Whether rows are so few that the multiprocessors that have one take in more than their share."""
    M, N, _, size, integer, _ = problem
    short = N <= SOME_ALONE_ELEMENTS and N * size <= SOME_ALONE_BYTES and M * N <= ALL_ALONE_ELEMENTS
    return M <= FEW_ALONE or (M <= SOME_ALONE and short and size <= 4 and not integer)


def _neighbours(problem: Problem, configuration: Configuration) -> int:
    """Elements of a row that a thread has together: as many as it loads at once, of a narrower input more than it
    stores. 13835 x 48 bool takes 5.5 us with two of them, with four 4.9 (H200)."""
    vec, unaligned = vector(problem)
    if unaligned or problem.narrower == 1:
        return vec
    loaded = math.gcd(problem.N, VECTOR_BYTES // problem.input_size)
    return max(min(loaded, configuration.elements), vec)


def _lines(problem: Problem, configuration: Configuration) -> int:
    """Of memory, that the units of a warp are in: those are apart by a thread's rows."""
    _, _, K, size, *_ = problem
    kernel, elements, lanes, depth, *_ = configuration
    if K == 1 or kernel == "units":
        return 1
    if kernel in ("interleaved", "stacked"):
        return math.ceil(elements * WARP * size / LINE_BYTES)
    units = max(elements * WARP // lanes, 1)
    return min(units, math.ceil(units * depth * K * size / LINE_BYTES))


def _registers(problem: Problem, configuration: Configuration, steps: int) -> int:
    """Of a thread, about. Columns of their own are added up as they are stored; of segments all sums are kept."""
    _, _, K, size, integer, _ = problem
    kernel, elements, _, depth, *_ = configuration
    tile = elements * depth * (2 if size == 8 else 1)
    if K == 1:
        per_element = WIDE_ROW_REGISTERS if size == 8 else ROW_REGISTERS
        return REGISTERS + int(tile * per_element / (2 if kernel == "units" else 1))
    if kernel in ("interleaved", "stacked"):
        return REGISTERS + 2 * tile + (STEP_REGISTERS if steps > 1 else 0)
    if kernel == "units":
        return REGISTERS + int(depth * (max(elements * size / 4, 1) + STORED_ROW_REGISTERS))
    per_element = INTEGER_COLUMN_REGISTERS if integer and size == 8 else COLUMN_REGISTERS
    of_steps = STEP_REGISTERS if steps > 1 and elements == 1 and depth <= MANY_ROWS else 0
    return REGISTERS + of_steps + int(tile * per_element + max(depth - MANY_ROWS, 0) * MANY_ROWS_REGISTERS)


def _bytes(problem: Problem, configuration: Configuration, steps: int) -> float:
    """That are moved. A warp of columns reads a piece of each row, or of neighbouring rows if those are all of K."""
    M, N, K, size, *_ = problem
    kernel, elements, lanes, depth, *_ = configuration
    read, elements_moved = problem.input_size, M * N * K
    if K == 1 or kernel in ("interleaved", "stacked"):
        return elements_moved * (read + size)
    if lanes >= K and kernel != "units":
        # What a sector has of the rows of a thread is in the cache once one of them is read, and is written by each.
        rows = 1 if elements > 1 else depth
        return M * N * (K * read + max(K * size, min(rows * K * size, SECTOR_BYTES)))
    if lanes == 1:
        # Programs of a column each are few, and begin together: each reads what sectors have of a row.
        return elements_moved * (min(K * read, SECTOR_BYTES) + size)
    return elements_moved * sum(_of_pieces(problem, configuration, steps, each) for each in (read, size))


def _of_pieces(problem: Problem, configuration: Configuration, steps: int, size: int) -> float:
    """Bytes moved for each element of ``size`` of a warp's pieces of rows and a program's, whose warps go on together
    only where they share the columns. Of a narrower input pieces are smaller: 100 x 1000 x 40 uint8 takes 23.9 us by 4
    columns, of which each sector is read eight times, by 8 18.5 (H100)."""
    K = problem.K
    kernel, elements, lanes, *_ = configuration
    warp, program = min(lanes, elements * WARP, K) * size, min(lanes, K) * size
    more: float = PIECE_BYTES if K * size % SECTOR_BYTES == 0 else SECTOR_BYTES
    if kernel == "units":
        more, program = more * (1 + min(steps / DRIFT_STEPS, 2)), warp
    most = 4 * problem.size // size
    return size * (1 + sum(min(more / piece, most) / 2 for piece in (warp, program)))


def _overlapped(moved: float, step: float, steps: int, programs: float, resident: int, overlap: float) -> float:
    """Of a multiprocessor's ``programs``, of which ``resident`` run at once: the first from its begin to its end, and
    the others, which move while others wait. One by one they do not. If all run at once, they begin together.
    """
    programs, per_program = max(programs, 1), moved / max(programs, 1)
    whole = math.ceil(programs) if programs < 4 else programs
    if whole <= resident:
        return step + (steps - 1) * step / overlap + per_program * whole
    waited = (whole / resident - 1) * steps * step
    return steps * step + ((per_program * whole) ** overlap + waited**overlap) ** (1 / overlap)
