# SPDX-License-Identifier: Apache-2.0
"""How nll_loss is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from ...plans import table
from .launches import (
    MAX_BLOCK,
    MAX_TARGETS,
    MIN_CLASSES_OF_IMAGES,
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
    estimate,
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
# Such programs: two for each multiprocessor of an H100.
PREFETCH_PROGRAMS = 264
# Vectors of a row, or of all classes of a position, that are filled at least: the second store for each target is then
# a small part. 18497 x 24 bfloat16: 3.3 us, by tile 4.0; 1048576 x 10 bfloat16, below: 16.4 us, by short 14.4.
MIN_ROW_VECTORS = 3
# Vectors of an image at least that may go by ``images``, whose targets stay in registers.
MIN_IMAGE_VECTORS = 16
# Warps of a program.
WARPS = 4
# Positions at most of an image that is filled.
MAX_FILLED_POSITIONS = 512
# Bytes at least that a program writes for each position: it reads the targets of all of its positions.
BYTES_OF_POSITION = 64
# Bytes of a position at most for which images of 16 bits, in whole vectors, have tiles of single warps.
# 6441 x 64 x 32 bfloat16: 14.3 us, filled 16.0 (H100).
MIN_FILLED_BYTES_OF_POSITION = 128
# Positions at most of images that are filled although they are small or whole vectors.
# 64 x 150 x 400 float32, above the bound: 8.9 us, by tile 7.9.
FEW_POSITIONS = 64
# Bytes of the output at least for images of more positions to be filled, if a position has
# MIN_SCATTER_BYTES_OF_POSITION. 1 x 23392 x 1064 bfloat16: 21.5 us, by tile 26.7, by two launches 24.1 (H100).
MIN_FILLED_BYTES = 23 << 20
# Vectors of a thread that fills, at most.
MAX_FILL_VECTORS = 16

# Scatter: one launch writes zeros to the whole output, as it lies in memory, and a second the targets' elements. Images
# and tiles write about 3300 bytes a nanosecond, zeros 4250. Each position costs time in the second launch.

# Bytes of the output at least, for images of more positions than a program that fills reads.
MIN_SCATTER_BYTES = 64 << 20
# Bytes of a position at least.
MIN_SCATTER_BYTES_OF_POSITION = 4096
# Bytes of the output at least for half as many bytes to a position, where images are no whole vectors.
# 90 x 605 x 535 float32: 43.9 us, by images 59.1; 90 x 605 x 535 float16: 26.0 us, by images 26.0 (H100).
MIN_SCATTER_BYTES_OF_UNEVEN = 96 << 20
# Positions of such an image at most. More were not timed.
MAX_UNEVEN = 2048
# Bytes of any other output at least for half as many bytes to a position.
MANY_SCATTER_BYTES = 256 << 20
# Bytes of a position at least, in these large outputs.
# 3 x 512 x 167290 float32: 360 us, by images 383; 3 x 256 x 167290 float32: 202 us, by images 195 (H100).
MANY_SCATTER_BYTES_OF_POSITION = 2048
# Classes at least for which whole vectors of less than MANY_BYTES go by tiles of several classes, not by two launches.
# 1 x 15000 x 2304 bfloat16: 27.7 us, by two launches 29.4 (H100).
MIN_CLASSES_OF_TILES = 3000
# Positions of all images at most, for these. Others were not timed.
MAX_POSITIONS_OF_TILES = 8192
# Classes at least of images of a few positions that are no whole vectors, to be filled. A thread has as many vectors as
# leave it about two targets.
MIN_FILLED_CLASSES = 3
# Four vectors to a thread. 441 x 177416 bfloat16: 39.0 us, with eight 40.0; 128 x 5540 float32: 3.2 us, with two 3.5.
FILL = Configuration("fill", 4, WARPS)
# Short stores aligned vectors, which may contain the end of one row and the start of the next. Tiles would store single
# elements, and fill each target's element twice. 2000000 x 3 bfloat16: 16.2 us, by tile 21.6 (H100).
SHORT = Configuration("short", 2, WARPS)
# Bytes of a row at most that goes by short: fill has extra work for each row, short for each vector.
# 60000 x 129 bfloat16: 11.0 us, filled 11.9; 20000 x 150 float32, above the bound: 7.4 us, filled 6.9 (H100).
MAX_SHORT_BYTES = 384
# Bytes of the output from which longer rows go by short too.
MIN_BYTES_OF_LONGER = 22 << 20
# Bytes of these rows at most. 70000 x 129 float32: 15.8 us, filled 17.1; 30000 x 501 bfloat16, above the bound: 14.2
# us, filled 14.1 (H100).
MAX_LONGER_BYTES = 520
# Bytes of the output from which short has four vectors to a thread: half as many programs start. Fewer were not timed.
# 195064 x 21 bfloat16: 7.00 us, with two vectors 7.46 (H100).
MANY_SHORT_BYTES = 7 << 20
# Bytes of a row at most, for these. 100000 x 65 float32, above the bound: 15.9 us, with two vectors 15.0 (H100).
MAX_BYTES_OF_MANY_SHORT = 128
# Vectors of a row at most that goes by short, where rows of 4 or 8 bytes to a class are whole vectors.
# 4406240 x 6 float64: 84.7 us, filled 105 (H100).
MAX_SHORT_VECTORS = 5
# Bytes of the output at least, for these. Fewer were not timed.
MIN_SHORT_BYTES = 24 << 20
# Bytes of a small output from which its rows are filled, if they are no whole vectors.
# 35099 x 9 bfloat16: 3.00 us, by tile 3.79 (H100).
MIN_FILLED_ROW_BYTES = 1 << 17
# Bytes of the output up to which short rows of whole vectors of 16 bits have tiles.
# 362447 x 8 bfloat16: 6.20 us, by short 6.53 (H100); 3030101 x 8 bfloat16: 41.98 us, by short 39.28 (H200).
MAX_TILED_ROW_BYTES = 16 << 20
SCATTER = Configuration("scatter", FILL.vectors, WARPS)
# Vectors of a thread that are narrow, by images. 400 x 18 x 1537 float32: 23.9 us, with four vectors 25.7 (H100).
NARROW_VECTORS = 2
# One vector to a thread. 2 x 397 x 42042 bfloat16: 22.5 us, with two 26.1.
IMAGES = Configuration("images", 1, WARPS, 8, classes=8)
# One vector to a thread. 4 x 30 x 495616 bfloat16: 39.3 us, with two 41.9.
TILE = Configuration("tile", 1, WARPS, 8, positions=1024)
# Bytes of a small output at most: it waits mostly for targets.
LITTLE_BYTES = 2 << 20
# Positions of a tile of such an output: a thread has few. 297 x 1 bfloat16: 2.8 us with four to a thread, 3.6 with
# eight.
LITTLE_POSITIONS = 256
SMALL = TILE._replace(positions=LITTLE_POSITIONS)
# Bytes of the output up to which images that are not filled go flat.
SOME_BYTES = 5 << 20
# A thread has as many classes of a position as leave a multiprocessor about four programs.
# 5 x 256 x 1122 bfloat16: 3.92 us, by tile 5.40 (H100).
FLAT = Configuration("flat", 1, WARPS, 4, classes=16, positions=1)
# The same for pairs of positions of 16 bits.
PAIRS = FLAT._replace(positions=2)
# Bytes of a small output of odd images of 16 bits from which it is filled: flat would store single elements.
# 500 x 60 x 31 bfloat16: 3.47 us, flat 4.00.
MIN_ODD_BYTES = 1 << 20
# Elements of 4 or 8 bytes as they lie in memory, in place of tiles: to load a target for each of them costs little.
# 5 x 96 x 494848 float32: 310 us, by tile 330; 373 x 1 x 88009 float32, no whole vectors of targets: 141 us, by tile
# 137 (H100).
IN_ORDER = FLAT._replace(classes=1, positions=4)
# Bytes of a position at most for which images of few positions go in order: fill writes most sectors twice.
# 263024 x 16 x 6 float32: 42.3 us, filled 47.2 (H100).
MAX_BYTES_IN_ORDER = 96
# Bytes of the output from which tiles and images have twice the programs, and two vectors to a thread.
# 17 x 3876 x 2490 float32: 203 us, with one vector 240.
MANY_BYTES = 128 << 20
# Classes at most that are all in one tile: each target is loaded once.
# 256 x 3 x 2632 float32: 8.9 us, with the classes of two programs 12.6.
MAX_CLASSES_OF_TILE = 4
# Programs of a multiprocessor with such tiles.
FEW_PER_SM = 4
# Registers of a thread of images: with 128, 8 bytes spill (3 x 271 x 334 x 21 bfloat16, sm_100, Triton 3.6).
ROW_REGISTERS = 168


class Forward(NamedTuple):
    block: int
    programs: int
    warps: int
    prefetch: bool = False


def forward(problem: Problem, reduced: bool) -> Forward:
    positions = problem.M * problem.K
    block = max(power_of_2(positions), WARP)
    warps = min(max(block // (2 * WARP), 1), MAX_FORWARD_WARPS)
    if positions > FORWARD_BLOCK * PREFETCH_PROGRAMS and problem.N * problem.size >= MIN_PREFETCH_BYTES:
        return Forward(FORWARD_BLOCK, PREFETCH_PROGRAMS, WARPS, True)
    alone = FORWARD_ALONE if problem.N * problem.size <= SECTOR_BYTES else FORWARD_ALONE_OF_SECTORS
    if positions > (alone if reduced else FORWARD_BLOCK):
        many = positions > FORWARD_BLOCK * MAX_FORWARD_PROGRAMS
        block, warps = MANY_FORWARD_BLOCK if many else FORWARD_BLOCK, WARPS
    return Forward(block, min(max(cdiv(positions, block), 1), MAX_FORWARD_PROGRAMS), warps)


def class_of(problem: Problem) -> tuple[int | bool | str, ...]:
    _, C, D, size = problem
    vec = VECTOR_BYTES // size
    # What is faster with one kernel is not with another. 223238 x 41 bfloat16: 35 us with the choice for 97 x 1547.
    kernel = _default(problem).kernel
    # Tiles write single elements where short rows are no whole vectors. 195064 x 21 bfloat16: 17.4 us with the choice
    # for 136519 x 16, FlagGems 10.7 (H100).
    of_vector = math.gcd(C if kernel == "short" else D, vec)
    return size, D == 1, vec > C if D == 1 else vec > D, of_vector, kernel


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
    """The default first, then other legal configurations worth timing, one for each launch."""
    default = _default(problem)
    others = [FILL, SHORT, TILE] if problem.K == 1 else [FILL, IMAGES, TILE, FLAT, IN_ORDER]
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
    candidates += [FILL._replace(vectors=1), FILL._replace(vectors=16, warps=8)]
    candidates += [SCATTER] if problem.K > 1 else []
    found: dict[Gradient, Configuration] = {}
    for candidate in candidates:
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def gradient_problem(N: int, C: int, D: int, size: int) -> Problem:
    """The gradient's problem. A small [N, 1, D] is planned as N * D rows of one class.
    4 x 1 x 15 float32: 2.81 us, as images 3.16 (H100).
    """
    return Problem(N * D, C, 1, size) if C == 1 and N * D * size <= LITTLE_BYTES else Problem(N, C, D, size)


def gradient(problem: Problem, limits: Limits) -> Gradient:
    """The launch that is chosen, for a problem of at least one element."""
    return launch(problem, choose(problem, limits), limits)


def _default(problem: Problem) -> Configuration:
    N, C, D, size = problem
    vec = VECTOR_BYTES // size
    period = vec // math.gcd(D, vec)
    little, times = N * C * D * size <= LITTLE_BYTES, 2 if N * C * D * size >= MANY_BYTES else 1
    flat = PAIRS if size == 2 and D % 2 == 0 else FLAT
    odd = size == 2 and D % 2 and D <= FEW_POSITIONS and N * C * D * size >= MIN_ODD_BYTES
    if D > 1 and little and not (odd and C >= MIN_FILLED_CLASSES):
        return flat
    uneven = period > 1 and MAX_UNEVEN >= D
    many = N * C * D * size >= (MIN_SCATTER_BYTES_OF_UNEVEN if uneven else MANY_SCATTER_BYTES)
    least = MANY_SCATTER_BYTES_OF_POSITION if many else MIN_SCATTER_BYTES_OF_POSITION
    is_read = power_of_2(min(N, 2) * D) <= 2 * WARPS * WARP * MAX_TARGETS  # all targets, by a program that fills
    large = N * C * D * size >= MIN_FILLED_BYTES and C * size >= MIN_SCATTER_BYTES_OF_POSITION and is_read
    if FEW_POSITIONS < D and N * C * D * size >= MIN_SCATTER_BYTES and C * size >= least and not large:
        tiled = C >= MIN_CLASSES_OF_TILES and N * D <= MAX_POSITIONS_OF_TILES and N * C * D * size < MANY_BYTES
        return SMALL if tiled and period == 1 else SCATTER
    # Where the number of classes is a power of two, a row is whole vectors of a tile, or all of it.
    longest = MAX_SHORT_BYTES if N * C * size < MIN_BYTES_OF_LONGER else MAX_LONGER_BYTES
    if D == 1 and not little and C % vec and power_of_2(C) > C and C * size <= longest:
        many = vec <= C + 1 and C * size <= MAX_BYTES_OF_MANY_SHORT and N * C * size >= MANY_SHORT_BYTES
        return SHORT._replace(vectors=2 * SHORT.vectors) if many else SHORT
    most = MAX_FILLED_POSITIONS if period > 1 else FEW_POSITIONS
    in_order = size > 2 and N * C * D + MAX_BLOCK < 2**31 and (C > 1 or N * D % vec == 0)
    if in_order and most >= D > 1 and C * size <= MAX_BYTES_IN_ORDER:
        return IN_ORDER if C == 1 or N * C * D * size > SOME_BYTES else FLAT
    if MIN_ROW_VECTORS * vec <= C and (most >= D or large):
        if size > 2 and D == 1 and C % vec == 0 and MAX_SHORT_VECTORS * vec >= C and N * C * size >= MIN_SHORT_BYTES:
            return SHORT
        if D > 1 == period and size == 2 and C * size <= MIN_FILLED_BYTES_OF_POSITION:
            return TILE._replace(vectors=2, warps=1)
        # 64 x 600 x 500 bfloat16 spills 8 bytes by four warps (sm_100, Triton 3.7).
        warps = WARPS if MAX_FILLED_POSITIONS >= 2 * D else 2 * WARPS
        vectors = power_of_2(cdiv(BYTES_OF_POSITION * D, warps * WARP * VECTOR_BYTES))
        return FILL._replace(vectors=min(max(FILL.vectors, vectors), MAX_FILL_VECTORS), warps=warps)
    if FEW_POSITIONS >= D > 1 and period > 1 and C >= MIN_FILLED_CLASSES:
        return FILL._replace(vectors=1 if vec > C else 2)
    if D > 1 < C and N * C * D * size <= SOME_BYTES:
        return flat
    if D == 1 < C and little:
        return FILL if vec <= C and C % vec and N * C * size >= MIN_FILLED_ROW_BYTES else TILE
    if D == 1 and vec <= C:
        tiled = size == 2 and C % vec == 0 and N * C * size <= MAX_TILED_ROW_BYTES
        return TILE._replace(vectors=2) if tiled else SHORT
    # Tiles are faster where images are whole vectors. 16 x 21 x 256 x 256 bfloat16: 16.9 us, by ``images`` 21.2.
    many = MIN_CLASSES_OF_IMAGES * period <= C or image_vector(problem) < vec
    if period > 1 and MIN_IMAGE_VECTORS * vec <= D and many:
        return _images(problem)
    # A class alone has a target for each element. 1972089 x 1 float16: 12.4 us by one warp with one vector to a thread,
    # 13.8 by four warps.
    if C == D == 1:
        # 5368 x 1 bfloat16: 2.71 us by four warps, 2.98 by one (H100).
        return SMALL if little else TILE._replace(warps=1)
    few_classes = 1 < C <= MAX_CLASSES_OF_TILE and size == 4 and period == 1
    if in_order and D > 1 and not few_classes:
        return IN_ORDER
    if C > MAX_CLASSES_OF_TILE:
        return TILE._replace(vectors=TILE.vectors * times, per_sm=TILE.per_sm * times)
    # 373 x 1 x 88009 float32: 123 us by one warp with four vectors to a thread, 143 by four warps with two.
    if C == 1 and size > 2:
        return TILE._replace(vectors=4, warps=1)
    # A target is loaded once if all classes are in its tile.
    # 71 x 3 x 3573 x 2 bfloat16: 6.5 us with four vectors, 8.9 with two; 8 x 2 x 4805: 6.1 us with four, 4.0 with two.
    of_thread = power_of_2(C) * TILE.positions // (TILE.warps * WARP * vec)
    return TILE._replace(vectors=min(max(of_thread, 1), 4 if size < 8 else 2), per_sm=FEW_PER_SM)


def _images(problem: Problem) -> Configuration:
    N, C, D, size = problem
    vec = image_vector(problem)
    times = 2 if N * C * D * size >= MANY_BYTES else 1
    of_thread = IMAGES.vectors * times if vec * size == VECTOR_BYTES else NARROW_VECTORS
    # At most the vectors of an image. 1 x 116201 x 293 float32: 47.6 us with 64 of its 74 vectors, 62.5 with 128.
    # One warp has all of an image of up to 64. 117 x 11725 x 77 x 2 float32: 315 us, in two parts 554.
    of_image, of_warp = cdiv(D, vec), of_thread * WARP
    vectors = power_of_2(of_image if of_image <= 2 * WARP else of_image // 2 + 1)
    vectors = max(min(vectors, WARPS * of_warp), WARP)
    warps = max(1, min(WARPS, vectors // of_warp))
    per_sm = IMAGES.per_sm * times * WARPS // warps
    classes = min(IMAGES.classes, C * math.gcd(D, vec) // vec)
    return IMAGES._replace(vectors=vectors // (warps * WARP), warps=warps, per_sm=per_sm, classes=classes)
