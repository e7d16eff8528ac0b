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
# Images of so few positions are filled although they are small or whole vectors: 64 x 150 x 400 float32 8.9 us so and
# 7.9 by tile.
FEW_POSITIONS = 64
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
# about two targets.
MIN_FILLED_CLASSES = 3
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
# x 6 float64 84.7 us so, filled 105, 1000000 x 10 36.0 and 39.0, 350000 x 10 16.4 and 18.0, 800000 x 16 float32 25.8
# and 28.6 (H100). Fewer bytes were not timed.
MAX_SHORT_VECTORS, MIN_SHORT_BYTES = 5, 24 << 20
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
# with four to a thread, 3.6 with eight.
LITTLE_BYTES, LITTLE_POSITIONS = 2 << 20, 256
SMALL = TILE._replace(positions=LITTLE_POSITIONS)
# All images of so few bytes, and others up to SOME_BYTES that are not filled, go flat: a thread has so many classes of
# a position, of 16 bits of a pair, that about four programs to a multiprocessor have all. H100, by grids of tiles and
# so: 27 x 11 x 36 float16 2.88 us and 2.69, 1 x 4 x 16384 3.00 and 2.87, 5 x 256 x 1122 bfloat16 5.40 and 3.92, with
# one class to a thread 4.96.
SOME_BYTES = 5 << 20
FLAT = Configuration("flat", 1, WARPS, 4, classes=16, positions=1)
PAIRS = FLAT._replace(positions=2)
# Of 16 bits, odd images are stored one element after the other so: 500 x 60 x 31 bfloat16 takes 4.00 us, filled 3.47,
# 20057 x 9 x 3 float16 5.19, filled not timed (torch.compile 3.77).
MIN_ODD_BYTES = 1 << 20
# Wide elements that are written by tiles otherwise are written as they lie in memory, where it is no more to load a
# target for each of them: 5 x 96 x 494848 float32 330 us by tile and 310 so, 64 x 150 x 400 10.0 both, 29 x 8 x 30741
# float64 25.9 and 23.4, 8 x 136 x 6712 24.5 both, 7176 x 3 x 205 float32 14.2 and 13.3, 163 x 1 x 12616 15.4 and 14.8
# (H100). But 373 x 1 x 88009, no whole vectors of targets, 137 and 141; a few classes in whole vectors of float32 were
# not timed. So are images of few positions and bytes to each, of which fill writes most sectors twice: 263024 x 16 x 6
# 47.2 and 42.3.
IN_ORDER, MAX_BYTES_IN_ORDER = FLAT._replace(classes=1, positions=4), 96
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
    # A row of a power of two of classes is whole vectors of a tile, or all of it.
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
    # Where images are whole vectors, tiles are faster: 16 x 21 x 256 x 256 bfloat16 16.9 us, 21.2 by ``images``.
    many = MIN_CLASSES_OF_IMAGES * period <= C or image_vector(problem) < vec
    if period > 1 and MIN_IMAGE_VECTORS * vec <= D and many:
        return _images(problem)
    # A class alone has a target for each element: 1972089 x 1 float16 takes 12.4 us with one vector to a thread, by
    # four warps 13.8, with two vectors 17.8.
    if C == D == 1:
        # 5368 x 1 bfloat16 2.71 us by four warps, 2.98 by one (torch.compile 2.95, H100).
        return SMALL if little else TILE._replace(warps=1)
    few_classes = 1 < C <= MAX_CLASSES_OF_TILE and size == 4 and period == 1
    if in_order and D > 1 and not few_classes:
        return IN_ORDER
    if C > MAX_CLASSES_OF_TILE:
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
