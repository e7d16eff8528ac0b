# SPDX-License-Identifier: Apache-2.0
"""Softmax of long columns, or one long row, that several launches read as they lie. Figures are those of
:mod:`.defaults`.
"""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, cdiv, power_of_2
from .launches import MAX_INTERLEAVED, Configuration, Problem, Split, launch_or_none
from .programs import FOUND_IN_L2

# Bytes moved from which odd columns of less than 8 bytes an element are read as they lie. Two launches cost about
# 3 us; by columns a megabyte takes about 0.3 us more.
# The gradient of log_softmax 2 x 1000000 x 3 bf16 (36 MB): 24.2 us, by columns 34.3 (H100).
MIN_INTERLEAVED_BYTES = 24 << 20
# The same of columns loaded in pairs of 16 bits, which is K = 6.
# softmax 36 x 30365 x 6 bf16: 25.4 us, by columns 59.3; in pairs of float32: 39.4 and 33.4 (H100).
MIN_INTERLEAVED_PAIRS_BYTES = 8 << 20
# The same of two columns of 16 bits, by inputs. Programs hold shorter ones.
# softmax 24 x 250000 x 2 float16 (48 MB): 30.8 us, by columns 33.5 (H100).
MIN_INTERLEAVED_PAIR_BYTES = {1: 44 << 20, 2: 104 << 20}
# The same of eight columns of 16 bits forward. Programs load few long ones as whole vectors.
# softmax 63 x 9347 x 8 bf16 (18 MB): 19.9 us, by columns 25.7; 10 x 100000 x 8 float16: 27.5 and 20.1 (H100).
MIN_INTERLEAVED_EIGHTS_BYTES = 16 << 20
# Rows that are read as one column each, at most.
MAX_LONG_ROWS = 8
# Elements of each such row, at least, by bytes of an element.
MIN_LONG_ROW = {2: 1 << 19, 4: 1 << 20}
# Bytes that they move, at least, by bytes of an element.
MIN_LONG_ROWS_BYTES = {2: 20 << 20, 4: 24 << 20}
# Bytes moved from which longer columns, loaded one by one, are read as they lie: three launches take 12 us, and 0.45 us
# a megabyte. The bound is multiplied by the share of the blocks' columns that exists.
# The gradient of log_softmax 4 x 5000 x 301 float16 (36 MB): 32.5 us, by columns 28.7 (H100).
MIN_STRIDED_SINGLES_BYTES = 56 << 20
# The same of 16 bits forward, which take longest by columns.
MIN_STRIDED_SINGLES_OF_16_BITS_BYTES = 32 << 20
# The same of columns loaded in pairs or fours.
# The gradients of 11 x 3200 x 276 (58 MB) of 16 bits: 42.1 us, by columns 44.4; 3 x 6336 x 276 (31 MB): 27.1 and 26.1
# (H100).
MIN_STRIDED_BYTES = 48 << 20
# The same of whole vectors. Fewer than 424 MB were not timed.
MIN_STRIDED_VECTORS_BYTES = 384 << 20
# The same of columns loaded one by one that have LONG_SINGLES elements or more.
# softmax 10 x 10000 x 51 float32 (41 MB): 29.6 us, by columns 43.5 (H100).
MIN_STRIDED_LONG_SINGLES_BYTES, LONG_SINGLES = 40 << 20, 10000
# Elements of a column loaded one by one, at least, by (bytes of an element, inputs): of shorter columns L2 holds many
# blocks that lie side by side.
# The gradient of 98 x 1500 x 367 float32: 398 us, by columns 380; log_softmax's 30 x 2500 x 361: 166 and 198 (H100).
MIN_STRIDED_COLUMN = {(2, 1): 3072, (4, 1): 3072, (2, 2): 2900, (4, 2): 2500}
# The same of whole vectors; the shortest that was timed.
MIN_STRIDED_COLUMN_OF_VECTORS = 16384
# The same of float32 forward whose [N, K] L2 does not hold. softmax 3 x 2048 x 10011: 280 us, by columns 359 (H100).
MIN_STRIDED_COLUMN_BEYOND_L2 = 2048
# Bytes moved from which columns of float64 are read as they lie, by inputs. By columns a megabyte takes about 1 us.
# log_softmax 39 x 9024 x 21 (118 MB): 73 us, by columns 121; softmax 8 x 6000 x 33 (25 MB): 27.7 and 31.0 (H100).
MIN_STRIDED_FLOAT64_BYTES = {1: 24 << 20, 2: 48 << 20}
# Elements of such a column, at least. softmax 100 x 1500 x 21: 36.9 us, by columns 49.9 (H100).
MIN_STRIDED_FLOAT64_COLUMN = 1500
# K of such columns that are whole vectors, forward, at most.
# softmax 20 x 4000 x 64: 52.8 us, by columns 62.0; the gradient of 39 x 9024 x 24: 125 and 100 (H100).
MAX_STRIDED_FLOAT64_VECTORS = 64
# Elements of a column, at least, loaded in pairs or fours; and one by one where L2 does not hold two [N, K] of 16 bits,
# forward six.
# softmax 11 x 2164 x 7705 bf16: 488 us, by columns 642; the gradient of 4 x 1500 x 5001 float32: 215 and 218 (H100).
MIN_STRIDED_COLUMN_OF_SEVERAL = 1000
# Share of a row by which blocks of whole vectors are wider than it, from which fewer bytes and shorter columns are
# read as they lie. Forward also rows of no whole sectors.
# The gradient of 11 x 6336 x 280 float16 (117 MB): 78.7 us, by columns 90.1 (H100).
MIN_UNEVEN = 0.1
# Bytes moved by such columns, at least; forward multiplied by the share of the blocks' columns that exists.
# log_softmax 11 x 25281 x 72 float16 (80 MB): 49.8 us, by columns 76.9 (H100).
MIN_UNEVEN_BYTES = 96 << 20
# Elements of such a column, at least.
MIN_UNEVEN_COLUMN = 6144


def is_better_interleaved(problem: Problem, by_columns: Split, limits: Limits) -> bool:
    """Whether columns that no programs can hold are better read as they lie.

    Of 3 to 7 columns that are not small: those loaded by 4 bytes or less, and those of no whole vectors that a group
    reads twice and L2 cannot hold. Two columns of 16 bits, and eight of 16 bits forward; no other eight.

    softmax 12 x 1000000 x 4 bf16: 113 us, by columns 122; log_softmax 1 x 297711 x 8 float32: 23.7 and 17.2 (H100).
    """
    M, N, K, size, inputs = problem
    if K == size == 2:
        return by_columns.looped and M * N * K * size * (inputs + 1) >= MIN_INTERLEAVED_PAIR_BYTES[inputs]
    if (K, size, inputs) == (8, 2, 1):
        small = by_columns.vec * size < VECTOR_BYTES
        return by_columns.looped and small and 2 * M * N * K * size >= MIN_INTERLEAVED_EIGHTS_BYTES
    whole = power_of_2(K) == K and K % (VECTOR_BYTES // size) == 0
    if whole or not 2 < K < MAX_INTERLEAVED or not by_columns.looped:
        return False
    tensor_bytes = M * N * K * size
    least = MIN_INTERLEAVED_BYTES if by_columns.vec == 1 else MIN_INTERLEAVED_PAIRS_BYTES
    if by_columns.vec * size <= 4 and tensor_bytes * (inputs + 1) >= least:
        return True
    return by_columns.group > 1 and tensor_bytes * inputs > limits.l2_bytes


def is_better_in_parts(problem: Problem, by_columns: Split, limits: Limits) -> bool:
    """Whether no cache holds the [N, K] of 16 bits that programs read at once, forward, where each has one.

    softmax 209 x 428126 x 3 bf16: 607 us by several programs for each, by one, which spills, 619 (H100).
    """
    M, N, K, size, inputs = problem
    beyond_l2 = min(M, 2 * limits.sm_count) * N * K * size > 2 * limits.l2_bytes
    return size == 2 and inputs == 1 and beyond_l2 and is_better_interleaved(problem, by_columns, limits)


def are_long_rows(problem: Problem, limits: Limits) -> bool:
    """Whether rows of the forward are read twice, as one column each, by two launches: one row that L2 holds little of,
    or 2 to 8 that start anywhere and that L2 holds.

    Shorter rows and gradients are faster by programs that wait for each other.

    softmax 79662946 float32: 330 us, by such programs 380; 8 x 843263 float32: 36.1 and 34.3 (H100).
    """
    M, N, K, size, inputs = problem
    if K > 1 or inputs > 1:
        return False
    tensor_bytes = M * N * size
    if M == 1:
        return tensor_bytes > 2 * limits.l2_bytes
    if M > MAX_LONG_ROWS or N % (VECTOR_BYTES // size) == 0 or size == 8:
        return False
    long = MIN_LONG_ROW[size] <= N and 2 * tensor_bytes >= MIN_LONG_ROWS_BYTES[size]
    return long and tensor_bytes <= FOUND_IN_L2 * limits.l2_bytes


def is_better_strided(problem: Problem, by_columns: Split, limits: Limits) -> bool:
    """Whether more than a few long columns that programs would read twice are better read as they lie.

    They are of no whole vectors, of 16 bits whose rows no blocks divide evenly, or of float64 forward with short rows.
    By columns a warp reads only a part of each line.

    softmax 1 x 32768 x 3231 float16: 250 us, by columns one by one 499; in vectors 3 x 16384 x 2192 float32: 485 and
    418 (H100).
    """
    M, N, K, size, inputs = problem
    whole = K % (VECTOR_BYTES // size) == 0
    if K <= MAX_INTERLEAVED or not by_columns.looped:
        return False
    if whole and (size == 4 or (size == 2 and K % by_columns.block_k == 0)):
        return False
    if whole and size == 8 and (inputs > 1 or K > MAX_STRIDED_FLOAT64_VECTORS):
        return False
    least, shortest = _least_strided(problem, by_columns, limits)
    if shortest > N or M * N * K * size * (inputs + 1) < least:
        return False
    return launch_or_none(problem, strided(problem), limits) is not None


def _least_strided(problem: Problem, by_columns: Split, limits: Limits) -> tuple[int, int]:
    """Bytes moved, and elements of a column."""
    _, N, K, size, inputs = problem
    block_k = by_columns.block_k
    if size == 8:
        return MIN_STRIDED_FLOAT64_BYTES[inputs], MIN_STRIDED_FLOAT64_COLUMN
    in_blocks = cdiv(K, block_k) * block_k
    if K % (VECTOR_BYTES // size) == 0:
        if -K % block_k >= MIN_UNEVEN * K or (inputs == 1 and K * size % SECTOR_BYTES):
            return MIN_UNEVEN_BYTES * K // in_blocks if inputs == 1 else MIN_UNEVEN_BYTES, MIN_UNEVEN_COLUMN
        return MIN_STRIDED_VECTORS_BYTES, MIN_STRIDED_COLUMN_OF_VECTORS
    if by_columns.vec > 1:
        return MIN_STRIDED_BYTES, MIN_STRIDED_COLUMN_OF_SEVERAL
    least = MIN_STRIDED_SINGLES_OF_16_BITS_BYTES if size * inputs == 2 else MIN_STRIDED_SINGLES_BYTES
    least = (min(least, MIN_STRIDED_LONG_SINGLES_BYTES) if N >= LONG_SINGLES else least) * K // in_blocks
    if size == 2 and (6 if inputs == 1 else 2) * N * K * size * inputs > limits.l2_bytes:
        return least, MIN_STRIDED_COLUMN_OF_SEVERAL
    if (size, inputs) == (4, 1) and N * K * size > limits.l2_bytes:
        return least, MIN_STRIDED_COLUMN_BEYOND_L2
    return least, MIN_STRIDED_COLUMN[size, inputs]


def strided(problem: Problem) -> Configuration:
    """Of 8 programs to a multiprocessor. With 24, or with twice as many loads, times differ by less than 4 %."""
    return Configuration("strided", VECTOR_BYTES // problem.itemsize * 4 // problem.inputs, 4, group=8)


def interleaved(problem: Problem) -> Configuration:
    """Of 32 programs to a multiprocessor, several rounds of which end at about the same time."""
    size, inputs = problem.itemsize, problem.inputs
    return Configuration("interleaved", VECTOR_BYTES // size * 4 // inputs, 4, group=32)
