# SPDX-License-Identifier: Apache-2.0
"""Many short rows of layer_norm, and those of rms_norm that are launched alike."""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import MIN_UNALIGNED, Configuration, Problem

# Rows of which layer_norm has a part at a time (``in_few_chunks``): the shortest and longest, elements of a chunk of a
# tile of them, and the fewest for each multiprocessor.
MIN_IN_PARTS, MAX_IN_PARTS, CHUNK_OF_PARTS, MIN_IN_PARTS_PER_SM = 5, 32, {1: 128, 2: 512}, 128
# Odd rows of 16 bits that a warp has two of at a time, in chunks of a lane for each (``in_chunks_of_a_warp``): the
# shortest and longest, rows and warps of a program, and the fewest for each multiprocessor.
MIN_CHUNKED, MAX_CHUNKED, CHUNKED_ROWS, CHUNKED_WARPS, MIN_CHUNKED_PER_SM = 129, 255, 4, 2, 20
# Rows of pairs or fours of 16 bits that are for programs of four warps instead of one (``rows_of_four_warps``): the
# longest, and fewest rows for each multiprocessor.
MAX_ROW_OF_WARPS, MIN_ROWS_OF_WARPS_PER_SM = 512, 16
# Rows of 256 elements of 16 bits for each multiprocessor that are two to a program (``two_of_256``).
MIN_TWO_PER_SM, MAX_TWO_PER_SM = 12, 16
# Of many rows of pairs without a residual (``many_pairs``): the shortest and longest, and the fewest for each
# multiprocessor.
MIN_MANY_PAIRS, MAX_MANY_PAIRS, MIN_MANY_PAIRS_PER_SM = 386, 640, 64


def in_few_chunks(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """Many rows of 5 to 32 elements are loaded as single elements in up to four chunks, as pairs in two: fewer threads
    share a row and exchange its two sums. For layer_norm only; other configurations are returned unchanged.

    20245 x 9 float32 takes 3.75 us so, in two chunks 3.92, with the whole row at a time 4.5, 30000 x 11 bf16 3.63 and
    3.78; in two chunks 2850130 x 13 float32 117.3 us, with the whole row 148.8, 1000000 x 9 37.9 and 54.5, 500000 x 25
    44.7 and 60.3, with a residual 1000000 x 13 60.8 and 62.2, 300000 x 30 bf16 20.2 and 22.0, 300000 x 13 float64 29.6
    and 33.3, 16593145 x 5 float32 283 and 361, but 300000 x 50 48.4 and 48.3, and rms_norm, of one sum, of 2850130 x 13
    120.9 and 106.5; pairs of 40000 x 18 bf16 4.7 in two and 5.3 in four (H100).
    """
    M, N, _, itemsize, backward, _ = problem
    few = 2 if itemsize < 8 else 1  # elements of a load
    if backward or found.kernel != "rows" or found.vec > few or not MIN_IN_PARTS <= N <= MAX_IN_PARTS:
        return found
    if limits.sm_count * MIN_IN_PARTS_PER_SM > M:
        return found
    chunks = 4 if found.vec == 1 else 2
    return Configuration("rows", 4, found.vec, chunks * CHUNK_OF_PARTS[found.vec] // power_of_2(N), chunks=chunks)


def in_chunks_of_a_warp(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """Odd rows of 16 bits, element by element, are loaded in chunks of 32, not in a power of two: fewer lanes have no
    element. For layer_norm only; other configurations are returned unchanged.

    21419 x 141 bf16 takes 9.9 us so by programs of two warps with four rows, by one with two 11.5, 12.3 with all of 256
    lanes, of which two rows take 11.5; 9000 x 189 float16 with two rows 7.6, with four of 256 lanes 8.2, 3000 x 201
    bf16 4.44 and 5.17, with a residual 20000 x 141 13.5 and 16.3, but 30000 x 99, of four chunks and of as many lanes,
    10.3 and 10.4 (H100).
    """
    M, N, _, itemsize, backward, _ = problem
    if backward or itemsize != 2 or found.kernel != "rows" or found.vec > 1:
        return found
    if N % 2 == 0 or not MIN_CHUNKED <= N <= MAX_CHUNKED or limits.sm_count * MIN_CHUNKED_PER_SM > M:
        return found
    return Configuration("rows", CHUNKED_WARPS, 1, CHUNKED_ROWS, chunks=power_of_2(N) // WARP)


def by_four_warps(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """``rows_of_four_warps`` instead of a row to a program of one; other configurations are returned unchanged. For
    layer_norm only."""
    if problem.backward or found.kernel != "rows" or (found.warps, found.rows, found.per_sm) != (1, 1, 0):
        return found
    return rows_of_four_warps(problem, found.vec, limits) or found


def rows_of_four_warps(problem: Problem, vec: int, limits: Limits) -> Configuration | None:
    """Four rows of pairs or fours of 16 bits to a program of four warps, in chunks of a warp, instead of a row to each
    of one warp, which takes some time to start; None for others.

    layer_norm of 5152 x 276 bf16 takes 5.96 us so, by a warp for each row 7.00, rms_norm 5.49 and 6.65, in chunks 6.48
    (torch.compile 5.68), of 10000 x 340 float16 10.6 and 11.7, but layer_norm of 2500 x 700 6.64 and 6.40, 9000 x 1004
    bf16 19.8 and 19.3 (H100). With a residual it was not timed.
    """
    M, N, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or residual or itemsize != 2 or not 1 < vec < VECTOR_BYTES // itemsize:
        return None
    if not MIN_UNALIGNED < N <= MAX_ROW_OF_WARPS or limits.sm_count * MIN_ROWS_OF_WARPS_PER_SM > M:
        return None
    return Configuration("rows", 4, vec, 4, chunks=power_of_2(N) // (WARP * vec))


def many_pairs(problem: Problem, limits: Limits) -> Configuration | None:
    """A row of pairs of 16 bits to a warp in layer_norm, instead of pipelines that read whole vectors and edges; None
    for others.

    20000 x 406 float16 takes 18.6 us so, by pipelines 21.2 (torch.compile 18.6, H100); other lengths of many rows were
    not timed.
    """
    M, N, _, itemsize, backward, residual = problem
    if limits.capability[0] != 9 or backward or residual or itemsize != 2 or N % 4 != 2:
        return None
    if not MIN_MANY_PAIRS <= N <= MAX_MANY_PAIRS or limits.sm_count * MIN_MANY_PAIRS_PER_SM > M:
        return None
    return Configuration("rows", 1, 2)


def two_of_256(problem: Problem, limits: Limits) -> Configuration | None:
    """Two rows of 256 elements of 16 bits to a program of one warp in layer_norm, as of shorter ones, instead of one
    with a pipeline for no other; None for others.

    1928 x 256 float16 takes 4.05 us so and 4.35 (torch.compile 3.93), but 1000 x 256, of one row without a pipeline,
    3.99 and 3.96 (H100).
    """
    M, N, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or residual or itemsize != 2 or N != 256:
        return None
    if not MIN_TWO_PER_SM * limits.sm_count <= M < MAX_TWO_PER_SM * limits.sm_count:
        return None
    return Configuration("rows", 1, VECTOR_BYTES // itemsize, 2)
