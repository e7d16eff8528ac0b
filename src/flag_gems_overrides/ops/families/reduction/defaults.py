# SPDX-License-Identifier: Apache-2.0
"""The kernels that a reduction can be, each with what it is launched with where no table says better.

Constants were chosen on an H200 (132 SMs, triton 3.6.0) with the L2 cache full of clean lines; times are of amax.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .column_defaults import columns, in_two_tiles, of_eight_columns
from .launches import (
    MAX_CLASSES,
    MAX_PARTIALS,
    MAX_SPLITS_OF_A_WARP,
    Configuration,
    Problem,
    short_class_lanes,
)
from .programs import OCCUPANCY, SHORT_BYTES, SHORT_WARPS, STAGES, fitting, row_vector
from .row_defaults import rows, rows_by_lanes, short_rows

# K classes in a row: a warp for each tile of 512, where that leaves few enough partial results. bf16 by programs of
# four warps, and so: max.dim 20000 x 1000 x 3 158 and 54 us, 200 x 40999 x 3 32 and 28, amax of the first 73 and 42.
# Columns where that is little: max.dim 4 x 512 x 7 bf16 4.3 us, so 6.2.
MIN_BYTES_OF_CLASSES = 4 << 20
CLASSES_TILE, CLASSES_OCCUPANCY = 512, {1: 24, 2: 16, 3: 16}
# Values by single warps, of more rows for each multiprocessor than it may have programs, and up to so many: by two
# warps, so that the last are not alone (H100): any 4488 x 5400 x 3 float16 72.4 us and 62.9, vector_norm 4390 x 18704 x
# 3 bf16 220 and 183, mean 3995 x 1299 x 6 44.3 and 37.3; but amax 4096 x 7520 x 5 float32, all at once, 226 and 226.
ALL_RESIDENT = CLASSES_OCCUPANCY[1], 44
# Rows of so many bytes are long, by (accumulators, bytes): the shortest that were timed have 41 and 17 KB, 72 and 218.
LONG_CLASSES_BYTES = {(1, 1): 32768, (2, 1): 16384, (2, 2): 65536, (2, 4): 131072}
# Elements of a thread of a long row, a vector or more, and the fewest classes of 32 bits, as timed.
LONG_CLASSES_ELEMENTS, LONG_CLASSES_OF_WORDS = 8, 5


def kinds(problem: Problem, limits: Limits) -> list[Configuration]:
    """A configuration of each kernel that can be, the best first."""
    M, N, K, size, _ = problem
    if K == 1:
        others = (short_rows(problem, limits), rows_by_lanes(problem, limits))
        return [*(each for each in others if each is not None), rows(problem, limits)]
    kinds = [columns(problem, limits)]
    if K <= MAX_CLASSES and (problem.accumulators < 3 or size < 8):  # means of float64 spill 16 to 230 bytes
        worth = N * K * size > SHORT_BYTES and M * N * K * size > MIN_BYTES_OF_CLASSES
        # Eight columns of many rows are whole vectors (H200): max.dim 3744 x 5840 x 8 uint8 84 us, in classes 113 to
        # 169, 33440 x 256 x 8 float32 76 and 107, any of 52512 x 352 x 8 bf16 97 and 104 to 120.
        worth &= (K < MAX_CLASSES or limits.sm_count > M) and not in_two_tiles(problem, limits)
        worth &= not of_eight_columns(problem, limits)
        kinds.insert(0 if worth else 1, _classes(problem, limits))
        short = _short_classes(problem, limits)
        if short is not None:
            kinds.insert(0, short)
    return kinds


def _classes(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, accumulators = problem
    # Of float32 not, where moments are (H100): std 28 x 90001 x 6 34.1 us, so 35.9.
    positions, moments = accumulators == 2, accumulators == 3 and size == 2
    occupancy, stages = CLASSES_OCCUPANCY[accumulators], 1
    tile, warps = CLASSES_TILE // (1 if K <= 4 and size > 1 else 2), 1
    if not _have_warps(problem, limits):
        tile, warps = SHORT_BYTES // size, SHORT_WARPS
        if positions:
            stages = STAGES
            # With 32 elements 300 to 840 bytes spill (H100): max.dim 1 x 1802957 x 3 uint8 20.0 us and 11.5, x 7 45 and
            # 22.
            tile //= 2 if size == 1 else 1
        elif accumulators == 1:
            occupancy = CLASSES_OCCUPANCY[2] if _many_registers(problem) else OCCUPANCY
        partials = SHORT_WARPS * MAX_PARTIALS[(size > 4) + moments] // power_of_2(K)
        if (moments or accumulators == 1) and 4 * M * partials < 3 * limits.sm_count * occupancy // warps:
            # Twice as large, where partial results are too few for all programs: nansum 2 x 6974730 x 6 int64 169 us,
            # by four warps 211 (PyTorch 184), sum 1 x 3000001 x 6 float32 26.8 and 29.5 (H200), std 1 x 2097152 x 5
            # bf16 20.5 and 22.0, var_mean 1 x 4450204 x 7 float16 37.9 and 38.9 (H100).
            tile, warps = 2 * tile, 2 * warps
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

    By single warps, and so (H100): any 1616 x 60075 x 2 uint8 220 us and 98, max.dim x 3 356 and 150, 39 x 634456 x 4
    94 and 60, argmax 900 x 40001 x 5 float16 234 and 184; but values: sum 700 x 50000 x 3 bf16 91 and 91, amax 400 x
    60000 x 6 float32 222 and 255. By columns, and so: argmax 3000 x 12000 x 3 bf16 151 and 94,
    max.dim 2793 x 5808 x 3 uint8 52 and 43, 4560 x 7784 x 7 float32 415 and 350, any 6503 x 5952 x 7 uint8 191 and 141.
    """
    _, N, K, size, accumulators = problem
    fewest = LONG_CLASSES_BYTES.get((accumulators, size), math.inf)
    return N * K * size >= fewest and (size < 4 or K >= LONG_CLASSES_OF_WORDS) and _have_warps(problem, limits)


def _many_registers(problem: Problem) -> bool:
    """Whether values of classes take more than 80 registers: of bytes, and of 16 bits where there are most classes.

    In 64 registers, with up to 650 bytes that spill, and in 128 (H100): any 1 x 1802957 x 3 uint8 28.4 us and 10.5, 1 x
    700001 x 7 64 and 11.9, sum 1 x 1802957 x 5 int8 31.5 and 14.2, amax 3 x 3000001 x 5 uint8 54.6 and 29.6, sum 1 x
    1802957 x 7 bf16 31.4 and 24.0.
    """
    fewest = {1: 3, 2: 7}.get(problem.itemsize)
    return problem.accumulators == 1 and fewest is not None and fewest <= problem.K


def _short_classes(problem: Problem, limits: Limits) -> Configuration | None:
    """An [N, K] by a few lanes, where that is no longer than a short row and there are many."""
    M, N, K, size, accumulators = problem
    vector = math.gcd(N * K, VECTOR_BYTES // size)
    if N * K * size > SHORT_BYTES or M * N * K * size <= MIN_BYTES_OF_CLASSES or not short_class_lanes(problem, vector):
        return None
    return Configuration("short_classes", vector, SHORT_WARPS, CLASSES_OCCUPANCY[accumulators], vector)
