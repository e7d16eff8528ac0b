# SPDX-License-Identifier: Apache-2.0
"""The kernels that a reduction can be, each with what it is launched with where no table says better.

Constants were chosen on an H200 (132 SMs, triton 3.6.0) with the L2 cache full of clean lines; times are of amax.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .column_defaults import columns, in_two_tiles
from .launches import MAX_CLASSES, MAX_PARTIALS, MAX_SPLITS_OF_A_WARP, Configuration, Problem, short_class_lanes
from .programs import OCCUPANCY, SHORT_BYTES, SHORT_WARPS, STAGES, fitting, row_vector
from .row_defaults import rows, short_rows

# K classes in a row: a warp for each tile of 512, where that leaves few enough partial results. bf16 by programs of
# four warps, and so: max.dim 20000 x 1000 x 3 158 and 54 us, 200 x 40999 x 3 32 and 28, amax of the first 73 and 42.
# Columns where that is little: max.dim 4 x 512 x 7 bf16 4.3 us, so 6.2.
MIN_BYTES_OF_CLASSES = 4 << 20
CLASSES_TILE, CLASSES_OCCUPANCY = 512, {1: 24, 2: 16, 3: 16}


def kinds(problem: Problem, limits: Limits) -> list[Configuration]:
    """A configuration of each kernel that can be, the best first."""
    M, N, K, size, _ = problem
    if K == 1:
        short = short_rows(problem, limits)
        return [rows(problem, limits)] if short is None else [short, rows(problem, limits)]
    kinds = [columns(problem, limits)]
    if K <= MAX_CLASSES and (problem.accumulators < 3 or size < 8):  # means of float64 spill 16 to 230 bytes
        worth = N * K * size > SHORT_BYTES and M * N * K * size > MIN_BYTES_OF_CLASSES
        # Eight columns of many rows are whole vectors (H200): max.dim 3744 x 5840 x 8 uint8 84 us, in classes 113 to
        # 169, 33440 x 256 x 8 float32 76 and 107, any of 52512 x 352 x 8 bf16 97 and 104 to 120.
        worth &= (K < MAX_CLASSES or limits.sm_count > M) and not in_two_tiles(problem, limits)
        kinds.insert(0 if worth else 1, _classes(problem, limits))
        short = _short_classes(problem, limits)
        if short is not None:
            kinds.insert(0, short)
    return kinds


def _classes(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, accumulators = problem
    positions = accumulators == 2
    occupancy, stages = CLASSES_OCCUPANCY[accumulators], 1
    tile, warps = CLASSES_TILE // (1 if K <= 4 and size > 1 else 2), 1
    if limits.sm_count * occupancy > MAX_SPLITS_OF_A_WARP * M:
        tile, warps = SHORT_BYTES // size, SHORT_WARPS
        if positions:
            stages = STAGES
        elif accumulators == 1:
            occupancy = OCCUPANCY
        partials = SHORT_WARPS * MAX_PARTIALS[size > 4] // power_of_2(K)
        if accumulators == 1 and 4 * M * partials < 3 * limits.sm_count * occupancy // warps:
            # Twice as large, where partial results are too few for all programs: nansum 2 x 6974730 x 6 int64 169 us,
            # by four warps 211 (PyTorch 184), sum 1 x 3000001 x 6 float32 26.8 and 29.5 (H200).
            tile, warps = 2 * tile, 2 * warps
    if accumulators == 3:
        tile = CLASSES_TILE // 2 * warps  # two tiles are read at a time
    tile = min(tile, power_of_2(N * K))
    vector = row_vector(N * K, size, accumulators)
    return fitting(
        problem,
        Configuration("classes", max(tile // (warps * WARP), 1), warps, occupancy, vector, stages=stages),
    )


def _short_classes(problem: Problem, limits: Limits) -> Configuration | None:
    """An [N, K] by a few lanes, where that is no longer than a short row and there are many."""
    M, N, K, size, accumulators = problem
    vector = math.gcd(N * K, VECTOR_BYTES // size)
    if N * K * size > SHORT_BYTES or M * N * K * size <= MIN_BYTES_OF_CLASSES or not short_class_lanes(problem, vector):
        return None
    return Configuration("short_classes", vector, SHORT_WARPS, CLASSES_OCCUPANCY[accumulators], vector)
