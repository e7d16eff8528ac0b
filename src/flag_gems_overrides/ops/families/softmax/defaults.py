# SPDX-License-Identifier: Apache-2.0
"""What a softmax of [M, N, K] over N is launched with where no table says better.

The figures behind the constants are sweeps of about 5000 (shape, configuration) pairs on one H200 (torch 2.11.0,
triton 3.6.0), in percent of its copy bandwidth of 4250 GB/s.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from .column_plan import (
    are_many_small_programs,
    columns_in_l1,
    has_needless_lanes,
    many_pairs,
    pairs_in_tiles,
    tiled_columns,
)
from .held_plan import (
    MAX_SHARED_WARPS,
    MAX_WARPS,
    WHOLE_WARPS,
    block_as_it_lies,
    block_in_place_of_empty_tiles,
    for_more_threads,
    held_block,
    held_by_most_warps,
    held_forward,
    is_better_held,
    is_gradient_of_vectors,
    is_half_empty,
    is_of_two_threads,
    registers_for_group,
    short_columns,
    side_by_side,
    small_block,
    vectors_of_columns,
    wide_pairs,
)
from .launches import MAX_WORDS, Blocks, Configuration, Problem, Shape, Split, launch, resident
from .little import LITTLE, MAX_SHORT_OF_TINY, is_little, is_tiny
from .long_plan import (
    are_long_rows,
    interleaved,
    is_better_in_parts,
    is_better_interleaved,
    is_better_strided,
    strided,
)
from .programs import configuration_of, without_spills
from .row_plan import (
    are_fours_of_one_tile,
    enough_rows,
    fills_a_large_tile,
    gradient_in_cache,
    gradient_in_tiles,
    gradients_at_once,
    long_rows,
    row_in_cache,
    row_with_unaligned,
    rows_of_one_tile,
)
from .shapes import COLUMNS_IN_L1, IN_L1

# Rows up to here are one tile of one program; bf16 forward 4096 x 16384: 87 %, x 32768 135 us, in one tile 170. Half as
# many of float64.
MAX_IN_ONE_TILE = 16384
# Rows of float64 that are computed once, by elements to a load, in tiles of as many eighths, or quarters, of 4096 as
# there are: softmax 5000 x 2863 105 us in a loop, so 81 (PyTorch 113), 300 x 3301 14.1 and 11.4, 1000 x 2500 26.8 and
# 18.4, log_softmax 200 x 3001 10.0 and 8.7. A whole tile is slower: log_softmax 547 x 4055 21.0 and 24.5, softmax 3000
# x 5001 97 and 161 (H100).
MAX_FLOAT64_IN_ONE_TILE = {1: 3584, 2: 3072}
# From here on rows that start anywhere are read as aligned vectors and edges, by the bytes that a plain load could
# take. bf16 forward, 511 columns: 75 % plain, 71 % with edges; 777: 71 % and 80 %; 1023: 56 % and 84 %.
MIN_UNALIGNED = {1: 512, 2: 512, 4: 1024, 8: MAX_IN_ONE_TILE + 1}
# A row for each multiprocessor of those that a plain tile holds with few elements to a thread: softmax 16 x 689 float16
# 3.5 us so, with edges 3.8 (torch.compile 3.5), 90 x 1201 bf16 3.8 and 4.1, float32 3.9 and 4.05 (H100). Longer ones
# were not timed.
FEW_UNALIGNED_ELEMENTS, MAX_FEW_UNALIGNED = 8, 2048
# Of rows that begin anywhere, which are read twice for fewer waves of programs.
MAX_WAVES = 2
# Columns of no whole vectors are read side by side, whatever lies between them, if they are no longer than this, of
# few elements in all if they are no longer than 64. The gradients of 197 x 117 x 311 bf16 24.4 us, in a loop 39.6, of
# 153 x 235 x 603 float32 112 and 206; softmax 233 x 105 x 83 bf16 8.7 and 10.7. Longer ones of which no two are
# loaded together are, if a program can hold as many as memory is read by: 20 to 30 instructions an element, in a loop
# 44, by groups of programs that wait for each other 58. The gradients of log_softmax 1899 x 771 x 5 float32 36 us, by
# groups 120 (PyTorch 51), of softmax 142 x 1897 x 3 7.8 and 14.5.
# Where four of 16 bits are loaded together longer ones were not timed.
MAX_SHORT, MAX_SHORT_IN_FOURS, MAX_SHORT_OF_LITTLE = 128, 32, 64
# Columns of float64 up to here, whole vectors or not: what computes in float64 should have no lane without an element
# (log_softmax 4 x 327360 10.0 us, as vectors of half-empty blocks 15.5, PyTorch 12.6).
MAX_SHORT_FLOAT64 = 16
# Columns of float32 of which a thread has a whole vector forward, at most 32 elements: softmax 4 x 7 x 200000 20.0 us
# so, with half of one 21.5 (H100).
MAX_COLUMNS_IN_VECTORS = 8
# The same for all columns of [N, K] with no more elements than this, of which a program has many; not if they are
# longer than 64: the gradient of 3162 x 128 x 2 float32 7.9 us, by one warp for each [N, K] 6.2.
MAX_SHORT_ELEMENTS = 512


def default(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, inputs = problem
    if N == 1:
        # 16-byte loads of each input, twice; of few elements fewer, for more programs.
        total, elements = M * K, VECTOR_BYTES // size * 2
        while elements > 1 and total <= elements // 2 * 4 * WARP * limits.sm_count:
            elements //= 2
        return Configuration("single", elements, max(1, min(4, power_of_2(cdiv(total, elements * WARP)))))
    if K > 1:
        several = side_by_side(problem, limits) or small_block(problem, limits)
        if several is not None:
            return several
        unaligned = K % (VECTOR_BYTES // size) != 0
        few = N * K <= MAX_SHORT_ELEMENTS and N <= MAX_SHORT_OF_LITTLE
        # 6 x 2 x 2832 bf16 takes 2.9 us, 4.8 by vectors, 64 x 16 x 64 3.3 and 3.7. Here as many elements of float64.
        by_threads = N <= MAX_SHORT_OF_LITTLE and limits.sm_count * LITTLE >= M * N * K
        by_threads |= is_tiny(problem)
        most = MAX_SHORT if K % 4 else MAX_SHORT_IN_FOURS
        short = (unaligned and most >= N) or K % 2 == 1 or (size == 8 and N <= MAX_SHORT_FLOAT64)
        by_columns = few and not by_threads and is_gradient_of_vectors(problem)
        found = short_columns(problem, limits) if not by_columns and (few or by_threads or short) else None
        found = found or wide_pairs(problem, limits) or tiled_columns(M, N, K, size, inputs, limits)
        if found.group > 1 and is_little(problem, limits):
            found = short_columns(problem, limits) or found
        found = many_pairs(problem, limits) or found
        if found.kernel == "short" and power_of_2(N) > found.elements and not is_of_two_threads(problem):
            found = _shared_columns(problem, found, limits)
        elif found.kernel == "short":
            found = for_more_threads(problem, found, limits)
        launched = launch(problem, found, limits)
        if not isinstance(launched, Split) or (launched.group == 1 and not launched.looped):
            if isinstance(launched, Split) and are_many_small_programs(problem, launched, limits):
                return vectors_of_columns(problem) or found
            if isinstance(launched, Split) and has_needless_lanes(problem, launched):
                parts = 1 if size == 4 and inputs == 1 and N <= MAX_COLUMNS_IN_VECTORS else 2
                return vectors_of_columns(problem, parts) or found
            if isinstance(launched, Split) and is_better_held(problem, launched, limits):
                return held_forward(problem) or found
            if isinstance(launched, Split) and is_half_empty(problem, launched, limits):
                return held_block(problem, MAX_WORDS, WHOLE_WARPS // 2) or found
            if isinstance(launched, Split):
                return block_in_place_of_empty_tiles(problem, launched, limits) or found
            return found
        whole = held_forward(problem) if inputs == 1 else None
        whole = whole or held_block(problem, registers_for_group(problem) if launched.group > 1 else MAX_WORDS)
        whole = whole or (None if is_better_in_parts(problem, launched, limits) else block_as_it_lies(problem, limits))
        if whole is None and launched.group > 1:
            whole = held_by_most_warps(problem, limits)
        if whole is None and is_better_interleaved(problem, launched, limits):
            return interleaved(problem)
        if whole is None and is_better_strided(problem, launched, limits):
            return strided(problem)
        return whole or found
    vec = math.gcd(N, VECTOR_BYTES // size)
    longest = MAX_IN_ONE_TILE // (2 if size == 8 else 1)
    if size == 8 and inputs == 1 and enough_rows(M, size, limits):
        longest = MAX_FLOAT64_IN_ONE_TILE[vec]
    unaligned = vec * size < VECTOR_BYTES and min(MIN_UNALIGNED[vec * size], longest + 1) <= N
    large = size == 4 and inputs == 1 and not unaligned and 2 * longest >= N and fills_a_large_tile(M, N, limits)
    if are_long_rows(problem, limits):
        return interleaved(problem)
    if longest < N and are_fours_of_one_tile(problem, limits):
        return rows_of_one_tile(M, N, vec, size, inputs)
    if longest < N and not large:
        return long_rows(M, N, size, inputs, unaligned, limits)
    if unaligned and inputs == 1 and limits.sm_count >= M and MAX_FEW_UNALIGNED >= N:
        return Configuration("rows", FEW_UNALIGNED_ELEMENTS, power_of_2(N) // (FEW_UNALIGNED_ELEMENTS * WARP))
    if unaligned:
        held = row_with_unaligned(N, size, inputs)
        # As few warps to a program hide what it waits for: the gradient of 8273 x 9269 float16 161.7 us, by 32 warps,
        # which are alone on their multiprocessor, 200 (PyTorch 179), softmax 8000 x 9269 bf16 116.3 and, by 16 warps of
        # 128 registers, 200.6, 4000 x 12001 72.8 and 115.8 (H100).
        alone = held.warps >= MAX_WARPS // 2 * inputs
        if (size, inputs, held.warps) == (2, 1, 8) and limits.capability[0] == 9:
            return _in_fewer_waves(M, held, limits) or held
        if not alone:
            return held
        in_cache = row_in_cache(M, N, size, inputs, unaligned, limits)
        return in_cache or gradients_at_once(M, N, size, inputs, limits) or held
    found = gradient_in_cache(M, N, size, inputs, limits) or gradient_in_tiles(M, N, size, inputs, limits)
    return found or rows_of_one_tile(M, N, vec, size, inputs)


def _in_fewer_waves(M: int, held: Configuration, limits: Limits) -> Configuration | None:
    """A program for each row that reads it twice by half as many registers, if that leaves two waves, or one:
    log_softmax 592 x 6459 bf16, in two, 11.3 us, held, in three, 13.3, softmax 500 x 7501 float16, in one, 10.2, held,
    in two, 11.2, but 264 x 6013 bf16 6.6 and 5.8 (H100). Of more waves neither was timed.
    """
    looped = held._replace(elements=held.elements // 2, registers=held.registers // 2)
    waves, held_waves = (cdiv(M, resident(Shape(*each[1:4]), limits)) for each in (looped, held))
    return looped if waves < held_waves and waves <= MAX_WAVES else None


def _shared_columns(problem: Problem, short: Configuration, limits: Limits) -> Configuration:
    """Columns of which each would be of several threads, as ``short`` has them.

    L2 should hold what the programs of blocks read twice, or tiles that hold columns of whole vectors have less to
    read: the gradient of log_softmax 171 x 67 x 1794 float32 101 us in tiles, by ``short`` of 8 warps 111, by blocks
    150. A program of 32 warps is alone on its multiprocessor, and nothing hides what it waits for: the gradients of
    log_softmax 171 x 67 x 1001 float32 65.9 us by ``short`` of 8 warps, of 4 78.9, by such blocks 83.9 (PyTorch 89.3),
    of softmax 300 x 200 x 263 bf16 56.0 and 58.1 by blocks, but softmax 300 x 400 x 333 bf16 138 and 104 (H100). So is
    one of 16 warps with 128 registers, if it reads twice: the gradients of softmax 2000 x 64 x 226 bf16 70.9 us in
    tiles of pairs, by ``short`` 75.0, by such blocks 85.9, of 415 x 64 x 226 22.3, 23.0 and 25.6 (torch.compile 24.8),
    of log_softmax 400 x 100 x 250 float16 33.0, 33.4 and 39.7; not by ``short``, 300 x 200 x 251 bf16 54.5 and, by
    blocks, 51.5, 500 x 64 x 225 float16 28.0 and 28.6 (H100).
    """
    M, N, K, size, inputs = problem
    block = block_as_it_lies(problem, limits)
    if block is None:
        return short
    if min(M, limits.sm_count) * N * K * size * (inputs + 1) > limits.l2_bytes:
        tiled = tiled_columns(M, N, K, size, inputs, limits)
        launched = launch(problem, tiled, limits)
        if isinstance(launched, Split) and launched.vec > 1 and launched.group == 1 and not launched.looped:
            return tiled
    if inputs == 1 or not _waits_alone(problem, block, limits):
        return block
    narrow = pairs_in_tiles(problem)
    if narrow is None and block.warps == MAX_WARPS:
        narrow = short_columns(problem, limits, wide=False)
    return narrow._replace(warps=MAX_SHARED_WARPS) if narrow is not None else block


def _waits_alone(problem: Problem, block: Configuration, limits: Limits) -> bool:
    alone = resident(Shape(block.elements, block.warps, block.registers), limits) == limits.sm_count
    launched = launch(problem, block, limits)
    return alone and (block.warps == MAX_WARPS or (isinstance(launched, Blocks) and launched.looped))


def others(problem: Problem, limits: Limits) -> list[Configuration]:
    """What other kernels do best, as far as they are of use."""
    M, N, K, size, inputs = problem
    if N == 1:
        return []
    if K > 1:
        found = [tiled_columns(M, N, K, size, inputs, limits)]
        if (size, inputs) in COLUMNS_IN_L1:
            found += filter(None, [columns_in_l1(M, N, K, size, inputs, limits)])
        found += filter(None, [held_block(problem, MAX_WORDS, warps) for warps in (WHOLE_WARPS // 2, WHOLE_WARPS)])
        found += filter(None, [block_as_it_lies(problem, limits)])
        return found + list(filter(None, [short_columns(problem, limits)])) if N <= MAX_SHORT_OF_TINY else found
    vec = VECTOR_BYTES // size
    found = [rows_of_one_tile(M, N, math.gcd(N, vec), size, inputs)]
    if 64 * vec > N:
        return found
    shapes = [shape for shape, _, _ in IN_L1.get((size, inputs), ())]
    found += [row_with_unaligned(N, size, inputs), long_rows(M, N, size, inputs, N % vec != 0, limits)]
    return found + [configuration_of(vec, vec, without_spills(shape, limits), 1) for shape in shapes]
