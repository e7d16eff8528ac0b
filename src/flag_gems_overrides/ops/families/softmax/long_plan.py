# SPDX-License-Identifier: Apache-2.0
"""Softmax of long columns, or one long row, that several launches read as they lie. Figures are those of
:mod:`.defaults`.
"""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, cdiv, power_of_2
from .launches import MAX_INTERLEAVED, Configuration, Problem, Split, launch_or_none
from .programs import FOUND_IN_L2

# Bytes moved from which odd columns of less than 8 bytes an element are read as they lie, by two launches, also where
# L2 holds them. By columns they take about 0.3 us a megabyte more, two launches about 3 us: the gradient of log_softmax
# 2 x 1000000 x 3 bf16 (36 MB) 24.2 us so, by columns 34.3. Beyond L2 that of 35 x 2436552 x 3 bf16 747 and 1372
# (torch.compile 856), softmax 20 x 1000001 x 3 float16 142 and 242, its gradient 1 x 3000000 x 3 float32 67 and 89; by
# columns in a loop of one program that of 3000 x 7000 x 3 bf16 229 and 313 (H100).
MIN_INTERLEAVED_BYTES = 24 << 20
# The same of columns loaded in pairs of 16 bits, which is K = 6: softmax 36 x 30365 x 6 bf16 25.4 us so, by columns
# 59.3 (FlagGems 38.1), 72 x 30365 x 6 41.9 and 86.4, 12 x 30365 x 6 (9 MB) 14.7 and 19.3, the gradient of 36 x 30365 x
# 6 30.3 and 34.4; in pairs of float32 softmax 36 x 30365 x 6 39.4 and 33.4 (H100).
MIN_INTERLEAVED_PAIRS_BYTES = 8 << 20
# The same of two columns, by inputs, which others hold if they are short: softmax 24 x 250000 x 2 float16 (48 MB) 30.8
# us so and 33.5, log_softmax 24 x 401203 x 2 bf16 48.8 and 57.9, the gradient (116 MB) 77 and 89 (H100).
MIN_INTERLEAVED_PAIR_BYTES = {1: 44 << 20, 2: 104 << 20}
# The same of eight columns of 16 bits forward: softmax 63 x 9347 x 8 bf16 (18 MB) 19.9 us so and 25.7 (FlagGems 22.5),
# 60 x 20001 x 8 float16 32.1 and 36.8; not of few long ones, which programs load as whole vectors: 10 x 100000 x 8
# float16 27.5 and 20.1 (H100).
MIN_INTERLEAVED_EIGHTS_BYTES = 16 << 20
# Of rows that are, how many at most; by bytes of an element, how many each has at least and all move.
MAX_LONG_ROWS, MIN_LONG_ROW, MIN_LONG_ROWS_BYTES = 8, {2: 1 << 19, 4: 1 << 20}, {2: 20 << 20, 4: 24 << 20}
# Bytes moved from which longer columns are read as they lie, by three launches, which take 12 us and 0.45 us a
# megabyte: of those loaded one by one, of those of 16 bits forward, which take longest, of others, and of whole
# vectors. Of few bytes softmax 2 x 3000 x 1001 float32 (48 MB) 36.1 us so and by columns, the gradients of log_softmax
# 4 x 5000 x 301 float16 (36 MB) 32.5 and 28.7, of 32 x 576 x 63 float32 18.6 and 17.5, softmax 8 x 3000 x 65 float16
# 14.3 and 10.6; in fours of 16 bits the gradients of 3 x 6336 x 276 (31 MB) 27.1 and 26.1, of 11 x 3200 x 276 (58 MB)
# 42.1 and 44.4 (H100). Of whole vectors 424 MB were the fewest that were timed. Of those loaded one by one the share of
# it that the columns are of their blocks: the gradient of 5 x 22173 x 43 float32 (57 MB) 55.5 us by columns.
MIN_STRIDED_SINGLES_BYTES, MIN_STRIDED_SINGLES_OF_16_BITS_BYTES, MIN_STRIDED_BYTES = 56 << 20, 32 << 20, 48 << 20
MIN_STRIDED_VECTORS_BYTES = 384 << 20
# Of those loaded one by one that have at least so many elements: softmax 10 x 10000 x 51 float32 (41 MB) 29.6 us so and
# 43.5, the gradients of 4 x 22173 x 43 float32 (46 MB) 35.5 and 43.7, of 8 x 20000 x 43 bf16 (41 MB) 33.5 and 43.2
# (H100).
MIN_STRIDED_LONG_SINGLES_BYTES, LONG_SINGLES = 40 << 20, 10000
# The least such column, and of whole vectors: of shorter ones L2 holds many blocks at a time, which lie side by side:
# the gradients of 98 x 1500 x 367 float32 380 us by columns and 398 so, of 100 x 1000 x 301 bf16 113 and 118. Timed
# were 3201 of float32 one by one, 5000 of 16 bits, 16384 of whole vectors; by bytes and inputs, the gradients of
# log_softmax 21 x 2976 x 361 float32 138 us so and 172 (torch.compile 134), of 30 x 2500 x 361 166 and 198, of softmax
# 21 x 2976 x 361 168 and 166, 60 x 2950 x 301 393 and 463 (H100).
MIN_STRIDED_COLUMN = {(2, 1): 3072, (4, 1): 3072, (2, 2): 2900, (4, 2): 2500}
MIN_STRIDED_COLUMN_OF_VECTORS = 16384
# Of float32 forward, loaded one by one, of which L2 holds no [N, K]: softmax 3 x 2048 x 10011 280 us so and 359 (H100).
MIN_STRIDED_COLUMN_BEYOND_L2 = 2048
# Of float64, by inputs, bytes moved; the least column; how many whole vectors may have, forward. By columns it takes
# about 1 us a megabyte: log_softmax 39 x 9024 x 21 (118 MB) 73 us so and 121 (torch.compile 97), softmax 140 x 1712 x
# 197 499 and 585, 30 x 4000 x 33 46 and 67, 100 x 1500 x 21 36.9 and 49.9, 39 x 9024 x 9 37.4 and 67.9, 8 x 6000 x 33
# (25 MB) 27.7 and 31.0, the gradient of log_softmax 39 x 9024 x 21 89 and 114; in vectors softmax 39 x 9024 x 22 80 and
# 132, 10 x 10000 x 50 52.8 and 82.4, 20 x 4000 x 64 52.8 and 62.0, but the gradient of 39 x 9024 x 24 125 and 100
# (H100).
MIN_STRIDED_FLOAT64_BYTES, MIN_STRIDED_FLOAT64_COLUMN = {1: 24 << 20, 2: 48 << 20}, 1500
MAX_STRIDED_FLOAT64_VECTORS = 64
# In pairs or fours, and one by one where two [N, K] of 16 bits, forward six, are more than L2 has, shorter ones: the
# gradients of 40 x 1500 x 276 float16 66.4 us so and 78.5 by columns, of 100 x 1000 x 278 110 and 116, softmax 8 x 1004
# x 8694 bf16 174 and 204, one by one the gradient of 8 x 1004 x 8695 255 and 267, of 11 x 2164 x 7705 662 and 897,
# softmax 11 x 2164 x 7705 488 and 642, 20 x 1500 x 3001 242 and 277, but the gradient of 4 x 1500 x 5001 float32 215
# and 218 (H100).
MIN_STRIDED_COLUMN_OF_SEVERAL = 1000
# Whole vectors of which blocks are so much wider than a row, as a share of it, at least, from fewer bytes and shorter
# columns: the gradient of 11 x 6336 x 280 float16 (117 MB) 78.7 us so, by columns 90.1; also forward those of rows of
# no whole sectors: log_softmax 4 x 33457 x 680 bf16 209 us so and 297 (H100). Forward the share of those bytes that the
# columns are of their blocks: log_softmax 11 x 25281 x 72 float16 (80 MB) 49.8 us so and 76.9 (H100).
MIN_UNEVEN, MIN_UNEVEN_BYTES, MIN_UNEVEN_COLUMN = 0.1, 96 << 20, 6144


def is_better_interleaved(problem: Problem, by_columns: Split, limits: Limits) -> bool:
    """Whether 3 to 7 columns that no programs can hold are: if they are not small those that would be loaded by 4
    bytes or less; others that are no whole vectors where a group reads them twice and L2 cannot hold them. softmax 12 x
    1000000 x 4 bf16 113 us so, by columns 122. Two of 16 bits, eight forward; no other eight: log_softmax 1 x 297711 x
    8 float32 23.7 us so, by columns 17.2, the gradient of 1 x 299204 x 8 bf16 20.1 and 15.0 (H100).
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
    """Whether no cache holds the [N, K] that programs read at once, where each has one of 16 bits forward: softmax 209
    x 428126 x 3 bf16 607 us by many programs for each, by one, which spills, 619, 57 x 6 x 38281 x 7 227 and 232
    (H100).
    """
    M, N, K, size, inputs = problem
    beyond_l2 = min(M, 2 * limits.sm_count) * N * K * size > 2 * limits.l2_bytes
    return size == 2 and inputs == 1 and beyond_l2 and is_better_interleaved(problem, by_columns, limits)


def are_long_rows(problem: Problem, limits: Limits) -> bool:
    """Whether rows of the forward are read twice, as one column each, by two launches: one that L2 holds little of;
    2 to 8 that start anywhere and that L2 holds. softmax 79662946 float32 330 us so, by programs that wait for each
    other 380, 134217728 bf16 284 and 313, 2 x 1796025 float32 20.5 and 34.9, 5 x 1788355 bf16 26.9 and 34.3, 2 x
    2700001 18.1 and 23.7; not of fewer bytes, 8 x 600001 float16 19.0 and 18.9, nor shorter ones of float32, 8 x 843263
    36.1 and 34.3, nor one, 3420377 20.6 and 20.0, nor gradients, that of log_softmax 2 x 1796025 float32 25.4 and 22.2
    (H100).
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
    """Whether more than a few long columns are that programs would read twice: of no whole vectors, of 16 bits whose
    rows no blocks divide evenly, or of float64 forward whose rows are short.

    By columns a warp reads, of each line, less than there is: softmax 1 x 32768 x 3231 float16 250 us so, by columns
    one by one 499 (FlagGems 418), 2 x 20000 x 2049 bf16 197 and 366, 4 x 150000 x 63 float16 89 and 150, 8 x 40001 x
    131 bf16 107 and 220, 49 x 3767 x 367 float32 317 and 415, the gradients of 2 x 28920 x 1785 bf16 367 and 653, of 1
    x 2000000 x 33 float32 475 and 1028, of 98 x 3767 x 367 1014 and 1261, of log_softmax 2 x 32768 x 287 float16 (113
    MB) 63 and 93; in pairs softmax 3 x 16384 x 2194 float32 504 and 764, 8 x 1048576 x 10 374 and 432, the gradient of
    log_softmax 8 x 1048576 x 10 bf16 244 and 341, in fours that of softmax 15 x 388780 x 12 253 and 288, of log_softmax
    20 x 8000 x 132 float16 69 and 86; in vectors softmax 1 x 32768 x 3232 241 and 265, the gradient of 3 x 16384 x 2192
    bf16 383 and 455, but softmax 3 x 16384 x 2192 float32 485 and 418 (H100).
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
    """Of 8 programs to a multiprocessor: with 24 of them, or of twice as many loads, all of the above within 4 %."""
    return Configuration("strided", VECTOR_BYTES // problem.itemsize * 4 // problem.inputs, 4, group=8)


def interleaved(problem: Problem) -> Configuration:
    """Of 32 programs to a multiprocessor, several rounds of which end at about the same time."""
    size, inputs = problem.itemsize, problem.inputs
    return Configuration("interleaved", VECTOR_BYTES // size * 4 // inputs, 4, group=32)
