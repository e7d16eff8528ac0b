# SPDX-License-Identifier: Apache-2.0
"""How large programs of reductions are, of rows, classes and columns alike.

Constants were chosen on an H200 (132 SMs, triton 3.6.0) with the L2 cache full of clean lines; times are of amax.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import MAX_SINGLE_POSITIONS, MAX_WORDS, Configuration, Problem, are_single_positions, words

# Warps that a multiprocessor has to work on. More programs than fit at once leave a part of the last round idle:
# 64 x 16384 x 64 bf16 along 1 took 47 us with 4 programs of 8 warps, 57 us with 6. With 80 registers and more a
# thread, as an index reduction has that keeps every element apart, fewer fit. Columns of 1024 x 1024 x 1024 bf16 in
# 64 registers took 677 us (sum), in 80 495 (amax).
OCCUPANCY, COLUMNS_OCCUPANCY = 32, {1: 24, 2: 24, 3: 24}
# Means and squares of rows: 45 to 68 registers with 16 to 32 elements in vectors, of which each has one of either.
MOMENTS_OCCUPANCY = {True: 24, False: 16}
# A program of 8 warps has 16 KB in flight: 2**29 bf16 at 4283 GB/s; half of that or 4 warps cost 1 to 4 %.
TILE_BYTES, LONG_WARPS, MAX_TILE = 16384, 8, 8192
# Where row ends need care, fewer, and of bytes several tiles in flight: 8192 x 50257 bf16 241 us with as many elements,
# 200 with fewer, in a pipelined loop 207; sum 16777181 float16 (H100) 19.9 and 22.1, amin 419 x 55135 bf16 24.4 and
# 27.4.
TILE_WITH_EDGES, STAGES = 4096, 3
# Shorter rows than so many vectors are not worth reading their ends apart from the rest. Positions, by (accumulators,
# bytes): max.dim 93967 x 87 float32 13.9 us element by element, in vectors 15.7 to 22.4, 2123 x 293 4.4 and 4.3 to 4.7;
# of bytes as others: 3177 x 193 uint8 4.0 and 5.1, but (H100) 60000 x 333 24.7 and 18.1, 131072 x 717 102.7 and 46.6.
# And two elements are hardly a vector: amax 154903 x 271 float64 92 and 135, 63801 x 737 106 and 147, but 241 x 31847
# 24.9 and 24.0; max.dim 144625 x 109 35.5 and 41.6, 88937 x 235 47 and 53 (H200).
MIN_VECTORS, MIN_VECTORS_OF = 16, {(1, 8): 512, (2, 8): 512, (2, 4): 64}
# Rows up to 4 KB, several to a program, with 4 warps: less to fold across warps. Twice as many for a warp where a row
# needs more than reading: 65536 x 1023 bf16 36 us, not 42, max.dim 65536 x 768 bf16 30 us by 2 warps, not 38 by 4,
# 65536 x 1023 41 us, not 50, 200000 x 130 float32 57, not 72; not if rows are very short (1048576 x 16). Where row ends
# need care too, a single warp: max.dim 1436552 x 147 bf16 198 us, by 2 warps 227, 999 x 1001 4.0, not 4.7; and half of
# the warps in longer rows: 31032 x 2729 bf16 54 us, by 8 warps 72, 60000 x 2049 float32 121, with 16 elements 131.
SHORT_BYTES, SHORT_WARPS, MIN_BYTES_OF_LONG, BYTES_WITH_ALL_WARPS = 4096, 4, 512, 64
# 1520 programs start in a microsecond, however small they are: 57232 x 2 x 312 bf16 by 69759 of 256 results 46 us (30
# to read and write), var 32768 x 2 x 1156 bf16 by 147968 95 us (H100, torch.compile 82). With more than these to each
# multiprocessor they are larger: 30.5 us and 66.7 (var before on this device 93.6).
STARTED_AT_ONCE = 8
# Little is one tile to a program, of as few results as leave a multiprocessor no more than four programs: less to fold
# across warps, and most multiprocessors read. Up to 16 elements to a thread (8 of 64 bits): argmin 40 x 60 x 16 bf16
# (H200) by 160 single warps 2.96 us, by 20 programs of 4 warps 3.39, of 8 3.69; amax 3 x 317 x 25 float32 by 19
# programs 3.13, by 3 3.58. On an H100 argmax 348 x 128 x 4 float16 by 44 of 8 warps 4.22, by 348 3.47; mean
# 11 x 1489 x 3 by 9 of 16 warps 3.64, by 33 3.17. At least 8 elements to a thread, but no more than
# one result, for where it begins takes divisions: amax 9 x 9 x 8 bf16 (H200) by 5 warps 2.60 us, by 9 2.56, by 18 2.66;
# argmax 7 x 2 x 48 with 8 results to a thread 3.2, FlagGems, 2 x 32 to a program, 2.4.
LITTLE_PROGRAMS, LITTLE_ELEMENTS, LITTLE_PROGRAM, MAX_LITTLE_WARPS = 4, 16, 8 * WARP, 16


def row_vector(length: int, size: int, accumulators: int) -> int:
    """Elements that a load takes together."""
    vector = VECTOR_BYTES // size
    fewest = MIN_VECTORS_OF.get((accumulators, size), MIN_VECTORS)
    return vector if length >= fewest * vector else math.gcd(length, vector)


def starts_many(results: int, block: int, limits: Limits) -> bool:
    """Whether starting so many programs would take longer than reading."""
    return results > block * STARTED_AT_ONCE * limits.sm_count


def fitting(problem: Problem, configuration: Configuration) -> Configuration:
    """With no more elements than a thread can hold."""
    elements = configuration.elements
    block_m = elements * configuration.warps * WARP // power_of_2(problem.N)
    if are_single_positions(problem, configuration.kernel, configuration.vector, max(block_m, 1)):
        elements = min(elements, MAX_SINGLE_POSITIONS)
    while elements * words(problem) > MAX_WORDS:
        elements //= 2
    return configuration._replace(elements=elements)
