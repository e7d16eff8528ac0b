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

# Rows of at most so many bytes and elements are held whole, few of them in tiles of WHOLE_TILE elements. 20000 x 700
# bfloat16 takes 38.2 us so, 45.6 in a loop; 100000 x 1000 float32 145 and 171; 54952 x 431 float64 82 and 221, for a
# loop takes more exponentials. Of few rows a loop is no slower where they are of no whole vectors, which it makes of
# them: 130 x 777 float32 takes 6.06 us in one, 6.21 whole, 1 x 947 3.66 and 3.76; but 4 x 1000 4.63 and 4.17 (H100).
MAX_WHOLE_BYTES, MAX_WHOLE_ELEMENTS, WHOLE_TILE = 4096, 1024, 1024
MAX_WHOLE_BYTES_OF_FEW = {2: 2048, 4: 2048, 8: 4096}
# Where there are more tiles than multiprocessors, a row is read by so many lanes of one warp that each has 9 to 16
# elements, of float64 5 to 8: its sums take few shuffles and no barrier, and what is done for each row, such as its
# logarithm and its target, is done by few lanes. 262144 x 102 float16 takes 35.9 us so, 38.3 with twice the elements,
# 46.6 with half, 99.3 by warps that share a row; 300000 x 65 float32 43.3, 47.7 with half, 177.
THREAD_ELEMENTS = {2: 16, 4: 16, 8: 8}
# Half the lanes where a smaller share of their elements exists: 149385 x 320 bfloat16 takes 49.7 us by 16
# lanes, of which three parts hold 384 elements, 58.5 by 32 with room for 512.
MIN_SHARE_OF_ELEMENTS = 3 / 4
# At most so many lanes have several rows, of so many bytes with their targets: 649328 x 18 bfloat16 takes 22.3 us with
# two, 24.9 with one, 16777216 x 1 72.7 with four, 75.9 with two.
LANES_OF_SEVERAL_ROWS, ROWS_BYTES, TARGET_BYTES = 2, 64, 8
# Rows of so many bytes of float32 are one part: of two lanes that each load four vectors a warp's load has 32 bytes of
# each of 16 lines, with which 208809 x 32 takes 23.6 us, 20.2 by eight lanes of two rows; but 2820970 x 32 bfloat16,
# whose loads have 8 lines, 83.3 and 84.9 (H100). With a gradient 300000 x 8 and x 16 float64 do not compile so (Triton
# 3.6: an operand that does not dominate its use).
ONE_PART_BYTES, ONE_PART_ROWS = (64, 128), 2
# Of few rows more lanes take parts, until a multiprocessor has so many threads with one.
BUSY_THREADS = 128
# A program takes several tiles, the next of which is on its way, if there are more than all that run at once: as many
# as the registers of two tiles allow, but no more than PER_SM; of float64, or if a gradient is wanted, half as many.
# A thread's registers are so many, those of vectors that are unpacked and of a gradient, and those of the elements; and
# those of its targets, if it has more than two rows of several parts or logits to a load: 32 bytes of 49250942 x 3
# float16 spilled by 64, and 24 of 23454632 x 4 bfloat16, 154 us so and 145 by 80 (H100).
PER_SM, FEW_TARGETS, TARGET_REGISTERS = 8, 2, 4
LOSS_REGISTERS, UNPACKING_REGISTERS, GRADIENT_REGISTERS, REGISTER_UNIT = 32, 16, 24, 8
# Iterations of a program at least that has several rows for a lane.
LOOPED_ITERATIONS = 4
# Where all programs run at once most of the time is that of fetching instructions, about 2.8 us for 1000 of them: 8 x
# 11 float32 takes 3.5 us (472 instructions), 8 x 17 float16 4.7 (904), 8 x 97 float32 5.1 (1024), 1 x 31 float32 2.8
# (144). A thread has most for each piece of a row that it loads by itself, so there are as many warps as leave it one;
# and one program of so many pieces waits for no others: 31 x 49 bfloat16 takes 4.5 us, 5.7 in two, 35 x 17 4.2
# and 5.5, 447 x 3 float64 4.6 and 5.3 (H100).
MAX_PIECES_ALONE, MAX_ELEMENTS_ALONE, MAX_WARPS_ALONE, MAX_WHOLE_WARPS = 2048, 4096, 32, 16
# Where each has a multiprocessor tiles are less, as long as that leaves so many pieces, of float64 so many elements:
# 19 x 193 float32 takes 4.88 us by ten programs of two rows, 5.12 by five, 145 x 37 float16 4.96 and 5.19; 19 x 193
# float64 5.23 by one for each row, 5.92 by ten, 6.68 by five, 40 x 130 5.13, 5.44 and 5.94, 100 x 256 5.57, 5.74 and
# 6.33 (H100).
MIN_WHOLE_PIECES, MIN_WHOLE_TILE_OF_8_BYTES = 512, 256
# But of so few classes fewer, with so many logits and rows to a thread: 500 x 3 float32 takes 3.18 us by 8 warps, 3.86
# by 32, 912 x 1 bfloat16 2.95 and 3.19, 300 x 5 4.18 and 4.06 (H200). With more to a thread, by 8 warps, and so (H100):
# 1111 x 1 bfloat16 4.75 us and 4.00, 1300 x 2 4.56 and 4.19, 1500 x 1 float64 6.30 and 5.23, 1000 x 4 float32 3.98 and
# 3.85. Of up to 4 bytes they are of one program in more pieces too, where their losses are summed, for programs wait
# for each other: 763 x 3 bfloat16 4.72 us by six, 4.12 by one, 3000 x 1 4.69 and 4.64. So are more classes, of up to 4
# bytes, with more logits to a thread: 500 x 7 bfloat16 5.01 us by eight, 4.28 by one of 8 warps, of 16 4.41, of 32
# 5.30; but 763 x 3 4.56 by one of 8 warps (H100).
FEW_CLASSES, WARPS_OF_FEW_CLASSES, LOGITS_OF_FEW_CLASSES, ROWS_OF_FEW_CLASSES = (4, 8), 8, (8, 16), 4
# So many rows of few classes, that are no whole vector, are summed by one program with a row to a thread, or two, in
# parts of a load each: no thread waits for those that have the same row's other logits. H100: 763 x 3 bfloat16 3.93 us
# so, 4.24 with a thread to a logit, 500 x 7 3.62 and 4.18, 1500 x 3 float16, of twelve programs otherwise, 4.43 and
# 5.01, 93 x 5 float32 3.16 and 3.76, 500 x 3 float64 4.19 and 4.69, with four rows to a thread 5.72.
MAX_ROWS_OF_A_THREAD, MAX_LOGITS_OF_THREADS = 2, 8192
# Longer rows, of one class each, are held too, by two or four warps with so many elements to a lane, where a program
# has so many tiles at least: in a loop the last tile leaves lanes idle, and each lane has exponentials of its own
# maxima. H100, in a loop in parentheses: 262144 x 1024 float64 729 us (946), 20000 x 1100 79 (150), 20000 x 1300 92
# (151), 97 by four warps, 20000 x 2700 167 (237), 3000 x 1001 20 (23.5), 4096 x 2345 44 (63), 20000 x 1304 bfloat16
# 30.5 (44), 262144 x 2048 361 (448), 8192 x 4096 37.1 (38.1), 20000 x 1100 float32 43.9 (50.6), 262144 x 2048 704
# (706). But 10000 x 4096 float64 141 (135), with 32 elements, 1100 x 900, of two tiles, 11.9 (11.6).
HELD_LANES, HELD_ELEMENTS, HELD_ITERATIONS = (2 * WARP, 4 * WARP), {2: 32, 4: 32, 8: 22}, {2: 4, 4: 4, 8: 3}
# Of rows that fill no larger share of a loop's tile fewer tiles are enough, if there are so many rows to a
# multiprocessor: 4000 x 1500 bfloat16 13.0 us (15.9), 1400 x 1100 float32 8.9 (10.5), 1832 x 600 float64 11.5 (13.4),
# 700 x 540 8.25 (8.8), but 432 x 712 no better.
HELD_SHARE, HELD_FEWER, HELD_ROWS = 3 / 4, {2: 3, 4: 2, 8: 1}, 4
# Of elements of 16 bits in pieces of less than a vector, by their number, such a share at most: 20000 x 1305 bfloat16
# takes 37.4 us (49), 20000 x 2301 float16 53.7 (63), and the loop no more for a tile that is full.
HELD_SHARES = {1: 0.65, 2: 0.65, 4: HELD_SHARE}
# With a gradient, where the loss writes it, rows of so many elements, of 16 bits in whole vectors: 20000 x 1100 float64
# takes 172 us (262, with spills), 20000 x 1304 bfloat16 60.5 (67.6). No others were timed.
HELD_WRITTEN = {2: 1536, 8: 1152}
# Longer rows are read in a loop, four vectors to a thread. If there are more rows than programs of 8 warps run at
# once, programs have 4 warps: 2664 x 4581 float16 takes 22.1 us, 25.0 with 8; 4096 x 2345 float32 24.8 and 28.4; 8192
# x 32000 bfloat16 139 and 143; 8192 x 128256 492 and 484. If there are few rows, several programs share one, unless one
# tile of up to WARPS_OF_ONE_TILE holds it: 1 x 13753 bfloat16 takes 4.6 us by 16 warps, 6.3 by two programs of 8, 56 x
# 7232 float32 6.3 and 8.2, 64 x 20001 float16 8.8 by 32 warps and 9.7. More than half as many rows as multiprocessors
# are of one program each too, in a loop: 128 x 32000 float32 takes 15.8 us, 17.5 by four programs to a row, 80 x 32874
# 13.1 and 14.7, 100 x 65536 bfloat16 15.0 and 16.6, 128 x 262144 float32 61.6 and 61.9 (H100).
LOOPED_VECTORS, MIN_LOOPED_WARPS, MAX_LOOPED_WARPS, WARPS_OF_ONE_TILE, LOOPED_REGISTERS = 4, 4, 8, 32, 64
# Rows of at most half as many as multiprocessors, of more than SHARED_TILE elements, are shared where their losses of
# classes are summed and no gradient is written: by as many programs of SHARED_WARPS as run at once, or have a tile
# each, which tell the last one of them. 2 x 22421 bfloat16 takes 5.4 us so, 7.3 by one program to a row, 8 x 73960 5.7
# and 8.5, 33 x 8976 float16 5.5 and 6.5, 15 x 21362 float32 5.9 and 8.4, 64 x 61115 bfloat16 10.9 and 13.5, 1 x 4697671
# 12.4 and 18.7 (H100). A thread has two vectors of 16 bits, of more logits than SHARED_LOGITS to a multiprocessor four.
# One row of a tile of SHARED_ALONE elements is of one program, which has nothing to add to it.
SHARED_TILE, SHARED_WARPS, SHARED_ELEMENTS, SHARED_LOGITS, SHARED_ALONE = 4096, 8, {2: 16, 4: 16, 8: 8}, 8192, 16384
# Words that a thread of the last program reads at once: a sum of thousands of programs would spill.
MAX_WORDS_OF_THREAD = 8
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


# Microseconds of a tile, by a program that loads it by itself, and of several programs to a row until one has added
# what they found; and bytes that a multiprocessor loads in a microsecond, which limit several to a row. Of more rows
# than multiprocessors each is of one program where that takes less: 140 x 20000 float32 12.9 us so, 14.2 by three, 224
# x 12000 11.9 and, by two, 14.0, 224 x 4666 8.4 and 10.5, 200 x 20000 bfloat16 11.0 and 13.6, 260 x 3500 float64 10.9
# and 14.4 (H100), by which the times are estimated; longer rows were not timed.
TILE_OF_ROW_US, ADDING_US, LOADED_PER_US = {2: 1.5, 4: 1.2, 8: 2.2}, 2.5, 23000


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
    """For logits of [N, C], at least one row.

    Args:
        gradient: whether one will be wanted.
        written: whether the gradient comes with the loss: what is read and written is softmax's then.
        shared: whether programs may share a row, which they do if a row should have one class.
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
    # As many programs for a row as there are for each, or as hold it.
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
    """Whether a program to each row takes less than several, which all together load as much as they can."""
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
    # Four vectors of float64 spill 8 bytes of 600 x 30000 (sm_100, Triton 3.7), 64 registers 16 of 280 x 117815.
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


def cross_entropy_gradient(
    problem: Problem, limits: Limits, written: bool, held: bool = False
) -> Whole | LoopedGradient:
    """For the gradient that comes later.

    Args:
        written: whether it is hardly ever wanted.
        held: whether rows were held for the loss, by which a row's statistics are what that finds.
    """
    N, C, _, size = problem
    tile = _whole(problem, limits, True, True) if is_whole(problem, limits) else None
    if held and tile is None:
        tile = _held(problem, limits, True)
    if tile is not None:
        # By itself the compiler spills 8 bytes to have 72 registers (5000 x 68 float32, smoothed).
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
    """Whether a loss whose gradient is wanted writes it at once: to read again what fits the L2 cache costs little."""
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
    alone = few_pieces and rows * block_c <= MAX_ELEMENTS_ALONE
    block_r = rows if alone else _rows_of_a_tile(problem, limits, block_c, vec)
    if not alone and cdiv(N, block_r) > limits.sm_count:
        return _many_rows(problem, limits, vec, _lanes_of_a_row(problem, limits, vec), gradient, classes)
    warps = max(1, min(WARPS, block_r * block_c // 256))
    # Of float64 32 warps spill 32 bytes (256 x 14, smoothed).
    most = min(block_r * pieces // WARP, MAX_WARPS_ALONE if alone and size < 8 else MAX_WHOLE_WARPS)
    if alone and FEW_CLASSES[size < 8] >= C:
        most = min(most, _warps_of_few_classes(rows, block_c))
    while 2 * warps <= most:
        warps *= 2
    # All that there are: by itself the compiler spills 8 bytes to have 32 in 32 warps (8 x 230 float32, weighted).
    registers = _all_registers(warps, limits) if warps > WARPS else 0
    return Whole(block_r, 1, block_c, vec, warps, registers, cdiv(N, block_r))


def _warps_of_few_classes(rows: int, block_c: int) -> int:
    logits = LOGITS_OF_FEW_CLASSES[block_c > FEW_CLASSES[0]]
    least = max(rows // ROWS_OF_FEW_CLASSES, rows * block_c // logits)
    return max(least // WARP, WARPS_OF_FEW_CLASSES)


def _rows_of_a_tile(problem: Problem, limits: Limits, block_c: int, vec: int) -> int:
    """Of few rows: as few as leave each tile a multiprocessor, and its threads a piece each."""
    N, _, _, size = problem
    least = (MIN_WHOLE_TILE_OF_8_BYTES if size == 8 else MIN_WHOLE_PIECES * vec) // block_c
    return min(power_of_2(N), max(least, power_of_2(cdiv(N, limits.sm_count))), WHOLE_TILE // block_c)


def _held(problem: Problem, limits: Limits, gradient: bool) -> Whole | None:
    """Longer rows, by several warps each; None where a loop is better."""
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
    """Each row by so many lanes."""
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
    # All have the same number of tiles, or one less: 1643 x 723 float16 takes 8.4 us by 822 programs, 10.2 by 1643.
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
    """Whose registers have two tiles, of so many rows and parts of each for a thread; no spills were found so."""
    parts = rows * depth
    registers = LOSS_REGISTERS + (UNPACKING_REGISTERS if vec > 1 else 0) + (GRADIENT_REGISTERS if gradient else 0)
    registers += 2 * parts * cdiv(vec * size, 4)
    # A gradient, and what a row should have where that is more than a class, are of the accumulator's type.
    registers += (gradient + (0 if classes else 2)) * parts * vec * max(size // 4, 1)
    registers += TARGET_REGISTERS * rows if (depth > 1 or vec > 2) and rows > FEW_TARGETS else 0
    programs = PER_SM // (2 if size == 8 or gradient else 1)
    while programs > 1 and _registers(programs, limits) < registers:
        programs -= 1
    return programs


def _registers(programs: int, limits: Limits) -> int:
    """Of a thread, if a multiprocessor has so many programs."""
    registers = limits.registers_per_sm // (programs * WARPS * WARP) // REGISTER_UNIT * REGISTER_UNIT
    return min(registers, MAX_REGISTERS)


def _all_registers(warps: int, limits: Limits) -> int:
    """Of a thread, if a multiprocessor has one program."""
    return min(limits.registers_per_sm // (warps * WARP), MAX_REGISTERS)
