# SPDX-License-Identifier: Apache-2.0
"""How nll_loss is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from ...plans import table
from .estimate import estimate
from .launches import (
    MAX_BLOCK,
    MAX_IDLE,
    SCATTERED,
    Configuration,
    Fill,
    Flat,
    Gradient,
    Images,
    Problem,
    Scatter,
    Short,
    Tile,
    image_vector,
    launch,
    launch_or_none,
)

__all__ = [
    "MAX_BLOCK",
    "SCATTERED",
    "Configuration",
    "Fill",
    "Flat",
    "Gradient",
    "Images",
    "Problem",
    "Scatter",
    "Short",
    "Tile",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "forward",
    "gradient",
    "gradient_problem",
    "launch",
    "launch_or_none",
]

# Positions of a program of the loss: two to a thread, for most of the time is the latency of the target and then of its
# score. A program of fewer positions is of fewer warps.
FORWARD_BLOCK = 256
# Positions at most that one program has alone, whose losses are summed: to wait for others takes most of a microsecond.
# 300 targets: 3.54 us, by two programs 4.50; 3900 x 1 float16, above the bound: 4.57 us, otherwise 4.12 (H100).
FORWARD_ALONE = 2048
# The same where the scores of a position fill more than a sector.
# 1079 x 24 float32: 4.49 us, otherwise 4.74; 2048 x 1000 float32, above the bound: 5.14 us, otherwise 4.92 (H100).
FORWARD_ALONE_OF_SECTORS = 1280
# Programs at most: the last one adds up the sums of all, and can load these many at once.
MAX_FORWARD_PROGRAMS = 1024
# Warps at most of a program alone. 1536 bfloat16 targets of 2d: 3.76 us, by six programs 4.28, by 32 warps 4.05 (H100).
MAX_FORWARD_WARPS = 16
# Positions of a program that has several blocks: four to a thread, so that enough loads are on their way. Eight spill 8
# bytes of float64. 2 x 1 x 64 x 524288 float16: 168 us, with two positions to a thread 211.
MANY_FORWARD_BLOCK = 512
# Bytes of a position's scores at least, for programs that load the next targets while scores are on their way. One
# score of a position is read; from here on, no two positions share a sector, and latency limits, not bytes.
# 5949 x 64 x 705 float32: 117 us, otherwise 127; 8388608 x 16 bfloat16, below: 133 us, otherwise 124 (H100).
MIN_PREFETCH_BYTES = 128
# Such programs for each multiprocessor. 800 x 24 x 2680 float64: 50.7 us, by four 51.5; 300 x 100 x 10000 float16: 66.0
# us, by four 71.3; 5949 x 64 x 705 float32: 88.9 us, by four 95.6 (H200).
PREFETCH_PER_SM = 2
# The same for scores of 8 bytes, if positions are no multiple of this. Triton then loads targets one by one, and fewer
# bytes are on their way. 797 x 21 x 2680 float64: 49.9 us, by two 65.5 (H200).
PREFETCH_MULTIPLE, PREFETCH_PER_SM_ONE_BY_ONE = 16, 4
# Configurations of a problem at most.
MAX_CONFIGURATIONS = 24
# Warps of a program.
WARPS = 4
# Bytes of the output at most of one class that is planned as rows, and that tiles have.
LITTLE_BYTES = 2 << 20
# The first configuration of each kernel. Others differ in one or two fields.
FILL = Configuration("fill", 4, WARPS)
SHORT = Configuration("short", 2, WARPS)
SCATTER = Configuration("scatter", 4, WARPS)
IMAGES = Configuration("images", 1, WARPS, 8, classes=8)
TILE = Configuration("tile", 1, WARPS, 8, positions=1024)
FLAT = Configuration("flat", 1, WARPS, 4, classes=16, positions=1)
PAIRS = FLAT._replace(positions=2)
# Vectors as they lie in memory, which may have the end of one class and the start of the next.
IN_ORDER = FLAT._replace(classes=1, positions=4)
# Classes (more than) and bytes (up to) of rows in memory that are written as they lie, not filled and then changed.
# 2097152 x 17 float64: 111 us, filled 117; 577878 x 128 float32, whole vectors: filled 107 us (H100).
MIN_AS_THEY_LIE, MAX_AS_THEY_LIE_BYTES = 16, 520
# Vectors and warps.
FILLED = ((4, 4), (8, 4), (2, 4), (4, 1), (8, 1), (4, 8), (1, 4))
SHORTS = ((2, 4), (4, 4), (1, 4), (4, 2), (4, 8))
# One class has these too. 560712 x 1 float32: 5.3 us, by four warps 5.5 (H200).
SHORT_OF_ONE_CLASS = SHORT._replace(warps=8)
# Vectors, warps and positions of tiles, where programs are as many as TILE wants.
TILES = ((2, 4, 1024), (1, 4, 1024), (4, 4, 1024), (2, 1, 1024), (1, 1, 1024), (1, 4, 256), (1, 1, 256))
# Positions of a thread of these, where images are in memory, no whole vectors of float32, and as long as a program's
# positions. 256 x 8 x 51345: 157 us, with four positions 171; 1147 x 33 x 411: 48.3 and 33.7, 82573 x 1 x 1253: 459 and
# 351 (H200).
MANY_IN_ORDER = 8
# Vectors and programs of other tiles of images, with all positions.
TILES_OF_IMAGES = ((1, 4), (2, 4), (4, 4), (2, 16), (4, 16))
# Warps, programs, and positions of a thread of flat images.
FLATS = ((4, 4, 1), (8, 4, 1), (4, 2, 1), (2, 4, 1), (1, 4, 1))
# The same of 16 bits, in pairs of positions.
FLAT_PAIRS = ((4, 4, 2), (8, 4, 2), (4, 2, 2), (2, 4, 2))
# Positions at least of an image of such pairs that is no whole sectors: warps write several short images in parts.
# 39485 x 7 x 42 bfloat16: 29.4 us, filled 21.4 (H100).
MIN_PAIRED = 256
# Bytes of the output at most, and more than LITTLE_BYTES, of shorter images in pairs.
# 17725 x 9 x 12 bfloat16: 4.8 us, one by one 6.5, filled 5.0 (H200);
# 2000 x 9 x 122 float16: 5.4, one by one 5.7 (H100).
MAX_SHORT_PAIRED_BYTES = 5 << 20
# Bytes of the output from which images of 16 bits and whole vectors are no flat ones: tiles store whole vectors.
# 4 x 8 x 452240 bfloat16: 21.7 us in pairs, in tiles 19.2; 15264 x 3 x 1360 bfloat16: 103.5 and 103.1 (H100).
MAX_PAIRED_BYTES = 12 << 20
# Classes, and positions at least, of odd images of up to 4 bytes, in memory, of which a program has several classes.
# 1198 x 18 x 1537 float16: 39.4 us, flat 54.7; 13 x 49 x 313749 float32: 310 us, flat 384 (H100).
ODD_CLASSES, MIN_ODD_POSITIONS = (18, 656), 1024
# Warps of images in order.
IN_ORDERS = (4, 8, 2)
# Vectors, warps, programs and classes of images of several classes.
IMAGES_OF_CLASSES = ((1, 4, 8, 8), (1, 4, 16, 4), (2, 4, 8, 8), (2, 4, 16, 4), (1, 1, 8, 8), (2, 1, 16, 8))
# Bytes of the classes that such a program writes of each position at least, to begin each class at a line, or at a
# sector: the more bytes, the more classes are between its own. Otherwise warps write the sectors on their borders in
# parts. From lines, sectors and vectors on 329 x 64 x 8908 float32 takes 202, 221 and 268 us, 300 x 100 x 1501 67.4,
# 51.0 and 54.8 (H200). Of 16 bits: 3 x 117 x 446783 121 us from sectors on, otherwise 95.6.
MIN_BYTES_OF_ALIGNED = {LINE_BYTES: 32, SECTOR_BYTES: 22}
# Programs of a multiprocessor of these. 1 x 587 x 125082 float32: 80.0 us, by half as many 81.7 (H200).
ALIGNED = IMAGES._replace(per_sm=32, classes=1)
# Registers of a thread of images: with 128, 8 bytes spill (3 x 271 x 334 x 21 bfloat16, sm_100, Triton 3.6).
ROW_REGISTERS = 168


class Forward(NamedTuple):
    block: int
    programs: int
    warps: int
    prefetch: bool = False


def forward(problem: Problem, reduced: bool, limits: Limits) -> Forward:
    positions = problem.M * problem.K
    block = power_of_2(max(positions, 1))
    warps = min(max(block // (2 * WARP), 1), MAX_FORWARD_WARPS)
    one_by_one = problem.size == 8 and positions % PREFETCH_MULTIPLE > 0
    ahead = limits.sm_count * (PREFETCH_PER_SM_ONE_BY_ONE if one_by_one else PREFETCH_PER_SM)
    ahead = min(ahead, MAX_FORWARD_PROGRAMS)
    if positions > FORWARD_BLOCK * ahead and problem.N * problem.size >= MIN_PREFETCH_BYTES:
        return Forward(FORWARD_BLOCK, ahead, WARPS, True)
    alone = FORWARD_ALONE if problem.N * problem.size <= SECTOR_BYTES else FORWARD_ALONE_OF_SECTORS
    if positions > (alone if reduced else FORWARD_BLOCK):
        many = positions > FORWARD_BLOCK * MAX_FORWARD_PROGRAMS
        block, warps = MANY_FORWARD_BLOCK if many else FORWARD_BLOCK, WARPS
    return Forward(block, min(max(cdiv(positions, block), 1), MAX_FORWARD_PROGRAMS), warps)


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, C, D, size = problem
    vec = VECTOR_BYTES // size
    neighbours = C if D == 1 else D
    return size, D == 1, vec > neighbours, math.gcd(neighbours, vec)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup("gather", problem, class_of, Configuration, launch_or_none, limits)
    return found or configurations(problem, limits)[0]


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """Legal configurations, one for each launch, by their estimate. The first is the default."""
    found: dict[Gradient, Configuration] = {}
    for candidate in _candidates(problem, limits):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return sorted(found.values(), key=lambda each: estimate(problem, each, limits))[:MAX_CONFIGURATIONS]


def _candidates(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    M, C, D, size = problem
    written = M * C * D * size
    in_memory = D > 1 and written > limits.l2_bytes
    align = _alignment(problem) if in_memory else 0
    if align:
        for warps in (WARPS, 2 * WARPS):
            yield ALIGNED._replace(warps=warps, positions=align)
        return
    odd = size <= 4 and D % 2 == 1 and D >= MIN_ODD_POSITIONS
    if in_memory and odd and ODD_CLASSES[0] <= C <= ODD_CLASSES[1]:
        yield from _images(problem, in_memory)
        return
    short = written > limits.l2_bytes and MIN_AS_THEY_LIE < C and C * size <= MAX_AS_THEY_LIE_BYTES and C % 16 > 0
    # One class: 560712 x 1 float32 5.3 us, in tiles 5.6; 752086 x 1 6.1 and 6.4 (H200).
    if D == 1 and (short or (C == 1 and written > LITTLE_BYTES)):
        yield from _shorts(C)
        return
    for vectors, warps in FILLED:
        yield FILL._replace(vectors=vectors, warps=warps)
    for vectors, warps, positions in TILES:
        # One warp of images has too few bytes on their way to memory.
        # 3 x 44 x 332112 float32: 69.2 us, flat 61.8 (H100).
        if warps > 1 or not in_memory:
            yield TILE._replace(vectors=vectors, warps=warps, positions=positions)
    if D == 1:
        yield from _shorts(C)
        return
    for vectors, per_sm in TILES_OF_IMAGES:
        yield TILE._replace(vectors=vectors, per_sm=per_sm)
    short = LITTLE_BYTES < written <= MAX_SHORT_PAIRED_BYTES
    whole = D * size % SECTOR_BYTES == 0 or D >= MIN_PAIRED or short
    pairs = FLAT_PAIRS if size == 2 and D % 2 == 0 and whole else ()
    tiled = size == 2 and D * size % VECTOR_BYTES == 0 and written >= MAX_PAIRED_BYTES
    for warps, per_sm, positions in (*FLATS, *pairs) if C > 1 and not tiled else ():
        yield FLAT._replace(warps=warps, per_sm=per_sm, positions=positions)
    for warps in IN_ORDERS if size > 2 else ():
        yield IN_ORDER._replace(warps=warps)
        long = warps >= WARPS and MANY_IN_ORDER * WARP * warps <= D
        if size == 4 and D % IN_ORDER.positions > 0 and long and in_memory:
            yield IN_ORDER._replace(warps=warps, positions=MANY_IN_ORDER)
    yield from _images(problem, in_memory)
    for vectors in (2, 4):
        yield SCATTER._replace(vectors=vectors)


def _shorts(classes: int) -> Iterator[Configuration]:
    for vectors, warps in SHORTS:
        yield SHORT._replace(vectors=vectors, warps=warps)
    if classes == 1:
        yield SHORT_OF_ONE_CLASS


def _alignment(problem: Problem) -> int:
    """Elements that divide where a program begins each of its classes, if that is worth it; otherwise 0.

    Shorter images were not timed.
    """
    _, C, D, size = problem
    if size < 4 or D * size % SECTOR_BYTES == 0 or MIN_ODD_POSITIONS > D:
        return 0
    tile = WARPS * WARP * VECTOR_BYTES // size
    for least, align in ((least, each // size) for each, least in MIN_BYTES_OF_ALIGNED.items()):
        idle = (1 - MAX_IDLE) * cdiv(D, tile) * tile > D
        if not idle and C * size * math.gcd(D, align) >= least * align:
            return align
    return 0


def _images(problem: Problem, in_memory: bool) -> Iterator[Configuration]:
    # Classes that begin at the same lane.
    classes = problem.N * math.gcd(problem.K, image_vector(problem)) // image_vector(problem)
    for vectors, warps, per_sm, most in IMAGES_OF_CLASSES:
        # As of tiles. 3 x 117 x 446783 bfloat16: 131 us by one warp, by four 125 (H100).
        if warps > 1 or not in_memory:
            yield IMAGES._replace(vectors=vectors, warps=warps, per_sm=per_sm, classes=min(most, classes))


def gradient_problem(N: int, C: int, D: int, size: int) -> Problem:
    """The gradient's problem. A small [N, 1, D] is planned as N * D rows of one class.
    4 x 1 x 15 float32: 2.81 us, as images 3.16 (H100).
    """
    return Problem(N * D, C, 1, size) if C == 1 and N * D * size <= LITTLE_BYTES else Problem(N, C, D, size)


def gradient(problem: Problem, limits: Limits) -> Gradient:
    """The launch that is chosen, for a problem of at least one element."""
    return launch(problem, choose(problem, limits), limits)
