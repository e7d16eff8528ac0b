# SPDX-License-Identifier: Apache-2.0
"""Many short rows of layer_norm, and those of rms_norm that are launched alike."""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import MIN_UNALIGNED, Configuration, Problem

# Shortest and longest row of ``_in_few_chunks``, in elements.
MIN_IN_PARTS, MAX_IN_PARTS = 5, 32
# Elements of a chunk of its tiles, by elements of a load.
CHUNK_OF_PARTS = {1: 128, 2: 512}
# Fewest rows of a multiprocessor for it.
MIN_IN_PARTS_PER_SM = 128
# Shortest and longest row of ``_few_singles``, in elements.
MIN_OF_SINGLES, MAX_OF_SINGLES = 65, 128
# Most single elements of a warp there.
MAX_SINGLES = 512
# Longest odd row of ``_in_chunks_of_a_warp``, in elements.
MAX_CHUNKED = 255
# Rows of a tile and warps of a program there.
CHUNKED_ROWS, CHUNKED_WARPS = 4, 2
# Fewest rows of a multiprocessor there.
MIN_CHUNKED_PER_SM = 20
# Longest row of ``rows_of_four_warps``, in elements.
MAX_ROW_OF_WARPS = 512
# Fewest rows of a multiprocessor there.
MIN_ROWS_OF_WARPS_PER_SM = 16


def of_short_rows(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """Whole rows of up to MAX_ROW_OF_WARPS elements in other tiles than ``found``, by their length. Others
    are returned unchanged. For layer_norm only."""
    N = problem.N
    if problem.backward or found.kernel != "rows":
        return found
    if N <= MAX_IN_PARTS:
        return _in_few_chunks(problem, found, limits)
    if N <= MAX_OF_SINGLES:
        return _few_singles(problem, found)
    if N <= MAX_CHUNKED:
        return _in_chunks_of_a_warp(problem, found, limits)
    alone = (found.warps, found.rows, found.per_sm) == (1, 1, 0)
    return (rows_of_four_warps(problem, found.vec, limits) if alone else None) or found


def _in_few_chunks(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """Many rows of 5 to 32 elements in up to four chunks of single elements, or in two of pairs: fewer threads share a
    row and exchange its two sums; rms_norm has one sum.

    2850130 x 13 float32: 117.3 us in two chunks, with the whole row at a time 148.8; 300000 x 50 float32: 48.4 and
    48.3. rms_norm of 2850130 x 13: 120.9 and 106.5 (H100).
    """
    M, N, _, itemsize, *_ = problem
    few = 2 if itemsize < 8 else 1  # elements of a load
    if found.vec > few or N < MIN_IN_PARTS or limits.sm_count * MIN_IN_PARTS_PER_SM > M:
        return found
    chunks = 4 if found.vec == 1 else 2
    return Configuration("rows", 4, found.vec, chunks * CHUNK_OF_PARTS[found.vec] // power_of_2(N), chunks=chunks)


def _few_singles(problem: Problem, found: Configuration) -> Configuration:
    """Half of the rows of a tile where a thread would have 32 single elements of 16 bits, of 65 to 128 columns.

    181797 x 107 float16: 38.7 us, with all rows 41.6 (H100).
    """
    if problem.itemsize != 2 or found.vec > 1 or problem.N < MIN_OF_SINGLES:
        return found
    if found.rows * MAX_OF_SINGLES <= MAX_SINGLES * found.warps:
        return found
    return found._replace(rows=found.rows // 2)


def _in_chunks_of_a_warp(problem: Problem, found: Configuration, limits: Limits) -> Configuration:
    """Odd rows of 16 bits element by element in chunks of 32, not in a power of two: fewer lanes have no element.

    20000 x 141 bf16 with a residual: 13.5 us, with all of 256 lanes 16.3; 30000 x 99, of four chunks and as many lanes:
    10.3 and 10.4 (H100).
    """
    M, N, _, itemsize, *_ = problem
    if itemsize != 2 or found.vec > 1 or N % 2 == 0 or limits.sm_count * MIN_CHUNKED_PER_SM > M:
        return found
    return Configuration("rows", CHUNKED_WARPS, 1, CHUNKED_ROWS, chunks=power_of_2(N) // WARP)


def rows_of_four_warps(problem: Problem, vec: int, limits: Limits) -> Configuration | None:
    """Four rows of pairs or fours of 16 bits to a program of four warps, in chunks of a warp, instead of a row to each
    program of one warp, which takes some time to start. None for others; a residual was not timed.

    rms_norm of 5152 x 276 bf16: 5.49 us, by a warp for each row 6.65; layer_norm of 2500 x 700: 6.64 and 6.40 (H100).
    """
    M, N, _, itemsize, _, residual = problem
    if limits.capability[0] != 9 or residual or itemsize != 2 or not 1 < vec < VECTOR_BYTES // itemsize:
        return None
    if not MIN_UNALIGNED < N <= MAX_ROW_OF_WARPS or limits.sm_count * MIN_ROWS_OF_WARPS_PER_SM > M:
        return None
    return Configuration("rows", 4, vec, 4, chunks=power_of_2(N) // (WARP * vec))
