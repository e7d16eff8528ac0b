# SPDX-License-Identifier: Apache-2.0
"""Odd rows of 16 bits, one to a program: how many of them are on a multiprocessor at once. Measured on an H100."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from .launches import Configuration, Problem, Split, launch_or_none

# Shortest and longest row of ``odd_row``, in elements. With 72 registers 8 bytes of 4103 would spill.
MIN_N, MAX_N = 4104, 16383
# Rows that are shorter than this, in elements, have pipelines of 4 warps, of which two fit; longer ones would have
# pipelines of 8, of which one fits. 3000 x 8879 float16: 54.9 us, by pipelines 61.9.
MAX_OF_TWO_PIPELINES = 8192
# Most elements of a multiprocessor in shorter rows; more are for pipelines. 4000 x 5001 bf16: 43.3 us, by pipelines
# 43.5.
MAX_ELEMENTS_PER_SM = 65536
# Chunks of a row that four warps hold without a spill (Triton 3.6), by the registers to which a thread is limited. Of
# six chunks 40 bytes spill with 72, of eight 8 with 96, of twelve 8 with 128.
HELD = {128: 11, 96: 7, 72: 5}
# Rows of fewer elements than this leave room for three programs of 8 warps on a multiprocessor.
THREE_OF_8_WARPS = 6144
# Rows of up to this many elements leave room for two, longer rows for one.
TWO_OF_8_WARPS = 14343
# Estimate of a launch in us, within about 10 % of 25 timings of 300 to 3000 rows of 5001 to 14001: its start, by warps.
OF_ROWS = {4: 5.0, 8: 6.0}
# Each wave: all rows that are on the multiprocessors at once.
OF_WAVE = 1.7
# Each element of a wave's rows on one multiprocessor.
OF_ELEMENT = 2.1e-4
# After this number of waves they are no longer in step: new programs start while others end, and the last wave is
# shorter. 8000 x 9001 bf16, 15 waves of 4 warps: 122.3 us, by 8 126.5.
WAVES_TOGETHER = 4
# A third or later wave that has a smaller share of the rows is hidden by the others. 800 x 6001 bf16, 2.02 waves of 8
# warps: 18.2 us, in two waves of 4 warps 18.8.
LITTLE_OF_A_WAVE = 1 / 16
# Estimate in us of a launch of programs of one warp that share rows, which load weight and bias once: its start.
OF_GROUPS = 8
# Each iteration of these programs.
OF_TURN = 3.35
# Most iterations of them. In 18, nothing is gained: 3000 x 11781 bf16 66.9 us and 66.8.
MAX_SHARED_TURNS = 16
# Shortest odd row, in elements, that would otherwise go through pipelines of 8 warps.
MIN_N_OF_PIPELINES = 8201
# Longest such row with a residual, and of rms_norm. Longer rows were not timed.
MAX_N_OF_SUMS, MAX_N_OF_RMS_NORM = 10247, 9223
# Most such rows of a multiprocessor, with a residual. More were not timed.
MAX_SUMS_PER_SM = 16


def odd_sum(problem: Problem, limits: Limits) -> Configuration | None:
    """A row and its residual to a program of 8 warps, of which two fit, instead of pipelines, of which one fits; None
    for others. For layer_norm alone.

    skip_layer_norm of 300 x 8879 bf16: 17.6 us, by pipelines 19.0; 500 x 7001 bf16: 19.2 and 19.4.
    """
    M, N, _, itemsize, _, residual = problem
    if not residual or not _is_odd_forward(problem, limits):
        return None
    if not limits.sm_count < M <= MAX_SUMS_PER_SM * limits.sm_count or not MIN_N_OF_PIPELINES <= N <= MAX_N_OF_SUMS:
        return None
    return Configuration("rows", 8, VECTOR_BYTES // itemsize, registers=128, late=True)


def odd_row_of_rms_norm(problem: Problem, limits: Limits) -> Configuration | None:
    """A row to a program of 4 warps instead of pipelines; None for others.

    rms_norm of 3000 x 8879 float16: 44.4 us, by 8 warps 45.2, by pipelines 47.9.
    """
    _, N, _, itemsize, _, residual = problem
    if residual or not _is_odd_forward(problem, limits):
        return None
    if not MIN_N_OF_PIPELINES <= N <= MAX_N_OF_RMS_NORM:
        return None
    return Configuration("rows", 4, VECTOR_BYTES // itemsize, registers=128, late=True)


def odd_row(problem: Problem, limits: Limits) -> Configuration | None:
    """Programs of four warps with limited registers, so that all rows take fewer waves, or programs of one warp that
    share rows; None for others, and where programs of 8 warps are faster.

    For layer_norm alone: rms_norm has one sum and no bias, so three programs of 8 warps fit (69 registers of 8879
    elements).

    layer_norm of 300 x 8879 bf16: 12.6 us, by 8 warps 15.0; 700 x 14001 bf16, shared: 26.5 and 30.5.
    """
    M, N, _, itemsize, _, residual = problem
    if residual or not _is_odd_forward(problem, limits):
        return None
    at_once = 3 if N < THREE_OF_8_WARPS else 2 if N <= TWO_OF_8_WARPS else 1
    if not MIN_N <= N <= MAX_N or max(at_once, 2) * limits.sm_count >= M:
        return None
    if N < MAX_OF_TWO_PIPELINES and MAX_ELEMENTS_PER_SM * limits.sm_count < M * N:
        return None
    vec = VECTOR_BYTES // itemsize
    found: list[tuple[float, Configuration | None]] = [(_of_rows(problem, 8, at_once, limits), None)]
    for registers, chunks in HELD.items():
        if cdiv(N // vec, 4 * WARP) <= chunks:
            held = limits.registers_per_sm // (4 * WARP * registers)
            configuration = Configuration("rows", 4, vec, registers=registers, late=True)
            found.append((_of_rows(problem, 4, held, limits), configuration))
    shared = Configuration("split", 1, vec, stages=4, chunks=8, registers=255)
    launched = launch_or_none(problem, shared, limits)
    turns = cdiv(M, launched.programs // launched.group) if isinstance(launched, Split) else 0
    if 0 < turns <= MAX_SHARED_TURNS:
        found.append((OF_GROUPS + OF_TURN * turns, shared))
    return min(found, key=lambda each: each[0])[1]


def _is_odd_forward(problem: Problem, limits: Limits) -> bool:
    """Whether the problem is forward, with odd rows of 16 bits, on a GPU like those that were measured."""
    hopper = limits.capability[0] == 9
    return hopper and not problem.backward and problem.itemsize == 2 and problem.N % 2 == 1


def _of_rows(problem: Problem, warps: int, at_once: int, limits: Limits) -> float:
    """Estimated microseconds of programs with a row each, ``at_once`` of them on a multiprocessor at once."""
    M, N, *_ = problem
    waves = M / (at_once * limits.sm_count)
    if waves <= WAVES_TOGETHER:
        little = LITTLE_OF_A_WAVE if warps == 8 and waves > 2 else 0
        waves, at_once = math.ceil(waves - little), min(at_once, cdiv(M, limits.sm_count))
    return OF_ROWS[warps] + min(waves, WAVES_TOGETHER + 1) * OF_WAVE + waves * OF_ELEMENT * N * at_once
