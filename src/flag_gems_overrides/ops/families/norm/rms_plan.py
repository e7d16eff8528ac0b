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
    few_rows,
    little_gradient,
    many_warps,
    short_rows_in_chunks,
    single_row,
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
from .packed_plan import packed_row, packed_row_of_rms_norm
from .plan import plan, rows
from .programs import MAX_WARPS
from .two_passes_plan import TwoPasses, plan_two_passes

# A program that reads a row in tiles by a pipeline: bytes in flight, beyond two tiles.
BYTES_IN_FLIGHT = 16384
# Bytes of a tile of such a pipeline.
TILE_OF_PIPELINE = 8192
# Bytes of a tile where a row has a program of 16 warps of its own, without a pipeline. 700 x 20000 float32: 46.9 us, by
# pipelines of 8 warps 53.6 (H100).
TILE_OF_OWN_ROW = 16384
# Largest share of L2 of the rows that these programs read at once; rows of a larger share are shared.
# 1500 x 60000 bf16: 147 us shared, by a program for each row 161, by pipelines 176 (H100).
SHARE_OF_OWN_ROWS = 0.5
# Longest row of float32, in elements, of which a multiprocessor runs two programs of 16 warps (``_late_row``).
MAX_OF_TWO_PROGRAMS = 16384
# Longest single row, in elements, that several programs share. Longer rows and those of float64 take two kernels.
# 1 x 116109 bf16: 6.3 us shared, by two kernels 8.6; 1 x 2237052 bf16: 14.9 and 14.7 (H100).
MAX_SHARED_ROW = 1 << 20
# Rows of 16 bits are shared if a multiprocessor has fewer than this; float32 and sums with a residual if it has less
# than one. 351 x 59296 float16: 39.0 us, by a program for each row 44.4; 500 x 59296 float32: 108.6 and 108.6 (H100).
SHARED_TURNS = 8
# Most rows of a pipeline for which each row has a program instead (``_early``). 800 x 16384 bf16 has 3.03.
MAX_TURNS = 3.5

# Where a multiprocessor has one row at a time: the least share of the multiprocessors that work, over all iterations.
EVEN_TURNS = 0.75
# Most warps of programs that share rows of whole vectors in L2 in several iterations; otherwise two kernels read dy and
# x again from L2. 20 x 300000 float16, 4 warps: 40.1 us, by two kernels 31.9; 24 x 60000, one warp: 15.9 and 16.1
# (H100).
MAX_WARPS_OF_WHOLE = 2
# Fewest long odd rows of float32 that are read as vectors and edges. Of 20 x 614089, by up to 32 programs to a row, 8
# bytes would spill (Triton 3.6).
MIN_ROWS_OF_VECTORS = 129
# Rows of single elements are read as vectors and edges if they are longer than this (8192 x 6457). Shorter rows were
# not timed.
MIN_ROW_OF_EDGES = 4096

# Most columns of a tile of single elements for ``_short_rows_of_four_warps``.
MAX_SHORT_SINGLES = 32
# Fewest rows of a multiprocessor for these tiles.
MIN_SHORT_SINGLES_PER_SM = 64

# Most elements of a multiprocessor for programs of many warps (``many_warps``), with those that are masked, by the
# columns of a tile. 33000 x 31 float32: 11.4 us, by pipelines 17.2; 100001 x 33 float32: 38.1 and 35.2 (H100).
MANY_ELEMENTS = {2: 9216, 4: 16384, 8: 32768, 16: 16384, 32: 32768, 64: 30720, 128: 20480, 256: 20480}
# Shorter rows, in elements, are in chunks (``short_rows_in_chunks``) only where they are too many for ``many_warps``.
# 522439 x 7 bf16: 23.7 us by many warps, in chunks 26.9 (H100).
MIN_IN_CHUNKS = 9
# Columns of a tile of odd rows of one warp that take no pipeline and more programs, by bytes of an element.
ODD_IN_TURN = {2: (128, 256), 4: (128,)}
# Fewest iterations of these programs, by bytes of an element.
MIN_ODD_TURNS = {2: 8, 4: 32}
# Number of these programs of a multiprocessor.
ODD_PROGRAMS_PER_SM = 24
# Longest row of ``_fours`` by the columns of its tile, in elements: a quarter of the lanes or more would have none.
MAX_OF_FOURS = {128: 96, 256: 160}
# Columns of a chunk in ``_fours``.
LANES_OF_FOURS = 32
# Elements of a thread in ``_fours``, with those that are masked.
ELEMENTS_OF_FOURS = 32
# Programs of a multiprocessor in ``_fours``.
FOURS_PER_SM = 12
# Fewest iterations of a program of ``_fours``.
MIN_TURNS_OF_FOURS = 8
# Columns of a tile of odd rows of float32 that take more pipelines of two warps.
WIDE_ODD = 256
# Factor by which these pipelines are more.
MORE_WIDE_ODD = 2
# Fewest iterations of each of these pipelines.
MIN_WIDE_ODD_TURNS = 32
# Registers of a thread of two warps that have four rows of up to 512 elements of 16 bits. Without a limit the compiler
# takes 168, and spills 8 bytes where 16 does not divide the number of rows (sm_90, Triton 3.6). 16380 x 352 bf16: 19.2
# us, with the spill 18.5; 64357 x 384 float16: 46.2, with two rows 46.3 (H200).
REGISTERS_OF_512 = 192


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
    """How to normalize the rows of ``problem``, by ``configuration`` if there is one.

    ValueError if the problem cannot be launched with it.
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
            # By two warps 32 bytes of float16 spill (Triton 3.6). 1480 x 1933: 30.2 us by four, 30.1 by two (H100).
            found = found._replace(warps=4, chunks=2, block_n=2 * found.block_n)
        # A late weight is one more wait, which only other programs of the multiprocessor hide. 7 x 16368 float32:
        # 4.8 us early, 7.0 late (H100).
        return found._replace(late=found.late and (limits.sm_count < M or found.unaligned))
    if M == 1 and (N > MAX_SHARED_ROW or element_size == 8):
        single = _split(N, element_size, limits)
        # A single row of 16 bits is read in whole vectors and a tail. 1 x 139510617 bf16: 377 us, by single elements
        # 463; 1 x 3000001 float32: 23.7 and 23.6 (H100).
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
    # A multiple of the block, so that the compiler sees vectors.
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
    """Four programs to a multiprocessor, which share no more rows than L2 holds. 507 x 200817 float32: 328 us, by one
    program to a row 425.

    A thread has 32 bytes of a block. It has 16 of odd rows of 16 bits with a residual, whose weights are loaded one by
    one, and of float64 with a residual.

    Odd rows of 16 bits are read as vectors and edges. 425 x 178003 bf16: 144 us, element by element 208 (H100).
    """
    M, N, _, itemsize, _, residual = problem
    odd = itemsize == 2 and N % 2 == 1
    half = residual and (odd or itemsize == 8)
    vec = VECTOR_BYTES // itemsize if odd else 1
    if N % 2 and M >= MIN_ROWS_OF_VECTORS:
        vec = max(vec, vec_of_long(problem))
    return Configuration("loop", 8, vec, chunks=1 if half else 2, registers=64)


def _late(problem: Problem, found: Rows | None, limits: Limits) -> Rows | None:
    """A program with a row, or with a few short ones, instead of ``found``; None where ``found`` is better.

    Most of these programs load the weight after the statistics.
    """
    N, vector, block_n = problem.N, VECTOR_BYTES // problem.itemsize, power_of_2(problem.N)
    many, configuration = many_rows(problem, limits), None
    turns = MAX_TURNS * max(found.programs if found is not None else 0, 2 * limits.sm_count)
    single = found is not None and found.stages == 1 and found.warps <= min(found.block_m, 4)
    if found is not None and single and found.vec * problem.itemsize < VECTOR_BYTES:
        configuration = _short_rows_of_four_warps(problem, found, limits)
    elif found is not None and found.late and problem.itemsize == 2 and not problem.residual:
        configuration = packed_row_of_rms_norm(problem, limits)
    elif found is None or (found.stages > 1 and many):
        # Without a bias and a mean two programs of 16 warps fit (4096 x 16384).
        configuration = odd_row_of_rms_norm(problem, limits) or packed_row_of_rms_norm(problem, limits)
        configuration = configuration or _late_row(problem, limits) or long_row_with_edges(problem, limits)
    elif found.stages > 1 and limits.sm_count < problem.M <= turns and not problem.residual:
        configuration = _early(problem)
    elif found.vec == 1 and N > MIN_ROW_OF_EDGES and many:
        configuration = long_row_with_edges(problem, limits)
    elif problem.residual and problem.itemsize == 2 and N % vector == 0 and 256 <= block_n <= 1024 and many:
        # 65536 x 496 bf16: 68 us, by warps with two rows each 77.
        configuration = Configuration("rows", 4, vector, 2048 // block_n, late=True)
    launched = configuration and launch_or_none(problem, configuration, limits)
    return launched if isinstance(launched, Rows) else None


def _late_row(problem: Problem, limits: Limits) -> Configuration | None:
    """``late_row``. Where a multiprocessor has one row of float32 at a time, most multiprocessors need one in the last
    iteration; otherwise None.

    700 x 20000 float32: 40.6 us, in a loop 46.9 (H100).
    """
    alone = problem.itemsize == 4 and problem.N > MAX_OF_TWO_PROGRAMS
    if alone and not (limits.capability[0] == 9 and limits.sm_count < problem.M and _even(problem.M, limits)):
        return None
    return late_row(problem)


def _even(M: int, limits: Limits) -> bool:
    """Whether enough multiprocessors have a row in the last iteration, where each has one row at a time."""
    return EVEN_TURNS * cdiv(M, limits.sm_count) * limits.sm_count <= M


def _long_row_with_edges(problem: Problem, limits: Limits) -> Rows | None:
    """A row of 16 bits with edges to a program of 16 warps, which holds it in pairs. None, for a loop that reads a row
    twice, where a row is too long or of half vectors, or where too few multiprocessors would have one in the last
    iteration if each had one at a time.

    rms_norm of 500 x 20001 bf16: 19.3 us, in float32 one on a multiprocessor 21.2; 500 x 32001: 26.9 and 30.4 (H200).
    579 x 20361: in float32 28.9, in a loop 34.1; 400 x 17001 float16: 20.4 and 21.1 (H100).
    """
    M, N, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or itemsize != 2 or residual or N % 4 == 0:
        return None
    if not 2 * limits.sm_count < M or not _even(M, limits):
        return None
    configuration = packed_row(problem)
    launched = configuration and launch_or_none(problem, configuration, limits)
    return launched if isinstance(launched, Rows) else None


def _short_rows_of_four_warps(problem: Problem, found: Rows, limits: Limits) -> Configuration | None:
    """``rows_of_four_warps``, or twice as many rows of few single elements to a program of four warps; None for others.

    16389 x 17 float32: 3.84 us, with four times as many rows 4.11, by one warp 4.36 (H100).
    """
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
    """A row to a program of at least 8 warps, of float32 at least 4, with an early weight, instead of pipelines with
    few rows. None for others: shorter rows were not timed.

    300 x 16384 bf16: 13.4 us, by pipelines 14.9; 216 x 8192 float32, one row to a pipeline: 10.5 and 10.7 (H100).
    """
    found, fewest = late_row(problem), 4 if problem.itemsize == 4 else 8
    return found._replace(late=False) if found is not None and found.warps >= fewest else None


def plan_backward(M: int, N: int, element_size: int, limits: Limits) -> FewRows | Rows | TwoPasses:
    """How to compute the gradients of M rows of N elements of ``element_size`` bytes."""
    problem = Problem(M, N, 1, element_size, True)
    few = single_row(problem) or little_gradient(problem) or few_rows(problem, limits)
    in_chunks = short_rows_in_chunks(problem, MAX_ODD_OF_RMS_NORM, limits)
    many = many_warps(problem, MANY_ELEMENTS, limits)
    short = (many or in_chunks if N < MIN_IN_CHUNKS else in_chunks or many) or _fours(problem, limits)
    configuration = few or short
    launched = configuration and launch_or_none(problem, configuration, limits)
    if isinstance(launched, FewRows):
        return launched
    found = launched if isinstance(launched, Rows) else rows(problem, limits)
    if found is None:
        return plan_two_passes(M, N, element_size, limits)
    in_turn = not found.unaligned and 8 * found.programs * found.block_m <= M
    if element_size == 2 and (found.warps, found.block_m, found.block_n) == (2, 4, 512):
        return found._replace(registers=REGISTERS_OF_512)
    if in_turn and (found.warps, found.vec) == (1, 1) and found.block_n in ODD_IN_TURN.get(element_size, ()):
        # Eight elements to a thread and no pipeline: a thread has 63 to 72 registers instead of 91, so more programs
        # fit. 262144 x 97 bf16: 87.9 us, with four rows at a time 111; 60000 x 127 float32, 9.5 iterations: 54.0 and
        # 48.1 (H100).
        block_m, programs = 8 * WARP // found.block_n, ODD_PROGRAMS_PER_SM * limits.sm_count
        if MIN_ODD_TURNS[element_size] * programs * block_m <= M:
            return found._replace(block_m=block_m, programs=programs, stages=1)
    if in_turn and element_size == 4 and (found.warps, found.vec, found.block_n) == (2, 1, WIDE_ODD):
        # Eight programs to a multiprocessor instead of four. 1260181 x 197: 1127 us, by four 1200 (H100). Fewer rows
        # were not timed.
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
    """One kernel whose programs share rows, as layer_norm's, instead of two kernels that both read dy and x.

    None for rows of whole vectors in L2 that take several iterations of programs of more than MAX_WARPS_OF_WHOLE warps.
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
    """Rows of fours of 16 bits in chunks, so that few lanes have no element; None for others.

    1048576 x 76 bf16: 191 us, with all lanes of a row at a time 214; 400000 x 140: 141 and 147 (H100). Rows of pairs
    and fewer rows were not timed.
    """
    M, N, _, element_size, *_ = problem
    width = power_of_2(N)
    if limits.capability[0] != 9 or element_size != 2 or N % 8 != 4 or MAX_OF_FOURS.get(width, 0) < N:
        return None
    rows = ELEMENTS_OF_FOURS * WARP // width
    if MIN_TURNS_OF_FOURS * FOURS_PER_SM * limits.sm_count * rows > M:
        return None
    return Configuration("rows", 1, 4, rows, FOURS_PER_SM, 3, width // LANES_OF_FOURS)


def _split(N: int, element_size: int, limits: Limits) -> Split:
    """Two kernels for a single row."""
    block_n = 4 * WARP * VECTOR_BYTES // element_size  # one vector to a thread
    splits = max(1, min(4 * limits.sm_count, N // (4 * block_n), 1024))
    slice_size = cdiv(N, splits * block_n) * block_n
    vec = math.gcd(N, VECTOR_BYTES // element_size)
    return Split(cdiv(N, slice_size), slice_size, block_n, vec, 4, 4)
