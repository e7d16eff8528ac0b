# SPDX-License-Identifier: Apache-2.0
"""What each kernel would do for a group norm forward."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import Configuration, Problem
from .legal import (
    KNOWN_MULTIPLE,
    MAX_HELD,
    MAX_HELD_OF_SEVERAL,
    MAX_WARPS,
    launch_or_none,
    max_held_with_parameters,
    span,
    widest,
)
from .programs import ELEMENTS_HELD, MAX_WARPS_PER_SM, PROGRAMS_PER_SM, STAGES, VECTORS, VECTORS_OF_FEW, WARPS

# Forward: groups that a thread has whole (short_rows.py): elements of a group by bytes of each, most elements of a
# thread, the most channels of each of several groups, whose weights are loaded one by one, and, of float32, the fewest
# and most elements of a multiprocessor: with more, a thread's parts of sectors are written to memory before its
# neighbours' are there. 31720 x 3 x 3 float16 in one group takes 4.22 us so and 4.93 as it lies, 208672 x 3 x 7 in 3
# 13.7 and 18.2, 9000 x 8 x 6 bf16 in 8 3.71 and 4.21, 20000 x 63 float16 in 7 8.05 and 10.7, 100000 x 2 x 5 bf16 in one
# 4.48 and 6.47, 100000 x 12 float16 4.77 and 5.57, 40000 x 7 x 2 3.85 and 4.35, but 300000 x 3 x 3 bf16 16.8 and 16.4,
# 2000000 x 3 x 3 float16 58.4 and 82.5, 150000 x 11 bf16, in single elements, 15.2 and 7.5; 31720 x 2 x 3 float32 in
# one 3.59 and 3.93, 60000 x 3 x 3 6.12 and 6.90, 2824 x 24 x 8 in 24 4.57 and 5.06, but 500 x 5 x 8 in 5 3.47 and 3.21,
# 20000 x 36 in 6 7.5 and 6.2, 250000 x 7 in one 17.3 and 11.7, 250000 x 8 11.4 and 11.1, 80000 x 5 x 5 in 5 20.0 and
# 17.3; 32 x 6719 x 9 float64 in 6719 32.7 and 30.0 (H100).
# Single elements, of which else a thread loads one: 560183 x 3 bf16 in 3 10.6 and 13.3 (torch.compile 10.5), 60001 x 5
# float64 in 5 7.1 and 7.8, but of fewer bytes than eight programs of a multiprocessor have 30001 x 3 float16 4.50 and
# 3.27. Samples of 9 elements of so many of each multiprocessor take less in two chunks: 300000 x 9 float16 15.6 and
# 11.8, 300000 x 3 x 3 17.1 and 12.9, but 100000 x 9 bf16 5.24 and 5.95 (H100).
SHORT_SIZES = {2: (1, 3, 5, 6, 7, 9, 10, 12, 14), 4: (6, 8, 9), 8: (1,)}
SHORT_ELEMENTS, SHORT_CHANNELS = 18, {2: 9, 4: 1, 8: 1}
MIN_SINGLES_BYTES_PER_SM, NINES_PER_SM = 16384, (1024, 6144)
MIN_SHORT_OF_FLOAT32, MAX_SHORT_OF_FLOAT32 = 1024, 4352
# Fewest groups for each multiprocessor: one group of 1 x 10 bf16 takes 3.11 us so, by threads that share it 2.80
# (torch.compile 2.74), 56 x 9 3.13 and 3.01 (H100).
MIN_SHORT_GROUPS_PER_SM = 8
# Least groups of a multiprocessor for programs of four warps of these.
SHORT_OF_4_WARPS = 128
# Small groups of which single elements or pairs are loaded in two chunks, as layer_norm's (norm/many_rows_plan.py): the
# least and most elements, elements of a tile of them, and the fewest groups for each multiprocessor.
# With less than MIN_WHOLE_HALVED_GROUPS_PER_SM, tiles are half as large: 520 x 15 x 15 bf16 in 15 groups takes 3.50 us
# so, 4.15 by warps with whole groups (H100).
MIN_HALVED, MAX_HALVED, HALVED_TILE, MIN_HALVED_GROUPS_PER_SM, MIN_WHOLE_HALVED_GROUPS_PER_SM = 9, 32, 1024, 48, 128
# And in three chunks (``in_three_chunks``): elements of a group, and fewest groups for each multiprocessor, of which
# 2380 were timed.
THREE_CHUNKS_SIZES, THREE_CHUNKS_GROUPS_PER_SM = (9, 10), 1024
# Odd groups of 16 bits in chunks of a warp (``in_chunks_of_a_warp``), as layer_norm's: the shortest and longest,
# groups and warps of a program, and the fewest for each multiprocessor.
MIN_CHUNKED, MAX_CHUNKED, CHUNKED_GROUPS, CHUNKED_WARPS, MIN_CHUNKED_GROUPS_PER_SM = 129, 255, 4, 2, 20
# Vectors of several groups of 16 bits that take up to so many lanes' elements: 65536 x 3 x 8 bf16 5.74, 6.03 with four,
# 20000 x 3 x 8 float16 3.90 and 4.13, 131072 x 6 x 4 bf16 11.23 and 11.55, 16384 x 4 x 14 float16 4.61 and 4.70, but by
# two warps instead of one 4096 x 4 x 14 bf16 3.76 and 3.69 (H100).
VECTORS_OF_LITTLE, LITTLE_GROUP = 2, 64
# Forward: elements that a thread holds at most of a group of its program's own, if there are enough groups to keep the
# device busy, and vectors if there are fewer: 19836 x 3104 float32 takes 125 us with 28 elements in 4 warps, 129 with
# 16 in 8; 4 x 1385 float32 3.7 us with 3 vectors in 4 warps, 3.9 with 2 in 8.
ELEMENTS_OF_MANY, VECTORS_OF_ALONE = 32, 3
# Many groups of up to so many float32 are for 8 warps at most: 512 x 16 x 4500 in 8 groups takes 103.9 us by 8, 105.3
# by 16, 512 x 16 x 8000 179.9 and 182.7 (H100).
MAX_OF_8_WARPS = 16384
# Forward: elements of a thread whose vectors span three channels or more. Loads of less than half a vector: one
# vector of bytes to a thread and 4 warps (626016 groups of 7 bf16 23.4 us, 27.1 with twice as many groups to a
# program).
ELEMENTS_OF_SEVERAL = 16
# And of small groups of pairs of float64, where a multiprocessor has so many elements, two pairs: 459037 x 8 x 32 in 8
# groups takes 644 us so, with one 694 (H100).
MANY_OF_FLOAT64 = 32768
# Forward: each warp has groups of its own if a multiprocessor gets at least so many warps. Estimated from instruction
# counts, not timed: 3612875 groups of 37 bf16 take half of the 972 us of programs of 4 warps, 139481 of 83 a third
# less, 185376 of 312 a tenth less.
BUSY_WARPS = 16
# Two groups of less bytes of float32 are for one warp, for each program takes some time to start: 20000 x 150 takes
# 14.9 us so, 17.8 by a warp for each, 2771 x 237 5.56 by a warp for each, 6.1 by four for two (H100).
NARROW_BYTES = 1024


def in_three_chunks(problem: Problem, limits: Limits) -> Configuration | None:
    """Very many groups, each a channel, of 9 or 10 elements of 16 bits in three chunks, of which fewer lanes have no
    element than of two, instead of a group to a thread; None for others. Fewer such groups were not timed so.

    15 x 20944 x 9 float16 in 20944 groups takes 11.0 us so, in two chunks 13.3, by whole groups 18.0 (torch.compile
    16.7), 40000 x 10 x 10 bf16 in 10 12.3 and 12.8, but 100000 x 3 x 3 in one 6.1 and 5.4 (H100).
    """
    if problem.inputs > 1 or problem.itemsize != 2 or problem.size not in THREE_CHUNKS_SIZES:
        return None
    if problem.N > 1 or problem.groups == 1 or limits.sm_count * THREE_CHUNKS_GROUPS_PER_SM > problem.M:
        return None
    return Configuration("rows", WARPS, HALVED_TILE // power_of_2(problem.size), widest(problem), 3)


def in_two_chunks(problem: Problem, limits: Limits) -> Configuration | None:
    """Half as many threads share a group and exchange its sums; None for others. Chosen as for layer_norm:
    748192 x 8 x 15 bf16 in 8 groups takes 187 us so, 282 with a whole group at a time (torch.compile 222), 40000 x 8 x
    13 float16 in 8 15.8 and 20.5, 60000 x 4 x 11 float32 in 4 15.8 and 20.3, 300000 x 18 float16 18.6 and 19.9, 100000
    x 13 float64 14.4 and 14.8, 5208 x 15 x 20 in 15 15.4 and 19.0, 20000 x 4 x 12 in 4 12.0 and 12.6 (H100)."""
    vec = widest(problem)
    if problem.inputs > 1 or vec > 2 or problem.size % vec or not MIN_HALVED <= problem.size <= MAX_HALVED:
        return None
    if problem.itemsize == 8 and power_of_2(problem.size) == problem.size:
        return None  # not timed so
    if limits.sm_count * MIN_HALVED_GROUPS_PER_SM > problem.M:
        return None
    fewer = limits.sm_count * MIN_WHOLE_HALVED_GROUPS_PER_SM > problem.M
    tile = HALVED_TILE // (2 if problem.itemsize == 8 or fewer else 1)
    configuration = Configuration("rows", WARPS, tile // power_of_2(problem.size), vec, 2)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None


def in_chunks_of_a_warp(problem: Problem, limits: Limits) -> Configuration | None:
    """A warp has odd groups of 16 bits, two at a time, in chunks of a lane for each of its threads: fewer lanes have no
    element, and fewer programs are started; None for others.

    60000 x 2 x 141 bf16 in 2 groups takes 33.7 us so, by programs of one warp 42.1, with a group to each 77.8, 4000 x 5
    x 37 float16 in one 4.73, 4.88 and 5.80 (torch.compile 4.77), 3 x 3859 x 219 in 3859 9.9 and 9.6, with 256 lanes for
    a group 11.6 (H100).
    """
    odd = problem.inputs == 1 and problem.itemsize == 2 and widest(problem) == 1
    if not odd or not MIN_CHUNKED <= problem.size <= MAX_CHUNKED:
        return None
    if limits.sm_count * MIN_CHUNKED_GROUPS_PER_SM > problem.M:
        return None
    chunks = cdiv(problem.size, WARP)
    configuration = Configuration("rows", CHUNKED_WARPS, CHUNKED_GROUPS, 1, chunks)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None


def short_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """The widest vectors with which a thread has few elements, and each multiprocessor a warp. None where threads that
    share groups are faster."""
    size, itemsize = problem.size, problem.itemsize
    if problem.inputs > 1 or size not in SHORT_SIZES.get(itemsize, ()):
        return None
    if limits.sm_count * MIN_SHORT_GROUPS_PER_SM > problem.M:
        return None
    few_singles = problem.M * itemsize < limits.sm_count * MIN_SINGLES_BYTES_PER_SM
    if size == 1 and (few_singles or problem.M % KNOWN_MULTIPLE == 0):
        return None
    if size == MIN_HALVED and problem.groups == 1 and NINES_PER_SM[0] <= problem.M // limits.sm_count < NINES_PER_SM[1]:
        return None
    per_sm = problem.M * size // limits.sm_count
    if itemsize == 4 and not MIN_SHORT_OF_FLOAT32 <= per_sm <= MAX_SHORT_OF_FLOAT32:
        return None
    if problem.groups > 1 and SHORT_CHANNELS[itemsize] < problem.N:
        return None
    vec = VECTOR_BYTES // itemsize
    most = min(SHORT_ELEMENTS, per_sm // WARP)
    while vec > 1 and math.lcm(size, vec) > most:
        vec //= 2
    configuration = Configuration("short", 4 if limits.sm_count * SHORT_OF_4_WARPS <= problem.M else 1, vec=vec)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None


def held_rows(problem: Problem, limits: Limits) -> Configuration:
    vec = widest(problem)
    group = power_of_2(problem.size // vec) * vec
    most = MAX_HELD_OF_SEVERAL if span(problem, vec) > 1 else MAX_HELD
    wide = 2 * vec * problem.itemsize >= VECTOR_BYTES and problem.itemsize < 8
    groups_of_warp = problem.M // (BUSY_WARPS * limits.sm_count)
    early_warps = _early_warps(problem, vec, limits)
    narrow = problem.itemsize == 4 and problem.size * problem.itemsize < NARROW_BYTES
    if problem.size % vec == 0 and WARP < problem.size // vec <= (2 if narrow else 1) * VECTORS * WARP:
        if early_warps > 0:
            return Configuration("rows", early_warps, 1, vec)
        # A warp for itself adds up fewer numbers of each thread, and waits for no other.
        per_thread = VECTORS * vec if wide else 2 * VECTOR_BYTES // problem.itemsize
        held = max(per_thread * WARP // group, 2 if narrow else 1)
        together = max(1, power_of_2_within(min(held, groups_of_warp)))
        return Configuration("rows", 1, together, vec)
    # Several groups to a program where they are small, as long as there are enough programs. Alone those that leave a
    # quarter of the lanes without an element: 792 groups of 608 float32 4.3 us, two in 2048 lanes 4.9 (H100).
    together = 1
    padded = WARP * vec < problem.size <= 0.75 * group
    if problem.size % vec == 0 and not padded:
        per_thread = VECTORS * vec if wide else VECTOR_BYTES // problem.itemsize
        if problem.size == 1 and problem.M % KNOWN_MULTIPLE != 0:
            per_thread = 1  # neighbours of a thread are loaded and stored one by one otherwise
        if problem.itemsize == 8 and vec > 1 and limits.sm_count * MANY_OF_FLOAT64 <= problem.M * group:
            per_thread = 2 * vec
        held = min(WARPS * WARP * per_thread, ELEMENTS_HELD)
        together = power_of_2_within(min(held // group, problem.M // (2 * limits.sm_count)))
        # An element for each thread of a warp, as in gradients.
        together = max(together, min(WARP // group, power_of_2(problem.M)))
    if together > 1:
        per_thread = min(per_thread, ELEMENTS_OF_SEVERAL if span(problem, vec) == 3 else most)
        if problem.itemsize == 2 and vec * problem.itemsize == VECTOR_BYTES and group <= LITTLE_GROUP:
            per_thread = min(per_thread, VECTORS_OF_LITTLE * vec)
        warps = power_of_2_within(together * group // (per_thread * WARP))
    else:
        many = PROGRAMS_PER_SM * limits.sm_count <= problem.M
        per_thread = VECTORS_OF_ALONE * VECTOR_BYTES // problem.itemsize
        if many:
            per_thread = ELEMENTS_OF_MANY // (4 if problem.itemsize == 8 else 1)
        vectors = max(min(per_thread, most // 4 if problem.itemsize == 8 else most) // vec, 1)
        warps = max(power_of_2(cdiv(problem.size // vec, vectors * WARP)), early_warps)
        if many and problem.itemsize == 4 and span(problem, vec) == 1 and problem.size <= MAX_OF_8_WARPS:
            warps = min(warps, 8)
        warps = min(warps, MAX_WARPS)
        narrow = problem.itemsize == 2 and span(problem, vec) < 3 and limits.capability[0] < 10
        if many and narrow and warps >= 2 * WARPS:
            # Half as many where fewer of their lanes have no element: 512 x 16 x 4500 bf16 in 8 groups takes 57.6 us by
            # 8 warps, 68.2 by 16, 100 x 16 x 4500 18.1 and 20.7, 512 x 16 x 4504 float16 56.1 and 63.8, 512 x 16 x 2252
            # bf16 32.3 by 4 warps, 34.9 by 8 (H100). On sm_100 16 bytes of 512 x 16 x 4499 bf16 spill (Triton 3.7).
            chunks, of_fewer = (cdiv(problem.size // vec, each * WARP) for each in (warps, warps // 2))
            if of_fewer < 2 * chunks and of_fewer * vec <= MAX_HELD_OF_SEVERAL:
                warps //= 2
    return Configuration("rows", min(warps, MAX_WARPS), together, vec)


def _early_warps(problem: Problem, vec: int, limits: Limits) -> int:
    """Warps of a program of one group of several channels to a vector, whose threads have registers to load weight and
    bias with it; 0 where those of all groups are more than run at once.

    2 x 8192 x 4 float16 in 32 groups 3.7 us by 2 warps, 5.3 by one (FlagGems 4.4), 40 x 4096 bf16 in 8 3.8 and 4.2, 69
    x 8192 float32 in 16 5.4 and 6.1; 77 x 2077 bf16 in one 3.9 by 8 warps, 4.8 by 4 (5.7 in a loop, FlagGems 5.1), 40 x
    1501 float16 3.7 by 4, 4.9 by 2, 3 x 229 x 5 3.5 and 4.6, 500 x 600 x 3 bf16 in 2 5.1 by 4, 5.9 by one, 1000 x 513
    in one 4.4 by 2, 4.9 by one. But 400 x 4099 float16 9.0 by 16 warps, 8.6 by 8 (H100).
    """
    warps = power_of_2(
        cdiv(problem.size // vec * vec, max_held_with_parameters(problem, vec, problem.M, limits) * WARP)
    )
    at_once = problem.M * warps <= MAX_WARPS_PER_SM * limits.sm_count
    return warps if span(problem, vec) > 1 and at_once else 0


def vector_loops(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Of groups that no program holds."""
    vec = widest(problem)
    vectors = VECTORS_OF_FEW
    for warps, programs_per_sm in ((WARPS, PROGRAMS_PER_SM), (MAX_WARPS, 1), (2 * WARPS, 2)):
        yield Configuration("loop", warps, 1, vec, vectors, 0, 0, programs_per_sm, STAGES)
    # Smaller tiles where there are few.
    if problem.M * problem.size < PROGRAMS_PER_SM * limits.sm_count * vectors * vec * WARPS * WARP:
        vectors = 1
    yield Configuration("split", WARPS, 1, vec, vectors, 0, 0, PROGRAMS_PER_SM, STAGES)
