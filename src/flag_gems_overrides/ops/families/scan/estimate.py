# SPDX-License-Identifier: Apache-2.0
"""About how long a launch of a cumsum takes: plain numbers. The launch of the lowest estimate is the default."""

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
    is_in_l2,
    launch,
    resident_programs,
    vector,
)

# Chosen among 1431 launches of 252 problems on an H100 and an H200, which were also fitted to: the launch of the lowest
# estimate took 1.018 times as long as a problem's fastest (geometric mean).

# Microseconds of a launch, with what is before and after its loop.
LAUNCH_US = 2.0
# Microseconds of a second launch, which waits for the first. 1 x 175128 int64: 6.45 us in chunks, shared 7.99.
# Without PDL: that of one with PDL and the 1.1 us that PDL saves. Not timed on other devices.
SECOND_LAUNCH_US = 2.6
# The same with PDL, where it has started by then. PDL saves about 1.1 us, but chunks that are better by half a
# microsecond or less gain nothing: 1 x 197526 float32 5.44 us, shared 5.41 (H100).
SECOND_LAUNCH_WITH_PDL_US = 1.5
# Microseconds of a step of a program: the latency of its loads.
LOAD_US = 0.5
# Microseconds until a program begins where another ends.
WAVE_US = 0.2
# Microseconds of each element of a thread in a step: a thread adds one after the other.
ELEMENT_US = 0.007
# The same of columns, where each element is a load of its own.
# 512 x 3 bfloat16 along 0: 3.4 us with 16 elements to a thread of 4 warps, 3.2 with 4 in 16 warps.
COLUMN_ELEMENT_US = 0.03
# More microseconds for units of many rows of columns in several warps, with one program to a multiprocessor.
# 512 x 30 x 12 bfloat16: 4.03 us in 128 programs of two warps, 3.66 in 256 of one (H100).
UNIT_WARPS_US = 0.1
# Microseconds to fetch the code of each row of a thread of columns: each is loaded and stored by its own instructions.
# Set, not fitted. 32 x 2 float16 along 0: 3.20 us with 32 rows to a thread, with one 2.81 (H100s).
ROW_CODE_US = 0.002
# Microseconds of few columns as they lie, before the loads: a thread divides by K. Of 8 bytes twice as long.
# 1 x 58 x 4 int64: 2.72 us, in segments 2.30 (H200).
INTERLEAVED_US = 0.2
# Microseconds of each of their elements.
INTERLEAVED_ELEMENT_US = 0.014
# Microseconds of each tile after the first of a row that a warp has for itself.
# 16 x 611 float32: 3.4 us with 5 tiles to a warp, 3.0 in 4 warps with 2 (H200).
UNIT_TILE_US = 0.15
# The same of rows of 2 bytes with edges. 240 x 402 float16: 3.52 us by a warp for each row, 3.23 by two (H100).
EDGES_TILE_US = 0.2
# The same of a row of int64 sums that several warps have in one step, where each multiprocessor has one row at most:
# two words are scanned across a warp for each tile.
# 1 x 1029 int64: 3.57 us with 5 tiles to each of 4 warps, 3.31 with 3 to each of 8 (H200).
INTEGER_TILE_US = 0.06
# Such rows for each multiprocessor, at most.
EDGES_ROWS = 2
# Microseconds of the exchange of sums between the warps of a program; half where they scan one tile at once.
# 100 x 1024 float32: 2.88 us in 8 warps, 3.03 in 4 with two tiles (H200).
SYNC_US = 0.1
# The share of each warp in the exchange, for rows and for columns.
SYNC_ROW_WARP_US, SYNC_COLUMN_WARP_US = 0.015, 0.024
# The same for few columns as they lie, for each column: a thread has a sum of each. Of 64 bits four times as long.
# 478 x 3791 x 5 int32: 81 us, in segments 67; but 347 x 1385 x 5 float32: 16.2 us, in segments 18.1 (H100).
SYNC_INTERLEAVED_WARP_US = 0.009
# Microseconds of the exchange between programs, for each step.
EXCHANGE_US = 0.55
# The share of each warp in it. 2**28 float32: 2.63 us a step with 4 warps, 3.15 with 16, of which 2.0 us move bytes.
EXCHANGE_WARP_US = 0.05
# The share of each word of columns that a program reads.
EXCHANGE_WORD_US = 0.0015
# More microseconds of the first exchange.
FIRST_EXCHANGE_US = 1.4
# The share of each program of the group. 196560 float32: 5.6 us in 192 programs, 5.2 in 96 of twice as many warps.
FIRST_MEMBER_US = 0.003
# Programs of a group above which each counts twice for sums of int64, which have two words.
# 3 x 141545 int32: 9.65 us by groups of 139, 8.25 in chunks; 8 x 8483 int8: 5.01 us by groups of 17, 5.31 (H100).
FEW_MEMBERS = 64
# Share of all work that programs which share a row in one step add: none stores before all have loaded.
# 57 x 16384 float32: 7.95 us by eight programs for each row, 7.04 by one (H100).
APART = 0.4
# Times that the exchange takes for sums of int64: two words, the second of which has no latency of its own.
# 130 x 16384 int32: 16.7 us by four programs for each row (H100).
EXCHANGE_OF_TWO_WORDS = 1.5
# More microseconds of rows in several steps, where all programs run at once, or one on a multiprocessor: nothing moves
# while they compute. 100 x 20000 float32: 11.3 us in two steps of 16 warps, 10.8 by five programs for each row (H100).
LONE_STEPS_US = 1.0
# More microseconds of each of several steps of columns.
# 24115 x 682 x 8 bfloat16: 232 us in three steps of 4 warps, 190 in one of 8 (H100).
COLUMN_STEP_US = 0.1
# Bytes that a multiprocessor moves in a microsecond, where L2 holds all, and where it does not (H100).
BYTES_PER_US, BYTES_FROM_MEMORY_PER_US = 32500, 27600
# Instructions that it issues in a microsecond.
INSTRUCTIONS_PER_US = 200000
# Microseconds of a program. 46 x 712 x 21: 5.4 us in 4094 programs, 4.3 in 2047.
PROGRAM_US = 0.1
# Share of the shorter of moving and issuing that the longer does not hide.
NOT_HIDDEN = 0.03
# Bytes that a multiprocessor moves in a microsecond where others idle and all loads of a row are issued at once.
# 16384 float16: 4.06 us in one program of 16 warps, 4.3 to 4.4 by 16 programs that share the row (H100).
ALONE_BYTES_PER_US = 65000
# Rows at most that move so. 8 x 8192 float32: 3.96 us in a program for each, 4.65 in 16; 46 x 13962 float32: 6.72 us in
# a program for each, 6.44 by two (H100).
FEW_ALONE = 8
# Rows at most, of floating point of up to 4 bytes, that move so too, within the three bounds below.
# 18 x 8480 float32: 4.41 us, shared 5.15; 12 x 16000 float32, which is longer: 5.17 us, shared 5.07 (H100).
SOME_ALONE = 50
# Elements and bytes of such a row, at most. 18 x 16960 bfloat16: 4.96 us, shared 5.15 (H100).
SOME_ALONE_ELEMENTS, SOME_ALONE_BYTES = 16960, 49152
# Elements of all such rows, at most. 50 x 12001 float32: 6.24 us, shared 6.83 (H100).
ALL_ALONE_ELEMENTS = 50 * 12288
# Instructions for an element, and for a vector of a row or of columns. For 8 bytes twice as many.
ELEMENT_INSTRUCTIONS, ROW_INSTRUCTIONS, COLUMN_INSTRUCTIONS = 4, 40, 10
# For an element of rows as they lie in memory, whose sums begin again with each row (counted, not timed).
FLAT_INSTRUCTIONS = 22
# For an element of few columns as they lie: True for whole vectors (counted, not timed).
INTERLEAVED_INSTRUCTIONS = {True: 12, False: 25}
# More for the latter, for each cache line that a warp loads at once: the elements of a thread are apart.
# 21168 x 1901 x 5 bfloat16: 421 us by 20 lines, 322 by 10 (H100).
LINE_INSTRUCTIONS = 0.5
# For an element of several [N, K] of few columns.
# 205085 x 16 x 8 bfloat16: 47.1 us with two vectors to a thread, 74.4 with one (H100).
STACKED_INSTRUCTIONS = 20
# For each word that a thread scans across a warp; a column has two.
STACKED_WORD_INSTRUCTIONS = 25
# For an element of the first row of a segment of columns, which is a vector: the row is scanned across the warp.
# 16384 x 256 x 8 float16: 68.2 us by 8 warps of one row to a thread, 50.3 by 4 of two (H100).
UNIT_SCAN_INSTRUCTIONS = 25
# For the same element, for each warp of the program.
WARP_SCAN_INSTRUCTIONS = 3
# Cache lines that the loads and stores of a multiprocessor touch in a microsecond.
# 90557 x 416 x 4 float16 along 1: 561 us with 16 rows to a thread and 8 lanes to a warp.
LINES_PER_US = 1250
# Times that lines count of several [N, K] to a program: its threads are further apart than a vector.
# 20000 x 40 x 5 float32: 22.7 us, 17.8 with one [N, K] to a program (H100).
STACKED_LINES = 2
# More bytes that memory moves for each piece of columns of whole lines.
# 8192 x 4096 float32 along 0: 98 us with pieces of 32 bytes, 80 with 64.
PIECE_BYTES = 10
# Times at most that a sector counts which two programs write in parts, where L2 does not hold all.
# 318 x 4216 x 102 float32: 418 us by all columns, 901 by 32 (H100).
SHARED_SECTOR = 7.0
# Rows N by which this grows by one: the programs begin together. 186 x 5 x 29001 bfloat16: 45.9 us by a warp's columns.
APART_ROWS = 8
# Steps after which programs with columns of their own have drifted apart: what two share is then moved twice.
# 61 x 1024 x 2483 bfloat16: 396 us, in segments 274.
DRIFT_STEPS = 32
# Share of all work that chunks add to read x again.
SUMMED = 0.65
# The same of few rows of 8 bytes that L2 does not keep: to read and to add takes as long as all else.
# 40000003 float64: 351 us in chunks, shared 310; 40000003 int32, a narrower input: 241 us in chunks, shared 290 (H100).
SUMMED_FROM_MEMORY = 1.0
# The same of one row of integers: 36178152 int64: 227 us in chunks, shared 236; 36178153: 225 and 239; 4 x 10000000,
# several rows: 245 us in chunks, shared 238 (H200).
SUMMED_INTEGERS = 0.5
# Microseconds of each program of a multiprocessor in chunks: both launches begin them.
# 21 x 10911 int64: 7.54 us by 43 chunks of each row, 6.47 by 22 programs that share it (H100).
CHUNK_US = 0.06
# Sums of earlier chunks that a thread of columns reads at once, and microseconds of each such time.
# 2 x 5092 x 59 bfloat16: 10.9 us by 319 chunks in 4 warps, 9.15 by 255 in 8 (H100).
CHUNK_SUMS, CHUNK_SUMS_US = 8, 0.03
# Registers of a thread.
REGISTERS = 14
# More for each element of 4 bytes, in rows and in columns.
ROW_REGISTERS, COLUMN_REGISTERS = 1.25, 1.6
# The same for 8 bytes, for each 4 of them: in rows, and in columns of int64 sums.
# 506 x 131072 int32: 502 us with three programs of 8 warps at once and 80 registers to a thread (H100).
WIDE_ROW_REGISTERS, INTEGER_COLUMN_REGISTERS = 2, 2.4
# More for each row of columns that is added up as it is stored.
STORED_ROW_REGISTERS = 1.5
# Rows of a thread above which each has an address and a mask, and the registers of these.
MANY_ROWS, MANY_ROWS_REGISTERS = 16, 2.5
# More for segments of columns in several steps, unless they have many rows.
# 975 x 851 x 3 float16: 57 registers with 4 rows in 4 steps, 26 with 8 rows in one.
STEP_REGISTERS = 25
# Bytes that are written again, as a share, for each vector of columns after a thread's first: each is a part of a
# sector. 837780 x 3 x 54 float16: 230 us by four vectors to a thread, 189 by one (H100).
PARTS = 0.6
# The same of 16 bits in whole vectors, where a program has all columns of rows that are no whole sectors.
# 204080 x 4 x 24 float16: 40.9 us by vectors, 34.1 by half vectors (H100).
HALF_SECTORS = 0.1
# Programs of a multiprocessor that move while others wait: this many hide all.
MAX_OVERLAP = 8
# Bytes that such a program has on their way at least; with fewer it counts as part of a program.
OVERLAP_BYTES = 8192


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds of a launch: what all programs move and issue, and what one of them waits for."""
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
        if N * K % found.vec:
            instructions += LINE_INSTRUCTIONS * _lines(problem, configuration)
    if isinstance(found, Stacked):
        words = 2 * power_of_2(K) + 1
        instructions = STACKED_INSTRUCTIONS + STACKED_WORD_INSTRUCTIONS * words / configuration.elements
        accesses = configuration.elements // found.width
    if K > 1 and configuration.kernel == "segments" and _has_rows_in_vectors(configuration):
        instructions += (UNIT_SCAN_INSTRUCTIONS + WARP_SCAN_INSTRUCTIONS * found.warps) / found.depth
    issues = found.programs * found.warps * WARP * found.steps * tile * wide * instructions
    # For each multiprocessor.
    active = min(limits.sm_count, found.programs)
    in_l2 = M * N * K * (problem.input_size + size) <= limits.l2_bytes
    bandwidth = float(BYTES_PER_US if in_l2 else BYTES_FROM_MEMORY_PER_US)
    if K == 1 and found.steps == 1 and _has_bandwidth_left(problem):
        bandwidth = min(BYTES_PER_US * limits.sm_count / active, ALONE_BYTES_PER_US)
    moved = _bytes(problem, configuration, found.steps, limits) / bandwidth
    requests = 2 * found.programs * found.steps * found.depth * found.warps * accesses * _lines(problem, configuration)
    requests *= STACKED_LINES if isinstance(found, Stacked) else 1
    issued = max(issues / INSTRUCTIONS_PER_US, found.programs * PROGRAM_US, requests / LINES_PER_US)
    work = (max(moved, issued) + NOT_HIDDEN * min(moved, issued)) / active
    if K == 1:
        # Elements of a thread that are no neighbours are scanned across the warp one by one, integers of 8 bytes in two
        # words. 2 x 8 x 95 int32: 3.3 us by a warp for each row.
        words = 2 if integer and size == 8 and configuration.kernel == "units" and tile > vec else 1
        step = tile * wide * ELEMENT_US * (2 if isinstance(found, Flat) else max(4 // vec, 1) * words)
        few_edges = size == 2 and vector(problem)[1] and EDGES_ROWS * limits.sm_count >= M
        tile_us = EDGES_TILE_US if few_edges else UNIT_TILE_US
        lone = integer and size == 8 and found.steps == 1 and found.programs <= limits.sm_count
        several = INTEGER_TILE_US if lone and configuration.kernel == "segments" else 0
        step += (found.depth - 1) * (tile_us if configuration.kernel == "units" else several)
    else:
        units = configuration.kernel == "units"
        step = tile * wide * (ELEMENT_US if units else COLUMN_ELEMENT_US)
        lone = units and found.warps > 1 and found.depth > MANY_ROWS and found.programs <= limits.sm_count
        step += UNIT_WARPS_US if lone else 0
        if isinstance(found, Interleaved | Stacked):
            step = wide * (INTERLEAVED_US + tile * INTERLEAVED_ELEMENT_US)
    if isinstance(found, Shared):
        work *= 1 + APART / found.steps if K == 1 else 1
        exchange = EXCHANGE_US + EXCHANGE_WARP_US * found.warps
        exchange += 0 if K == 1 else EXCHANGE_WORD_US * found.group * found.lanes
        two_words = size == 8 and integer
        exchange *= EXCHANGE_OF_TWO_WORDS if two_words else 1
        twice = two_words and found.group > FEW_MEMBERS
        first = FIRST_EXCHANGE_US + FIRST_MEMBER_US * found.group * (2 if twice else 1)
        return LAUNCH_US + LOAD_US + first + work + found.steps * (step + exchange)
    if configuration.kernel != "units":
        per_warp = SYNC_ROW_WARP_US if K == 1 else SYNC_COLUMN_WARP_US * wide
        if isinstance(found, Interleaved | Stacked):
            per_warp = SYNC_INTERLEAVED_WARP_US * power_of_2(K) * wide**2
        # Not for int64 sums, whose scan takes two words through each exchange.
        # 1580 x 512 int32: 6.8 us in 8 warps, 6.0 in 4 with two tiles (H100).
        one_scan = isinstance(found, Alone) and at_once(problem, found) and not (integer and size == 8)
        step += (SYNC_US / 2 if one_scan else SYNC_US) + per_warp * found.warps if found.warps > 1 else 0
    # Chunks of rows load a step ahead.
    step += LOAD_US / (2 if configuration.kernel == "chunks" and K == 1 else 1)
    registers = configuration.registers or _registers(problem, configuration, found.steps)
    programs = found.programs / limits.sm_count
    resident = min(resident_programs(registers, found.warps, limits) // limits.sm_count, max(math.ceil(programs), 1))
    overlap = max(min(resident, MAX_OVERLAP, resident * tile * size * found.warps * WARP / OVERLAP_BYTES), 1)
    alone = LAUNCH_US + _overlapped(work, step, found.steps, programs, resident, overlap)
    alone += ROW_CODE_US * found.depth if K > 1 and configuration.kernel == "units" else 0
    if found.steps > 1:
        waits = LONE_STEPS_US / resident if programs <= resident or resident == 1 else 0
        alone += COLUMN_STEP_US * found.steps if K > 1 else waits
    if isinstance(found, Alone | Flat | Interleaved | Stacked):
        return alone
    # The first launch reads, and adds up.
    again = SUMMED
    if few_from_memory(problem, limits):
        again = SUMMED_INTEGERS if integer and M == 1 else SUMMED_FROM_MEMORY
    second = SECOND_LAUNCH_WITH_PDL_US if limits.capability >= (9, 0) else SECOND_LAUNCH_US
    second += CHUNK_US * programs
    second += CHUNK_SUMS_US * found.chunks / (CHUNK_SUMS * found.units) if K > 1 else 0
    return alone + second + again * work + (found.steps - 1) * LOAD_US / overlap + 2 * LOAD_US


def _has_rows_in_vectors(columns: Configuration) -> bool:
    """Whether a warp has several rows, in vectors."""
    return columns.elements > 1 and columns.lanes < WARP * columns.elements


def _has_bandwidth_left(problem: Problem) -> bool:
    """Whether rows are so few that a multiprocessor with a row moves more than its share of bytes."""
    M, N, _, size, integer, _ = problem
    short = N <= SOME_ALONE_ELEMENTS and N * size <= SOME_ALONE_BYTES and M * N <= ALL_ALONE_ELEMENTS
    return M <= FEW_ALONE or (M <= SOME_ALONE and short and size <= 4 and not integer)


def _neighbours(problem: Problem, configuration: Configuration) -> int:
    """Neighbouring elements of a row that a thread loads at once: of a narrower input, more than it stores at once.
    13835 x 48 bool: 4.9 us with four of them, 5.5 with two (H200)."""
    vec, unaligned = vector(problem)
    if unaligned or problem.narrower == 1:
        return vec
    loaded = math.gcd(problem.N, VECTOR_BYTES // problem.input_size)
    return max(min(loaded, configuration.elements), vec)


def _lines(problem: Problem, configuration: Configuration) -> int:
    """Cache lines that the units of a warp lie in. Units are apart by a thread's rows."""
    M, N, K, size, *_ = problem
    kernel, elements, lanes, depth, *_ = configuration
    if K == 1 or (kernel == "units" and size < 8):
        return 1
    if kernel in ("interleaved", "stacked"):
        return math.ceil(elements * WARP * size / LINE_BYTES)
    units = max(elements * WARP // lanes, 1)
    if kernel == "units":
        units, depth = min(units, M), N
    return min(units, math.ceil(units * depth * K * size / LINE_BYTES))


def _registers(problem: Problem, configuration: Configuration, steps: int) -> int:
    """About how many registers a thread has. Units of columns are added up as they are stored; segments keep all
    sums."""
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


def _bytes(problem: Problem, configuration: Configuration, steps: int, limits: Limits) -> float:
    """Bytes that are moved. A warp of columns reads a piece of each row, or of neighbouring rows if it has all of K."""
    M, N, K, size, *_ = problem
    kernel, elements, lanes, depth, *_ = configuration
    read, elements_moved = problem.input_size, M * N * K
    if K == 1 or kernel in ("interleaved", "stacked"):
        return elements_moved * (read + size)
    # Segments of all columns, and a warp that has all of [N, K] at once, of 8 bytes: one program has all of a sector.
    at_once = kernel == "units" and steps == 1 and elements * WARP >= lanes and size == 8
    if lanes >= K and (kernel != "units" or at_once or _goes_along_all(problem, configuration, steps)):
        # Once one row of a thread is read, a sector's other rows are in the cache; each row writes the sector.
        rows = 1 if elements > 1 else depth
        return M * N * (K * read + max(K * size, min(rows * K * size, SECTOR_BYTES)))
    if lanes == 1:
        # Programs with a column each are few and begin together: each reads the sectors of its row.
        return elements_moved * (min(K * read, SECTOR_BYTES) + size)
    from_memory = not is_in_l2(problem, limits)
    shared = min(1 + N / APART_ROWS, SHARED_SECTOR) if from_memory else 1
    written = _of_pieces(problem, configuration, steps, size, shared)
    if from_memory and N > 1:
        written *= 1 + PARTS * (elements // min(elements, vector(problem)[0]) - 1)
        halves = size == 2 and elements * size == VECTOR_BYTES and lanes >= K and K * size % SECTOR_BYTES > 0
        written *= 1 + HALF_SECTORS if halves else 1
    return elements_moved * (_of_pieces(problem, configuration, steps, read, 1) + written)


def _goes_along_all(problem: Problem, units: Configuration, steps: int) -> bool:
    """Whether a warp goes along all of many rows of int64 in vectors. The sectors that two rows share are its own: no
    other program reads or writes a part. Other types, fewer steps and fewer lanes were not timed.
    3165 x 637 x 42 int64: 370 us by such warps, in segments of all columns 647: their loads wait for each other, since
    masks and carries take more predicates than there are (H200)."""
    whole = units.elements > 1 and units.elements * WARP >= units.lanes >= WARP
    int64 = problem.integer and problem.size == 8 and problem.narrower == 1
    return whole and int64 and steps >= DRIFT_STEPS


def _of_pieces(problem: Problem, configuration: Configuration, steps: int, size: int, shared: float) -> float:
    """Bytes moved for each element of ``size`` bytes, in a warp's pieces of rows and a program's. The warps of a
    program go on together only where they share the columns. A narrower input has smaller pieces.
    100 x 1000 x 40 uint8: 23.9 us by 4 columns, which read each sector eight times, 18.5 by 8 (H100)."""
    K = problem.K
    kernel, elements, lanes, *_ = configuration
    warp, program = min(lanes, elements * WARP, K) * size, min(lanes, K) * size
    more: float = PIECE_BYTES if K * size % SECTOR_BYTES == 0 else SECTOR_BYTES * shared
    if kernel == "units":
        more, program = more * (1 + min(steps / DRIFT_STEPS, 2)), warp
    most = 4 * problem.size // size
    return size * (1 + sum(min(more / piece, most) / 2 for piece in (warp, program)))


def _overlapped(moved: float, step: float, steps: int, programs: float, resident: int, overlap: float) -> float:
    """Microseconds of a multiprocessor's ``programs``, of which ``resident`` run at once: the first from its start to
    its end, then the others, which move while others wait. If all run at once, they start together.
    """
    programs, per_program = max(programs, 1), moved / max(programs, 1)
    whole = math.ceil(programs) if programs < 4 else programs
    if whole <= resident:
        return step + (steps - 1) * step / overlap + per_program * whole
    waited = (whole / resident - 1) * (steps * step + WAVE_US)
    return steps * step + ((per_program * whole) ** overlap + waited**overlap) ** (1 / overlap)
