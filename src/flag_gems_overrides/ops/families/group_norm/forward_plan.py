# SPDX-License-Identifier: Apache-2.0
"""What is worth an estimate for a group norm forward."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import Configuration, Problem
from .legal_forward import MAX_ROWS_WARPS, needed_registers
from .loads import KNOWN_MULTIPLE, MAX_WARPS, span, widest
from .programs import PROGRAMS_PER_SM, STAGES, VECTORS_OF_FEW

# Maximum number of elements of a group that one thread holds whole (short_rows.py).
MAX_SHORT = 14
# Maximum number of elements of a thread's groups. 33 x 26248 x 3 bf16 in 26248 groups: 10.9 us with 12, otherwise with
# 24 12.1 (H100).
MAX_SHORT_OF_THREAD = 18
# Minimum number of groups for each multiprocessor. 56 x 9 bf16: 3.13 us, otherwise 3.01 (H100).
MIN_SHORT_GROUPS_PER_SM = 8
# Minimum number of groups for each multiprocessor of which programs of four warps have some.
SHORT_OF_4_WARPS = 128
# Range of the number of samples of 9 elements, for each multiprocessor, that threads share. Their sectors are written
# to memory in parts too. 300000 x 9 float16: 11.8 us in two chunks, otherwise 15.6. With several groups, more of them.
# 32 x 57589 x 9 float16 in 57589 groups: 43 us in three chunks, otherwise 70 (H100).
NINES_PER_SM = (1024, 6144)
# Range of float32 or float64 elements for each multiprocessor. With more, sectors are written to memory before all
# threads have stored their parts. 250000 x 7: 17.3 us, otherwise 11.7; 500 x 5 x 8 in 5 groups: 3.47, otherwise 3.21
# (H100).
MIN_SHORT_OF_FLOAT32, MAX_SHORT_OF_FLOAT32 = 1024, 4352
# Minimum number of groups of a sample for which single elements are those of a thread although they would be loaded as
# vectors: their weights, no multiple of 16, would not. 40 x 864487 bf16 in 864487 groups: 79 us, 3.5 TB/s; 32 x 856216
# in 856216 as other rows: 75 us, 2.9 TB/s (H200). Fewer were not timed.
MIN_SINGLES = 1 << 18
# Warps of a program that holds a group of 16 bits as pairs, several programs to a multiprocessor.
WARPS_OF_PAIRS = (4, 8, 16)
# Minimum number of elements of such a group, and of its channels; fewer were not timed. In 32 groups 16 x 640 x 1024
# bf16: 16.1 us, otherwise 16.9; 16 x 320 x 4096 bf16: 26.7 and 30.3; 16 x 960 x 1024 float16: 23.0 and 27.2 (H200).
MIN_OF_PAIRS, MIN_OF_CHANNEL = 16384, 1024
# Maximum number of elements of a thread of such a program. 16 x 960 x 1024 float16 in 32 groups: 29.4 us with 240, 24.1
# with 120, 23.0 with 60 (H200).
MAX_HELD_AS_PAIRS = 96
# Minimum number of groups for each multiprocessor. 4 x 1280 x 1024 bf16 in 32 groups, of one: 12.0 us, otherwise 11.8
# (H200).
GROUPS_OF_PAIRS_PER_SM = 3
# Maximum number of vectors of a group of which a program has several.
MAX_SMALL = 256
# Maximum number of elements of a thread with several groups, and where vectors span three channels or more, with a
# weight and a bias for each element.
MAX_OF_SEVERAL, MAX_OF_CHANNELS = 32, 16
# Maximum number of bytes of these, of float32 or float64. 32768 x 381 x 11 float32 in 381 groups: 405 us with 24, 575
# with 96 (H100).
MAX_BYTES_OF_SEVERAL = 32
# Minimum number of vectors of a chunk, so that neighbouring threads share sectors.
MIN_LANES = 4
# Numbers of chunks that a small group is loaded in, beside those of a warp and, of one channel of up to two vectors for
# each thread of a warp, of half a warp, so that fewer sums are exchanged. Others were not timed.
# 22006 x 6 x 55 float32 in 6 groups: 21.8 us in four chunks of 16 lanes, in two of 32 26.8 (H200).
CHUNKS = (1, 2, 3)
# Chunks of a channel of whole vectors that has fewer masked lanes so. 17990 x 7 x 72 float32 in 7 groups: 23.9 us, in
# two of 16 lanes 26.6, in one 30.6; 9000 x 7 x 144: 23.7, in one 33.0; 36000 x 7 x 72 bf16: 24.3 and 29.7 (H200).
THIRDS = 3
# Minimum number of elements of a group that is worth more than one program, or a loop.
MIN_LARGE = 4096


def forward(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    yield from _short_rows(problem, limits)
    for vec in dict.fromkeys((widest(problem), _without_edges(problem))):
        yield from _held_rows(problem, vec, limits)
    yield from _loops(problem)


def _without_edges(problem: Problem) -> int:
    return math.gcd(problem.size, VECTOR_BYTES // problem.itemsize)


def _short_rows(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """A thread has whole groups. Single elements that are a multiple of 16 are loaded as vectors anyway."""
    if problem.size > MAX_SHORT or MIN_SHORT_GROUPS_PER_SM * limits.sm_count > problem.M:
        return
    singles = problem.groups % KNOWN_MULTIPLE == 0 or problem.groups < MIN_SINGLES
    if problem.size == 1 and problem.M % KNOWN_MULTIPLE == 0 and singles:
        return
    least, most = NINES_PER_SM if problem.groups == 1 else (NINES_PER_SM[1], problem.M)
    if problem.size == 9 and least <= problem.M // limits.sm_count < most:
        return
    per_sm = problem.M * problem.size // limits.sm_count
    if problem.itemsize > 2 and not MIN_SHORT_OF_FLOAT32 <= per_sm <= MAX_SHORT_OF_FLOAT32:
        return
    warps = 4 if limits.sm_count * SHORT_OF_4_WARPS <= problem.M else 1
    for vec in (1 << i for i in range((VECTOR_BYTES // problem.itemsize).bit_length())):
        if math.lcm(problem.size, vec) <= MAX_SHORT_OF_THREAD:
            yield Configuration("short", warps, vec=vec)


def _held_rows(problem: Problem, vec: int, limits: Limits) -> Iterator[Configuration]:
    in_group = problem.size // vec
    # On sm_100, 8 bytes spill with 32 warps (4 x 6 x 4099 bf16 in 2 groups).
    max_warps = MAX_ROWS_WARPS if limits.capability[0] < 10 else MAX_WARPS
    for warps in (1 << i for i in range(max_warps.bit_length())):
        if warps == 1 or warps * WARP < 2 * power_of_2(in_group):
            yield Configuration("rows", warps, 1, vec)
    whole = problem.itemsize == 2 and vec * problem.itemsize == VECTOR_BYTES and problem.K >= MIN_OF_CHANNEL
    as_pairs = whole and problem.size >= MIN_OF_PAIRS and limits.capability[0] == 9
    for warps in WARPS_OF_PAIRS if as_pairs and GROUPS_OF_PAIRS_PER_SM * limits.sm_count < problem.M else ():
        if cdiv(problem.size, warps * WARP) <= MAX_HELD_AS_PAIRS:
            registers = needed_registers(problem, vec, warps)
            programs = min(limits.registers_per_sm // (registers * WARP), limits.threads_per_sm // WARP) // warps
            if programs > 1:
                yield Configuration("rows", warps, 1, vec, programs_per_sm=programs)
    if problem.size % vec or in_group > MAX_SMALL:
        return
    most = MAX_OF_CHANNELS if span(problem, vec) == 3 else MAX_OF_SEVERAL
    if problem.itemsize > 2:
        most = min(most, MAX_BYTES_OF_SEVERAL // problem.itemsize)
    chunks = {1}
    whole = vec * problem.itemsize == VECTOR_BYTES
    if problem.N == 1 and in_group <= 2 * WARP:
        chunks.add(cdiv(in_group, WARP // 2))
        if whole and problem.itemsize < 8 and THIRDS * power_of_2(cdiv(in_group, THIRDS)) < power_of_2(in_group):
            chunks.add(THIRDS)
            most = max(most, THIRDS * vec)
    if not whole:
        chunks |= {*CHUNKS, cdiv(in_group, WARP)}
    for warps in (1, 2, 4):
        for pieces in sorted(chunks):
            lanes = power_of_2(cdiv(in_group, pieces))
            if pieces > 1 and lanes < MIN_LANES:
                continue
            of_group = cdiv(in_group, lanes) * lanes * vec
            groups = min(max(warps * WARP // lanes, 1), power_of_2(problem.M))
            while groups * of_group <= most * warps * WARP and groups < 2 * problem.M:
                if groups > 1:
                    yield Configuration("rows", warps, groups, vec, pieces)
                groups *= 2


def _loops(problem: Problem) -> Iterator[Configuration]:
    """For groups that no program holds, and few large ones. Programs do not read groups of more than 16 bits twice, for
    the second time is not from the cache. 424 x 88 x 3533 float32 in 8 groups: 553 us by two kernels, otherwise 929
    (H100)."""
    if problem.size < MIN_LARGE:
        return
    vec = widest(problem)
    for warps, programs_per_sm in ((4, PROGRAMS_PER_SM), (8, 2), (16, 1), (4, 8)):
        if problem.itemsize == 2:
            yield Configuration("loop", warps, 1, vec, VECTORS_OF_FEW, 0, 0, programs_per_sm, STAGES)
    for warps, vectors, programs_per_sm in ((4, 1, 4), (4, 2, 4), (4, 2, 8), (8, 2, 4)):
        yield Configuration("split", warps, 1, vec, vectors, 0, 0, programs_per_sm, STAGES)
