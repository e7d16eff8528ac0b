# SPDX-License-Identifier: Apache-2.0
"""Whole rows of the forward pass: a tile, a row or a pipeline to a program.

Figures that name no GPU are from an H200.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import MIN_UNALIGNED, Configuration, Problem, widest
from .programs import BYTES_IN_FLIGHT, MAX_WARPS, stages_within, warps_for

# Longest row, by bytes of an element, for which each program has one tile and no pipeline: with as many programs as
# tiles all loads are in flight anyway. 1048576 x 256 bf16: 258 us, with a pipeline 289; 16384 x 2048 bf16: 39 and 38.
MAX_N_OF_ONE_TILE = {2: 1024, 4: 4096}
# Many short rows go to programs of four warps, because each program takes some time to start: the most columns of a
# tile, twice as many where elements are loaded one by one. 6692064 x 11 float32: 347 us by programs of 16 rows,
# upstream 256 (H100).
MAX_N_OF_MANY_ROWS = 16
# Fewest rows of a multiprocessor for these programs.
MIN_ROWS_PER_SM = 512
# Programs of one warp of a multiprocessor that hide each other's loads.
MIN_WARPS_PER_SM = 16
# Columns of the rows that a thread has whole (short_rows.py). Longer rows are faster by tiles. 226634 x 5 float32:
# 8.7 us, by tiles 10.8; 200000 x 9 float32: 17.8 and 15.6 (H100).
SHORT_COLUMNS = (5, 6, 7)
# Most elements of a thread with whole rows. 226634 x 7 bf16: 6.4 us with 14, 7.8 with 28 (H100).
SHORT_ELEMENTS = 16
# Odd rows of float32 are for tiles where input and output are more than this share of L2: a cache line would go to
# memory before all threads have written their parts of it. rms_norm of 673225 x 5: 25.7 us with whole rows, by tiles
# 16.1 (H100).
SHORT_SHARE_OF_L2 = 1 / 3
# Above this share of L2 a program has one warp, and a thread has one row of five float32, in single elements, instead
# of two rows. rms_norm of
# 330001 x 5: 10.35 us, with two 12.7; 240001 x 5: 7.34 and 7.11 (H100).
SINGLE_SHARE_OF_L2 = 1 / 5
# Elements of a thread where each program has one row (``late_row``). layer_norm of 16384 x 8192 float32: 263.7 us, by
# pipelines 284.3; rms_norm of 8192 x 4096 bf16: 37.6 and 38.3 (H100).
LATE_ELEMENTS = 32
# Threads of these programs that a multiprocessor runs at once; they give the length of a wave.
LATE_THREADS = 1024
# Fewest waves of these programs; fewer rows are for pipelines. layer_norm of 3500 x 7792, 6.3 waves: 33.1 us, by
# pipelines 34.8; 3059 x 2400, 1.7 waves: at least 13.3, by pipelines 12.4 (H100).
MIN_WAVES = 4
# Fewest waves with a residual, of which each program loads twice as much. layer_norm of 1500 x 5120, 1.8 waves:
# 22.8 us, by pipelines 25.2; 300 x 5120 float16, 0.36 waves: 8.42 and 8.76 (H100).
MIN_WAVES_OF_SUM = 1 / 3
# Shortest row of ``row_with_edges``, in elements. With a residual it is half of this.
MIN_LATE_EDGES = 2048
# Fewest rows of a multiprocessor for ``row_with_edges``.
MANY_ROWS_PER_SM = 8
# Most rows of a multiprocessor for which unaligned rows of up to 1024 elements are loaded in parts of vectors, without
# edges (``_few_unaligned_rows``). 245 x 341 float16 with a residual: 3.5 us, with edges 4.0.
MAX_UNALIGNED_ROWS_PER_SM = 8
# Longest row of 16 bits that ``_pairs`` loads in pairs or fours, without edges. layer_norm of 3000 x 1002 bf16 with a
# residual: 12.5 us, with edges 16.5 (H100).
MAX_PAIRS = 1024
# Most elements of a multiprocessor in rows of fours; rows of pairs have no limit. layer_norm of 20000 x 406 float16:
# 18.6 us, with edges 21.2; rms_norm of 16384 x 738: 22.8 and 23.7 (H100).
MAX_PAIRS_PER_SM = 37000
# Longest of these rows, without a residual, for a program of one warp. layer_norm of 3000 x 602: 7.1 us, by two warps
# 7.5 (H100).
MAX_PAIRS_OF_WARP = 768
# The same with a residual and more elements than MAX_PAIRS_PER_SM. 60000 x 262 float16: 43.3 us, by two warps 47.4;
# 27381 x 498: 35.4 by one or two (H100).
MAX_PAIRS_OF_SUM = 320
# Registers of a thread where a program of 16 warps loads single elements (``_few_unaligned_rows``). Such a program is
# alone on its multiprocessor.
REGISTERS_OF_SINGLES = 80
# Longest row of ``odd_rows_at_once``, in elements, without and with a residual.
MAX_ODD_AT_ONCE, MAX_ODD_SUM_AT_ONCE = 512, 384
# ``odd_rows_at_once`` applies to more rows of a multiprocessor than this.
MIN_ODD_PER_SM = 4
# Vectors of a lane for which ``short_odd_row`` applies.
CHUNKS_OF_SHORT_ODD = (3, 4)
# Most rows of a multiprocessor for ``_few_single_rows``. layer_norm of 200 x 1501 float16: 4.6 us, with edges 5.5;
# 400 x 2723 bf16: 8.0 and 7.2 (H100).
MAX_SINGLE_ROWS_PER_SM = 2
# Longest of these rows, in elements. layer_norm of 264 x 4097: 7.4 us, with edges 7.1 (H100).
MAX_SINGLE = 3072
# Rows of a multiprocessor from which it has several pipelines of 8 warps.
MANY_LONG_PER_SM = 24
# ``early_row`` applies to rows that are longer than this.
SHORTER_THAN_EARLY = 2048
# Longest row of ``early_row``, in elements.
MAX_EARLY = 8192
# Rows of one element are many from this number on.
MANY_OF_ONE_COLUMN = 1 << 21
# ``early_row`` needs more rows than pipelines, or than this number for each multiprocessor if that is fewer.
MIN_EARLY_ROWS_PER_SM = 6
# Most rows of ``early_row`` for each pipeline; the second number is for rows that fill more than 3/4 of their tile.
MAX_ROWS_OF_FEW, MAX_FULL_ROWS_OF_FEW = 3.5, 2
# ``early_row`` is for pipelines with unequal numbers of rows: the rows are at most this share of those that the
# pipelines would have if each had as many as the busiest.
EVEN = 0.88
# Longest row of ``whole_long_row``, in elements.
MAX_WHOLE_LONG = 12288
# Most rows of a multiprocessor for ``long_sum``.
MAX_LONG_SUMS = 3.1
# Longest row of few of float64 that loads weight and bias early, in elements. Longer ones were not timed.
MAX_EARLY_OF_FLOAT64 = 6144
# Bytes of a row for ``long_sum``: more than the first number, at most the second. Other lengths were not timed.
LONG_SUM, MAX_LONG_SUM = 24000, 32768


def forward_rows(problem: Problem, limits: Limits) -> Iterator[Configuration | None]:
    """Candidates in order: those for short rows come first. A candidate that does not apply is None."""
    M, N, _, itemsize, *_ = problem
    vector = VECTOR_BYTES // itemsize
    # A warp that loads float32 one by one loads whole cache lines. So these rows need no edges, which take a pipeline.
    # fused_add_rms_norm of 26000 x 1249 float32: 181.8 us, with edges 198.7 (H100).
    vec = widest(N, itemsize) if itemsize == 2 else math.gcd(N, vector)
    if N == 3 or (power_of_2(N) == N and vector >= N):
        yield _flat(problem)
    if N in SHORT_COLUMNS:
        yield _short_rows(problem, limits)
    yield row_with_edges(problem, limits)
    fits = 2 * N * itemsize <= limits.registers_per_sm
    # Rows of float64, and rows of float32 that are no whole vectors, have one tile at any length. 50000 x 864 float64:
    # 181 us, with a pipeline 199.
    short = MAX_N_OF_ONE_TILE.get(itemsize, 0) >= N or (fits and (itemsize == 8 or vec < vector))
    if short and N % vec == 0 and (WARP * vector >= N or limits.sm_count < M):
        yield _one_tile(problem, vec, limits)
    if N % widest(N, itemsize) and fits and limits.sm_count * (MAX_UNALIGNED_ROWS_PER_SM if N <= 1024 else 1) >= M:
        yield _few_unaligned_rows(problem)
    yield _pairs(problem, limits)
    yield _few_single_rows(problem, limits)
    whole = _rows(problem, vec, limits)
    # Rows that are too long for ``_rows`` go to ``late_row``, except those of float32, and those of 16 bits that would
    # leave half of the multiprocessors without a row. 2048 x 24576 bf16: 70.5 us, by several programs to a row 74.9;
    # 52 x 31752: 9.5 and 8.5; 300 x 12288 float32: 20.1 and 18.8 (H100).
    if whole is None and (itemsize == 8 or (itemsize == 2 and limits.sm_count < 2 * M)):
        late = late_row(problem)
        # Nothing hides a late weight and bias of few rows. 40 x 5473 float64: 6.38 us early, 8.74 late (H100).
        hopper, few = limits.capability[0] == 9, limits.sm_count >= M
        early = hopper and few and itemsize == 8 and N <= MAX_EARLY_OF_FLOAT64 and not problem.residual
        yield late._replace(late=False) if late is not None and early else late
    # Here 8 bytes of fused_add_rms_norm of 1000 x 8192 bf16 would spill on sm_100.
    waves = MIN_WAVES_OF_SUM if problem.residual and limits.capability[0] < 10 else MIN_WAVES
    if whole is not None and whole.stages > 1 and many_rows(problem, limits, waves):
        # With ``late_row`` 48 bytes of 9000 x 3000 float16 would spill where the residual is misaligned.
        yield row_of_sum(problem) if problem.residual else late_row(problem)
    yield whole


def _flat(problem: Problem) -> Configuration:
    M, N, _, itemsize, *_ = problem
    if N == 3:
        # A row to a thread. 5779150 x 3 float16: 48.5 us, with four rows to each thread of fewer warps 62.4.
        return Configuration("columns", 8, rows=8 * WARP)
    # A thread has one vector, but 4 elements of one column: the statistics of 8197496 x 1 are four times as many bytes.
    # Of many rows it has the vector, so that fewer programs are to be started. rms_norm of 15915008 x 1 bf16: 22.0 us,
    # with 4 elements 24.4; layer_norm of 1048576 x 1 float16: 6.9 and 6.4 (H200).
    elements = VECTOR_BYTES // itemsize
    if N == 1:
        elements = max(elements, 4) if M >= MANY_OF_ONE_COLUMN else 4
    return Configuration("flat", 4, rows=elements * 4 * WARP // N)


def _short_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """The widest vectors with which a thread has few elements and each multiprocessor has a warp; None where tiles are
    faster.

    400 x 5 float32: 2.8 us with a row to a thread, 3.4 with four rows, by tiles 3.1 (H100).
    """
    M, N, _, itemsize, *_ = problem
    moved = 2 * problem.inputs * M * N * itemsize
    if itemsize == 4 and N % 2 and moved > SHORT_SHARE_OF_L2 * limits.l2_bytes:
        return None
    single = itemsize == 4 and N == 5 and moved > SINGLE_SHARE_OF_L2 * limits.l2_bytes
    vec = 1 if single else VECTOR_BYTES // itemsize
    # The rows of a thread together are whole vectors.
    while vec > 1 and (math.lcm(N, vec) > SHORT_ELEMENTS or math.lcm(N, vec) * WARP * limits.sm_count > M * N):
        vec //= 2
    # Rows that leave L2 are for one warp: a cache line is whole sooner. skip_layer_norm of 12146928 x 7 float16: 192 us
    # by one, by four 242; 1197831 x 6 float32: 38.0 and 38.5; layer_norm of 96186 x 6 bf16: 4.22 and 4.08 (H100).
    # So are odd float32 rows in pairs. layer_norm of 226634 x 5: 6.88 us by one, by four 7.30 (H200); 153789 x 7: 8.69
    # and 9.05 (H100).
    pairs = itemsize == 4 and N % 2 == 1 and vec > 1 and not problem.residual
    kept = single or itemsize == 8 or (moved <= SINGLE_SHARE_OF_L2 * limits.l2_bytes and not pairs)
    several = kept and limits.sm_count * MIN_ROWS_PER_SM <= M
    return Configuration("short", 4 if several else 1, vec)


def _one_tile(problem: Problem, vec: int, limits: Limits) -> Configuration:
    """As many programs as tiles. A thread has up to 8 vectors, up to 4 of each row."""
    M, N, _, itemsize, *_ = problem
    lanes = WARP * VECTOR_BYTES // itemsize
    # Few elements of float32 take four warps instead of one, if one warp does not load them all at once and each thread
    # has an element of the tile. 64 x 64 float32: 2.7 us, by one warp 3.0.
    several = WARP * vec < M * N and power_of_2(M) * power_of_2(N) >= 4 * WARP
    little = itemsize == 4 and lanes >= 2 * N and 4 * limits.sm_count >= M and several
    warps = 4 if little else warps_for(N, 4 * lanes)
    block_n = min(power_of_2(N), warps * lanes)
    # A thread has four vectors, or eight where a row fills all lanes. 262144 x 64 bf16: 22.2 us with four, 24.7 with
    # two. With eight and a residual 8 bytes of fused_add_rms_norm of 8192 x 4096 float32 spill (Triton 3.7).
    whole = vec * itemsize == VECTOR_BYTES
    wide = block_n == warps * lanes and whole and itemsize < 8 and not problem.residual
    # Float64 loaded one by one has an address and a mask for each element: two. 2063007 x 15: 304 us, with four 380.
    vectors = 2 if itemsize == 8 and not whole else 8 if wide else 4
    at_once = max(warps * WARP * vec // block_n, 1)
    block_m = min(power_of_2_within(vectors * warps * lanes // (cdiv(N, block_n) * block_n)), 8 * at_once)
    # Few rows are shared by more programs, as long as each thread has an element. 256 x 128: 3.4 us with 1 row, 3.7
    # with 8. With one vector to a thread 8 bytes of 64 x 64 float32 spill (Triton 3.7).
    two = little and whole
    block_m = min(block_m, max(power_of_2_within(M // (4 * limits.sm_count)), at_once * (2 if two else 1)))
    if block_n <= MAX_N_OF_MANY_ROWS * (2 if vec == 1 else 1) and limits.sm_count * MIN_ROWS_PER_SM <= M:
        warps, block_m = 4 * warps, 4 * block_m
    # Tiles of one warp that are too few to hide their loads take four, as long as each thread has an element.
    # 17832 x 20 bf16: 4.12 us by four warps, by one 4.95; 11472 x 21: 4.44 and 5.20; 605 x 99 float16, one row:
    # 3.94 and 3.69 (H100).
    few = MIN_WARPS_PER_SM * limits.sm_count * block_m > M
    if few and warps == 1 and block_m >= 8 and block_m * block_n >= 4 * WARP * vec:
        warps = 4
    # 1026283 x 503 float64: 2066 us with a late weight and bias, otherwise 2361.
    late = N >= MIN_UNALIGNED and (itemsize == 8 or not whole) and many_rows(problem, limits)
    if late and itemsize == 4 and vec > 1 and warps == MAX_WARPS:
        # Of 16 warps a third of the lanes have no element. 16384 x 4098 float32: 145 us, by 16 warps 170.
        warps = warps_for(N, LATE_ELEMENTS * WARP)
    return Configuration("rows", warps, vec, min(block_m, power_of_2(M)), late=late)


def odd_rows_at_once(problem: Problem, limits: Limits) -> Configuration | None:
    """A short odd row of 16 bits to a program of 4 warps, where all programs run at once; None for others.

    layer_norm of 1976 x 371 bf16: 5.25 us, with edges 5.59, by two warps 5.58; 3000 x 371: 6.72, 6.1 and 7.17 (H100).
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
    """A short odd row of 16 bits to a program of one warp, where some pipelines would have two rows; None for others.

    layer_norm of 4400 x 1001 float16: 14.8 us, by pipelines 18.4; rms_norm of 2500 x 801 bf16: 6.84 and 6.91 (H100).
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


def _few_unaligned_rows(problem: Problem) -> Configuration:
    """A row to a program, in loads that divide the row. With a residual a warp has half as much of a row.

    1 x 7989 float32: 5.2 us, with edges 10.5.
    """
    _, N, _, itemsize, *_ = problem
    vector = VECTOR_BYTES // itemsize
    warps, vec = warps_for(N, 2 * WARP * vector // problem.inputs), math.gcd(N, vector)
    # With 64 registers 8 bytes of 18 x 5573 bf16 spill by 16 warps (Triton 3.6).
    registers = REGISTERS_OF_SINGLES if itemsize == 2 and vec == 1 and warps == MAX_WARPS else 0
    return Configuration("rows", warps, vec, registers=registers)


def _pairs(problem: Problem, limits: Limits) -> Configuration | None:
    """Even rows of 16 bits that are no whole vectors, in pairs or fours; None for others."""
    M, N, _, itemsize, _, residual = problem
    if itemsize != 2 or N % 2 or N % widest(N, itemsize) == 0 or N > MAX_PAIRS:
        return None
    many = MAX_PAIRS_PER_SM * limits.sm_count < M * N
    if many and (N % 4 == 0 or not (residual or limits.capability[0] == 9)):
        return None
    found = _few_unaligned_rows(problem)
    alone = (MAX_PAIRS_OF_WARP if not residual else MAX_PAIRS_OF_SUM if many else 0) >= N
    return found._replace(warps=1) if alone else found


def _few_single_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """Odd rows of 16 bits by programs of 8 warps, loaded one by one; None for others."""
    M, N, _, itemsize, *_ = problem
    if limits.capability[0] != 9 or itemsize != 2 or N % 2 == 0:
        return None
    if not 1024 < N <= MAX_SINGLE or MAX_SINGLE_ROWS_PER_SM * limits.sm_count < M:
        return None
    return Configuration("rows", 8)


def many_rows(problem: Problem, limits: Limits, waves: float = MIN_WAVES) -> bool:
    """Whether there are at least ``waves`` waves of programs with one row each, or with a few short rows."""
    return waves * limits.sm_count * LATE_ELEMENTS * LATE_THREADS <= problem.M * problem.N


def late_row(problem: Problem) -> Configuration | None:
    """A row to a program, which loads weight and bias after the statistics; None if it is too long."""
    N, itemsize = problem.N, problem.itemsize
    vec, elements = math.gcd(N, VECTOR_BYTES // itemsize), 16 if itemsize == 8 else LATE_ELEMENTS
    # A residual takes registers: 56 bytes of 32768 float16 spill where it is misaligned, 8 of 24576.
    longest = MAX_WARPS * WARP * (elements if itemsize == 8 or problem.residual else 64)
    if longest < N or (itemsize < 8 and vec * itemsize < VECTOR_BYTES):
        return None
    return Configuration("rows", warps_for(N, elements * WARP), vec, late=True)


def early_row(problem: Problem, limits: Limits) -> Configuration | None:
    """One program for each row of whole vectors, where pipelines would have few rows, and unequal numbers of them; None
    for others.

    layer_norm of 788 x 5136 bf16: 12.2 us, by 660 pipelines 14.1; 3059 x 2400 bf16, about two rows to each of 1584
    pipelines: 13.3 and 12.4 (H100). With a late weight and bias 1500 x 5136 bf16 takes 17.9 us, otherwise 17.0 (H100).
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


def whole_long_row(problem: Problem, limits: Limits) -> Configuration | None:
    """A long row of whole vectors of 16 bits to a program of 8 warps, where pipelines would have few rows; None for
    others. For layer_norm alone.

    300 x 10240 float16: 9.9 us, by pipelines 11.0; 600 x 12288: 17.2 and 17.7; 400 x 16384: 18.1 and 17.0 (H100).
    """
    M, N, _, itemsize, backward, residual = problem
    if limits.capability[0] != 9 or backward or residual or itemsize != 2 or N % (VECTOR_BYTES // itemsize):
        return None
    if not MAX_EARLY < N <= MAX_WHOLE_LONG or limits.sm_count >= M or many_rows(problem, limits):
        return None
    return Configuration("rows", MAX_WARPS // 2, VECTOR_BYTES // itemsize)


def long_sum(problem: Problem, limits: Limits) -> Configuration | None:
    """A long row and its residual to a program of 16 warps, where only one pipeline fits on a multiprocessor, and a
    multiprocessor has up to MAX_LONG_SUMS rows; None for others.

    skip_layer_norm of 195 x 16368 float16: 14.1 us, by pipelines 16.2; fused_add_rms_norm of 264 x 16384 bf16: 30.2 and
    30.8 (H100).
    """
    M, N, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or not residual or itemsize > 4 or N * itemsize % VECTOR_BYTES:
        return None
    if not limits.sm_count < M <= MAX_LONG_SUMS * limits.sm_count or not LONG_SUM < N * itemsize <= MAX_LONG_SUM:
        return None
    return Configuration("rows", MAX_WARPS, VECTOR_BYTES // itemsize, late=True)


def row_of_sum(problem: Problem) -> Configuration | None:
    """A row and its residual to a program of up to 8 warps, for whole vectors of 16 bits; None for others.

    layer_norm of 65536 x 1520 bf16: 141.9 us, by pipelines 171; 6000 x 2048 float16 by 4 warps: 32.0 and 32.3 (H100).
    """
    N, itemsize = problem.N, problem.itemsize
    # By 16 warps 48 bytes of 8192 x 16384 would spill where tensors are misaligned.
    if itemsize != 2 or N % (VECTOR_BYTES // itemsize) or N > MAX_WARPS // 2 * WARP * LATE_ELEMENTS:
        return None
    return Configuration("rows", warps_for(N, LATE_ELEMENTS * WARP), VECTOR_BYTES // itemsize)


def row_with_edges(problem: Problem, limits: Limits) -> Configuration | None:
    """Many rows of float32 that are no whole vectors, one to a program of up to 8 warps; None for others.

    layer_norm of 6000 x 4097: 63.1 us, element by element 86.5; 20000 x 1249: 80.0 and 76.1. With a residual
    6000 x 4097: 80.9 and 115. By 16 warps 3000 x 9001: 127 and 96.5.
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
    """``late_row`` for rows of float32 that are no whole vectors, where there are more rows than multiprocessors; None
    for others. For rms_norm alone.

    A thread has up to 64 registers, so two programs of 16 warps fit. rms_norm of 10850 x 8505: 251.6 us, in a loop
    345.8; 8192 x 6457: 146.8, element by element 154.5 (H100).
    """
    N, itemsize = problem.N, problem.itemsize
    longest, vec = MAX_WARPS * WARP * LATE_ELEMENTS, VECTOR_BYTES // itemsize
    if itemsize != 4 or problem.residual or N % vec == 0 or longest < N or limits.sm_count >= problem.M:
        return None
    return Configuration("rows", warps_for(N, LATE_ELEMENTS * WARP), vec, late=True)


def _rows(problem: Problem, vec: int, limits: Limits) -> Configuration | None:
    """Pipelines of whole rows, or programs of one tile; None if a row is too long for a program with others on its
    multiprocessor."""
    M, N, _, itemsize, *_ = problem
    span = N // vec * vec
    if 2 * span * itemsize > limits.registers_per_sm:
        return None
    lanes = WARP * VECTOR_BYTES // itemsize
    # Eight chunks to a warp. A warp of few rows has two chunks, so more warps share a row. 8192 x 4096 bf16: 82 % of
    # the copy bandwidth with 8 chunks and 2 warps, 71 % with 2 and 8.
    warps = warps_for(span, (2 if limits.sm_count >= M else 8) * lanes)
    block_n = min(power_of_2(span), warps * lanes)
    # A tile has four chunks, of one row or of several. 32768 x 1024 bf16: 81 % of the copy bandwidth.
    block_m = power_of_2_within(4 * lanes // (cdiv(span, block_n) * block_n))
    # A tile of few rows has one row. 64 x 128 float64: 3.0 us, with two rows 3.3.
    block_m = min(block_m, power_of_2_within(M // limits.sm_count), power_of_2(M))
    tile_bytes = problem.inputs * block_m * cdiv(span, block_n) * block_n * itemsize
    # More programs than the registers hold: the last to start end with the others. 12288 x 3072 bf16: 47.8 us with 10
    # programs to a multiprocessor, 52.7 with 5.
    per_sm = max(1, BYTES_IN_FLIGHT * (2 if itemsize == 2 else 1) // tile_bytes)
    if span > 4 * warps * lanes and warps == 8 and MANY_LONG_PER_SM * limits.sm_count > M:
        # Registers hold one of these. layer_norm of 2048 x 13974 float16: 53.3 us, by two to a multiprocessor 58.2;
        # 4768 x 14701 bf16: 125.1 and 117.2 (H100).
        per_sm = 1
    # Of these rows only one program of 16 warps fits on a multiprocessor, but two of 8 warps. 256 x 11781 bf16: 14.6 us
    # by 16 warps, 11.5 to 12.0 by 8 (H100). With 8 vectors to a thread only one of 8 warps fits too.
    two = 32 * lanes < span <= (56 if limits.sm_count < M else 0 if problem.residual else 48) * lanes
    of_few = warps_for(span, (8 if two else 4) * lanes)
    # 8 bytes of 8192 x 4092 spill on sm_80, and on sm_90 of fused_add_rms_norm of 400 x 16380 by 16 warps.
    spills = limits.capability[0] < 9 or (problem.residual and of_few > 8)
    if itemsize == 2 and 2 * math.gcd(N, vec) == vec and not spills:
        # Half vectors need no edges. layer_norm of 2048 x 2052 float16: 12.5 us, with a late weight and bias 14.4, with
        # edges 17.3. A tile has few rows, so there are more programs. 65536 x 260 bf16: 33.2 us with two rows, 39.0
        # with four (H100).
        block_n = min(power_of_2(span), of_few * lanes)
        max_rows = power_of_2_within(LATE_ELEMENTS * of_few * WARP // (cdiv(N, block_n) * block_n))
        block_m = min(block_m, max_rows)
        return Configuration("rows", of_few, vec // 2, block_m)
    few = limits.capability[0] == 9 and 2 * per_sm * limits.sm_count > M
    if limits.capability[0] == 9 and itemsize == 2 and N % vec and problem.residual and not few:
        # A pipeline of rows with edges and their residual takes up to 242 registers of a thread, so few of them fit.
        # layer_norm of 111522 x 2407 bf16: 535 us, by pipelines 644; 16384 x 571: 29.7 and 35.5 (H100).
        return Configuration("rows", warps, vec, late=True)
    if few and itemsize == 2 and N % vec and span > 4 * lanes:
        # Few rows have a program each: of pipelines of one warp a few would have two rows. 1091 x 1995 bf16 with a
        # residual: 11.7 us, by these pipelines 14.3. On sm_80 and sm_100 8 bytes of 900 x 4001 spill.
        if 4 * math.gcd(N, vec) == vec and not spills:
            # Quarter vectors need no edges either. layer_norm of 1024 x 4098 bf16: 13.6 us, with a late weight and bias
            # 17.1, with edges 17.4 (H100).
            return Configuration("rows", of_few, vec // 4)
        # A program of 16 warps with three chunks is alone on its multiprocessor: nothing hides the wait for a late
        # weight and bias. layer_norm of 42 x 8253 float16: 6.64 us early, 7.20 late (H100).
        # 60 x 12001 bf16: 6.65 us by 8 warps, by 16 7.24 (H100).
        alone = limits.sm_count >= M and of_few >= 8 and span <= 48 * lanes and not problem.residual
        return Configuration("rows", of_few, vec, late=not alone)
    stages = stages_within(4, per_sm * tile_bytes, limits)
    if itemsize > 2 and min(2, per_sm) * limits.sm_count * block_m >= M:
        # One tile to a program: its loads need no shared memory, except those of 16 bits. 16 x 6144 float32: 4.0 us,
        # through shared memory 4.6; bf16: 4.2 and 4.0.
        stages = 1
    return Configuration("rows", warps, vec, block_m, per_sm, stages)
