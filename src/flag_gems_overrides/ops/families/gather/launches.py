# SPDX-License-Identifier: Apache-2.0
"""What a gradient of nll_loss is planned for, what a plan can choose, and the launch that a choice means."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within

# Vectors of a thread that spill nothing, at most.
MAX_VECTORS = 8
# The same for vectors of zeros.
MAX_ZEROS = 32
# Warps of a program that spill nothing, at most.
MAX_WARPS = 8
# Elements of a program that fills, of two bytes each, at most.
MAX_BLOCK = MAX_ZEROS * MAX_WARPS * WARP * VECTOR_BYTES // 2
# Vectors of a thread of images, at most: with 4, 3 x 271 x 334 x 21 bfloat16 spills 168 bytes.
MAX_IMAGE_VECTORS = 2
# Vectors of a thread that writes flat, at most: it has several where there are more than the threads wanted.
MAX_FLAT_VECTORS = 4
# Targets of a thread that fills, at most.
MAX_TARGETS = 8
# Classes of a program at least, for images in vectors of 16 bytes: its targets are read once for all of them.
# 3 x 40 x 50001 bfloat16, 5 classes: 12.6 us, by tile 12.7; 8 x 9 x 80002 float32, 4 classes: 16.1 us, by tile 15.3
# (H100).
MIN_CLASSES_OF_IMAGES = 5
# The same for odd images of fewer classes: their vectors are narrower, so that more classes begin at the same lane.
# 1198 x 18 x 1537 float16: 39 us with two elements to a vector, by tile 67 (H100).
MIN_CLASSES_OF_NARROW = 8
# Share of a tile's lanes without a position, at most, for several classes of up to 4 bytes: images of 520 float32 are
# five tiles of 128 positions, not two of 512.
MAX_IDLE = 1 / 4
# Vectors of an image at least that a program may have: fewer leave lanes of a warp without one.
MIN_IMAGE_VECTORS = 32
# Programs of a launch at most.
MAX_GRID = 2**31 - 1
# Positions of a program that scatters: two to a thread of four warps.
SCATTERED = 256


class Problem(NamedTuple):
    """Scores of [M, N, K]: samples, classes, positions of an image; of ``size`` bytes each."""

    M: int
    N: int
    K: int
    size: int


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: fill, short, images, tile, flat, scatter."""

    kernel: str
    vectors: int  # of 16 bytes that a thread writes at a time
    warps: int
    per_sm: int = 0  # images, tile, flat: programs of a multiprocessor wanted; the classes are divided for them
    classes: int = 0  # images: that a program has, at least; flat: at most
    # tile: at most, unless one sample has more; flat: of a thread; images: that divide where a class is written, or 0
    positions: int = 0


class Fill(NamedTuple):
    """A program writes ``block`` elements, of samples of at most ``positions``."""

    block: int
    positions: int
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

    Such classes begin at the same lane of ``align`` elements, ``advance`` vectors apart.
    """

    vectors: int
    vec: int
    align: int
    blocks: int
    step: int
    advance: int
    warps: int
    programs: int


class Tile(NamedTuple):
    """A program writes tiles of [block_n, block_c, block_d], every ``splits``-th of its positions.

    ``vec`` divides an image, and is a vector at most.
    """

    block_n: int
    block_c: int
    block_d: int
    vec: int
    splits: int
    warps: int
    programs: int


class Flat(NamedTuple):
    """A program writes ``block`` vectors of ``vec`` elements of each of ``classes`` classes.

    ``vec`` divides an image, ``align`` the number of all that programs have.
    """

    block: int
    vec: int
    classes: int
    align: int
    warps: int
    programs: int


class Scatter(NamedTuple):
    """A program writes ``block`` zeros. A second launch of ``scatters`` programs writes the others."""

    block: int
    warps: int
    programs: int
    scatters: int


Gradient = Fill | Short | Images | Tile | Flat | Scatter


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Gradient | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Gradient:
    """The launch that a configuration means; ValueError where it is not legal."""
    kernel, vectors, warps, *_ = configuration
    if not (0 < vectors <= (MAX_ZEROS if kernel in ("fill", "scatter") else MAX_VECTORS) and 0 < warps <= MAX_WARPS):
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
    if kernel == "fill":
        block = vectors * vec
        # Two at least. If all threads had the same target, the zeros would wait for it.
        positions = max(power_of_2(min(_samples(block, C * D), N) * D), 2)
        if positions > MAX_TARGETS * warps * WARP:
            raise ValueError("few targets for many elements only")
        return Fill(block, positions, warps, cdiv(N * C * D, block))
    if kernel == "scatter":
        return Scatter(vectors * vec, warps, cdiv(N * C * D, vectors * vec), cdiv(N * D, SCATTERED))
    if kernel == "short":
        if D > 1:
            raise ValueError("rows only")
        # A vector has elements of two rows at most.
        vec = min(vec, 1 << (C + 1).bit_length() - 1)
        return Short(vectors, vec, warps, cdiv(N * C, vectors * vec))
    if per_sm < 1:
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "images":
        if configuration.vectors > MAX_IMAGE_VECTORS:
            raise ValueError("more registers than a thread has")
        vec = image_vector(problem)
        align = max(positions, vec)
        period = align // math.gcd(D, align)
        most = max(power_of_2(cdiv(D, vec)), MIN_IMAGE_VECTORS)
        if align > D or power_of_2(align) > align or classes < 1 or classes * period > C or vectors > most:
            raise ValueError("images of several classes only")
        blocks = cdiv(cdiv(D, align) * align, vectors * vec)
        splits = cdiv(per_sm * limits.sm_count, N * blocks * period)
        step = period * min(splits, C // (classes * period))
        return Images(vectors, vec, align, blocks, step, step * D // vec, warps, N * blocks * step)
    if positions < 1:
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "flat":
        return _flat(problem, configuration, limits)
    tile = vectors * vec
    block_d = min(power_of_2(D), positions, tile)
    if C > 1 and size < 8:
        block_d = _with_few_idle(D, block_d, WARP * vec)
    block_c = min(power_of_2(C), tile // block_d)
    block_n = min(power_of_2(N), min(tile // block_c, positions) // block_d)
    blocks = cdiv(N, block_n) * cdiv(D, block_d)
    splits = min(cdiv(C, block_c), cdiv(per_sm * limits.sm_count, blocks))
    warps = max(min(warps, block_n * block_c * block_d // WARP), 1)  # none without an element
    return Tile(block_n, block_c, block_d, math.gcd(D, vec), splits, warps, blocks * splits)


def _with_few_idle(D: int, most: int, least: int) -> int:
    """Positions of a tile: the most, or fewer where that leaves fewer lanes without one."""
    found = most
    while most > least and (1 - MAX_IDLE) * cdiv(D, found) * found > D:
        most //= 2
        if cdiv(D, most) * most < cdiv(D, found) * found:
            found = most
    return found


def image_vector(problem: Problem) -> int:
    """Elements of a vector that ``images`` writes."""
    _, C, D, size = problem
    vec = narrow = VECTOR_BYTES // size
    if D % 2 == 0 or MIN_CLASSES_OF_IMAGES * vec <= C:
        return vec
    while narrow > 2 and MIN_CLASSES_OF_NARROW * narrow > C:
        narrow //= 2
    return narrow if MIN_CLASSES_OF_NARROW * narrow <= C else vec


def _flat(problem: Problem, configuration: Configuration, limits: Limits) -> Flat:
    N, C, D, _ = problem
    _, _, warps, per_sm, classes, positions = configuration
    if D == 1 or classes < 1 or power_of_2(positions) > positions:
        raise ValueError(f"no flat images: {configuration}")
    # W, by which a program divides, is two at least.
    vec, align = math.gcd(D, positions) if positions < D else 1, 1
    threads = per_sm * limits.sm_count * warps * WARP
    groups = cdiv(C, max(min(cdiv(N * C * D, positions * threads), classes, C), 1))
    in_order, classes = classes == 1, cdiv(C, groups)
    if classes == 1 and vec < positions:
        # As it lies in memory: vectors may have the end of one class and the start of the next.
        vec, align = 1, math.gcd(N * C * D, positions)
    size, of_thread = N * groups * (D // vec), max(positions // vec, 1)
    if not in_order:
        of_thread *= min(power_of_2_within(size // (of_thread * threads)), MAX_FLAT_VECTORS)
    block = warps * WARP * of_thread
    if max(size * vec * classes, size) + MAX_BLOCK > 2**31:
        raise ValueError("images of less than 2**31 elements only")
    return Flat(block, vec, classes, align, warps, cdiv(size, block))


def _samples(block: int, sample: int) -> int:
    """Samples of ``sample`` elements that a block may touch, which begins at a multiple of ``block`` elements."""
    if block % sample == 0 or sample % block == 0:
        return max(block // sample, 1)
    return (block - 2) // sample + 2
