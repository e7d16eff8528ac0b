# SPDX-License-Identifier: Apache-2.0
"""Softmax of columns side by side: in one tile, in a loop, or by programs of a group. Figures are those of
:mod:`.defaults`.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import (
    MAX_DEPTH,
    Configuration,
    Problem,
    Shape,
    Split,
    launch,
    resident,
)
from .programs import MIN_BLOCKS, configuration_of, group_of, l1_share, without_spills
from .shapes import (
    COLUMNS,
    COLUMNS_IN_L1,
    LONG_COLUMNS,
    MAX_GROUP_IN_L1,
    MAX_SMALL_GROUP,
    SHORT_COLUMNS,
    SINGLE_COLUMNS,
)

# Bytes that a program reads and writes, at least, where there are MANY_PROGRAMS: starting 1520 programs takes 1 us, in
# which memory moves 4250 KB.
# softmax 40 x 4 x 416224 float16: 71 us by 65035 programs, by 130070 of 128 columns 84.
MIN_PROGRAM_BYTES = 4096
# Programs for each multiprocessor from which they are as large.
MANY_PROGRAMS = 16
# Elements of a thread of 16 warps, at most: 64 of float32 spill 24 bytes.
MAX_ELEMENTS_OF_NARROWER = 32
# Such programs for each multiprocessor, which runs one at a time, up to which two waves of them are slower than groups.
# On 132 multiprocessors 160 were timed.
MAX_PER_SM_OF_NARROWER = 1.25
# Elements of 16 bits from which no program has columns of half a sector.
# softmax 16 x 2000 x 64 bf16: 12.7 us by half a sector, by groups 10.5; 5 x 1520 x 72: 8.0 and 8.8 (H100).
MAX_HALVED = 1 << 20
# Elements to a load whose MAX_DEPTH loads of a thread spill by 128 registers, because each load has a mask.
MASKED_VECTOR = 4
# Registers by which they do not spill.
REGISTERS_OF_MASKED = 144
# Registers by which half as many elements do not spill.
# softmax 4000 x 170 x 68 bf16: 126 us, by 128 registers 153 (H100).
REGISTERS_OF_HALVED = 80
# Share of the columns of float32 tiles that exists from which a thread has half as many elements.
# softmax 600 x 300 x 100 float32: 77 us with half as many, otherwise 62 (H100).
MIN_FULL_OF_HALVED = 0.95
# Columns of float32 forward of which a group has half as many elements to a thread: 32 would spill 24 bytes.
# softmax 16 x 3285 x 32: 12.4 us, with 32 elements 12.9 (H100).
MANY_WORDS_OF_GROUP = 32
# Elements of a column up to which a group holds it, where L1 would hold it for a second reading.
MAX_HELD_COLUMN = 2048
# Rounds in which a program of a group reads what the others found, at most.
MAX_ROUNDS = 2
# Share of L2 up to which groups of columns in vectors have fewer columns, so that programs read fewer words of each
# other. More than 13 MB were not timed.
# softmax 20000 x 100 bf16: 13.8 us by 16 columns, by 64 22.2 (H100).
FEWER_WORDS_OF_VECTORS = 0.25
# The same forward where a row is no whole sectors, of which programs then read more than they have.
# softmax 20000 x 200 bf16 (8 MB): 18.6 us by 16 columns, by 64 22.8; 20000 x 300 (12 MB): 30.1 and 27.3 (H100).
FEWER_WORDS_OF_PARTS = 0.1875
# Elements of each input that a thread of such groups has, at most.
ELEMENTS_FOR_FEWER_WORDS = 16
# Share of L2 that groups read and write at a time, at most, where columns loaded one by one are read twice.
# softmax 2 x 9 x 2048 x 341 float32: 65 us by groups of 8, by 2, which read all blocks at once, 84 (H100).
SINGLES_OF_L2 = 2 / 3
# Multiple of L2 above which all such columns together are read so.
MAX_OF_L2 = 1.4
# Programs of a group for such columns of a gradient of float32, as many as read in one round what the others found: at
# most where the group holds the columns and L2 does not, at least where it reads them twice.
# The gradient of 98 x 1500 x 367: 376 us by 16, by 9 422, held by 24 446 (H100).
GROUP_OF_SINGLES = 16
# Multiple of L2 from which groups for long columns of a gradient of 16 bits in vectors read half of L2 at a time.
# The gradient of 14 x 6336 x 256 float16 (1.7 times): 74.6 us by 16 programs, by 4, all blocks at once, 84 (H100).
MIN_HALVES_OF_L2 = 1.6
# Elements of such a column, at least.
# 24 x 2048 x 512 bf16: 80 us by 8 programs, by 16 97 (H100).
MIN_COLUMN_OF_HALVES = 4096
# Programs of a group, at most, that a loop over a gradient's block of 16 bits is split into for fuller waves.
# softmax's of 313 x 8192 x 8 bf16: 58.1 us in four waves of groups of three, in two waves of one program 67.7 (H100).
MAX_GROUP_FOR_WAVES = 4
# Share of the time of one program for each block that such groups may take.
MAX_SHARE_OF_WAVES = 0.9
# Bytes that memory moves while the programs of such a group wait for each other.
COLUMNS_WAIT_BYTES = 9e6
# Length of a column, in tiles, up to which it is little longer than one tile.
MAX_LITTLE_LONGER = 1.6
# Elements of each input that a thread has of columns in pairs, by 64 registers.
# softmax 69 x 32 x 35518 bf16: 127 us, by threads, few of which run at once, 142 (H100).
ELEMENTS_OF_PAIRS = 16
# Share of forward tiles that exists, at least.
# softmax 2000 x 48 x 1002 bf16: 285 us, by threads 230 (H100).
MIN_FULL_OF_PAIRS = 7 / 8
# Elements of such a column, at most.
MAX_COLUMN_OF_PAIRS = 32
# Bytes of shared memory for what threads tell each other.
EXCHANGE_BYTES = 8192


def tiled_columns(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Configuration:
    # A cache line of each column's row; of very short columns more, for 512 elements to a program.
    block_k = min(power_of_2(K), max(128 // size, 512 // power_of_2(N)))
    wider = min(power_of_2(K), power_of_2(cdiv(MIN_PROGRAM_BYTES, N * size * (inputs + 1))))
    if wider > block_k and M * cdiv(K, wider) >= MANY_PROGRAMS * limits.sm_count:
        block_k = wider
    narrower = _narrower(M, N, K, size, inputs, block_k, limits)
    if size == 8 and inputs == 1 and limits.sm_count > 2 * M * cdiv(K, narrower or 1):
        # Few programs compute for long: softmax 1 x 512 x 112 8.6 us, by groups 6.9 (H200).
        narrower = None
    block_k = narrower or block_k
    blocks = M * cdiv(K, block_k)
    shape, vec = _for_columns(SHORT_COLUMNS, K, block_k, size, inputs, limits)
    if narrower:
        shape = shape._replace(elements=min(shape.elements, MAX_ELEMENTS_OF_NARROWER))
    warps = max(1, power_of_2(N) * block_k // (shape.elements * WARP))
    while shape.elements > 2 * vec and blocks * warps < 4 * limits.sm_count and warps < 8:
        # Multiprocessors are idle: softmax 300 x 200 x 6 bf16 4.0 us by two warps for each [N, K], by one 6.2.
        shape, warps = shape._replace(elements=shape.elements // 2), warps * 2
    if warps <= 8 or narrower:
        found = configuration_of(vec, block_k, shape._replace(warps=warps), 1)
        return _for_masks(Problem(M, N, K, size, inputs), found, limits)
    if (size, inputs) == (4, 2):
        # 8 x 4096 x 1024: 81 % in registers of up to 64 programs, in a loop 66 %.
        member = without_spills(Shape(8 * vec, 8, 128), limits)
        members = power_of_2(N) * block_k // (member.elements * 8 * WARP)
        few = vec > 1 and limits.sm_count > M  # others may have a program for each [N, K]
        if few and members == 2 and member.elements > 4 * vec and blocks >= 2 * limits.sm_count:
            # One program of twice as many warps waits for no other: the gradient of log_softmax 26 x 318 x 1000 44.7
            # us, by two programs 50.4 (H100).
            return configuration_of(vec, block_k, member._replace(warps=16), 1)
        in_l2 = vec > 1 or M * N * K * size * inputs <= 2 * limits.l2_bytes
        if members <= min(64 if in_l2 else GROUP_OF_SINGLES, resident(member, limits)):
            return configuration_of(vec, block_k, member, members)
    if (size, inputs) == (2, 1) and vec * size == VECTOR_BYTES and block_k == 64:
        narrow = _narrow_columns(M, N, K, vec, warps, shape, limits)
        if narrow is not None:
            return narrow
    if (size, inputs) in COLUMNS_IN_L1 and M * N * K * size * inputs > 2 * limits.l2_bytes:
        in_l1 = columns_in_l1(M, N, K, size, inputs, limits)
        if in_l1 is not None:
            return in_l1
    if inputs == 1 and blocks == 1 and block_k * size >= 64:
        # One half of the columns is read while the other waits: 262144 x 32 bf16 21 us, otherwise 27.
        block_k //= 2
        blocks = 2
    shape, vec = _for_loops(COLUMNS, K, block_k, size, inputs, limits)
    shape = _for_short_loops(shape, vec, N, block_k, blocks, size, inputs, limits)
    block_bytes = N * block_k * size * inputs
    group = group_of(blocks, block_bytes, shape, limits)
    moved = block_bytes // inputs * (inputs + 1)
    wide = shape._replace(warps=2 * shape.warps)
    if (size, inputs, vec) == (2, 2, 8) and group == 1:
        group = _for_full_waves(blocks, moved, shape, limits)
    elif group == 1 and l1_share(shape, limits) < block_bytes <= l1_share(wide, limits):
        # One block for a multiprocessor, which L1 holds until it is written.
        shape = wide
    elif vec == 1 and blocks * moved > MAX_OF_L2 * limits.l2_bytes:
        at_once = max(int(SINGLES_OF_L2 * limits.l2_bytes) // moved, MIN_BLOCKS)
        if at_once < blocks:
            at_least = min(GROUP_OF_SINGLES, resident(shape, limits)) if (size, inputs) == (4, 2) else group
            group = max(group, at_least, cdiv(resident(shape, limits), at_once))
    elif group > 1 and (size, inputs, vec) == (2, 2, 8) and blocks * block_bytes > MIN_HALVES_OF_L2 * limits.l2_bytes:
        at_once = max(limits.l2_bytes // 2 // block_bytes, MIN_BLOCKS)
        group = max(group, resident(shape, limits) // at_once) if MIN_COLUMN_OF_HALVES <= N else group
    if group > MAX_SMALL_GROUP and (size, inputs) in LONG_COLUMNS:
        shape, vec = _for_loops(LONG_COLUMNS, K, block_k, size, inputs, limits)
        group = group_of(blocks, N * block_k * size * inputs, shape, limits)
    found = configuration_of(vec, block_k, shape, group)
    problem = Problem(M, N, K, size, inputs)
    if (size, inputs, block_k) == (4, 1, MANY_WORDS_OF_GROUP) and found.elements > ELEMENTS_FOR_FEWER_WORDS:
        launched = launch(problem, found, limits)
        if isinstance(launched, Split) and launched.group > 1 and not launched.looped:
            found = found._replace(elements=ELEMENTS_FOR_FEWER_WORDS)
    few_words = M * N * K * size * inputs <= limits.l2_bytes if vec == 1 else has_few_words(problem, limits)
    return _for_fewer_words(problem, found, limits) if few_words else found


def _for_short_loops(
    shape: Shape, vec: int, N: int, block_k: int, blocks: int, size: int, inputs: int, limits: Limits
) -> Shape:
    """Fewer warps to a program, where that fits the columns better.

    Half as many where columns are little longer than a tile, of gradients of 16 bits with half as many elements. Half
    as many where groups that hold few columns of float64 leave half of the multiprocessors idle.

    The gradient of softmax 1 x 192 x 40768 bf16: 25.1 us, in tiles of 128 rows 27.4; softmax 3 x 631 x 60 float64:
    7.90, by 60 programs 8.08 (H100).
    """
    tile = shape.elements * shape.warps * WARP // block_k
    fewer = shape._replace(warps=shape.warps // 2)
    if (size, inputs, vec) == (2, 2, 8) and blocks > resident(shape, limits) and tile < N <= MAX_LITTLE_LONGER * tile:
        return fewer._replace(elements=shape.elements // 2)
    if (size, inputs) == (8, 1) and 2 * blocks * cdiv(N, tile) <= limits.sm_count:
        return fewer
    return shape


def _for_full_waves(blocks: int, moved: int, shape: Shape, limits: Limits) -> int:
    """Programs for each block: several where one would leave most of a wave empty and waiting for each other costs
    less.

    Args:
        moved: bytes of a block.
    """
    at_once = resident(shape, limits)

    def took(group: int) -> float:  # in bytes that the device moves
        return cdiv(blocks, at_once // group) * (moved * at_once / group + (COLUMNS_WAIT_BYTES if group > 1 else 0))

    best = min(range(1, min(MAX_GROUP_FOR_WAVES, at_once) + 1), key=took)
    return best if took(best) < MAX_SHARE_OF_WAVES * took(1) else 1


def _for_masks(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """Another configuration where tiles with masks would spill.

    More registers, if the programs run in as many waves with them. Otherwise half as many elements: 16 bits by 8 warps
    have half as many columns; float32 by fewer warps, where nearly all columns of tiles exist, has twice as many warps.
    Others of float32 spill.
    """
    launched = launch(problem, found, limits)
    if not isinstance(launched, Split) or launched.even or (launched.depth, launched.vec) != (MAX_DEPTH, MASKED_VECTOR):
        return found
    shape = Shape(found.elements, found.warps, found.registers)
    at_once, fewer = (resident(each, limits) for each in (shape, shape._replace(registers=REGISTERS_OF_MASKED)))
    if fewer > 0 and cdiv(launched.programs, fewer) == cdiv(launched.programs, at_once):
        return found._replace(registers=REGISTERS_OF_MASKED)
    K, size, block_k = problem.K, problem.itemsize, found.block_k
    halved = found._replace(elements=found.elements // 2, registers=REGISTERS_OF_HALVED)
    if (size, found.warps) == (2, 8) and block_k * 2 >= 4 * SECTOR_BYTES:
        return halved._replace(block_k=block_k // 2)
    if size == 4 and found.warps < 8 and MIN_FULL_OF_HALVED * cdiv(K, block_k) * block_k <= K:
        return halved._replace(warps=2 * found.warps)
    return found


def has_few_words(problem: Problem, limits: Limits) -> bool:
    """Whether the columns in vectors are so little that groups of fewer columns are faster."""
    M, N, K, size, inputs = problem
    share = FEWER_WORDS_OF_VECTORS if inputs == 2 or K * size % SECTOR_BYTES == 0 else FEWER_WORDS_OF_PARTS
    return size < 8 and M * N * K * size * inputs <= share * limits.l2_bytes


def _for_fewer_words(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """Fewer columns, a sector at least, where a program of a group would read what the others found in more than
    MAX_ROUNDS rounds. A round is as many words as it has threads for.

    softmax 4980 x 85 bf16: 7.7 us by 16 columns, by groups of 156 in 20 rounds 19.4 (H100).
    """
    while True:
        launched, block_k = launch(problem, found, limits), found.block_k // 2
        few = not isinstance(launched, Split) or rounds(launched, problem.inputs) <= MAX_ROUNDS
        if few or block_k * problem.itemsize < SECTOR_BYTES:
            return found
        shape = Shape(min(found.elements, ELEMENTS_FOR_FEWER_WORDS), found.warps, found.registers)
        block_bytes = problem.N * block_k * problem.itemsize * problem.inputs
        group = group_of(problem.M * cdiv(problem.K, block_k), block_bytes, shape, limits)
        found = configuration_of(found.vec, block_k, shape, group)


def rounds(group: Split, inputs: int) -> int:
    """In which a program reads what all of its group found."""
    return (3 - inputs) * cdiv(group.group, group.members)


def are_many_small_programs(problem: Problem, tiled: Split, limits: Limits) -> bool:
    """Whether 2 or 3 columns as whole vectors wait for the start of programs, in tiles of which K fills too few for
    larger ones.

    softmax 300 x 3 x 3000 bf16: 7.9 us as vectors side by side, in 7200 programs 9.2; 40 x 4 x 100000 float16, 4096
    bytes to a program: 28.2 and 28.3 (H100).
    """
    N, size, inputs = problem.N, problem.itemsize, problem.inputs
    program_bytes = N * tiled.block_k * size * (inputs + 1)
    small = 2 * program_bytes <= MIN_PROGRAM_BYTES and tiled.programs >= MANY_PROGRAMS * limits.sm_count
    return small and inputs == 1 and 1 < N < 4 and tiled.vec * size == VECTOR_BYTES


def has_needless_lanes(problem: Problem, tiled: Split) -> bool:
    """Whether several threads would have a column of 2 to 16 elements, as tiles of few columns leave it to them, or one
    thread of 5 to 15 elements would have rows that do not exist.

    log_softmax 1 x 2 x 131072 bf16: 3.65 us by threads with half a vector of columns, with a vector 3.92, in tiles
    5.87; the gradient of 2 x 3 x 100000: 4.52, 4.57 and 4.62 (H100).
    """
    N = problem.N
    needless = tiled.lanes > 1 or power_of_2(N) > N > 4
    return N <= 16 and needless and tiled.vec * problem.itemsize == VECTOR_BYTES


def _narrower(M: int, N: int, K: int, size: int, inputs: int, block_k: int, limits: Limits) -> int | None:
    """Columns of a block in one tile, fewer than ``block_k``, which would leave multiprocessors idle or take groups,
    whose programs wait for each other. None if no narrower blocks are better.

    A block has half a sector if the columns of a sector are too many elements, but not of float32, whose programs read
    64 KB, and not of MAX_HALVED. A multiprocessor runs one program at a time. If there are more programs, groups are
    faster than half sectors, and than whole sectors of float32 that fill 16 warps.

    The gradient of softmax 9 x 322 x 104 float32: 5.3 us, by groups 7.2; softmax 27 x 3285 x 32 float32: 26.2 by
    216 programs of 4 columns, by groups 13.6 (H100).
    """
    found = None
    halved = False
    shape, _ = _for_columns(SHORT_COLUMNS, K, block_k, size, inputs, limits)
    if power_of_2(N) * block_k <= 8 * shape.elements * WARP and 2 * M * cdiv(K, block_k) > limits.sm_count:
        return None
    least = SECTOR_BYTES // size
    if power_of_2(N) * least > 16 * MAX_ELEMENTS_OF_NARROWER * WARP:
        least //= 2
        halved = True
        if 0 < K % least <= least // 2:  # half of the last block would be empty
            least //= 2
    while M * cdiv(K, block_k) < limits.sm_count and block_k > least:
        block_k //= 2
        shape, _ = _for_columns(SHORT_COLUMNS, K, block_k, size, inputs, limits)
        if power_of_2(N) * block_k <= 16 * min(shape.elements, MAX_ELEMENTS_OF_NARROWER) * WARP:
            found = block_k
    programs = M * cdiv(K, found or 1)
    many = size == 4 or (size == 2 and M * N * K >= MAX_HALVED)
    if halved and many and K * size > SECTOR_BYTES:
        return None
    if found is None or limits.sm_count >= programs:
        return found
    # Of fewer elements groups would hold their columns, which was not timed.
    full = (size, inputs, found) == (4, 1, least) and power_of_2(N) * found == 16 * MAX_ELEMENTS_OF_NARROWER * WARP
    full &= 7 * power_of_2(N) < 8 * N
    return None if halved or (full and MAX_PER_SM_OF_NARROWER * limits.sm_count >= programs) else found


def pairs_in_tiles(problem: Problem) -> Configuration | None:
    """Blocks of 16 bits in one tile of 8 warps, of which four run at once. None if a block would be less than two
    sectors of a row, or its columns are not loaded in pairs.
    """
    _, N, K, size, _ = problem
    shape = Shape(ELEMENTS_OF_PAIRS, 8, 64)
    block_k = shape.elements * shape.warps * WARP // power_of_2(N)
    if size != 2 or K % 2 or block_k > power_of_2(K) or block_k * size < 2 * SECTOR_BYTES:
        return None
    return configuration_of(2, block_k, shape, 1)


def many_pairs(problem: Problem, limits: Limits) -> Configuration | None:
    """``pairs_in_tiles`` of forwards that L2 does not hold, where a thread would have all of two columns.

    None where too much of the tiles would not exist.
    """
    M, N, K, size, inputs = problem
    by_threads = (size, inputs, K % 4) == (2, 1, 2) and WARP // 2 < N <= MAX_COLUMN_OF_PAIRS
    tiled = pairs_in_tiles(problem) if by_threads and M * N * K * size > limits.l2_bytes else None
    if tiled is None or MIN_FULL_OF_PAIRS * power_of_2(N) * cdiv(K, tiled.block_k) * tiled.block_k > N * K:
        return None
    return tiled


def _narrow_columns(M: int, N: int, K: int, vec: int, warps: int, shape: Shape, limits: Limits) -> Configuration | None:
    """Blocks of 32 columns in one tile. None where they leave multiprocessors idle, or too much of the tile empty.

    Args:
        warps: that blocks of 64 would take.
    """
    blocks = M * cdiv(K, 32)
    if blocks < limits.sm_count or N / power_of_2(N) <= 0.875:
        return None
    if warps == 16:
        # 256 x 512 x 1024: 159 us, in a loop 178.
        return configuration_of(vec, 32, shape._replace(warps=8), 1)
    stage_bytes = power_of_2(N) * 32 * 2
    if warps == 32 and 2 * stage_bytes + EXCHANGE_BYTES <= limits.shared_bytes:
        # 1024 x 1024 x 1024: 1.42 ms, in a loop 1.54. Without stages it takes as long as in a loop.
        return configuration_of(vec, 32, shape._replace(warps=16, stages=3), 1)
    return None


def columns_in_l1(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Configuration | None:
    """A group for each block of columns, whose parts L1 or registers hold. None where rows are no whole vectors, or a
    group would be so large that waiting costs more.

    A group that is needed anyway holds columns of up to MAX_HELD_COLUMN in its registers; otherwise the programs of a
    gradient take half of L1.

    The gradient of 1 x 2048 x 102832 bf16: 624 us held by groups of 8, read twice by 3 890; 27 x 8688 x 640: 422 by 20,
    held by 34 496 (H100).
    """
    shape, row_bytes = COLUMNS_IN_L1[size, inputs]
    shape = without_spills(shape, limits)
    vec, block_k = VECTOR_BYTES // size, row_bytes // size
    group = cdiv(N * row_bytes * inputs, l1_share(shape, limits))
    most = min(MAX_GROUP_IN_L1, resident(shape, limits))
    if K % vec or block_k > K or group > most:
        return None
    if group > 1:
        held = cdiv(N, shape.elements * shape.warps * WARP // block_k)
        larger = held if N <= MAX_HELD_COLUMN else inputs * group
        group = larger if larger <= most else group
    return configuration_of(vec, block_k, shape, group)


def _for_columns(
    shapes: dict[tuple[int, int], Shape], K: int, block_k: int, size: int, inputs: int, limits: Limits
) -> tuple[Shape, int]:
    """(shape, elements to a load) for blocks of ``block_k`` columns."""
    shape = without_spills(shapes[size, inputs], limits)
    vec = math.gcd(K, shape.vec_bytes // size, block_k)
    # Single elements have an address and a mask for each load: 16 of them spill.
    return shape._replace(elements=min(shape.elements, MAX_DEPTH * vec if vec > 1 else 8 // inputs)), vec


def _for_loops(
    shapes: dict[tuple[int, int], Shape], K: int, block_k: int, size: int, inputs: int, limits: Limits
) -> tuple[Shape, int]:
    """The same where each load has an address that every iteration advances: more loads of one or two elements spill
    100 to 440 bytes.

    softmax 32 x 29960 x 6 bf16: 32 us with 16 elements, with 32 37.5.
    """
    shape, vec = _for_columns(shapes, K, block_k, size, inputs, limits)
    if vec == 1 and size < 8:
        # By 64 registers 40 bytes of the gradient of 4 x 30000 x 131 float16 would spill on sm_100 (Triton 3.7).
        registers = SINGLE_COLUMNS.registers if limits.capability[0] == 9 else 80
        return SINGLE_COLUMNS._replace(registers=registers), vec
    if vec > 2:
        # In fours of 16 bits not timed.
        return shape._replace(elements=min(shape.elements, 4 * vec)) if inputs == 2 else shape, vec
    # With 4 elements of float64, one by one, 8 bytes of log_softmax 20 x 3000 x 33 spill (sm_100, Triton 3.7).
    tight = vec == 1 and limits.capability >= (10, 0)
    return shape._replace(elements=min(shape.elements, (2 if tight else 8) * vec // inputs)), vec
