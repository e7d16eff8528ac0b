# SPDX-License-Identifier: Apache-2.0
"""Configurations of programs that read memory as it lies (flat.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from .estimate import estimate
from .launches import FLAT_LOADS, FLAT_SHARE, FLAT_VECTORS, Configuration, Flat, Problem, has_vectors, launch_or_none

# Warps of a program, one of these.
FLAT_WARPS = (16, 8, 4)
# Warps of a program forward of float32 columns in whole vectors, if they hold a row.
# 20000 x 128: 27.6 us, with 8 warps 30.1 (H100).
WIDE_WARPS = 4
# Warps of a multiprocessor.
FLAT_WARPS_PER_SM = 16
# Stages of a pipeline.
STAGES = 3
# Warps of a multiprocessor for large gradients of float64 in places, by programs of 4 warps, of 72 registers a thread.
# 40000 x 64 x 33: 1173 us, with 16 warps 1226; 20000 x 300, by channel: 107, with 16 98.4 (H100).
FLOAT64_WARPS_PER_SM = 28
# Minimum bytes of such a gradient's input.
MIN_FLOAT64_BYTES = 32 << 20
# Minimum tiles of a program where there are few elements; one is enough where a multiprocessor has at most one program.
# 8000 x 32 float32: 8.8 us by 125 programs, 9.7 by 42; 13489 x 112 float16: 17.0 by 187, 15.4 by 63 (H100).
FEW_TILES = 2


def flat_of(problem: Problem, limits: Limits) -> Configuration | None:
    """The configuration with the lowest estimate. None if rows are too long or too few."""
    found = [
        each
        for each in _flats(problem, limits, FLAT_SHARE, FEW_TILES)
        if launch_or_none(problem, each, limits) is not None
    ]
    for each in _flats(problem, limits, 1, 1):
        launched = launch_or_none(problem, each, limits)
        few = isinstance(launched, Flat) and not launched.by_place and launched.programs <= limits.sm_count
        if few and each.warps == min(FLAT_WARPS):
            found.append(each)
    fastest = min(found, key=lambda each: estimate(problem, each, limits), default=None)
    much = problem.itemsize == 8 and problem.M * problem.N * problem.K * problem.itemsize >= MIN_FLOAT64_BYTES
    if fastest and much and problem.inputs == 2 and fastest.channels == 1 and fastest.warps == min(FLAT_WARPS):
        more = fastest._replace(warps_per_sm=FLOAT64_WARPS_PER_SM)
        return more if launch_or_none(problem, more, limits) is not None else fastest
    return fastest


def _flats(problem: Problem, limits: Limits, share: int, few_tiles: int) -> Iterator[Configuration]:
    """By channel if a tile has room for a long row, or by place. Some may not be legal.

    share: times the bytes of its sums that a program reads at least; few_tiles: its tiles if there are few elements
    """
    A, C, B, size, inputs = problem
    vec = VECTOR_BYTES // size
    wide = B == 1 and inputs == 1 and size == 4 and has_vectors(problem)
    for warps in (WIDE_WARPS,) if wide and WIDE_WARPS * FLAT_VECTORS * WARP * vec >= C else FLAT_WARPS:
        room = warps * WARP * vec
        of_long_row = C * B * vec // math.gcd(C * B, vec)
        channels, lanes, used = 1, room, room
        if of_long_row <= FLAT_VECTORS * room:
            channels, lanes = C, max(room, power_of_2(of_long_row))
            used = lanes // of_long_row * of_long_row
        of_sums, of_data = 2 * 4 * (3 if inputs == 1 else 2) * lanes, (2 * inputs + 1) * size * used
        for loads in (FLAT_LOADS[inputs], FLAT_LOADS[inputs] // 2):
            of_few = max(A * C * B // (1024 * limits.sm_count), few_tiles) * FLAT_LOADS[inputs] // loads
            least = min(cdiv(share * of_sums, of_data * loads), of_few)
            yield Configuration("flat", channels, warps, loads, FLAT_WARPS_PER_SM, least, False, STAGES)
