# SPDX-License-Identifier: Apache-2.0
"""Launches of a cumsum that the estimate chooses among."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import (
    MAX_INTERLEAVED,
    MAX_WARPS,
    MAX_WIDE_SCALAR,
    PROGRAMS_PER_SM,
    Configuration,
    Problem,
    Stacked,
    few_from_memory,
    interior,
    is_in_l2,
    is_short,
    launch_or_none,
    max_depth,
    max_scalar,
    resident_programs,
    vector,
)
from .rules import ALL_COLUMNS_WORD, WIDE_COLUMNS, all_columns, fills_lanes, may_have_all, rounded

# Warps and registers of a thread, for programs that share a block: these registers spill nothing.
SHARING = ((4, 128), (8, 128))
# The same for programs that have a chunk each: these warps hide the latency of the loads.
CHUNKS = ((4, 64), (8, 64))
# Bytes of the neighbouring columns of a tile, where threads have segments of columns. A tile has two columns at least.
# In narrow tiles a small problem has fewer rows to a thread and more programs.
COLUMN_BYTES = (128, 64, 32, 4)
# Columns K at most for the narrowest. 9 x 256 x 72 bfloat16: 5.01 us by 4 bytes, 3.84 by 32 (H100).
MAX_NARROW_TILES = 64
# Rows N at most of three columns of int64 sums of a narrower input, of which a thread has all rows, where several
# [N, K] may be stacked. 37191 x 9 x 3 bool: 10.5 us, stacked 9.2; 10630731 x 4 x 3 bool: 405 us, stacked 482 (H100).
MAX_NARROWER_ROWS = 4
# Rows of a thread at most, where rows are vectors of four elements and all are loaded in one step. In several steps the
# scans across threads take longer than the bytes.
# 24371 x 256 x 4 float32: 72.8 us, interleaved 92.8; 3101 x 1801 x 4 float32: 66.8 us, interleaved 46.2 (H100).
ROWS_OF_FOUR = 3
# Programs of a multiprocessor at most, where such a vector has 8 bytes.
# 366 x 664 x 4 bfloat16: 5.4 us, interleaved 6.0 (H100).
ROWS_OF_FOUR_PROGRAMS = 4
# Columns K at most for which FEW_COLUMNS_DEPTHS are worth timing.
MAX_FEW_COLUMNS = 16
# Rows of a thread: a few rows lie in fewer sectors. 99 x 21390 x 2 bfloat16: 31 us with 2 rows, 32 with 8.
FEW_COLUMNS_DEPTHS = (1, 2, 4)
# Rows N, at least and at most, of few columns that have a program each, if there is a multiprocessor for each.
# 1 x 1024 x 4 bfloat16: 3.29 us, interleaved 3.75; 5 x 2000 x 4 float32: 5.11 us, interleaved 4.70 (H100).
MIN_LONE_ROWS, MAX_LONE_ROWS = 400, 1024
# Programs of a multiprocessor for three columns of 16 bits. 56 x 753 x 3 bfloat16: 4.0 us, interleaved 4.56 (H100).
LONE_PROGRAMS = 4 / 3
# Elements of a program at least, where there are many programs: four to each thread of one warp.
MIN_ELEMENTS = 4 * WARP
# Elements at most of a thread that has whole short rows.
MAX_SCALARS = 16
# Elements of int64 of a thread that has 64 registers.
FEWER_INTEGERS = 12
# Times as many neighbours to a thread in rows of int64 sums, where 16 warps have several steps: half as many scans
# across the warp. 120 x 16384 int32: 16.1 us, otherwise 19.4 (H100).
WIDE = 2
# Rows for each multiprocessor above which a program may have several [N, K]. Fewer were not timed.
STACKED_ROWS = 1024
# Vectors of a thread at least; of rows of eight elements twice as many.
# 205085 x 16 x 8 bfloat16: 43.0 us by two vectors, 74 by one, 41.8 by four (H100).
STACKED_VECTORS = 2
# Warps of such a program at most.
STACKED_WARPS = 4
# Bytes that such a program reads and writes at least: a multiprocessor moves them while it begins a program.
# 30878 x 36 x 3 float32: 15.0 us by 1 warp, 16.6 by 4 (H100).
STACKED_BYTES = 3072
# Share of the lanes with rows above which fewer warps are better than fewer idle lanes.
STACKED_FULL = 3 / 4
# Elements of a thread at least, in rows of 257 to 511 elements of 8 bytes, where there are more rows than
# multiprocessors. 3348 x 283 int64: 11.5 us, with two elements 13.4 (H100).
MIN_WIDE_ELEMENTS = 4
# Tiles of half vectors of float32 that spill 8 bytes in several steps with 64 registers to a thread, and the tiles that
# replace them. 3577 x 9582 float32: 100.9 us, otherwise 102.9 (H100).
SPILLING_TILES, HELD_TILES = 12, 10
# The same for two elements of integers of up to 2 bytes, in 8 warps of 40 registers to a thread: six tiles spill (7740
# x 5640 uint8, sm_90, Triton 3.6), seven do not. Not timed.
SPILLING_INTEGERS, HELD_INTEGERS = 6, 7
# Elements of a row of int64 sums, in whole vectors, that 4 warps have at most, where not all programs of 8 warps run at
# once. 1570 x 1024 uint8: 9.3 us, by 8 warps 10.3 (H100).
MAX_OF_4_WARPS = 2048
# Warps of a program of rows as they lie in memory.
FLAT_WARPS = 4
# Elements of a thread at most with two vectors; of more it has one vector.
# 880160 x 30 bfloat16: 40.6 us, by two vectors, which take 62 registers, 53.1 (H100).
MAX_FLAT_ELEMENTS = 8
# Times as many whole rows that two vectors must have to be tried all the same. Not timed.
MANY_FLAT_ROWS = 3


def rows(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Of rows, K = 1."""
    M, N, _, size, integer, _ = problem
    vec, unaligned = vector(problem)
    lanes = min(power_of_2(N), max(WARP * vec, max_scalar(problem) if max_scalar(problem) >= N else 0))
    elements = max(vec, lanes // WARP)
    tiles = cdiv(interior(problem), lanes)
    for warps in _powers(1, 8):
        for more in _powers(1, MAX_SCALARS // elements if tiles == 1 else 1):
            yield from _steps(problem, Configuration("units", elements * more, lanes, 0, warps), tiles)
    alone = integer and size == 8 and limits.sm_count >= M and not unaligned and N % (WIDE * vec) == 0
    for warps in _powers(2, _most_warps(problem, limits) if tiles > 1 else 1):
        many = cdiv(tiles, warps) > max_depth(problem, elements, "segments")
        wide = WIDE if alone and many and warps == MAX_WARPS else 1
        segments = Configuration("segments", wide * elements, wide * lanes, 0, warps)
        for each in _steps(problem, segments, cdiv(tiles, wide * warps)):
            yield each
            # With fewer tiles more programs run at once. 339 x 39428 float16: 26.7 us, otherwise 31.0 (H100).
            if many and each.depth >= 8:
                yield each._replace(depth=each.depth // 2)
        # Of int64 also a quarter fewer elements: with 64 registers to a thread, four programs of 8 warps run at once.
        if integer and size == 8 and warps >= 4 and many:
            fewer = Configuration("segments", elements, lanes, FEWER_INTEGERS // elements, warps)
            yield _held(problem, fewer, cdiv(tiles, warps))
    # Several warps may also have a row that a warp reads element by element.
    if tiles == 1 and elements > vec and WARP * vec < N:
        fewest = MIN_WIDE_ELEMENTS if size == 8 and limits.sm_count < M and lanes == MAX_WIDE_SCALAR else vec
        for warps in _powers(2, lanes // (WARP * fewest)):
            yield Configuration("segments", lanes // (WARP * warps), WARP * vec, 1, warps)
    if tiles > 1:
        yield from _together(problem, elements, lanes, limits)
    if is_short(problem):
        one, two = (vectors * VECTOR_BYTES // size for vectors in (1, 2))
        rows_of_one, rows_of_two = (elements * FLAT_WARPS * WARP // N for elements in (one, two))
        whole = one // math.gcd(N, one)
        many_more = rows_of_two // whole >= MANY_FLAT_ROWS * (rows_of_one // whole)
        for elements in (one, two) if two <= MAX_FLAT_ELEMENTS or many_more else (one,):
            yield Configuration("flat", elements, elements * FLAT_WARPS * WARP, 1, FLAT_WARPS)


def _most_warps(problem: Problem, limits: Limits) -> int:
    """Warps at most of a row."""
    M, N, _, size, integer, _ = problem
    of_4 = integer and size == 8 and N <= MAX_OF_4_WARPS and not vector(problem)[1]
    return 4 if of_4 and limits.threads_per_sm * limits.sm_count < M * 8 * WARP else MAX_WARPS


def columns(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Of columns, K > 1."""
    M, N, K, size, *_ = problem
    vec, _ = vector(problem)
    # A copy of a narrower input reads whole vectors too. 30136 x 1 x 56 bool: 10.7 us by two elements to a thread.
    widest = problem.input_size if N == 1 else size
    stacked = STACKED_ROWS * limits.sm_count < M * N
    apart = stacked and problem.narrower > 1 and size == 8 and K == 3 and N > MAX_NARROWER_ROWS
    for elements in _powers(1, max(VECTOR_BYTES // widest, 1)) if not apart else ():
        # Several vectors to a thread only where a program has all rows at once: it would else do very little.
        # 23445879 x 1 float32: 116 us with one element to a thread, of which 62 move the bytes (H100).
        if elements > vec and max_depth(problem, elements, "units") < N:
            break
        for warps in _powers(1, 4):
            lanes = min(power_of_2(K), elements * warps * WARP)
            yield from _steps(problem, Configuration("units", elements, lanes, 0, warps), N)
    if K <= MAX_INTERLEAVED:
        for vectors, warps in itertools.product((VECTOR_BYTES // size, VECTOR_BYTES // size // 2), _powers(1, 8)):
            yield Configuration("interleaved", vectors * K, 1, 1, warps)
        if STACKED_ROWS * limits.sm_count < M * N:
            yield from _stacked(problem, limits)
        programs = LONE_PROGRAMS * limits.sm_count if (size, K) == (2, 3) else limits.sm_count
        few = size <= 4 and 2 < K < MAX_INTERLEAVED and programs >= M * K
        if few and MIN_LONE_ROWS <= N <= MAX_LONE_ROWS:
            column = Configuration("segments", 1, 1, 0, MAX_WARPS)
            yield from _steps(problem, column, cdiv(N, column.units))
    widths = COLUMN_BYTES if K <= MAX_NARROW_TILES else COLUMN_BYTES[:-1]
    pieces = {max(piece // each, 2) for piece in widths for each in (size, problem.input_size)}
    for lanes in sorted({min(power_of_2(K), piece) for piece in pieces}):
        # A warp has one row of the tile, or several. A thread's neighbours are in one row.
        elements = max(min(lanes // WARP, vec), 1)
        # Many programs with less than a warp has at once mostly begin and end.
        tiny = N * min(lanes, K) < MIN_ELEMENTS and M * cdiv(K, lanes) > PROGRAMS_PER_SM * limits.sm_count
        for warps in _powers(4, MAX_WARPS) if not tiny else ():
            units = elements * warps * WARP // lanes
            tiles = cdiv(N, units)
            yield from _steps(problem, Configuration("segments", elements, lanes, 0, warps), tiles)
            for depth in FEW_COLUMNS_DEPTHS if K <= MAX_FEW_COLUMNS else ():
                if depth < tiles:
                    yield Configuration("segments", elements, lanes, depth, warps)
        yield from _together(problem, elements, lanes, limits)
    if K > MAX_FEW_COLUMNS and may_have_all(problem, limits):
        yield from all_columns(problem)
        if size <= 4 and K <= WIDE_COLUMNS and fills_lanes(K):
            # 399648 x 114 bfloat16: 122 us, by 64 columns 166 (H100).
            yield from _together(problem, min(vec, max(ALL_COLUMNS_WORD // size, 1)), power_of_2(K), limits)
    if vec == K > 2:
        yield from _rows_of_one_vector(problem, limits)


def _rows_of_one_vector(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    M, N, K, size, *_ = problem
    few = K * size == VECTOR_BYTES or ROWS_OF_FOUR_PROGRAMS * limits.sm_count >= M
    for warps in _powers(4, MAX_WARPS):
        rows = Configuration("segments", K, K, 0, warps)
        tiles = cdiv(N, rows.units)
        if K == MAX_INTERLEAVED or (few and tiles <= ROWS_OF_FOUR):
            yield from _steps(problem, rows, tiles)
        if K == MAX_INTERLEAVED:
            yield from (rows._replace(depth=depth) for depth in FEW_COLUMNS_DEPTHS if depth < tiles)


def _stacked(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """By as few warps as move enough bytes and leave few lanes without a row."""
    size, vectors = problem.size, VECTOR_BYTES // problem.size
    least = STACKED_VECTORS * (2 if problem.K == vectors == MAX_INTERLEAVED else 1)
    elements = max(math.lcm(problem.K, vectors), least * vectors)
    found = []
    for warps in _powers(1, STACKED_WARPS):
        each = Configuration("stacked", elements, 1, 1, warps)
        launched = launch_or_none(problem, each, limits)
        enough = (size + problem.input_size) * elements * warps * WARP >= STACKED_BYTES
        if isinstance(launched, Stacked) and enough:
            found.append((min(launched.rows * problem.K / launched.lanes, STACKED_FULL), -warps, each))
    if found:
        yield max(found)[-1]


def _steps(problem: Problem, configuration: Configuration, tiles: int) -> Iterator[Configuration]:
    """The configuration with a depth that splits a unit's ``tiles`` evenly into steps."""
    most = max_depth(problem, configuration.elements, configuration.kernel)
    if most:
        depth = rounded(cdiv(tiles, cdiv(tiles, most)), most)
        yield _held(problem, configuration._replace(depth=depth), tiles)


def _held(problem: Problem, found: Configuration, tiles: int) -> Configuration:
    """The configuration, or one of about the same depth if this one spills in several steps."""
    if problem.K > 1 or vector(problem) != (2, False) or tiles <= found.depth:
        return found
    if problem.size == 4 and found.depth == SPILLING_TILES:
        return found._replace(depth=cdiv(tiles, cdiv(tiles, HELD_TILES)))
    narrow = problem.integer and problem.narrower >= 4 and found.warps < MAX_WARPS
    return found._replace(depth=HELD_INTEGERS) if narrow and found.depth == SPILLING_INTEGERS else found


def _together(problem: Problem, elements: int, lanes: int, limits: Limits) -> Iterator[Configuration]:
    """Configurations of several programs for each block."""
    M, _, K, *_ = problem
    blocks = M * cdiv(K, lanes)
    for kernel, sizes in (("shared", SHARING), ("chunks", CHUNKS)):
        most = max_depth(problem, elements, kernel)
        for warps, registers in sizes if most else ():
            # 94 x 22095 x 5 int64: 136 us, in chunks 126 (H100).
            if kernel == "shared" and 1 < K <= MAX_INTERLEAVED and not is_in_l2(problem, limits):
                continue
            # One row by 8 warps, a few rows by 4. 40000003 float64: 310 us by 8, 432 by 4; 4 x 10000001 int64: 296 us
            # by 4, 313 by 8 (H100).
            if kernel == "shared" and few_from_memory(problem, limits) and warps != (8 if M == 1 else 4):
                continue
            width = elements * warps * WARP // lanes * (1 if K > 1 else lanes)
            group = resident_programs(registers, warps, limits) // blocks
            if group > 1:
                tiles = cdiv(interior(problem), group * width)
                depth = cdiv(tiles, cdiv(tiles, most))
                few = FEW_COLUMNS_DEPTHS if 1 < K <= MAX_FEW_COLUMNS else ()
                for each in sorted({rounded(more * depth, most) for more in (1, 2, 4)} | {*few}):
                    yield Configuration(kernel, elements, lanes, each, warps, registers)


def _powers(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2
