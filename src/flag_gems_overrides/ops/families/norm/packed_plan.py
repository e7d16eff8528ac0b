# SPDX-License-Identifier: Apache-2.0
"""Rows of 16 bits that are held in pairs: twice as many programs fit on a multiprocessor, so that one loads while
another computes. Measured on an H200.
"""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from .launches import Configuration, Problem

# Vectors of a row that a thread holds, and its registers, so that a multiprocessor has 32 warps. With edges up to 40
# bytes of eight vectors of layer_norm spill.
CHUNKS, REGISTERS = 8, 64
# Rows of whole vectors of layer_norm are longer than this, in elements: of shorter ones two programs of 16 warps fit in
# float32 too.
LAYER_NORM = 16384
# The same of rms_norm, of which two programs fit for longer rows. 4096 x 24576 bf16: 102.9 us, in float32 102.3.
RMS_NORM = 24576
# Rows of whole vectors of rms_norm of which programs of 8 warps hold pairs, in elements: longer than the first number,
# up to the second. Others were not timed.
RMS_NORM_OF_8_WARPS = 8192, 14336
# Shortest and longest of many rows of rms_norm with edges, in elements.
EDGES_OF_RMS_NORM = 6001, 16384


def packed_rows(problem: Problem) -> list[Configuration]:
    """A row to a program of few warps that hold it in pairs, or of twice as many."""
    N, itemsize = problem.N, problem.itemsize
    vec = VECTOR_BYTES // itemsize
    if problem.backward or problem.residual or itemsize != 2:
        return []
    fit = [warps for warps in (4, 8, 16) if cdiv(N // vec, warps * WARP) <= CHUNKS]
    return [Configuration("rows", warps, vec, registers=REGISTERS, late=True, packed=True) for warps in fit[:2]]


def packed_row(problem: Problem) -> Configuration | None:
    """The first of them; None if there is none."""
    return next(iter(packed_rows(problem)), None)


def packed_row_of_layer_norm(problem: Problem, limits: Limits) -> Configuration | None:
    """Long rows of whole vectors; None for others.

    2048 x 24576 bf16: 56.7 us, in float32 71.6; 300 x 32768 float16: 22.1 and 24.0; 4096 x 32001 bf16: 242, by programs
    that share rows 192.
    """
    M, N, _, itemsize, *_ = problem
    if limits.capability[0] != 9 or N % (VECTOR_BYTES // itemsize) or N <= LAYER_NORM or limits.sm_count >= M:
        return None
    return packed_row(problem)


def packed_row_of_rms_norm(problem: Problem, limits: Limits) -> Configuration | None:
    """Rows that are too long for pipelines, or many; None where float32 is as fast, or faster.

    8192 x 6001 bf16: 54.7 us, by pipelines 61.9; 4096 x 12288: 54.3, in float32 by 16 warps 57.7; 300 x 32768 float16:
    17.4 and 18.4.
    """
    M, N, _, itemsize, *_ = problem
    if limits.capability[0] != 9 or limits.sm_count >= M:
        return None
    if N % (VECTOR_BYTES // itemsize):
        shortest, longest = EDGES_OF_RMS_NORM
        return packed_row(problem) if shortest <= N <= longest else None
    shorter, longest = RMS_NORM_OF_8_WARPS
    return packed_row(problem) if shorter < N <= longest or N > RMS_NORM else None
