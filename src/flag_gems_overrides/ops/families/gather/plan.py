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
# Vectors of a program: of whole rows; where each has a target of its own; where an image has enough of them, for
# targets that stay in registers. From MIN_ROW_VECTORS on a row is whole in a tile: 65536 x 1000 bfloat16 took 79 us
# with a target for each vector.
ROW_VECTORS, SHORT_VECTORS, IMAGE_VECTORS = 512, 256, 256
MIN_ROW_VECTORS, MIN_IMAGE_VECTORS = 8, 16
# Classes of such a program, whose gradients are 16 bytes or more: a target is 8.
MIN_IMAGE_CLASSES = 8
# Bytes of a tile, and positions of its last dimension: their targets stay in registers.
TILE_BYTES, MAX_BLOCK_D = 8192, 1024
WARPS = 4
ROW_REGISTERS = 168
# Of logits: the longest rows that are whole in a tile, its elements, and most programs. Longer ones are read
# LOOPED_VECTORS at a time;
# WRITTEN_VECTORS where the gradient comes with the loss, and GRADIENT_VECTORS where it comes later, by programs that
# have GRADIENT_TILES of a row. A thread has two vectors.
MAX_WHOLE, WHOLE_TILE, MAX_LOGITS_PROGRAMS = 512, 1024, 4096
LOOPED_VECTORS, WRITTEN_VECTORS, GRADIENT_VECTORS = 2048, 1024, 512
LOOPED_STAGES, GRADIENT_STAGES, GRADIENT_TILES = 3, 2, 4
# What all rows in work may take of the L2 cache if they are to be read again from there. Half of it is far from a
# multiprocessor, and has copies in the other half: of 128256 bfloat16, 68 % of it on an H200, little is found again.
L2_SHARE = 0.4
VECTOR_BYTES = 16
# Programs that keep a multiprocessor busy, and the most that one launch can have.
PROGRAMS_PER_SM, MAX_GRID = 8, 2**31 - 1


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
    """A program writes ``block_n`` rows of up to ``vectors`` vectors of ``vec`` elements."""

    block_n: int
    vectors: int
    vec: int
    programs: int


class Short(NamedTuple):
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


def gradient(problem: Problem, limits: Limits) -> Flat | Rows | Short | Images | Tile:
    """For a problem of at least one element."""
    N, C, D, size = problem
    vec = VECTOR_BYTES // size
    if D == 1 and C * size >= FLAT_BYTES:
        block = FLAT_BYTES // size
        return Flat(block, cdiv(block, C) + 1, cdiv(N * C, block))
    if D == 1 and MIN_ROW_VECTORS * vec <= C:
        vectors = next_power_of_2(cdiv(C, vec))
        block_n = min(next_power_of_2(N), max(ROW_VECTORS // vectors, 1))
        return Rows(block_n, vectors, vec, cdiv(N, block_n))
    if D == 1 and vec <= C:
        return Short(SHORT_VECTORS, vec, cdiv(N * C, SHORT_VECTORS * vec))
    period = vec // math.gcd(D, vec)
    if MIN_IMAGE_VECTORS * vec <= D and MIN_IMAGE_CLASSES * period <= C:
        vectors = max(min(next_power_of_2(cdiv(D, vec)), IMAGE_VECTORS), 32)
        blocks = cdiv(D, vectors * vec)
        splits = cdiv(PROGRAMS_PER_SM * limits.sm_count, N * blocks * period)
        step = period * min(splits, C // (MIN_IMAGE_CLASSES * period))
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
    vec: int
    warps: int
    programs: int


class Looped(NamedTuple):
    """A program takes every ``programs``-th share of rows, of ``members`` each, ``vectors`` vectors at a time."""

    vectors: int
    vec: int
    stages: int
    warps: int
    members: int
    programs: int


def cross_entropy(problem: Problem, limits: Limits, written: bool) -> Whole | Looped:
    """For logits of [N, C], at least one row; ``written`` if the gradient comes with the loss."""
    N, C, _, size = problem
    if C <= MAX_WHOLE:
        return _whole(problem, limits)
    vectors = _vectors(problem, WRITTEN_VECTORS if written else LOOPED_VECTORS)
    warps = max(1, vectors // 64)
    per_sm = limits.threads_per_sm // 2 // (warps * 32)
    if written:
        per_sm = min(per_sm, _rows_in_cache(problem, limits) // limits.sm_count)
    programs = min(N, limits.sm_count * max(per_sm, 1), MAX_LOGITS_PROGRAMS)
    return Looped(vectors, VECTOR_BYTES // size, LOOPED_STAGES, warps, 1, programs)


def cross_entropy_gradient(problem: Problem, limits: Limits, written: bool) -> Whole | Looped:
    """Likewise, for the gradient; ``written`` if it is hardly ever wanted."""
    N, C, _, size = problem
    if C <= MAX_WHOLE:
        return _whole(problem, limits)
    vec = VECTOR_BYTES // size
    vectors = _vectors(problem, GRADIENT_VECTORS)
    warps = max(1, vectors // 64)
    members = cdiv(cdiv(C, vec), vectors * GRADIENT_TILES)
    resident = limits.sm_count * (limits.threads_per_sm // 2 // (warps * 32))
    return Looped(vectors, vec, GRADIENT_STAGES, warps, members, min(N * members, resident if written else MAX_GRID))


def writes_gradient(problem: Problem, limits: Limits) -> bool:
    """Whether a loss whose gradient is wanted writes it at once: reads of what fits the L2 cache cost little."""
    if problem.N * problem.C * problem.size <= limits.l2_bytes // 2:
        return False
    return problem.C <= MAX_WHOLE or _rows_in_cache(problem, limits) >= 2 * limits.sm_count


def _whole(problem: Problem, limits: Limits) -> Whole:
    N, C, _, size = problem
    block_c = next_power_of_2(C)
    block_r = min(next_power_of_2(N), WHOLE_TILE // block_c)
    warps = max(1, min(WARPS, block_r * block_c // 256))
    resident = limits.sm_count * (limits.threads_per_sm // (warps * 32))
    vec = math.gcd(C, VECTOR_BYTES // size)
    return Whole(block_r, block_c, vec, warps, min(cdiv(N, block_r), resident, MAX_LOGITS_PROGRAMS))


def _vectors(problem: Problem, most: int) -> int:
    return min(next_power_of_2(cdiv(problem.C * problem.size, VECTOR_BYTES)), most)


def _rows_in_cache(problem: Problem, limits: Limits) -> int:
    return int(L2_SHARE * limits.l2_bytes) // (problem.C * problem.size)
