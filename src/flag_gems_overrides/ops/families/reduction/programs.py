# SPDX-License-Identifier: Apache-2.0
"""How large programs of reductions are, of rows, classes and columns alike.

Constants were chosen on an H200 (132 SMs, Triton 3.6.0) with the L2 cache full of clean lines. A time is of amax on
that GPU where the comment names no operator or no GPU.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import MAX_SINGLE_POSITIONS, MAX_WORDS, Configuration, Problem, are_single_positions, words

# Warps of a multiprocessor that rows are planned for, in 64 registers to a thread. More programs than fit at once leave
# a part of the last round idle.
OCCUPANCY = 32
# The same for columns, by accumulators: they need 80 registers.
# 1024 x 1024 x 1024 bf16: 495 us, sum in 64 registers 677.
COLUMNS_OCCUPANCY = {1: 24, 2: 24, 3: 24}
# The same for moments of rows, by whether they are loaded in vectors, whose elements share a mean and a sum of squares:
# 45 to 68 registers with 16 to 32 elements.
MOMENTS_OCCUPANCY = {True: 24, False: 16}
# Bytes that a program of LONG_WARPS has in flight. Half of that, or 4 warps, costs 1 to 4 % (2**29 bf16).
TILE_BYTES = 16384
# Warps of a program of long rows.
LONG_WARPS = 8
# Elements of a tile, at most.
MAX_TILE = 8192
# Elements of a tile, at most, of rows with edges. 8192 x 50257 bf16: 200 us, with as many as without edges 241.
TILE_WITH_EDGES = 4096
# Tiles in flight in a pipelined loop. sum 16777181 float16: 19.9 us without such a loop, 22.1 in it (H100).
STAGES = 3
# Vectors of a row from which it is read in whole vectors, its edges apart.
MIN_VECTORS = 16
# The same by (accumulators, bytes of an element). Two elements are hardly a vector.
# max.dim 93967 x 87 float32: 13.9 us element by element, in vectors 15.7 to 22.4; amax 154903 x 271 float64: 92 us, in
# vectors 135 (H200).
MIN_VECTORS_OF = {(1, 8): 512, (2, 8): 512, (2, 4): 64}
# Bytes of a row, at most, of which a program has several: less to fold across warps. A tile has twice as many where a
# row needs more than reading. 65536 x 1023 bf16: 36 us, otherwise 42.
SHORT_BYTES = 4096
# Warps of a program of such rows.
SHORT_WARPS = 4
# Bytes of a row from which a program of positions has twice as many. max.dim 200000 x 130 float32: 57 us, otherwise 72.
MIN_BYTES_OF_LONG = 512
# Bytes of a row up to which positions have all warps; of longer rows two, or one if the row has edges.
# max.dim 1436552 x 147 bf16: 198 us by one warp, 227 by two.
BYTES_WITH_ALL_WARPS = 64
# Programs for each multiprocessor from which they are larger: 1520 start in a microsecond, however small they are.
# 57232 x 2 x 312 bf16: 30.5 us, by 69759 programs of 256 results 46.
STARTED_AT_ONCE = 8
# Programs for each multiprocessor, at most, of little problems: each is one tile of as few results as that allows.
# argmin 40 x 60 x 16 bf16: 2.96 us by 160 single warps, 3.39 by 20 programs of 4 warps (H200).
LITTLE_PROGRAMS = 4
# 32-bit words of a thread of such a tile, at most.
LITTLE_ELEMENTS = 16
# Elements of such a tile, at least, but no more than one result to a thread, for where it begins takes divisions.
# 9 x 9 x 8 bf16: 2.56 us by 9 warps, 2.66 by 18 (H200).
LITTLE_PROGRAM = 8 * WARP
# Warps of such a program, at most.
MAX_LITTLE_WARPS = 16


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
