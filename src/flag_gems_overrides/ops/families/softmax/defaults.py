# SPDX-License-Identifier: Apache-2.0
"""What a softmax of [M, N, K] over N is launched with where no table says better.

The figures behind the constants are sweeps of about 5000 (shape, configuration) pairs on one H200 (torch 2.11.0,
triton 3.6.0), in percent of its copy bandwidth of 4250 GB/s.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import MAX_DEPTH, MAX_INTERLEAVED, MAX_WORDS, Configuration, Problem, Shape, Split, launch, launch_or_none, resident
from .shapes import (
    BLOCKS,
    COLUMNS,
    COLUMNS_IN_L1,
    IN_L1,
    LONG_COLUMNS,
    LOOPED_ROWS,
    MAX_GROUP_IN_L1,
    MAX_SMALL_GROUP,
    SHORT_COLUMNS,
    SINGLE_COLUMNS,
    SPLIT_ROWS,
    SPLIT_UNALIGNED_ROWS,
)

# Rows up to here are one tile of one program; bf16 forward 4096 x 16384: 87 %, x 32768 135 us, in one tile 170. Half as
# many of float64.
MAX_IN_ONE_TILE = 16384
# From here on rows that start anywhere are read as aligned vectors and edges, by the bytes that a plain load could
# take. bf16 forward, 511 columns: 75 % plain, 71 % with edges; 777: 71 % and 80 %; 1023: 56 % and 84 %.
MIN_UNALIGNED = {1: 512, 2: 512, 4: 1024, 8: MAX_IN_ONE_TILE + 1}
# Programs of a group whose parts of a row stay in registers. With more, waiting costs more than reading again.
MAX_GROUP = 256
# Blocks in flight at least, however little of them L2 holds: with fewer, nothing hides the wait of a group.
MIN_BLOCKS = 8
# Columns of no whole vectors are read side by side, whatever lies between them, if they are no longer than this, of
# few elements in all if they are no longer than 64. The gradients of 197 x 117 x 311 bf16 24.4 us, in a loop 39.6, of
# 153 x 235 x 603 float32 112 and 206; softmax 233 x 105 x 83 bf16 8.7 and 10.7. Longer ones of which no two are
# loaded together are, if a program can hold as many as memory is read by: 20 to 30 instructions an element, in a loop
# 44, by groups of programs that wait for each other 58. The gradients of log_softmax 1899 x 771 x 5 float32 36 us, by
# groups 120 (PyTorch 51), of softmax 142 x 1897 x 3 7.8 and 14.5. By at most MAX_SHARED_WARPS warps where a row of K
# is longer than a sector, so that programs share sectors: softmax 26 x 1079 x 317 float32 by 16 49 us, in a loop 38.
# Where four of 16 bits are loaded together longer ones were not timed.
MAX_SHORT, MAX_SHORT_IN_FOURS, MAX_SHORT_OF_LITTLE, MAX_SHORT_WARPS, MAX_SHARED_WARPS = 128, 32, 64, 32, 8
# Columns from which programs have 256 of 33 to 64 elements, for fewer sectors that two of them read: softmax 4 x 33 x
# 216585 bf16 44 us, with 128 46.6.
MANY_COLUMNS = 1 << 18
# Columns of float64 up to here, whole vectors or not: what computes in float64 should have no lane without an element
# (log_softmax 4 x 327360 10.0 us, as vectors of half-empty blocks 15.5, PyTorch 12.6).
MAX_SHORT_FLOAT64 = 16
# The same for all columns of [N, K] with no more elements than this, of which a program has many; not if they are
# longer than 64: the gradient of 3162 x 128 x 2 float32 7.9 us, by one warp for each [N, K] 6.2.
MAX_SHORT_ELEMENTS = 512
# Elements for each multiprocessor up to which a thread of short columns has no more than 16, of half as many no more
# than 8, of float64 half of that. Columns of several threads are in programs of one warp then, which need not wait for
# others (log_softmax 30 x 16 x 2 float32 2.8 us, by four warps with 4 elements 3.05; in tiles of a power of two, of
# four warps, softmax 3 x 146 float16 2.7 us with 4 elements, 2.9 with 8, log_softmax 6 x 5 x 18 float64 3.5 and 4.1).
# Longer ones of rows that a sector holds have a program each, also in place of groups, if 8 elements to a thread, of
# float64 half as many, are enough: softmax 5 x 2032 x 5 bf16 3.8 us, in four programs of 16 warps 7.0; its gradient 3.8
# and 7.6; log_softmax 3 x 5000 x 3 float32 5.4 and 8.1; the gradient of 1 x 5843 x 3 bf16 4.4, by groups 5.0. With 16
# elements that of 15142 x 3 float32 8.2 and 5.3 (H100).
LITTLE = 1024
# Rows up to which no thread has several: so many can be as many programs of 4 warps as multiprocessors run at once.
# 27736541 x 2 bf16 takes 57 us, with two rows to a thread 70, with one, as long as starting 216692 programs, 135.
MANY_ROWS = 1 << 19
# So few in all, in rows or columns of so few that are loaded one by one: softmax 3 x 400 x 5 float16 3.1 us by a thread
# for each 8 elements of a column, 5.1 by groups of programs; 3 x 7 float32 2.4 with 4, 3.2 with 8; the gradient of
# log_softmax 1531 x 5 bf16 2.7 and 3.4.
TINY, MAX_SHORT_OF_TINY = 16384, 512
# 1520 programs start in a microsecond, in which 4250 KB are moved: 40 x 4 x 416224 float16 by 130070 of 128 columns
# 84 us (62 to read and write), by 65035 71, with 512 columns 76. So many bytes to each, of so many to each
# multiprocessor.
MIN_PROGRAM_BYTES, MANY_PROGRAMS = 4096, 16
# The fewest to a program that reads and writes one [N, K]: 1520 such start in the time that memory takes for 2.3 MB.
# The gradient of 20000 x 8 x 16 float32, 1536 bytes each, 16.5 us so, 16.0 by threads, of 40000 x 6 x 44 bf16, 1584
# bytes, 29.2 and 31.5 (H100).
MIN_BLOCK_BYTES = 1536
# Bytes moved from which odd columns of less than 8 bytes an element are read as they lie, by two launches, also where
# L2 holds them. By columns they take about 0.3 us a megabyte more, two launches about 3 us: the gradient of log_softmax
# 2 x 1000000 x 3 bf16 (36 MB) 24.2 us so, by columns 34.3. Beyond L2 that of 35 x 2436552 x 3 bf16 747 and 1372
# (torch.compile 856), softmax 20 x 1000001 x 3 float16 142 and 242, its gradient 1 x 3000000 x 3 float32 67 and 89; by
# columns in a loop of one program that of 3000 x 7000 x 3 bf16 229 and 313 (H100).
MIN_INTERLEAVED_BYTES = 24 << 20
# Elements of a thread of 16 warps (64 of float32 spill 24 bytes).
MAX_ELEMENTS_OF_NARROWER = 32
# [N, K] of rows that a sector holds have a program each, which holds them, where the columns kernel would need a loop
# or a group, whose programs wait for each other: softmax 48 x 4479 x 2 float32 5.4 us, by groups 8.8 (FlagGems 6.2),
# its gradient 5.8 and 7.1, 20 x 4479 x 2 4.8 and 7.2, 40 x 5000 x 4 bf16 6.0 and 6.9, log_softmax 30 x 6000 x 2 bf16
# 4.8 and 6.9; 300 x 4479 x 2 float32 10.1, in a loop 13.3. With 8 warps 48 x 4479 x 2 and 300 x 4479 x 2 take 4 % less,
# but fewer [N, K] fit; with 32 none is faster. In place of a group up to as many registers for the elements of a
# thread as were timed, for one multiprocessor moves all of it (H100).
WHOLE_WARPS, MAX_REGISTERS_FOR_GROUP = 16, 40
# Of a tile of a program that has an [N, K]: the least share with elements.
MIN_FILLED = 0.75
# Columns of such a program up to which two of them have registers at once, on sm_90; elsewhere half as many.
MAX_TIGHT_COLUMNS = 128
# Of shared memory, for what threads tell each other.
EXCHANGE_BYTES = 8192


def is_tiny(problem: Problem) -> bool:
    """Too few elements for what is measured of more of them: their defaults are not looked up."""
    M, N, K, size, _ = problem
    alone = math.gcd(N if K == 1 else K, VECTOR_BYTES // size) == 1
    return M * N * K <= TINY and (WARP if K == 1 else MAX_SHORT_OF_TINY) >= N and alone


def default(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, inputs = problem
    if N == 1:
        # 16-byte loads of each input, twice; of few elements fewer, for more programs.
        total, elements = M * K, VECTOR_BYTES // size * 2
        while elements > 1 and total <= elements // 2 * 4 * WARP * limits.sm_count:
            elements //= 2
        return Configuration("single", elements, max(1, min(4, power_of_2(cdiv(total, elements * WARP)))))
    if K > 1:
        unaligned = K % (VECTOR_BYTES // size) != 0
        few = N * K <= MAX_SHORT_ELEMENTS and N <= MAX_SHORT_OF_LITTLE
        # 6 x 2 x 2832 bf16 takes 2.9 us, 4.8 by vectors, 64 x 16 x 64 3.3 and 3.7. Here as many elements of float64.
        by_threads = N <= MAX_SHORT_OF_LITTLE and limits.sm_count * LITTLE >= M * N * K
        by_threads |= is_tiny(problem)
        most = MAX_SHORT if K % 4 else MAX_SHORT_IN_FOURS
        short = (unaligned and most >= N) or K % 2 == 1 or (size == 8 and N <= MAX_SHORT_FLOAT64)
        by_columns = few and not by_threads and _is_gradient_of_vectors(problem)
        found = _short(problem, limits) if not by_columns and (few or by_threads or short) else None
        found = found or _columns(M, N, K, size, inputs, limits)
        if found.group > 1 and _is_little(problem, limits):
            found = _short(problem, limits) or found
        launched = launch(problem, found, limits)
        if not isinstance(launched, Split) or (launched.group == 1 and not launched.looped):
            return found
        blocks = _blocks(problem, limits)
        if blocks is not None:
            return blocks
        whole = _whole(problem, MAX_REGISTERS_FOR_GROUP if launched.group > 1 else MAX_WORDS)
        if whole is None and _is_better_interleaved(problem, launched, limits):
            return _interleaved(problem)
        return whole or found
    vec = math.gcd(N, VECTOR_BYTES // size)
    longest = MAX_IN_ONE_TILE // (2 if size == 8 else 1)
    unaligned = vec * size < VECTOR_BYTES and min(MIN_UNALIGNED[vec * size], longest + 1) <= N
    large = size == 4 and inputs == 1 and not unaligned and 2 * longest >= N and _fills_a_large_tile(M, N, limits)
    if longest < N and not large:
        return _long_rows(M, N, size, inputs, unaligned, limits)
    if unaligned:
        return _row_with_unaligned(N, size, inputs)
    return _rows(M, N, vec, size, inputs)


def _short(problem: Problem, limits: Limits) -> Configuration | None:
    """A thread has whole columns where it can: no exchange, and neighbours read what lies side by side. None if so many
    neighbours that memory is read by are more than a program can hold.
    """
    M, N, K, size, inputs = problem
    block_n, registers = power_of_2(N), size // 8 + 1  # of an element
    most = MAX_WORDS // registers // inputs
    little = _is_little(problem, limits)
    if little and N <= MAX_SHORT_OF_TINY:
        few = 8 if limits.sm_count * LITTLE // registers >= 2 * M * N * K else 16
        elements = min(block_n, few // registers)
        columns, warps = (1, max(1, min(4, power_of_2(M * K) // WARP))) if block_n == elements else (2, 1)
    elif little and K * size <= SECTOR_BYTES:
        # Those of neighbours are in the same sectors, but L2 has them.
        elements, columns, warps = 8 // registers, 1, 1
    elif block_n <= most:
        # A vector of each input at least: softmax 262144 x 3 x 6 float32 15.1 us, with two 18.2.
        elements, columns, warps = max(block_n, VECTOR_BYTES // size), 1, 4
        if block_n == MAX_WORDS and M * K >= MANY_COLUMNS:
            warps = 8
    else:  # of several threads
        elements, columns = most // 2, min(SECTOR_BYTES // size, power_of_2(K))
        warps = 4 if K * size >= SECTOR_BYTES else 1
    warps = max(warps, columns * block_n // (elements * WARP))
    max_warps = MAX_SHORT_WARPS // registers if K * size <= SECTOR_BYTES else MAX_SHARED_WARPS
    if warps > max_warps or K >= 2**30 or M * K + elements * warps * WARP >= 2**31:
        return None
    return Configuration("short", elements, warps)


def _whole(problem: Problem, most_registers: int, warps: int = WHOLE_WARPS) -> Configuration | None:
    """A program for each [N, K]; None if its columns are not a power of two that a sector holds, or a thread would
    need more than ``most_registers`` for its elements.
    """
    _, N, K, size, inputs = problem
    vec = math.gcd(K, VECTOR_BYTES // size)
    elements = cdiv(N * K, warps * WARP * vec) * vec
    if power_of_2(K) != K or K * size > SECTOR_BYTES or elements * inputs * (size // 8 + 1) > most_registers:
        return None
    return Configuration("short", elements, warps, vec=vec)


def _blocks(problem: Problem, limits: Limits) -> Configuration | None:
    """A program for each [N, K], read as it lies; None where that leaves multiprocessors idle, columns are whole
    vectors, or a tile of any size is mostly empty.
    """
    M, N, K, size, inputs = problem
    vec = VECTOR_BYTES // size
    if (size, inputs) not in BLOCKS or K % vec == 0 or limits.sm_count > M:
        return None
    preferred = BLOCKS[size, inputs]
    # By 64 registers 104 bytes of the gradient of log_softmax 400 x 700 x 501 float16 would spill.
    tight = K > (MAX_TIGHT_COLUMNS if limits.capability[0] == 9 else MAX_TIGHT_COLUMNS // 2)
    for warps in (preferred.warps, 16, 32):
        block, unit = warps * WARP * vec, math.lcm(vec, K)
        if block // unit * unit >= MIN_FILLED * block:
            available = limits.registers_per_sm // (warps * WARP)
            registers = available if inputs == 2 and size == 2 and tight else min(preferred.registers, available)
            found = Configuration("blocks", preferred.elements, warps, registers)
            return found if launch_or_none(problem, found, limits) is not None else None
    return None


def _is_gradient_of_vectors(problem: Problem) -> bool:
    """Whether a program for each [N, K] loads four elements or more of each input together, and a thread with whole
    columns fewer: the gradients of log_softmax 3000 x 24 x 20 bf16 7.0 us so, by threads 8.0, of softmax 20000 x 4 x 36
    float32 17.4 and 18.7; where both load four, 1558 x 2 x 132 float16 4.1 and 3.9 (H100).
    """
    _, N, K, size, inputs = problem
    vec = VECTOR_BYTES // size
    by_thread, by_program = math.gcd(K, max(vec // power_of_2(N), 1)), math.gcd(K, vec)
    bytes_moved = N * K * size * (inputs + 1)
    return inputs == 2 and by_program >= 4 and by_program > by_thread and bytes_moved >= MIN_BLOCK_BYTES


def _is_little(problem: Problem, limits: Limits) -> bool:
    M, N, K, size, _ = problem
    return limits.sm_count * LITTLE // (size // 8 + 1) >= M * N * K


def _is_better_interleaved(problem: Problem, by_columns: Split, limits: Limits) -> bool:
    """Whether 3 to 7 columns that no programs can hold are: of odd K, loaded one by one, if they are not small; others
    that are no whole vectors where a group reads them twice and L2 cannot hold them. softmax 12 x 1000000 x 4 bf16 113
    us so, by columns 122 (H100). 2 and 8 columns were not timed.
    """
    M, N, K, size, inputs = problem
    whole = power_of_2(K) == K and K % (VECTOR_BYTES // size) == 0
    if whole or not 2 < K < MAX_INTERLEAVED or not by_columns.looped:
        return False
    tensor_bytes = M * N * K * size
    if K % 2 == 1 and size < 8 and tensor_bytes * (inputs + 1) >= MIN_INTERLEAVED_BYTES:
        return True
    return by_columns.group > 1 and tensor_bytes * inputs > limits.l2_bytes


def _interleaved(problem: Problem) -> Configuration:
    """Of 32 programs to a multiprocessor, several rounds of which end at about the same time."""
    size, inputs = problem.itemsize, problem.inputs
    return Configuration("interleaved", VECTOR_BYTES // size * 4 // inputs, 4, group=32)


def _rows(M: int, N: int, vec: int, size: int, inputs: int) -> Configuration:
    block_n = max(power_of_2(N), vec)
    # Elements of a thread. bf16 forward: 64 columns 74 % with 8, 70 % with 16; 1024 87 % with 16, 85 % with 32; 4096
    # 81 % with 16, 84 % with 32. Loads of one element are many instructions: 99 columns 68 % with 8, 39 % with 16.
    short = 128 if vec == 1 else 64
    elements = 8 if block_n <= short else 16 if block_n <= 1024 or inputs == 2 or size == 8 else 32
    # Of float64 half as many: log_softmax 4096 x 4096 76 us with 8, 115 with 16.
    elements = max(elements // (2 if size == 8 else 1), vec)
    if block_n <= WARP and M * block_n <= TINY:
        # Of float64 a vector: 27 x 32 2.8 us, with 4 elements 3.0.
        elements = min(elements, vec if size == 8 else max(vec, 4))
    if MANY_ROWS >= M:
        elements = min(elements, block_n)
    if vec == inputs == 1:
        # Two threads to a row at least: 2000000 x 7 bf16 24.7 us, single threads 34.9, 7530 x 5 float32 3.0 and 4.1.
        # The gradient of 6624672 x 7 takes 115 us by two, 98 by single ones; 1000000 x 6, in pairs, 14.1 and 10.8.
        # 131072 x 29 float32 takes 12.3 us with 4 elements to a thread, 17.7 with 8, 815776 x 3 bf16 8.7, with 2 10.8.
        elements = min(elements, max(block_n // 2, 4 if N == 3 else 1), 4 if block_n <= WARP else elements)
    elif vec == 1 and WARP // 2 <= block_n <= WARP:
        # As the forward: the gradient of 447392 x 27 bf16 29.5 us, with 8 37.4; of 300000 x 11 12.9 and 15.2, of 136037
        # x 13 float32 12.3 and 14.3 (H100).
        elements = min(elements, 4)
    threads = block_n // (max(min(elements, block_n) // vec, 1) * vec)
    # Of few rows no more warps than they need; of many that short more, for fewer programs (300000 x 11 as fast).
    most = 8 if vec == 1 and inputs == 2 and block_n == WARP // 2 and M > MANY_ROWS else 4
    warps = max(min(most, power_of_2(cdiv(M * threads, WARP))), threads // WARP)
    return Configuration("rows", elements, warps)


def _fills_a_large_tile(M: int, N: int, limits: Limits) -> bool:
    """Whether a row of float32 that is longer than others in one tile is still best off in one, of 32 warps.

    4096 x 32768: 262 us, twice through L1 274; x 24576, a quarter of the tile empty, 206, not 196. 16 x 32768 7.8 us,
    by groups 9.5; one row 7.2, not 6.1.
    """
    return M > 1 and (limits.sm_count > M or N > 7 * 4096)


def _row_with_unaligned(N: int, size: int, inputs: int) -> Configuration:
    """One program for a row, of as few warps as can hold it: each of them goes through the edges."""
    vec = VECTOR_BYTES // size
    elements = (32 if inputs == 1 else 16) // (2 if size == 8 else 1)
    warps = max(1, power_of_2(N // vec) * vec // (elements * WARP))
    shape = Shape(elements, warps, 128 if warps <= 16 else 64)
    return _configuration(vec, vec, shape, 1)


def _long_rows(M: int, N: int, size: int, inputs: int, unaligned: bool, limits: Limits) -> Configuration:
    vec = VECTOR_BYTES // size
    length = N // vec
    # Or some would be idle. Of float64, which none hold in one turn, a few may be: log_softmax 120 x 12881 14.2 us so, by
    # groups 22.6 (PyTorch 17.0), its gradient of 100 x 12881 13.7 and 17.2 (H200).
    if limits.sm_count <= (M + M // 3 if size == 8 else M):
        for shape, most, with_unaligned in IN_L1.get((size, inputs), ()):
            shape = _without_spills(shape, limits)
            if with_unaligned >= unaligned and N * size * inputs <= most * _l1_share(shape, limits):
                return _configuration(vec, vec, shape, 1)
    shape = _without_spills((SPLIT_UNALIGNED_ROWS if unaligned else SPLIT_ROWS)[size, inputs], limits)
    tiles = cdiv(length, shape.elements // vec * shape.warps * WARP)
    if tiles > min(resident(shape, limits) // 2, MAX_GROUP):
        shape = LOOPED_ROWS[size, inputs]
        tiles = _group(M, N * size * inputs, shape, limits)
    # Few rows: more programs, with less each.
    while shape.elements > vec and 2 * M * tiles <= resident(shape, limits):
        shape = shape._replace(elements=shape.elements // 2)
        tiles *= 2
    return _configuration(vec, vec, shape, tiles)


def _columns(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Configuration:
    # A cache line of each column's row; of very short columns more, for 512 elements to a program.
    block_k = min(power_of_2(K), max(128 // size, 512 // power_of_2(N)))
    wider = min(power_of_2(K), power_of_2(cdiv(MIN_PROGRAM_BYTES, N * size * (inputs + 1))))
    if wider > block_k and M * cdiv(K, wider) >= MANY_PROGRAMS * limits.sm_count:
        block_k = wider
    narrower = _narrower(M, N, K, size, inputs, block_k, limits)
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
        return _configuration(vec, block_k, shape._replace(warps=warps), 1)
    if (size, inputs) == (4, 2):
        # 8 x 4096 x 1024: 81 % in registers of up to 64 programs, 66 % in a loop. Eight loads of each input: 142 x 1897
        # x 3 11.0 us, with four 14.5.
        member = _without_spills(Shape(8 * vec, 8, 128), limits)
        members = power_of_2(N) * block_k // (member.elements * 8 * WARP)
        if members <= min(64, resident(member, limits)):
            return _configuration(vec, block_k, member, members)
    if (size, inputs) == (2, 1) and vec * size == VECTOR_BYTES and block_k == 64:
        narrow = _narrow_columns(M, N, K, vec, warps, shape, limits)
        if narrow is not None:
            return narrow
    if (size, inputs) in COLUMNS_IN_L1 and M * N * K * size * inputs > 2 * limits.l2_bytes:
        in_l1 = _columns_in_l1(M, N, K, size, inputs, limits)
        if in_l1 is not None:
            return in_l1
    if inputs == 1 and blocks == 1 and block_k * size >= 64:
        # One half of the columns is read while the other waits: 262144 x 32 bf16 21 us, not 27, float32 34, not 36.
        block_k //= 2
        blocks = 2
    shape, vec = _for_loops(COLUMNS, K, block_k, size, inputs, limits)
    block_bytes = N * block_k * size * inputs
    group = _group(blocks, block_bytes, shape, limits)
    wide = shape._replace(warps=2 * shape.warps)
    if group == 1 and _l1_share(shape, limits) < block_bytes <= _l1_share(wide, limits):
        # One block for a multiprocessor, which L1 holds until it is written: 26 x 1079 x 317 float32 38 us.
        shape = wide
    if group > MAX_SMALL_GROUP and (size, inputs) in LONG_COLUMNS:
        shape, vec = _for_loops(LONG_COLUMNS, K, block_k, size, inputs, limits)
        group = _group(blocks, N * block_k * size * inputs, shape, limits)
    return _configuration(vec, block_k, shape, group)


def _narrower(M: int, N: int, K: int, size: int, inputs: int, block_k: int, limits: Limits) -> int | None:
    """Columns of a block where ``block_k`` would leave multiprocessors idle, or take groups, whose programs wait for
    each other, and narrower blocks are single tiles: log_softmax 2 x 400 x 512 bf16 5.6 us so, 7.8 by groups, gradients
    of softmax 1 x 195 x 1024 bf16 4.3 and 6.0, of 9 x 322 x 104 float32 5.3 and 7.2 (H100). Half a sector if columns of
    a whole one are too many elements: softmax 5 x 1520 x 72 bf16 by 8 columns 8.0 us, by 16 9.1, by groups 8.8, but the
    first two by 8 5.8 and 4.5. Single tiles are narrower where half of the multiprocessors would be idle: softmax 32 x
    160 x 24 bf16 in tiles of 32 columns, 32 elements to a thread, 4.4 us (FlagGems 4.0; in 16 estimated, not timed).
    """
    found = None
    shape, _ = _for_columns(SHORT_COLUMNS, K, block_k, size, inputs, limits)
    if power_of_2(N) * block_k <= 8 * shape.elements * WARP and 2 * M * cdiv(K, block_k) > limits.sm_count:
        return None
    least = SECTOR_BYTES // size
    if power_of_2(N) * least > 16 * MAX_ELEMENTS_OF_NARROWER * WARP:
        least //= 2
    while M * cdiv(K, block_k) < limits.sm_count and block_k > least:
        block_k //= 2
        shape, _ = _for_columns(SHORT_COLUMNS, K, block_k, size, inputs, limits)
        if power_of_2(N) * block_k <= 16 * min(shape.elements, MAX_ELEMENTS_OF_NARROWER) * WARP:
            found = block_k
    return found


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
        return _configuration(vec, 32, shape._replace(warps=8), 1)
    stage_bytes = power_of_2(N) * 32 * 2
    if warps == 32 and 2 * stage_bytes + EXCHANGE_BYTES <= limits.shared_bytes:
        # 1024 x 1024 x 1024: 1.42 ms, 1.54 in a loop; without the next blocks on their way as in a loop.
        return _configuration(vec, 32, shape._replace(warps=16, stages=3), 1)
    return None


def _columns_in_l1(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Configuration | None:
    """None where rows are no whole vectors, or a group would be so large that waiting costs more."""
    shape, row_bytes = COLUMNS_IN_L1[size, inputs]
    shape = _without_spills(shape, limits)
    vec, block_k = VECTOR_BYTES // size, row_bytes // size
    group = cdiv(N * row_bytes * inputs, _l1_share(shape, limits))
    if K % vec or block_k > K or group > min(MAX_GROUP_IN_L1, resident(shape, limits)):
        return None
    return _configuration(vec, block_k, shape, group)


def _for_columns(
    shapes: dict[tuple[int, int], Shape], K: int, block_k: int, size: int, inputs: int, limits: Limits
) -> tuple[Shape, int]:
    """(shape, elements to a load) for blocks of ``block_k`` columns."""
    shape = _without_spills(shapes[size, inputs], limits)
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
        return SINGLE_COLUMNS, vec
    return shape._replace(elements=min(shape.elements, 8 * vec // inputs)) if vec <= 2 else shape, vec


def _without_spills(shape: Shape, limits: Limits) -> Shape:
    """What just fits the registers on sm_90 is up to 100 bytes too much on sm_80 and sm_100."""
    return shape if limits.capability[0] == 9 else shape._replace(elements=shape.elements // 2)


def others(problem: Problem, limits: Limits) -> list[Configuration]:
    """What other kernels do best, as far as they are of use."""
    M, N, K, size, inputs = problem
    if N == 1:
        return []
    if K > 1:
        found = [_columns(M, N, K, size, inputs, limits)]
        if (size, inputs) in COLUMNS_IN_L1:
            found += filter(None, [_columns_in_l1(M, N, K, size, inputs, limits)])
        found += filter(None, [_whole(problem, MAX_WORDS, warps) for warps in (WHOLE_WARPS // 2, WHOLE_WARPS)])
        return found + list(filter(None, [_short(problem, limits)])) if N <= MAX_SHORT_OF_TINY else found
    vec = VECTOR_BYTES // size
    found = [_rows(M, N, math.gcd(N, vec), size, inputs)]
    if 64 * vec > N:
        return found
    shapes = [shape for shape, _, _ in IN_L1.get((size, inputs), ())]
    found += [_row_with_unaligned(N, size, inputs), _long_rows(M, N, size, inputs, N % vec != 0, limits)]
    return found + [_configuration(vec, vec, _without_spills(shape, limits), 1) for shape in shapes]


def _l1_share(shape: Shape, limits: Limits) -> int:
    """Bytes of L1, which is what shared memory leaves, for each program on a multiprocessor."""
    return limits.shared_bytes * limits.sm_count // resident(shape, limits)


def _group(blocks: int, block_bytes: int, shape: Shape, limits: Limits) -> int:
    """Programs for one block: as many as leave no block waiting, and what is read a second time in L2."""
    groups = min(blocks, resident(shape, limits))
    if blocks * block_bytes > 2 * limits.l2_bytes:
        # Half as many where L2 holds what they read: 8 x 6620032 bf16 on an H100 113 us by fours, 121 by eights.
        few = MIN_BLOCKS // 2 if MIN_BLOCKS // 2 * block_bytes <= 1.1 * limits.l2_bytes else MIN_BLOCKS
        groups = min(groups, max(few, limits.l2_bytes // 2 // block_bytes))
    return resident(shape, limits) // groups


def _configuration(vec: int, block_k: int, shape: Shape, group: int) -> Configuration:
    return Configuration(
        "split", shape.elements, shape.warps, shape.registers, vec, block_k, group, shape.stages, shape.prefetch
    )
