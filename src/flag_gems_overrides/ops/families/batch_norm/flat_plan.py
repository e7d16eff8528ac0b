# SPDX-License-Identifier: Apache-2.0
"""Configurations of programs that read memory as it lies (flat.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import FLAT_LOADS, FLAT_SHARE, FLAT_VECTORS
from .types import Configuration, Problem

# Warps of a program, one of these.
WARPS = (1, 2, 4, 8, 16)
# Warps of a multiprocessor: two programs of 8 warps, or of fewer. Less, so that programs are larger.
WARPS_PER_SM = (16, 8)
# Warps of a multiprocessor for gradients of float64 in places, whose threads have 72 registers.
# 40000 x 64 x 33: 1173 us, with 16 warps 1226 (H100).
FLOAT64_WARPS_PER_SM = 28
# Stages of a pipeline.
STAGES = 3


def flat_of(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """By channel if a tile has room for a long row, and by place. Some may not be legal."""
    A, C, B, size, inputs = problem
    vec = VECTOR_BYTES // size
    for warps in WARPS:
        room = warps * WARP * vec
        of_long_row = C * B * vec // math.gcd(C * B, vec)
        ways = [(1, room, room)]
        if of_long_row <= FLAT_VECTORS * room:
            lanes = max(room, power_of_2(of_long_row))
            ways.insert(0, (C, lanes, lanes // of_long_row * of_long_row))
        for channels, lanes, used in ways:
            of_sums, of_data = 2 * 4 * (3 if inputs == 1 else 2) * lanes, (2 * inputs + 1) * size * used
            for loads in (FLAT_LOADS[inputs], FLAT_LOADS[inputs] // 2):
                # Of little data more programs, which store more sums than they read of data.
                of_few = max(A * C * B // (1024 * limits.sm_count), 2) * FLAT_LOADS[inputs] // loads
                for least in sorted({min(cdiv(FLAT_SHARE * of_sums, of_data * loads), of_few), 1}, reverse=True):
                    for warps_per_sm in WARPS_PER_SM:
                        yield Configuration("flat", channels, warps, loads, warps_per_sm, least, stages=STAGES)
                    if size == 8 and inputs == 2 and channels == 1:
                        yield Configuration("flat", 1, warps, loads, FLOAT64_WARPS_PER_SM, least, stages=STAGES)
