# SPDX-License-Identifier: Apache-2.0
"""The kernels that a reduction can be, each with what it is launched with where no table says better.

Constants were chosen on an H200 (132 SMs, Triton 3.6.0) with the L2 cache full of clean lines. A time is of amax on
that GPU where the comment names no operator or no GPU.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .column_defaults import columns
from .launches import (
    MAX_CLASSES,
    MAX_PARTIALS,
    MAX_SPLITS_OF_A_WARP,
    Configuration,
    Problem,
    class_step,
    short_class_lanes,
)
from .programs import OCCUPANCY, SHORT_BYTES, SHORT_WARPS, STAGES, fitting, row_vector
from .row_defaults import rows
from .short_row_defaults import rows_by_lanes, short_rows

# Bytes of the input above which classes are better than columns.
# max.dim 4 x 512 x 7 bf16: 4.3 us as columns, 6.2 in classes.
MIN_BYTES_OF_CLASSES = 4 << 20
# Elements of the tile of a single warp. max.dim 20000 x 1000 x 3 bf16: 54 us, by four warps 158.
CLASSES_TILE = 512
# By accumulators, warps of a multiprocessor that classes are planned for.
CLASSES_OCCUPANCY = {1: 24, 2: 16, 3: 16}
# Rows of values for each multiprocessor (more than, up to) that have two warps, not one: the last are not alone then.
# any 4488 x 5400 x 3 float16: 62.9 us, by single warps 72.4; amax 4096 x 7520 x 5 float32: 226 us by either (H100).
ALL_RESIDENT = CLASSES_OCCUPANCY[1], 44
# By (accumulators, bytes of an element), bytes of a row, at least, that is long (``is_long_class``).
# The shortest that were timed have 41, 17, 72 and 218 KB.
LONG_CLASSES_BYTES = {(1, 1): 32768, (2, 1): 16384, (2, 2): 65536, (2, 4): 131072}
# Elements of a thread of a long row, at least; a vector if that is more.
LONG_CLASSES_ELEMENTS = 8
# K of 32 bits, at least, as timed.
LONG_CLASSES_OF_WORDS = 5
# Elements of a thread of positions in long rows that programs share, by bytes of an element, and warps: more programs,
# so that multiprocessors have about as many. Of 8 bytes none was timed.
# max.dim 300 x 30001 x 5 bf16: 44.4 us, by four warps 60.7; float32: 64.7 and 76.3; 200 x 80000 x 7 uint8: 60.0 and
# 70.0 (H200).
SHARED_POSITIONS, SHARED_POSITIONS_WARPS = {1: 16, 2: 16, 4: 8}, 2
# K of values of 16 bits whose single warps have as many elements as of fewer classes, and more registers.
# amax 300 x 30001 x 5 bf16: 38.2 us, with half as many elements 42.3; 3000 x 3001 x 7: 60.3 and 56.5 (H200).
WIDE_CLASSES = 5, 6


def kinds(problem: Problem, limits: Limits) -> list[Configuration]:
    """A configuration of each kernel that can be, the best first."""
    M, N, K, size, _ = problem
    if K == 1:
        others = (short_rows(problem, limits), rows_by_lanes(problem, limits))
        return [*(each for each in others if each is not None), rows(problem, limits)]
    kinds = [columns(problem, limits)]
    if K <= MAX_CLASSES and (problem.accumulators < 3 or size < 8):  # means of float64 spill 16 to 230 bytes
        worth = N * K * size > SHORT_BYTES and M * N * K * size > MIN_BYTES_OF_CLASSES
        # Eight columns of many rows are whole vectors.
        # max.dim 3744 x 5840 x 8 uint8: 84 us, in classes 113 to 169 (H200).
        worth &= K < MAX_CLASSES or limits.sm_count > M
        worth |= _are_classes_of_moments(problem, limits)
        kinds.insert(0 if worth else 1, _classes(problem, limits))
        short = _short_classes(problem, limits)
        if short is not None:
            kinds.insert(0, short)
    return kinds


def _classes(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, accumulators = problem
    # Moments of 16 bits only. As these, std 28 x 90001 x 6 float32: 35.9 us, otherwise 34.1 (H100).
    positions, moments = accumulators == 2, accumulators == 3 and size == 2
    occupancy, stages = CLASSES_OCCUPANCY[accumulators], 1
    tile, warps = CLASSES_TILE // (1 if K <= 4 and size > 1 else 2), 1
    if accumulators == 1 and size == 2 and K in WIDE_CLASSES:
        tile, occupancy = CLASSES_TILE, CLASSES_OCCUPANCY[2]
    if not _have_warps(problem, limits):
        tile, warps = SHORT_BYTES // size, SHORT_WARPS
        if positions:
            stages = STAGES
            # With 32 elements 300 to 840 bytes spill.
            # max.dim 1 x 1802957 x 3 uint8: 11.5 us, otherwise 20.0 (H100).
            tile //= 2 if size == 1 else 1
        elif accumulators == 1:
            occupancy = CLASSES_OCCUPANCY[2] if _many_registers(problem) else OCCUPANCY
        partials = SHORT_WARPS * MAX_PARTIALS[(size > 4) + moments] // power_of_2(K)
        if (moments or accumulators == 1) and 4 * M * partials < 3 * limits.sm_count * occupancy // warps:
            # Twice as large, where partial results are too few for all programs.
            # nansum 2 x 6974730 x 6 int64: 169 us, by four warps 211 (H200).
            tile, warps = 2 * tile, 2 * warps
    elif _are_shared_positions(problem, limits):
        warps, stages = SHARED_POSITIONS_WARPS, STAGES
        tile = SHARED_POSITIONS[size] * warps * WARP
    elif is_long_class(problem, limits):
        tile, warps = max(VECTOR_BYTES // size, LONG_CLASSES_ELEMENTS) * SHORT_WARPS * WARP, SHORT_WARPS
        stages = STAGES if positions else 1
        if _many_registers(problem):
            occupancy = CLASSES_OCCUPANCY[2]
    elif accumulators == 1 and ALL_RESIDENT[0] * limits.sm_count < M <= ALL_RESIDENT[1] * limits.sm_count:
        tile, warps = 2 * tile, 2
    if accumulators == 3:
        tile = CLASSES_TILE // 2 * warps  # two tiles are read at a time
    tile = min(tile, power_of_2(N * K))
    vector = row_vector(N * K, size, accumulators)
    return fitting(
        problem,
        Configuration("classes", max(tile // (warps * WARP), 1), warps, occupancy, vector, stages=stages),
    )


def _have_warps(problem: Problem, limits: Limits) -> bool:
    """Whether there are enough matrices for single warps, which do not share more than can be merged."""
    M, _, _, size, accumulators = problem
    most = MAX_SPLITS_OF_A_WARP // (4 if accumulators == 3 and size == 2 else 1)
    return limits.sm_count * CLASSES_OCCUPANCY[accumulators] <= most * M


def is_long_class(problem: Problem, limits: Limits) -> bool:
    """Whether rows of many matrices take a vector to a thread of four warps, and several tiles in flight.

    max.dim 1616 x 60075 x 3 uint8: 150 us, by single warps 356 (H100).
    Values of 16 bits and more are not: amax 400 x 60000 x 6 float32: 255 us, by single warps 222 (H100).
    """
    _, N, K, size, accumulators = problem
    fewest = LONG_CLASSES_BYTES.get((accumulators, size), math.inf)
    return N * K * size >= fewest and (size < 4 or K >= LONG_CLASSES_OF_WORDS) and _have_warps(problem, limits)


def _are_shared_positions(problem: Problem, limits: Limits) -> bool:
    """Whether positions are in long rows of which programs of four warps would each have a part."""
    M, *_, size, accumulators = problem
    programs = limits.sm_count * CLASSES_OCCUPANCY[2] // SHORT_WARPS
    return accumulators == 2 and size in SHARED_POSITIONS and is_long_class(problem, limits) and programs >= M


def _are_classes_of_moments(problem: Problem, limits: Limits) -> bool:
    """Whether moments of short matrices of three columns of 16 bits are several tiles of whole vectors each.

    var_mean 100000 x 200 x 3 bf16: 96.8 us, as columns 111; 100000 x 400 x 3: 111 us in such tiles (H100).
    """
    M, N, K, size, accumulators = problem
    vector = VECTOR_BYTES // size
    whole = accumulators == 3 and size == 2 and K == 3 and N % vector == 0
    several = whole and 2 * class_step(CLASSES_TILE // 2, K, vector) < N * K
    return several and M * N * K * size > MIN_BYTES_OF_CLASSES and _have_warps(problem, limits)


def _many_registers(problem: Problem) -> bool:
    """Whether values of classes take too many registers: of bytes, and of 16 bits where there are most classes.

    In 64 registers up to 650 bytes spill. any 1 x 700001 x 7 uint8: 11.9 us, in 64 registers 64;
    4 x 289742 x 5 float16: 14.8 us, in 64 registers 17.2 (H100).
    """
    fewest = {1: 3, 2: 5}.get(problem.itemsize)
    return problem.accumulators == 1 and fewest is not None and fewest <= problem.K


def _short_classes(problem: Problem, limits: Limits) -> Configuration | None:
    """An [N, K] by a few lanes, where that is no longer than a short row and there are many."""
    M, N, K, size, accumulators = problem
    vector = math.gcd(N * K, VECTOR_BYTES // size)
    if N * K * size > SHORT_BYTES or M * N * K * size <= MIN_BYTES_OF_CLASSES or not short_class_lanes(problem, vector):
        return None
    return Configuration("short_classes", vector, SHORT_WARPS, CLASSES_OCCUPANCY[accumulators], vector)
