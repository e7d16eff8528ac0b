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

# Elements of a row up to which one program has it in one tile; of float64 half as many.
# bf16 forward 4096 x 16384: 87 % of the bandwidth; x 32768: 135 us, in one tile 170.
MAX_IN_ONE_TILE = 16384
# Elements of a row of float64 forward up to which it is in as many eighths or quarters of a tile of 4096 as exist, by
# elements to a load. A whole tile is slower than a loop.
# softmax 5000 x 2863: 81 us, in a loop 105; 3000 x 5001: 161 and 97 (H100).
MAX_FLOAT64_IN_ONE_TILE = {1: 3584, 2: 3072}
# Elements from which rows that start anywhere are read as aligned vectors and edges, by the bytes that a plain load
# could take.
# bf16 forward, 511 columns: 71 % of the bandwidth with edges, plain 75 %; 777 columns: 80 % and 71 %.
MIN_UNALIGNED = {1: 512, 2: 512, 4: 1024, 8: MAX_IN_ONE_TILE + 1}
# Elements of a thread of rows that start anywhere, in a plain tile, if there are no more rows than multiprocessors.
# softmax 16 x 689 float16: 3.5 us, with edges 3.8 (H100).
FEW_UNALIGNED_ELEMENTS = 8
# Elements of such a row, at most. Longer ones were not timed.
MAX_FEW_UNALIGNED = 2048
# Waves of programs, at most, for which rows that begin anywhere are read twice.
MAX_WAVES = 2
# Elements of a column of no whole vectors up to which columns are read side by side, whatever lies between them. Longer
# ones of K odd are too, if a program can hold enough of them.
# The gradient of 153 x 235 x 603 float32: 112 us, in a loop 206; of log_softmax 1899 x 771 x 5: 36, by groups 120.
MAX_SHORT = 128
# The same where four columns of 16 bits are loaded together. Longer ones were not timed.
MAX_SHORT_IN_FOURS = 32
# The same where there are few elements in all.
MAX_SHORT_OF_LITTLE = 64
# Elements of a column of float64, whole vectors or not, up to which threads have columns: no lane should be empty.
# log_softmax 4 x 327360: 10.0 us, as vectors of half-empty blocks 15.5.
MAX_SHORT_FLOAT64 = 16
# Elements of a column of float32 forward up to which a thread has a whole vector of columns, 32 elements at most.
# softmax 4 x 7 x 200000: 20.0 us, with half a vector 21.5 (H100).
MAX_COLUMNS_IN_VECTORS = 8
# Elements of an [N, K] up to which threads have all of its columns, no longer than MAX_SHORT_OF_LITTLE.
# The gradient of 3162 x 128 x 2 float32: 7.9 us, by one warp for each [N, K] 6.2.
MAX_SHORT_ELEMENTS = 512


def default(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, inputs = problem
    if N == 1:
        # Two 16-byte loads of each input; smaller ones for few elements, for more programs.
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
        # 6 x 2 x 2832 bf16: 2.9 us, by vectors 4.8. Float64 has as many elements here.
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
        # Programs with few warps hide what each of them waits for.
        # softmax 8000 x 9269 bf16: 116.3 us, by 16 warps of 128 registers 200.6 (H100).
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
    """A program for each row that reads it twice by half as many registers, if that takes fewer waves, at most two.
    More waves were not timed.

    log_softmax 592 x 6459 bf16: 11.3 us in two waves, held in three 13.3; 264 x 6013: 6.6 and 5.8 (H100).
    """
    looped = held._replace(elements=held.elements // 2, registers=held.registers // 2)
    waves, held_waves = (cdiv(M, resident(Shape(*each[1:4]), limits)) for each in (looped, held))
    return looped if waves < held_waves and waves <= MAX_WAVES else None


def _shared_columns(problem: Problem, short: Configuration, limits: Limits) -> Configuration:
    """Columns of which each would be of several threads, as ``short`` has them.

    L2 should hold what the programs of blocks read twice. Otherwise tiles that hold columns of whole vectors have less
    to read. A program of 32 warps, or one of 16 warps with 128 registers that reads twice, is alone on its
    multiprocessor, and nothing hides its latency.

    The gradient of log_softmax 171 x 67 x 1794 float32: 101 us in tiles, by ``short`` of 8 warps 111, by blocks 150; of
    softmax 300 x 200 x 263 bf16: 56.0 by ``short``, by blocks 58.1 (H100).
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
    """What other kernels do best, for the tuner."""
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
