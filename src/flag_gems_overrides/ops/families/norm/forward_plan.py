# SPDX-License-Identifier: Apache-2.0
"""Whole rows of the forward pass: a tile, a row or a pipeline to a program. Measured on an H200."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import MIN_UNALIGNED, Configuration, Problem, widest
from .programs import BYTES_IN_FLIGHT, MAX_WARPS, stages_within, warps_for

# Up to this N, by bytes of an element, each program has one tile: with as many programs as tiles, all loads are in
# flight without a pipeline. bf16, before -> after: 1048576 x 256 289 -> 258 us, 65536 x 768 59 -> 54, 32768 x 1000 42
# -> 38, 64 x 64 3.3 -> 3.1, and 16384 x 2048 38 -> 39; float32: 262144 x 128 74 -> 68, 65536 x 768 105 -> 99, 8192 x
# 4096 74 -> 68. All rows of float64 that a program holds, 50000 x 864 199 -> 181, and of float32 that are no vectors.
MAX_N_OF_ONE_TILE = {2: 1024, 4: 4096}
# So many rows of up to so many elements, twice as many that are loaded one by one, are for programs of four warps, for
# each takes some time to start: 6692064 x 11 float32 347 us by programs of 16 rows, upstream 256, 87120 x 25 14.3 by
# 10890 programs of one warp, upstream 12.8 (H100).
MAX_N_OF_MANY_ROWS, MIN_ROWS_PER_SM = 16, 512
# Rows that a thread has whole (short_rows.py): columns, and most elements of a thread. Before -> after: layer_norm of
# 226634 x 7 bf16 8.6 -> 6.4 us with 14 elements to a thread, 7.8 with 28, 9.3 with 56, 10.1 with 7, which are no
# vectors; 300000 x 6 float16 7.9 -> 7.4 with 12, 7.6 with 24; 226634 x 5 float32 10.8 -> 8.7 with 10 (by one warp with
# 20 8.2), 32768 x 5 4.5 -> 3.4; rms_norm of 226634 x 5 float32 8.1 -> 7.3 with 10, 8.5 with 20. Longer rows are slower
# so: 200000 x 9 float32 15.6 us by tiles, 17.8 by whole rows, 150000 x 15 14.2 and 27.1; 410144 x 8 float16 11.7 flat
# and 11.5, 1579150 x 3 17.0 by columns and 16.5 (H100).
SHORT_COLUMNS, SHORT_ELEMENTS = (5, 6, 7), 16
# Odd float32 that are more than this share of L2, with what is written, are for tiles: a thread's parts of them are
# written to memory before its neighbours' are there. rms_norm of 673225 x 5, 27 MB, takes 25.7 us with whole rows, by
# tiles 16.1, of 400001 x 7 24.4 and 14.3, but of 200001 x 5, 8 MB, 6.5 and more (1400000 x 5 bf16 15.8 and 20.5; H100).
SHORT_SHARE_OF_L2 = 1 / 3
# Of a smaller share a thread has one row of five, not two, in single elements: rms_norm of 330001 x 5, 13 MB, takes
# 10.35 us so, 12.7 with two, but of 240001 x 5, 10 MB, 7.34 and 7.11, of 220001 x 7 13.3 and 12.0 (H100).
SINGLE_SHARE_OF_L2 = 1 / 5
# A row to a program (``late_row``): elements of a thread, and threads of a multiprocessor. rms_norm of bf16
# 16384 x 8192 takes 134.9 us so, 143.4 with pipelines; 8192 x 4096 37.6 and 38.3, with a residual 71.5 and 73.5;
# layer_norm of float32 16384 x 8192 263.7 and 284.3, of bf16 3500 x 7792 33.1 and 35.2, 4096 x 16384 96.9 and 100.2
# (H100).
LATE_ELEMENTS, LATE_THREADS = 32, 1024
# Least waves of such programs: layer_norm of 3059 x 2400, 1.7 waves, takes 12.4 us with pipelines and at least 13.3
# so; of 3500 x 7792, 6.3 waves, 34.8 and 33.1. Of sums with a residual, which load twice as much, fewer: of 1500 x
# 5120, 1.8 waves, 25.2 and 22.8, of 700 x 3872 bf16 13.4 and 12.1, of 300 x 5120 float16, 0.36 waves, 8.76 and 8.42;
# fused_add_rms_norm of 700 x 3872 28.9 and 27.3 (H100).
MIN_WAVES, MIN_WAVES_OF_SUM = 4, 1 / 3
# Of rows with edges: the shortest, of which half with a residual, and the fewest for each multiprocessor.
MIN_LATE_EDGES, MANY_ROWS_PER_SM = 2048, 8
# So many rows of up to 1024 elements of 2 bytes for each multiprocessor are loaded in parts of vectors: 245 x 341
# float16 and a residual take 4.0 us with edges, 3.5 without, as FlagGems.
MAX_UNALIGNED_ROWS_PER_SM = 8
# Of pairs in up to so many elements, more, up to so many elements of a multiprocessor: layer_norm of 1976 x 406 float16
# takes 4.75 us so, 5.17 with edges, of 8000 x 406 10.1 and 11.6, with a residual 12000 x 406 17.5 and 21.0, 3000 x 1002
# bf16 12.5 and 16.5; any number of no fours with a residual: 27381 x 498 bf16 35.4 and 40.7 (torch.compile 36.1), 20000
# x 1002 float16 48.0 and 56.4, fused_add_rms_norm of 27381 x 498 90.5 and 94.2. Without, one warp has up to
# MAX_PAIRS_OF_WARP: 3000 x 602 7.1, two 7.5, with edges 8.3; of many with a residual up to MAX_PAIRS_OF_WARP_OF_MANY:
# 60000 x 262 float16 43.3, two 47.4, with edges 48.6, but 27381 x 498 35.4 by one or two (H100).
MAX_PAIRS, MAX_PAIRS_PER_SM, MAX_PAIRS_OF_WARP, MAX_PAIRS_OF_WARP_OF_MANY = 1024, 37000, 768, 320
# Registers of threads of 16 warps with single elements, which are alone on a multiprocessor (``_few_unaligned_rows``).
REGISTERS_OF_SINGLES = 80
# Odd rows of 16 bits of up to so many elements, or so many with a residual, that are all loaded at once, one by one, by
# programs of 4 warps, and the fewest for each multiprocessor (``odd_rows_at_once``).
MAX_ODD_AT_ONCE, MAX_ODD_SUM_AT_ONCE, MIN_ODD_PER_SM = 512, 384, 4
# Vectors that a lane has of others that are hardly more than pipelines (``short_odd_row``).
CHUNKS_OF_SHORT_ODD = (3, 4)
# Up to so many longer ones, by programs of 8 warps: layer_norm of 224 x 2723 bf16 takes 5.4 us so, 6.0 with edges, 200
# x 1501 float16 4.6 and 5.5, but 400 x 2723 8.0 and 7.2, 639 x 2753 9.3 and 8.9, 264 x 4097 7.4 and 7.1;
# skip_layer_norm of 210 x 1467 4.8 and 5.5, 250 x 2003 5.3 and 6.3 (H100).
MAX_SINGLE_ROWS_PER_SM, MAX_SINGLE = 2, 3072
# One program for each row instead of pipelines (``early_row``): for rows longer than SHORTER_THAN_EARLY and up to
# MAX_EARLY. There are more rows than pipelines, or than MIN_EARLY_ROWS_PER_SM for each multiprocessor if that is fewer,
# and at most MAX_ROWS_OF_FEW for each pipeline, MAX_FULL_ROWS_OF_FEW where a row fills more than 3/4 of its tile. The
# rows are at most the share EVEN of what all pipelines would have if each had as many as the busiest.
SHORTER_THAN_EARLY, MAX_EARLY, MIN_EARLY_ROWS_PER_SM = 2048, 8192, 6
MAX_ROWS_OF_FEW, MAX_FULL_ROWS_OF_FEW, EVEN = 3.5, 2, 0.88
# Rows of a multiprocessor, and bytes of a row, for ``long_sum``. Others were not timed.
MAX_LONG_SUMS, LONG_SUM, MAX_LONG_SUM = 3.1, 24000, 32768
# Most rows of whole vectors of 16 bits, and their lengths, that are not shared as in the tables (``few_long_rows``).
MAX_M_OF_FEW_LONG, MIN_N_OF_FEW_LONG, MAX_N_OF_FEW_LONG = 3, 12288, 16384
# Between these lengths odd rows take programs of 16 warps, or four programs of four (``shared_odd_row``).
MIN_SHARED_ODD, MAX_SHARED_ODD = 14344, 16384


def forward_rows(problem: Problem, limits: Limits) -> Iterator[Configuration | None]:
    """What suits ever longer rows."""
    M, N, _, itemsize, *_ = problem
    vector = VECTOR_BYTES // itemsize
    # A warp that loads elements of 4 bytes one by one loads whole cache lines: no edges, which take a pipeline.
    # fused_add_rms_norm of 26000 x 1249 float32 181.8 us, 198.7 with them (H100).
    vec = widest(N, itemsize) if itemsize == 2 else math.gcd(N, vector)
    if N == 3 or (power_of_2(N) == N and vector >= N):
        yield _flat(problem)
    if N in SHORT_COLUMNS:
        yield _short_rows(problem, limits)
    yield early_row(problem, limits)
    yield row_with_edges(problem, limits)
    fits = 2 * N * itemsize <= limits.registers_per_sm
    short = MAX_N_OF_ONE_TILE.get(itemsize, 0) >= N or (fits and (itemsize == 8 or vec < vector))
    if short and N % vec == 0 and (WARP * vector >= N or limits.sm_count < M):
        yield _one_tile(problem, vec, limits)
    if N % widest(N, itemsize) and fits and limits.sm_count * (MAX_UNALIGNED_ROWS_PER_SM if N <= 1024 else 1) >= M:
        yield _few_unaligned_rows(problem)
    yield _pairs(problem, limits)
    yield _few_single_rows(problem, limits)
    whole = _rows(problem, vec, limits)
    # If there is no such program: of float64 the other way is a loop, rms_norm of 228 x 8192 13.2 us, 14.5 so, but
    # layer_norm of 133 x 7271 18.3 and 16.6. Of 2 bytes several programs are slower: 2048 x 24576 bf16 70.5 us, 74.9
    # so, 98 x 30200 11.9 and 12.4, 1000 x 21248 42.7 and 43.2, but 300 x 12288 float32 20.1 and 18.8 (the last three:
    # H100).
    if whole is None and itemsize != 4:
        yield late_row(problem)
    # On sm_100 8 bytes of fused_add_rms_norm of 1000 x 8192 bf16 would spill.
    waves = MIN_WAVES_OF_SUM if problem.residual and limits.capability[0] < 10 else MIN_WAVES
    if whole is not None and whole.stages > 1 and many_rows(problem, limits, waves):
        # Of a misaligned residual of 9000 x 3000 float16, late, 48 bytes would spill.
        yield row_of_sum(problem) if problem.residual else late_row(problem)
    yield whole


def _flat(problem: Problem) -> Configuration:
    _, N, _, itemsize, *_ = problem
    if N == 3:
        # 5779150 x 3 float16: 48.5 us with a row to a thread, 62.4 with four of fewer warps.
        return Configuration("columns", 8, rows=8 * WARP)
    # One load of 4 elements at least: statistics of 8197496 x 1 are four times as many bytes. Twice of many elements.
    elements = max(N, 4) if N == 1 else VECTOR_BYTES // itemsize
    return Configuration("flat", 4, rows=elements * 4 * WARP // N)


def _short_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """The widest vectors with which a thread has few elements, and each multiprocessor a warp: 400 x 5 float32 3.1 us
    by tiles, 2.8 with a row to a thread, 3.4 with four (H100). None where tiles are faster.
    """
    M, N, _, itemsize, *_ = problem
    moved = 2 * problem.inputs * M * N * itemsize
    if itemsize == 4 and N % 2 and moved > SHORT_SHARE_OF_L2 * limits.l2_bytes:
        return None
    single = itemsize == 4 and N == 5 and moved > SINGLE_SHARE_OF_L2 * limits.l2_bytes
    vec = 1 if single else VECTOR_BYTES // itemsize
    # Of rows that together are whole vectors.
    while vec > 1 and (math.lcm(N, vec) > SHORT_ELEMENTS or math.lcm(N, vec) * WARP * limits.sm_count > M * N):
        vec //= 2
    return Configuration("short", 4 if limits.sm_count * MIN_ROWS_PER_SM <= M else 1, vec)


def _one_tile(problem: Problem, vec: int, limits: Limits) -> Configuration:
    """As many programs as tiles, of up to 8 vectors to a thread, 4 of them of each row."""
    M, N, _, itemsize, *_ = problem
    lanes = WARP * VECTOR_BYTES // itemsize
    # 64 x 64 float32 2.7 us by programs of 4 warps, 3.0 by one; 512 x 64 3.1 and 3.3. But what one warp loads at once
    # is for one: rms_norm of 1 x 32 takes 2.85 us by 4 warps, 1 x 101 bf16 2.5 by one.
    # And a tile has an element for each thread: 2 x 23 float32 has less than 4 warps.
    enough = WARP * vec < M * N and power_of_2(M) * power_of_2(N) >= 4 * WARP
    little = itemsize == 4 and lanes >= 2 * N and 4 * limits.sm_count >= M and enough
    warps = 4 if little else warps_for(N, 4 * lanes)
    block_n = min(power_of_2(N), warps * lanes)
    # Rows that share a load: 262144 x 64 bf16 22.2 us with 4 vectors, 24.7 with 2, more with 8. Elements that are
    # loaded one by one take an address and a mask each.
    # With 8 and a residual 8 bytes of fused_add_rms_norm spill (8192 x 4096 float32, 32768 x 1000 bf16: Triton 3.7).
    whole = vec * itemsize == VECTOR_BYTES
    wide = block_n == warps * lanes and whole and itemsize < 8 and not problem.residual
    # Of single float64 two: 58263 x 17 21.8 us, 25.7 with four, 2063007 x 15 304 and 380.
    vectors = 2 if itemsize == 8 and not whole else 8 if wide else 4
    at_once = max(warps * WARP * vec // block_n, 1)
    block_m = min(power_of_2_within(vectors * warps * lanes // (cdiv(N, block_n) * block_n)), 8 * at_once)
    # Few rows: rather more programs, as long as each thread has some. 256 x 128: 3.4 us with 1 row, 3.7 with 8.
    # With one vector to a thread 8 bytes of 64 x 64 float32 spill (Triton 3.7); 5 x 35 float32 3.0 us, 3.2 with two.
    # 4240 x 64 bf16: 3.6 us with 8 rows, 4.0 with 16.
    two = little and whole
    block_m = min(block_m, max(power_of_2_within(M // (4 * limits.sm_count)), at_once * (2 if two else 1)))
    if block_n <= MAX_N_OF_MANY_ROWS * (2 if vec == 1 else 1) and limits.sm_count * MIN_ROWS_PER_SM <= M:
        warps, block_m = 4 * warps, 4 * block_m
    # 1026283 x 503 float64 2066 us with a late weight and bias, 2361 without.
    late = N >= MIN_UNALIGNED and (itemsize == 8 or not whole) and many_rows(problem, limits)
    if late and itemsize == 4 and vec > 1 and warps == MAX_WARPS:
        # 16384 x 4098 float32 145 us by 8 warps, 170 by 16, a third of whose lanes have no element.
        warps = warps_for(N, LATE_ELEMENTS * WARP)
    return Configuration("rows", warps, vec, min(block_m, power_of_2(M)), late=late)


def odd_rows_at_once(problem: Problem, limits: Limits) -> Configuration | None:
    """A short odd row of 16 bits to a program of 4 warps, where all programs run at once; None for others.

    layer_norm of 1976 x 371 bf16 takes 5.25 us so, with edges 5.59, by two warps 5.58, of 700 x 371 4.04, 4.24 and
    4.09, with a residual of 1976 x 371 float16 6.05, 6.25 and 6.11, rms_norm 4.66, 4.95 and 4.79, but layer_norm of
    3000 x 371 6.72, 6.1 and 7.17, fused_add_rms_norm of 2000 x 451 17.7 and 17.0 (H100).
    """
    M, N, _, itemsize, backward, residual = problem
    if limits.capability[0] != 9 or backward or itemsize != 2 or N % 2 == 0:
        return None
    longest = MAX_ODD_SUM_AT_ONCE if residual else MAX_ODD_AT_ONCE
    at_once, rows_per_sm = limits.threads_per_sm // (4 * WARP), M / limits.sm_count
    if not MIN_UNALIGNED < N <= longest or not MIN_ODD_PER_SM < rows_per_sm <= at_once:
        return None
    return Configuration("rows", 4)


def short_odd_row(problem: Problem, limits: Limits) -> Configuration | None:
    """A short odd row of 16 bits to a program of one warp instead of pipelines, of which some have two; None for
    others.

    layer_norm of 4400 x 1001 float16 takes 14.8 us so, by pipelines 18.4, with a late weight and bias 16.6, of 7500 x
    701 bf16 16.2, 18.9 and 16.9, of 2000 x 601 6.4 and, late, 7.2, of 8300 x 1021 float16 21.9, 23.0 and 22.5, rms_norm
    of 5041 x 983 12.9, 14.3 and 14.6, of 2500 x 801 bf16 6.84, 6.91 and 7.57 (H100).
    """
    M, N, _, itemsize, backward, residual = problem
    if limits.capability[0] != 9 or backward or residual or itemsize != 2 or N % 2 == 0:
        return None
    vec = VECTOR_BYTES // itemsize
    chunks = cdiv(N // vec, WARP)
    if chunks not in CHUNKS_OF_SHORT_ODD:
        return None
    pipelines = BYTES_IN_FLIGHT * 2 // (chunks * WARP * VECTOR_BYTES) * limits.sm_count
    if not MAX_UNALIGNED_ROWS_PER_SM * limits.sm_count < M < 2 * pipelines:
        return None
    return Configuration("rows", 1, vec)


def few_long_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """A program of 16 warps to a row: layer_norm of 1 x 16384 bf16 takes 4.63 us so, by four programs 5.52, but of 2 x
    27688 5.91, by seven 5.77 (H100). None for others."""
    M, N, _, itemsize, backward, residual = problem
    if limits.capability[0] != 9 or backward or residual or itemsize != 2 or N % (VECTOR_BYTES // itemsize):
        return None
    if M > MAX_M_OF_FEW_LONG or not MIN_N_OF_FEW_LONG <= N <= MAX_N_OF_FEW_LONG:
        return None
    return Configuration("rows", MAX_WARPS, VECTOR_BYTES // itemsize)


def _few_unaligned_rows(problem: Problem) -> Configuration:
    """Loads of what divides a row: 1 x 7989 float32 5.2 us, 10.5 with edges; 38 x 2028 bf16 3.9, not 4.5.

    With a residual half of a row to a warp: 15 x 289 bf16 3.6 us by one warp, FlagGems 3.2.
    """
    _, N, _, itemsize, *_ = problem
    vector = VECTOR_BYTES // itemsize
    warps, vec = warps_for(N, 2 * WARP * vector // problem.inputs), math.gcd(N, vector)
    # Of 18 x 5573 bf16 by 16 warps 8 bytes spill with 64 registers (Triton 3.6).
    registers = REGISTERS_OF_SINGLES if itemsize == 2 and vec == 1 and warps == MAX_WARPS else 0
    return Configuration("rows", warps, vec, registers=registers)


def _pairs(problem: Problem, limits: Limits) -> Configuration | None:
    """Even rows of 16 bits that are no whole vectors, in pairs or fours; None for others."""
    M, N, _, itemsize, _, residual = problem
    if itemsize != 2 or N % 2 or N % widest(N, itemsize) == 0 or N > MAX_PAIRS:
        return None
    many = MAX_PAIRS_PER_SM * limits.sm_count < M * N
    if many and not (residual and N % 4):
        return None
    found = _few_unaligned_rows(problem)
    alone = N <= MAX_PAIRS_OF_WARP_OF_MANY if many else not residual and N <= MAX_PAIRS_OF_WARP
    return found._replace(warps=1) if alone else found


def _few_single_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """Odd rows of 16 bits, loaded one by one; None for others."""
    M, N, _, itemsize, *_ = problem
    if limits.capability[0] != 9 or itemsize != 2 or N % 2 == 0:
        return None
    if not 1024 < N <= MAX_SINGLE or MAX_SINGLE_ROWS_PER_SM * limits.sm_count < M:
        return None
    return Configuration("rows", 8)


def many_rows(problem: Problem, limits: Limits, waves: float = MIN_WAVES) -> bool:
    """Whether programs with one row each, or a few short ones, come in some waves."""
    return waves * limits.sm_count * LATE_ELEMENTS * LATE_THREADS <= problem.M * problem.N


def late_row(problem: Problem) -> Configuration | None:
    """A row to a program, which loads weight and bias after the statistics; None if it is too long."""
    N, itemsize = problem.N, problem.itemsize
    vec, elements = math.gcd(N, VECTOR_BYTES // itemsize), 16 if itemsize == 8 else LATE_ELEMENTS
    # A residual has registers too: 56 bytes of 32768 float16 and a misaligned one spill, 8 of 24576.
    longest = MAX_WARPS * WARP * (elements if itemsize == 8 or problem.residual else 64)
    if longest < N or (itemsize < 8 and vec * itemsize < VECTOR_BYTES):
        return None
    return Configuration("rows", warps_for(N, elements * WARP), vec, late=True)


def early_row(problem: Problem, limits: Limits) -> Configuration | None:
    """One program for each row of whole vectors, where a pipeline would have few rows and the pipelines unequal numbers
    of them; None elsewhere.

    layer_norm of 788 x 5136 bf16 takes 12.2 us so, 14.1 by 660 pipelines (FlagGems 13.3), of 1000 x 5136 13.5 and 15.9,
    of 600 x 8192 14.4 and 15.7, of 1500 x 3072 12.2 and 12.7, of 2000 x 2400 12.6 and 13.2, of 800 x 4096 10.1 and
    10.9, of 400 x 8192 float32 16.2 and 17.4, of 800 x 3072 12.3 and 13.2; of 1500 x 5136 bf16 17.0, with a late weight
    and bias 17.9, of 2200 x 5136 21.9 and 23.0; rms_norm of 788 x 5136 11.4 and 12.5, of 400 x 4096 float32 10.0 and
    10.7. But layer_norm of 3059 x 2400 bf16, about two to each of 1584, 13.3 and 12.4, of 500 x 5136, one to a
    pipeline, 8.4 and 8.2, of 1200 x 8192, late, 21.1 and 20.6 (H100).
    """
    M, N, _, itemsize, backward, residual = problem
    if itemsize > 4 or backward or residual or not SHORTER_THAN_EARLY < N <= MAX_EARLY:
        return None
    late, pipelines = late_row(problem), _rows(problem, VECTOR_BYTES // itemsize, limits)
    if late is None or pipelines is None:
        return None
    programs = limits.sm_count * max(pipelines.per_sm, 2)
    fewest = min(programs, MIN_EARLY_ROWS_PER_SM * limits.sm_count)
    full = 3 * power_of_2(N) < 4 * N
    most = programs * (MAX_FULL_ROWS_OF_FEW if full else MAX_ROWS_OF_FEW)
    if not fewest < M <= most or EVEN * cdiv(M, programs) * programs < M:
        return None
    return late._replace(late=False)


def long_sum(problem: Problem, limits: Limits) -> Configuration | None:
    """A long row and its residual to a program of 16 warps, instead of pipelines of which one fits on a multiprocessor,
    where there are up to MAX_LONG_SUMS rows for each; None for others.

    fused_add_rms_norm of 195 x 16368 float16 takes 30.9 us so, with pipelines 33.1, of 150 x 12288 19.6 and 21.4, of
    264 x 16384 bf16 30.2 and 30.8, of 400 x 16384 41.3 and 43.2, of 195 x 8184 float32 30.4 and 32.6; skip_layer_norm
    of 195 x 16368 14.1 and 16.2, with an early weight and bias 16.3 (H100).
    """
    M, N, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or not residual or itemsize > 4 or N * itemsize % VECTOR_BYTES:
        return None
    if not limits.sm_count < M <= MAX_LONG_SUMS * limits.sm_count or not LONG_SUM < N * itemsize <= MAX_LONG_SUM:
        return None
    return Configuration("rows", MAX_WARPS, VECTOR_BYTES // itemsize, late=True)


def shared_odd_row(problem: Problem, limits: Limits) -> Configuration | None:
    """Four programs of four warps to an odd row of 16 bits that takes one of 16 warps, of which one fits on a
    multiprocessor, where there are up to two such rows for each; None for others.

    layer_norm of 135 x 15399 bf16 takes 11.6 us so, by 16 warps 14.5, by 8 12.4, of 200 x 15399 14.3, 15.4 and 13.3, of
    264 x 14801 float16 14.7, 17.9 and 17.7 (H100).
    """
    M, N, _, itemsize, backward, residual = problem
    if limits.capability[0] != 9 or backward or residual or itemsize != 2 or N % 2 == 0:
        return None
    if not limits.sm_count < M <= 2 * limits.sm_count or not MIN_SHARED_ODD < N < MAX_SHARED_ODD:
        return None
    return Configuration("split", 4, VECTOR_BYTES // itemsize, stages=4, chunks=4, registers=168)


def row_of_sum(problem: Problem) -> Configuration | None:
    """A row and its residual to a program of up to 8 warps, of 16 bits and in whole vectors; None for others.

    layer_norm of the sums of 16086 x 3408 bf16 takes 81.0 us so, with pipelines 89.0 (FlagGems 84.0), of 65536 x 1520
    141.9 and 171, of 8192 x 5120 float16 63.3 and 72.3, of 4000 x 7000 45.3 and 54.2, of 4096 x 3872 bf16 39.1 and
    42.1, of 2000 x 3872 23.2 and 24.7, of 1500 x 5120 22.8 and 25.2, of 6000 x 2048 float16 by 4 warps 32.0 and 32.3
    (H100).
    """
    N, itemsize = problem.N, problem.itemsize
    # By 16 warps 48 bytes of 8192 x 16384 would spill where tensors are misaligned.
    if itemsize != 2 or N % (VECTOR_BYTES // itemsize) or N > MAX_WARPS // 2 * WARP * LATE_ELEMENTS:
        return None
    return Configuration("rows", warps_for(N, LATE_ELEMENTS * WARP), VECTOR_BYTES // itemsize)


def row_with_edges(problem: Problem, limits: Limits) -> Configuration | None:
    """Many rows of float32 that are no whole vectors, one to a program of up to 8 warps; None for others.

    layer_norm of 6000 x 4097 takes 63.1 us so, element by element 86.5, of 8192 x 2501 55.3 and 63.3, but of 20000 x
    1249 80.0 and 76.1; of sums with a residual 80.9 and 115, 67.0 and 78.1, 86.1 and 92.9, of 2174 x 6759 57.0 and 75.3
    (FlagGems 64), but of 300 x 6759 17.8 and 16.0. By 16 warps of 3000 x 9001 127 and 96.5.
    """
    N, itemsize = problem.N, problem.itemsize
    vec, shortest = VECTOR_BYTES // itemsize, MIN_LATE_EDGES // (2 if problem.residual else 1)
    longest = MAX_WARPS // 2 * WARP * LATE_ELEMENTS
    if (
        itemsize != 4
        or N % vec == 0
        or not shortest <= N < longest + vec
        or MANY_ROWS_PER_SM * limits.sm_count > problem.M
    ):
        return None
    return Configuration("rows", max(warps_for(N // vec * vec, LATE_ELEMENTS * WARP), 4), vec, late=True)


def long_row_with_edges(problem: Problem, limits: Limits) -> Configuration | None:
    """``late_row`` for rows of float32 that are no whole vectors, of up to 16 warps, where there are more of them than
    multiprocessors; None for others. For rms_norm alone.

    rms_norm of 10850 x 8505 takes 251.6 us so, 345.8 in a loop, 282.8 by FlagGems; of 8192 x 6457 146.8, and 154.5
    where elements are loaded one by one (H100). At most 64 registers a thread: two programs of 16 warps fit.
    """
    N, itemsize = problem.N, problem.itemsize
    longest, vec = MAX_WARPS * WARP * LATE_ELEMENTS, VECTOR_BYTES // itemsize
    if itemsize != 4 or problem.residual or N % vec == 0 or longest < N or limits.sm_count >= problem.M:
        return None
    return Configuration("rows", warps_for(N, LATE_ELEMENTS * WARP), vec, late=True)


def _rows(problem: Problem, vec: int, limits: Limits) -> Configuration | None:
    """None if a row is too long for one program with others beside it."""
    M, N, _, itemsize, *_ = problem
    span = N // vec * vec
    if 2 * span * itemsize > limits.registers_per_sm:
        return None
    lanes = WARP * VECTOR_BYTES // itemsize
    # 8192 x 4096 bf16: 82 % of the copy bandwidth with 8 chunks and 2 warps, 78 % with 4 and 4, 71 % with 2 and 8.
    # With few rows, more warps to each are faster.
    warps = warps_for(span, (2 if limits.sm_count >= M else 8) * lanes)
    block_n = min(power_of_2(span), warps * lanes)
    # 32768 x 1024 bf16: 81 % with 4 chunks, be they of one row or of several.
    block_m = power_of_2_within(4 * lanes // (cdiv(span, block_n) * block_n))
    # Few rows: 64 x 128 float64 3.0 us with one, 3.3 with two, 126 x 352 float16 and a residual 3.1 and 3.3.
    block_m = min(block_m, power_of_2_within(M // limits.sm_count), power_of_2(M))
    tile_bytes = problem.inputs * block_m * cdiv(span, block_n) * block_n * itemsize
    # More than the registers hold, so that the last to start end with the others: bf16 12288 x 3072 47.8 us with 10
    # programs to an SM, 52.7 with 5; 13051 x 1600 30.7 with 18, 34.3 with 9; 8192 x 4096 41.1 with 8, 41.8 with 4.
    per_sm = max(1, BYTES_IN_FLIGHT * (2 if itemsize == 2 else 1) // tile_bytes)
    # One program of 16 warps fits on a multiprocessor: 256 x 11781 bf16 comes in two waves, 14.6 us. By programs of 8
    # warps, of which two fit, it takes 11.5 to 12.0 (H100; FlagGems 12.9). With 8 vectors to a thread only one program
    # of 8 warps fits too (139 registers).
    two = limits.sm_count < M and 32 * lanes < span <= 56 * lanes
    of_few = warps_for(span, (8 if two else 4) * lanes)
    # 8 bytes of 8192 x 4092 spill on sm_80, and on sm_90 of fused_add_rms_norm of 400 x 16380 by 16 warps.
    spills = limits.capability[0] < 9 or (problem.residual and of_few > 8)
    if itemsize == 2 and 2 * math.gcd(N, vec) == vec and not spills:
        # Halves of vectors need no edges: layer_norm of 2048 x 2052 float16 takes 12.5 us so, 14.4 with a late weight
        # and bias, 17.3 with edges, of 8192 x 4092 bf16 51.3, 53.9 and 60.7, of 65536 x 516 float16 55.2 and 60.9 with
        # edges, of 256 x 12292 bf16 9.5, 12.0 and 13.0, of sums with a residual of 8192 x 4092 74.0 and 91.2, rms_norm
        # of them 50.9 and 55.1 (H100). A thread has few elements, for more programs: 65536 x 260 bf16 33.2 us by two
        # rows, 39.0 by four, 65536 x 516 53.9 by one, 55.9 by two (H100).
        block_n = min(power_of_2(span), of_few * lanes)
        max_rows = power_of_2_within(LATE_ELEMENTS * of_few * WARP // (cdiv(N, block_n) * block_n))
        block_m = min(block_m, max_rows)
        return Configuration("rows", of_few, vec // 2, block_m)
    few = limits.capability[0] == 9 and 2 * per_sm * limits.sm_count > M
    if few and itemsize == 2 and N % vec and span > 4 * lanes:
        # Hardly more rows than programs: 1091 x 1995 bf16 and a residual 11.7 us by a program for each, 14.3 with
        # pipelines of one warp, of which a few have two rows. On sm_80 and sm_100 8 bytes of 900 x 4001 spill.
        if 4 * math.gcd(N, vec) == vec and not spills:
            # Quarters early too: layer_norm of 1024 x 4098 bf16 13.6 us, late 17.1, with edges 17.4, of sums with a
            # residual 16.5, late 20.5 (H100).
            return Configuration("rows", of_few, vec // 4)
        # A program of 16 warps with three chunks is alone on its multiprocessor: layer_norm of 42 x 8253 float16 takes
        # 6.64 us with an early weight and bias, late 7.20, of 100 x 9001 bf16 7.04 and 7.76 (H100).
        alone = limits.sm_count >= M and of_few == MAX_WARPS and span <= 3 * of_few * lanes and not problem.residual
        return Configuration("rows", of_few, vec, late=not alone)
    stages = stages_within(4, per_sm * tile_bytes, limits)
    if itemsize > 2 and min(2, per_sm) * limits.sm_count * block_m >= M:
        # One tile to a program: 16 x 6144 float32 4.0 us, through shared memory 4.6; bf16 4.2, not 4.0.
        stages = 1
    return Configuration("rows", warps, vec, block_m, per_sm, stages)
