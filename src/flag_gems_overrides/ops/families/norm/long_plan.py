# SPDX-License-Identifier: Apache-2.0
"""Rows that no program holds: several programs to a row, or a loop. Measured on an H200."""

from __future__ import annotations

from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from .launches import Configuration, Problem, Split, launch_or_none, max_chunks_of_loop
from .slices import slices

# Programs of a group that hold a row: 12 x 1376837 float32 232 us by 337, read twice 122.
MAX_GROUP = 128
# Gradients of rows that begin anywhere are held by so many groups in turn, or read in a loop: fewer groups load smaller
# parts of vectors, and have more turns. 1024 x 145855 float32 takes 796 us by groups of 4 warps with 5 chunks, 844 with
# 7, in a loop 1020, by half as many groups 1632 (PyTorch 1503); 287 x 221447 294 and 455, 459 x 144449 bf16 312 by two
# warps with 4 chunks, by four 342, in a loop 418 (H200).
MIN_VEC_OF_GRADIENTS = 4
# Unaligned rows of float32 that are longer are read as vectors and edges by four programs to a multiprocessor:
# layer_norm of 168 x 614089 takes 469 us so, element by element 574 (FlagGems 532), of 300 x 1000003 1425 and 1765, of
# 100 x 614089 281, element by element and by two programs 622, of 168 x 614090 468, in pairs 488, rms_norm of 168 x
# 614089 407 and 423, but layer_norm of 140 x 300001 213, by groups 194, of 400 x 150001 282 and 261 (H100). Fewer rows
# were not timed.
MAX_OF_SINGLES, MIN_ROWS_OF_VECTORS = 430000, 20
# Of a thread of few programs of float64 (``_few_of_float64``): with 128 up to 24 bytes spill.
REGISTERS_OF_FEW = 168


def splits(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """The best first."""
    M, N, _, itemsize, backward, _ = problem
    if itemsize == 8:
        return
    vec = VECTOR_BYTES // itemsize
    found: list[tuple[Split, Configuration]] = []
    for max_group, warps, chunks, registers in slices(itemsize, N % vec != 0, backward, limits):
        if problem.residual and itemsize == 2 and registers == 128:
            # Of 128 8 bytes spill: skip_layer_norm of 69048 bf16 5.9 us, 6.0 so, 32 x 369824 51.0 and 50.1, 40 x 100000
            # float16 19.0 and 18.1 (H100). Three chunks: 5.7 and 57.7 for the first two.
            registers = 152
        if problem.residual and itemsize == 4:
            # The residual has registers too: with those of x alone 30 x 262144 spills 16 bytes, 20 x 393217 72, and
            # 486 x 399817, of which x has all, 136.
            if registers == 255:
                continue
            registers = min(registers + 64, 255)
        configuration = Configuration("split", warps, vec, stages=4, chunks=chunks, registers=registers)
        launched = launch_or_none(problem, configuration, limits)
        if isinstance(launched, Split) and launched.group <= min(max_group, MAX_GROUP):
            if backward and launched.vec < MIN_VEC_OF_GRADIENTS:
                continue
            if vec_of_long(problem) > launched.vec and not backward:
                # In pairs with a pipeline 304 bytes of 20 x 614090 float32 spill (Triton 3.6).
                continue
            # Unaligned rows of 16 bits that come in turns and are longer than programs of one warp hold are read twice,
            # odd ones as vectors and edges: 192 x 262117 float16 143 us, by groups 181, 40 x 262117 bf16 36.8 and 46.0,
            # 300 x 150001 float16 125 and 144, 50 x 400004 63.3 and 75.5, but 600 x 80001 bf16 133 and 102, 400 x
            # 100001 float16 108 and 93.6 (H100).
            in_turn = launched.programs // launched.group < M
            unaligned = itemsize == 2 and N % vec != 0 and not backward and not problem.residual
            if in_turn and warps > 1 and not found and unaligned:
                continue
            once = M * launched.group <= launched.programs
            if (itemsize == 4 or (problem.residual and warps == 1)) and not backward and once:
                # Nothing comes after the first row: 4 x 362985 float32 12.6 us without the pipeline, 15.1 with it. Of
                # sums by one warp 8 bytes spill with it (7 x 32768 float16).
                configuration = configuration._replace(stages=1)
            found.append((launched, configuration))
    # Unaligned rows of few groups are loaded in parts of vectors: 200 x 150001 bf16 180 us by groups of 74 programs, 89
    # by groups of 37. By several warps rows that come in turns have as few programs as hold them, for each turn is a
    # wait: 88 x 85975 float16 11 turns of 42 programs to a row 38.8 us, 6 of 21 24.7 (H100; in a loop 36.6, FlagGems
    # 33.9). By one warp 264 x 50257 bf16 32.0 us, in a loop 53.3, but unaligned rows only if they come in two turns at
    # least: 40 x 60001 bf16 14.9 us, by four warps 13.0, 4 x 80001 7.5 and 6.9, 88 x 85975 float16 23.7 and 26.2
    # (H100). Float32 and gradients were not timed so.

    def first(each: tuple[Split, Configuration]) -> tuple[int, bool, int]:
        split = each[0]
        of_16_bits = itemsize == 2 and not backward
        in_turn = of_16_bits and split.warps > 1 and split.programs // split.group < M
        few = of_16_bits and N % vec != 0 and split.warps == 1 and M * split.group < 2 * split.programs
        return -split.vec, few, split.group if in_turn else 0

    yield from (configuration for _, configuration in sorted(found, key=first))


def loop(problem: Problem, limits: Limits) -> Configuration:
    """Two programs to a multiprocessor, 16 elements to a thread or as many float64 as have registers.

    Of many rows four, which share no more rows than L2 holds: 486 x 399816 float32 685 us, by two 860, 424 x 180760
    bf16 130 and 158. Of fewer rows than multiprocessors two of float32 (128 x 441693 267 by four), but with vectors and
    edges, as ``vec_of_long``, or whole vectors that L2 does not hold, four, as of 16 bits (112 x 524288 bf16 137 us, by
    two 157, 33 x 1000000 77 and 100; 64 x 837024 float32 240 and 312; H100).
    """
    if problem.backward:
        return Configuration("loop", 4)  # ``plan_two_passes`` alone decides
    whole = problem.N * problem.itemsize % VECTOR_BYTES == 0
    from_memory = problem.M * problem.N * problem.itemsize > limits.l2_bytes
    many = problem.itemsize == 2 or limits.sm_count < problem.M or vec_of_long(problem) > 1 or (whole and from_memory)
    if not problem.residual and problem.itemsize < 8 and many:
        if problem.itemsize == 2 and problem.N % 2 == 1:
            # Vectors and edges: 344 x 393619 float16 346 us by 4 warps, 361 by 8, element by element 450 (H100).
            return Configuration("loop", 4, VECTOR_BYTES // problem.itemsize, chunks=1, registers=64)
        return Configuration("loop", 8, vec_of_long(problem), chunks=2, registers=64)
    registers = REGISTERS_OF_FEW if _few_of_float64(problem, limits) else 128
    chunks = min(2 if problem.itemsize == 2 else 4, max_chunks_of_loop(problem, limits, registers))
    return Configuration("loop", 8, chunks=chunks, registers=registers)


def _few_of_float64(problem: Problem, limits: Limits) -> bool:
    """Whether each multiprocessor has at most one program, of 8 warps, which has one block of a row.

    layer_norm of 5 x 24632 takes 7.83 us by groups of 13 programs with four vectors to a thread, by 25 with two 8.85
    (H100).
    """
    block_n = 4 * 8 * WARP * VECTOR_BYTES // problem.itemsize
    wide = problem.itemsize == 8 and max_chunks_of_loop(problem, limits, REGISTERS_OF_FEW) == 4
    return wide and problem.M * cdiv(problem.N, block_n) <= limits.sm_count


def vec_of_long(problem: Problem) -> int:
    """Elements of a load of a loop: a whole vector of long unaligned rows of float32, else (1) what divides a row."""
    M, N, _, itemsize, _, residual = problem
    vec = VECTOR_BYTES // itemsize
    long = itemsize == 4 and not residual and N > MAX_OF_SINGLES and M >= MIN_ROWS_OF_VECTORS
    return vec if long and N % vec else 1
