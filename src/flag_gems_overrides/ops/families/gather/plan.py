# SPDX-License-Identifier: Apache-2.0
"""How nll_loss is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math
from typing import NamedTuple

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits
from ...plans import table
from .launches import (
    MAX_GRID,
    VECTOR_BYTES,
    WARP,
    Configuration,
    Flat,
    Gradient,
    Images,
    Problem,
    Rows,
    Short,
    Tile,
    estimate,
    launch,
    launch_or_none,
)

__all__ = [
    "Configuration",
    "Flat",
    "Gradient",
    "Images",
    "Problem",
    "Rows",
    "Short",
    "Tile",
    "choose",
    "class_of",
    "configurations",
    "cross_entropy",
    "cross_entropy_gradient",
    "estimate",
    "forward",
    "gradient",
    "launch",
    "writes_gradient",
]

# Positions of a program forward: two to a thread, for most of the time is the latency of the target and then of its
# score; fewer where there are fewer, for their sum is of one warp then (4 targets took 3.0 us, torch.compile 2.3). The
# last program adds what the others found, so there are no more than it can load at once.
FORWARD_BLOCK, MAX_FORWARD_PROGRAMS = 256, 1024
# Shorter rows have several to a program: each costs a comparison and a selection an element, and the latency of its
# target.
FLAT_BYTES = 16384
# From so many vectors on a row is whole in a tile: 65536 x 1000 bfloat16 took 79 us with a target for each vector. And
# so many an image has for targets that stay in registers.
MIN_ROW_VECTORS, MIN_IMAGE_VECTORS = 8, 16
WARPS = 4
# Classes of a program of images, whose gradients are 16 bytes or more: a target is 8.
FLAT, ROWS, SHORT = Configuration("flat", 8, WARPS), Configuration("rows", 4, WARPS), Configuration("short", 2, WARPS)
# 61407 x 1 x 83 bfloat16 takes 35 us with tiles of two vectors to a thread, 87 with four, 97 x 1 x 113371 46 and 109.
IMAGES, TILE = Configuration("images", 2, WARPS, 8, classes=8), Configuration("tile", 2, WARPS, 8, positions=1024)
# Bytes that are written by the simplest program: 1 x 31751 bfloat16 takes 2.6 us, 5.1 by ``flat``.
LITTLE_BYTES = 1 << 20
ROW_REGISTERS = 168
# Of logits: the longest rows that are whole in a tile, its elements, and most programs. Longer ones are read
# LOOPED_VECTORS at a time; GRADIENT_VECTORS where the gradient comes later, by programs that have GRADIENT_TILES of a
# row. A thread has two vectors. Several programs to a multiprocessor: what comes after a row, one alone would wait for
# (8192 x 29840 float32 took 326 us with 2048 vectors and one program, FlagGems 265).
MAX_WHOLE, WHOLE_TILE, MAX_LOGITS_PROGRAMS = 512, 1024, 4096
LOOPED_VECTORS, GRADIENT_VECTORS = 1024, 512
LOOPED_STAGES, GRADIENT_STAGES, GRADIENT_TILES = 3, 2, 4
# What all rows in work may take of the L2 cache if they are to be read again from there. Half of it is far from a
# multiprocessor, and has copies in the other half: of 128256 bfloat16, 68 % of it on an H200, little is found again.
L2_SHARE = 0.4


class Forward(NamedTuple):
    block: int
    programs: int
    warps: int


def forward(problem: Problem) -> Forward:
    positions = problem.M * problem.K
    block = min(max(next_power_of_2(positions), WARP), FORWARD_BLOCK)
    return Forward(block, min(max(cdiv(positions, block), 1), MAX_FORWARD_PROGRAMS), max(block // (2 * WARP), 1))


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, C, D, size = problem
    vec = VECTOR_BYTES // size
    return size, D == 1, vec > C if D == 1 else vec > D, math.gcd(D, vec)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup(
        "gather",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    return found or _default(problem)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: legal, and each another launch."""
    default = _default(problem)
    others = [FLAT, ROWS, SHORT, TILE] if problem.K == 1 else [IMAGES, TILE]
    candidates = [default]
    for each in (default, *(other for other in others if other.kernel != default.kernel)):
        candidates += [
            each,
            each._replace(vectors=each.vectors // 2),
            each._replace(vectors=each.vectors * 2),
            each._replace(warps=1),
            each._replace(per_sm=each.per_sm * 2, classes=each.classes // 2),
            each._replace(per_sm=each.per_sm * 2),
            each._replace(per_sm=each.per_sm // 2),
        ]
    candidates.append(FLAT._replace(vectors=1))
    found: dict[Gradient, Configuration] = {}
    for candidate in candidates:
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def gradient(problem: Problem, limits: Limits) -> Gradient:
    """The launch that is chosen, for a problem of at least one element."""
    return launch(problem, choose(problem, limits), limits)


def _default(problem: Problem) -> Configuration:
    N, C, D, size = problem
    vec = VECTOR_BYTES // size
    if D == 1 and C * size >= FLAT_BYTES:
        return FLAT if N * C * size > LITTLE_BYTES else TILE._replace(vectors=4)
    if D == 1 and MIN_ROW_VECTORS * vec <= C:
        return ROWS if cdiv(C, vec) <= ROWS.vectors * WARPS * WARP else ROWS._replace(vectors=2 * ROWS.vectors)
    if D == 1 and vec <= C:
        return SHORT
    period = vec // math.gcd(D, vec)
    # Where images are whole vectors, tiles are faster: 16 x 21 x 256 x 256 bfloat16 16.9 us, 21.2 by ``images``.
    if period > 1 and MIN_IMAGE_VECTORS * vec <= D and IMAGES.classes * period <= C:
        # Not more than an image has: 1 x 116201 x 293 float32 takes 47.6 us with 64 of its 74 vectors, 62.5 with 128.
        vectors = max(min(1 << cdiv(D, vec).bit_length() - 1, IMAGES.vectors * WARPS * WARP), WARP)
        warps = max(1, min(WARPS, vectors // (2 * WARP)))
        return IMAGES._replace(vectors=vectors // (warps * WARP), warps=warps)
    # Few classes are in one tile or two, which load a target each: 71 x 3 x 3573 x 2 bfloat16 takes 6.5 us, 8.9 with
    # two vectors. A class alone has a target for each element: 1972089 x 1 float16 takes 14.1 us with one vector to a
    # thread, 17.1 with two.
    return TILE._replace(vectors=1 if C == 1 else 4 if C <= 8 else TILE.vectors)


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
    vectors = _vectors(problem, LOOPED_VECTORS)
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
    if problem.M * problem.N * problem.size <= limits.l2_bytes // 2:
        return False
    return problem.N <= MAX_WHOLE or _rows_in_cache(problem, limits) >= 2 * limits.sm_count


def _whole(problem: Problem, limits: Limits) -> Whole:
    N, C, _, size = problem
    block_c = next_power_of_2(C)
    block_r = min(next_power_of_2(N), WHOLE_TILE // block_c)
    warps = max(1, min(WARPS, block_r * block_c // 256))
    resident = limits.sm_count * (limits.threads_per_sm // (warps * 32))
    vec = math.gcd(C, VECTOR_BYTES // size)
    return Whole(block_r, block_c, vec, warps, min(cdiv(N, block_r), resident, MAX_LOGITS_PROGRAMS))


def _vectors(problem: Problem, most: int) -> int:
    return min(next_power_of_2(cdiv(problem.N * problem.size, VECTOR_BYTES)), most)


def _rows_in_cache(problem: Problem, limits: Limits) -> int:
    return int(L2_SHARE * limits.l2_bytes) // (problem.N * problem.size)
