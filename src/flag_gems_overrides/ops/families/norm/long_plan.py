# SPDX-License-Identifier: Apache-2.0
"""Rows that no program holds: several programs to a row, or a loop.

Figures that name no GPU are from an H200.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from .launches import (
    MAX_GROUP_IN_TURN,
    MIN_TURNS,
    Configuration,
    Problem,
    Split,
    launch_or_none,
    max_chunks_of_loop,
)
from .slices import slices

# Most programs of a group that holds a row. 12 x 1376837 float32: 232 us by 337 programs, read twice in a loop 122.
MAX_GROUP = 128
# Fewest elements of a load of gradients of unaligned rows that groups hold; with fewer a loop reads the rows. Fewer
# groups load smaller parts of vectors and have more iterations. 1024 x 145855 float32: 796 us by groups of 4 warps with
# 5 chunks, in a loop 1020, by half as many groups 1632 (H200).
MIN_VEC_OF_GRADIENTS = 4
# Longest unaligned rows of float32 that are read in parts of vectors; longer ones as vectors and edges, by four
# programs to a multiprocessor. layer_norm of 168 x 614089: 469 us, element by element 574; 400 x 150001: 282, by groups
# 261 (H100); 18 x 8120595: 646 and 904, 3113931: 28.7 and 30.2 (H200).
MAX_OF_SINGLES = 430000
# Rows of ``few_odd_rows`` are longer than this, in elements, and at most this many.
MIN_ODD_SHARED, MAX_ODD_SHARED = 8192, 16
# Registers of a thread in ``_few_of_float64``. With 128 up to 24 bytes spill.
REGISTERS_OF_FEW = 168


def splits(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Several programs to a row: the legal ones, the best first."""
    _, N, _, itemsize, backward, _ = problem
    if itemsize == 8:
        return
    vec = VECTOR_BYTES // itemsize
    found: list[tuple[Split, Configuration]] = []
    for max_group, warps, chunks, registers in slices(itemsize, N % vec != 0, backward, limits):
        if problem.residual and itemsize == 4 and registers == 255:
            continue  # x takes them all: with those 136 bytes of 486 x 399817 spill
        registers = _with_residual(problem, registers)
        configuration = Configuration("split", warps, vec, stages=4, chunks=chunks, registers=registers)
        launched = launch_or_none(problem, configuration, limits)
        if not isinstance(launched, Split) or launched.group > min(max_group, MAX_GROUP):
            continue
        if not _loop_is_faster(problem, launched, not found, limits):
            found.append(_for_few_rows(problem, launched, configuration, limits))
    yield from (configuration for _, configuration in sorted(found, key=lambda each: _order(problem, each[0], limits)))


def _with_residual(problem: Problem, registers: int) -> int:
    """Registers of a thread, more if there is a residual."""
    if problem.residual and problem.itemsize == 2 and registers == 128:
        # With 128 registers 8 bytes spill. skip_layer_norm of 69048 bf16: 5.9 us with 152, 6.0 with 128;
        # 32 x 369824: 51.0 and 50.1 (H100).
        return 152
    if problem.residual and problem.itemsize == 4:
        return min(registers + 64, 255)  # with those of x alone 16 bytes of 30 x 262144 spill
    return registers


def _loop_is_faster(problem: Problem, split: Split, first: bool, limits: Limits) -> bool:
    """Whether rows are rather read in a loop. first: there is no other way to split them before this one."""
    M, N, _, itemsize, backward, _ = problem
    if backward and split.vec < MIN_VEC_OF_GRADIENTS:
        return True
    if limits.capability[0] == 9 and itemsize == 2 and split.group > MAX_GROUP_IN_TURN and _in_turn(problem, split):
        # layer_norm of 108 x 524288 bf16: 242 us by groups of 128 programs, read twice in a loop 208; of
        # 59 x 524288 float32: 190 and 221 (H100).
        return True
    if vec_of_long(problem) > split.vec and not backward:
        return True  # in pairs with a pipeline 304 bytes of 20 x 614090 float32 spill (Triton 3.6)
    # Unaligned rows of 16 bits that take several iterations, and do not fit groups of one warp, are read twice in a
    # loop. 40 x 262117 bf16: 36.8 us, by groups 46.0; 600 x 80001 bf16, which does fit: 133 and 102 (H100).
    unaligned = itemsize == 2 and N % (VECTOR_BYTES // itemsize) != 0 and not backward and not problem.residual
    return unaligned and first and split.warps > 1 and split.programs // split.group < M


def _for_few_rows(
    problem: Problem, split: Split, configuration: Configuration, limits: Limits
) -> tuple[Split, Configuration]:
    """More programs to a row, and no pipeline, where groups have one row each."""
    M, _, _, itemsize, backward, residual = problem
    if backward:
        return split, configuration
    once = M * split.group <= split.programs
    if itemsize == 2 and configuration.chunks > 2 and 2 * M * split.group <= limits.sm_count:
        # More multiprocessors have half as much each. 3 x 60175 bf16 with a residual: 6.19 us by 90 programs,
        # 6.77 by 45; 53247 bf16: 6.01 and 6.56 (H100).
        configuration = configuration._replace(chunks=configuration.chunks // 2)
    elif configuration.warps == 1 and configuration.chunks > 4 and 2 * split.group <= WARP and once:
        # So do more programs of one warp that polls all words of a group at once. 5 x 13798 float32: 5.24 us by
        # groups of 27, of 14 5.70; 19 x 32768 bf16: 6.26 by 32 and 6.52; 18 x 24888 float32: 6.43 by 49, by 25
        # 6.31 (H100).
        more = configuration._replace(chunks=configuration.chunks // 2)
        shared = launch_or_none(problem, more, limits)
        if isinstance(shared, Split) and M * shared.group <= shared.programs:
            split, configuration = shared, more
    # Elsewhere than on sm_90 8 chunks by one warp spill 16 to 48 bytes (52 x 31752 float16, Triton 3.6).
    one_warp = configuration.warps == 1
    long = limits.capability[0] == 9 and (one_warp or (residual and configuration.chunks > 2))
    if once and (long or itemsize == 4 or (residual and one_warp)):
        # A group with one row needs no pipeline. 4 x 362985 float32: 12.6 us, with a pipeline 15.1; 52 x 31752
        # bf16: 8.02 and 8.53; of two chunks 53247 bf16: 6.52 and 6.01 (H100). Of sums by one warp 8 bytes spill
        # with it (7 x 32768 float16).
        configuration = configuration._replace(stages=1)
    return split, configuration


def _order(problem: Problem, split: Split, limits: Limits) -> tuple[int, bool, int, int]:
    """The less, the better. For 16 bits; of float32 and gradients only 3 was timed.

    1. Wide loads first. Unaligned rows of few groups are loaded in parts of vectors. 200 x 150001 bf16: 180 us by
    groups of 74 programs, 89 by groups of 37.
    2. One warp to a program last, for unaligned rows that take less than two iterations. 40 x 60001 bf16: 14.9 us by
    one warp, 13.0 by four; 88 x 85975 float16, more iterations: 23.7 and 26.2 (H100).
    3. Small groups first, of several warps with several iterations, each of which is a wait. 88 x 85975 float16:
    38.8 us by groups of 42 programs, 24.7 by groups of 21 (H100). Of unaligned float32 and of gradients the fewest
    iterations first. 1218 x 173230, 153 iterations by groups of 25 and 43: 724 and 801 us, 305 iterations 1157;
    542 x 104665 with a residual: 306 us, by 140 of 264 programs 504; gradients of 2100 x 95760 float16 by groups of
    24 and 47: 511 and 563 (H100).
    """
    M, N, _, itemsize, backward, _ = problem
    unaligned = N % (VECTOR_BYTES // itemsize) != 0
    of_16_bits = itemsize == 2 and not backward
    in_turn = _in_turn(problem, split) if backward else split.warps > 1 and split.programs // split.group < M
    few = of_16_bits and unaligned and split.warps == 1 and M * split.group < 2 * split.programs
    timed = of_16_bits or (limits.capability[0] == 9 and (backward or unaligned))
    if not in_turn or not timed:
        return -split.vec, few, 0, 0
    return -split.vec, few, 0 if of_16_bits else cdiv(M, split.programs // split.group), split.group


def _in_turn(problem: Problem, split: Split) -> bool:
    """Whether groups have many rows of gradients in whole vectors, one after the other.

    Not of rows that begin anywhere: 4096 x 15369 bf16 takes 189 us so, 173 by one chunk to a program (H100).
    """
    whole = split.vec * problem.itemsize == VECTOR_BYTES and not split.unaligned
    return problem.backward and whole and MIN_TURNS * (split.programs // split.group) < problem.M


def few_odd_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """Several programs to an odd row of 16 bits, although one program could hold it, where there are few rows; None for
    others. For layer_norm alone.

    2 x 11243 float16: 5.77 us, by one program 7.00; in pairs 2 x 11382 bf16: 5.82 and 5.33 (H100).
    """
    M, N, _, itemsize, backward, residual = problem
    if backward or residual or itemsize != 2 or N % 2 == 0:
        return None
    return next(splits(problem, limits), None) if N > MIN_ODD_SHARED and M <= MAX_ODD_SHARED else None


def loop(problem: Problem, limits: Limits) -> Configuration:
    """A loop that reads each row twice, by four programs to a multiprocessor, which share no more rows than L2 holds.

    486 x 399816 float32: 685 us, by two 860; 8 x 2142336 float32: 85.1 and 97.9; 248 x 418419 float32 with a residual:
    754 and 847 (H100). A thread has 16 elements of 16 bits, 8 of float32 and of single ones.

    Even rows of 16 bits with a residual take two programs, of twice as many registers: 11570024 bf16: 64.1 us, by four
    67.6 (H100). So does float64, of which a thread has as many elements as its registers hold.
    """
    _, N, _, itemsize, backward, residual = problem
    if backward:
        return Configuration("loop", 4)  # ``plan_two_passes`` alone decides
    if itemsize == 8:
        registers = REGISTERS_OF_FEW if _few_of_float64(problem, limits) else 128
        chunks = min(4, max_chunks_of_loop(problem, limits, registers))
        return Configuration("loop", 8, chunks=chunks, registers=registers)
    if itemsize == 2 and N % 2 and not residual:
        # Vectors and edges. 344 x 393619 float16: 346 us by 4 warps, by 8 361, element by element 450 (H100).
        return Configuration("loop", 4, VECTOR_BYTES // itemsize, chunks=1, registers=64)
    vec, odd = vec_of_long(problem), N % 2 == 1
    registers = 128 if itemsize == 2 and residual and not odd else 64
    if limits.capability[0] != 9 and N % (VECTOR_BYTES // itemsize) and vec == 1:
        # With 64 up to 32 bytes of 72 x 248638 bf16 spill on sm_80, and with a residual 88 of 248 x 418419 float32 on
        # sm_100 (Triton 3.7).
        registers = 128
    return Configuration("loop", 8, vec, chunks=1 if itemsize == 2 and odd else 2, registers=registers)


def _few_of_float64(problem: Problem, limits: Limits) -> bool:
    """Whether each multiprocessor has at most one program, of 8 warps, with one block of a row of float64.

    layer_norm of 5 x 24632: 7.83 us by 13 programs to a row, by 25 with half as many vectors to a thread 8.85 (H100).
    """
    block_n = 4 * 8 * WARP * VECTOR_BYTES // problem.itemsize
    wide = problem.itemsize == 8 and max_chunks_of_loop(problem, limits, REGISTERS_OF_FEW) == 4
    return wide and problem.M * cdiv(problem.N, block_n) <= limits.sm_count


def vec_of_long(problem: Problem) -> int:
    """Elements of a load of a loop: a whole vector for long unaligned rows of float32, otherwise 1, for loads that
    divide a row."""
    _, N, _, itemsize, _, residual = problem
    vec = VECTOR_BYTES // itemsize
    long = itemsize == 4 and not residual and N > MAX_OF_SINGLES
    return vec if long and N % vec else 1
