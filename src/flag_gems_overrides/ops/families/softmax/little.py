# SPDX-License-Identifier: Apache-2.0
"""What is too little for what is measured of more."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import (
    Problem,
)

# Elements in all up to which rows and columns that are loaded one by one are tiny.
# softmax 3 x 400 x 5 float16: 3.1 us by a thread for each 8 elements of a column, by groups of programs 5.1.
TINY = 16384
# Elements of such a column, at most.
MAX_SHORT_OF_TINY = 512
# Elements for each multiprocessor up to which a thread of short columns has at most 16 elements; up to half of it at
# most 8; of float64 half as many. Columns of several threads are in programs of one warp, which wait for no other.
# softmax 5 x 2032 x 5 bf16: 3.8 us by one warp for each column, in four programs of 16 warps 7.0 (H100).
LITTLE = 1024
# Elements of rows of float64 in all up to which a thread has two: more instructions run at a time.
# log_softmax 7 x 237: 3.54 us, with 8 elements 5.11 (H100).
FEW_OF_FLOAT64 = 65536


def are_few_rows_of_float64(problem: Problem) -> bool:
    M, N, K, size, _ = problem
    return size == 8 and K == 1 and M * power_of_2(N) <= FEW_OF_FLOAT64


def is_tiny(problem: Problem) -> bool:
    """Too few elements for what is measured of more of them."""
    M, N, K, size, _ = problem
    alone = math.gcd(N if K == 1 else K, VECTOR_BYTES // size) == 1
    return M * N * K <= TINY and (WARP if K == 1 else MAX_SHORT_OF_TINY) >= N and alone


def is_little(problem: Problem, limits: Limits) -> bool:
    M, N, K, size, _ = problem
    return limits.sm_count * LITTLE // (size // 8 + 1) >= M * N * K
