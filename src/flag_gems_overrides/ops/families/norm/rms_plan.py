# SPDX-License-Identifier: Apache-2.0
"""Which rms_norm kernel to launch, and how: short rows as layer_norm's, long ones in a loop or by several programs."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from . import launches
from .backward_plan import (
    MAX_ODD_OF_RMS_NORM,
    few_rows_of_edges,
    little_gradient,
    many_warps,
    rows_of_few,
    short_rows_in_chunks,
)
from .forward_plan import late_row, long_row_with_edges, many_rows
from .launches import (
    Configuration,
    FewRows,
    Flat,
    Loop,
    Problem,
    Rows,
    ShortRows,
    launch,
    launch_or_none,
)
from .long_plan import splits, vec_of_long
from .many_rows_plan import rows_of_four_warps
from .odd_rows_plan import odd_row_of_rms_norm
from .plan import plan, rows
from .programs import MAX_WARPS
from .two_passes_plan import TwoPasses, plan_two_passes

# Of a program that goes over a row in tiles, by a pipeline, besides two of them.
BYTES_IN_FLIGHT, TILE_OF_PIPELINE = 16384, 8192
# And of one of 16 warps for each row, without a pipeline, where those at once are no larger a share of L2: 3253 x 44208
# float16 takes 236 us so, by 264 pipelines of 8 warps 265, 700 x 20000 float32 46.9 and 53.6. Of a larger share rows
# are shared: 1500 x 60000 bf16 147 us, by a program for each 161, by pipelines 176, 2000 x 40000 float32 244, 264 and
# 309, but 3253 x 44208 float16 265 (H100).
TILE_OF_OWN_ROW, SHARE_OF_OWN_ROWS = 16384, 0.5
# Longer rows of float32 leave a multiprocessor one program of 16 warps, or hardly two (``_late_row``).
MAX_OF_TWO_PROGRAMS = 16384
# Two kernels for a single row of more elements, or of float64. By programs that share rows, and by two kernels: 128 x
# 96656 bf16 24 and 28 us, 128 x 301048 float32 120 and 135; on an H100 64 x 262144 float32 68 and 81, 20 x 2097152
# float16 89 and 101, 2 x 2097120 float32 26 and 29, 1 x 116109 bf16 6.3 and 8.6, 1 x 50257 float32 5.9 and 7.0, 1 x
# 60056 float16 5.6 and 6.7, 1 x 1000000 float32 12.4 and 12.7, 1 x 2237052 bf16 14.9 and 14.7.
MAX_SHARED_ROW = 1 << 20
# So many rows of 16 bits for each multiprocessor are shared too, float32 and sums with a residual only if there is
# less than one: 351 x 59296 float16 39.0 us, by a program for each row 44.4, 700 x 59296 75.2 and 81.1, 300 x 40000
# bf16 25.9 and 27.6, but 500 x 59296 float32 108.6 and 108.6 (H100).
SHARED_TURNS = 8
# Rows of a pipeline up to which each has a program instead (``_early``): 800 x 16384 bf16 has 3.03.
MAX_TURNS = 3.5

# Of rows of 16 bits that are no half vectors, one to a program of 16 warps (``_long_row_with_edges``): the longest with
# an early weight, and the least share of what multiprocessors do at once that is used.
MAX_EARLY_EDGES, EVEN_TURNS = 24583, 0.75
# Warps of the programs that share rows of whole vectors in turn, where two kernels read dy and x the second time from
# L2: 20 x 300000 float16 takes 40.1 us by three groups of 74 programs of 4 warps, by two kernels 31.9, but 24 x 60000,
# by 17 of 59 of one warp, 15.9 and 16.1, 2048 x 23952 bf16, by 44 of 47, 130 and 187 (H100).
MAX_WARPS_OF_WHOLE = 2
# Fewest long odd rows of float32 that are read as vectors and edges: of 20 x 614089, by up to 32 programs to a row, 8
# bytes would spill (Triton 3.6).
MIN_ROWS_OF_VECTORS = 129
# Rows of single elements that are longer are read as vectors and edges (8192 x 6457); shorter ones were not timed so.
MIN_ROW_OF_EDGES = 4096
# Of rows of pairs of 16 bits (``_row_of_pairs``): the shortest and longest, and the fewest for each multiprocessor.
MIN_ROW_OF_PAIRS, MAX_ROW_OF_PAIRS, MIN_ROWS_OF_PAIRS_PER_SM = 642, 1024, 64

# Rows of one warp that are for programs of four (``_short_rows_of_four_warps``): of single elements the most lanes, and
# the fewest for each multiprocessor.
MAX_SHORT_SINGLES, MIN_SHORT_SINGLES_PER_SM = 32, 64

# Gradients in one launch, where its programs of 128 registers a thread all run at once: of so many rows and warps for
# each multiprocessor. By rows and partial sums, and so: 6 x 1000 float32 5.0 and 3.5 us, 64 x 100 float16 5.6 and 3.6,
# 333 x 217 bf16 5.8 and 4.1, 80 x 1947 float32 7.1 and 4.6, 99 x 3240 7.4 and 5.6, 941 x 235 7.4 and 6.6, 1000 x 256
# bf16 6.6 and 6.1; 2000 x 63 float16 7.8 and 7.3, by a tile to each program 6.1 (H100).
MAX_FEW_ROWS, WARPS_OF_FEW_ROWS = 1024, 16
# Longer rows with edges take 8 warps, of which others were not timed.
MAX_EDGES_OF_FOUR_WARPS = 2048
# As many elements are a single program's: 64 x 100 float16 takes 5.9 us by one of 8 warps.
MAX_OF_ONE_PROGRAM = 1024
# Elements of a multiprocessor that are for programs of many warps, by the width of a tile (``many_warps``), those of 16
# bits in several tiles to a program: 522439 x 7 bf16 takes 21.8 us so and 29.2 by pipelines, 90773 x 9 float16 14.7 and
# 19.2, 60000 x 41 bf16 22.2 and 24.1, 33000 x 31 float32 11.4 and 17.2, 16000 x 33 10.8 and 11.8, but 100001 x 33 38.1
# and 35.2, 65534 x 85 49.2 and 43.9; 8403 x 161 float16 14.5 and 16.3; 110000 x 22 bf16 18.5 and 22.2, 11011 x 68 10.9
# and 13.8, 574480 x 2 10.5 and 12.0 (H100).
MANY_ELEMENTS = {2: 9216, 4: 16384, 8: 32768, 16: 16384, 32: 32768, 64: 30720, 128: 20480, 256: 20480}
# Shorter rows are in chunks (``short_rows_in_chunks``) only beyond what is for many warps: 522439 x 7 bf16 26.9 us so,
# by many warps 23.7 (H100).
MIN_IN_CHUNKS = 9
# Many odd rows of one warp: lanes of a row, and fewest turns of a program, by bytes of an element, and programs of a
# multiprocessor.
ODD_IN_TURN, MIN_ODD_TURNS, ODD_PROGRAMS_PER_SM = {2: (128, 256), 4: (128,)}, {2: 8, 4: 32}, 24
# Of many rows of fours of 16 bits, a quarter or more of whose lanes would have no element, in chunks (``_fours``): the
# longest row by its lanes, lanes of a chunk, elements of a thread, with lanes of the width, programs of a
# multiprocessor, and fewest turns of each.
MAX_OF_FOURS, LANES_OF_FOURS, ELEMENTS_OF_FOURS = {128: 96, 256: 160}, 32, 32
FOURS_PER_SM, MIN_TURNS_OF_FOURS = 12, 8
# Of odd rows of float32 in pipelines of two warps: lanes of a row, times as many programs, and fewest turns of each.
WIDE_ODD, MORE_WIDE_ODD, MIN_WIDE_ODD_TURNS = 256, 2, 32


class Split(NamedTuple):
    """``splits`` programs to a row, each with ``slice_size`` columns, for its sum; then one for each block of
    ``block_n`` columns."""

    splits: int
    slice_size: int
    block_n: int
    vec: int
    stages: int
    warps: int


def plan_forward(
    problem: Problem, limits: Limits, configuration: Configuration | None = None
) -> Flat | ShortRows | Rows | Loop | Split:
    """How to normalize the rows of ``problem``, which is one of the forward pass; with a configuration, so.

    ValueError if the problem cannot be launched so.
    """
    M, N, _, element_size, *_ = problem
    if configuration is not None:
        return _launch(problem, configuration, limits)
    few_elements = plan(problem, limits)
    if isinstance(few_elements, Flat | ShortRows):
        return few_elements
    found = rows(problem, limits)
    found = _late(problem, found, limits) or found or _long_row_with_edges(problem, limits)
    if found is not None:
        late_edges = problem.residual and found.unaligned and found.late and element_size == 2
        if late_edges and (found.warps, found.chunks) == (2, 4):
            # By two warps 32 bytes of float16 spill (Triton 3.6): 1480 x 1933 30.2 us, 30.1 so (H100).
            found = found._replace(warps=4, chunks=2, block_n=2 * found.block_n)
        # Where no other program reads while one waits for the weight, it is not loaded late: 7 x 16368 float32 4.8 us,
        # late 7.0, 100 x 16384 9.2 and 11.1, 16 x 32768 float16 5.1 and 7.4 (H100; FlagGems 5.9 for the first).
        return found._replace(late=found.late and (limits.sm_count < M or found.unaligned))
    if M == 1 and (N > MAX_SHARED_ROW or element_size == 8):
        single = _split(N, element_size, limits)
        # A single row of any length is read in whole vectors and a tail: 1 x 1100001 bf16 10.0 us, 12.0 by single
        # elements, 1 x 139510617 377 and 463; 1 x 3000001 float32 23.7 and 23.6 (H100).
        return single._replace(vec=VECTOR_BYTES // element_size) if element_size == 2 else single
    vec = math.gcd(N, VECTOR_BYTES // element_size)
    whole = vec * element_size == VECTOR_BYTES
    few = (SHARED_TURNS if element_size == 2 and not problem.residual else 1) * limits.sm_count > M
    pipelined = problem.residual or element_size == 8
    at_once = 2 * limits.sm_count * N * element_size
    if few or (not whole and element_size < 8) or at_once > limits.l2_bytes * (1 if pipelined else SHARE_OF_OWN_ROWS):
        return _launch(problem, shared_loop(problem), limits)
    # Two programs to a multiprocessor with a row each, which L2 holds for the second reading.
    tile = TILE_OF_PIPELINE if pipelined else TILE_OF_OWN_ROW
    block_n = tile // element_size
    # Of whole blocks, as any slice, so that the compiler sees vectors.
    slice_size = cdiv(N, block_n) * block_n
    if not pipelined:
        return Loop(M, 1, slice_size, block_n, vec, 1, MAX_WARPS, 0)
    stages = 2 + BYTES_IN_FLIGHT // tile
    return Loop(min(M, 2 * limits.sm_count), 1, slice_size, block_n, vec, stages, 8, 0)


def _launch(problem: Problem, configuration: Configuration, limits: Limits) -> Flat | ShortRows | Rows | Loop:
    launched = launch(problem, configuration, limits)
    if not isinstance(launched, Flat | ShortRows | Rows | Loop):
        raise ValueError(f"rms_norm has no kernel for {configuration.kernel}")
    return launched


def shared_loop(problem: Problem) -> Configuration:
    """Four programs to a multiprocessor, which share no more rows than L2 holds: 32 bytes to a thread, but with a
    residual 16 of odd rows of 16 bits, whose weights are loaded one by one, and of float64. 507 x 200817 float32 takes
    328 us, 425 by one program to a row.

    Odd rows of 16 bits are read as vectors and edges: 425 x 178003 bf16 takes 144 us so, with 16 bytes to a thread 147,
    element by element 208 (H100; FlagGems 197).
    """
    M, N, _, itemsize, _, residual = problem
    odd = itemsize == 2 and N % 2 == 1
    half = residual and (odd or itemsize == 8)
    vec = VECTOR_BYTES // itemsize if odd else 1
    if N % 2 and M >= MIN_ROWS_OF_VECTORS:
        vec = max(vec, vec_of_long(problem))
    return Configuration("loop", 8, vec, chunks=1 if half else 2, registers=64)


def _late(problem: Problem, found: Rows | None, limits: Limits) -> Rows | None:
    """Instead of pipelines or of several programs to a row, one that loads the weight after the statistics. With a
    residual one for a few short rows, too. None instead of others."""
    N, vector, block_n = problem.N, VECTOR_BYTES // problem.itemsize, power_of_2(problem.N)
    many, configuration = many_rows(problem, limits), None
    pairs = _row_of_pairs(problem, limits)
    if pairs is not None and found is not None and found.stages > 1:
        configuration = pairs
    elif found is not None and found.warps == 1 and found.stages == 1 and found.vec * problem.itemsize < VECTOR_BYTES:
        configuration = _short_rows_of_four_warps(problem, found, limits)
    elif found is None or (found.stages > 1 and many):
        # Without a bias and a mean two programs of 16 warps fit: 4096 x 16384.
        configuration = _late_row(problem, limits) or long_row_with_edges(problem, limits)
        configuration = configuration or odd_row_of_rms_norm(problem, limits)
    elif found.stages > 1 and limits.sm_count < problem.M <= MAX_TURNS * found.programs and not problem.residual:
        configuration = _early(problem)
    elif found.vec == 1 and N > MIN_ROW_OF_EDGES and many:
        configuration = long_row_with_edges(problem, limits)
    elif problem.residual and problem.itemsize == 2 and N % vector == 0 and 256 <= block_n <= 1024 and many:
        # 65536 x 496 bf16 68 us, 77 by warps with two rows each.
        configuration = Configuration("rows", 4, vector, 2048 // block_n, late=True)
    launched = configuration and launch_or_none(problem, configuration, limits)
    return launched if isinstance(launched, Rows) else None


def _late_row(problem: Problem, limits: Limits) -> Configuration | None:
    """``late_row``; longer rows of float32, of which a multiprocessor has one at once, only where most multiprocessors
    have one in the end. 920 x 27680 float32 takes 76.4 us so, in a loop 83.5 (torch.compile 76.5), 700 x 20000 40.6 and
    46.9 (H100)."""
    alone = problem.itemsize == 4 and problem.N > MAX_OF_TWO_PROGRAMS
    if alone and not (limits.capability[0] == 9 and limits.sm_count < problem.M and _even(problem.M, limits)):
        return None
    return late_row(problem)


def _even(M: int, limits: Limits) -> bool:
    """Whether enough multiprocessors have a row in the end, where each has one at a time."""
    return EVEN_TURNS * cdiv(M, limits.sm_count) * limits.sm_count <= M


def _long_row_with_edges(problem: Problem, limits: Limits) -> Rows | None:
    """A row of 16 bits to a program of 16 warps, one on a multiprocessor, which holds it; None, for a loop that reads
    it twice, where it is too long or too few multiprocessors have one in the end, and for half vectors.

    rms_norm of 579 x 20361 bf16 takes 28.9 us so, with a late weight 29.9, in a loop 34.1, of 579 x 20362 29.0, 29.9
    and 33.7, of 579 x 24001 float16 31.8, 33.0 and 35.1, of 400 x 17001 20.4, 21.6 and 21.1, of 1000 x 30001 bf16 57.4
    late and 68.4 (H100).
    """
    M, N, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or itemsize != 2 or residual or N % 4 == 0:
        return None
    if not 2 * limits.sm_count < M or not _even(M, limits):
        return None
    configuration = Configuration("rows", MAX_WARPS, VECTOR_BYTES // itemsize, late=N > MAX_EARLY_EDGES)
    launched = launch_or_none(problem, configuration, limits)
    return launched if isinstance(launched, Rows) else None


def _row_of_pairs(problem: Problem, limits: Limits) -> Configuration | None:
    """A row of pairs of 16 bits to a program of two warps, instead of pipelines that read whole vectors and edges; None
    for others.

    rms_norm of 16384 x 738 float16 takes 22.6 us so, by one warp 22.8, by two with edges 23.1, by pipelines 23.7, of
    9000 x 1002 bf16 18.5, with edges 18.9 and by pipelines 19.6 (H100). Others were not timed so.
    """
    M, N, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or itemsize != 2 or residual or N % 4 != 2:
        return None
    if not MIN_ROW_OF_PAIRS <= N <= MAX_ROW_OF_PAIRS or limits.sm_count * MIN_ROWS_OF_PAIRS_PER_SM > M:
        return None
    return Configuration("rows", 2, 2)


def _short_rows_of_four_warps(problem: Problem, found: Rows, limits: Limits) -> Configuration | None:
    """``rows_of_four_warps``, and twice as many rows of few single elements to a program of four warps: 16389 x 17
    float32 takes 3.84 us so, with four times as many 4.11, by one warp 4.36 (H100); None for others."""
    M, _, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or residual:
        return None
    if found.block_m == 1:
        return rows_of_four_warps(problem, found.vec, limits)
    singles = itemsize <= 4 and found.vec == 1 and found.chunks * found.block_n <= MAX_SHORT_SINGLES
    if singles and limits.sm_count * MIN_SHORT_SINGLES_PER_SM <= M:
        return Configuration("rows", 4, 1, 2 * found.block_m)
    return None


def _early(problem: Problem) -> Configuration | None:
    """A row to a program of 8 warps or more, of float32 of 4, which loads the weight with it, instead of pipelines with
    few rows; None for others. 400 x 8192 float32 takes 14.6 us so, by 264 pipelines 15.5, 300 x 16384 bf16 13.4 and
    14.9, 800 x 16384 24.3 and 26.1, 700 x 8192 float32 21.3 and 22.1, 216 x 8192, one to a pipeline, 10.5 and 10.7, 400
    x 4096 10.0 and 10.7 (H100). Shorter ones were not timed so.
    """
    found, fewest = late_row(problem), 4 if problem.itemsize == 4 else 8
    return found._replace(late=False) if found is not None and found.warps >= fewest else None


def plan_backward(M: int, N: int, element_size: int, limits: Limits) -> FewRows | Rows | TwoPasses:
    """How to compute the gradients of M rows of N elements of ``element_size`` bytes."""
    problem = Problem(M, N, 1, element_size, True)
    few = _few_rows(problem, limits)
    if few is not None:
        return few
    in_chunks = short_rows_in_chunks(problem, MAX_ODD_OF_RMS_NORM, limits)
    many = many_warps(problem, MANY_ELEMENTS, limits)
    configuration = (many or in_chunks if N < MIN_IN_CHUNKS else in_chunks or many) or _fours(problem, limits)
    launched = configuration and launch_or_none(problem, configuration, limits)
    found = launched if isinstance(launched, Rows) else rows(problem, limits)
    if found is None:
        return plan_two_passes(M, N, element_size, limits)
    in_turn = not found.unaligned and 8 * found.programs * found.block_m <= M
    if in_turn and element_size == 2 and (found.warps, found.block_m, found.block_n) == (2, 4, 512):
        # Of four rows of two warps 8 bytes spill: 64357 x 384 float16 61.1 us, 60.7 so (H100, Triton 3.6).
        return found._replace(block_m=2, programs=2 * found.programs)
    if in_turn and (found.warps, found.vec) == (1, 1) and found.block_n in ODD_IN_TURN.get(element_size, ()):
        # Eight elements to a thread, without a pipeline, by more programs, which have 63 to 72 registers a thread, not
        # 91: 262144 x 97 bf16 87.9 us, 111 by four rows at a time (torch.compile 102), by 32 programs to a
        # multiprocessor 93.8, of float32 129 and 135, 131072 x 181 bf16 87.6 and 94.5, but 60000 x 127 float32, of 9.5
        # turns, 54.0 and 48.1 (H100).
        block_m, programs = 8 * WARP // found.block_n, ODD_PROGRAMS_PER_SM * limits.sm_count
        if MIN_ODD_TURNS[element_size] * programs * block_m <= M:
            return found._replace(block_m=block_m, programs=programs, stages=1)
    if in_turn and element_size == 4 and (found.warps, found.vec, found.block_n) == (2, 1, WIDE_ODD):
        # 1260181 x 197 takes 1127 us by eight programs to a multiprocessor, 1200 by four, 300000 x 201 278 and 294
        # (H100). Fewer rows were not timed so.
        programs = MORE_WIDE_ODD * found.programs
        if MIN_WIDE_ODD_TURNS * programs * found.block_m <= M:
            return found._replace(programs=programs)
    if found.unaligned and element_size == 4 and found.block_m > 1:
        # 32 elements to a thread spill (1024 x 1001): 32 bytes on sm_80, 24 on sm_90 with Triton 3.6.
        return found._replace(block_m=found.block_m // 2)
    return found


def plan_shared_backward(
    M: int, N: int, element_size: int, planned: FewRows | Rows | TwoPasses, limits: Limits
) -> launches.Split | None:
    """Instead of two kernels that both read dy and x, one whose programs share rows, as layer_norm's.

    Not for rows of whole vectors in L2 that come in turns of programs of more than MAX_WARPS_OF_WHOLE warps.
    """
    problem = Problem(M, N, 1, element_size, True)
    if not isinstance(planned, TwoPasses) or limits.capability[0] != 9:
        return None
    for configuration in splits(problem, limits):
        launched = launch(problem, configuration, limits)
        if isinstance(launched, launches.Split):
            in_turn = launched.programs // launched.group < M
            from_l2 = N * element_size % VECTOR_BYTES == 0 and 2 * M * N * element_size <= limits.l2_bytes
            return None if from_l2 and in_turn and launched.warps > MAX_WARPS_OF_WHOLE else launched
    return None


def _fours(problem: Problem, limits: Limits) -> Configuration | None:
    """Rows of fours of 16 bits in chunks of which few lanes have no element; None for others.

    1048576 x 76 bf16 takes 191 us so, 202 in chunks of half as many lanes, 214 with all lanes of a row at a time
    (torch.compile 203), 400000 x 68 80 in chunks of half as many and 90, 400000 x 140 141 and 147 (H100). Rows of pairs
    and fewer rows were not timed so.
    """
    M, N, _, element_size, *_ = problem
    width = power_of_2(N)
    if limits.capability[0] != 9 or element_size != 2 or N % 8 != 4 or MAX_OF_FOURS.get(width, 0) < N:
        return None
    rows = ELEMENTS_OF_FOURS * WARP // width
    if MIN_TURNS_OF_FOURS * FOURS_PER_SM * limits.sm_count * rows > M:
        return None
    return Configuration("rows", 1, 4, rows, FOURS_PER_SM, 3, width // LANES_OF_FOURS)


def _few_rows(problem: Problem, limits: Limits) -> FewRows | None:
    """One launch, without partial sums; None where one program has no partial sums either, and for others."""
    M, N, *_ = problem
    one = power_of_2(M) * power_of_2(N) <= MAX_OF_ONE_PROGRAM and little_gradient(problem) is not None
    if one or not 1 < M <= MAX_FEW_ROWS:
        return None
    found = _one_launch(problem, 4 if N <= 1024 else 8, limits)
    if found is None:
        return None
    if (found.row_programs + found.column_programs) * found.warps <= WARPS_OF_FEW_ROWS * limits.sm_count:
        return found
    edges = few_rows_of_edges(problem, MAX_EDGES_OF_FOUR_WARPS, limits)
    return edges and _one_launch(problem, edges.warps, limits)


def _one_launch(problem: Problem, warps: int, limits: Limits) -> FewRows | None:
    M, N, _, element_size, *_ = problem
    configuration = Configuration("few_rows", warps, rows=min(rows_of_few(N, warps), power_of_2(M)))
    launched = launch_or_none(problem, configuration, limits)
    if not isinstance(launched, FewRows):
        return None
    elements = launched.column_rows * launched.columns
    if element_size == 2 and warps == 4 and elements == 32 * WARP * warps and launched.columns >= 16:
        # Of 32 elements to a thread 8 bytes of 64 x 64 bf16 spill and 56 of 128 x 33 float16 (Triton 3.6).
        columns = launched.columns // 2
        launched = launched._replace(columns=columns, column_programs=cdiv(N, columns))
    return launched


def _split(N: int, element_size: int, limits: Limits) -> Split:
    """Of a single row."""
    block_n = 4 * WARP * VECTOR_BYTES // element_size  # one vector to a thread
    splits = max(1, min(4 * limits.sm_count, N // (4 * block_n), 1024))
    slice_size = cdiv(N, splits * block_n) * block_n
    vec = math.gcd(N, VECTOR_BYTES // element_size)
    return Split(cdiv(N, slice_size), slice_size, block_n, vec, 4, 4)
