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

# Rows of at most MAX_WHOLE_BYTES are held whole, in tiles of WHOLE_TILE elements, by at most so many
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
THREAD_BYTES, BUSY_THREADS, MAX_ROWS_OF_THREAD = 32, 128, 4
OTHER_REGISTERS, UNPACKING_REGISTERS = 32, 16
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
# Registers that a thread can have.
MAX_REGISTERS = 255


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
    vec = math.gcd(C, VECTOR_BYTES // size)
    block_c = power_of_2(C)
    pieces = block_c // vec  # of a row, as they are loaded
    rows = power_of_2(N)
    alone = rows * pieces <= MAX_PIECES_ALONE and rows * block_c <= MAX_ELEMENTS_ALONE
    block_r = rows if alone else min(rows, max(WHOLE_TILE // block_c, 1))
    if not alone and cdiv(N, block_r) > limits.sm_count:
        return _many_rows(problem, limits, vec, gradient)
    warps = max(1, min(WARPS, block_r * block_c // 256))
    # Of float64 32 warps spill 32 bytes (256 x 14, smoothed).
    most = min(block_r * pieces // WARP, MAX_WARPS_ALONE if alone and size < 8 else MAX_WHOLE_WARPS)
    if alone and C <= FEW_CLASSES:
        most = min(most, WARPS_OF_FEW_CLASSES)
    while 2 * warps <= most:
        warps *= 2
    # All that there are: by itself the compiler spills 8 bytes to have 32 in 32 warps (8 x 230 float32, weighted).
    registers = min(limits.registers_per_sm // (warps * WARP), MAX_REGISTERS) if warps > WARPS else 0
    return Whole(block_r, 1, block_c, vec, warps, registers, cdiv(N, block_r))


def _many_rows(problem: Problem, limits: Limits, vec: int, gradient: bool) -> Whole:
    """Each row by so many threads of one warp that each has THREAD_BYTES of it."""
    N, C, _, size = problem
    thread_bytes = THREAD_BYTES * (2 if size == 8 else 1)
    most = min(WARP, power_of_2(C // vec))
    lanes = min(power_of_2(cdiv(C * size, thread_bytes)), most)
    while lanes < most and N * lanes < limits.sm_count * BUSY_THREADS:
        lanes *= 2
    depth = cdiv(C // vec, lanes)
    per_sm = _programs_per_multiprocessor(depth, vec, size, gradient, limits)
    at_once = limits.sm_count * per_sm
    row_bytes = depth * vec * size + TARGET_BYTES // lanes
    rows = min(power_of_2_within(thread_bytes // row_bytes), MAX_ROWS_OF_THREAD)
    block_r = WARPS * WARP // lanes
    while rows > 1 and cdiv(N, rows * block_r) < LOOPED_ITERATIONS * at_once:
        rows //= 2
    tiles = cdiv(N, rows * block_r)
    programs = cdiv(tiles, cdiv(tiles, at_once))
    registers = limits.registers_per_sm // (per_sm * WARPS * WARP) if programs < tiles else 0
    return Whole(rows * block_r, depth, lanes * vec, vec, WARPS, registers, programs)


def _programs_per_multiprocessor(depth: int, vec: int, size: int, gradient: bool, limits: Limits) -> int:
    """Whose registers have two tiles, the next of which is on its way."""
    if size == 8 or gradient:
        return LOOPED_PER_SM // 2
    registers = OTHER_REGISTERS + 2 * depth * (vec * size // 4 if vec * size >= 4 else 1)
    if vec * size > 4:
        registers += UNPACKING_REGISTERS
    return min(LOOPED_PER_SM, limits.registers_per_sm // (registers * WARPS * WARP))
