# SPDX-License-Identifier: Apache-2.0
"""What is too little for what is measured of more."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import (
    Problem,
)

# So few in all, in rows or columns of so few that are loaded one by one: softmax 3 x 400 x 5 float16 3.1 us by a thread
# for each 8 elements of a column, 5.1 by groups of programs; 3 x 7 float32 2.4 with 4, 3.2 with 8; the gradient of
# log_softmax 1531 x 5 bf16 2.7 and 3.4.
TINY, MAX_SHORT_OF_TINY = 16384, 512
# Elements for each multiprocessor up to which a thread of short columns has no more than 16, of half as many no more
# than 8, of float64 half of that. Columns of several threads are in programs of one warp then, which need not wait for
# others (log_softmax 30 x 16 x 2 float32 2.8 us, by four warps with 4 elements 3.05; in tiles of a power of two, of
# four warps, softmax 3 x 146 float16 2.7 us with 4 elements, 2.9 with 8, log_softmax 6 x 5 x 18 float64 3.5 and 4.1).
# Longer ones of rows that a sector holds have a program each, also in place of groups, if 8 elements to a thread, of
# float64 half as many, are enough: softmax 5 x 2032 x 5 bf16 3.8 us, in four programs of 16 warps 7.0; its gradient 3.8
# and 7.6; log_softmax 3 x 5000 x 3 float32 5.4 and 8.1; the gradient of 1 x 5843 x 3 bf16 4.4, by groups 5.0. With 16
# elements that of 15142 x 3 float32 8.2 and 5.3 (H100).
LITTLE = 1024


# Float64 of rows in all up to which a thread has two elements, for more of the instructions at a time: log_softmax 7 x
# 237 3.54 us so, with 8 5.11 (PyTorch 4.08), softmax 64 x 1000 4.23 and 4.38, the gradient of log_softmax 1 x 96 3.06
# and, with 4, 3.26 (H100).
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
