# SPDX-License-Identifier: Apache-2.0
"""Softmax of rows (K = 1): in one tile, or by programs of a group. Figures are those of :mod:`.defaults`."""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import (
    MAX_WORDS,
    Configuration,
    Problem,
    Shape,
    resident,
)
from .little import TINY, are_few_rows_of_float64
from .programs import MIN_BLOCKS, configuration_of, group_of_rows, l1_share, without_spills
from .shapes import (
    IN_L1,
    IN_L2,
    LOOPED_ROWS,
    MAX_OF_L2_AT_ONCE,
    SPLIT_ROWS,
    SPLIT_UNALIGNED_ROWS,
)

# Programs of a group whose parts of a row stay in registers. With more, waiting costs more than reading again.
MAX_GROUP = 256
# Of float64 forward, which is half as much in registers, so that few rows are read at a time and each of them waits:
# softmax 624 x 277360 2222 us held by 136 programs, three rows at a time, read twice by 24 1232, held by 68 with twice
# as many elements to a thread 1112 (torch.compile 1653, H100).
MAX_GROUP_OF_FLOAT64 = 72
# Such groups of more programs than this have half of them, with twice as many elements to a thread, unless they have up
# to two rows each: log_softmax 600 x 189865 by 47 programs 746 us, by 93 1004, softmax 195 x 91811 by 23 118, read
# twice by 45 130, 288 x 87712 by 22 159 and by 43 182 (H100).
MIN_HALVED_OF_FLOAT64 = 32
# Rows up to which no thread has several: so many can be as many programs of 4 warps as multiprocessors run at once.
# 27736541 x 2 bf16 takes 57 us, with two rows to a thread 70, with one, as long as starting 216692 programs, 135.
MANY_ROWS = 1 << 19
# Gradients of odd rows of 5 to 7 elements of 16 bits, of which so many have two threads each: 17296 x 5 bf16 3.3 us, by
# single threads 4.0, 20000 x 7 float16 3.4 and 4.1, 40000 x 5 bf16 3.5 and 4.2 (H100).
FEW_SHORT_ROWS = 1 << 16
# Gradients of odd rows of 33 to so many elements, from few to many of them, that have 4 to a thread, as far as timed.
MAX_ODD_GRADIENT, MIN_ODD_GRADIENTS, MAX_ODD_GRADIENTS = 512, 1 << 12, 1 << 16
# Gradients of rows of whole vectors whose tile takes 32 warps, alone on their multiprocessor, are read twice by fewer
# warps where all rows have a program at once, two to a multiprocessor, if they fill most of the tile and L1 holds two:
# that of log_softmax 220 x 14992 float16 12.2 us so and 13.7, of softmax bf16 10.7 and 11.8, 220 x 11000 10.0 and 10.6,
# of log_softmax float32 18.4 and 19.6, 264 x 12296 18.6 and 19.4, but of softmax 220 x 9000 float16 9.0 and 8.8, 250 x
# 16384 float32 24.6 and 22.0. And of many rows of 16 bits that fill little more than half of it: of 4000 x 9216 bf16
# 79.7 us and 87.9, 4000 x 8704 77.9 and 90.5, but of 1000 x 14992 40.0 and 36.8 (H100).
ALONE_GRADIENT, MIN_LONG_GRADIENT, MAX_LONG_GRADIENT_BYTES = 16384, {2: 11000, 4: 12289}, 120 << 10
MANY_PER_SM, MAX_LITTLE_MORE = 8, 10240
LONG_GRADIENT_WARPS, MANY_GRADIENTS_WARPS, GRADIENT_AT_ONCE_WARPS = 16, 8, 2
# Others of 16 bits that leave a quarter of the tile empty are of half as many warps, as many tiles as exist: the
# gradients of softmax 15007 x 10148 float16 304 us so, in one tile of 32 warps 331, read twice by 16 warps 314
# (torch.compile 315), 6000 x 12004 bf16 146.6 and 154.1, but 5000 x 15996 163.0 and 164.6, 20000 x 5000 201.7 and
# 205.0, of log_softmax 4000 x 10148 float32 165.6 and 165.5 (H100).
MAX_IN_TILES, IN_TILES_WARPS = 12288, 16
# Rows of 16 bits forward that plain loads read in fours are longer in one tile of 32 warps, of a third of the
# multiprocessors or more: softmax 64 x 24292 bf16 8.0 us so, by groups 8.3, 128 x 20476 9.9 and 10.4 (H100).
MAX_IN_FOURS, MIN_BUSY_IN_FOURS = 32768, 1 / 3
# Rows that all have programs at once: microseconds that a program of each group takes, and bytes that a multiprocessor
# with one of 4 warps moves in one. By programs: softmax 1048576 bf16 128 8.0 us, 256 10.0, 512 12.9; 262144 64 5.9, 128
# 6.5, 256 8.7; 147424 36 5.6, 72 5.5, 144 6.5; 403747 float32 198 8.6, 395 11.8, 789 15.7; 50879 25 5.74, 50 5.61, 100
# 5.84; the gradients of 329653 bf16 81 5.4, 161 5.6, 322 7.3, of 151321 37 5.22, 74 5.10, 148 5.38, of 131072 float32
# 64 5.4, 128 5.3, 256 6.6; by programs of each, softmax 3 x 360869 float32 89 10.0, 177 12.1, 3 x 115891 bf16 29 6.9,
# 57 7.2, 114 7.3, 25 x 37898 5 7.3, 10 7.2, 19 8.0, log_softmax 5 x 41633 float32 21 6.57, 41 6.61, 82 6.83 (H100).
GROUP_US, FEW_ROWS_BYTES_PER_US = 0.0105, 20000
# Whole vectors of float32 forward of up to a row for each multiprocessor, most of which have a program at once: half as
# many warps as for others, in a loop where that leaves fewer rows to wait. softmax 7 x 524288 18.2 us so, by 8 warps
# 20.2, in a loop 16 x 1048576 57.9, eight rows at a time, by 8 warps, which hold four at a time, 64.9, 69 x 84064, all
# at once, 23.0 and 25.4 (H100).
FEW_FLOAT32_ROWS, MIN_OF_GROUP = Shape(32, 4, 64), 0.95
# Warps of a row of few float64, at most: those of 2000 and more were not timed.
MAX_WARPS_OF_FEW = 16
# Float64 of odd rows in all up to which a thread has four elements, if rows are not shorter than timed: softmax 287 x
# 299 4.13 us so, with 8 4.26 (H100).
MANY_OF_FLOAT64, MIN_OF_FOUR_FLOAT64 = 1 << 18, 512


def rows_of_one_tile(M: int, N: int, vec: int, size: int, inputs: int) -> Configuration:
    block_n = max(power_of_2(N), vec)
    # Elements of a thread. bf16 forward: 64 columns 74 % with 8, 70 % with 16; 1024 87 % with 16, 85 % with 32; 4096
    # 81 % with 16, 84 % with 32. Loads of one element are many instructions: 99 columns 68 % with 8, 39 % with 16, the
    # gradient of 241029 x 249 float16 130.5 us with 8, 138.6 with 16 (FlagGems 131.6), softmax 100000 x 201 bf16 36.7
    # and 39.7, gradients of 354 x 337 float32 3.62 and 3.68 (H100).
    short = 64 if vec > 1 else 128 if size >= 4 and inputs == 1 else 256
    if vec == 1 and inputs == 2 and size < 8 and MAX_ODD_GRADIENTS >= M:
        short = MAX_ODD_GRADIENT
    elements = 8 if block_n <= short else 16 if block_n <= 1024 or inputs == 2 or size == 8 else 32
    # Of float64 half as many: log_softmax 4096 x 4096 76 us with 8, 115 with 16.
    elements = max(elements // (2 if size == 8 else 1), vec)
    if block_n <= WARP and M * block_n <= TINY:
        # Of float64 a vector: 27 x 32 2.8 us, with 4 elements 3.0.
        elements = min(elements, vec if size == 8 else max(vec, 4))
    if are_few_rows_of_float64(Problem(M, N, 1, size, inputs)):
        elements = max(vec, min(elements, max(2, block_n // (MAX_WARPS_OF_FEW * WARP))))
    elif size == 8 and vec == inputs == 1 and block_n >= MIN_OF_FOUR_FLOAT64 and M * block_n <= MANY_OF_FLOAT64:
        elements = min(elements, 4)
    # Two threads to a row of two vectors: log_softmax 359670 x 8 float32 14.1 us so, by one 15.4 (torch.compile 13.8),
    # its gradient 18.5 and 19.7, softmax 2000000 x 8 48.4 and 51.2, 809080 x 4 float64 23.7 and 24.6; 200000 x 16
    # float32 15.0 by two as by four (H100).
    if vec * size == VECTOR_BYTES and size >= 4 and block_n == 2 * vec:
        elements = vec
    if MANY_ROWS >= M:
        elements = min(elements, block_n)
    if vec == inputs == 1:
        # Two threads to a row at least: 2000000 x 7 bf16 24.7 us, single threads 34.9, 7530 x 5 float32 3.0 and 4.1.
        # The gradient of 6624672 x 7 takes 115 us by two, 98 by single ones; 1000000 x 6, in pairs, 14.1 and 10.8.
        # 131072 x 29 float32 takes 12.3 us with 4 elements to a thread, 17.7 with 8, 815776 x 3 bf16 8.7, with 2 10.8.
        elements = min(elements, max(block_n // 2, 4 if N == 3 else 1), 4 if block_n <= WARP else elements)
    elif vec == 1 and block_n >= WARP // 2 and (block_n <= WARP or _are_odd_gradients(M, block_n, size)):
        # As the forward: the gradient of 447392 x 27 bf16 29.5 us, with 8 37.4; of 300000 x 11 12.9 and 15.2, of 136037
        # x 13 float32 12.3 and 14.3. Of not so many longer ones too: of 8082 x 121 bf16 5.9 us, with 8 6.1, of 13488 x
        # 363 18.05, with 8 18.7, with 16 18.8, of 45055 x 215 float32 46.3, with 8 47.1 (H100).
        elements = min(elements, 4)
    elif vec == 1 and size == 2 and block_n == WARP // 4 and FEW_SHORT_ROWS >= M:
        elements = min(elements, 4)
    threads = block_n // (max(min(elements, block_n) // vec, 1) * vec)
    # Of few rows no more warps than they need; of many that short more, for fewer programs (300000 x 11 as fast).
    most = 8 if vec == 1 and inputs == 2 and block_n == WARP // 2 and M > MANY_ROWS else 4
    warps = max(min(most, power_of_2(cdiv(M * threads, WARP))), threads // WARP)
    return Configuration("rows", elements, warps)


def _are_odd_gradients(M: int, block_n: int, size: int) -> bool:
    return size < 8 and block_n <= MAX_ODD_GRADIENT and MIN_ODD_GRADIENTS <= M <= MAX_ODD_GRADIENTS


def fills_a_large_tile(M: int, N: int, limits: Limits) -> bool:
    """Whether a row of float32 that is longer than others in one tile is still best off in one, of 32 warps.

    4096 x 32768: 262 us, twice through L1 274; x 24576, a quarter of the tile empty, 206, not 196. 16 x 32768 7.8 us,
    by groups 9.5; one row 7.2, not 6.1.
    """
    return M > 1 and (limits.sm_count > M or N > 7 * 4096)


def are_fours_of_one_tile(problem: Problem, limits: Limits) -> bool:
    """Whether rows of 16 bits, longer than others in one tile, are best off in one that plain loads read."""
    M, N, _, size, inputs = problem
    fours = (size, inputs) == (2, 1) and N % 8 == 4 and MAX_IN_FOURS >= N
    return fours and MIN_BUSY_IN_FOURS * limits.sm_count <= M <= limits.sm_count


def row_with_unaligned(N: int, size: int, inputs: int) -> Configuration:
    """One program for a row, of as few warps as can hold it: each of them goes through the edges."""
    vec = VECTOR_BYTES // size
    elements = (32 if inputs == 1 else 16) // (2 if size == 8 else 1)
    warps = max(1, power_of_2(N // vec) * vec // (elements * WARP))
    shape = Shape(elements, warps, 128 if warps <= 16 else 64)
    return configuration_of(vec, vec, shape, 1)


def enough_rows(M: int, size: int, limits: Limits) -> bool:
    """Whether a program for each row leaves no multiprocessor idle.

    A quarter of them may be for float64, of which nothing holds a long row at once: log_softmax 120 x 12881 takes 14.2
    us so, by groups 22.6 (PyTorch 17.0), its gradient of 100 x 12881 13.7 and 17.2 (H200).
    """
    return limits.sm_count <= M or (size == 8 and 3 * limits.sm_count <= 4 * M)


def gradients_at_once(M: int, N: int, size: int, inputs: int, limits: Limits) -> Configuration | None:
    """Groups of programs of two warps that hold all rows of float32, where a program of 32 for each, alone on its
    multiprocessor, would take a second wave: the gradient of softmax 161 x 10991 15.2 us so, and 16.3 (H100). None if
    not all run at once.
    """
    if (size, inputs) != (4, 2) or limits.sm_count >= M:
        return None
    vec = VECTOR_BYTES // size
    shape = without_spills(SPLIT_UNALIGNED_ROWS[size, inputs], limits)._replace(warps=GRADIENT_AT_ONCE_WARPS)
    tiles = cdiv(N // vec, shape.elements // vec * shape.warps * WARP)
    return configuration_of(vec, vec, shape, tiles) if M * tiles <= resident(shape, limits) else None


def gradient_in_cache(M: int, N: int, size: int, inputs: int, limits: Limits) -> Configuration | None:
    """A program of fewer warps for each row, which reads it twice; None if one that holds it is better."""
    vec = VECTOR_BYTES // size
    alone = power_of_2(N) == ALONE_GRADIENT
    if inputs == 1 or size == 8 or N % vec or not alone or limits.capability[0] != 9:
        return None
    held_by_l1 = N * size * inputs <= MAX_LONG_GRADIENT_BYTES
    if limits.sm_count < M <= 2 * limits.sm_count and MIN_LONG_GRADIENT[size] <= N and held_by_l1:
        return configuration_of(vec, vec, Shape(2 * vec, LONG_GRADIENT_WARPS, 64), 1)
    if size == 2 and MANY_PER_SM * limits.sm_count <= M and N <= MAX_LITTLE_MORE:
        return configuration_of(vec, vec, Shape(2 * vec, MANY_GRADIENTS_WARPS, 64), 1)
    return None


def gradient_in_tiles(M: int, N: int, size: int, inputs: int, limits: Limits) -> Configuration | None:
    """A program of 16 warps for each of many rows, which has tiles of which only the last has columns that do not
    exist; None if one tile is better.
    """
    alone = power_of_2(N) == ALONE_GRADIENT and N <= MAX_IN_TILES
    if (size, inputs) != (2, 2) or not alone or 2 * limits.sm_count >= M:
        return None
    return Configuration("rows", MAX_WORDS // inputs, IN_TILES_WARPS)


def row_in_cache(M: int, N: int, size: int, inputs: int, unaligned: bool, limits: Limits) -> Configuration | None:
    """A program for each row, which reads it twice; None if no cache holds it, or multiprocessors are idle."""
    vec = VECTOR_BYTES // size
    if not enough_rows(M, size, limits):
        return None
    for shape, most, with_unaligned in IN_L1.get((size, inputs), ()):
        shape = _read_twice(shape, size, limits)
        if with_unaligned >= unaligned and N * size * inputs <= most * l1_share(shape, limits):
            narrow = shape._replace(warps=shape.warps // 2)
            if (size, inputs) == (4, 1) and resident(shape, limits) < M <= resident(narrow, limits):
                # All at once: softmax 300 x 28672 33.2 us so, in two waves of twice as many warps 34.9 (H100).
                shape = narrow
            return configuration_of(vec, vec, shape, 1)
    in_l2 = IN_L2.get((size, inputs))
    if in_l2 is not None:
        shape = _read_twice(in_l2, size, limits)
        if min(M, resident(shape, limits)) * N * size * inputs <= MAX_OF_L2_AT_ONCE * limits.l2_bytes:
            return configuration_of(vec, vec, shape, 1)
    return None


def _is_little_more_than_at_once(M: int, tiles: int, shape: Shape, limits: Limits) -> bool:
    """Whether groups would have a second row each, or some of them, and half of the multiprocessors have a row: softmax
    88 x 14097 float64 17.4 us by 75 groups of 7 programs, read twice by one 15.0 (PyTorch 18.3), but 60 x 14097, 60
    groups, 11.5 and 14.6 (H100).
    """
    at_once = resident(shape, limits) // tiles
    return limits.sm_count <= 2 * M and at_once < M <= 2 * at_once


def _has_many_of_float64(M: int, tiles: int, shape: Shape, limits: Limits) -> bool:
    return tiles > MIN_HALVED_OF_FLOAT64 and 2 * (resident(shape, limits) // tiles) < M


def _read_twice(shape: Shape, size: int, limits: Limits) -> Shape:
    shape = without_spills(shape, limits)
    if size == 8 and limits.capability[0] != 9:
        # By 64 registers 8 bytes of softmax 3000 x 5001 spill (sm_100, Triton 3.7).
        return shape._replace(registers=max(shape.registers, 80))
    return shape


def long_rows(M: int, N: int, size: int, inputs: int, unaligned: bool, limits: Limits) -> Configuration:
    vec = VECTOR_BYTES // size
    length = N // vec
    in_cache = row_in_cache(M, N, size, inputs, unaligned, limits)
    if in_cache is not None:
        return in_cache
    shape = without_spills((SPLIT_UNALIGNED_ROWS if unaligned else SPLIT_ROWS)[size, inputs], limits)
    tiles = cdiv(length, shape.elements // vec * shape.warps * WARP)
    if size == 8 and inputs == 1 and _is_little_more_than_at_once(M, tiles, shape, limits):
        return configuration_of(vec, vec, _read_twice(IN_L2[size, inputs], size, limits), 1)
    if (size, inputs) == (8, 1) and limits.capability[0] == 9 and _has_many_of_float64(M, tiles, shape, limits):
        shape = shape._replace(elements=2 * shape.elements)
        tiles = cdiv(length, shape.elements // vec * shape.warps * WARP)
    if tiles > min(resident(shape, limits) // 2, MAX_GROUP_OF_FLOAT64 if (size, inputs) == (8, 1) else MAX_GROUP):
        shape = LOOPED_ROWS[size, inputs]
        tiles = group_of_rows(M, N * size * inputs, N * size, shape, limits)
        tile = shape.elements // vec * shape.warps * WARP
        if (size, inputs) == (4, 1) and tiles * tile >= length and not unaligned:
            # Held, 8 to 16 bytes would spill (sm_90, Triton 3.6): softmax 4108384 float32 19.0 us by 132 programs, in
            # two rounds, by 264 with half as many elements to a thread 20.4 (H100).
            return configuration_of(vec, vec, shape, min(tiles // 2, (length - 1) // tile))
    elif (size, inputs) == (4, 1) and not unaligned and _are_few_of_float32(M, tiles, limits):
        shape = without_spills(FEW_FLOAT32_ROWS, limits)
        tiles = cdiv(length, shape.elements // vec * shape.warps * WARP)
        if M * tiles > resident(shape, limits):
            tiles = group_of_rows(M, N * size, N * size, shape, limits)
            tiles = _for_full_tiles(length, tiles, shape.elements // vec * shape.warps * WARP)
    if size < 8:
        return _for_few_rows(Problem(M, N, 1, size, inputs), configuration_of(vec, vec, shape, tiles), limits)
    # Few rows: more programs, with less each.
    while shape.elements > vec and 2 * M * tiles <= resident(shape, limits):
        shape = shape._replace(elements=shape.elements // 2)
        tiles *= 2
    return configuration_of(vec, vec, shape, tiles)


def _for_full_tiles(length: int, group: int, tile: int) -> int:
    """A few programs of a group less, if each has as many tiles then, which are full: softmax 16 x 1048576 float32 59.7
    us by 128 programs, by 132 62.7 (H100).
    """
    fewest = cdiv(length, cdiv(cdiv(length, group), tile) * tile)
    return fewest if MIN_OF_GROUP * group <= fewest else group


def _are_few_of_float32(M: int, tiles: int, limits: Limits) -> bool:
    """Not of groups of twice as many programs, more than read in one round what the others found."""
    large = 2 * tiles > MAX_GROUP and MIN_BLOCKS // 2 >= M
    return limits.sm_count >= M and 2 * limits.sm_count < M * tiles and not large


def _for_few_rows(problem: Problem, held: Configuration, limits: Limits) -> Configuration:
    """Half as many elements to a thread, or a quarter, for twice as many programs, where these are worth what each of
    them waits for the others; ``held`` unless all rows have programs at once.
    """
    M, N, _, size, inputs = problem
    moved = M * N * size * (inputs + 1)
    found: tuple[float, Configuration] | None = None
    elements = held.elements
    while elements >= 2 * held.vec:
        tiles = cdiv(N // held.vec, elements // held.vec * held.warps * WARP)
        if M * tiles > resident(Shape(elements, held.warps, held.registers), limits):
            break
        programs = M * tiles
        # Multiprocessors with one more than others are the last: softmax 5 x 262144 float32 13.8 us by 160 of 8 warps,
        # by 320 12.9 (H100).
        last = cdiv(programs, limits.sm_count)
        busy = programs / last if last > 1 else min(programs * held.warps / 4, limits.sm_count)
        took = GROUP_US * tiles + moved / (busy * FEW_ROWS_BYTES_PER_US)
        if found is None or took < found[0]:
            found = took, held._replace(elements=elements, group=tiles)
        elements //= 2
    return held if found is None else found[1]
