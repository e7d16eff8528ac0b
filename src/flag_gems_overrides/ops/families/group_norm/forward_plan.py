# SPDX-License-Identifier: Apache-2.0
"""What each kernel would do for a group norm forward.

Figures in comments: the input as N x C x HW (N x C where HW is 1), its type and its groups, the time this way, and the
time otherwise.
"""

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

# Sizes of groups that one thread holds whole (short_rows.py), by bytes of an element. Threads that share a group
# exchange its sums. 31720 x 3 x 3 float16 in 1 group: 4.22 us, otherwise 4.93 (H100).
SHORT_SIZES = {2: (1, 3, 5, 6, 7, 9, 10, 12, 14), 4: (6, 8, 9), 8: (1,)}
# Maximum number of elements of such a thread.
SHORT_ELEMENTS = 18
# Maximum number of channels of each of several such groups, by bytes of an element. Weights are loaded one by one.
# 20000 x 63 float16 in 7 groups: 8.05 us, otherwise 10.7; 20000 x 36 float32 in 6: 7.5, otherwise 6.2 (H100).
SHORT_CHANNELS = {2: 9, 4: 1, 8: 1}
# Groups of one element are short rows from this number of bytes for each multiprocessor on: those of eight programs.
# 560183 x 3 bf16 in 3 groups: 10.6 us, otherwise 13.3; 30001 x 3 float16: 4.50, otherwise 3.27 (H100).
MIN_SINGLES_BYTES_PER_SM = 16384
# Range of the number of samples of 9 elements, for each multiprocessor, that are loaded in two chunks instead.
# 300000 x 9 float16: 11.8 us in two chunks, otherwise 15.6; 100000 x 9 bf16: 5.95, otherwise 5.24 (H100).
NINES_PER_SM = (1024, 6144)
# Minimum number of float32 elements for each multiprocessor. 500 x 5 x 8 in 5 groups: 3.47 us, otherwise 3.21 (H100).
MIN_SHORT_OF_FLOAT32 = 1024
# Maximum number of float32 elements for each multiprocessor. With more, sectors are written to memory before all
# threads have stored their parts. 60000 x 3 x 3: 6.12 us, otherwise 6.90; 250000 x 8: 11.4, otherwise 11.1 (H100).
MAX_SHORT_OF_FLOAT32 = 4352
# Minimum number of groups for each multiprocessor. 56 x 9 bf16: 3.13 us, otherwise 3.01 (H100).
MIN_SHORT_GROUPS_PER_SM = 8
# From this number of groups for each multiprocessor on, programs have 4 warps instead of one.
SHORT_OF_4_WARPS = 128
# Sizes of groups that are loaded as single elements or pairs in two chunks (``in_two_chunks``), as layer_norm's rows
# (norm/many_rows_plan.py).
MIN_HALVED, MAX_HALVED = 9, 32
# Elements of a tile of these groups.
HALVED_TILE = 1024
# Minimum number of these groups for each multiprocessor.
MIN_HALVED_GROUPS_PER_SM = 48
# Below this number of groups for each multiprocessor, tiles are half as large.
# 520 x 15 x 15 bf16 in 15 groups: 3.50 us, by warps with whole groups 4.15 (H100).
MIN_WHOLE_HALVED_GROUPS_PER_SM = 128
# Sizes of groups that are loaded in three chunks (``in_three_chunks``).
THREE_CHUNKS_SIZES = (9, 10)
# Minimum number of these groups for each multiprocessor. The timed case has 2380.
THREE_CHUNKS_GROUPS_PER_SM = 1024
# Sizes of odd groups of 16 bits that a warp loads in chunks (``in_chunks_of_a_warp``), as layer_norm's rows.
MIN_CHUNKED, MAX_CHUNKED = 129, 255
# Groups of a program of these.
CHUNKED_GROUPS = 4
# Warps of a program of these.
CHUNKED_WARPS = 2
# Minimum number of these groups for each multiprocessor.
MIN_CHUNKED_GROUPS_PER_SM = 20
# Vectors of a thread that has several small groups of 16 bits.
# 65536 x 3 x 8 bf16: 5.74 us, with four vectors 6.03; 4096 x 4 x 14 bf16: 3.76, with four vectors 3.69 (H100).
VECTORS_OF_LITTLE = 2
# Maximum size of a small group, in lanes times elements of a load.
LITTLE_GROUP = 64
# Maximum number of elements of a thread whose program has one group, where the groups keep the device busy.
# 19836 x 3104 float32: 125 us with 28 elements and 4 warps, 129 with 16 and 8.
ELEMENTS_OF_MANY = 32
# Maximum number of vectors of such a thread where there are fewer groups.
# 4 x 1385 float32: 3.7 us with 3 vectors and 4 warps, 3.9 with 2 and 8.
VECTORS_OF_ALONE = 3
# Maximum size of a float32 group that has at most 8 warps, where there are many groups.
# 512 x 16 x 4500 in 8 groups: 103.9 us by 8 warps, 105.3 by 16 (H100).
MAX_OF_8_WARPS = 16384
# Maximum number of elements of a thread with several groups whose vectors span three channels or more.
ELEMENTS_OF_SEVERAL = 16
# From this number of float64 elements for each multiprocessor on, a thread has two pairs of small groups.
# 459037 x 8 x 32 in 8 groups: 644 us, with one pair 694 (H100).
MANY_OF_FLOAT64 = 32768
# From this number of warps for each multiprocessor on, each warp has groups of its own. Estimated from instructions:
# 3612875 groups of 37 bf16 take half of the 972 us of programs of 4 warps.
BUSY_WARPS = 16
# Below this number of bytes of a float32 group, a warp has two groups, since each program takes some time to start.
# 20000 x 150: 14.9 us, with a warp for each group 17.8 (H100).
NARROW_BYTES = 1024


def in_three_chunks(problem: Problem, limits: Limits) -> Configuration | None:
    """Very many groups of one channel, of 9 or 10 elements of 16 bits, in three chunks. None for others.

    Fewer lanes have no element than in two chunks. Fewer groups were not timed.
    15 x 20944 x 9 float16 in 20944 groups: 11.0 us, in two chunks 13.3 (torch.compile 16.7, H100).
    100000 x 3 x 3 in 1 group: 6.1 us, in two chunks 5.4 (H100).
    """
    if problem.inputs > 1 or problem.itemsize != 2 or problem.size not in THREE_CHUNKS_SIZES:
        return None
    if problem.N > 1 or problem.groups == 1 or limits.sm_count * THREE_CHUNKS_GROUPS_PER_SM > problem.M:
        return None
    return Configuration("rows", WARPS, HALVED_TILE // power_of_2(problem.size), widest(problem), 3)


def in_two_chunks(problem: Problem, limits: Limits) -> Configuration | None:
    """Two chunks of a group, so that half as many threads exchange its sums. None for others.

    Chosen as for layer_norm. 748192 x 8 x 15 bf16 in 8 groups: 187 us, otherwise 282 (torch.compile 222, H100).
    100000 x 13 float64: 14.4 us, otherwise 14.8 (H100).
    """
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
    """Odd groups of 16 bits, two to a warp, in chunks of one lane for each thread. None for others.

    Fewer lanes have no element, and fewer programs are started.
    60000 x 2 x 141 bf16 in 2 groups: 33.7 us, by programs of one warp 42.1 (H100).
    3 x 3859 x 219 in 3859 groups: 9.9 us, by programs of one warp 9.6 (H100).
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
    """A thread has whole groups, loaded with the widest vectors that leave it few elements and each multiprocessor a
    warp. None where threads that share groups are faster."""
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
        # One warp adds up fewer numbers for each thread, and waits for no other warp.
        per_thread = VECTORS * vec if wide else 2 * VECTOR_BYTES // problem.itemsize
        held = max(per_thread * WARP // group, 2 if narrow else 1)
        together = max(1, power_of_2_within(min(held, groups_of_warp)))
        return Configuration("rows", 1, together, vec)
    # Several small groups to a program, as long as there are enough programs. A group that leaves a quarter of the
    # lanes without an element has its own program: 792 groups of 608 float32: 4.3 us, two to a program 4.9 (H100).
    together = 1
    padded = WARP * vec < problem.size <= 0.75 * group
    if problem.size % vec == 0 and not padded:
        # A thread with loads of less than half a vector has the bytes of one vector: 626016 groups of 7 bf16: 23.4 us,
        # with twice as many groups to a program 27.1.
        per_thread = VECTORS * vec if wide else VECTOR_BYTES // problem.itemsize
        if problem.size == 1 and problem.M % KNOWN_MULTIPLE != 0:
            per_thread = 1  # a thread would load and store several elements one by one
        if problem.itemsize == 8 and vec > 1 and limits.sm_count * MANY_OF_FLOAT64 <= problem.M * group:
            per_thread = 2 * vec
        held = min(WARPS * WARP * per_thread, ELEMENTS_HELD)
        together = power_of_2_within(min(held // group, problem.M // (2 * limits.sm_count)))
        # At least an element for each thread of a warp, as in gradients.
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
            # Half as many warps where fewer lanes then have no element: 512 x 16 x 4500 bf16 in 8 groups takes 57.6 us
            # by 8 warps, 68.2 by 16 (H100). On sm_100 this spills 16 bytes (512 x 16 x 4499 bf16, Triton 3.7).
            chunks, of_fewer = (cdiv(problem.size // vec, each * WARP) for each in (warps, warps // 2))
            if of_fewer < 2 * chunks and of_fewer * vec <= MAX_HELD_OF_SEVERAL:
                warps //= 2
    return Configuration("rows", min(warps, MAX_WARPS), together, vec)


def _early_warps(problem: Problem, vec: int, limits: Limits) -> int:
    """Warps of a program of one group whose vectors span several channels, with registers to load weight and bias
    together with x. 0 where these warps are more than run at once, or vectors span one channel.

    2 x 8192 x 4 float16 in 32 groups: 3.7 us by 2 warps, 5.3 by one (FlagGems 4.4, H100).
    400 x 4099 float16 in 1 group: 9.0 us by 16 warps, 8.6 by 8 (H100).
    """
    warps = power_of_2(
        cdiv(problem.size // vec * vec, max_held_with_parameters(problem, vec, problem.M, limits) * WARP)
    )
    at_once = problem.M * warps <= MAX_WARPS_PER_SM * limits.sm_count
    return warps if span(problem, vec) > 1 and at_once else 0


def vector_loops(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """For groups that no program holds."""
    vec = widest(problem)
    vectors = VECTORS_OF_FEW
    for warps, programs_per_sm in ((WARPS, PROGRAMS_PER_SM), (MAX_WARPS, 1), (2 * WARPS, 2)):
        yield Configuration("loop", warps, 1, vec, vectors, 0, 0, programs_per_sm, STAGES)
    # Smaller tiles where there would be few.
    if problem.M * problem.size < PROGRAMS_PER_SM * limits.sm_count * vectors * vec * WARPS * WARP:
        vectors = 1
    yield Configuration("split", WARPS, 1, vec, vectors, 0, 0, PROGRAMS_PER_SM, STAGES)
