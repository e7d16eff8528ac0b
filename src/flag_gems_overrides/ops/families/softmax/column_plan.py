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

# 1520 programs start in a microsecond, in which 4250 KB are moved: 40 x 4 x 416224 float16 by 130070 of 128 columns
# 84 us (62 to read and write), by 65035 71, with 512 columns 76. So many bytes to each, of so many to each
# multiprocessor.
MIN_PROGRAM_BYTES, MANY_PROGRAMS = 4096, 16
# Elements of a thread of 16 warps (64 of float32 spill 24 bytes). Such programs for each multiprocessor, which runs one
# at a time, that are slower than groups if they are more than one: 160 were timed on 132.
MAX_ELEMENTS_OF_NARROWER, MAX_PER_SM_OF_NARROWER = 32, 1.25
# Elements of 16 bits from which no program has columns of half a sector, of several: softmax 16 x 2000 x 64 bf16 12.7
# us so, by groups 10.5, but 5 x 1520 x 72 8.0 and 8.8 (H100; none between them was timed).
MAX_HALVED = 1 << 20
# Registers of a thread with MAX_DEPTH loads of 4 elements, of which each has a mask: by 128 8 to 24 bytes of uneven
# tiles spill (sm_90, Triton 3.6), log_softmax 7 x 187 x 2424 float32 16; by 144 none, of half as many elements by 80
# none: softmax 4000 x 170 x 68 bf16 126 us so, 153 by 128 registers, 3000 x 200 x 100 135 and 164, log_softmax 700 x
# 187 x 2420 float32 1082, by 4 warps that spill 1132. Not where a quarter of the columns of tiles does not exist:
# softmax 3000 x 140 x 72 float32 104 and 89, 600 x 300 x 100 77 and 62 (H100).
MASKED_VECTOR, REGISTERS_OF_MASKED, REGISTERS_OF_HALVED, MIN_FULL_OF_HALVED = 4, 144, 80, 0.95
# Columns of float32 forward of which a group would spill 24 bytes of 32 elements to a thread: softmax 16 x 3285 x 32
# 12.9 us so, with 16, of which some are read twice, 12.4 (H100).
MANY_WORDS_OF_GROUP = 32
# Elements of a column that a group holds where L1 would hold it for a second reading.
MAX_HELD_COLUMN = 2048
# In which a program of a group reads what the others found, at most; forward one, of two numbers for each column.
MAX_ROUNDS = 2
# Share of L2 up to which groups of columns in vectors have fewer of them, for fewer words of each other, and elements
# of each input that a thread has then: softmax 4980 x 84 bf16 10.2 us by 64 columns with 32 elements, by 32 with 16
# 8.3, by 16 7.5, 20000 x 100 22.2, 14.8 and 13.8, 3000 x 256 9.3, 9.0 (two rounds) and 8.0 (H100). Of more than 13 MB
# none was timed. Less forward where a row is no whole sectors, of which programs then read more than they have: 20000 x
# 300 bf16 (12 MB) 27.3 us by 64 columns, by 16 30.1, but 20000 x 200 (8 MB) 22.8 and 18.6, 100000 x 64 30.8 and 24.5
# (H100).
FEWER_WORDS_OF_VECTORS, FEWER_WORDS_OF_PARTS, ELEMENTS_FOR_FEWER_WORDS = 0.25, 0.1875, 16
# Columns loaded one by one that are read twice: what groups read and write at a time is at most SINGLES_OF_L2 of it, if
# all is more than MAX_OF_L2. softmax 2 x 9 x 2048 x 341 float32 65 us by groups of 8, by 4 78, by 2, of which all
# blocks are read at once, 84 (FlagGems 77), 13 x 2048 x 341, 1.43 times as much as L2 has, 54 by 8 and 58 by 3 (H100).
SINGLES_OF_L2, MAX_OF_L2 = 2 / 3, 1.4
# Programs of a group for such columns of a gradient of float32: at most where it holds them and L2 does not, at least
# where it reads them twice, as many as read in one round what the others found. That of 98 x 1500 x 367 376 us by 16,
# by 9 422, held by 24 446 (H100).
GROUP_OF_SINGLES = 16
# Long columns of a gradient of 16 bits in vectors that take a group anyway, from so many times as much as L2 has: as
# many groups as read half of it at a time. That of 14 x 6336 x 256 float16, 1.7 times, 74.6 us by 16 programs, by 12
# 74.5, by 20 77.2, by 4, all blocks at once, 84; shorter ones, 24 x 2048 x 512 bf16, by one 81.1, by 8 80, by 16 97
# (H100).
MIN_HALVES_OF_L2, MIN_COLUMN_OF_HALVES = 1.6, 4096
# Gradients of 16 bits in vectors, in a loop by one program for each block: up to so many are taken for fuller waves, if
# they take no more than that share of its time by bytes and what a group waits: that of softmax 313 x 8192 x 8 bf16, in
# two waves, 67.7 us, in four of groups of three 58.1 (H100).
MAX_GROUP_FOR_WAVES, MAX_SHARE_OF_WAVES, COLUMNS_WAIT_BYTES = 4, 0.9, 9e6
# Of two tiles, of which no more than that many exist.
MAX_LITTLE_LONGER = 1.6
# Of each input that a thread has of columns in pairs, by 64 registers; the least share of forward tiles that exists,
# and their longest column: softmax 69 x 32 x 35518 bf16 takes 127 us so, by threads, few of which run at once, 142
# (torch.compile 118), 2000 x 32 x 1002 108 and 121, but with N of 24, 48 and 56 97 and 87, 285 and 230, 169 and 159
# (H100).
ELEMENTS_OF_PAIRS, MIN_FULL_OF_PAIRS, MAX_COLUMN_OF_PAIRS = 16, 7 / 8, 32
# Of shared memory, for what threads tell each other.
EXCHANGE_BYTES = 8192


def tiled_columns(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Configuration:
    # A cache line of each column's row; of very short columns more, for 512 elements to a program.
    block_k = min(power_of_2(K), max(128 // size, 512 // power_of_2(N)))
    wider = min(power_of_2(K), power_of_2(cdiv(MIN_PROGRAM_BYTES, N * size * (inputs + 1))))
    if wider > block_k and M * cdiv(K, wider) >= MANY_PROGRAMS * limits.sm_count:
        block_k = wider
    narrower = _narrower(M, N, K, size, inputs, block_k, limits)
    if size == 8 and inputs == 1 and limits.sm_count > 2 * M * cdiv(K, narrower or 1):
        # Computing takes long by few programs: softmax 1 x 512 x 112 8.6 us so, by groups 6.9 (H200).
        narrower = None
    block_k = narrower or block_k
    blocks = M * cdiv(K, block_k)
    shape, vec = _for_columns(SHORT_COLUMNS, K, block_k, size, inputs, limits)
    if narrower:
        shape = shape._replace(elements=min(shape.elements, MAX_ELEMENTS_OF_NARROWER))
    warps = max(1, power_of_2(N) * block_k // (shape.elements * WARP))
    while shape.elements > 2 * vec and blocks * warps < 4 * limits.sm_count and warps < 8:
        # Idle multiprocessors: softmax 300 x 200 x 6 bf16 4.0 us by two warps for each [N, K], by one 6.2.
        shape, warps = shape._replace(elements=shape.elements // 2), warps * 2
    if warps <= 8 or narrower:
        found = configuration_of(vec, block_k, shape._replace(warps=warps), 1)
        return _for_masks(Problem(M, N, K, size, inputs), found, limits)
    if (size, inputs) == (4, 2):
        # 8 x 4096 x 1024: 81 % in registers of up to 64 programs, 66 % in a loop. Eight loads of each input: 142 x 1897
        # x 3 11.0 us, with four 14.5.
        member = without_spills(Shape(8 * vec, 8, 128), limits)
        members = power_of_2(N) * block_k // (member.elements * 8 * WARP)
        few = vec > 1 and limits.sm_count > M  # others may have a program for each [N, K]
        if few and members == 2 and member.elements > 4 * vec and blocks >= 2 * limits.sm_count:
            # One of twice as many warps waits for no other: the gradient of log_softmax 26 x 318 x 1000 44.7 us so, by
            # two 50.4 (H100).
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
        # One half of the columns is read while the other waits: 262144 x 32 bf16 21 us, not 27, float32 34, not 36.
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
        # One block for a multiprocessor, which L1 holds until it is written: 26 x 1079 x 317 float32 38 us.
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
    """Half as many warps where columns are little longer than a tile, of gradients of 16 bits with half as many
    elements: that of softmax 1 x 192 x 40768 bf16 25.1 us so, in tiles of 128 rows 27.4. And where groups that hold few
    columns of float64 leave half of the multiprocessors idle: softmax 3 x 631 x 60 7.90 us, by 60 programs 8.08 (H100).
    """
    tile = shape.elements * shape.warps * WARP // block_k
    fewer = shape._replace(warps=shape.warps // 2)
    if (size, inputs, vec) == (2, 2, 8) and blocks > resident(shape, limits) and tile < N <= MAX_LITTLE_LONGER * tile:
        return fewer._replace(elements=shape.elements // 2)
    if (size, inputs) == (8, 1) and 2 * blocks * cdiv(N, tile) <= limits.sm_count:
        return fewer
    return shape


def _for_full_waves(blocks: int, moved: int, shape: Shape, limits: Limits) -> int:
    """Programs for each block, where one would leave most of a wave of programs empty, or of the only one, and others
    are worth what they wait for each other.

    Args:
        moved: bytes of a block.
    """
    at_once = resident(shape, limits)

    def took(group: int) -> float:  # in bytes that the device moves
        return cdiv(blocks, at_once // group) * (moved * at_once / group + (COLUMNS_WAIT_BYTES if group > 1 else 0))

    best = min(range(1, min(MAX_GROUP_FOR_WAVES, at_once) + 1), key=took)
    return best if took(best) < MAX_SHARE_OF_WAVES * took(1) else 1


def _for_masks(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """More registers where tiles with masks would spill, if the programs run in as many waves with them; otherwise half
    as many elements: of 16 bits by 8 warps half as many columns, of float32 by fewer warps, where nearly all columns of
    tiles exist, twice as many warps. Others of float32 spill.
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
    """Whether groups of columns in vectors have few, if their programs would read many words of each other."""
    M, N, K, size, inputs = problem
    share = FEWER_WORDS_OF_VECTORS if inputs == 2 or K * size % SECTOR_BYTES == 0 else FEWER_WORDS_OF_PARTS
    return size < 8 and M * N * K * size * inputs <= share * limits.l2_bytes


def _for_fewer_words(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """Columns, a sector of them at least, of which each program of a group reads what all others found: MAX_ROUNDS
    times as many words as it has threads for, each round after the one before. softmax 4980 x 85 bf16 by groups of 156
    in 20 rounds 19.4 us, by 16 columns 7.7 (FlagGems 17.1), the gradient of 20000 x 100, in vectors, by 64 20.0, by 16
    15.6, by 8, half a sector, 17.5 (H100).
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
    """Whether starting programs is what 2 or 3 columns as whole vectors wait for, in tiles of which K fills too few for
    larger ones: softmax 300 x 3 x 3000 bf16 9.2 us in 7200 programs, as vectors side by side, whatever lies between
    them, 7.9, 151 x 2 x 4736 float16 5.6 and 5.3. The gradient of 151 x 2 x 4736 7.07 and 7.09, softmax 40 x 4 x 100000
    float16, 4096 bytes to a program, 28.3 and 28.2 (H100).
    """
    N, size, inputs = problem.N, problem.itemsize, problem.inputs
    program_bytes = N * tiled.block_k * size * (inputs + 1)
    small = 2 * program_bytes <= MIN_PROGRAM_BYTES and tiled.programs >= MANY_PROGRAMS * limits.sm_count
    return small and inputs == 1 and 1 < N < 4 and tiled.vec * size == VECTOR_BYTES


def has_needless_lanes(problem: Problem, tiled: Split) -> bool:
    """Whether several threads would have a column of 2 to 16 elements, as tiles of few columns leave it to them, or one
    of 5 to 15 would have rows that do not exist: log_softmax 1 x 2 x 131072 bf16 5.87 us so, by threads with half a
    vector of columns 3.65, with a whole one 3.92, softmax 4 x 4 x 40000 float16 4.24, 3.93 and 4.19, 3 x 5 x 316368
    bf16 13.3, 12.6 and 12.7, its gradient 20.9 and, with half a vector, 16.8, log_softmax 10 x 12 x 100000 24.1 and
    23.2; the gradient of 2 x 3 x 100000 bf16 4.62, 4.52 and 4.57 (H100).
    """
    N = problem.N
    needless = tiled.lanes > 1 or power_of_2(N) > N > 4
    return N <= 16 and needless and tiled.vec * problem.itemsize == VECTOR_BYTES


def _narrower(M: int, N: int, K: int, size: int, inputs: int, block_k: int, limits: Limits) -> int | None:
    """Columns of a block where ``block_k`` would leave multiprocessors idle, or take groups, whose programs wait for
    each other, and narrower blocks are single tiles: log_softmax 2 x 400 x 512 bf16 5.6 us so, 7.8 by groups, gradients
    of softmax 1 x 195 x 1024 bf16 4.3 and 6.0, of 9 x 322 x 104 float32 5.3 and 7.2 (H100). Half a sector if columns of
    a whole one are too many elements: softmax 5 x 1520 x 72 bf16 by 8 columns 8.0 us, by 16 9.1, by groups 8.8, but the
    first two by 8 5.8 and 4.5; 13 x 1904 x 12 by 4 5.3, by 8 5.8. Not of float32, whose programs read 64 KB, nor of
    MAX_HALVED: softmax 8 x 3900 x 32 14.2 us so, by groups 10.0, 16 x 2600 x 32 14.4 and 11.8, 16 x 3285 x 32 17.5 and
    12.9, its gradient 21.1 and 15.5, 2 x 3000 x 32 9.5 and 7.6, the gradient of 1 x 3000 x 32 10.2 and 6.7, by pairs 4
    x 7357 x 38 21.3 and 11.7. Not if those are more than run at once, one to a multiprocessor: softmax 27 x 3285
    x 32 float32 26.2 us by 216 programs of 4 columns, by groups 13.6 (FlagGems 22.8), log_softmax 15 x 4000 x 64 33.5
    and 16.0, softmax 20 x 2500 x 48 21.6 and 12.7; nor whole sectors of float32 by as many warps, if those are little
    more: 40 x 2000 x 32 15.5 us by 160 programs, by groups 13.1 (H100). Single tiles are narrower where half of the
    multiprocessors would be idle: softmax 32 x 160 x 24 bf16 in tiles of 32 columns, 32 elements to a thread, 4.4 us
    (FlagGems 4.0; in 16 estimated, not timed).
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
    """Blocks of 16 bits in one tile of 8 warps, of which four run at once; None if a block would be less than two
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
    """Blocks of 32 columns in one tile; None where they leave multiprocessors idle, or too much of the tile empty.

    Args:
        warps: that blocks of 64 would take.
    """
    blocks = M * cdiv(K, 32)
    if blocks < limits.sm_count or N / power_of_2(N) <= 0.875:
        return None
    if warps == 16:
        # 256 x 512 x 1024: 159 us, 178 in a loop.
        return configuration_of(vec, 32, shape._replace(warps=8), 1)
    stage_bytes = power_of_2(N) * 32 * 2
    if warps == 32 and 2 * stage_bytes + EXCHANGE_BYTES <= limits.shared_bytes:
        # 1024 x 1024 x 1024: 1.42 ms, 1.54 in a loop; without the next blocks on their way as in a loop.
        return configuration_of(vec, 32, shape._replace(warps=16, stages=3), 1)
    return None


def columns_in_l1(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Configuration | None:
    """None where rows are no whole vectors, or a group would be so large that waiting costs more.

    Where a group is needed anyway it holds columns of up to MAX_HELD_COLUMN in its registers, or the programs of a
    gradient take half of L1: the gradients of 1 x 2048 x 102832 bf16 624 us held by groups of 8, 675 by 6 and 890 by 3
    that read them twice (FlagGems 787), of 16 x 1024 x 8192 349 by 4 and 361 by 2, of 27 x 8688 x 640 422 by 20, 501 by
    10 and, held, 496 by 34; softmax 1 x 2048 x 102832 497 by 16, 544 by 2 (H100).
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
    # Loads of single elements have an address and a mask each: 16 of them spill.
    return shape._replace(elements=min(shape.elements, MAX_DEPTH * vec if vec > 1 else 8 // inputs)), vec


def _for_loops(
    shapes: dict[tuple[int, int], Shape], K: int, block_k: int, size: int, inputs: int, limits: Limits
) -> tuple[Shape, int]:
    """The same where each load has an address that every iteration advances: more of one or two elements spill 100 to
    440 bytes. softmax 32 x 29960 x 6 bf16 32 us with 16 elements, with 32 37.5, the gradient of 133 x 6232 x 34 127 us
    with 8, with 16 143.
    """
    shape, vec = _for_columns(shapes, K, block_k, size, inputs, limits)
    if vec == 1 and size < 8:
        # By 64 registers 40 bytes of the gradient of 4 x 30000 x 131 float16 would spill on sm_100 (Triton 3.7).
        registers = SINGLE_COLUMNS.registers if limits.capability[0] == 9 else 80
        return SINGLE_COLUMNS._replace(registers=registers), vec
    if vec > 2:
        # In fours of 16 bits not timed.
        return shape._replace(elements=min(shape.elements, 4 * vec)) if inputs == 2 else shape, vec
    # With 4 of float64, one by one, 8 bytes of log_softmax 20 x 3000 x 33 spill (sm_100, Triton 3.7).
    tight = vec == 1 and limits.capability >= (10, 0)
    return shape._replace(elements=min(shape.elements, (2 if tight else 8) * vec // inputs)), vec
