# SPDX-License-Identifier: Apache-2.0
"""How cross entropy is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from ..softmax import launches as softmax
from .launches import MAX_GRID, Problem
from .plan import WARPS

# Bytes at most of a row that is held whole. 100000 x 1000 float32: 145 us, in a loop 171.
MAX_WHOLE_BYTES = 4096
# Elements at most of a row that is held whole. 20000 x 700 bfloat16: 38.2 us, in a loop 45.6.
MAX_WHOLE_ELEMENTS = 1024
# Elements of a tile of whole rows, where rows are few.
WHOLE_TILE = 1024
# Bytes at most of a row that is held whole, by the size of an element, where rows are few and no whole vectors: a loop
# makes vectors of them. 130 x 777 float32: 6.06 us in a loop, 6.21 whole; 4 x 1000 float32, whole vectors: 4.63 us in a
# loop, 4.17 whole (H100).
MAX_WHOLE_BYTES_OF_FEW = {2: 2048, 4: 2048, 8: 4096}
# Elements of a row that each lane has at most, by the size of an element, where there are more tiles than
# multiprocessors. Few lanes of one warp read a row: its sums take few shuffles and no barrier.
# 262144 x 102 float16: 35.9 us, with twice the elements 38.3, with half 46.6.
THREAD_ELEMENTS = {2: 16, 4: 16, 8: 8}
# Share of the lanes' elements that exist, at least; otherwise half as many lanes read a row.
# 149385 x 320 bfloat16: 49.7 us by 16 lanes, which hold 384 elements, 58.5 by 32, which hold 512.
MIN_SHARE_OF_ELEMENTS = 3 / 4
# Lanes of a row at most that have several rows. 649328 x 18 bfloat16: 22.3 us with two rows, 24.9 with one.
LANES_OF_SEVERAL_ROWS = 2
# Bytes of these rows and their targets, for each lane, at most.
ROWS_BYTES = 64
# Bytes of a target.
TARGET_BYTES = 8
# Bytes of a row of float32 that is one part, a vector to a lane: with four vectors to a lane, a warp's load would touch
# 16 lines. 208809 x 32 float32: 20.2 us by eight lanes of two rows, 23.6 by two lanes (H100).
ONE_PART_BYTES = (64, 128)
# Rows of such a lane. With a gradient, more bytes to an element do not compile: 300000 x 8 float64 (Triton 3.6).
ONE_PART_ROWS = 2
# Threads of a multiprocessor with parts of a row: until there are as many, more lanes take parts of few rows.
BUSY_THREADS = 128
# Programs of a multiprocessor at most that take several tiles, where the next tile is on its way; half as many for
# float64, or with a gradient. The registers of two tiles may allow fewer.
PER_SM = 8
# Rows of a thread above which its targets take registers, if rows have several parts or more than two logits to a load.
# 23454632 x 4 bfloat16: 145 us by 80 registers to a thread, 154 by 64, which spill 24 bytes (H100).
FEW_TARGETS = 2
# Registers of a target.
TARGET_REGISTERS = 4
# Registers of a thread, without elements and targets.
LOSS_REGISTERS = 32
# More to unpack vectors, and for a gradient.
UNPACKING_REGISTERS, GRADIENT_REGISTERS = 16, 24
# Registers are given to threads in multiples of this.
REGISTER_UNIT = 8
# Iterations at least of a program with several rows to a lane.
LOOPED_ITERATIONS = 4
# Pieces at most that one program reads alone; a piece is what a thread loads at once. Where all programs run at once,
# most of the time is that of fetching instructions, and a thread has most of them for each piece. One program waits for
# no other. 31 x 49 bfloat16: 4.5 us, in two programs 5.7 (H100).
MAX_PIECES_ALONE = 2048
# Elements of such a program, at most, by their bytes. One multiprocessor is slow in float64: 32 x 128 takes it 7.3 us,
# 8 x 256 5.2, 36 programs 143 x 64 5.2 (H100).
MAX_ELEMENTS_ALONE = {2: 4096, 4: 4096, 8: 2048}
# Warps of such a program, at most: as many as leave a thread one piece.
MAX_WARPS_ALONE = 32
# Warps of any other program of whole rows, and of float64, at most.
MAX_WHOLE_WARPS = 16
# Pieces of a tile at least, where each tile has a multiprocessor: tiles are no smaller.
# 19 x 193 float32: 4.88 us by ten programs of two rows, 5.12 by five (H100).
MIN_WHOLE_PIECES = 512
# Elements of such a tile of float64, at least. 100 x 256 float64: 5.57 us, larger tiles 5.74 (H100).
MIN_WHOLE_TILE_OF_8_BYTES = 256
# Classes at most that are few: of 8 bytes, and of up to 4 bytes. Losses that are summed are then of one program, with
# several logits to a thread. 763 x 3 bfloat16: 4.12 us by one program, 4.72 by six (H100).
FEW_CLASSES = (4, 8)
# Warps of such a program, at least. 500 x 3 float32: 3.18 us by 8 warps, 3.86 by 32 (H200).
WARPS_OF_FEW_CLASSES = 8
# Logits of a thread at most: up to the first number of classes, and up to the second.
# 1000 x 4 float32: 3.85 us, by 8 warps with more to a thread 3.98 (H100).
LOGITS_OF_FEW_CLASSES = (8, 16)
# Rows of a thread, at most. 1111 x 1 bfloat16: 4.00 us, by 8 warps with more to a thread 4.75 (H100).
ROWS_OF_FEW_CLASSES = 4
# Rows at most of a thread that has whole rows of few classes, in one program that sums the losses: no thread waits for
# a row's other logits. 763 x 3 bfloat16: 3.93 us, with a thread to a logit 4.24; 500 x 3 float64: 4.19 us, with four
# rows to a thread 5.72 (H100).
MAX_ROWS_OF_A_THREAD = 2
# Logits of such a program, at most.
MAX_LOGITS_OF_THREADS = 8192
# Lanes of a longer row that is held, by two or four warps: in a loop the last tile leaves lanes idle, and each lane has
# exponentials of its own maxima. 20000 x 1100 float64: 79 us, in a loop 150 (H100).
HELD_LANES = (2 * WARP, 4 * WARP)
# Elements of such a lane at most, by the size of an element.
# 10000 x 4096 float64, with 32 elements: 141 us, in a loop 135 (H100).
HELD_ELEMENTS = {2: 32, 4: 32, 8: 22}
# Tiles of a program at least, by the size of an element. 1100 x 900 float64, of two tiles: 11.9 us, in a loop 11.6
# (H100).
HELD_ITERATIONS = {2: 4, 4: 4, 8: 3}
# Share of a loop's tile that rows fill at most to be held with fewer tiles.
HELD_SHARE = 3 / 4
# The fewer tiles, by the size of an element. 4000 x 1500 bfloat16: 13.0 us, in a loop 15.9.
HELD_FEWER = {2: 3, 4: 2, 8: 1}
# Rows of a multiprocessor at least, for these. 432 x 712 float64: no better.
HELD_ROWS = 4
# Share of a loop's tile at most that rows of 16 bits fill to be held, by the elements of a load, where these are less
# than a vector. 20000 x 1305 bfloat16: 37.4 us, in a loop 49.
HELD_SHARES = {1: 0.65, 2: 0.65, 4: HELD_SHARE}
# Elements at most of a held row with a gradient that the loss writes, by the size of an element; of 16 bits in whole
# vectors. 20000 x 1100 float64: 172 us, in a loop, which spills, 262. No other sizes were timed.
HELD_WRITTEN = {2: 1536, 8: 1152}
# Vectors of a thread that reads a longer row in a loop.
LOOPED_VECTORS = 4
# Warps of a program in a loop at least; it has these where there are more rows than programs of 8 warps run at once.
# 2664 x 4581 float16: 22.1 us by 4 warps, 25.0 by 8.
MIN_LOOPED_WARPS = 4
# Warps of a program in a loop at most, if several programs may share a row.
MAX_LOOPED_WARPS = 8
# Warps at most of a program that has a row alone: one tile holds the row, or rows are more than half as many as
# multiprocessors. 1 x 13753 bfloat16: 4.6 us by 16 warps, 6.3 by two programs of 8 (H100).
WARPS_OF_ONE_TILE = 32
# Registers of a thread in a loop.
LOOPED_REGISTERS = 64
# Elements of a row above which programs share it, and the last program merges all rows: where rows are at most half as
# many as multiprocessors, losses of classes are summed and no gradient is written.
# 2 x 22421 bfloat16: 5.4 us, by one program to a row 7.3 (H100).
SHARED_TILE = 4096
# Warps of such a program.
SHARED_WARPS = 8
# Elements of a thread in a tile, by the size of an element.
SHARED_ELEMENTS = {2: 16, 4: 16, 8: 8}
# Logits of a multiprocessor above which a thread has twice the elements of 16 bits.
SHARED_LOGITS = 8192
# Elements of a single row at most that one program has alone: it has nothing to add.
SHARED_ALONE = 16384
# Words that a thread of the last program reads at once. A sum over thousands of programs would spill.
MAX_WORDS_OF_THREAD = 8
# The gradient with the loss, by the size of an element: (bytes of a row at most, rows at least, shape of a program).
# First rows that a tile holds, with the warps that this takes (0), then rows that L1 or L2 holds for all programs.
# 8192 x 15001 bfloat16: 158 us with 8 warps, 195 with 16; 8192 x 128256 bfloat16: 1295 us with 16, shared 1495.
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
# The same for longer rows, which several programs share.
SHARED = {2: softmax.Shape(64, 4, 128), 4: softmax.Shape(32, 4, 80), 8: softmax.Shape(16, 4, 128)}
# The gradient after the loss: vectors of a tile.
# 8192 x 128256 bfloat16: 1579 us with the loss, with 512 vectors and 4 tiles 1809.
GRADIENT_VECTORS = 128
# Stages of its loop.
GRADIENT_STAGES = 2
# Tiles of a row in a program.
GRADIENT_TILES = 8
# Registers of a thread at most.
MAX_REGISTERS = 255
# Where rows are more than multiprocessors, each is of one program if that is estimated to be faster.
# 140 x 20000 float32: 12.9 us, by three programs to a row 14.2 (H100).

# Microseconds of a tile, by a program that loads it by itself, by the size of an element.
TILE_OF_ROW_US = {2: 1.5, 4: 1.2, 8: 2.2}
# Microseconds of several programs to a row, until one has added what they found.
ADDING_US = 2.5
# Bytes that a multiprocessor loads in a microsecond: they limit several programs to a row.
LOADED_PER_US = 23000


class Whole(NamedTuple):
    """A program takes every ``programs``-th tile of ``block_r`` whole rows, each in ``depth`` parts of ``width``."""

    block_r: int
    depth: int
    width: int
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


class Shared(NamedTuple):
    """``group`` programs for every row, which read tiles of ``depth`` vectors to a thread; one merges all."""

    depth: int
    vec: int
    group: int
    members: int
    rows: int
    warps: int
    registers: int
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
    problem: Problem, limits: Limits, written: bool, shared: bool, gradient: bool = False, reduced: bool = False
) -> Whole | Looped | Shared:
    """The launch of the loss, for logits of [N, C] of at least one row.

    Args:
        written: whether the gradient comes with the loss, which then reads and writes what softmax does.
        shared: whether programs may share a row: targets are classes.
        gradient: whether a gradient will be wanted.
        reduced: whether the losses are summed.
    """
    N, C, _, size = problem
    if is_whole(problem, limits):
        return _whole(problem, limits, gradient, shared, reduced and not gradient)
    held = _held(problem, limits, gradient) if shared and (written or not gradient) else None
    if held:
        return held
    if shared and reduced and not written and is_shared(problem, limits):
        return _shared(problem, limits)
    vec = VECTOR_BYTES // size
    shape = _written_shape(problem, limits) if written else _shape(problem, limits, shared)
    resident = softmax.resident(shape, limits)
    # As many programs for a row as run at once for each row, or as hold it.
    group, tile = resident // N, shape.elements * shape.warps * WARP
    most = resident
    if limits.sm_count < N:
        most = 1 if not written and _is_alone(problem, tile, limits) else max(C // tile, 1)
    if written and _written_by_one(problem) is None:
        group = most = cdiv(C // vec, tile // vec)
    group = max(min(group, resident, most), 1) if shared else 1
    configuration = softmax.Configuration("split", shape.elements, shape.warps, shape.registers, vec, vec, group)
    found = softmax.launch(softmax.Problem(N, C, 1, size, 1), configuration, limits)
    assert isinstance(found, softmax.Split)
    programs = found.programs if found.group > 1 else min(N, resident)
    return Looped(found.lanes, found.depth, vec, found.group, found.members, found.warps, found.registers, programs)


def _is_alone(problem: Problem, tile: int, limits: Limits) -> bool:
    """Whether one program to a row is faster than several, which load as many bytes as multiprocessors can."""
    N, C, _, size = problem
    waited = TILE_OF_ROW_US[size] - N * tile * size / (limits.sm_count * LOADED_PER_US)
    return cdiv(C, tile) * waited <= ADDING_US


def is_shared(problem: Problem, limits: Limits) -> bool:
    """Whether the last of several programs to a row merges all rows, if it may."""
    N, C, _, size = problem
    vec = VECTOR_BYTES // size
    return limits.sm_count >= 2 * N and (SHARED_ALONE if N == 1 else SHARED_TILE) < C // vec * vec


def _shared(problem: Problem, limits: Limits) -> Shared:
    N, C, _, size = problem
    vec, elements = VECTOR_BYTES // size, SHARED_ELEMENTS[size]
    if size == 2 and SHARED_LOGITS * limits.sm_count < N * C:
        elements *= 2
    shape = softmax.Shape(elements, SHARED_WARPS, LOOPED_REGISTERS)
    group = min(softmax.resident(shape, limits) // N, cdiv(C // vec, elements // vec * SHARED_WARPS * WARP))
    members = power_of_2(group)
    rows = max(power_of_2(N), SHARED_WARPS * WARP // members)
    return Shared(elements // vec, vec, group, members, rows, SHARED_WARPS, shape.registers, N * group)


def _shape(problem: Problem, limits: Limits, classes: bool) -> softmax.Shape:
    N, C, _, size = problem
    # On sm_100, four vectors of float64 spill 8 bytes (600 x 30000, Triton 3.7) and 64 registers 16 (280 x 117815).
    tight = size == 8 and limits.capability >= (10, 0)
    elements = LOOPED_VECTORS * VECTOR_BYTES // size // (2 if tight else 1)
    alone = classes and size < 8 and limits.sm_count >= N
    alone = alone and (WARPS_OF_ONE_TILE * WARP * elements >= C or limits.sm_count < 2 * N)
    most = WARPS_OF_ONE_TILE if alone else MAX_LOOPED_WARPS
    warps = min(max(power_of_2(cdiv(C, elements * WARP)), MIN_LOOPED_WARPS), most)
    # float64 spills 8 bytes by four warps (1225 x 383, 8192 x 128256, sm_90, Triton 3.6).
    more = size == 8 and warps < MAX_LOOPED_WARPS
    registers = LOOPED_REGISTERS * 2 if tight else LOOPED_REGISTERS + 16 * more
    shape = softmax.Shape(elements, warps, registers)
    return shape._replace(warps=MIN_LOOPED_WARPS) if size < 8 and softmax.resident(shape, limits) < N else shape


def _written_by_one(problem: Problem) -> softmax.Shape | None:
    """The shape of a program that has a whole row; None if several programs share a row."""
    N, C, _, size = problem
    return next((shape for longest, rows, shape in WRITTEN[size] if C * size <= longest and rows <= N), None)


def _written_shape(problem: Problem, limits: Limits) -> softmax.Shape:
    shape = _written_by_one(problem) or SHARED[problem.size]
    if limits.capability[0] != 9:
        # 1024 x 65536 bfloat16 spills 32 bytes on sm_100 with what sm_90 gets.
        shape = shape._replace(elements=shape.elements // 2)
    warps = shape.warps or max(power_of_2(cdiv(problem.N, shape.elements * WARP)), MIN_LOOPED_WARPS)
    return shape._replace(warps=warps)


def cross_entropy_gradient(
    problem: Problem, limits: Limits, written: bool, held: bool = False
) -> Whole | LoopedGradient:
    """The launch of a gradient after the loss.

    Args:
        written: whether the loss wrote the gradient, so that this one hardly ever has anything to do.
        held: whether rows were held for the loss, whose statistics of a row the gradient needs.
    """
    N, C, _, size = problem
    tile = _whole(problem, limits, True, True) if is_whole(problem, limits) else None
    if held and tile is None:
        tile = _held(problem, limits, True)
    if tile is not None:
        # The compiler would choose 72 registers and spill 8 bytes (5000 x 68 float32, smoothed).
        programs = min(cdiv(N, tile.block_r), limits.sm_count * PER_SM)
        return tile._replace(programs=programs, registers=_all_registers(tile.warps, limits))
    vec = VECTOR_BYTES // size
    vectors = min(power_of_2(cdiv(C, vec)), GRADIENT_VECTORS)
    warps = max(1, vectors // 64)
    members = cdiv(cdiv(C, vec), vectors * GRADIENT_TILES)
    resident = limits.sm_count * (limits.threads_per_sm // 2 // (warps * 32))
    programs = min(N * members, resident if written else MAX_GRID)
    return LoopedGradient(vectors, vec, GRADIENT_STAGES, warps, members, programs)


def writes_gradient(problem: Problem, limits: Limits) -> bool:
    """Whether a loss writes the gradient at once. To read logits again that fit the L2 cache costs little."""
    return problem.M * problem.N * problem.size > limits.l2_bytes // 2


def is_whole(problem: Problem, limits: Limits) -> bool:
    """Whether a tile has whole rows of logits."""
    N, C, _, size = problem
    few = limits.sm_count >= N and C * size % VECTOR_BYTES != 0
    return C <= MAX_WHOLE_ELEMENTS and C * size <= (MAX_WHOLE_BYTES_OF_FEW[size] if few else MAX_WHOLE_BYTES)


def _whole(problem: Problem, limits: Limits, gradient: bool, classes: bool, summed: bool = False) -> Whole:
    N, C, _, size = problem
    block_c, vec = power_of_2(C), math.gcd(C, VECTOR_BYTES // size)
    pieces = block_c // vec  # of a row, as they are loaded
    rows = power_of_2(N)
    if summed and vec < C <= FEW_CLASSES[size < 8] and rows * C <= MAX_LOGITS_OF_THREADS:
        warps = min(max(rows // WARP, 1), MAX_WARPS_ALONE if size < 8 else MAX_WHOLE_WARPS)
        if rows <= warps * WARP * MAX_ROWS_OF_A_THREAD:
            return Whole(rows, C // vec, vec, vec, warps, _all_registers(warps, limits) if warps > WARPS else 0, 1)
    few_pieces = rows * pieces <= MAX_PIECES_ALONE or (summed and FEW_CLASSES[1] >= C and size < 8)
    alone = few_pieces and rows * block_c <= MAX_ELEMENTS_ALONE[size]
    block_r = rows if alone else _rows_of_a_tile(problem, limits, block_c, vec)
    if alone and FEW_CLASSES[size < 8] < C:
        block_r = max(block_r, WARP // block_c)
    if not alone and cdiv(N, block_r) > limits.sm_count:
        return _many_rows(problem, limits, vec, _lanes_of_a_row(problem, limits, vec), gradient, classes)
    warps = max(1, min(WARPS, block_r * block_c // 256))
    # Of float64 32 warps spill 32 bytes (256 x 14, smoothed).
    most = min(block_r * pieces // WARP, MAX_WARPS_ALONE if alone and size < 8 else MAX_WHOLE_WARPS)
    if alone and FEW_CLASSES[size < 8] >= C:
        most = min(most, _warps_of_few_classes(rows, block_c))
    while 2 * warps <= most:
        warps *= 2
    # All registers: the compiler would choose 32 in 32 warps and spill 8 bytes (8 x 230 float32, weighted).
    registers = _all_registers(warps, limits) if warps > WARPS else 0
    return Whole(block_r, 1, block_c, vec, warps, registers, cdiv(N, block_r))


def _warps_of_few_classes(rows: int, block_c: int) -> int:
    logits = LOGITS_OF_FEW_CLASSES[block_c > FEW_CLASSES[0]]
    least = max(rows // ROWS_OF_FEW_CLASSES, rows * block_c // logits)
    return max(least // WARP, WARPS_OF_FEW_CLASSES)


def _rows_of_a_tile(problem: Problem, limits: Limits, block_c: int, vec: int) -> int:
    """Rows of a tile, where rows are few: as few as leave each tile a multiprocessor, and its threads a piece each."""
    N, _, _, size = problem
    least = (MIN_WHOLE_TILE_OF_8_BYTES if size == 8 else MIN_WHOLE_PIECES * vec) // block_c
    return min(power_of_2(N), max(least, power_of_2(cdiv(N, limits.sm_count))), WHOLE_TILE // block_c)


def _held(problem: Problem, limits: Limits, gradient: bool) -> Whole | None:
    """The launch of longer rows that several warps hold; None where a loop is better."""
    N, C, _, size = problem
    vec, share = math.gcd(C, VECTOR_BYTES // size), C / power_of_2(C)
    lanes = next((lanes for lanes in HELD_LANES if lanes * HELD_ELEMENTS[size] >= C), None)
    if lanes is None or (size == 2 and share > HELD_SHARES.get(vec, 1)):
        return None
    if gradient and (HELD_WRITTEN.get(size, 0) < C or (size == 2 and vec * size < VECTOR_BYTES)):
        return None
    found = _many_rows(problem, limits, vec, lanes, gradient, True)
    fewer = share <= HELD_SHARE and HELD_ROWS * limits.sm_count <= N and not gradient
    iterations = HELD_FEWER[size] if fewer else HELD_ITERATIONS[size]
    return found if iterations <= cdiv(cdiv(N, found.block_r), found.programs) else None


def _many_rows(problem: Problem, limits: Limits, vec: int, lanes: int, gradient: bool, classes: bool) -> Whole:
    """The launch of many rows, by ``lanes`` lanes each."""
    N, C, _, size = problem
    depth, rows, one_part = cdiv(C // vec, lanes), 1, _is_one_part(problem)
    if one_part:
        rows = ONE_PART_ROWS
    elif lanes <= LANES_OF_SEVERAL_ROWS:
        rows = power_of_2_within(ROWS_BYTES // (depth * vec * size + TARGET_BYTES // lanes))
    block_r = WARPS * WARP // lanes
    per_sm = _programs_of_a_multiprocessor(rows, depth, vec, size, gradient, classes, limits)
    at_once = limits.sm_count * per_sm
    while rows > 1 and not one_part and cdiv(N, rows * block_r) < LOOPED_ITERATIONS * at_once:
        rows //= 2
    # All programs have the same number of tiles, or one less. 1643 x 723 float16: 8.4 us by 822 programs, 10.2 by 1643.
    tiles = cdiv(N, rows * block_r)
    programs = cdiv(tiles, cdiv(tiles, at_once))
    registers = _registers(per_sm, limits) if programs < tiles else 0
    return Whole(rows * block_r, depth, lanes * vec, vec, WARPS, registers, programs)


def _lanes_of_a_row(problem: Problem, limits: Limits, vec: int) -> int:
    N, C, _, size = problem
    pieces = C // vec
    most = min(WARP, power_of_2(pieces))
    if _is_one_part(problem):
        return most
    lanes = min(power_of_2(cdiv(C, THREAD_ELEMENTS[size])), most)
    idle = pieces < MIN_SHARE_OF_ELEMENTS * lanes * cdiv(pieces, lanes)
    if idle and lanes > 1 and lanes * THREAD_ELEMENTS[size] >= C:
        lanes //= 2
    while lanes < most and N * lanes < limits.sm_count * BUSY_THREADS:
        lanes *= 2
    return lanes


def _is_one_part(problem: Problem) -> bool:
    return problem.size == 4 and problem.N * problem.size in ONE_PART_BYTES


def _programs_of_a_multiprocessor(
    rows: int, depth: int, vec: int, size: int, gradient: bool, classes: bool, limits: Limits
) -> int:
    """Programs of a multiprocessor whose registers hold two tiles, of ``rows`` rows of ``depth`` parts to a thread. No
    spills were found with these."""
    parts = rows * depth
    registers = LOSS_REGISTERS + (UNPACKING_REGISTERS if vec > 1 else 0) + (GRADIENT_REGISTERS if gradient else 0)
    registers += 2 * parts * cdiv(vec * size, 4)
    # A gradient, and the distribution of a target that is no class, are of the accumulator's type.
    registers += (gradient + (0 if classes else 2)) * parts * vec * max(size // 4, 1)
    registers += TARGET_REGISTERS * rows if (depth > 1 or vec > 2) and rows > FEW_TARGETS else 0
    programs = PER_SM // (2 if size == 8 or gradient else 1)
    while programs > 1 and _registers(programs, limits) < registers:
        programs -= 1
    return programs


def _registers(programs: int, limits: Limits) -> int:
    """Registers of a thread, if a multiprocessor has this number of programs."""
    registers = limits.registers_per_sm // (programs * WARPS * WARP) // REGISTER_UNIT * REGISTER_UNIT
    return min(registers, MAX_REGISTERS)


def _all_registers(warps: int, limits: Limits) -> int:
    """Registers of a thread, if a multiprocessor has one program."""
    return min(limits.registers_per_sm // (warps * WARP), MAX_REGISTERS)
