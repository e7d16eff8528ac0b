# SPDX-License-Identifier: Apache-2.0
"""About how long a configuration takes: which of them the tuner times first."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from .launches import Configuration, Flat, Loop, Problem, Rows, ShortRows, Split, launch
from .two_passes_plan import TwoPasses

# Bytes that a multiprocessor moves in a microsecond.
BYTES_PER_US = 32000
# Microseconds of a launch, and of a second kernel that starts early.
LAUNCH_US, SECOND_US = 2.0, 1.2
# Microseconds of an iteration, and of an exchange between programs.
ITERATION_US, EXCHANGE_US = 0.7, 1.5


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: the bytes that are moved, and the iterations of a program one after the other."""
    M, N, _, itemsize, backward, _ = problem
    inputs = problem.inputs
    elements = M * N
    p = launch(problem, configuration, limits)
    us, reads, per_load = LAUNCH_US, inputs, configuration.vec
    workspace, iterations = 0, 1.0
    if isinstance(p, Flat):
        programs, threads, iterations = p.programs, p.warps * WARP, 1
        per_load = 1 if p.columns else VECTOR_BYTES // itemsize
    elif isinstance(p, ShortRows):
        programs, threads = p.programs, p.warps * WARP
    elif isinstance(p, Rows):
        programs, threads, iterations = p.programs, p.warps * WARP, cdiv(M, p.programs * p.block_m)
        if backward and p.programs > 1:
            workspace = 2 * 2 * 4 * p.programs * N
            us += SECOND_US
        # A pipeline hides half of what an iteration waits.
        iterations = 1 + (iterations - 1) * (0.5 if p.stages > 1 else 1.0)
    elif isinstance(p, Split):
        groups = p.programs // p.group
        programs, threads, iterations = p.programs, p.warps * WARP, cdiv(M, groups)
        us += EXCHANGE_US + (SECOND_US if backward and groups > 1 else 0)
        workspace = 2 * 2 * 4 * groups * N if backward and groups > 1 else 0
        per_load = p.vec
    elif isinstance(p, Loop):
        groups = p.programs // p.group
        programs, threads = p.programs, p.warps * WARP
        iterations = cdiv(M, groups) * 2 * cdiv(p.slice_size, p.block_n)
        us += EXCHANGE_US * cdiv(M, groups) if p.group > 1 else 0
        reads = inputs * 2
        per_load = math.gcd(N, VECTOR_BYTES // itemsize)
    elif isinstance(p, TwoPasses):
        programs, threads = p.columns.programs[0] * p.splits, p.columns.warps * WARP
        iterations = p.blocks + cdiv(p.rows, p.columns.block_m)
        us += SECOND_US
        reads, per_load = inputs * 2, p.vec
    else:
        programs, threads = p.row_programs + p.column_programs, p.warps * WARP
        reads = 2 * inputs
        per_load = math.gcd(N, VECTOR_BYTES // itemsize)
    resident = limits.sm_count * max(limits.threads_per_sm // threads, 1)
    iterations *= cdiv(programs, resident)
    moved = elements * itemsize * (reads + 1) * (1.5 if per_load * itemsize < 4 else 1.0) + workspace
    return us + max(moved / (min(limits.sm_count, programs) * BYTES_PER_US), iterations * ITERATION_US)
