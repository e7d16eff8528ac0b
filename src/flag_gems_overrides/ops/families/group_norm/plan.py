# SPDX-License-Identifier: Apache-2.0
"""How a group norm of [N, C, HW] is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from ...plans import table
from .estimate import estimate
from .launches import (
    BackwardChannels,
    BackwardFew,
    BackwardLoop,
    BackwardRows,
    BackwardSplit,
    Configuration,
    Launch,
    Loop,
    Problem,
    Rows,
    ShortRows,
    Split,
    Tile,
)
from .legal import (
    KNOWN_MULTIPLE,
    MAX_HELD,
    MAX_HELD_BACKWARD,
    MAX_HELD_OF_SEVERAL,
    MAX_WARPS,
    launch,
    launch_or_none,
    max_held_with_parameters,
    of_sums,
    of_tile,
    span,
    sums,
    tiles_and_lanes,
    vector,
    widest,
)

__all__ = [
    "BackwardChannels",
    "BackwardFew",
    "BackwardLoop",
    "BackwardRows",
    "BackwardSplit",
    "Configuration",
    "Loop",
    "Problem",
    "Rows",
    "ShortRows",
    "Split",
    "Tile",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
]

# Warps of a program with a loop: 192 x 509267 bf16 takes 340 us with 4 and 351 with 8; the gradient of 2043 x 9762 59
# and 79. A multiprocessor with one program gets all warps it can: 128 groups of 16 x 4096 bf16 take 17.2 us, 21 with
# half of them.
WARPS = 4
STAGES = 3
# Programs of a multiprocessor where the work can be divided in any way.
PROGRAMS_PER_SM = 4
# And of sums without a pipeline, whose loads nothing hides but other programs: 278 x 1071 x 675 bf16 777 us, 791 with
# 4, 804 with 16 (H100).
PROGRAMS_PER_SM_OF_SUMS = 8
# And of those with a channel at a time, which take 56 to 61 registers a thread, those with several about 120: 80 x 531
# x 608 bf16 100.7 us, 113.4 with 4, 300 x 531 x 608 float32 662 and 699, but 80 x 531 x 200 float16, 32 at a time, 42.5
# and 41.1 (H100).
PROGRAMS_PER_SM_OF_CHANNELS = 8
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
SHORT_SIZES = {2: (3, 5, 6, 7, 9, 10, 12, 14), 4: (6, 8, 9)}
SHORT_ELEMENTS, SHORT_CHANNELS = 18, {2: 9, 4: 1}
MIN_SHORT_OF_FLOAT32, MAX_SHORT_OF_FLOAT32 = 1024, 4352
# Fewest groups for each multiprocessor: one group of 1 x 10 bf16 takes 3.11 us so, by threads that share it 2.80
# (torch.compile 2.74), 56 x 9 3.13 and 3.01 (H100).
MIN_SHORT_GROUPS_PER_SM = 8
# Least groups of a multiprocessor for programs of four warps of these.
SHORT_OF_4_WARPS = 128
# Small groups of which single elements or pairs are loaded in two chunks, as layer_norm's (norm/forward_plan.py): the
# least and most elements, elements of a tile of them, and the fewest groups for each multiprocessor.
# With less than MIN_WHOLE_HALVED_GROUPS_PER_SM, tiles are half as large: 520 x 15 x 15 bf16 in 15 groups takes 3.50 us
# so, 4.15 by warps with whole groups (H100).
MIN_HALVED, MAX_HALVED, HALVED_TILE, MIN_HALVED_GROUPS_PER_SM, MIN_WHOLE_HALVED_GROUPS_PER_SM = 9, 32, 1024, 48, 128
# And in three chunks (``_in_three_chunks``): elements of a group, and fewest groups for each multiprocessor, of which
# 2380 were timed.
THREE_CHUNKS_SIZES, THREE_CHUNKS_GROUPS_PER_SM = (9, 10), 1024
# Gradients of samples of odd channels of an element (``_odd_samples_of_one_group``): lanes of a sample, of a tile,
# programs of a multiprocessor, and fewest turns of each.
ODD_SAMPLES_WIDTH, ELEMENTS_OF_ODD_SAMPLES, ODD_SAMPLES_PER_SM, ODD_SAMPLES_TURNS = 64, 256, 24, 8
# Odd groups of 16 bits in chunks of a warp (``_in_chunks_of_a_warp``), as layer_norm's: the shortest and longest,
# groups and warps of a program, and the fewest for each multiprocessor.
MIN_CHUNKED, MAX_CHUNKED, CHUNKED_GROUPS, CHUNKED_WARPS, MIN_CHUNKED_GROUPS_PER_SM = 129, 255, 4, 2, 20
# Vectors that a thread has of several groups forward, and of a tile of a loop.
VECTORS, VECTORS_OF_FEW = 4, 2
# And of several groups of 16 bits that take up to so many lanes' elements: 65536 x 3 x 8 bf16 5.74 us, 6.03 with four,
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
# Elements that a program holds of small groups, if there are as many.
ELEMENTS_HELD = 2048
# Forward: elements of a thread whose vectors span three channels or more. Loads of less than half a vector: one
# vector of bytes to a thread and 4 warps (626016 groups of 7 bf16 23.4 us, 27.1 with twice as many groups to a
# program).
ELEMENTS_OF_SEVERAL = 16
# And of small groups of pairs of float64, where a multiprocessor has so many elements, two pairs: 459037 x 8 x 32 in 8
# groups takes 644 us so, with one 694 (H100).
MANY_OF_FLOAT64 = 32768
# Bytes that the programs of a multiprocessor load at a time (from layer_norm, measured on an H200), and limits of its
# programs and warps.
BYTES_IN_FLIGHT, MAX_PROGRAMS_PER_SM, MAX_WARPS_PER_SM = 32768, 16, 32
# Programs of a multiprocessor that hold groups of a gradient: 26155 x 12 x 3 x 7 bfloat16 in 4 groups takes 124, 70.6
# and 44.2 us with 4, 8 and 16 programs of one warp.
MAX_RESIDENT = 32
# Elements that a program of the gradient holds, one vector to a thread: 31464 groups of 427 bf16 take 54 us, 64 with
# twice as many; 8771784 of 2 x 6 301 and 361.
ELEMENTS_OF_TILE = 1024
# Of float64 that are loaded one by one fewer, by 4 warps, of which as many programs as have registers: 512 x 133 x 9 in
# 133 groups takes 17.2 us so, 25.9 with 1024 by 8 warps, 23.9 by 16 (H200), 262144 x 6 x 3 in 6 groups 98.8, with 1024
# by 8 warps 119.8, 1000 x 133 x 4 in 133 15.8 and 17.9, 60237 x 300 in 20 290 and 298 (H100).
ELEMENTS_OF_FLOAT64, WARPS_PER_SM_OF_FLOAT64 = 256, 28
# Forward: each warp has groups of its own if a multiprocessor gets at least so many warps. Estimated from instruction
# counts, not timed: 3612875 groups of 37 bf16 take half of the 972 us of programs of 4 warps, 139481 of 83 a third
# less, 185376 of 312 a tenth less.
BUSY_WARPS = 16
# Two groups of less bytes of float32 are for one warp, for each program takes some time to start: 20000 x 150 takes
# 14.9 us so, 17.8 by a warp for each, 2771 x 237 5.56 by a warp for each, 6.1 by four for two (H100).
NARROW_BYTES = 1024
# One program holds all samples if they have at most so many elements, which saves the second launch that adds partial
# sums: 7 x 6 x 1 bf16 took 5.1 us with two launches. It takes as many groups of a sample as fill a sector.
ELEMENTS_OF_ALL = 4096
# Of so few elements a thread has two, so that programs of one warp share the samples' groups: 16 x 11 x 1 bf16 in 11
# groups 2.74 us, 3.10 with a sector of groups (H100; torch.compile 2.94). Of groups of one element more: 15 x 30
# float16 in 30 groups 2.97, 3.35 with a sector, 30 x 64 bfloat16 in 64 groups 3.14 and 3.34 (H100).
LITTLE, LITTLE_SINGLES = 256, 2048
# One launch for all gradients, which reads everything twice, of no more bytes to an input than these: 64 x 4874 bf16 in
# 2 groups 7.1 us, 11.0 in two launches, 5 x 741 x 7 float16 in one 5.0 and 9.6, 8 x 320 x 64 in 32 4.1 and 6.0, 1059 x
# 3 in one 3.3 and 5.1, 6 x 771 x 3 float64 in 3 3.6 and 6.6; 11 x 71 bf16 in one 3.6, by one program 8.0. And of no
# more than so many where a group has more elements than these: 61 x 2943 x 2 float32 in one 8.7 and 12.1 (H100).
MAX_BYTES_OF_FEW, MAX_BYTES_OF_FEW_LARGE, LARGE_GROUP = 1 << 20, 3 << 19, 4096
# Its elements of a thread, warps of a multiprocessor, tiles of a program, and bytes of a sample's channels: 200 x 24 x
# 20 bf16 in 4 groups takes 5.7 us with four tiles of 4 warps, 4.3 with two of 8 (H100).
ELEMENTS_OF_FEW, WARPS_OF_FEW, ITERATIONS_OF_FEW, BYTES_OF_FEW_CHANNELS = 8, 32, 4, 64
# Nor where a program of a tile has so little of all samples, lanes in all and loads of a group: 101 x 3 float16 in one
# group 3.15 us, 3.43 in the one launch, 21 x 32 x 2 bf16 in 16 3.20 and 3.43, 29 x 14 x 3 float32 in 14 3.33 and 3.45,
# 16 x 60 x 32 bf16 in 60 3.26 and 3.57, but 4 x 80 float32 in one 3.47 and 3.10, 6 x 4 x 41 bf16 in 4 4.09 and 3.41,
# 7 x 494 in 2 4.42 and 3.43 (H100).
LANES_OF_QUICK, LOADS_OF_QUICK = 512, 4
# The gradient does not hold a group as channels x elements if a smaller share of the lanes would have an element:
# 2048 groups of 16 x 49 float32, where 77 % have one, take 35 us. A group of one channel is read as it lies instead:
# 12 x 3248 float32 6.0 us, 6.7 as channels x elements.
MIN_USED = 0.6
# Elements of a thread where fewer than 8 warps hold a group: with 48, 8 bytes spill (512 x 7 x 6000 float16, sm_80).
MAX_HELD_OF_FEW = 40
# A tile of channels x elements has at least MIN_WIDTH elements of a channel, or MIN_WIDTH_BYTES if a channel has
# fewer, and at most MAX_MASKED times the lanes of the shape with the fewest.
MIN_WIDTH, MIN_WIDTH_BYTES, MAX_MASKED = 512, 128, 1.1


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    vec = widest(problem)
    return problem.inputs, problem.dx, problem.itemsize, vec, problem.size % vec != 0, span(problem, vec)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = _unlisted(problem, limits) or table.lookup(
        "group_norm",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    return found or _default(problem, limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: legal, and each another launch."""
    found: dict[Launch, Configuration] = {}
    for candidate in _candidates(problem, limits):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch that is chosen, for a problem of at least one element."""
    return launch(problem, choose(problem, limits), limits)


def _candidates(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    default = _default(problem, limits)
    yield default
    yield from _neighbours_of(default)
    if default.kernel == "tile":
        yield default._replace(stages=STAGES)
    yield from _defaults(problem, limits)


def _neighbours_of(configuration: Configuration) -> Iterator[Configuration]:
    for field in ("warps", "programs_per_sm", "groups", "vectors", "block_hw"):
        value = getattr(configuration, field)
        yield configuration._replace(**{field: 2 * value})
        yield configuration._replace(**{field: value // 2})


def _default(problem: Problem, limits: Limits) -> Configuration:
    """Of what each kernel would do, what is estimated to take the least time."""
    unlisted = _unlisted(problem, limits)
    if unlisted is not None:
        return unlisted
    legal = (each for each in _defaults(problem, limits) if launch_or_none(problem, each, limits) is not None)
    return min(legal, key=lambda each: estimate(problem, each, limits))


def _defaults(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    if problem.inputs == 1:
        yield _rows(problem, limits)
        yield from _vector_loops(problem, limits)
    else:
        yield from _tile(problem, limits)
        yield from _few(problem, limits)
        yield from _backward_rows(problem, limits)
        yield from _tile_loops(problem, limits)


def _unlisted(problem: Problem, limits: Limits) -> Configuration | None:
    """What no table has."""
    return (
        _in_three_chunks(problem, limits)
        or _short_rows(problem, limits)
        or _in_two_chunks(problem, limits)
        or _in_chunks_of_a_warp(problem, limits)
        or _odd_samples_of_one_group(problem, limits)
    )


def _in_three_chunks(problem: Problem, limits: Limits) -> Configuration | None:
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


def _odd_samples_of_one_group(problem: Problem, limits: Limits) -> Configuration | None:
    """A warp has four samples of so few odd channels of an element of 16 bits, without a pipeline, for all gradients;
    None for others, and for fewer turns of each program.

    1693816 x 37 float16 in one group takes 200 us so, as it lies 307 (torch.compile 272), by programs of four warps
    300, 400000 x 41 bf16 62.3 and 87.4 (H100).
    """
    if problem.inputs == 1 or not problem.dx or problem.itemsize != 2 or problem.groups > 1 or problem.K > 1:
        return None
    N, width = problem.N, ODD_SAMPLES_WIDTH
    if limits.capability[0] != 9 or N % 2 == 0 or not width // 2 < N < width:
        return None
    rows = ELEMENTS_OF_ODD_SAMPLES // width
    if ODD_SAMPLES_TURNS * ODD_SAMPLES_PER_SM * limits.sm_count * rows > problem.M:
        return None
    return Configuration("tile", 1, rows, 1, 1, width, 1, ODD_SAMPLES_PER_SM, 1)


def _in_two_chunks(problem: Problem, limits: Limits) -> Configuration | None:
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


def _in_chunks_of_a_warp(problem: Problem, limits: Limits) -> Configuration | None:
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


def _short_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """The widest vectors with which a thread has few elements, and each multiprocessor a warp. None where threads that
    share groups are faster."""
    size, itemsize = problem.size, problem.itemsize
    if problem.inputs > 1 or size not in SHORT_SIZES.get(itemsize, ()):
        return None
    if limits.sm_count * MIN_SHORT_GROUPS_PER_SM > problem.M:
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


def _rows(problem: Problem, limits: Limits) -> Configuration:
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


def _vector_loops(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Of groups that no program holds."""
    vec = widest(problem)
    vectors = VECTORS_OF_FEW
    for warps, programs_per_sm in ((WARPS, PROGRAMS_PER_SM), (MAX_WARPS, 1), (2 * WARPS, 2)):
        yield Configuration("loop", warps, 1, vec, vectors, 0, 0, programs_per_sm, STAGES)
    # Smaller tiles where there are few.
    if problem.M * problem.size < PROGRAMS_PER_SM * limits.sm_count * vectors * vec * WARPS * WARP:
        vectors = 1
    yield Configuration("split", WARPS, 1, vec, vectors, 0, 0, PROGRAMS_PER_SM, STAGES)


def _tile(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Whole groups, as channels x elements; none if a program does not hold one."""
    M, N, K, groups, itemsize, inputs, _ = problem
    block_d, block_hw = power_of_2(N), power_of_2(K)
    group = block_d * block_hw
    if group > min(of_tile(problem) * MAX_WARPS * WARP, limits.registers_per_sm // (16 * max(1, itemsize // 4))):
        return
    if group > ELEMENTS_HELD and (N == 1 or MIN_USED * group > N * K):
        return
    single = itemsize == 8 and vector(problem) == 1
    # Several groups to a program where they are small, as long as there are enough programs.
    most = ELEMENTS_OF_FLOAT64 if single else ELEMENTS_OF_TILE
    together = power_of_2_within(min(most // group, M // (2 * limits.sm_count)))
    of_all = power_of_2(problem.samples) * power_of_2(min(cdiv(SECTOR_BYTES, N * K * itemsize), groups))
    few = max(power_of_2(problem.samples), 2 * WARP // group)
    if M * group <= LITTLE:
        of_all = few
    elif group == 1 and M <= LITTLE_SINGLES:
        of_all = min(of_all, few)
    of_one = ELEMENTS_OF_ALL if groups < PROGRAMS_PER_SM * limits.sm_count else ELEMENTS_OF_TILE
    if of_all * group <= min(of_one, of_tile(problem) * MAX_WARPS * WARP):
        together = max(together, of_all)
    # An element for each thread of a warp: Triton keeps those of fewer in several layouts, and loads them for each.
    together = max(together, WARP // group)
    elements = together * group
    per_thread = min(VECTOR_BYTES // itemsize, of_tile(problem))
    warps = power_of_2_within(elements // (per_thread * WARP))
    # More than 8 where they do not hold it: 143 groups of 3 x 4 float32 3.7 us, 4.4 with 16. Of less than vectors they
    # hold half: 8 bytes spill of all (223 x 3 x 6 float32).
    held = of_tile(problem, 8) // (1 if vector(problem) * itemsize == VECTOR_BYTES else 2)
    warps = min(warps, 8 if elements <= held * 8 * WARP else MAX_WARPS)
    in_flight = BYTES_IN_FLIGHT // (inputs * elements * itemsize)
    warps_per_sm = WARPS_PER_SM_OF_FLOAT64 if single else MAX_WARPS_PER_SM
    programs_per_sm = min(max(in_flight, PROGRAMS_PER_SM), MAX_PROGRAMS_PER_SM, max(warps_per_sm // warps, 1))
    yield Configuration("tile", warps, together, 1, 1, block_d, block_hw, programs_per_sm, STAGES)


def _few(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Whole groups, and channels of all samples beside them, where all programs run at once."""
    block, block_hw = power_of_2(problem.size), power_of_2(problem.K)
    if problem.M * block <= LITTLE or any(_is_quick(problem, each, limits) for each in _tile(problem, limits)):
        return
    max_bytes = MAX_BYTES_OF_FEW_LARGE if problem.size > LARGE_GROUP else MAX_BYTES_OF_FEW
    if problem.M * problem.size * problem.itemsize > max_bytes:
        return
    of_channel = power_of_2(problem.samples) * block_hw
    channels = problem.groups * problem.N
    sector = power_of_2_within(max(BYTES_OF_FEW_CHANNELS // (problem.K * problem.itemsize), 1))
    for warps in (4, 8, MAX_WARPS):
        held, threads = ELEMENTS_OF_FEW * warps * WARP, warps * WARP
        for most in (1, 2):
            # As few to a program as give each thread an element, as long as there are multiprocessors.
            together = max(threads // block, power_of_2_within(max(problem.M // limits.sm_count, 1)))
            together = max(1, min(together, most * held // block, power_of_2(problem.M)))
            block_c = max(threads // of_channel, sector, power_of_2_within(max(channels // limits.sm_count, 1)))
            block_c = max(1, min(block_c, most * held // of_channel, power_of_2(channels)))
            found = Configuration("few", warps, together, 1, 1, block_c, block_hw)
            launched = launch_or_none(problem, found, limits)
            if isinstance(launched, BackwardFew):
                programs = launched.group_programs + launched.channel_programs
                at_once = limits.sm_count * (WARPS_OF_FEW // warps)
                if programs <= at_once and problem.samples <= ITERATIONS_OF_FEW * launched.samples:
                    yield found


def _is_quick(problem: Problem, configuration: Configuration, limits: Limits) -> bool:
    """Whether a program has all samples of its groups, and little of them."""
    chosen = launch_or_none(problem, configuration, limits)
    if not isinstance(chosen, Tile) or chosen.samples < problem.samples:
        return False
    block = chosen.block_d * chosen.block_hw
    return chosen.samples * chosen.groups * block <= LANES_OF_QUICK and block <= LOADS_OF_QUICK * chosen.vec


def _backward_rows(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Whole groups that are not small, as they lie, by the fewest warps that hold one, and by more."""
    vec = widest(problem)
    of_float64 = 4 if problem.itemsize == 8 else 1
    found = False
    for warps in (1, 2, 4, 8, MAX_WARPS):
        most = MAX_HELD_BACKWARD[span(problem, vec) > 1, max(warps, 8)] // of_float64
        if warps < 8:
            most = min(most, MAX_HELD_OF_FEW // of_float64)
        # 16 only where 8 hold none: 4 x 925 bf16 7.5 us, 9.6 with 16.
        if cdiv(problem.size // vec, warps * WARP) * vec <= most and (warps < MAX_WARPS or not found):
            found = warps == 8
            registers = _registers(problem, cdiv(problem.size // vec, warps * WARP) * vec, span(problem, vec) > 1)
            per_sm = max(1, limits.registers_per_sm // (min(registers, 255 if warps <= 8 else 128) * warps * WARP))
            per_sm = min(per_sm, MAX_RESIDENT)
            for stages in (STAGES, 2, 1):
                yield Configuration("rows", warps, 1, vec, 1, 0, 0, per_sm, stages)


def _registers(problem: Problem, elements: int, several: bool) -> int:
    """Of a thread that holds so many elements in a gradient, no fewer than it takes (60 launches compiled, sm_90)."""
    elements *= 2 if problem.itemsize == 8 else 1
    return cdiv(70 + 10 * elements if several else 50 + 6 * elements, 8) * 8


def _tile_loops(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    vec = widest(problem)
    vectors = max(1, min(VECTORS_OF_FEW, 8 // vec)) if problem.itemsize < 8 else 1
    for warps in (WARPS, 2 * WARPS, MAX_WARPS):
        block_d, block_hw = _blocks(problem, warps)
        if warps == WARPS:
            # More take longer: 144 groups of 123 x 3995 bf16 279 us, 303 with 8 and 425 with 16. Two vectors of a
            # thread are for the second kernel: 7 of 1721 x 5165 bf16 239 and 219 us; 1472 of 32 x 1327 float64 666
            # us, 802 with one.
            pipelined = sums(problem, block_d, block_hw, STAGES).stages > 1
            per_sm = PROGRAMS_PER_SM if pipelined else PROGRAMS_PER_SM_OF_SUMS
            of_split = PROGRAMS_PER_SM_OF_CHANNELS if block_d == 1 else per_sm
            yield Configuration("split", warps, 1, vec, VECTORS_OF_FEW, block_d, block_hw, of_split, STAGES)
            yield Configuration("channels", warps, 1, 1, 1, block_d, block_hw, per_sm, STAGES)
        elif 2 * limits.sm_count < problem.M:
            continue
        for programs_per_sm in (PROGRAMS_PER_SM, MAX_WARPS // warps):
            yield Configuration("loop", warps, 1, vec, vectors, block_d, block_hw, programs_per_sm, STAGES)


class _TileShape(NamedTuple):
    block_d: int
    block_hw: int
    tiles: int  # of a group
    lanes: int  # of all these tiles, masked ones too


def _blocks(problem: Problem, warps: int) -> tuple[int, int]:
    """Channels and elements of a tile: few masked lanes, then the fewest tiles, then the longest rows."""
    max_d, max_hw = power_of_2(problem.N), power_of_2(problem.K)
    shapes = []
    for block_hw in (1 << i for i in range(max_hw.bit_length())):
        tile = sums(problem, 1, block_hw)
        most = warps * WARP * min(2 * VECTOR_BYTES // problem.itemsize, of_sums(problem, warps, tile))
        if block_hw + tile.rest_hw <= most:
            block_d = min(power_of_2_within(most // (block_hw + tile.rest_hw)), max_d)
            tiles, lanes = tiles_and_lanes(problem, sums(problem, block_d, block_hw))
            shapes.append(_TileShape(block_d, block_hw, tiles, lanes))
    min_hw = MIN_WIDTH if problem.K >= MIN_WIDTH else MIN_WIDTH_BYTES // problem.itemsize
    min_hw = min(min_hw, max(shape.block_hw for shape in shapes))
    shapes = [shape for shape in shapes if shape.block_hw >= min_hw]
    max_lanes = MAX_MASKED * min(shape.lanes for shape in shapes)
    allowed = [shape for shape in shapes if shape.lanes <= max_lanes]
    best = min(allowed, key=lambda shape: (shape.tiles, -shape.block_hw))
    # A whole channel in one tile where a thread has fewer loads so than of two, whatever is masked.
    one = min((shape for shape in shapes if shape.block_hw >= problem.K), key=lambda shape: shape.lanes, default=best)
    if one.tiles <= best.tiles and _loads(problem, one, warps) < _loads(problem, best, warps):
        best = one
    return best.block_d, best.block_hw


def _loads(problem: Problem, shape: _TileShape, warps: int) -> int:
    """Of a thread for a tile of each input: the gradient of 80 x 4096 x 144 bfloat16 in 32 groups takes 182 us with one
    of 4 x 256 elements, 206 with two, of 4 x 128 and of 4 x 16 (H100)."""
    tile = sums(problem, shape.block_d, shape.block_hw)
    parts = (tile.block_hw, tile.rest_hw) if tile.whole else (tile.block_hw,)
    return sum(cdiv(tile.block_d * part // tile.vec, warps * WARP) for part in parts)
