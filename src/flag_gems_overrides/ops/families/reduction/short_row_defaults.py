# SPDX-License-Identifier: Apache-2.0
"""What a reduction of short rows is launched with where a thread, or a few, have a whole row, and no table says better.

Constants were chosen as those of ``row_defaults``.
"""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from .launches import MAX_SHORT, MAX_WORDS, Configuration, Problem, is_short, words
from .programs import COLUMNS_OCCUPANCY, OCCUPANCY, SHORT_WARPS, row_vector

# Rows of a thread, at most, where a thread has whole rows.
SHORT_ROWS = 8
# By accumulators, 32-bit words of elements of such a thread, at most. With 56 and their positions, 16 bytes spill.
SHORT_WORDS = {1: MAX_WORDS, 2: 48, 3: MAX_WORDS}
# Elements of a short row, at most, that is read by a few lanes (``rows_by_lanes``).
MAX_LANES_N = 255
# Rows of such a program, at least.
MIN_LANES_ROWS = 32
# Bytes of such a program, at least: smaller ones start slower than they read.
# any 1000000 x 9 uint8: 13.9 us by 64 rows, 22.7 by 32 (H100).
LANES_BYTES = 2048
# Elements of a thread of such a program, at most.
LANES_ELEMENTS = 32
# Bytes that an even row loads together, at most, if it is read this way.
LANES_VECTOR_BYTES = 4
# Such programs for each multiprocessor, at least: of elements up to 16 bits, and of larger ones.
LANES_PROGRAMS, WIDE_LANES_PROGRAMS = 2, 8
# Elements of an odd row of values of 8 bytes, at most, that is read this way.
MAX_LONG_LANES_N = 31
# Elements of a program of such rows.
LONG_LANES_TILE = 1024
# Elements of a program of positions where LANES_PROGRAMS would leave too few programs.
LITTLE_LANES_TILE = 2048
# Rows of such a program, at least, down to one program for each multiprocessor.
# max.dim 2000 x 201 uint8: 3.66 us, as rows 3.83 (H100).
MIN_LITTLE_LANES_ROWS = 8
# Elements of a row above which a program may have so few rows. Pairs in rows up to this are read this way too, with
# fewer idle lanes. max.dim 8000 x 50 bf16: 3.80 us, otherwise 4.23 (H100).
LITTLE_LANES_N = 64


def short_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """Whole rows to a thread: no elements are exchanged. prod of 8296 x 7 int16 takes 145 instructions, as rows 317.

    None where a lane for each element takes fewer, and where multiprocessors would be without a warp of rows of one
    element, or of moments, which exchange nothing as rows either.
    """
    M, N, _, size, accumulators = problem
    if not is_short(problem):
        return None
    vector = VECTOR_BYTES // size if N == 1 else min(VECTOR_BYTES // size, SHORT_ROWS)
    while N * vector * words(problem) > SHORT_WORDS[accumulators]:
        vector //= 2
    if limits.sm_count * WARP * vector > M and (N == 1 or accumulators == 3 or M * power_of_2(N) <= WARP):
        return None
    # Few warps wait for each other least if each has little.
    # std 55550 x 4 bf16: 3.21 us by eight rows to a thread, torch.compile 2.92.
    while N > 1 and vector > 1 and SHORT_WARPS * limits.sm_count * WARP * vector > M:
        vector //= 2
    warps = M // (limits.sm_count * WARP * vector)  # of a multiprocessor
    # Of rows of one element, programs of four warps would start for every 2 KB, so they have up to eight. Of few rows a
    # multiprocessor has two programs or more. prod 310356 x 1 int16: 3.76 us by 303 programs, 4.00 by 152 (H100).
    most, programs = (2 * SHORT_WARPS, 2) if N == 1 else (SHORT_WARPS, 1)
    warps = max(min(power_of_2(warps + 1) // 2 // programs, most), 1)
    occupancy = COLUMNS_OCCUPANCY[accumulators] if accumulators > 1 else OCCUPANCY
    return Configuration("short", N * vector, warps, occupancy, vector)


def rows_by_lanes(problem: Problem, limits: Limits) -> Configuration | None:
    """Short rows that are loaded element by element, each by a few lanes as columns are: no lane is idle.

    Odd rows: sum 900000 x 33 float16: 29 us, with a lane for each element 80 (H100).
    Even rows, a word to a load, if a quarter of the lanes would be idle: sum 900000 x 34 float16: 30 us, otherwise 54.
    Odd rows of 8 bytes, by 1024 lanes: nansum 14686637 x 9 int64: 390 us, otherwise 467 (H100).
    Of larger elements this is slower: sum 400000 x 62 float32: 46.0 us, otherwise 41.1 (H100).
    """
    M, N, _, size, accumulators = problem
    long = size == 8 and N % 2 == 1 and N <= MAX_LONG_LANES_N
    timed = size <= 2 or (accumulators == 1 and (size == 4 or long))
    vector = row_vector(N, size, accumulators)
    slow = vector == 1 or (vector * size <= LANES_VECTOR_BYTES and 3 * power_of_2(N) >= 4 * N)
    if accumulators == 3 or not timed or not MAX_SHORT < N <= MAX_LANES_N:
        return None
    elements = LANES_ELEMENTS * SHORT_WARPS * WARP
    rows = LONG_LANES_TILE // power_of_2(N) if long else min(MIN_LANES_ROWS, elements // power_of_2(N))
    while rows * N * size < LANES_BYTES and 2 * rows * power_of_2(N) <= elements:
        rows *= 2
    if limits.sm_count * (LANES_PROGRAMS if size <= 2 else WIDE_LANES_PROGRAMS) * rows > M:
        # Fewer rows of positions, by smaller programs. argmax 8000 x 41 float16: 3.57 us, as rows 4.23 (H100).
        rows = min(rows, LITTLE_LANES_TILE // power_of_2(N))
        if limits.sm_count * rows > M and N > LITTLE_LANES_N:
            rows = MIN_LITTLE_LANES_ROWS
        slow = accumulators == 2 and (slow or (vector == 2 and N <= LITTLE_LANES_N)) and limits.sm_count * rows <= M
    if not slow:
        return None
    occupancy = OCCUPANCY // accumulators
    return Configuration(
        "columns", rows * power_of_2(N) // (SHORT_WARPS * WARP), SHORT_WARPS, occupancy, 1, rows, False
    )
