# SPDX-License-Identifier: Apache-2.0
"""How a cumsum over N of [M, N, K] is launched: plain numbers in, a plan out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from ...plans import table
from .estimate import EDGES_ROWS, estimate
from .launches import (
    KNOWN_MULTIPLE,
    MAX_INTERLEAVED,
    MAX_WARPS,
    MAX_WIDE_SCALAR,
    PROGRAMS_PER_SM,
    Alone,
    Chunks,
    Configuration,
    Flat,
    Interleaved,
    Launch,
    Problem,
    Shared,
    Stacked,
    at_once,
    few_from_memory,
    interior,
    is_in_l2,
    is_short,
    launch,
    launch_or_none,
    max_depth,
    max_scalar,
    merged,
    resident_programs,
    vector,
)

__all__ = [
    "KNOWN_MULTIPLE",
    "Alone",
    "Chunks",
    "Configuration",
    "Flat",
    "Interleaved",
    "Problem",
    "Shared",
    "Stacked",
    "at_once",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "merged",
    "plan",
    "vector",
]

# Warps and registers of a thread, for programs that share a block: these registers spill nothing.
SHARING = ((4, 128), (8, 128))
# The same for programs that have a chunk each: these warps hide the latency of the loads.
CHUNKS = ((4, 64), (8, 64))
# Bytes of the neighbouring columns of a tile, where threads have segments of columns. A tile has two columns at least.
# In narrow tiles a small problem has fewer rows to a thread and more programs.
COLUMN_BYTES = (128, 64, 32, 4)
# Columns K at most for the narrowest. 9 x 256 x 72 bfloat16: 5.01 us by 4 bytes, 3.84 by 32 (H100).
MAX_NARROW_TILES = 64

# Wide pieces of columns. Programs side by side share sectors of columns. Once the programs drift apart, L2 no longer
# holds a sector for the second program. Wide pieces share fewer sectors. An element is a load of its own.

# Columns of a piece. 28 x 2354 x 1471 float32: 335 us, by 64 columns 402 (H100).
WIDE_COLUMNS = 128
# Columns of a piece of int64 sums. 14 x 2354 x 1471 int32: 270 us, by 128 columns 363 (H100).
WIDE_INTEGERS = 64
# Rows of a thread: with more, programs drift further. 28 x 2354 x 1471 float32: 335 us, by 32 rows 416 (H100).
WIDE_ROWS = 16
# Rows of a thread, where the input is int64, which takes more registers.
# 14 x 2354 x 1471 int64: 343 us, otherwise 392 (H100).
WIDE_INTEGER_ROWS = 12
# Warps of a program.
WIDE_WARPS = 8
# Steps along N from which pieces are wide. With fewer steps they must also be within the four bounds below.
WIDE_STEPS = 4
# Rows N at least; the second is for int64. 8178 x 8 x 353 bfloat16: 44.3 us, otherwise 48.4 (H100).
WIDE_STEP_ROWS = (8, 16)
# Share of the lanes that have a column, at least; the second is for int64, with any number of steps.
# 200 x 400 x 386 int64, whose last program has few columns: 216 us, in vectors 211.5 (H100).
WIDE_FULL = (3 / 4, 7 / 8)
# Elements that could be loaded at once, at most. 8178 x 16 x 354 bfloat16: 75.7 us, otherwise 93.8 (H100).
WIDE_STEP_VECTOR = 2
# Bytes that could be loaded at once, at most.
WIDE_STEP_BYTES = 8
# Steps from which elements of up to 4 bytes have twice the columns, by twice the warps and half the rows of a thread:
# half as many sectors are shared. 100 x 2000 x 2499 bfloat16: 955 us, otherwise 1377; 15 x 420 x 7902 bfloat16, 14
# steps: 105 us, otherwise 98 (H100). Where no other columns fill them, 16 bits have twice the warps only.
# 884 x 1158 x 147 bfloat16: 315 us, by 8 warps 396 (H100).
WIDER_STEPS = 20
# Programs of a multiprocessor that these need at least. 20 x 4096 x 1001 bfloat16, 80 programs: 240 us, otherwise 197
# (H100).
WIDER_PROGRAMS = 2
# All rows of columns of 16 bits in one step by these warps: rows of a thread at most.
# 8192 x 64 x 457 bfloat16: 383 us by 8 rows of 64 columns, in two steps 487 (H100).
ONE_STEP_HALVES = 8
# Programs of a multiprocessor that these need at least; fewer were not timed. 2000 x 64 x 353 bfloat16, 91 programs:
# 78.5 us, in two steps 94.6 (H100).
ONE_STEP_PROGRAMS = 90
# Rows of a thread at most, where 16 warps have all rows of a piece of odd columns of int64 sums in one step.
# 146 x 76 x 1691 int64: 115 us, otherwise 137; 13 rows, 100 x 100 x 1500 int64: 108 us, otherwise 95 (H100).
ONE_STEP_ROWS = 10
# Rows of a thread that are not rounded to an even number. Of int64 input, 8 warps must need more rows than these.
ONE_STEP_EXACT = 6
# Times that the input is narrower than int64, at most. Narrower integers were not timed.
ONE_STEP_NARROWER = 2
# Columns K at most that one program has all of. 600 x 1200 x 147 float32: 322 us, in pieces 446 (H100).
MAX_ALL_COLUMNS = 256
# Share of the lanes of these, and of programs that share all columns, that have a column, at least.
# 7 x 431887 x 86 bfloat16: 635 us in chunks, in pieces 968; 3 x 211195 x 68 float16: 226 us, in pieces 150 (H100).
ALL_COLUMNS_FULL = 5 / 8
# Bytes of a load. 400 x 3000 x 90 bfloat16: 207 us, element by element 217 (H100).
ALL_COLUMNS_WORD = 4
# Configurations of a problem at most.
MAX_CONFIGURATIONS = 24
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
# Tiles of a row of 16 bits, with edges, that a program of one warp has: the warp waits for no other.
# 359 x 299 bfloat16: 3.23 us, by 4 warps with a row each 3.52 (H100).
ONE_WARP_TILES = 2
# Such rows for each multiprocessor: more than the first, at most the second.
ONE_WARP_ROWS = (EDGES_ROWS, 8)
# Rows of 16 bits, with edges, for each multiprocessor, above which half a warp has a row that is one tile of a warp.
# 105528 x 151 bfloat16: 29.0 us, by a warp for each row 34.1 (H100).
MANY_HALF_WARP_ROWS = ONE_WARP_ROWS[1]
# Warps of such a program.
HALF_WARP_WARPS = 4
# Elements at least of a short odd row of bytes of which a thread has four elements; of int16, only such rows.
MIN_BYTES_OF_ROWS = 3
# Its program. 32768 x 13 uint8: 3.90 us, with one element to a thread 4.56; 85373 x 3 int16: 3.42 and 3.98 (H100).
BYTES_OF_ROWS = Configuration("units", 4, WARP, 1, 4)
# Programs for each multiprocessor, at least.
BYTES_PROGRAMS = 4
# Warps of a program of rows as they lie in memory.
FLAT_WARPS = 4
# Elements of a thread at most with two vectors; of more it has one vector.
# 880160 x 30 bfloat16: 40.6 us, by two vectors, which take 62 registers, 53.1 (H100).
MAX_FLAT_ELEMENTS = 8
# Times as many whole rows that two vectors must have to be tried all the same. Not timed.
MANY_FLAT_ROWS = 3


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    return problem.integer, problem.size, problem.K == 1, *vector(problem)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup("scan", problem, class_of, Configuration, launch_or_none, limits)
    return found or configurations(problem, limits)[0]


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch that is chosen, for a problem of at least one element."""
    problem = Problem(*merged(*problem[:3]), *problem[3:])
    return launch(problem, choose(problem, limits), limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """Legal configurations, one for each launch: the rule's before all others, these by their estimate. The first is
    the default."""
    found: dict[Launch, Configuration] = {}
    wide = _of_columns(problem, limits) if problem.K > 1 else _of_a_row(problem, limits)
    first = [wide] if wide else []
    for candidate in (*first, *(_rows(problem, limits) if problem.K == 1 else _columns(problem, limits))):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    by_estimate = sorted(found.values(), key=lambda each: (each != wide, estimate(problem, each, limits)))
    return by_estimate[:MAX_CONFIGURATIONS]


def _rows(problem: Problem, limits: Limits) -> Iterator[Configuration]:
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


def _of_a_row(problem: Problem, limits: Limits) -> Configuration | None:
    return _half_warp(problem, limits) or _one_warp(problem, limits) or _bytes(problem, limits)


def _bytes(problem: Problem, limits: Limits) -> Configuration | None:
    """Four elements to a thread, for many short odd rows of bytes or int16, or pairs of bytes.

    542876 x 2 int8: 6.86 us, with two elements to a thread 7.18 (H100).
    """
    M, N, *_ = problem
    rows = BYTES_OF_ROWS._replace(lanes=power_of_2(N))
    most = {8: WARP, 4: MIN_BYTES_OF_ROWS}.get(problem.narrower, 0)
    pairs = N == 2 and problem.narrower == 8
    short = pairs or (vector(problem) == (1, False) and MIN_BYTES_OF_ROWS <= N <= most)
    return rows if short and cdiv(M, rows.units) >= BYTES_PROGRAMS * limits.sm_count else None


def _half_warp(problem: Problem, limits: Limits) -> Configuration | None:
    """Half a warp for each of many rows of one tile of 16 bits, with edges."""
    vec, unaligned = vector(problem)
    lanes = WARP * vec // 2
    depth = cdiv(interior(problem), lanes)
    short = problem.size == 2 and unaligned and depth <= 2
    row = Configuration("units", vec, lanes, depth, HALF_WARP_WARPS)
    return row if short and limits.sm_count * MANY_HALF_WARP_ROWS < problem.M else None


def _one_warp(problem: Problem, limits: Limits) -> Configuration | None:
    """One warp for each row of two tiles of 16 bits, with edges."""
    M, _, _, size, *_ = problem
    vec, unaligned = vector(problem)
    row = Configuration("units", vec, WARP * vec, ONE_WARP_TILES, 1)
    two = cdiv(interior(problem), row.lanes) == ONE_WARP_TILES
    several = ONE_WARP_ROWS[0] * limits.sm_count < M <= ONE_WARP_ROWS[1] * limits.sm_count
    return row if size == 2 and unaligned and two and several else None


def _most_warps(problem: Problem, limits: Limits) -> int:
    """Warps at most of a row."""
    M, N, _, size, integer, _ = problem
    of_4 = integer and size == 8 and N <= MAX_OF_4_WARPS and not vector(problem)[1]
    return 4 if of_4 and limits.threads_per_sm * limits.sm_count < M * 8 * WARP else MAX_WARPS


def _columns(problem: Problem, limits: Limits) -> Iterator[Configuration]:
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
    if K > MAX_FEW_COLUMNS and _may_have_all(problem, limits):
        yield from _all_columns(problem)
        if size <= 4 and K <= WIDE_COLUMNS and _fills_lanes(K):
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


def _of_columns(problem: Problem, limits: Limits) -> Configuration | None:
    """Wide pieces of columns, or all columns if that is estimated to be better."""
    wide = _wide(problem, limits)
    every = _all_columns(problem) if wide and _may_have_all(problem, limits) else ()
    legal = (each for each in every if launch_or_none(problem, each, limits) is not None)
    return min((wide, *legal), key=lambda each: estimate(problem, each, limits)) if wide else None


def _wide(problem: Problem, limits: Limits) -> Configuration | None:
    """Wide pieces of columns that share sectors, where L2 does not hold all: programs drift apart."""
    M, N, K, size, integer, narrower = problem
    if (integer and narrower > 1 and K % 2 == 0) or K * size % SECTOR_BYTES == 0 or is_in_l2(problem, limits):
        return None
    int64, vec = integer and size == 8, vector(problem)[0]
    rows = WIDE_INTEGER_ROWS if int64 and narrower == 1 else WIDE_ROWS
    wide = Configuration("segments", 1, WIDE_COLUMNS, rows, WIDE_WARPS)
    if int64 and not (vec == 1 and wide.step(K) >= N and _has_few_idle(problem, wide)):
        wide = wide._replace(lanes=WIDE_INTEGERS)
    wider = wide._replace(lanes=2 * wide.lanes, depth=rows // 2, warps=2 * WIDE_WARPS)
    enough = M * cdiv(K, wider.lanes) >= WIDER_PROGRAMS * limits.sm_count and _has_few_idle(problem, wider)
    if cdiv(N, wide.step(K)) >= WIDER_STEPS:
        wide = wider if size <= 4 and enough else wide._replace(warps=MAX_WARPS) if size == 2 else wide
    if wide.lanes >= K:
        return None
    steps = cdiv(N, wide.step(K))
    at_once = Configuration("segments", 1, WIDE_COLUMNS // 2, ONE_STEP_HALVES, MAX_WARPS)
    many = M * cdiv(K, at_once.lanes) >= ONE_STEP_PROGRAMS * limits.sm_count
    if size == 2 and many and steps > 1 and at_once.step(K) >= N and _has_few_idle(problem, at_once):
        return at_once._replace(depth=cdiv(N, at_once.units))
    if steps < WIDE_STEPS:
        one_step, few_rows = _one_step(problem, wide.lanes, rows), WIDE_STEP_ROWS[int64] > N
        if one_step:
            wide = one_step
        elif few_rows or vec > WIDE_STEP_VECTOR or vec * size > WIDE_STEP_BYTES or (int64 and steps > 1):
            return None
        else:
            wide = wide._replace(depth=_rounded(cdiv(cdiv(N, steps), wide.units), rows))
    full = _has_few_idle(problem, wide) or (steps >= WIDE_STEPS and not int64)
    return wide if full and M * cdiv(K, wide.lanes) >= limits.sm_count else None


def _has_few_idle(problem: Problem, pieces: Configuration) -> bool:
    """Whether few of these lanes have no column."""
    K, int64 = problem.K, problem.integer and problem.size == 8
    return cdiv(K, pieces.lanes) * pieces.lanes * WIDE_FULL[int64] <= K


def _one_step(problem: Problem, lanes: int, rows: int) -> Configuration | None:
    """All rows of a piece of columns of int64 sums at once, by twice the warps."""
    _, N, _, size, integer, narrower = problem
    found = Configuration("segments", 1, lanes, 0, MAX_WARPS)
    depth, by_half = cdiv(N, found.units), cdiv(2 * N, found.units)
    timed = integer and size == 8 and vector(problem)[0] == 1 and narrower <= ONE_STEP_NARROWER
    if not timed or depth > ONE_STEP_ROWS or by_half <= (rows if narrower > 1 else ONE_STEP_EXACT):
        return None
    # An even number, so that fewer kernels are compiled.
    return found._replace(depth=depth if depth <= ONE_STEP_EXACT else cdiv(depth, 2) * 2)


def _may_have_all(problem: Problem, limits: Limits) -> bool:
    """Whether one program may have all columns, where L2 does not hold all."""
    _, N, K, size, integer, _ = problem
    int64 = integer and size == 8
    # Fewer rows were not timed with more columns, or int64.
    timed = WIDE_STEP_ROWS[int64] <= N or (K <= WIDE_COLUMNS and not int64)
    most = MAX_ALL_COLUMNS if size > 2 or _fills_lanes(K) else WIDE_COLUMNS
    return most >= K and timed and not is_in_l2(problem, limits)


def _fills_lanes(K: int) -> bool:
    return power_of_2(K) * ALL_COLUMNS_FULL <= K


def _all_columns(problem: Problem) -> Iterator[Configuration]:
    """A program for all columns: no two programs share a sector."""
    _, N, K, size, *_ = problem
    elements = min(vector(problem)[0], max(ALL_COLUMNS_WORD // size, 1))
    most = min(max_depth(problem, elements, "segments"), WIDE_ROWS if K > WIDE_COLUMNS else N)
    for warps in (WIDE_WARPS, MAX_WARPS):
        columns = Configuration("segments", elements, power_of_2(K), 0, warps)
        # An even number of rows to a thread, so that fewer kernels are compiled.
        if columns.units:
            yield columns._replace(depth=min(cdiv(N, 2 * columns.units) * 2, most))


def _steps(problem: Problem, configuration: Configuration, tiles: int) -> Iterator[Configuration]:
    """The configuration with a depth that splits a unit's ``tiles`` evenly into steps."""
    most = max_depth(problem, configuration.elements, configuration.kernel)
    if most:
        depth = _rounded(cdiv(tiles, cdiv(tiles, most)), most)
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
                for each in sorted({_rounded(more * depth, most) for more in (1, 2, 4)} | {*few}):
                    yield Configuration(kernel, elements, lanes, each, warps, registers)


def _rounded(depth: int, most: int) -> int:
    """One of few depths, for each is another kernel to compile. Large ones are powers of two: of bfloat16 columns in 8
    warps, 28 rows take 151 registers and 32 take 106.
    """
    return min(depth if depth <= 6 else cdiv(depth, 4) * 4 if depth <= 12 else power_of_2(depth), most)


def _powers(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2
