# SPDX-License-Identifier: Apache-2.0
"""How groups are loaded, and the limits of a program that all kernels share.

Figures in comments: the input as N x C x HW (N x C where HW is 1), its type and its groups, the time this way, and the
time otherwise.
"""

from __future__ import annotations

import math

from ...launch.sizes import VECTOR_BYTES, cdiv
from ..norm.launches import MIN_UNALIGNED
from .launches import Problem, Vectors

# Maximum number of warps of a program; forward programs that hold groups have up to MAX_ROWS_WARPS.
MAX_WARPS = 16
# Triton knows whether an argument is a multiple of this.
KNOWN_MULTIPLE = 16
# Maximum number of elements of each input of a thread of a tile, backward, and of the tiles of a loop.
MAX_ELEMENTS = 16
# Registers of a thread of the kernels with a loop. By itself the compiler takes 64 for a fourth program of a
# multiprocessor, and spills 8 bytes (float32).
LOOP_REGISTERS = 128
# Parts of all groups, as a multiple of the programs that run at once, where a group would have fewer parts than this.
WAVES = 4
# Bytes of shared memory of a program in addition to its pipeline.
OTHER_SHARED = 4096


def check(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(rule)


def vector(problem: Problem) -> int:
    """Elements of each channel that one load takes."""
    return math.gcd(problem.K, VECTOR_BYTES // problem.itemsize)


def widest(problem: Problem) -> int:
    """Elements of a load of a group as it lies: a whole vector where the group is long enough for edges."""
    full = VECTOR_BYTES // problem.itemsize
    return full if problem.size >= MIN_UNALIGNED else math.gcd(problem.size, full)


def span(problem: Problem, vec: int) -> int:
    """Channels that a vector has elements of, at most; 3 stands for more."""
    if problem.N == 1 or problem.K % vec == 0:
        return 1
    if vec % problem.K == 0 and problem.size % vec == 0:
        return min(vec // problem.K, 3)
    return min(1 + cdiv(vec - 1, problem.K), 3)


def vectors_of(problem: Problem, vec: int, lanes: int) -> Vectors:
    check(vec * problem.itemsize <= VECTOR_BYTES, "a load has 16 bytes at most")
    unaligned = problem.size % vec != 0
    check(not unaligned or problem.size >= 4 * vec, "a group is too short for edges")
    return Vectors(lanes, vec, span(problem, vec), unaligned)


def stages_of(problem: Problem, stages: int, rows: int) -> int:
    """Stages of a loop over tiles of ``rows`` rows of channels' elements: 1 for single elements of several rows, and
    for loads of less than 4 bytes.

    Triton orders shared memory by what a thread holds, row by row, so that 16 threads of a warp meet in one bank.
    39249 x 8 x 5 float32, 16 x 8 groups of 5 to a tile: 26.6 us, with a pipeline 33.5 (H100).
    """
    vec = vector(problem)
    return stages if (vec > 1 or rows == 1) and vec * problem.itemsize >= 4 else 1


def pipeline(problem: Problem, stages: int, elements: int) -> int:
    """Bytes of shared memory."""
    return (stages - 1) * elements * problem.itemsize * problem.inputs + OTHER_SHARED


def evenly(work: int, most: int) -> int:
    """Programs, no more than ``most``, that have the same number of ``work`` pieces each."""
    return cdiv(work, cdiv(work, most))
