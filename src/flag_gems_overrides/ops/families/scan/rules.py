# SPDX-License-Identifier: Apache-2.0
"""Launches of a cumsum that rules choose: of columns that share sectors, and of short rows."""

from __future__ import annotations

from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, WARP, cdiv, power_of_2
from .estimate import EDGES_ROWS, estimate
from .launches import (
    MAX_WARPS,
    Configuration,
    Problem,
    interior,
    is_in_l2,
    launch_or_none,
    max_depth,
    vector,
)

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


def of_columns(problem: Problem, limits: Limits) -> Configuration | None:
    """Wide pieces of columns, or all columns if that is estimated to be better."""
    wide = _wide(problem, limits)
    every = all_columns(problem) if wide and may_have_all(problem, limits) else ()
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
            wide = wide._replace(depth=rounded(cdiv(cdiv(N, steps), wide.units), rows))
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


def may_have_all(problem: Problem, limits: Limits) -> bool:
    """Whether one program may have all columns, where L2 does not hold all."""
    _, N, K, size, integer, _ = problem
    int64 = integer and size == 8
    # Fewer rows were not timed with more columns, or int64.
    timed = WIDE_STEP_ROWS[int64] <= N or (K <= WIDE_COLUMNS and not int64)
    most = MAX_ALL_COLUMNS if size > 2 or fills_lanes(K) else WIDE_COLUMNS
    return most >= K and timed and not is_in_l2(problem, limits)


def fills_lanes(K: int) -> bool:
    return power_of_2(K) * ALL_COLUMNS_FULL <= K


def all_columns(problem: Problem) -> Iterator[Configuration]:
    """A program for all columns: no two programs share a sector."""
    _, N, K, size, *_ = problem
    elements = min(vector(problem)[0], max(ALL_COLUMNS_WORD // size, 1))
    most = min(max_depth(problem, elements, "segments"), WIDE_ROWS if K > WIDE_COLUMNS else N)
    for warps in (WIDE_WARPS, MAX_WARPS):
        columns = Configuration("segments", elements, power_of_2(K), 0, warps)
        # An even number of rows to a thread, so that fewer kernels are compiled.
        if columns.units:
            yield columns._replace(depth=min(cdiv(N, 2 * columns.units) * 2, most))


def rounded(depth: int, most: int) -> int:
    """One of few depths, for each is another kernel to compile. Large ones are powers of two: of bfloat16 columns in 8
    warps, 28 rows take 151 registers and 32 take 106.
    """
    return min(depth if depth <= 6 else cdiv(depth, 4) * 4 if depth <= 12 else power_of_2(depth), most)


def of_a_row(problem: Problem, limits: Limits) -> Configuration | None:
    return _half_warp(problem, limits) or _one_warp(problem, limits) or _bytes(problem, limits)


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
