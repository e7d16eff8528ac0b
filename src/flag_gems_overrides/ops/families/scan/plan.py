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

# Programs of one block, as (warps, registers of a thread): those that share have as many registers as spill nothing,
# those of chunks as many warps as hide what they wait for. A row of 8 bytes by 8 warps: 40000003 float64 310 us, by 4
# 432; a few by 4: 4 x 10000001 int64 296 and 313, 16 x 2000001 float64 223 and 241 (H100).
SHARING, CHUNKS = ((4, 128), (8, 128)), ((4, 64), (8, 64))
# Bytes of the columns that lie side by side in a tile whose threads have segments of columns. At least two columns:
# small problems then have fewer rows to a thread and more programs.
COLUMN_BYTES = (128, 64, 32, 4)
# Programs side by side share sectors of columns, which L2 no longer has for the second once they have drifted apart. So
# a program has so many columns, by 8 warps, one load for each element, and 16 rows to a thread: 32 drift further. H100:
# 14 x 2354 x 1471 float64 along 1 302 us, by 64 columns 310, 1470 296 and 345; 28 x 2354 x 1471 float32 335, by 32 rows
# 416, by 64 columns 402 and 415; 28 x 2354 x 1476 312, in vectors 361; 61 x 1024 x 2488 bfloat16 321, by 256 columns in
# vectors 877; 200 x 100 x 1001 float32 67, by 32 columns 82. Of int64 half as many: 14 x 2354 x 1471 int32 270 us, by
# 128 columns 363, by 16 354, int64 392, 507 and 429, and of an input of int64, which takes more registers, fewer rows:
# by 12 343. Not where that leaves multiprocessors without a program: 8193 x 4097 float32 along 0 330 us, by 32 columns
# 137; nor of narrower integers that are loaded in vectors: 69 x 329 x 1494 bool 201 us, by vectors 137; but 14 x 2354 x
# 1470 int64 341, by vectors 382. Of fewer steps than so many only single elements, or two that are loaded at once, of
# at least so many rows, and where few lanes have no column, bfloat16: 47 x 174 x 16 x 353 along 2 75.2 us, by programs
# without segments 88, 8178 x 8 x 353 44.3 and 48.4, 2000 x 64 x 353, in two steps, 94.5 and 104, 8178 x 16 x 354 75.7
# and 93.8, x 201 47 and 53, x 777 153 and 186; float32 256 x 11 x 21658 171 and, in vectors, 187. Of int64 only one
# step, of more rows, for no others were timed, nor where the last program has few columns: 200 x 400 x 386 216 us, by
# vectors 211.5. So few rows that as many columns as of others have them at once are such: 10508 x 21 x 247 int32 238
# us, by 64 columns 258.
WIDE_COLUMNS, WIDE_INTEGERS, WIDE_ROWS, WIDE_INTEGER_ROWS, WIDE_WARPS, WIDE_STEPS = 128, 64, 16, 12, 8, 4
WIDE_STEP_ROWS, WIDE_FULL = (8, 16), (3 / 4, 7 / 8)  # the second of int64
WIDE_STEP_VECTOR, WIDE_STEP_BYTES = 2, 8
# Twice as many columns, by twice the warps and half the rows to a thread, share half as many sectors, in so many steps,
# of elements of up to 4 bytes, where each multiprocessor has two such programs. H100: 61 x 1024 x 2483 bfloat16 398 us,
# so 323, by 16 rows 331, 61 x 224 x 2483 75.4 and 72.3, 100 x 2000 x 2499 1377, 955 and 1099, 40 x 1024 x 2483 float32
# 408, 369 and 361; by 16 rows also 64 x 1024 x 2482 float16 404 and 335, 200 x 512 x 1501 bfloat16 378 and 307. But 20
# x 4096 x 1001 bfloat16, 80 such programs, 197 and 240, 28 x 2354 x 1471 float32, 168 of 8 rows, 333 and 349, and 307
# x 114 x 4344 float16, of few rows, 234 and 239. All columns where they have all rows at once: 9000 x 24 x 251 float32
# 154 us, by two programs 172, by one of 8 warps 171; but in ten steps 300 x 300 x 230 75.4, in vectors 73.3.
WIDER_STEPS, WIDER_PROGRAMS = 14, 2
# Of odd columns of int64 one step by 16 warps, of so many rows to a thread at most, where 8 would have more than so
# many, which are rounded: 146 x 76 x 1691 int64 115 us so, in programs without segments 137, int32 96 and 102, 300 x 40
# x 1001 int64 72.5, by 8 warps of 12 rows 81 (H100). But of 13 rows to a thread 100 x 100 x 1500 108 and 95, and in two
# steps 30 x 200 x 2001 138 and 83. No narrower integers than int32 were timed, nor those that 8 warps have at once.
ONE_STEP_ROWS, ONE_STEP_EXACT, ONE_STEP_NARROWER = 10, 6, 2
# All columns of up to so many, more than a piece has, so that no sector is of two programs, which drift apart: by 8
# warps with all registers of a thread, two elements of two bytes to a load. H100, in parentheses by pieces: 318 x 4216
# x 102 float32 418 us (901), 307 x 1195 x 65, whose lanes are half idle, 77 (139), by 64 columns 118, 200 x 3000 x 40
# float64 148 (180), by 16 warps 157, 175 x 8282 x 117 float16 323 (683), by 16 warps 330, 400 x 3000 x 90 bfloat16, in
# vectors of 4 bytes, 207 (266), element by element 217. Of more than half as many columns of 4 bytes half as many
# programs as multiprocessors are enough, 70 x 4000 x 100 float32 124 (201), but not of 2 bytes: 90 x 3000 x 75 bfloat16
# 80.0 (67.9). Of 8 bytes pieces are better, and of any int64: 256 x 2000 x 100 473 (363); integers of 2 or 4 bytes,
# whose sums have 8, were not timed. Of up to 4 bytes and few rows all at once, at most so many to a thread, by 16 warps
# if 8 would have more: 16528 x 47 x 83 float32 178 us (262), 30000 x 13 x 83, no fewer rows were timed, 93 (135), 4319
# x 85 x 81 float16 52, in two steps 60.
MAX_ALL_COLUMNS, ALL_COLUMNS_STEPS, ALL_COLUMNS_WORD = 128, 2, 4
MIN_AT_ONCE, AT_ONCE_ROWS = 13, 24
# All columns of 8 bytes that are no whole sectors with a thread to each vector, and so many rows loaded at once, of so
# many rows, by programs that together have so many warps for each multiprocessor: no sector is of two programs, which
# drift apart. By 32 columns, and so (H100): 1126 x 104 x 105 int64 and float64 110 us and 88 (torch.compile 88 and 92),
# 1500 x 200 x 51 int64 149 and 100, 600 x 90 x 201 84.4 and 76.7, 2000 x 100 x 102 157 and 129. Neither those whose
# lanes are more idle nor narrower integers were timed.
A_THREAD_EACH, A_THREAD_EACH_ROWS, A_THREAD_EACH_WARPS = Configuration("units", 1, 0, 8, 0), (80, 256), 20
A_THREAD_EACH_COLUMNS, A_THREAD_EACH_FULL = (33, 256), 3 / 4
MAX_CONFIGURATIONS = 24
# Of so many columns, and at least so many rows, from memory a thread has one vector of a row, if that is of so many
# bytes: more would be stored in parts of sectors. 837780 x 3 x 54 float16 takes 189 us so, 230 by four, 400000 x 5
# x 30 float32 168, 204 by two, 202371 x 7 x 11 50 and 65.5 by two (H100). No others were timed.
NARROW_COLUMNS, NARROW_ROWS, NARROW_BYTES = (8, 64), 3, 4
# So has it of more columns of single elements, by their size, with at most so many rows: 1024 x 3 x 23781 float32 takes
# 201 us, 227 by four, 31 x 6 x 5 x 29001 bfloat16 45.9 and 48.9 (H100).
ODD_COLUMNS, ODD_ROWS = {2: 1024, 4: 65}, 5
# So many [N, K] of a few odd columns of 16 bits and 17 to 32 rows have a program each, as those of float32 have: 7168 x
# 32 x 7 bfloat16 8.98 us with a thread to a column, so 7.74, stacked 9.16 (H100). No others were timed.
SHORT_COLUMNS, SHORT_COLUMNS_PROGRAMS = Configuration("segments", 1, 8, 2, 4), (4096, 12288)
# Rows of one vector of four elements are loaded as such in one step of so many to a thread, of half vectors by so many
# programs to a multiprocessor: 24371 x 256 x 4 float32 72.8 us, interleaved 92.8, 366 x 664 x 4 bfloat16 5.4 and 6.0.
# More were not timed; in several steps the scans across threads take longer than the bytes, 3101 x 1801 x 4 66.8 and
# 46.2, but not of eight elements: 16384 x 256 x 8 float16 50.3 and 99.4, 2000 x 2961 x 8 104 and 142. So they do of two
# elements, float32 1717 x 10111 184 and 119, 123 x 2728 8.8 and 7.7, int64 12760 x 560 90.7 and 86.7 (H100).
ROWS_OF_FOUR, ROWS_OF_FOUR_PROGRAMS = 3, 4
# With so few columns also fewer rows to a thread, which then lie in fewer sectors of memory: 99 x 21390 x 2 bfloat16
# takes 31 us in chunks with 2 rows, 32 in one launch with 8.
MAX_FEW_COLUMNS, FEW_COLUMNS_DEPTHS = 16, (1, 2, 4)
# Few columns of so many rows, of up to 4 bytes, have a program each, where there are multiprocessors for all. As they
# lie, and so (H100): 1 x 1024 x 4 bfloat16 3.75 us and 3.29, 8 x 500 x 4 3.49 and 3.19, 5 x 1024 x 4 float32 4.2 and
# 3.79, 23 x 412 x 4 3.80 and 3.42, 10 x 1000 x 3 3.95 and 3.60, 1 x 500 x 7 float16 3.46 and 3.33; but 3 x 600 x 2
# bfloat16 3.12 and 3.33, 16 x 1000 x 8 4.52 and 5.1, 5 x 2000 x 4 float32 4.70 and 5.11.
# Three of 16 bits are so many programs for each multiprocessor: 56 x 753 x 3 bfloat16 4.56 and 4.0; but 80 x 900 x 3
# float32 4.16 and 4.38, 60 x 1000 x 4 float16 4.21 and 4.75.
MIN_LONE_ROWS, MAX_LONE_ROWS, LONE_PROGRAMS = 400, 1024, 4 / 3
# Least elements of a program where there are enough: four to each thread of one warp.
MIN_ELEMENTS = 4 * WARP
# Most elements of a thread that has whole short rows.
MAX_SCALARS = 16
# Elements of int64 of a thread that has 64 registers.
FEWER_INTEGERS = 12
# So many times as many neighbours to a thread in rows of sums of int64, whose input is mostly narrower: half as many
# scans across the warp. In two steps of one program of 16 warps for each multiprocessor 120 x 16384 int32 takes 16.1 us
# so, with two neighbours 19.4, 130 x 16384 16.8 and 19.6 (H100). Neither more or shorter rows nor fewer warps were
# timed.
WIDE = 2
# Of several [N, K], more rows for each multiprocessor than this: fewer were not timed. A thread has whole vectors of
# whole rows, at least so many: of one 205085 x 16 x 8 bfloat16 74 us, of two 43.0, of eight 73. Of rows of eight
# elements twice as many: 41.8, 60000 x 35 x 8 33.3 by two, 29.3 by four; but 853170 x 2 x 4 15.7 and 17.0 (H100).
STACKED_ROWS, STACKED_VECTORS = 1024, 2
# In as few warps as read and write so many bytes, as long as a multiprocessor takes to begin a program, and of whose
# lanes so many have rows. By 4 warps, 2 and 1: 8000 x 100 x 3 bfloat16 9.0 us and 7.75, 30878 x 36 x 3 float32 16.6,
# 15.3 and 15.0, 17895696 x 5 x 3 int32 1482 and 1210 (H100).
STACKED_WARPS, STACKED_BYTES, STACKED_FULL = 4, 3072, 3 / 4
# Least elements of a thread of 257 to 511 elements of 8 bytes, where multiprocessors have more than one such row: 3348
# x 283 int64 11.5 us so, by 4 warps, 13.4 by 8 with two to a thread, 12.4 by 2 with 8, int32 9.0 and 11.0, float64 11.2
# and 12.7, 3348 x 511 int64 15.4 and 16.1, 900 x 283 4.91 and 5.66 (H100).
MIN_WIDE_ELEMENTS = 4
# Tiles of half vectors of float32 that spill 8 bytes in several steps, to have 64 registers: 3577 x 9582 102.9 us so,
# by ten 100.9 (H100); eleven spill too in 4 warps. With 16 a thread has 80 registers.
SPILLING_TILES, HELD_TILES = 12, 10
# So do tiles of two elements of integers of up to 2 bytes, whose sums are of 4, in 8 warps of 40 registers (7740 x 5640
# uint8, sm_90, Triton 3.6); seven do not, nor six in 16 warps. Not timed.
SPILLING_INTEGERS, HELD_INTEGERS = 6, 7
# Most elements of rows of int64, or of narrower integers, of whole vectors that are for 4 warps, where not all programs
# of 8 run at once: 1570 x 1024 uint8 9.3 us by 4 warps, 10.3 by 8, int64 13.7 and 14.2, 1570 x 2048 uint8 14.0 and
# 15.0, 3000 x 1024 bool 14.6 and 14.9, 20000 x 1024 uint8 68.7 and 68.7 (H100). No others were timed.
MAX_OF_4_WARPS = 2048
# Rows of 16 bits of so many tiles, with edges, where each multiprocessor has several, but not so many, are of a program
# of one warp each, which waits for no other: 359 x 299 bfloat16 3.23 us so, 3.52 by 4 warps with a row each, 3.48 by 2,
# 520 x 299 float16 3.38 and 3.55, 900 x 299 3.44 and 3.69 by 8; but 359 x 263 float32 4.32, by two warps for each row
# 3.44 (H100). No others were timed.
ONE_WARP_TILES, ONE_WARP_ROWS = 2, (EDGES_ROWS, 8)
# Rows of 16 bits, in whole vectors of three tiles, of so many for each multiprocessor, are of four warps in one step:
# 1197 x 616 bfloat16 4.43 us by two warps with three tiles, so 3.96 (torch.compile 3.91), 2400 x 616 float16 5.91 by a
# warp for each row, so 5.50, by two 5.61 (H100). No others were timed.
THREE_TILES, THREE_TILES_WARPS, THREE_TILES_ROWS = 3, 4, (8, 20)
# Rows of 16 bits, with edges, that one tile of a warp has, of more than so many for each multiprocessor, are of half a
# warp with twice the tiles, by four warps: 105528 x 151 bfloat16 34.1 us by a warp for each row, so 29.0, by eight
# threads 35.4 (H100).
MANY_HALF_WARP_ROWS, HALF_WARP_WARPS = ONE_WARP_ROWS[1], 4
# Short odd rows of one byte, of so many elements at least, have four of them to a thread, by four warps, if there are
# so many programs to a multiprocessor: 32768 x 13 uint8 4.56 us with one, so 3.90, with two 4.27, by eight warps 3.94
# (H100). No others were timed.
MIN_BYTES_OF_ROWS, BYTES_OF_ROWS, BYTES_PROGRAMS = 9, Configuration("units", 4, WARP, 1, 4), 4
# Odd rows of float32 of so many tiles of a warp's vectors, where L2 does not hold all, are of four warps in one step,
# if at least such a share of their lanes has elements. By a warp for each row, and so (H100): 263852 x 855 625 us and
# 604 (FlagGems 605), 100000 x 701 197.5 and 192.2, 131072 x 449 166.8 and 162.3, 60000 x 401 72.7 and 71.2,
# 20000 x 1001 59.5 and 59.3.
ODD_ROW_TILES, ODD_ROW_WARPS, ODD_ROW_FULL = (4, 8), 4, 3 / 4
# Of programs of rows as they lie in memory. One vector to a thread where that is eight elements: with two, which take
# 62 registers, 880160 x 30 bfloat16 takes 53.1 us, so 40.6 (H100). Not where two have so many times as many whole rows
# (not timed).
FLAT_WARPS, MAX_FLAT_ELEMENTS, MANY_FLAT_ROWS = 4, 8, 3


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    return problem.integer, problem.size, problem.K == 1, *vector(problem)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup(
        "scan",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    return found or configurations(problem, limits)[0]


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch that is chosen, for a problem of at least one element."""
    problem = Problem(*merged(*problem[:3]), *problem[3:])
    return launch(problem, choose(problem, limits), limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """What is legal, each another launch, by its estimate, wide pieces before; the first is the default."""
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
        yield from _steps(problem, segments, cdiv(tiles, wide * warps))
        # Of int64 also a quarter less: threads of 64 registers, of which four programs of 8 warps run at once. 4451 x
        # 5801 int32 takes 130 us so, 2.4 TB/s; 506 x 131072 with 8 tiles 423 by 4 warps, 446 by 8, 1.9 (H200).
        if integer and size == 8 and warps >= 4 and many:
            fewer = Configuration("segments", elements, lanes, FEWER_INTEGERS // elements, warps)
            yield _held(problem, fewer, cdiv(tiles, warps))
    # A row that a warp reads element by element may also be one of several warps.
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
    by_warps = _half_warp(problem, limits) or _one_warp(problem, limits) or _three_tiles(problem, limits)
    return by_warps or _odd_row(problem, limits) or _bytes(problem, limits)


def _bytes(problem: Problem, limits: Limits) -> Configuration | None:
    """For many short odd rows of one byte."""
    M, N, *_ = problem
    rows = BYTES_OF_ROWS._replace(lanes=power_of_2(N))
    short = problem.input_size == 1 < problem.size and vector(problem) == (1, False) and MIN_BYTES_OF_ROWS <= N <= WARP
    return rows if short and cdiv(M, rows.units) >= BYTES_PROGRAMS * limits.sm_count else None


def _half_warp(problem: Problem, limits: Limits) -> Configuration | None:
    """For each of many rows of one tile of 16 bits, with edges."""
    vec, unaligned = vector(problem)
    lanes = WARP * vec // 2
    depth = cdiv(interior(problem), lanes)
    short = problem.size == 2 and unaligned and depth <= 2
    row = Configuration("units", vec, lanes, depth, HALF_WARP_WARPS)
    return row if short and limits.sm_count * MANY_HALF_WARP_ROWS < problem.M else None


def _odd_row(problem: Problem, limits: Limits) -> Configuration | None:
    """For each odd row of float32, of many."""
    _, _, _, size, integer, _ = problem
    vec, unaligned = vector(problem)
    tiles = cdiv(interior(problem), WARP * vec)
    depth = cdiv(tiles, ODD_ROW_WARPS)
    few, many = ODD_ROW_TILES
    of_words = size == 4 and not integer and unaligned and few <= tiles <= many
    full = tiles >= ODD_ROW_FULL * depth * ODD_ROW_WARPS
    row = Configuration("segments", vec, WARP * vec, depth, ODD_ROW_WARPS)
    return row if of_words and full and not _is_in_l2(problem, limits) else None


def _one_warp(problem: Problem, limits: Limits) -> Configuration | None:
    """For each row of two tiles of 16 bits, with edges."""
    M, _, _, size, *_ = problem
    vec, unaligned = vector(problem)
    row = Configuration("units", vec, WARP * vec, ONE_WARP_TILES, 1)
    two = cdiv(interior(problem), row.lanes) == ONE_WARP_TILES
    several = ONE_WARP_ROWS[0] * limits.sm_count < M <= ONE_WARP_ROWS[1] * limits.sm_count
    return row if size == 2 and unaligned and two and several else None


def _three_tiles(problem: Problem, limits: Limits) -> Configuration | None:
    """For each row of three tiles of 16 bits, in whole vectors."""
    M, N, _, size, *_ = problem
    vec, unaligned = vector(problem)
    row = Configuration("segments", vec, WARP * vec, 1, THREE_TILES_WARPS)
    whole = vec * size == VECTOR_BYTES and not unaligned and cdiv(N, row.lanes) == THREE_TILES
    several = THREE_TILES_ROWS[0] * limits.sm_count < M <= THREE_TILES_ROWS[1] * limits.sm_count
    return row if size == 2 and whole and several else None


def _most_warps(problem: Problem, limits: Limits) -> int:
    """Of a row that several warps have."""
    M, N, _, size, integer, _ = problem
    of_4 = integer and size == 8 and N <= MAX_OF_4_WARPS and not vector(problem)[1]
    return 4 if of_4 and limits.threads_per_sm * limits.sm_count < M * 8 * WARP else MAX_WARPS


def _columns(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    M, N, K, size, *_ = problem
    vec, _ = vector(problem)
    # A pure copy reads whole vectors too, of a narrower input: 30136 x 1 x 56 bool 10.7 us by two elements to a thread.
    widest = problem.input_size if N == 1 else size
    for elements in _powers(1, max(VECTOR_BYTES // widest, 1)):
        # No vectors, where they are all that a program has: 23445879 x 1 float32 takes 116 us in 183171 programs with
        # one element to a thread, of which 62 move the bytes (H100).
        if elements > vec and (max_depth(problem, elements, "units") < N or _is_narrow(problem, limits)):
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
    pieces = {max(piece // each, 2) for piece in COLUMN_BYTES for each in (size, problem.input_size)}
    for lanes in sorted({min(power_of_2(K), piece) for piece in pieces}):
        # A warp has one row of the tile, or several: neighbours of a thread are in one row.
        elements = max(min(lanes // WARP, vec), 1)
        # Many programs that have less than a warp has at once are mostly begun and ended.
        tiny = N * min(lanes, K) < MIN_ELEMENTS and M * cdiv(K, lanes) > PROGRAMS_PER_SM * limits.sm_count
        for warps in _powers(4, MAX_WARPS) if not tiny else ():
            units = elements * warps * WARP // lanes
            tiles = cdiv(N, units)
            yield from _steps(problem, Configuration("segments", elements, lanes, 0, warps), tiles)
            for depth in FEW_COLUMNS_DEPTHS if K <= MAX_FEW_COLUMNS else ():
                if depth < tiles:
                    yield Configuration("segments", elements, lanes, depth, warps)
        yield from _together(problem, elements, lanes, limits)
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
    """In as few warps as have enough to move, and of whose lanes few have no row."""
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


def _is_narrow(problem: Problem, limits: Limits) -> bool:
    """Whether a thread has one vector of a row of these columns."""
    _, N, K, size, *_ = problem
    vec, _ = vector(problem)
    if size > 4 or NARROW_ROWS > N or _is_in_l2(problem, limits):
        return False
    odd = vec == 1 and ODD_COLUMNS.get(size, K + 1) <= K and ODD_ROWS >= N
    return odd or (NARROW_COLUMNS[0] <= K <= NARROW_COLUMNS[1] and vec * size >= NARROW_BYTES)


def _of_columns(problem: Problem, limits: Limits) -> Configuration | None:
    together = _all_columns(problem, limits) or _wide(problem, limits)
    return together or _a_thread_each(problem, limits) or _short_columns(problem, limits)


def _a_thread_each(problem: Problem, limits: Limits) -> Configuration | None:
    """All columns of 8 bytes that are no whole sectors, where L2 does not hold all."""
    M, N, K, *_ = problem
    vec, lanes = vector(problem)[0], power_of_2(K)
    warps = lanes // vec // WARP
    fewest, most = A_THREAD_EACH_COLUMNS
    shared = problem.input_size == 8 and K * 8 % SECTOR_BYTES and fewest <= K <= most
    of_words = shared and A_THREAD_EACH_FULL * lanes <= K
    rows = A_THREAD_EACH_ROWS[0] <= N <= A_THREAD_EACH_ROWS[1]
    if not of_words or not rows or M * warps < A_THREAD_EACH_WARPS * limits.sm_count or _is_in_l2(problem, limits):
        return None
    return A_THREAD_EACH._replace(elements=vec, lanes=lanes, warps=warps)


def _short_columns(problem: Problem, limits: Limits) -> Configuration | None:
    """For each of many [N, K] of a few odd columns of 16 bits, which L2 holds."""
    M, N, K, size, *_ = problem
    units, lanes = SHORT_COLUMNS.units, SHORT_COLUMNS.lanes
    few = size == 2 and K % 2 == 1 and lanes // 2 < K <= lanes and units < N <= units * SHORT_COLUMNS.depth
    many = SHORT_COLUMNS_PROGRAMS[0] <= M <= SHORT_COLUMNS_PROGRAMS[1]
    return SHORT_COLUMNS if few and many and _is_in_l2(problem, limits) else None


def _wide(problem: Problem, limits: Limits) -> Configuration | None:
    """Wide pieces of columns that share sectors, where programs drift apart and L2 does not hold all."""
    M, N, K, size, integer, narrower = problem
    if (integer and narrower > 1 and K % 2 == 0) or K * size % SECTOR_BYTES == 0 or _is_in_l2(problem, limits):
        return None
    int64, vec = integer and size == 8, vector(problem)[0]
    rows = WIDE_INTEGER_ROWS if int64 and narrower == 1 else WIDE_ROWS
    wide = Configuration("segments", 1, WIDE_COLUMNS, rows, WIDE_WARPS)
    if int64 and not (vec == 1 and wide.step(K) >= N and _has_few_idle(problem, wide)):
        wide = wide._replace(lanes=WIDE_INTEGERS)
    wider = wide._replace(lanes=2 * wide.lanes, depth=rows // 2, warps=2 * WIDE_WARPS)
    enough = M * cdiv(K, wider.lanes) >= WIDER_PROGRAMS * limits.sm_count and _has_few_idle(problem, wider)
    many = cdiv(N, wider.step(K)) >= WIDER_STEPS
    at_once = wider._replace(depth=rows)
    if size <= 4 and enough and wide.lanes < K <= wider.lanes and at_once.step(K) >= N:
        wide = at_once
    else:
        wide = wider if size <= 4 and enough and many else wide
        if wide.lanes >= K:
            return None
    steps = cdiv(N, wide.step(K))
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
    """All rows of a piece of columns of int64 at once, by twice the warps."""
    _, N, _, size, integer, narrower = problem
    found = Configuration("segments", 1, lanes, 0, MAX_WARPS)
    depth, by_half = cdiv(N, found.units), cdiv(2 * N, found.units)
    timed = integer and size == 8 and vector(problem)[0] == 1 and narrower <= ONE_STEP_NARROWER
    if not timed or depth > ONE_STEP_ROWS or by_half <= (rows if narrower > 1 else ONE_STEP_EXACT):
        return None
    # An even number: few different ones.
    return found._replace(depth=depth if depth <= ONE_STEP_EXACT else cdiv(depth, 2) * 2)


def _all_columns(problem: Problem, limits: Limits) -> Configuration | None:
    """A program for all columns, of many rows, where several would share sectors, and L2 does not hold all."""
    M, N, K, size, integer, _ = problem
    many = MAX_ALL_COLUMNS // 2 < K
    of_words = size == 8 and problem.input_size > 1 and (integer or many)
    programs = 2 * M if many and size == 4 else M
    few = limits.sm_count > programs or K * size <= COLUMN_BYTES[0]
    if few or MAX_ALL_COLUMNS < K or of_words or _is_in_l2(problem, limits):
        return None
    elements = min(vector(problem)[0], max(ALL_COLUMNS_WORD // size, 1))
    whole = Configuration("segments", elements, power_of_2(K), max_depth(problem, elements, "segments"), WIDE_WARPS)
    return _rows_at_once(problem, whole) or (whole if cdiv(N, whole.step(K)) >= ALL_COLUMNS_STEPS else None)


def _rows_at_once(problem: Problem, whole: Configuration) -> Configuration | None:
    """All rows of all columns, by as few warps as have them."""
    _, N, K, size, *_ = problem
    vec, _ = vector(problem)
    apart = K * size % SECTOR_BYTES == 0 or vec > WIDE_STEP_VECTOR or vec * size > WIDE_STEP_BYTES
    if size > 4 or apart or MIN_AT_ONCE > N:
        return None
    for warps in (WIDE_WARPS, MAX_WARPS):
        # An even number: few different ones.
        found = whole._replace(warps=warps, depth=0)
        found = found._replace(depth=cdiv(N, 2 * found.units) * 2)
        if found.depth <= min(whole.depth, AT_ONCE_ROWS):
            return found
    return None


def _is_in_l2(problem: Problem, limits: Limits) -> bool:
    M, N, K, size, *_ = problem
    return limits.l2_bytes >= 2 * M * N * K * size


def _steps(problem: Problem, configuration: Configuration, tiles: int) -> Iterator[Configuration]:
    """With so many of a unit's ``tiles`` at once that all steps have about as many."""
    most = max_depth(problem, configuration.elements, configuration.kernel)
    if most:
        depth = _rounded(cdiv(tiles, cdiv(tiles, most)), most)
        yield _held(problem, configuration._replace(depth=depth), tiles)


def _held(problem: Problem, found: Configuration, tiles: int) -> Configuration:
    """With about as many of ``tiles`` at once, that spill nothing in several steps."""
    if problem.K > 1 or vector(problem) != (2, False) or tiles <= found.depth:
        return found
    if problem.size == 4 and found.depth == SPILLING_TILES:
        return found._replace(depth=cdiv(tiles, cdiv(tiles, HELD_TILES)))
    narrow = problem.integer and problem.narrower >= 4 and found.warps < MAX_WARPS
    return found._replace(depth=HELD_INTEGERS) if narrow and found.depth == SPILLING_INTEGERS else found


def _together(problem: Problem, elements: int, lanes: int, limits: Limits) -> Iterator[Configuration]:
    """Several programs for each block."""
    M, _, K, *_ = problem
    blocks = M * cdiv(K, lanes)
    for kernel, sizes in (("shared", SHARING), ("chunks", CHUNKS)):
        most = max_depth(problem, elements, kernel)
        for warps, registers in sizes if most else ():
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
    """Few different ones: each is another kernel to compile. Many are a power of two: of bfloat16 columns in 8 warps 28
    rows take 151 registers, 32 take 106.
    """
    return min(depth if depth <= 6 else cdiv(depth, 4) * 4 if depth <= 12 else power_of_2(depth), most)


def _powers(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2
