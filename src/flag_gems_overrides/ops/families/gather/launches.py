# SPDX-License-Identifier: Apache-2.0
"""What a gradient of nll_loss is planned for, what a plan can choose, and the launch that a choice means."""

from __future__ import annotations

import math
from typing import NamedTuple

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits

WARP = 32
VECTOR_BYTES = 16
# Vectors of a thread, and warps, that spill nothing.
MAX_VECTORS, MAX_WARPS = 8, 8
# 3 x 271 x 334 x 21 bfloat16 spills 168 bytes with 4.
MAX_IMAGE_VECTORS = 2
# Rows of a flat program: each costs a comparison and a selection an element, and the latency of its target.
MAX_FLAT_ROWS = 5
# Fewer vectors of an image leave lanes of a warp without one.
MIN_IMAGE_VECTORS = 32
# Groups of classes of a program, for which it loads a target for each element.
MIN_GROUPS = 16
# The most that one launch can have.
MAX_GRID = 2**31 - 1
# For ``estimate``: bytes a multiprocessor moves in a microsecond, microseconds of a launch, of a program, and of each
# further tile that it writes.
BYTES_PER_US, LAUNCH_US, PROGRAM_US, TILE_US = 32000, 2.0, 1.2, 0.05


class Problem(NamedTuple):
    """Scores of [M, N, K]: samples, classes, positions of an image; of ``size`` bytes each."""

    M: int
    N: int
    K: int
    size: int


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: flat, rows, short, images, groups, tile."""

    kernel: str
    vectors: int  # of 16 bytes that a thread writes at a time
    warps: int
    per_sm: int = (
        0  # images, groups, tile: programs of a multiprocessor that are wanted; the classes are divided for them
    )
    classes: int = 0  # images: that a program has, at least
    positions: int = 0  # tile: of an image side by side, at most


class Flat(NamedTuple):
    """A program writes ``block`` elements, of at most ``rows`` rows."""

    block: int
    rows: int
    warps: int
    programs: int


class Rows(NamedTuple):
    """A program writes ``block_n`` rows of up to ``vectors`` vectors of ``vec`` elements."""

    block_n: int
    vectors: int
    vec: int
    warps: int
    programs: int


class Short(NamedTuple):
    """A program writes ``vectors`` vectors of ``vec`` elements."""

    vectors: int
    vec: int
    warps: int
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


class Groups(NamedTuple):
    """A program writes up to ``vectors`` vectors of every ``parts``-th ``group`` of classes of a sample."""

    vectors: int
    vec: int
    group: int
    parts: int
    warps: int
    programs: int


class Tile(NamedTuple):
    """A program writes tiles of [block_n, block_c, block_d], every ``splits``-th of its positions."""

    block_n: int
    block_c: int
    block_d: int
    splits: int
    warps: int
    programs: int


Gradient = Flat | Rows | Short | Images | Groups | Tile


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Gradient | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Gradient:
    """ValueError if the problem cannot be launched so."""
    _, vectors, warps, *_ = configuration
    if not (0 < vectors <= MAX_VECTORS and 0 < warps <= MAX_WARPS):
        raise ValueError(f"no legal program: {configuration}")
    found = _launch(problem, configuration, limits)
    if found.programs > MAX_GRID:
        raise ValueError("more programs than a grid has")
    return found


def _launch(problem: Problem, configuration: Configuration, limits: Limits) -> Gradient:
    N, C, D, size = problem
    kernel, vectors, warps, per_sm, classes, positions = configuration
    vec = VECTOR_BYTES // size
    vectors *= warps * WARP
    if kernel in ("flat", "rows", "short") and (D > 1 or vec > C):
        raise ValueError("rows of a vector or more")
    if kernel == "flat":
        block = vectors * vec
        rows = cdiv(block, C) + 1
        if rows > MAX_FLAT_ROWS:
            raise ValueError("long rows only")
        return Flat(block, rows, warps, cdiv(N * C, block))
    if kernel == "rows":
        of_row = next_power_of_2(cdiv(C, vec))
        if of_row > vectors:
            raise ValueError("rows that fit one tile only")
        block_n = min(next_power_of_2(N), vectors // of_row)
        return Rows(block_n, of_row, vec, warps, cdiv(N, block_n))
    if kernel == "short":
        return Short(vectors, vec, warps, cdiv(N * C, vectors * vec))
    if per_sm < 1:
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "images":
        if configuration.vectors > MAX_IMAGE_VECTORS:
            raise ValueError("more registers than a thread has")
        period = vec // math.gcd(D, vec)
        if (
            vec > D
            or classes < 1
            or classes * period > C
            or vectors > max(next_power_of_2(cdiv(D, vec)), MIN_IMAGE_VECTORS)
        ):
            raise ValueError("images of several classes only")
        blocks = cdiv(D, vectors * vec)
        splits = cdiv(per_sm * limits.sm_count, N * blocks * period)
        step = period * min(splits, C // (classes * period))
        return Images(vectors, vec, blocks, step, step * D // vec, warps, N * blocks * step)
    if kernel == "groups":
        period = vec // math.gcd(D, vec)
        group = min(vectors * vec // (period * D), cdiv(C, period)) * period
        if D == 1 or C * D % vec or not group:
            raise ValueError("small images, of which a sample is whole vectors")
        parts = max(min(per_sm * limits.sm_count // N, C // (MIN_GROUPS * group)), 1)
        return Groups(vectors, vec, group, parts, warps, N * parts)
    if positions < 1:
        raise ValueError(f"no legal program: {configuration}")
    tile = vectors * vec
    block_d = min(next_power_of_2(D), positions, tile)
    block_c = min(next_power_of_2(C), tile // block_d)
    block_n = min(next_power_of_2(N), tile // block_d // block_c)
    blocks = cdiv(N, block_n) * cdiv(D, block_d)
    splits = min(cdiv(C, block_c), cdiv(per_sm * limits.sm_count, blocks))
    return Tile(block_n, block_c, block_d, splits, warps, blocks * splits)


def tiles(problem: Problem, found: Gradient) -> int:
    """That the program with the most writes one after the other."""
    if isinstance(found, Images):
        return cdiv(problem.N, found.step)
    if isinstance(found, Groups):
        return cdiv(cdiv(problem.N, found.group), found.parts)
    return cdiv(cdiv(problem.N, found.block_c), found.splits) if isinstance(found, Tile) else 1


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: the bytes that are written, and the programs of a multiprocessor one after the other."""
    N, C, D, size = problem
    found = launch(problem, configuration, limits)
    resident = limits.sm_count * max(limits.threads_per_sm // (found.warps * WARP), 1)
    waves = found.programs / resident if found.programs > resident else 1
    vec = VECTOR_BYTES // size
    # Tiles are written element by element where a row is no whole vectors.
    share = math.gcd(C if D == 1 else D, vec) / vec if isinstance(found, Tile) else 1
    moved = N * C * D * size * (1.5 if share < 1 else 1.0) / (min(limits.sm_count, found.programs) * BYTES_PER_US)
    return LAUNCH_US + max(moved, waves * (PROGRAM_US + tiles(problem, found) * TILE_US))
