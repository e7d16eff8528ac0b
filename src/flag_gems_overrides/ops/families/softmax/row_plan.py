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

# Programs of a group that hold a row in registers, at most. With more, waiting costs more than reading again.
MAX_GROUP = 256
# The same of float64 forward, which has half as many elements in registers, so that few rows are read at a time.
# softmax 624 x 277360: 1112 us by 68 programs, by 136, three rows at a time, 2222 (H100).
MAX_GROUP_OF_FLOAT64 = 72
# Programs of such a group above which half as many have twice as many elements to a thread, unless each group has two
# rows or fewer.
# log_softmax 600 x 189865: 746 us by 47 programs, by 93 1004 (H100).
MIN_HALVED_OF_FLOAT64 = 32
# Rows up to which a thread has no more than one. For more rows several save the start of programs.
# 27736541 x 2 bf16: 57 us, with one row to a thread, 216692 programs, 135.
MANY_ROWS = 1 << 19
# Odd rows of 5 to 7 elements of 16 bits up to which two threads have a row of a gradient.
# 17296 x 5 bf16: 3.3 us, by single threads 4.0 (H100).
FEW_SHORT_ROWS = 1 << 16
# Elements of an odd row of a gradient up to which a thread has 4, from 33 on. More were not timed.
MAX_ODD_GRADIENT = 512
# Such rows, at least and at most.
MIN_ODD_GRADIENTS, MAX_ODD_GRADIENTS = 1 << 12, 1 << 16
# Elements of a gradient's tile that takes 32 warps, which are alone on their multiprocessor.
ALONE_GRADIENT = 16384
# Elements of a row from which fewer warps read it twice where two programs to a multiprocessor have all rows at once,
# by bytes of an element.
# log_softmax's 220 x 14992 float16: 12.2 us, held 13.7; softmax's 220 x 9000: 9.0 and 8.8 (H100).
MIN_LONG_GRADIENT = {2: 11000, 4: 12289}
# Bytes of both inputs of such a row, at most, so that L1 holds two. 250 x 16384 float32: 24.6 us, held 22.0 (H100).
MAX_LONG_GRADIENT_BYTES = 120 << 10
# Warps of a program that reads such a row twice.
LONG_GRADIENT_WARPS = 16
# Rows of 16 bits for each multiprocessor from which fewer warps read them twice.
MANY_PER_SM = 8
# Elements of such a row, at most: it fills little more than half of the tile.
# 4000 x 8704 bf16: 77.9 us, held 90.5; 1000 x 14992: 40.0 and 36.8 (H100).
MAX_LITTLE_MORE = 10240
# Warps of a program that reads such a row twice.
MANY_GRADIENTS_WARPS = 8
# Warps of a program where groups hold all rows at once.
GRADIENT_AT_ONCE_WARPS = 2
# Elements of a row of a gradient of 16 bits up to which half as many warps read several tiles of it: a quarter of one
# tile would be empty.
# softmax's 15007 x 10148 float16: 304 us, in one tile of 32 warps 331; 5000 x 15996 bf16: 163.0 and 164.6 (H100).
MAX_IN_TILES = 12288
# Warps of such a program.
IN_TILES_WARPS = 16
# Elements of a row of 16 bits forward that one tile of 32 warps has by plain loads of four, at most.
# softmax 128 x 20476 bf16: 9.9 us, by groups 10.4 (H100).
MAX_IN_FOURS = 32768
# Share of the multiprocessors that has such a row, at least.
MIN_BUSY_IN_FOURS = 1 / 3
# Estimate where all rows have programs at once: microseconds that each program of a group adds.
# softmax 1048576 bf16: 8.0 us by 128 programs, by 512 12.9 (H100).
GROUP_US = 0.0105
# Bytes that a multiprocessor with a program of 4 warps moves in a microsecond.
FEW_ROWS_BYTES_PER_US = 20000
# Whole vectors of float32 forward, of up to a row for each multiprocessor, most of which have a program at once: half
# as many warps as for others, in a loop where fewer rows wait then.
# softmax 7 x 524288: 18.2 us, by 8 warps 20.2 (H100).
FEW_FLOAT32_ROWS = Shape(32, 4, 64)
# Share of a group's programs that is left, at least, where all tiles of each are full.
MIN_OF_GROUP = 0.95
# Warps of a row of few float64, at most. 2000 elements and more were not timed.
MAX_WARPS_OF_FEW = 16
# Float64 of odd rows in all up to which a thread has four elements. softmax 287 x 299: 4.13 us, with 8 4.26 (H100).
MANY_OF_FLOAT64 = 1 << 18
# Elements of a tile of such a row, at least. Shorter ones were not timed.
MIN_OF_FOUR_FLOAT64 = 512


def rows_of_one_tile(M: int, N: int, vec: int, size: int, inputs: int) -> Configuration:
    block_n = max(power_of_2(N), vec)
    # Elements of a thread. Loads of one element are many instructions, so that fewer are better.
    # 99 columns of bf16, forward: 68 % of the bandwidth with 8, with 16 39 %; 4096 columns: 84 % with 32, with 16 81 %.
    short = 64 if vec > 1 else 128 if size >= 4 and inputs == 1 else 256
    if vec == 1 and inputs == 2 and size < 8 and MAX_ODD_GRADIENTS >= M:
        short = MAX_ODD_GRADIENT
    elements = 8 if block_n <= short else 16 if block_n <= 1024 or inputs == 2 or size == 8 else 32
    # Of float64 half as many: log_softmax 4096 x 4096 76 us with 8, with 16 115.
    elements = max(elements // (2 if size == 8 else 1), vec)
    if block_n <= WARP and M * block_n <= TINY:
        # Of float64 a vector: 27 x 32 2.8 us, with 4 elements 3.0.
        elements = min(elements, vec if size == 8 else max(vec, 4))
    if are_few_rows_of_float64(Problem(M, N, 1, size, inputs)):
        elements = max(vec, min(elements, max(2, block_n // (MAX_WARPS_OF_FEW * WARP))))
    elif size == 8 and vec == inputs == 1 and block_n >= MIN_OF_FOUR_FLOAT64 and M * block_n <= MANY_OF_FLOAT64:
        elements = min(elements, 4)
    # Two threads to a row of two vectors: log_softmax 359670 x 8 float32 14.1 us, by one 15.4 (H100).
    if vec * size == VECTOR_BYTES and size >= 4 and block_n == 2 * vec:
        elements = vec
    if MANY_ROWS >= M:
        elements = min(elements, block_n)
    if vec == inputs == 1:
        # Two threads to a row at least: 2000000 x 7 bf16 24.7 us, by single threads 34.9. No more than 4
        # elements of short rows: 131072 x 29 float32 12.3 us, with 8 17.7.
        elements = min(elements, max(block_n // 2, 4 if N == 3 else 1), 4 if block_n <= WARP else elements)
    elif vec == 1 and block_n >= WARP // 2 and (block_n <= WARP or _are_odd_gradients(M, block_n, size)):
        # The gradient of 447392 x 27 bf16: 29.5 us, with 8 elements 37.4; 45055 x 215 float32: 46.3 and 47.1 (H100).
        elements = min(elements, 4)
    elif vec == 1 and size == 2 and block_n == WARP // 4 and FEW_SHORT_ROWS >= M:
        elements = min(elements, 4)
    threads = block_n // (max(min(elements, block_n) // vec, 1) * vec)
    # No more warps than few rows need. More for many short rows, for fewer programs.
    most = 8 if vec == 1 and inputs == 2 and block_n == WARP // 2 and M > MANY_ROWS else 4
    warps = max(min(most, power_of_2(cdiv(M * threads, WARP))), threads // WARP)
    return Configuration("rows", elements, warps)


def _are_odd_gradients(M: int, block_n: int, size: int) -> bool:
    return size < 8 and block_n <= MAX_ODD_GRADIENT and MIN_ODD_GRADIENTS <= M <= MAX_ODD_GRADIENTS


def fills_a_large_tile(M: int, N: int, limits: Limits) -> bool:
    """Whether a row of float32 that is longer than others in one tile is still best off in one, of 32 warps.

    4096 x 32768: 262 us, twice through L1 274; x 24576, a quarter of the tile empty: 206 and 196.
    """
    return M > 1 and (limits.sm_count > M or N > 7 * 4096)


def are_fours_of_one_tile(problem: Problem, limits: Limits) -> bool:
    """Whether rows of 16 bits, longer than others in one tile, are best off in one that plain loads read."""
    M, N, _, size, inputs = problem
    fours = (size, inputs) == (2, 1) and N % 8 == 4 and MAX_IN_FOURS >= N
    return fours and MIN_BUSY_IN_FOURS * limits.sm_count <= M <= limits.sm_count


def row_with_unaligned(N: int, size: int, inputs: int) -> Configuration:
    """One program for a row, of as few warps as can hold it, for each warp goes through the edges."""
    vec = VECTOR_BYTES // size
    elements = (32 if inputs == 1 else 16) // (2 if size == 8 else 1)
    warps = max(1, power_of_2(N // vec) * vec // (elements * WARP))
    shape = Shape(elements, warps, 128 if warps <= 16 else 64)
    return configuration_of(vec, vec, shape, 1)


def enough_rows(M: int, size: int, limits: Limits) -> bool:
    """Whether a program for each row leaves no multiprocessor idle.

    A quarter may be idle for float64, because nothing holds a long row at once.

    log_softmax 120 x 12881 float64: 14.2 us, by groups 22.6 (H200).
    """
    return limits.sm_count <= M or (size == 8 and 3 * limits.sm_count <= 4 * M)


def gradients_at_once(M: int, N: int, size: int, inputs: int, limits: Limits) -> Configuration | None:
    """Groups of programs of two warps that hold all rows of float32, where a program of 32 warps for each, alone on its
    multiprocessor, would take a second wave. None if not all run at once.

    The gradient of softmax 161 x 10991: 15.2 us, by 32 warps 16.3 (H100).
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
    """A program of 16 warps for each of many rows, in tiles of which only the last has columns that do not exist. None
    if one tile is better.
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
                # All at once: softmax 300 x 28672 33.2 us, in two waves of twice as many warps 34.9 (H100).
                shape = narrow
            return configuration_of(vec, vec, shape, 1)
    in_l2 = IN_L2.get((size, inputs))
    if in_l2 is not None:
        shape = _read_twice(in_l2, size, limits)
        if min(M, resident(shape, limits)) * N * size * inputs <= MAX_OF_L2_AT_ONCE * limits.l2_bytes:
            return configuration_of(vec, vec, shape, 1)
    return None


def _is_little_more_than_at_once(M: int, tiles: int, shape: Shape, limits: Limits) -> bool:
    """Whether some groups would have a second row, and half of the multiprocessors have a row.

    softmax 88 x 14097 float64: 15.0 us read twice, by 75 groups of 7 programs 17.4; 60 x 14097: 14.6 and 11.5 (H100).
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
            # Held, 8 to 16 bytes would spill (sm_90, Triton 3.6). softmax 4108384 float32: 19.0 us by 132 programs in
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
    """A few programs of a group less, if all tiles of each are full then.

    softmax 16 x 1048576 float32: 59.7 us by 128 programs, by 132 62.7 (H100).
    """
    fewest = cdiv(length, cdiv(cdiv(length, group), tile) * tile)
    return fewest if MIN_OF_GROUP * group <= fewest else group


def _are_few_of_float32(M: int, tiles: int, limits: Limits) -> bool:
    """Whether FEW_FLOAT32_ROWS are better. Their groups have twice as many programs: few rows should need no more than
    one round to read what the others found.
    """
    large = 2 * tiles > MAX_GROUP and MIN_BLOCKS // 2 >= M
    return limits.sm_count >= M and 2 * limits.sm_count < M * tiles and not large


def _for_few_rows(problem: Problem, held: Configuration, limits: Limits) -> Configuration:
    """Half or a quarter of the elements to a thread, for more programs, where these are worth what each of them waits
    for the others. ``held`` unless all rows have programs at once.
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
        # Multiprocessors with one more program than others are the last.
        last = cdiv(programs, limits.sm_count)
        busy = programs / last if last > 1 else min(programs * held.warps / 4, limits.sm_count)
        took = GROUP_US * tiles + moved / (busy * FEW_ROWS_BYTES_PER_US)
        if found is None or took < found[0]:
            found = took, held._replace(elements=elements, group=tiles)
        elements //= 2
    return held if found is None else found[1]
