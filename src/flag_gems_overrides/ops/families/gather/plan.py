# SPDX-License-Identifier: Apache-2.0
"""How nll_loss is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math
from typing import NamedTuple

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits

# Positions of a program forward: two to a thread, for most of the time is the latency of the target and then of its
# score. The last program adds what the others found, so there are no more than it can load at once.
FORWARD_BLOCK, MAX_FORWARD_PROGRAMS = 256, 1024
# Bytes of the gradient that a program writes at a time where it lies in one piece, of two rows at most: each row costs
# a comparison and a selection an element, and the latency of its target.
FLAT_BYTES = 16384
# Vectors of a program where each has a target of its own, and where an image has enough of them for targets that stay
# in registers.
ROW_VECTORS, IMAGE_VECTORS, MIN_IMAGE_VECTORS = 512, 256, 16
# Bytes of a tile, and positions of its last dimension: their targets stay in registers.
TILE_BYTES, MAX_BLOCK_D = 8192, 1024
WARPS = 4
# Of logits: elements of a tile of whole rows; classes from which on a row is read in a loop; its vectors, stages and
# warps; and the share of the L2 cache that rows may take which are to be read again.
ROWS_TILE = 1024
MIN_LOOPED = 512
LOOPED_VECTORS, LOOPED_STAGES, LOOPED_WARPS = 1024, 3, 16
L2_SHARE = 0.75
VECTOR_BYTES = 16
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


class Rows(NamedTuple):
    """A program writes ``vectors`` vectors of ``vec`` elements."""

    vectors: int
    vec: int
    programs: int


class Images(NamedTuple):
    """A program writes ``vectors`` vectors of every ``step``-th class of an image, which has ``blocks`` times as many.

    Such classes begin at the same lane of a vector, ``advance`` vectors apart.
    """

    vectors: int
    vec: int
    blocks: int
    step: int
    advance: int
    warps: int
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


def gradient(problem: Problem, limits: Limits) -> Flat | Rows | Images | Tile:
    """For a problem of at least one element."""
    N, C, D, size = problem
    vec = VECTOR_BYTES // size
    if D == 1 and C * size >= FLAT_BYTES:
        block = FLAT_BYTES // size
        return Flat(block, cdiv(block, C) + 1, cdiv(N * C, block))
    if D == 1 and C >= vec:
        return Rows(ROW_VECTORS, vec, cdiv(N * C, ROW_VECTORS * vec))
    if D >= MIN_IMAGE_VECTORS * vec:
        vectors = max(min(next_power_of_2(cdiv(D, vec)), IMAGE_VECTORS), 32)
        blocks = cdiv(D, vectors * vec)
        period = vec // math.gcd(D, vec)
        splits = cdiv(PROGRAMS_PER_SM * limits.sm_count, N * blocks * period)
        step = period * min(splits, cdiv(C, period))
        warps = max(1, min(WARPS, vectors // 64))
        return Images(vectors, vec, blocks, step, step * D // vec, warps, N * blocks * step)
    tile = TILE_BYTES // size
    block_d = min(next_power_of_2(D), MAX_BLOCK_D)
    block_c = min(next_power_of_2(C), tile // block_d)
    block_n = min(next_power_of_2(N), tile // block_d // block_c)
    blocks = cdiv(N, block_n) * cdiv(D, block_d)
    splits = min(cdiv(C, block_c), cdiv(PROGRAMS_PER_SM * limits.sm_count, blocks))
    return Tile(block_n, block_c, block_d, splits, blocks * splits)


class Whole(NamedTuple):
    """A program takes every ``programs``-th tile of ``block_r`` whole rows."""

    block_r: int
    block_c: int
    warps: int
    programs: int


class Looped(NamedTuple):
    """A program takes every ``programs``-th row, ``vectors`` vectors at a time."""

    vectors: int
    vec: int
    stages: int
    warps: int
    programs: int


def cross_entropy(problem: Problem, limits: Limits, written: bool) -> Whole | Looped:
    """For logits of [N, C], at least one row; ``written`` if the gradient comes with the loss."""
    N, C, _, size = problem
    vec = VECTOR_BYTES // size
    if C < MIN_LOOPED:
        block_c = next_power_of_2(C)
        block_r = min(next_power_of_2(N), max(ROWS_TILE // block_c, 1))
        warps = max(1, min(WARPS, block_r * block_c // 256))
        resident = limits.sm_count * (limits.threads_per_sm // (warps * 32))
        return Whole(block_r, block_c, warps, min(cdiv(N, block_r), resident, MAX_FORWARD_PROGRAMS))
    vectors = min(next_power_of_2(cdiv(C, vec)), LOOPED_VECTORS)
    warps = max(1, min(LOOPED_WARPS, vectors // 32))
    per_sm = limits.threads_per_sm // 2 // (warps * 32)
    if written:
        # So few that the rows in work stay in the L2 cache until they are read again.
        per_sm = min(per_sm, max(1, int(L2_SHARE * limits.l2_bytes) // (limits.sm_count * C * size)))
    return Looped(vectors, vec, LOOPED_STAGES, warps, min(N, limits.sm_count * per_sm, MAX_FORWARD_PROGRAMS))


def writes_gradient(problem: Problem, limits: Limits) -> bool:
    """Whether a loss whose gradient is wanted writes it at once: what fits the L2 cache is read twice from there."""
    return problem.N * problem.C * problem.size > limits.l2_bytes
