# SPDX-License-Identifier: Apache-2.0
"""How nll_loss is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from ...plans import table
from ..softmax import launches as softmax
from .launches import (
    MAX_BLOCK,
    MAX_GRID,
    MAX_TARGETS,
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
    "cross_entropy",
    "cross_entropy_gradient",
    "estimate",
    "forward",
    "gradient",
    "gradient_problem",
    "is_whole",
    "launch",
    "writes_gradient",
]

# Positions of a program forward: two to a thread, for most of the time is the latency of the target and then of its
# score; fewer where there are fewer, for their sum is of one warp then (4 targets took 3.0 us, torch.compile 2.3). The
# last program adds what the others found, so there are no more than it can load at once. Waiting for others takes a
# microsecond (256 targets 3.6 us, two programs of them 4.6), so a program has up to FORWARD_ALONE by itself (H100: 480
# targets 4.4 us, by two programs 5.1; 768 4.4 and 5.0).
FORWARD_BLOCK, FORWARD_ALONE, MAX_FORWARD_PROGRAMS = 256, 1024, 1024
# Where programs have several blocks, four positions to a thread, or few of their loads are on their way: 2 x 1 x 64 x
# 524288 float16 takes 168 us, 211 with two, 166 with eight (PyTorch 264), 75 x 3 x 157759 x 7 bfloat16 339, 421 with
# two (PyTorch 472). Eight spill 8 bytes of float64.
MANY_FORWARD_BLOCK = 512
# Rows, or all classes of a position, of at least MIN_ROW_VECTORS vectors are filled; the one more store for each
# target is then a small part. bfloat16 18497 x 24 takes 3.3 us so, 4.0 with tile; 262144 x 40 13.2, 14.2 with short;
# but 1048576 x 10 16.4 and 14.4. Images of at least MIN_IMAGE_VECTORS vectors may go by images, whose targets stay in
# registers.
MIN_ROW_VECTORS, MIN_IMAGE_VECTORS = 3, 16
WARPS = 4
# Most positions of an image that is filled, and bytes that a program writes for each position at least: it reads the
# targets of all of its positions.
MAX_FILLED_POSITIONS, BYTES_OF_POSITION = 512, 64
# Images of so few positions are filled although they are small or whole vectors: a thread has one target of two
# images. 137 x 96 x 48 float32 takes 3.4 us, 3.9 with tile; 16 x 1088 x 12 bfloat16 3.0 and 3.5. But 64 x 150 x 400
# float32 8.9 and 7.9, 4 x 50 x 534 bfloat16 6.5 and 3.7. Of little bytes more: tiles have few of them for their
# targets. 8 x 520 x 72 float32 takes 3.6 us with tile, torch.compile 3.0, with fill 2.9.
FEW_POSITIONS, FEW_POSITIONS_OF_LITTLE = 64, 128
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
# images, but 3 x 256 x 167290 202 and 195 (H100). Then there must be more bytes to pay for the second launch.
MIN_SCATTER_BYTES, MIN_SCATTER_BYTES_OF_POSITION = 64 << 20, 4096
MANY_SCATTER_BYTES, MANY_SCATTER_BYTES_OF_POSITION = 256 << 20, 2048
# So many classes of such images that are no whole vectors are filled too, with as many vectors to a thread as leave it
# about two targets: 9147 x 6 x 10 bfloat16 takes 3.6 us, 4.2 with tile (torch.compile 3.2), 105 x 3 x 4 3.0 and 3.4.
# Of wider elements and as few classes as a tile has, which are not much more than their targets, so many bytes go by
# tiles of two vectors to a thread: 32768 x 4 x 42 float32 takes 21.3 us filled, 17.8 with tile, 1781 x 3 x 54 3.8 and
# 3.4 (H100). Of fewer bytes tiles were not timed.
MIN_FILLED_CLASSES, MIN_TILED_BYTES = 3, 1 << 20
# Four vectors to a thread: with eight 441 x 177416 bfloat16 takes 40.0 us instead of 39.0 and 5720 x 93 x 17 11.9
# instead of 11.3; with two 128 x 5540 float32 3.5 instead of 3.2.
FILL, SHORT = Configuration("fill", 4, WARPS), Configuration("short", 2, WARPS)
# Rows of no whole vectors, of up to so many classes, go by vectors wherever rows begin: tiles write one element after
# the other (2000000 x 3 bfloat16 21.6 us, by short 16.2, 1000000 x 5 float16 13.5 and 12.3), and of what is filled each
# target's element is written twice (300000 x 33 bfloat16 15.3 and 13.4, 60000 x 129 11.9 and 11.0, 50000 x 95 float32
# 12.7 and 11.9, but 40000 x 100 bfloat16 6.3 and 6.3). What fill does once more is for each row, what short does for
# each vector, so this is a limit of bytes. Whole vectors are better as they were: 136519 x 16 bfloat16 4.5 us by a
# tile, by short 5.4 (H100).
MAX_SHORT_BYTES = 384
# Four vectors to a thread, for half as many programs to start, where these are whole ones, rows have few, and outputs
# so many bytes: 195064 x 21 bfloat16 7.00 us, with two 7.46, 400000 x 10 float32 12.3 and 12.7, 700000 x 7 bfloat16
# 10.8 and 11.0; but 2000000 x 3, halves of vectors, 16.6 and 16.2, 100000 x 65 float32 15.9 and 15.0 (H100). Of fewer
# bytes four were not timed.
MANY_SHORT_BYTES, MAX_BYTES_OF_MANY_SHORT = 7 << 20, 128
SCATTER = Configuration("scatter", FILL.vectors, WARPS)
# One vector to a thread: with two 4 x 30 x 495616 bfloat16 takes 41.9 us instead of 39.3, 2 x 24 x 840 4.1 instead of
# 3.5, and with images 2 x 397 x 42042 26.1 instead of 22.5. images: at least 8 classes to a program, for a target has
# 8 bytes and the gradients of 8 classes 16 or more. Fewer where images begin anywhere and have too few, for tiles write
# these one element after the other: 4 x 29 x 79817 x 3 float32 takes 47.9 us with 4, 76.2 with tile (torch.compile
# 58.2), 3 x 40 x 50001 bfloat16 12.6 with 5 and 12.7; but 8 x 9 x 80002 float32 16.1 with 4 and 15.3 (H100).
MIN_CLASSES_OF_IMAGES = 5
IMAGES, TILE = Configuration("images", 1, WARPS, 8, classes=8), Configuration("tile", 1, WARPS, 8, positions=1024)
# Outputs of so few bytes wait mostly for targets, so that a thread has few: 297 bfloat16 of one class take 2.8 us
# with four to a thread, 3.6 with eight. Of images it has one, in four programs to a multiprocessor: 1 x 5 x 368
# float16 takes 2.85 us so, with two 3.23, by tile 3.2, 17 x 3 x 513 bfloat16 3.27, 3.47 and 3.44, 64 x 19 x 256 float32
# 3.39, 3.59 and 3.57, 1 x 872 x 144 float64 3.51 and, by tile, 3.6. More 16-bit elements than about twice as many
# programs have threads are stored in pairs: 2 x 21 x 4096 bfloat16 3.17 us, one by one 3.58, by tile 3.5, but 1 x 5 x
# 15000 float16 3.50 and 3.22 (H100).
LITTLE_BYTES, LITTLE_POSITIONS, MANY_LITTLE = 2 << 20, 256, 1 << 17
LITTLE = Configuration("little", 1, WARPS, 4, classes=8, positions=WARPS * WARP)
# So few elements, which one program would fill, go so too: 3 x 16 x 15 bfloat16 2.84 us, filled 3.03 (H100).
TINY = 2048
# Outputs of at least so many bytes get twice the programs, and two vectors to a thread: 17 x 3876 x 2490 float32
# takes 203 us, 240 with one; 16 x 557 x 9056 83 and 87; 1445 x 7 x 26532 bfloat16 254 and 270.
MANY_BYTES = 128 << 20
# So few classes are all in one tile, with few programs to a multiprocessor, so that each target is loaded once: 256 x
# 3 x 2632 float32 takes 8.9 us, 12.6 where two programs divide the classes.
MAX_CLASSES_OF_TILE, FEW_PER_SM = 4, 4
ROW_REGISTERS, MAX_REGISTERS = 168, 255
# Cross entropy: rows of at most MAX_WHOLE_BYTES are held whole, in tiles of WHOLE_TILE elements, by at most so many
# programs (the sums of 4096 programs spill 8 bytes in a gradient with the loss, 1048576 x 10 bf16). 20000 x 700 bf16
# takes 38.2 us so, 45.6 in a loop. Of float64 twice as many, for a loop takes more exponentials: 54952 x
# 431 takes 148 us so, 221 in a loop (PyTorch 156).
MAX_WHOLE_BYTES, WHOLE_TILE, MAX_LOGITS_PROGRAMS = 2048, 1024, 2048
# More rows than so many programs have at once are done in loops, whose next tile is on its way: LOOPED_PER_SM programs
# of a multiprocessor with LOOPED_TILE_BYTES each, targets included, are the 32 KB that it takes to hide a microsecond;
# a thread loads at most LOOPED_PIECES / 128 pieces. Of float64, or if a gradient is wanted (then of half a tile each),
# half the programs, for these take twice the registers. 149385 x 320 bfloat16 takes 80 us (one tile after the other
# 122; with half the bytes 87, with 6 programs 78; torch.compile 86), 1422493 x 9 72 us (108, 79 and 70); to read them
# takes 22 and 6.
LOOPED_TILE_BYTES, LOOPED_PIECES, LOOPED_PER_SM, TARGET_BYTES = 4608, 1024, 8, 8
# Of fewer rows than that which still are more programs than so many, each has as many tiles as the others: 1643 x 723
# float16 takes 8.4 us by 822 programs, 8.6 by 548, 10.2 by 1643 (H100).
# Iterations of a program at least, unless its tile is small.
LOOPED_ITERATIONS = 4
# Where all programs run at once most of the time is that of fetching instructions, about 2.8 us for 1000 of them: 8 x
# 11 float32 takes 3.5 us (472 instructions), 8 x 17 float16 4.7 (904), 8 x 97 float32 5.1 (1024), 1 x 31 float32 2.8
# (144). A thread has most for each piece of a row that it loads by itself, so there are as many warps as leave it one;
# and one program of so many pieces waits for no others: 31 x 49 bfloat16 takes 4.5 us, 5.7 in two, 35 x 17 4.2
# and 5.5, 447 x 3 float64 4.6 and 5.3 (H100).
MAX_PIECES_ALONE, MAX_ELEMENTS_ALONE, MAX_WARPS_ALONE, MAX_WHOLE_WARPS = 2048, 4096, 32, 16
# But of so few classes so many: 500 x 3 float32 takes 3.18 us by 8 warps, 3.86 by 32, 912 x 1 bfloat16 2.95 and 3.19,
# 300 x 5 4.18 and 4.06 (H200).
FEW_CLASSES, WARPS_OF_FEW_CLASSES = 4, 8
# Longer rows are read in a loop, four vectors to a thread. If there are more rows than programs of 8 warps run at
# once, programs have 4 warps: 2664 x 4581 float16 takes 22.1 us, 25.0 with 8; 4096 x 2345 float32 24.8 and 28.4; 8192
# x 32000 bfloat16 139 and 143; 8192 x 128256 492 and 484. If there are few rows, several programs share one.
LOOPED_VECTORS, MIN_LOOPED_WARPS, MAX_LOOPED_WARPS, LOOPED_REGISTERS = 4, 4, 8, 64
# The gradient with the loss, by bytes of an element: (longest row in bytes, least rows, shape of a program). First
# rows that a tile holds, with as many warps as that takes (0); then rows that L1 or L2 holds for all programs; longer
# ones are SHARED by several programs. bfloat16 8192 x 15001 takes 158 us with 8 warps, 195 with 16; 8192 x 32000 294
# and 315; 8192 x 128256 1295 with 16, 1495 shared.
WRITTEN = {
    2: (
        (16384, 1, softmax.Shape(32, 0, 64)),
        (65536, 1, softmax.Shape(32, 8, 64)),
        (133000, 1, softmax.Shape(32, 16, 64)),
        (262144, 1024, softmax.Shape(32, 16, 64)),
    ),
    4: ((32768, 1, softmax.Shape(32, 0, 72)), (133000, 1, softmax.Shape(16, 16, 64))),
    8: ((65536, 1, softmax.Shape(16, 0, 128)),),
}
SHARED = {2: softmax.Shape(64, 4, 128), 4: softmax.Shape(32, 4, 80), 8: softmax.Shape(16, 4, 128)}
# The gradient after the loss: vectors of a tile, stages, and tiles of a row in a program. 8192 x 128256 bf16 took
# 1579 us with the loss, 1809 with 512 vectors and 4 tiles.
GRADIENT_VECTORS, GRADIENT_STAGES, GRADIENT_TILES = 128, 2, 8


class Forward(NamedTuple):
    block: int
    programs: int
    warps: int


def forward(problem: Problem, reduced: bool) -> Forward:
    positions = problem.M * problem.K
    block = max(power_of_2(positions), WARP)
    warps = max(block // (2 * WARP), 1)
    if block > (FORWARD_ALONE if reduced else FORWARD_BLOCK):
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
    if problem.N == problem.K == 1:
        # What the table has of one class is slower elsewhere: 26445 x 1 bfloat16 3.5 us, by the default 3.2 (H100).
        return _default(problem)
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
    """Little of one class as rows of it: 4 x 1 x 15 float32 takes 2.81 us so, as images 3.16, 3 x 1 x 20000 bfloat16
    3.48 and 3.73 (H100).
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
        return LITTLE
    many = N * C * D * size >= MANY_SCATTER_BYTES
    least = MANY_SCATTER_BYTES_OF_POSITION if many else MIN_SCATTER_BYTES_OF_POSITION
    is_read = power_of_2(min(N, 2) * D) <= 2 * WARPS * WARP * MAX_TARGETS  # all targets, by a program that fills
    large = N * C * D * size >= MIN_FILLED_BYTES and C * size >= MIN_SCATTER_BYTES_OF_POSITION and is_read
    if few < D and N * C * D * size >= MIN_SCATTER_BYTES and C * size >= least and not large:
        return SCATTER
    # A row of a power of two of classes is whole vectors of a tile, or all of it.
    if D == 1 and not little and C % vec and power_of_2(C) > C and C * size <= MAX_SHORT_BYTES:
        many = vec <= C + 1 and C * size <= MAX_BYTES_OF_MANY_SHORT and N * C * size >= MANY_SHORT_BYTES
        return SHORT._replace(vectors=2 * SHORT.vectors) if many else SHORT
    most = MAX_FILLED_POSITIONS if period > 1 and not little else few
    if MIN_ROW_VECTORS * vec <= C and (most >= D or large):
        # 64 x 600 x 500 bfloat16 spills 8 bytes by four warps (sm_100, Triton 3.7).
        warps = WARPS if MAX_FILLED_POSITIONS >= 2 * D else 2 * WARPS
        vectors = power_of_2(cdiv(BYTES_OF_POSITION * D, warps * WARP * VECTOR_BYTES))
        return FILL._replace(vectors=min(max(FILL.vectors, vectors), MAX_FILL_VECTORS), warps=warps)
    if few >= D > 1 and period > 1 and C >= MIN_FILLED_CLASSES:
        if size > 2 and C <= MAX_CLASSES_OF_TILE and N * C * D * size >= MIN_TILED_BYTES:
            return TILE._replace(vectors=2)
        return FILL._replace(vectors=1 if vec > C else 2)
    if D > 1 and little:
        pairs = size == 2 and D % 2 == 0 and N * C * D > MANY_LITTLE
        return LITTLE._replace(positions=2 * LITTLE.positions) if pairs else LITTLE
    if D == 1 < C and little:
        return TILE
    if D == 1 and vec <= C:
        return SHORT
    # Where images are whole vectors, tiles are faster: 16 x 21 x 256 x 256 bfloat16 16.9 us, 21.2 by ``images``.
    if period > 1 and MIN_IMAGE_VECTORS * vec <= D and MIN_CLASSES_OF_IMAGES * period <= C:
        # Not more than an image has: 1 x 116201 x 293 float32 takes 47.6 us with 64 of its 74 vectors, 62.5 with 128.
        # Two to a thread of one warp are all of it: 117 x 11725 x 77 x 2 float32 315 us, in two parts 554.
        of_image, of_warp = cdiv(D, vec), IMAGES.vectors * times * WARP
        vectors = power_of_2(of_image if of_image <= 2 * WARP else of_image // 2 + 1)
        vectors = max(min(vectors, WARPS * of_warp), WARP)
        warps = max(1, min(WARPS, vectors // of_warp))
        per_sm = IMAGES.per_sm * times * WARPS // warps
        classes = min(IMAGES.classes, C // period)
        return IMAGES._replace(vectors=vectors // (warps * WARP), warps=warps, per_sm=per_sm, classes=classes)
    # A class alone has a target for each element: 1972089 x 1 float16 takes 12.4 us with one vector to a thread, by
    # four warps 13.8, with two vectors 17.8.
    if C == D == 1:
        # 5368 x 1 bfloat16 2.71 us by four warps, 2.98 by one (torch.compile 2.95, H100).
        return TILE._replace(positions=LITTLE_POSITIONS) if little else TILE._replace(warps=1)
    if C > MAX_CLASSES_OF_TILE:
        return TILE._replace(vectors=TILE.vectors * times, per_sm=TILE.per_sm * times)
    # 373 x 1 x 88009 float32 takes 123 us by one warp of four vectors to a thread, 143 by four of two.
    if C == 1 and size > 2:
        return TILE._replace(vectors=4, warps=1)
    # A target is loaded once if all classes are in its tile: 71 x 3 x 3573 x 2 bfloat16 takes 6.5 us with four vectors,
    # 8.9 with two, 8 x 2 x 4805 6.1 and 4.0.
    of_thread = power_of_2(C) * TILE.positions // (TILE.warps * WARP * vec)
    return TILE._replace(vectors=min(max(of_thread, 1), 4 if size < 8 else 2), per_sm=FEW_PER_SM)


class Whole(NamedTuple):
    """A program takes every ``programs``-th tile of ``block_r`` whole rows."""

    block_r: int
    block_c: int
    vec: int
    warps: int
    registers: int  # 0 for as many as the compiler takes
    programs: int


class Looped(NamedTuple):
    """``group`` programs for every ``programs / group``-th row, which read tiles of ``lanes * depth`` vectors."""

    lanes: int
    depth: int
    vec: int
    group: int
    members: int
    warps: int
    registers: int  # 0 for as many as the compiler takes
    programs: int


class LoopedGradient(NamedTuple):
    """A program takes every ``programs``-th share of rows, of ``members`` each, ``vectors`` vectors at a time."""

    vectors: int
    vec: int
    stages: int
    warps: int
    members: int
    programs: int


def cross_entropy(
    problem: Problem, limits: Limits, written: bool, shared: bool, gradient: bool = False
) -> Whole | Looped:
    """For logits of [N, C], at least one row.

    Args:
        gradient: whether one will be wanted.
        written: whether the gradient comes with the loss: what is read and written is softmax's then.
        shared: whether programs may share a row.
    """
    N, C, _, size = problem
    if is_whole(problem):
        return _whole(problem, limits, gradient)
    vec = VECTOR_BYTES // size
    shape = _written_shape(problem, limits) if written else _shape(problem, limits)
    resident = softmax.resident(shape, limits)
    # As many programs for a row as there are for each, or as hold it.
    group = resident // N
    if written and _written_by_one(problem) is None:
        group = cdiv(C // vec, shape.elements // vec * shape.warps * WARP)
    group = max(min(group, resident), 1) if shared else 1
    configuration = softmax.Configuration("split", shape.elements, shape.warps, shape.registers, vec, vec, group)
    found = softmax.launch(softmax.Problem(N, C, 1, size, 1), configuration, limits)
    assert isinstance(found, softmax.Split)
    programs = found.programs if found.group > 1 else min(N, resident)
    return Looped(found.lanes, found.depth, vec, found.group, found.members, found.warps, found.registers, programs)


def _shape(problem: Problem, limits: Limits) -> softmax.Shape:
    N, C, _, size = problem
    # Four vectors of float64 spill 8 bytes of 600 x 30000 (sm_100, Triton 3.7), 64 registers 16 of 280 x 117815.
    tight = size == 8 and limits.capability >= (10, 0)
    elements = LOOPED_VECTORS * VECTOR_BYTES // size // (2 if tight else 1)
    warps = min(max(power_of_2(cdiv(C, elements * WARP)), MIN_LOOPED_WARPS), MAX_LOOPED_WARPS)
    # float64 spills 8 bytes by four warps (1225 x 383, 8192 x 128256, sm_90, Triton 3.6).
    more = size == 8 and warps < MAX_LOOPED_WARPS
    registers = LOOPED_REGISTERS * 2 if tight else LOOPED_REGISTERS + 16 * more
    shape = softmax.Shape(elements, warps, registers)
    return shape._replace(warps=MIN_LOOPED_WARPS) if size < 8 and softmax.resident(shape, limits) < N else shape


def _written_by_one(problem: Problem) -> softmax.Shape | None:
    """Of a program that has a whole row; None if several share it."""
    N, C, _, size = problem
    return next((shape for longest, rows, shape in WRITTEN[size] if C * size <= longest and rows <= N), None)


def _written_shape(problem: Problem, limits: Limits) -> softmax.Shape:
    shape = _written_by_one(problem) or SHARED[problem.size]
    if limits.capability[0] != 9:
        # 1024 x 65536 bfloat16 spills 32 bytes on sm_100 with what sm_90 gets.
        shape = shape._replace(elements=shape.elements // 2)
    warps = shape.warps or max(power_of_2(cdiv(problem.N, shape.elements * WARP)), MIN_LOOPED_WARPS)
    return shape._replace(warps=warps)


def cross_entropy_gradient(problem: Problem, limits: Limits, written: bool) -> Whole | LoopedGradient:
    """For the gradient that comes later; ``written`` if it is hardly ever wanted."""
    N, C, _, size = problem
    if is_whole(problem):
        return _whole(problem, limits, True)
    vec = VECTOR_BYTES // size
    vectors = min(power_of_2(cdiv(C, vec)), GRADIENT_VECTORS)
    warps = max(1, vectors // 64)
    members = cdiv(cdiv(C, vec), vectors * GRADIENT_TILES)
    resident = limits.sm_count * (limits.threads_per_sm // 2 // (warps * 32))
    programs = min(N * members, resident if written else MAX_GRID)
    return LoopedGradient(vectors, vec, GRADIENT_STAGES, warps, members, programs)


def writes_gradient(problem: Problem, limits: Limits) -> bool:
    """Whether a loss whose gradient is wanted writes it at once: to read again what fits the L2 cache costs little."""
    return problem.M * problem.N * problem.size > limits.l2_bytes // 2


def is_whole(problem: Problem) -> bool:
    """Whether a tile has whole rows of logits."""
    return problem.N * problem.size <= MAX_WHOLE_BYTES * (2 if problem.size == 8 else 1)


def _whole(problem: Problem, limits: Limits, gradient: bool) -> Whole:
    N, C, _, size = problem
    block_c, vec = power_of_2(C), math.gcd(C, VECTOR_BYTES // size)
    pieces = block_c // vec  # of a row, as they are loaded
    if cdiv(N, max(WHOLE_TILE // block_c, 1)) > MAX_LOGITS_PROGRAMS:
        tile_bytes = LOOPED_TILE_BYTES // (2 if gradient else 1)
        block_r = min(tile_bytes // (block_c * size + TARGET_BYTES), LOOPED_PIECES // pieces)
        block_r = 1 << max(block_r, 1).bit_length() - 1
        # A thread has parts of one row where a row has more pieces than a warp has lanes: of several, 262144 x 102
        # float16 spills 256 bytes of its 64 registers (155 us, torch.compile 70.6, H200; not timed without).
        if pieces > WARP and not gradient:
            block_r = min(block_r, WARPS)
        per_sm = LOOPED_PER_SM // (2 if size == 8 or gradient else 1)
        programs = limits.sm_count * per_sm
        # Some programs have a tile more than others, which should not be much more.
        least = max(WHOLE_TILE // 2 // block_c, 1)
        while block_r > least and cdiv(N, block_r) < LOOPED_ITERATIONS * programs:
            block_r //= 2
        registers = limits.registers_per_sm // (per_sm * WARPS * WARP)
        return Whole(block_r, block_c, vec, WARPS, registers, min(programs, cdiv(N, block_r)))
    alone = power_of_2(N) * pieces <= MAX_PIECES_ALONE and power_of_2(N) * block_c <= MAX_ELEMENTS_ALONE
    block_r = power_of_2(N) if alone else min(power_of_2(N), WHOLE_TILE // block_c)
    warps = max(1, min(WARPS, block_r * block_c // 256))
    # Of float64 32 warps spill 32 bytes (256 x 14, smoothed).
    most = min(block_r * pieces // WARP, MAX_WARPS_ALONE if alone and size < 8 else MAX_WHOLE_WARPS)
    # Where multiprocessors have several programs, one does what it can while another waits: 1168 x 163 bfloat16 takes
    # 6.7 us with 4 warps, 7.4 with 8, 1225 x 383 7.1 and 7.8, 1024 x 145 float32 6.5 and, with 16, 7.2; but 800 x 200
    # float64, which waits for its exponentials, 9.0 and 8.8 with more (H100).
    if size < 8 and cdiv(N, block_r) > limits.sm_count:
        most = WARPS
    if alone and C <= FEW_CLASSES:
        most = min(most, WARPS_OF_FEW_CLASSES)
    while 2 * warps <= most:
        warps *= 2
    at_once, programs = limits.sm_count * LOOPED_PER_SM, cdiv(N, block_r)
    if size < 8 and not gradient and warps == WARPS and programs > at_once:
        registers = limits.registers_per_sm // (LOOPED_PER_SM * WARPS * WARP)
        return Whole(block_r, block_c, vec, warps, registers, cdiv(programs, cdiv(programs, at_once)))
    resident = limits.sm_count * (limits.threads_per_sm // (warps * WARP))
    # All that there are: by itself the compiler spills 8 bytes to have 32 in 32 warps (8 x 230 float32, weighted).
    registers = min(limits.registers_per_sm // (warps * WARP), MAX_REGISTERS) if warps > WARPS else 0
    return Whole(block_r, block_c, vec, warps, registers, min(programs, resident, MAX_LOGITS_PROGRAMS))
