# SPDX-License-Identifier: Apache-2.0
"""Whole rows of the gradient, and how their partial sums are added.

Figures that name no GPU are from an H200.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import COLUMN_BYTES, MIN_UNALIGNED, Configuration, FewRows, PartialSums, Problem, launch_or_none, widest
from .programs import BYTES_IN_FLIGHT, MAX_WARPS, stages_within, warps_for

# Most partial sums that a program adds at a time, its columns, and its most warps, where columns fill the device. The
# next sizes on either side are 0 to 3 % slower. 1024 x 65536 bf16: 148 us, with (128, 16, 8) 163.
WIDE_SUMS = (64, 32, 4)
# The same where columns do not fill the device.
NARROW_SUMS = (256, 8, 8)

# Programs of a multiprocessor in ``many_warps``.
MANY_WARPS_PER_SM = 2
# Iterations that each program has at least, of many short rows of vectors (``whole_backward_rows``).
ITERATIONS_OF_SHORT = 3
# The same where two of them would not hold all rows.
MORE_PER_SM = 4
# ``many_warps`` applies to more rows than this: fewer are for one launch (``few_rows``).
MIN_ROWS_OF_MANY_WARPS = 1024
# Most elements of a multiprocessor in ``many_warps``, with those that are masked, by bytes of an element. Float32 has
# half as many in tiles of 64 columns or more. rms_norm of 5000 x 252: 16.0 us with as many, by pipelines 14.7 (H100).
MAX_ELEMENTS_OF_MANY_WARPS = {2: 32768, 4: 16384, 8: 4096}
# Widest tiles, in columns, of which a thread may have 16 elements instead of 8.
MAX_WIDTH_OF_16 = 64
# Programs of a multiprocessor in ``edges_of_a_warp``, and its fewest rows.
EDGES_PER_SM, MIN_EDGES_PER_SM = 10, 32
# Most elements of ``little_gradient``, with those that are masked, where rows are not short or not of whole vectors;
# the second where a row is one load, for layer_norm alone. 300 x 2 float32: 3.25 us, in one launch of several programs
# 3.48; 152 x 2 bf16: 3.15 and 3.37; rms_norm of 160 x 2 float32: 3.12 and 3.04 (H100).
LITTLE, LITTLE_OF_LAYER_NORM = 256, 1024
# Rows of ``has_few_edges`` are longer than this, in elements.
MIN_FEW_EDGES = 1024
# Most warps of a multiprocessor in one launch: all of them run at once; those of edges may come in a few waves.
WARPS_OF_FEW, WARPS_OF_FEW_EDGES = 16, 22
# The same of programs of 16 warps, by bytes of an element: of 16 bits three whole waves. 128 x 11264 bf16, which has a
# third: 10.7 us, by programs that share rows 17.7 (H200); 110 x 6001 float32: 10.6 us, by rows 12.7 (H100).
WARPS_OF_LONG = {2: 48, 4: 40, 8: 40}
# Rows of 16 bits longer than this, in elements, are for programs of 16 warps where those of fewer do not hold them, or
# are too many. 64 x 11264 bf16: 7.0 us, by programs that share rows 13.1; 256 x 6000, with 64 columns to a program,
# which spill: 10.1, by rows 16.3; with 32 columns it was not timed (H200).
MIN_LONG_FEW = 4096
# Warps of a program there, by bytes of an element. 37 x 8192 bf16: 6.61 us by 8, by 16 8.85 (H100).
FEW_WARPS = {2: (4, 8), 4: (4, 8, 16), 8: (4, 8)}
# Bytes of a row's tile for each warp there.
MAX_FEW_ROW = 2048
# Rows of a tile there.
FEW_TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Estimate of one launch in us, fitted to 257 launches of 76 problems on an H100; its choice is 0.6 % behind the best
# of problems that it was not fitted to. Its start, and more for 16 bits by more than 4 warps.
FEW_START, MANY_WARPS_START = 1.69, 0.35
# Each warp of the programs that a multiprocessor has.
FEW_WARP = 0.189
# Each byte of x that a thread has of a tile of rows, and of a tile of columns.
FEW_ROW_BYTE, FEW_COLUMN_BYTE = 0.014, 0.015
# Columns of 16 bits that are parts of cache lines, of rows longer than a line or of whole vectors. 110 x 600 float16:
# 4.53 us by 8 warps with whole lines, by 4 warps with halves 5.27; 228 x 21 bf16: 5.76 us by 8 warps with whole rows,
# by 4 warps with two parts 4.63 (H100).
PART_OF_LINE = 1.34
# Longest row of fours of 16 bits that is loaded in them, without edges, in elements. Longer ones were not timed.
# 700 x 900 bf16: 7.76 us, with edges 8.93 (H100).
MAX_FOURS = 2048
# ``single_row`` applies to rows longer than the first number, up to the second. layer_norm of 1 x 3000 bf16: 3.59 us,
# by ``few_rows`` 4.03; 1 x 2000 float16: 3.42 and 3.23 (H100).
MIN_SINGLE_ROW, MAX_SINGLE_ROW = 2048, 4096
# Elements of a thread there, by up to 16 warps.
SINGLE_ROW_ELEMENTS = 4
# Programs of a multiprocessor in ``short_rows_in_chunks``.
IN_CHUNKS_PER_SM = 24
# Shortest odd row there, in elements.
MIN_ODD_IN_CHUNKS = 3
# Chunks of an odd row.
CHUNKS_OF_ODD = 8
# Longest odd row there, in elements, by bytes of an element.
MAX_ODD_OF_LAYER_NORM, MAX_ODD_OF_RMS_NORM = {2: 255, 4: 47, 8: 47}, {2: 63, 4: 47}
# Shortest and longest row of pairs or fours of 16 bits there, in elements.
MIN_EVEN_IN_CHUNKS, MAX_EVEN_IN_CHUNKS = 10, 62
# Chunks of a row of pairs or fours.
CHUNKS_OF_EVEN = 4
# ``short_rows_in_chunks`` applies where a multiprocessor has more elements than this, with those that are masked: the
# first for odd rows of up to 64 columns, the second for others. Fewer are for ``many_warps``.
MIN_ODD_ELEMENTS, MIN_ELEMENTS_IN_CHUNKS = 16384, 32768


def backward_rows(problem: Problem, limits: Limits) -> Iterator[Configuration | None]:
    """Candidates in order: those for few or short rows come first. A candidate that does not apply is None."""
    yield little_gradient(problem)
    yield few_rows(problem, limits)
    yield whole_backward_rows(problem, widest(problem.N, problem.itemsize), limits)


def little_gradient(problem: Problem, one_load: int = LITTLE) -> Configuration | None:
    """One program, so no second kernel is launched; None for more elements. ``one_load``: most elements of rows of one
    load.

    17 x 1 bf16: 3.0 us on the device, with a second kernel 4.1. layer_norm of 20 x 30 float32: 3.75 us, in one launch
    of several programs 3.22; 64 x 64 bf16: 4.50 and 4.10; 128 x 32: 3.86 and 4.89 (H100).
    """
    M, N, _, itemsize, *_ = problem
    vec = math.gcd(N, VECTOR_BYTES // itemsize)
    elements, vectors = power_of_2(M) * power_of_2(N), vec * itemsize == VECTOR_BYTES and N <= 32
    if itemsize == 8 or elements > (8192 // itemsize if vectors else one_load if vec == N > 1 else LITTLE):
        return None
    return Configuration("rows", 4 if elements > LITTLE else 1, vec, power_of_2(M))


def single_row(problem: Problem) -> Configuration | None:
    """A single row of whole vectors, with a few elements to each thread; None for others."""
    M, N, _, itemsize, *_ = problem
    vec = VECTOR_BYTES // itemsize
    if M != 1 or itemsize != 2 or N % vec or not MIN_SINGLE_ROW < N <= MAX_SINGLE_ROW:
        return None
    return Configuration("rows", warps_for(N, WARP * SINGLE_ROW_ELEMENTS), vec)


def many_warps(problem: Problem, most: Mapping[int, int], limits: Limits) -> Configuration | None:
    """Programs of up to 8 warps for many short rows, without a pipeline: one tile to each program, where registers hold
    it.

    None for others, and where a multiprocessor has more elements than ``most``, by the width of a tile: then there are
    as many warps in programs of one warp, each with a pipeline.

    layer_norm of 262979 x 3 bf16: 9.5 us, by one warp with 8 tiles one after the other 26.1; rms_norm of
    2469 x 56 float32: 5.6 and 6.7 (H100).
    """
    M, N, _, itemsize, *_ = problem
    width, vec = power_of_2(N), math.gcd(N, VECTOR_BYTES // itemsize)
    if limits.capability[0] != 9 or N == 1 or M <= MIN_ROWS_OF_MANY_WARPS:
        return None
    of_size = MAX_ELEMENTS_OF_MANY_WARPS[itemsize] // (2 if itemsize == 4 and width >= MAX_WIDTH_OF_16 else 1)
    if M * width > min(most.get(width, 0), of_size) * limits.sm_count:
        return None
    half = 8 * WARP * 8 // width
    # With 16 elements of more columns a thread has 144 to 171 registers, and only one of two programs fits.
    whole = half if itemsize == 8 or width > MAX_WIDTH_OF_16 else 2 * half
    rows, per_sm = power_of_2(cdiv(M, MANY_WARPS_PER_SM * limits.sm_count)), MANY_WARPS_PER_SM
    if rows > whole:
        if vec > 1 and width >= MAX_WIDTH_OF_16:
            # 25000 x 60 bf16: 15.9 us, by pipelines 15.0 (H100).
            return None
        per_sm = MORE_PER_SM if whole > half else MANY_WARPS_PER_SM
        rows = whole if whole * per_sm * limits.sm_count >= M else half
    warps = min(max(rows * width // (WARP * 8), 1), 8)
    return Configuration("rows", warps, vec, rows, per_sm)


def sixteen_columns(problem: Problem, most: Mapping[int, int], limits: Limits) -> Configuration | None:
    """``many_warps`` of 9 to 16 columns that are loaded one by one: a thread has two elements, or a whole row of its
    tile. None for others. For layer_norm alone.

    6199 x 9 bf16: 5.25 us with two, 6.55 with four, 9.33 with eight; 6.04 with 16 (H100).
    """
    found = many_warps(problem, most, limits) if power_of_2(problem.N) == 16 else None
    if found is None or found.vec > 1 or problem.itemsize == 8:
        return None
    elements = 2 if found.rows <= 8 * WARP * 2 // 16 else 16
    return found._replace(warps=max(found.rows * 16 // (WARP * elements), 1))


def short_rows_in_chunks(problem: Problem, longest: Mapping[int, int], limits: Limits) -> Configuration | None:
    """Short rows to programs of one warp, in chunks of few lanes, so that few lanes have no element, without a
    pipeline: odd rows in up to 8 chunks, pairs of 16 bits in 4, and fours if a quarter of the lanes would have none.
    None for others. ``longest``: odd rows, by bytes of an element.

    layer_norm of 4210878 x 11 bf16: 142 us, with all lanes of a row at a time 311; 100000 x 61 float32: 46.3 and 45.1
    (H100).
    """
    M, N, _, itemsize, *_ = problem
    width, vec = power_of_2(N), math.gcd(N, VECTOR_BYTES // itemsize)
    if vec == 1:
        chunks, suits = CHUNKS_OF_ODD, MIN_ODD_IN_CHUNKS <= N <= longest.get(itemsize, 0)
    else:
        small = vec == 2 or (vec == 4 and 3 * width >= 4 * N)
        chunks, suits = CHUNKS_OF_EVEN, itemsize == 2 and small and MIN_EVEN_IN_CHUNKS <= N <= MAX_EVEN_IN_CHUNKS
    fewest = MIN_ODD_ELEMENTS if vec == 1 and width <= MAX_WIDTH_OF_16 else MIN_ELEMENTS_IN_CHUNKS
    if limits.capability[0] != 9 or not suits or M * width <= fewest * limits.sm_count:
        return None
    chunks = min(chunks, width // vec)
    rows = WARP * chunks * vec // width
    if vec == 1 and (N == 3 or cdiv(N, width // chunks) == chunks):
        # Half as many chunks have the same lanes; a thread has twice as many rows of three elements. 4194304 x 63 bf16:
        # 688 us in four chunks, in eight 753; 4756208 x 3: 62.8 in two of 64 rows, in three of 32 69.9 (H100).
        chunks, rows = chunks // 2, 2 * rows if N == 3 else rows
    return Configuration("rows", 1, vec, rows, IN_CHUNKS_PER_SM, 1, chunks)


def edges_of_a_warp(problem: Problem, limits: Limits) -> Configuration | None:
    """Many short rows of 16 bits with edges, one at a time to programs of one warp; None for others. For layer_norm
    alone: rms_norm has one sum and was not timed.

    8192 x 265 bf16: 16.2 us, by two warps with four rows 19.5; 5000 x 301: 15.2 and 15.7 (H100).
    """
    M, N, _, itemsize, *_ = problem
    vec = VECTOR_BYTES // itemsize
    two = MIN_UNALIGNED + vec < N < 2 * MIN_UNALIGNED  # vectors of a lane
    if limits.capability[0] != 9 or itemsize != 2 or N % 4 == 0 or not two:
        return None
    return Configuration("rows", 1, vec, 1, EDGES_PER_SM, 3) if MIN_EDGES_PER_SM * limits.sm_count <= M else None


def few_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """One launch, where the programs take few waves; None elsewhere.

    The warps and rows of a tile are those of the lowest estimate. 93 x 520 float32: 3.90 us by 8 warps, by 4 5.09;
    209 x 1766 bf16: 6.48 in tiles of two rows, of one 7.19 (H100). 128 x 7632 bf16: 7.8 us, by rows 13.0.
    """
    M, N, _, itemsize, *_ = problem
    most = WARPS_OF_FEW_EDGES if has_few_edges(problem, limits) else WARPS_OF_FEW

    def few(configuration: Configuration) -> FewRows | None:
        found = launch_or_none(problem, configuration, limits)
        if not isinstance(found, FewRows):
            return None
        if found.warps == MAX_WARPS and M == 1:
            # rms_norm of 1 x 7093 float32: 5.33 us, by rows 4.73 (H100).
            return None
        fits = (WARPS_OF_LONG[itemsize] if found.warps == MAX_WARPS else most) * limits.sm_count
        return found if (found.row_programs + found.column_programs) * found.warps <= fits else None

    fewest = next((each for each in FEW_WARPS[itemsize] if power_of_2(N) <= MAX_FEW_ROW * each // itemsize), MAX_WARPS)
    all_warps: tuple[int, ...] = FEW_WARPS[itemsize]
    first = few(Configuration("few_rows", fewest, rows=min(rows_of_few(N, fewest), power_of_2(M))))
    # By 16 warps 40 bytes of 200 x 7001 float16 would spill.
    if itemsize == 2 and N > MIN_LONG_FEW and (fewest == MAX_WARPS or (first is None and N % 4 == 0)):
        all_warps = (MAX_WARPS,)
    elif first is None:
        # 1024 x 376 float16: at least 9.2 us, by rows 6.57 (H100).
        return None
    found: list[tuple[float, Configuration]] = []
    for warps, rows in itertools.product(all_warps, FEW_TILES):
        configuration = Configuration("few_rows", warps, rows=rows)
        launched = few(configuration)
        if launched is None:
            continue
        if launched.block_m * launched.block_n >= WARP * warps or launched.row_programs == 1:
            found.append((_time_of_few(launched, N, itemsize, limits), configuration))
    return min(found, key=lambda each: each[0])[1] if found else None


def _time_of_few(launched: FewRows, N: int, itemsize: int, limits: Limits) -> float:
    """Estimated microseconds of one launch (``FEW_START`` and others)."""
    threads = WARP * launched.warps
    waves = cdiv(launched.row_programs + launched.column_programs, limits.sm_count)
    of_rows = launched.block_m * launched.block_n * itemsize / threads
    of_columns = launched.column_rows * launched.columns * itemsize / threads
    start = FEW_START
    if itemsize == 2:
        # By 4 warps 16 bytes of 134 x 32 bf16 spill (Triton 3.6).
        lines = N * itemsize > COLUMN_BYTES or N * itemsize % VECTOR_BYTES == 0
        part = lines and launched.columns * itemsize < COLUMN_BYTES and launched.column_programs > 1
        start += MANY_WARPS_START * (launched.warps > 4) + PART_OF_LINE * part
    return start + FEW_WARP * launched.warps * waves + FEW_ROW_BYTE * of_rows + FEW_COLUMN_BYTE * of_columns


def has_few_edges(problem: Problem, limits: Limits) -> bool:
    """Whether rows are of 16 bits and no half vectors, so that other kernels load edges or single elements.

    256 x 3283 bf16: 9.15 us in one launch, by programs that share rows 13.1 (H100).
    """
    return limits.capability[0] == 9 and problem.itemsize == 2 and problem.N > MIN_FEW_EDGES and problem.N % 4 != 0


def rows_of_few(N: int, warps: int) -> int:
    """Rows of a tile of 8 elements to a thread."""
    return max(1, 8 * WARP * warps // power_of_2(N))


def whole_backward_rows(problem: Problem, vec: int, limits: Limits) -> Configuration | None:
    """Whole rows to a program, with partial sums; None if a row is too long."""
    M, N, _, itemsize, *_ = problem
    if itemsize == 2 and N % vec == 4 and N <= MAX_FOURS and limits.capability[0] == 9:
        # Half vectors need no edges.
        vec = 4
    span, lanes, unaligned = N // vec * vec, WARP * VECTOR_BYTES // itemsize, N % vec != 0
    # sm_100 takes more registers for the same code: 8 to 24 bytes spill with what sm_80 and sm_90 get.
    tight = limits.capability >= (10, 0)
    # dweight, dbias, xhat and g are in registers, two for a float64. Edges take some too: 48 bytes of 8190 float32
    # spill.
    if 8 * (span + 1024 * unaligned * (1 + tight)) * max(1, itemsize // 4) > limits.registers_per_sm:
        return None
    per_thread = 8 if itemsize == 8 else 16 if unaligned and tight else 32  # 16 float64 spill
    # All warps share a row: Triton's pipeline mixes up the layout of a tile whose rows share warps.
    row_bytes = span * itemsize
    max_warps = 4 if row_bytes <= 8192 else 8 if row_bytes <= 12288 or itemsize == 8 else 16
    if unaligned or (itemsize == 4 and row_bytes <= 16384) or (tight and row_bytes > 16384):
        # 8192 x 4096 float32: 89 % of the bandwidth with 8 warps, 85 % with 16. With edges 72 bytes spill with 16.
        max_warps = 8 if unaligned and tight else min(max_warps, 8)
    warps = _tight_warps(span, lanes, max_warps, per_thread * itemsize // VECTOR_BYTES)
    block_n = min(power_of_2(span), warps * lanes)
    chunks = cdiv(span, block_n)
    if itemsize < 8 and (warps == 16 or (itemsize == 4 and chunks == 1 and warps > 1)):
        per_thread = 16  # a thread of 16 warps has 128 registers; 8 rows of 512 float32 spill
    if warps == 1 and (itemsize == 4 or block_n <= 64):
        # 16 rows of a tile spill on sm_80. 262144 x 64 bf16: 36 us with 8 rows, 43 with 16.
        per_thread = min(per_thread, 16)
    block_m = min(power_of_2_within(warps * WARP * per_thread // (chunks * block_n)), power_of_2(M))
    # Each multiprocessor has a tile, or two of rows of one element. 17022 x 1 float32: 4.74 us with 256 rows, 5.41 with
    # 512; 39537 x 1 bf16: 5.15 and 5.81 (H100).
    tiles = (2 if N == 1 else 1) * limits.sm_count
    block_m = min(block_m, max(power_of_2(cdiv(M, tiles)), warps * WARP // block_n))
    at_once = 2 * limits.sm_count * block_m
    if itemsize == 4 and vec > 1 and warps == 2 and chunks == 1 and at_once < M <= 2 * at_once:
        # Twice as many rows at once save the second iteration. 1500 x 250: 7.57 us, by two warps 9.15 (H100).
        return Configuration("rows", 4, vec, 2 * block_m, 2)
    many_of_one = N == 1 and itemsize == 2 and 4 * at_once <= M
    if many_of_one or (N == 1 and itemsize == 4):
        # 20000000 x 1 float32: 153 us with 256 rows, 162 with 512 (H100).
        block_m = min(block_m, 256)
    tile_bytes = 2 * block_m * chunks * block_n * itemsize
    per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
    if unaligned and itemsize == 2 and block_m == 4 and 1 < M / (per_sm * limits.sm_count * block_m) <= 3:
        # The last of few tiles leaves many rows masked. 2371 x 997 float16: 17.5 us, with four rows 19.3; 1979 x 417
        # bf16: 10.0 and 10.6; 5000 x 301, more tiles: 17.0 and 15.7 (H100).
        block_m = 2
    if vec == 1 < N:
        # Elements that are loaded one by one have an address and a mask each, so a tile has half of the rows.
        # 25253273 x 9 bf16: 1744 us, with all rows 2951.
        block_m = max(block_m // 2, 1)
        if itemsize == 2 and per_sm <= 8 and 8 * block_m * 2 * per_sm * limits.sm_count <= M:
            # Nothing copies 2 bytes to shared memory, so their pipeline is in registers. Without it a thread has 128,
            # and twice as many programs of a warp fit. layer_norm of 70811 x 65 bf16: 47.7 us, with it 57.3 (H100).
            return Configuration("rows", warps, vec, block_m, 2 * per_sm)
    elif (
        itemsize == 2 and not unaligned and 16 < N <= WARP and ITERATIONS_OF_SHORT * 16 * block_m * limits.sm_count <= M
    ):
        # Many short rows of vectors: as many programs as run at once hide what a pipeline does. 3000000 x 24 bf16:
        # 178 us, by 8 programs of three stages 246; 262144 x 32: 29.9 and 32.4 (H100).
        return Configuration("rows", warps, vec, block_m, 16)
    elif not unaligned or block_m > 1:
        # 1048576 x 6 bf16: 32.6 us by 8 programs to a multiprocessor, by 16 37.0. Rows with edges, one at a time, wait
        # longer for their sums: 8192 x 265 bf16: 16.2 us by 10 programs, by 5 18.0 (H100).
        per_sm = min(per_sm, 8)
    rows_over = M - 2 * limits.sm_count
    if itemsize == 2 and not unaligned and (per_sm, block_m) == (2, 1) and 0 < rows_over <= limits.sm_count:
        # Half as many partial sums for one more iteration. layer_norm of 280 x 4056 bf16: 11.6 us, by two programs to a
        # multiprocessor 13.1 (H100).
        return Configuration("rows", warps, vec, 1, 1, stages_within(3, tile_bytes, limits))
    if many_of_one:
        # Nothing copies 2 bytes to shared memory. 10000000 x 1 bf16: 67.9 us, with 512 rows 68.5, with a pipeline 70.6;
        # 635040 x 1: 12.7, 13.5 and 14.1 (H100).
        return Configuration("rows", warps, vec, block_m, per_sm)
    stages = 4 if per_sm == 1 and block_m == 1 else 3
    if tight and tile_bytes >= BYTES_IN_FLIGHT:
        stages = 3
    return Configuration("rows", warps, vec, block_m, per_sm, stages_within(stages, per_sm * tile_bytes, limits))


def _tight_warps(span: int, lanes: int, max_warps: int, chunks: int) -> int:
    """Warps, up to ``max_warps``, that hold ``span`` in at most ``chunks`` chunks with the least left over.

    65536 x 768 bf16 backward: 82 to 84 us by one warp with 3 chunks, by 4 warps with one 89.
    """
    max_warps = min(warps_for(span, lanes), max_warps)
    max_chunks = max(chunks, cdiv(span, max_warps * lanes))
    fit = [w for w in (16, 8, 4, 2, 1) if w <= max_warps and cdiv(span, w * lanes) <= max_chunks]
    return min(fit, key=lambda w: cdiv(span, w * lanes) * w)


def plan_partial_sums(P: int, N: int, outputs: int, limits: Limits) -> PartialSums:
    """How to add P partial sums of N columns for each of ``outputs`` gradients."""
    max_p, block_n, max_warps = WIDE_SUMS if N * outputs >= WIDE_SUMS[1] * limits.sm_count else NARROW_SUMS
    block_p = min(power_of_2(P), max_p)
    block_n = max(block_n, 16 * block_n // block_p)
    return PartialSums(cdiv(N, block_n), block_p, block_n, min(max(block_p * block_n // 256, 2), max_warps))
