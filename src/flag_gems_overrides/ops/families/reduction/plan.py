# SPDX-License-Identifier: Apache-2.0
"""How reductions are divided among programs: plain numbers in, a plan out."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP, power_of_2
from ...plans import table
from .column_defaults import columns
from .defaults import kinds
from .launches import (
    MAX_CLASSES,
    Configuration,
    Plan,
    Problem,
    estimate,
    is_short,
    launch,
    launch_or_none,
)
from .programs import LONG_WARPS, OCCUPANCY
from .row_defaults import (
    by_single_warps,
    narrow,
    narrow_rows,
    rows,
    wide_with_edges,
)

__all__ = [
    "Configuration",
    "Plan",
    "Problem",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
    "with_wide_accumulators",
    "with_wide_results",
]

# The model chooses where it expects so much less time than by the rules, of so few elements for each multiprocessor.
MODEL_GAIN, MODEL_ELEMENTS = 0.8, 8192
# Of so many where by the rules programs share columns and by the model none does (H100): sum 1 x 400 x 1024
# float32 5.40 us and 4.39, mean 168 x 2227 x 4 float16 7.1 and 5.3, amax 16 x 682 x 128 bf16 7.2 and 6.0, 212 x 776 x 8
# float32 7.9 and 6.3, any 12 x 1998 x 61 6.4 and 6.0. Where nothing is exchanged sum 64 x 28 x 1024 bf16 5.74 and 5.92.
TILE_GAIN, TILE_ELEMENTS = 0.87, 16384
# Accumulators of 64 bits of smaller elements have as many warps as there are registers for, and fewer elements: prod of
# 4411664 int16 (H100) 13.4 us with 32 elements, 8 warps and programs for twice as many, 11.7 with 16 and 4. Where
# neighbours are combined in 32 bits first, twice as many elements: 134217728 uint8 65 us and 57.6 (FlagGems 61), int8
# 70 and 63, int16 107 and 103.
WIDE_ELEMENTS, WIDE_WARPS, WIDE_OCCUPANCY = {False: 16, True: 32}, 4, 24
# Classes of bytes: of 1616 x 60075 x 7 int8 with 16 elements 32 bytes spill, with 32 of one row 592.
WIDE_CLASSES_ELEMENTS = 8
# Elements of a thread of one tile, by more than 16 warps, whose threads have 64 registers: prod of 64 int16 takes 72.
WIDE_TILE_ELEMENTS = 32
# Elements of a thread of a loop of counts of 16 bits; warps of a multiprocessor where there are twice as many elements.
COUNTED_ELEMENTS, COUNTED_OCCUPANCY = 16, 24
# That a tuner may time.
MAX_CONFIGURATIONS = 24
# Elements of a thread and warps of a tile that holds all of a few columns; of moments half as many elements, as timed.
# Of other values (H100, with 8 elements to a thread, that is by twice as many warps, in parentheses): sum 2 x 193 x
# 2048 float32 by 512 programs of 8 columns 5.43 us (5.47), 256 of 16 5.33 (5.55), 128 of 32 5.19; 14 x 245 x 256 by 448
# of 8 5.5 (5.8), 224 of 16 5.4 (5.7); 33 x 32 x 1024 bf16 by 1056 of 32 4.77 (5.68), 2112 of 16 4.96 (5.35), 4224 of 8
# 5.9; amax 8 x 512 x 128 float32 by 256 of 4 4.87, 128 of 8 4.64 (4.69).
ELEMENTS, MAX_TILE_WARPS = 16, 16
TILE_COLUMNS = (4, 8, 16, 32)
# Of a thread of such a tile.
MAX_TILE_BYTES = 128
# Of single values of 16 bits in vectors, where a multiprocessor has so many programs: 64 of each of the most columns
# by fewer warps, which meet sooner: sum 32 x 64 x 472 bf16 by 4 warps 5.10 us, by 2 4.66, 40 x 48 x 520 5.28 and 4.73,
# 64 x 64 x 256 5.18 and 4.68 (H100). Of float32, 32 x 64 x 472, only 5.77 and 5.61.
LITTLE_TILE, LITTLE_TILE_WARPS, LITTLE_TILE_PROGRAMS = 64, 2, 3


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, size, accumulators = problem
    inner = 1 if K == 1 else 2 if K <= MAX_CLASSES else 3
    return (
        accumulators,
        size,
        inner,
        N == 1,
        is_short(problem),
        math.gcd(N * K if inner < 3 else K, VECTOR_BYTES // size),
    )


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup(
        "reduction",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    return _by_fewer_warps(problem, configurations(problem, limits)[0], limits) if found is None else found


def _by_fewer_warps(problem: Problem, configuration: Configuration, limits: Limits) -> Configuration:
    """Where a program has a little tile; of what is neither longer nor more than was timed."""
    bytes_ = problem.K * problem.itemsize
    vectors = problem.itemsize == 2 and bytes_ % VECTOR_BYTES == 0 and bytes_ >= LINE_BYTES
    little = power_of_2(problem.N) == LITTLE_TILE and _elements(problem, limits) <= MODEL_ELEMENTS
    if configuration.kernel != "columns" or problem.accumulators > 1 or not (vectors and little):
        return configuration
    launched = launch(problem, configuration, limits)
    alike = launched.block_k == TILE_COLUMNS[-1] and launched.warps == 2 * LITTLE_TILE_WARPS
    many = launched.blocks >= LITTLE_TILE_PROGRAMS * limits.sm_count
    if not (alike and many and _is_simple(problem, launched)):
        return configuration
    return configuration._replace(elements=configuration.elements * 2, warps=LITTLE_TILE_WARPS)


def _has_quick_tiles(problem: Problem, limits: Limits) -> bool:
    """Not of positions of bytes: max.dim 538 x 332 x 12 int8 in one tile 8.1 us, by three programs 7.2 (H100).

    Nor of many of 32 bits by programs of 4 columns of more, not classes: sum 4 x 3269 x 128 float32 9.0 us, shared 8.7;
    but 64 x 2830 x 8 6.8 and 9.3.
    """
    few = problem.K > MAX_CLASSES and limits.sm_count * TILE_COLUMNS[0] > problem.M * problem.K
    if few and problem.itemsize == 4 and _elements(problem, limits) > MODEL_ELEMENTS:
        return False
    return problem.accumulators == 1 or (problem.accumulators == 2 and problem.itemsize > 1)


def _elements(problem: Problem, limits: Limits) -> float:
    """For each multiprocessor."""
    return problem.M * problem.N * problem.K / limits.sm_count


def with_wide_accumulators(
    problem: Problem, configuration: Configuration, limits: Limits, narrow: bool = False
) -> Configuration:
    """What to launch with where numbers of 64 bits are made of smaller elements, or of 32 bits if ``narrow``."""
    if configuration.kernel == "classes" and problem.itemsize == 1:
        return configuration._replace(elements=min(configuration.elements, WIDE_CLASSES_ELEMENTS))
    if configuration.kernel == "columns" and problem.K > 1 and configuration == columns(problem, limits):
        return columns(problem, limits, wide=True)
    if configuration.kernel == "rows" and wide_with_edges(problem, limits):
        return by_single_warps(VECTOR_BYTES // problem.itemsize, WIDE_OCCUPANCY)
    if configuration.kernel == "rows" and configuration == rows(problem, limits):
        configuration = rows(problem, limits, wide=True)
    fits = configuration.warps <= MAX_TILE_WARPS or configuration.elements <= WIDE_TILE_ELEMENTS
    if configuration.kernel != "rows" or (fits and _is_simple(problem, launch(problem, configuration, limits))):
        return configuration
    elements, warps = configuration.elements, min(configuration.warps, WIDE_OCCUPANCY // 3)
    if elements > WIDE_ELEMENTS[False]:
        elements, warps = min(elements, WIDE_ELEMENTS[narrow]), min(warps, WIDE_WARPS)
    occupancy = min(configuration.occupancy, WIDE_OCCUPANCY)
    return configuration._replace(elements=elements, warps=warps, occupancy=occupancy)


def with_wide_results(problem: Problem, configuration: Configuration, limits: Limits) -> Configuration:
    """What to launch with where results of bytes, or counts of 16 bits, are numbers of 64 bits."""
    if problem.itemsize == 2:
        # A loop of rows, for counts take more registers than sums: 16 to 32 bytes of count_nonzero 145 x 549016 and
        # 1145 x 549016 bf16 spill. Of 16 warps with 32 elements half as many, shared by programs, have those: the first
        # 68.0 us, with half as many elements 70.6 (H100).
        if configuration.kernel != "rows" or _is_simple(problem, launch(problem, configuration, limits)):
            return configuration
        if configuration.warps > LONG_WARPS:
            return configuration._replace(warps=LONG_WARPS, occupancy=COUNTED_OCCUPANCY)
        return configuration._replace(elements=min(configuration.elements, COUNTED_ELEMENTS))
    by_rules = configuration.kernel == "columns" and problem.K > 1 and configuration == columns(problem, limits)
    return columns(problem, limits, wide=True) if by_rules else configuration


def _is_simple(problem: Problem, launched: Plan | None) -> bool:
    """Whether this is a launch in which a result is of one tile."""
    if launched is None:
        return False
    length = problem.N if launched.kernel == "columns" else problem.N * problem.K
    return launched.splits == 1 and launched.step >= length


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: other kernels, and neighbours of all that are legal.

    The default is by the rules, or of little by the model where it promises much: over 46 random problems it takes
    2.1 % more than the fastest of all, by the rules alone 5.4 %.
    """
    by_rules, *others = _candidates(problem, limits)
    us = {each: estimate(problem, each, limits) for each in (by_rules, *others)}
    default = min(us, key=lambda each: us[each])
    gain, most = MODEL_GAIN, MODEL_ELEMENTS
    if problem.K > 1 and _has_quick_tiles(problem, limits):
        before, after = (launch(problem, each, limits).splits for each in (by_rules, default))
        if before > after == 1:
            gain, most = TILE_GAIN, TILE_ELEMENTS
    # Which of rows does not know what their idle lanes take: max.dim 20000 x 33 bf16 4.09 us as columns, by the model
    # 6.00 (H100).
    by_lanes = problem.accumulators == 2 and problem.K == 1 and by_rules.kernel == "columns"
    if by_lanes or _elements(problem, limits) > most or us[default] >= gain * us[by_rules]:
        default = by_rules
    return [default, *(each for each in us if each != default)]


def _candidates(problem: Problem, limits: Limits) -> list[Configuration]:
    """By the rules first. All are legal, and each another launch."""
    others = kinds(problem, limits)
    candidates = [*others, *_in_one_tile(problem, limits), *_narrow(problem)]
    for each in others:
        for field in ("elements", "warps", "block_k"):
            value = getattr(each, field)
            candidates += [each._replace(**{field: value * 2}), each._replace(**{field: value // 2})]
        candidates += [
            each._replace(split=not each.split),
            each._replace(stages=1 if each.stages > 1 else 3),
            each._replace(neighbours=not each.neighbours),
            each._replace(vector=1 if each.vector > 1 else VECTOR_BYTES // problem.itemsize, neighbours=False),
        ]
    found: dict[Plan, Configuration] = {}
    for candidate in candidates:
        planned = launch_or_none(problem, candidate, limits)
        if planned is not None:
            found.setdefault(planned, candidate)
    return list(found.values())[:MAX_CONFIGURATIONS]


def _in_one_tile(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """All elements of a few columns, by many warps: nothing is looped over or exchanged."""
    moments = problem.accumulators == 3
    each = ELEMENTS // 2 if moments else ELEMENTS
    neighbours = min(problem.K * problem.itemsize, LINE_BYTES)
    for block_k in TILE_COLUMNS if problem.K > 1 else ():
        # Less than a line of neighbours only where twice as many would leave multiprocessors without a program, or
        # threads with more elements.
        twice = 2 * block_k
        # Of single values of 16 bits in whole pieces twice as many (H100): amax 16 x 682 x 128 bf16 by 8 columns 6.10
        # us, by 16 5.54, 8 x 484 x 512 by 16 6.69, by 32 6.40.
        whole = problem.accumulators == 1 and problem.itemsize == 2 and problem.K % twice == 0
        most = (2 if whole else 1) * each * MAX_TILE_WARPS * WARP
        fits = twice <= TILE_COLUMNS[-1] and twice * power_of_2(problem.N) <= most
        busy = 9 * limits.sm_count * twice <= 10 * problem.M * problem.K
        if fits and busy and not moments and block_k * problem.itemsize < neighbours:
            continue
        if not moments and _is_part_of_a_sector(problem, block_k, limits):
            continue
        threads = max(block_k * power_of_2(problem.N) // each, WARP)
        warps = min(threads // WARP, MAX_TILE_WARPS)
        elements = max(block_k * power_of_2(problem.N) // (warps * WARP), 1)
        # A position for each element too spills 16 bytes in 64 registers.
        occupancy = OCCUPANCY // (2 if problem.accumulators == 2 and elements > ELEMENTS else 1)
        yield Configuration("columns", elements, warps, occupancy, 1, block_k, False)


def _is_part_of_a_sector(problem: Problem, block_k: int, limits: Limits) -> bool:
    """Whether neighbours that programs read apart had better be one's, whose threads can have them.

    Even if that leaves half of the multiprocessors without a program (H100): sum 1 x 1106 x 1024 bf16 by programs of 4
    columns 6.10 us, of 8 5.36, 16 x 1471 x 64 float32 8.2 and 7.6, by 154 programs and 77 of 1 x 1372 x 615 bf16 5.45
    and 4.71, by 152 and 76 of amax 4 x 2980 x 152 float16 8.4 and 6.6.
    """
    twice = 2 * block_k
    elements = twice * power_of_2(problem.N) // (MAX_TILE_WARPS * WARP)
    fits = elements * max(problem.itemsize, 2) <= MAX_TILE_BYTES
    busy = limits.sm_count * twice <= 2 * problem.M * problem.K
    return fits and busy and twice <= min(problem.K, 8) and twice * problem.itemsize <= SECTOR_BYTES


def _narrow(problem: Problem) -> Iterator[Configuration]:
    """Rows by single warps, two or four to each."""
    vector = VECTOR_BYTES // problem.itemsize
    if narrow_rows(problem, vector):
        for rows in (1, 2) if problem.N % vector == 0 else (1,):  # edges of four rows spill
            first = narrow(problem, OCCUPANCY, vector)
            yield first._replace(elements=first.elements * rows, block_k=first.block_k * rows)


def plan(M: int, N: int, K: int, itemsize: int, accumulators: int, limits: Limits) -> Plan:
    """The launch that is chosen for these sizes, none of them 0."""
    problem = Problem(M, N, K, itemsize, accumulators)
    return launch(problem, choose(problem, limits), limits)
