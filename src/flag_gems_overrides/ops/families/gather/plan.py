# SPDX-License-Identifier: Apache-2.0
"""How nll_loss is launched: plain numbers in, a plan out."""

from __future__ import annotations

from typing import NamedTuple

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits

# Positions of a program forward: two to a thread, for most of the time is the latency of the target and then of its
# score. The last program adds what the others found, so there are no more than it can load at once.
FORWARD_BLOCK, MAX_FORWARD_PROGRAMS = 256, 1024
# Bytes of the gradient that a program writes at a time where it lies in one piece, at most and, as every thread has a
# vector, at least.
MAX_FLAT_BYTES, MIN_FLAT_BYTES = 16384, 2048
# Rows of such a piece: each costs a comparison and a selection an element.
MAX_ROWS = 5
# Bytes of a tile, and positions of its last dimension: their targets stay in registers.
TILE_BYTES, MAX_BLOCK_D = 8192, 1024
WARPS = 4
# Programs that keep a multiprocessor busy.
PROGRAMS_PER_SM = 8


class Problem(NamedTuple):
    """Scores of [N, C, D], of ``size`` bytes each."""

    N: int
    C: int
    D: int
    size: int


class Forward(NamedTuple):
    block: int
    programs: int


class Flat(NamedTuple):
    """A program writes ``block`` elements, of at most ``rows`` rows."""

    block: int
    rows: int
    programs: int


class Tile(NamedTuple):
    """A program writes tiles of [block_n, block_c, block_d], every ``splits``-th of its positions."""

    block_n: int
    block_c: int
    block_d: int
    splits: int
    programs: int


def forward(problem: Problem) -> Forward:
    programs = cdiv(problem.N * problem.D, FORWARD_BLOCK)
    return Forward(FORWARD_BLOCK, min(max(programs, 1), MAX_FORWARD_PROGRAMS))


def gradient(problem: Problem, limits: Limits) -> Flat | Tile:
    """For a problem of at least one element."""
    N, C, D, size = problem
    if D == 1:
        block = MAX_FLAT_BYTES // size
        while block * size > MIN_FLAT_BYTES and cdiv(block, C) + 1 > MAX_ROWS:
            block //= 2
        if cdiv(block, C) + 1 <= MAX_ROWS:
            return Flat(block, cdiv(block, C) + 1, cdiv(N * C, block))
    tile = TILE_BYTES // size
    block_d = min(next_power_of_2(D), MAX_BLOCK_D)
    block_c = min(next_power_of_2(C), tile // block_d)
    block_n = min(next_power_of_2(N), tile // block_d // block_c)
    blocks = cdiv(N, block_n) * cdiv(D, block_d)
    splits = min(cdiv(C, block_c), cdiv(PROGRAMS_PER_SM * limits.sm_count, blocks))
    return Tile(block_n, block_c, block_d, splits, blocks * splits)
