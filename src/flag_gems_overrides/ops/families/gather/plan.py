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
    Gradient,
    Images,
    Little,
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
    "Gradient",
    "Images",
    "Little",
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
]

# Positions of a program forward: two to a thread, for most of the time is the latency of the target and then of its
# score; fewer where there are fewer, for their sum is of one warp then (4 targets took 3.0 us, torch.compile 2.3). The
# last program adds what the others found, so there are no more than it can load at once. Waiting for others takes most
# of a microsecond, so a program has up to FORWARD_ALONE by itself (H100: 300 targets 3.54 us, by two programs 4.50; 700
# 3.83 and 4.53), with up to MAX_FORWARD_WARPS: 1536 bfloat16 targets of 2d 4.28 by six programs, 3.76 so, 4.05 by 32
# warps, 1624 x 1 float32 3.92, 3.45 and 3.58, 2000 x 3 float64 4.96 and 4.52; but 3900 x 1 float16 4.12 and 4.57. Fewer
# where scores are of a sector each: 1079 x 24 float32 4.74 and 4.49, 1100 x 50 bfloat16 4.85 and 4.49, but 2048 x 1000
# float32 4.92 and 5.14.
FORWARD_BLOCK, FORWARD_ALONE, FORWARD_ALONE_OF_SECTORS, MAX_FORWARD_PROGRAMS = 256, 2048, 1280, 1024
MAX_FORWARD_WARPS = 16
# Where programs have several blocks, four positions to a thread, or few of their loads are on their way: 2 x 1 x 64 x
# 524288 float16 takes 168 us, 211 with two, 166 with eight (PyTorch 264), 75 x 3 x 157759 x 7 bfloat16 339, 421 with
# two (PyTorch 472). Eight spill 8 bytes of float64.
MANY_FORWARD_BLOCK = 512
# Where the scores of a position, of which one is read, have so many bytes, none shares a sector with the next one's,
# and what limits is how many are on their way, not bytes. Then two programs to a multiprocessor load the next targets
# while scores are on their way: 5949 x 64 x 705 float32 takes 117 us so, 127 by 1024 programs of 512 (PyTorch 120),
# 1358390 x 174 float16 55 and 59, 3011803 x 64 91 and 96, 1927 x 454 x 272 bfloat16 22.8 and 24.9, 375472 x 529 18.7
# and 20.1. But 8388608 x 16 bfloat16 133 and 124, 2 x 1 x 64 x 524288 float16 591 and 232 (H100). Of images too: 800 x
# 24 x 2680 float64 65.3 and 68.4, by 528 programs 66.6, 300 x 100 x 10000 float16 86.0, 93.7 and 90.7 (H100).
MIN_PREFETCH_BYTES, PREFETCH_PROGRAMS = 128, 264
# Rows, or all classes of a position, of at least MIN_ROW_VECTORS vectors are filled; the one more store for each
# target is then a small part. bfloat16 18497 x 24 takes 3.3 us so, 4.0 with tile; 262144 x 40 13.2, 14.2 with short;
# but 1048576 x 10 16.4 and 14.4. Images of at least MIN_IMAGE_VECTORS vectors may go by images, whose targets stay in
# registers.
MIN_ROW_VECTORS, MIN_IMAGE_VECTORS = 3, 16
WARPS = 4
# Most positions of an image that is filled, and bytes that a program writes for each position at least: it reads the
# targets of all of its positions.
MAX_FILLED_POSITIONS, BYTES_OF_POSITION = 512, 64
# Images of more bytes than are little, in whole vectors of 16 bits, of up to so many bytes to a position, have tiles of
# single warps: 6441 x 64 x 32 bfloat16 14.3 us, filled 16.0 (H100). No others were timed.
MIN_FILLED_BYTES_OF_POSITION = 128
# Images of so few positions are filled although they are small or whole vectors: a thread has one target of two
# images. 137 x 96 x 48 float32 takes 3.4 us, 3.9 with tile; 16 x 1088 x 12 bfloat16 3.0 and 3.5. But 64 x 150 x 400
# float32 8.9 and 7.9, 4 x 50 x 534 bfloat16 6.5 and 3.7. Of little bytes more: tiles have few of them for their
# targets. 8 x 520 x 72 float32 takes 3.6 us with tile, torch.compile 3.0, with fill 2.9.
FEW_POSITIONS, FEW_POSITIONS_OF_LITTLE = 64, 128
# Not those of 4 or 8 bytes in whole vectors, of at least so many positions and so few bytes to a position that most of
# a tile, of two vectors to a thread, is of an image, and of so many bytes: 11071 x 7 x 64 float64 17.5 us by tile,
# filled 22.0, 20000 x 12 x 64 52.0 and 53.1, 20000 x 14 x 60 float32 31.7 and 36.2; but 263024 x 16 x 6 68.0 and 47.8
# (H100). Fewer positions, but for those, and fewer bytes were not timed.
MIN_POSITIONS_OF_TILE, MAX_TILED_BYTES_OF_POSITION, MAX_TILED_CLASSES, MIN_TILED_IMAGES_BYTES = 48, 96, 16, 32 << 20
TILE_FULL = 3 / 4
# Images of more positions, and of so many classes that a position has MIN_SCATTER_BYTES_OF_POSITION, are filled too if
# the output has at least so many bytes, by 16 vectors to a thread: 1 x 23392 x 1064 bfloat16 takes 21.5 us so, 26.7
# with tile and 24.1 by two launches, 1 x 10000 x 1020 float32 18.0, 19.6 and 20.9, 1 x 6000 x 1020 12.8 and, with tile,
# 13.8, 1 x 66185 x 551 49.8 and, by two launches, 53.0, 1 x 40000 x 1064 bfloat16 32.2 and 34.2 (H100).
MIN_FILLED_BYTES, MAX_FILL_VECTORS = 23 << 20, 16
# Outputs of at least so many bytes, and so many for each position, of more positions than a program that fills reads,
# have all zeros written first, as they lie in memory, and the targets' elements in a second launch. FlagGems does so: 3
# x 10873 x 1980 float32 takes it 63.4 us, 88.8 by images; 2 x 7421 x 5247 74.4 and 99.1. Images and tiles write about
# 3300 bytes a nanosecond, zeros 4250: so they take 64.4 and 75.7 us.
# A position costs so much that half as many bytes of it are about the least: 3 x 512 x 167290 float32 360 us so, 383 by
# images, but 3 x 256 x 167290 202 and 195 (H100). Then there must be more bytes to pay for the second launch: of images
# that are no whole vectors fewer, 90 x 605 x 535 float32 43.9 us so, 59.1 by images, x 963 75.5 and 80.1, 30 x
# 1000 x 1071 46.5 and 61.2; but 90 x 605 x 535 float16 26.0 and 26.0 (H100).
# More than MAX_UNEVEN positions of an image were not timed.
MIN_SCATTER_BYTES, MIN_SCATTER_BYTES_OF_POSITION = 64 << 20, 4096
MIN_SCATTER_BYTES_OF_UNEVEN, MAX_UNEVEN = 96 << 20, 2048
MANY_SCATTER_BYTES, MANY_SCATTER_BYTES_OF_POSITION = 256 << 20, 2048
# Less than MANY_BYTES of whole vectors, of so few positions of so many classes, go by tiles of several classes: 1 x
# 15000 x 2304 bfloat16 takes 29.4 us by two launches, 27.7 so, 2 x 3000 x 4080 float32 38.0 and 36.5, 1 x 8192 x 2184
# 29.4 and 28.7 (H100). Others were not timed.
MIN_CLASSES_OF_TILES, MAX_POSITIONS_OF_TILES = 3000, 8192
# So many classes of such images that are no whole vectors are filled too, with as many vectors to a thread as leave it
# about two targets: 9147 x 6 x 10 bfloat16 takes 3.6 us, 4.2 with tile (torch.compile 3.2), 105 x 3 x 4 3.0 and 3.4.
# Of wider elements and as few classes as a tile has, which are not much more than their targets, so many bytes go by
# tiles of two vectors to a thread: 32768 x 4 x 42 float32 takes 21.3 us filled, 17.8 with tile, 1781 x 3 x 54 3.8 and
# 3.4 (H100). Of fewer bytes tiles were not timed.
MIN_FILLED_CLASSES, MIN_TILED_BYTES = 3, 1 << 20
# Four vectors to a thread: with eight 441 x 177416 bfloat16 takes 40.0 us instead of 39.0 and 5720 x 93 x 17 11.9
# instead of 11.3; with two 128 x 5540 float32 3.5 instead of 3.2.
FILL, SHORT = Configuration("fill", 4, WARPS), Configuration("short", 2, WARPS)
# Rows of at most so many bytes, whose classes are not a multiple of a vector: ``short`` stores aligned vectors that may
# contain the end of one row and the start of the next. Tiles store single elements (2000000 x 3 bfloat16 21.6 us, by
# short 16.2, 1000000 x 5 float16 13.5 and 12.3), and fill stores each target's element twice (300000 x 33 bfloat16 15.3
# and 13.4, 60000 x 129 11.9 and 11.0, 50000 x 95 float32 12.7 and 11.9, but 40000 x 100 bfloat16 6.3 and 6.3). Fill has
# extra work for each row, short for each vector, so the limit is in bytes. Rows of whole vectors keep their tile:
# 136519 x 16 bfloat16 4.5 us, by short 5.4 (H100). Outputs of more bytes of longer rows too (H100): 70000 x 129 float32
# 15.8 us so, filled 17.1, x 101 13.0 and 14.5, 60000 x 201 bfloat16 12.5 and 13.0, x 259 float16 14.3 and 15.3; but
# 30000 x 501 bfloat16 14.2 and 14.1, and of fewer bytes 20000 x 150 float32 7.4 and 6.9.
MAX_SHORT_BYTES, MIN_BYTES_OF_LONGER, MAX_LONGER_BYTES = 384, 22 << 20, 520
# Four vectors to a thread, for half as many programs to start, where these are whole ones, rows have few, and outputs
# so many bytes: 195064 x 21 bfloat16 7.00 us, with two 7.46, 400000 x 10 float32 12.3 and 12.7, 700000 x 7 bfloat16
# 10.8 and 11.0; but 2000000 x 3, halves of vectors, 16.6 and 16.2, 100000 x 65 float32 15.9 and 15.0 (H100). Of fewer
# bytes four were not timed.
MANY_SHORT_BYTES, MAX_BYTES_OF_MANY_SHORT = 7 << 20, 128
# Rows of 4 or 8 bytes to a class of up to so many whole vectors, in outputs of so many bytes, go by short too: 4406240
# x 6 float64 84.7 us so, filled 105, 1000000 x 10 36.0 and 39.0, 2000000 x 12 float32 38.8 and 51.4, with four vectors
# 41.8 (H100).
MAX_SHORT_VECTORS, MIN_SHORT_BYTES = 5, 64 << 20
# Shorter rows of little bytes that are no whole vectors are filled, where they are so many bytes: 35099 x 9 bfloat16
# 3.00 us, with tile 3.79 (H100), 46992 x 11 3.70 and 4.08 (H200). Of whole vectors of 16 bits up to so many bytes have
# tiles: 362447 x 8 bfloat16 6.20 us, by short 6.53 (H100), 136519 x 16 4.42 and 5.27, but 3030101 x 8 41.98 and 39.28
# (H200), 524288 x 16 12.05 and 13.1 (H100).
MIN_FILLED_ROW_BYTES, MAX_TILED_ROW_BYTES = 1 << 17, 16 << 20
SCATTER = Configuration("scatter", FILL.vectors, WARPS)
# One vector to a thread: with two 4 x 30 x 495616 bfloat16 takes 41.9 us instead of 39.3, 2 x 24 x 840 4.1 instead of
# 3.5, and with images 2 x 397 x 42042 26.1 instead of 22.5. Narrow ones of images are two: with four 400 x 18 x 1537
# float32 takes 25.7 us instead of 23.9 (H100).
NARROW_VECTORS = 2
IMAGES, TILE = Configuration("images", 1, WARPS, 8, classes=8), Configuration("tile", 1, WARPS, 8, positions=1024)
# Outputs of so few bytes wait mostly for targets, so that a thread has few: 297 bfloat16 of one class take 2.8 us
# with four to a thread, 3.6 with eight. Of images it has one, in four programs to a multiprocessor: 1 x 5 x 368
# float16 takes 2.85 us so, with two 3.23, by tile 3.2, 17 x 3 x 513 bfloat16 3.27, 3.47 and 3.44, 64 x 19 x 256 float32
# 3.39, 3.59 and 3.57, 1 x 872 x 144 float64 3.51 and, by tile, 3.6. More 16-bit elements than about twice as many
# programs have threads are stored in pairs: 2 x 21 x 4096 bfloat16 3.17 us, one by one 3.58, by tile 3.5, but 1 x 5 x
# 15000 float16 3.50 and 3.22 (H100). So are at least so many images that a program has in pairs, but not one by one,
# in half as many programs: 101 x 3 x 168 float16 2.78 us, one by one 3.09, by one program to each image 3.05 (H100).
LITTLE_BYTES, LITTLE_POSITIONS, MANY_LITTLE, MIN_PAIRED_IMAGES = 2 << 20, 256, 1 << 17, 64
LITTLE = Configuration("little", 1, WARPS, 4, classes=8, positions=WARPS * WARP)
PAIRS = LITTLE._replace(positions=2 * LITTLE.positions)
SMALL = TILE._replace(positions=LITTLE_POSITIONS)
# Odd images of more bytes, of more classes than one tile has but fewer than images, go so with two positions to a
# thread and twice the programs: 1 x 16 x 45059 float32 takes 3.51 us, by images 3.93, by tile 4.35 (torch.compile 3.7,
# H100), 74 x 17 x 1153 bfloat16 4.85, by images 5.66, by tile 6.17. Float32 images that one position to a thread is all
# of have no more: 960 x 10 x 77 4.04 us so, with two 4.40 (H100).
SOME_BYTES = 5 << 20
SOME = LITTLE._replace(positions=LITTLE_POSITIONS, per_sm=2 * LITTLE.per_sm)
# So do images of whole vectors, of so many positions and more classes than one tile has, with two positions to a thread
# only of 16 bits: 128 x 8 x 520 float32 3.19 us, with two 3.27, by tile 3.82 (torch.compile 3.39), 64 x 30 x 640
# 4.70 and 5.06 (H100). Of more positions no such images were timed.
MIN_SOME_POSITIONS, MAX_SOME_POSITIONS = LITTLE.positions, TILE.positions
# So few elements, which one program would fill, go so too: 3 x 16 x 15 bfloat16 2.84 us, filled 3.03 (H100). Of so few
# bytes and positions small images of 4 or 8 bytes are filled by single warps, with a vector to a thread: 1 x 8 x 32
# float32 takes 2.89 us, by small tiles 3.15, 1 x 2 x 2 float64 2.96 and 3.12; but 2 x 14 x 12 float16 2.92 and 2.84, 4
# x 8 x 12 2.98 and 2.91, and by little 1 x 2 x 47 float32 2.98 and 2.84 (H100).
TINY, TINY_BYTES, TINY_POSITIONS = 2048, 1024, WARP
TINY_FILL = FILL._replace(vectors=1, warps=1)
# Of images of so few positions, in words or whole vectors, tiles have all classes, for a program to each class waits
# for the same targets. By little, and so (H100): 2 x 2 x 2 float16 3.07 us and 2.78, 2 x 2 x 4 3.00 and 2.71, bfloat16
# 2.84 and 2.85, 64 x 16 x 24 float16 3.23 and 3.02, 18 x 5 x 24 float64 3.15 and 2.92; but 8 x 3 x 680 float16 3.03 and
# 3.11, 100 x 10 x 32 bfloat16 3.07 and 3.24, 500 x 12 x 16 float16 3.25 and 3.32. Few elements of 16 bits go so too
# where images are longer or odd: 3 x 16 x 15 float16 3.16 and 2.92, 8 x 4 x 40 3.26 and 2.99. More classes were not
# timed.
MAX_SMALL_IMAGE, MAX_SMALL_CLASSES, MAX_SMALL_IMAGES, MAX_TINY_IMAGE = 32, 32, 24576, 64
# Outputs of at least so many bytes get twice the programs, and two vectors to a thread: 17 x 3876 x 2490 float32
# takes 203 us, 240 with one; 16 x 557 x 9056 83 and 87; 1445 x 7 x 26532 bfloat16 254 and 270.
MANY_BYTES = 128 << 20
# So few classes are all in one tile, with few programs to a multiprocessor, so that each target is loaded once: 256 x
# 3 x 2632 float32 takes 8.9 us, 12.6 where two programs divide the classes.
MAX_CLASSES_OF_TILE, FEW_PER_SM = 4, 4
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
    # What is faster for a few elements of one kernel is not for many of another: 223238 x 41 bf16 35 us as 97 x 1547.
    kernel = _default(problem).kernel
    # Tiles write one element after the other where short rows are no whole vectors: 195064 x 21 bf16 17.4 us as
    # 136519 x 16 (FlagGems 10.7, H100).
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
    """The default, and what is worth timing next to it: legal, and each another launch."""
    default = _default(problem)
    others = [FILL, SHORT, TILE] if problem.K == 1 else [FILL, IMAGES, TILE, LITTLE]
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
    """The gradient's problem. A small [N, 1, D] is planned as N * D rows of one class: 4 x 1 x 15 float32 takes 2.81 us
    as rows and 3.16 as images, 3 x 1 x 20000 bfloat16 3.48 and 3.73 (H100).
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
    few = FEW_POSITIONS_OF_LITTLE if little else FEW_POSITIONS
    if D > 1 and TINY >= N * C * D:
        if not _are_small_images(problem):
            return LITTLE
        return TINY_FILL if size > 2 and N * C * D * size <= TINY_BYTES and N * D <= TINY_POSITIONS else SMALL
    uneven = period > 1 and MAX_UNEVEN >= D
    many = N * C * D * size >= (MIN_SCATTER_BYTES_OF_UNEVEN if uneven else MANY_SCATTER_BYTES)
    least = MANY_SCATTER_BYTES_OF_POSITION if many else MIN_SCATTER_BYTES_OF_POSITION
    is_read = power_of_2(min(N, 2) * D) <= 2 * WARPS * WARP * MAX_TARGETS  # all targets, by a program that fills
    large = N * C * D * size >= MIN_FILLED_BYTES and C * size >= MIN_SCATTER_BYTES_OF_POSITION and is_read
    if few < D and N * C * D * size >= MIN_SCATTER_BYTES and C * size >= least and not large:
        tiled = C >= MIN_CLASSES_OF_TILES and N * D <= MAX_POSITIONS_OF_TILES and N * C * D * size < MANY_BYTES
        return SMALL if tiled and period == 1 else SCATTER
    # A row of a power of two of classes is whole vectors of a tile, or all of it.
    longest = MAX_SHORT_BYTES if N * C * size < MIN_BYTES_OF_LONGER else MAX_LONGER_BYTES
    if D == 1 and not little and C % vec and power_of_2(C) > C and C * size <= longest:
        many = vec <= C + 1 and C * size <= MAX_BYTES_OF_MANY_SHORT and N * C * size >= MANY_SHORT_BYTES
        return SHORT._replace(vectors=2 * SHORT.vectors) if many else SHORT
    most = MAX_FILLED_POSITIONS if period > 1 and not little else few
    if MIN_ROW_VECTORS * vec <= C and (most >= D or large):
        if size > 2 and D == 1 and C % vec == 0 and MAX_SHORT_VECTORS * vec >= C and N * C * size >= MIN_SHORT_BYTES:
            return SHORT
        if _fills_tiles(problem):
            return TILE._replace(vectors=2)
        if D > 1 == period and size == 2 and C * size <= MIN_FILLED_BYTES_OF_POSITION and not little:
            return TILE._replace(vectors=2, warps=1)
        # 64 x 600 x 500 bfloat16 spills 8 bytes by four warps (sm_100, Triton 3.7).
        warps = WARPS if MAX_FILLED_POSITIONS >= 2 * D else 2 * WARPS
        vectors = power_of_2(cdiv(BYTES_OF_POSITION * D, warps * WARP * VECTOR_BYTES))
        return FILL._replace(vectors=min(max(FILL.vectors, vectors), MAX_FILL_VECTORS), warps=warps)
    if few >= D > 1 and period > 1 and C >= MIN_FILLED_CLASSES:
        if size > 2 and C <= MAX_CLASSES_OF_TILE and N * C * D * size >= MIN_TILED_BYTES:
            return TILE._replace(vectors=2)
        return FILL._replace(vectors=1 if vec > C else 2)
    if D > 1 and little:
        if _are_small_images(problem):
            return SMALL
        if size > 2 or D % 2:
            return LITTLE
        if MIN_PAIRED_IMAGES <= N and LITTLE.positions < D <= PAIRS.positions:
            return PAIRS._replace(per_sm=LITTLE.per_sm // 2)
        return PAIRS if N * C * D > MANY_LITTLE else LITTLE
    if D == 1 < C and little:
        return FILL if vec <= C and C % vec and N * C * size >= MIN_FILLED_ROW_BYTES else TILE
    if D == 1 and vec <= C:
        tiled = size == 2 and C % vec == 0 and N * C * size <= MAX_TILED_ROW_BYTES
        return TILE._replace(vectors=2) if tiled else SHORT
    # Where images are whole vectors, tiles are faster: 16 x 21 x 256 x 256 bfloat16 16.9 us, 21.2 by ``images``.
    if period > 1 and MIN_IMAGE_VECTORS * vec <= D:
        many = MIN_CLASSES_OF_IMAGES * period <= C
        if D % 2 and not many and C > MAX_CLASSES_OF_TILE and N * C * D * size <= SOME_BYTES:
            return SOME._replace(positions=LITTLE.positions) if size == 4 and LITTLE.positions >= D else SOME
        if many or image_vector(problem) < vec:
            return _images(problem)
    # A class alone has a target for each element: 1972089 x 1 float16 takes 12.4 us with one vector to a thread, by
    # four warps 13.8, with two vectors 17.8.
    if C == D == 1:
        # 5368 x 1 bfloat16 2.71 us by four warps, 2.98 by one (torch.compile 2.95, H100).
        return SMALL if little else TILE._replace(warps=1)
    if C > MAX_CLASSES_OF_TILE:
        if period == 1 and MIN_SOME_POSITIONS <= D <= MAX_SOME_POSITIONS and N * C * D * size <= SOME_BYTES:
            return SOME if size == 2 else SOME._replace(positions=LITTLE.positions)
        return TILE._replace(vectors=TILE.vectors * times, per_sm=TILE.per_sm * times)
    # 373 x 1 x 88009 float32 takes 123 us by one warp of four vectors to a thread, 143 by four of two.
    if C == 1 and size > 2:
        return TILE._replace(vectors=4, warps=1)
    # A target is loaded once if all classes are in its tile: 71 x 3 x 3573 x 2 bfloat16 takes 6.5 us with four vectors,
    # 8.9 with two, 8 x 2 x 4805 6.1 and 4.0.
    of_thread = power_of_2(C) * TILE.positions // (TILE.warps * WARP * vec)
    return TILE._replace(vectors=min(max(of_thread, 1), 4 if size < 8 else 2), per_sm=FEW_PER_SM)


def _images(problem: Problem) -> Configuration:
    N, C, D, size = problem
    vec = image_vector(problem)
    times = 2 if N * C * D * size >= MANY_BYTES else 1
    of_thread = IMAGES.vectors * times if vec * size == VECTOR_BYTES else NARROW_VECTORS
    # Not more than an image has: 1 x 116201 x 293 float32 takes 47.6 us with 64 of its 74 vectors, 62.5 with 128.
    # Two to a thread of one warp are all of it: 117 x 11725 x 77 x 2 float32 315 us, in two parts 554.
    of_image, of_warp = cdiv(D, vec), of_thread * WARP
    vectors = power_of_2(of_image if of_image <= 2 * WARP else of_image // 2 + 1)
    vectors = max(min(vectors, WARPS * of_warp), WARP)
    warps = max(1, min(WARPS, vectors // of_warp))
    per_sm = IMAGES.per_sm * times * WARPS // warps
    classes = min(IMAGES.classes, C * math.gcd(D, vec) // vec)
    return IMAGES._replace(vectors=vectors // (warps * WARP), warps=warps, per_sm=per_sm, classes=classes)


def _fills_tiles(problem: Problem) -> bool:
    """Whether images of few positions, of 4 or 8 bytes, have tiles that they fill."""
    N, C, D, size = problem
    few = C <= MAX_TILED_CLASSES and C * size <= MAX_TILED_BYTES_OF_POSITION
    full = TILE_FULL * power_of_2(C) <= C and MIN_POSITIONS_OF_TILE <= D <= FEW_POSITIONS
    whole = size > 2 and D % (VECTOR_BYTES // size) == 0
    return whole and few and full and N * C * D * size >= MIN_TILED_IMAGES_BYTES


def _are_small_images(problem: Problem) -> bool:
    N, C, D, size = problem
    elements, vec = N * C * D, VECTOR_BYTES // size
    tiny = elements <= TINY
    whole = D % vec == 0 or (tiny and (D % 2 == 0 or size == 2))
    max_image = MAX_TINY_IMAGE if tiny and size == 2 else MAX_SMALL_IMAGE
    return whole and 1 < D <= max_image and C <= MAX_SMALL_CLASSES and elements <= MAX_SMALL_IMAGES
