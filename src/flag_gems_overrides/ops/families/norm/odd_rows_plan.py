# SPDX-License-Identifier: Apache-2.0
"""Odd rows of 16 bits, one to a program: how many of them are on a multiprocessor at once. Measured on an H100."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from .launches import Configuration, Problem, Split, launch_or_none

# Of 4103 elements 8 bytes would spill with 72 registers.
MIN_N, MAX_N = 4104, 16383
# More rows of up to so many elements are for pipelines of 4 warps, of which two fit: 4000 x 5001 bf16 43.5 us, by a
# program for each 43.3. Longer ones would be for pipelines of 8, of which one fits: 3000 x 8879 float16 61.9 and 54.9.
MAX_OF_TWO_PIPELINES, MAX_ELEMENTS_PER_SM = 8192, 65536
# Registers to which a thread is limited, and the chunks of a row that four warps hold with them without a spill (Triton
# 3.6). Of six chunks 40 bytes spill with 72, of eight 8 with 96, of twelve 8 with 128.
HELD = {128: 11, 96: 7, 72: 5}
# Otherwise rows are for programs of 8 warps, of which three fit up to so many elements, two up to so many, else one.
THREE_OF_8_WARPS, TWO_OF_8_WARPS = 6144, 14343
# Of a launch by 4 and 8 warps, of all rows that are on the multiprocessors at once, and of each element of those of one
# of them: in us. They hold to about 10 % for 25 timings of 300 to 3000 rows of 5001 to 14001. After so many waves the
# multiprocessors are no longer at the same, the last wave takes less, and later ones begin while others end: 8000 x
# 9001 bf16, 15 waves of 4 warps, takes 122.3 us, by 8 126.5, shared 132.1.
OF_ROWS, OF_WAVE, OF_ELEMENT, WAVES_TOGETHER = {4: 5.0, 8: 6.0}, 1.7, 2.1e-4, 4
# A smaller share of a third wave or a later one is done beside the others: 800 x 6001 bf16, 2.02 waves of 8 warps, 18.2
# us, in two of 4 warps 18.8.
LITTLE_OF_A_WAVE = 1 / 16
# Of a launch of programs of one warp that share rows, which load weight and bias once, and of each turn, and the most
# of these: of 3000 x 11781 bf16, in 18, nothing is gained (66.9 us and 66.8), of 4000 x 15999, in 31, 109.4 and 108.0.
OF_GROUPS, OF_TURN, MAX_SHARED_TURNS = 8, 3.35, 16
# Odd rows that would otherwise go through pipelines of 8 warps: the fewest elements of a row, the most with a residual
# and of rms_norm, and the most rows with a residual for each multiprocessor. Others were not timed.
MIN_N_OF_PIPELINES, MAX_N_OF_SUMS, MAX_N_OF_RMS_NORM, MAX_SUMS_PER_SM = 8201, 10247, 9223, 16


def odd_sum(problem: Problem, limits: Limits) -> Configuration | None:
    """A row and its residual to a program of 8 warps, of which two fit, instead of pipelines, of which one does; None
    for others. For layer_norm alone.

    skip_layer_norm of 300 x 8879 bf16 takes 17.6 us so, by pipelines 19.0, of 641 x 8879 25.6 and 27.2, of 1500 x 9001
    float16 43.9 and 47.2, but of 500 x 7001 bf16, late anyway, 19.2 and 19.4.
    """
    M, N, _, itemsize, _, residual = problem
    if not residual or not _is_odd_forward(problem, limits):
        return None
    if not limits.sm_count < M <= MAX_SUMS_PER_SM * limits.sm_count or not MIN_N_OF_PIPELINES <= N <= MAX_N_OF_SUMS:
        return None
    return Configuration("rows", 8, VECTOR_BYTES // itemsize, registers=128, late=True)


def odd_row_of_rms_norm(problem: Problem, limits: Limits) -> Configuration | None:
    """A row to a program of 4 warps instead of pipelines; None for others.

    rms_norm of 3000 x 8879 float16 takes 44.4 us so, by 8 warps 45.2, by pipelines 47.9.
    """
    _, N, _, itemsize, _, residual = problem
    if residual or not _is_odd_forward(problem, limits):
        return None
    if not MIN_N_OF_PIPELINES <= N <= MAX_N_OF_RMS_NORM:
        return None
    return Configuration("rows", 4, VECTOR_BYTES // itemsize, registers=128, late=True)


def odd_row(problem: Problem, limits: Limits) -> Configuration | None:
    """Programs of four warps with limited registers, so that all rows come in fewer waves, or programs of one warp that
    share the rows; None for others, and where neither is faster than programs of 8 warps. For layer_norm alone: of
    rms_norm, with one sum and no bias, three programs of 8 warps fit anyway, of 69 registers for 8879 elements.

    layer_norm of 641 x 5001 bf16 takes 12.1 us in one wave, by 8 warps in two 14.3, of 500 x 7001 14.3 and 16.6, of 300
    x 8879 12.6 and 15.0, of 1500 x 5001 float16 in two 22.8, in four 25.0; shared 641 x 8879 float16 21.1, in two waves
    24.6, by 8 warps 22.7, 641 x 11781 23.3 and 26.8, 700 x 14001 bf16 26.5 and 30.5.
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
    """Of 16 bits, on GPUs like those that were measured."""
    hopper = limits.capability[0] == 9
    return hopper and not problem.backward and problem.itemsize == 2 and problem.N % 2 == 1


def _of_rows(problem: Problem, warps: int, at_once: int, limits: Limits) -> float:
    """The time, estimated, that rows take of which so many are on a multiprocessor at once."""
    M, N, *_ = problem
    waves = M / (at_once * limits.sm_count)
    if waves <= WAVES_TOGETHER:
        little = LITTLE_OF_A_WAVE if warps == 8 and waves > 2 else 0
        waves, at_once = math.ceil(waves - little), min(at_once, cdiv(M, limits.sm_count))
    return OF_ROWS[warps] + min(waves, WAVES_TOGETHER + 1) * OF_WAVE + waves * OF_ELEMENT * N * at_once
