# SPDX-License-Identifier: Apache-2.0
"""What else than by the rules moments may be launched with; the estimate chooses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, VECTOR_BYTES, WARP, power_of_2
from .launches import Configuration, Plan, Problem
from .programs import MOMENTS_OCCUPANCY

WARPS = 1, 2, 4, 8, 16
# Columns of a tile, at most, and of several matrices.
MAX_COLUMNS, MAX_OF_SEVERAL = 128, 64
# By bytes of an element, columns of a tile, at least, unless there are fewer.
# var_mean 2 x 4096 x 94 float16: 7.8 us by 4 columns, 5.9 by 32 (H200).
MIN_COLUMNS = {2: 8, 4: 2, 8: 1}
# Programs for each multiprocessor from which columns of a tile are whole lines. This is estimated.
# std 2 x 104 x 6232 float32: 6.0 us by 8 columns, torch.compile 4.9 (H200).
PROGRAMS_OF_LINES = 2
# By bytes of an element, elements of a thread of rows and of columns.
ROW_ELEMENTS = {2: (8, 16, 32), 4: (4, 8, 16), 8: (4, 8)}
COLUMN_ELEMENTS = {2: (16, 32, 64), 4: (16, 32), 8: (4, 8)}
# Bytes of a thread: with less a multiprocessor has registers for many warps, with more for few; with as many either is
# a candidate.
MANY_BYTES = 64
# Rows of a program that has several.
SEVERAL_ROWS = 8


def candidates(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Some of them are illegal, or the same launch as others."""
    return _rows(problem) if problem.K == 1 else _columns(problem, limits)


def _rows(problem: Problem) -> Iterator[Configuration]:
    size = problem.itemsize
    vectors = sorted({1, VECTOR_BYTES // size // 2, VECTOR_BYTES // size})
    for elements, warps, vector, rows in product(ROW_ELEMENTS[size], WARPS, vectors, (1, SEVERAL_ROWS)):
        if elements >= vector and elements * warps * WARP <= 2 * power_of_2(problem.N) * power_of_2(problem.M):
            for occupancy in _occupancies(elements * size):
                yield Configuration("rows", elements, warps, occupancy, vector, rows)


def _columns(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    M, N, K, size, _ = problem
    lines = M * K * size // LINE_BYTES
    fewest = LINE_BYTES // size if lines >= PROGRAMS_OF_LINES * limits.sm_count else MIN_COLUMNS[size]
    most = min(max(power_of_2(K), MAX_OF_SEVERAL), MAX_COLUMNS, power_of_2(M * K))
    block_k = min(power_of_2(K), fewest)
    while block_k <= most:
        for elements, warps in product(COLUMN_ELEMENTS[size], WARPS):
            if block_k <= elements * warps * WARP <= power_of_2(N) * block_k:
                for occupancy in _occupancies(elements * size):
                    yield Configuration("columns", elements, warps, occupancy, 1, block_k)
        block_k *= 2


def _occupancies(bytes_of_thread: int) -> tuple[int, ...]:
    few, many = MOMENTS_OCCUPANCY[False], MOMENTS_OCCUPANCY[True]
    if bytes_of_thread == MANY_BYTES:
        return few, many
    return (few,) if bytes_of_thread > MANY_BYTES else (many,)


def has_registers_to_merge(problem: Problem, p: Plan) -> bool:
    """Whether the last program has a mean, sum of squares and count of all in three quarters of its registers.

    By a single warp 232 bytes of 128 x 55978 x 12 bf16 spill otherwise.
    """
    words = 3 * max(problem.itemsize // 4, 1) * power_of_2(p.splits) * p.block_m * p.block_k
    return p.splits == 1 or 4 * words <= 3 * p.registers * p.warps * WARP
