# SPDX-License-Identifier: Apache-2.0
"""How reductions are divided among programs: plain numbers in, a plan out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP, power_of_2
from ...plans import table
from .column_defaults import are_many_words, are_some_odd_words, columns, in_one_large_tile
from .defaults import kinds
from .estimate import estimate as estimate_values
from .launches import (
    KNOWN_MULTIPLE,
    MAX_CLASSES,
    Configuration,
    Plan,
    Problem,
    is_short,
    launch,
    launch_or_none,
)
from .moment_candidates import candidates as moment_candidates
from .moment_candidates import has_registers_to_merge
from .moment_estimate import estimate as estimate_moments
from .programs import LONG_WARPS, OCCUPANCY, SHORT_BYTES
from .row_defaults import (
    FEW_ROWS,
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
    "with_neighbours_together",
    "with_wide_accumulators",
    "with_wide_results",
]

# By whether the estimate is fitted to them, part of the time by the rules below which it chooses: to values and
# positions along a dimension that is not the last it is.
# Of rows it is no better than the rules: 27 x 57584 bf16: 5.89 us by the estimate, 5.08 by the rules (H100).
MODEL_GAIN = {True: 0.95, False: 0.8}
# The same of moments, by the kernel that the rules choose; of several tiles in flight, other kernels and short rows it
# knows less. var_mean 65536 x 256 bf16 along 0: 22.7 us by the estimate, 19.4 by the rules, which are pipelined;
# 5059512 x 16 float32: 121 and 110 us (H200).
MOMENTS_GAIN, PIPELINED_MOMENTS_GAIN, OTHER_MOMENTS_GAIN = {"columns": 0.94, "rows": 0.95, "classes": 0.82}, 0.88, 0.74
# Elements of a row of moments up to which it is short.
SHORT_MOMENTS = 32
# Elements of moments, and of a result, from which the estimate chooses.
MIN_MOMENTS = 8192, 4
# Elements for each multiprocessor up to which it chooses for all others.
MODEL_ELEMENTS = 8192
# Bytes of a row that is read as classes by the rules, at most, to which it is fitted: few longer ones were timed.
# amax 448 x 400 x 7 float64: 9.4 us as columns, 13.7 in classes; 4 x 289742 x 5 float16: 16.5 and 14.5 us (H100).
MODEL_CLASSES_BYTES = 524288
# By whether neighbours are combined in 32 bits first, elements of a thread where smaller elements are added up in 64
# bits. prod 4411664 int16: 11.7 us with 16 elements, 13.4 with 32; 134217728 uint8: 57.6 us with 32, 65 with 16 (H100).
WIDE_ELEMENTS = {False: 16, True: 32}
# Warps of such a program, at most.
WIDE_WARPS = 4
# Warps of a multiprocessor, at most, that such programs are planned for.
WIDE_OCCUPANCY = 24
# Elements of a thread of such classes of bytes, at most. With 16, 32 bytes of 1616 x 60075 x 7 int8 spill.
WIDE_CLASSES_ELEMENTS = 8
# Elements of a thread of one tile by more than 16 warps, at most, whose threads have 64 registers: prod of 64 int16
# takes 72.
WIDE_TILE_ELEMENTS = 32
# Elements of a thread of a loop of counts of 16 bits.
COUNTED_ELEMENTS = 16
# Warps of a multiprocessor that such a loop is planned for where a thread has twice as many elements.
COUNTED_OCCUPANCY = 24
# Elements of a thread of a loop that combines neighbours first; bytes for each multiprocessor, at least, that are worth
# it, and bytes of a row, at least, unless there are many.
# any 2097152 int8: 4.96 us, otherwise 4.85; all.dim 48 x 4 x 11770 int8: 5.42 us, otherwise 4.62 (H200).
TOGETHER_ELEMENTS, TOGETHER_BYTES, TOGETHER_ROW = 32, 16384, 32768
# Configurations that a tuner may time, at most.
MAX_CONFIGURATIONS = 24
# Elements of a thread of a tile that holds all of a few columns.
# sum 33 x 32 x 1024 bf16 by 1056 programs of 32 columns: 4.77 us, with 8 elements 5.68 (H100).
ELEMENTS = 16
# Warps of such a tile, at most.
MAX_TILE_WARPS = 16
# Columns of such a tile.
TILE_COLUMNS = (4, 8, 16, 32)
# Elements of a thread, and columns, of tiles that the estimate chooses among: a tile has two sectors or all columns.
# It does not know what less costs, and such tiles are as they were timed.
WIDE_TILES = [(elements, block_k) for elements in (8, 16, 32) for block_k in (8, 16, 32, 64)]
# Bytes of a thread of such a tile, at most.
# amax 12 x 80 x 2048 float32: 7.36 us, with twice as many 7.74 (H100).
MAX_TILE_BYTES = 128
# Elements of a column (more than), and of the tile, at most, where a program has a matrix of few columns
# (``_of_whole_matrices``).
MIN_WHOLE, MAX_WHOLE_TILE = 128, 4096
# Bytes of the input up to which it has. amax 6368 x 584 x 4 float32: 26.7 us, in classes 29.4 (H100).
MAX_WHOLE_BYTES = 64 << 20


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
    found = table.lookup("reduction", problem, class_of, Configuration, launch_or_none, limits)
    return configurations(problem, limits)[0] if found is None else found


def _elements(problem: Problem, limits: Limits) -> float:
    """Elements for each multiprocessor."""
    return problem.M * problem.N * problem.K / limits.sm_count


def with_wide_accumulators(
    problem: Problem, configuration: Configuration, limits: Limits, narrow: bool = False
) -> Configuration:
    """What to launch with where numbers of 64 bits are made of smaller elements, or of 32 bits if ``narrow``."""
    if configuration.kernel == "classes" and problem.itemsize == 1:
        return configuration._replace(elements=min(configuration.elements, WIDE_CLASSES_ELEMENTS))
    if configuration.kernel == "columns" and problem.K > 1:
        return _wide_columns(problem, configuration, limits)
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
        # Counts take more registers than sums, and 16 to 32 bytes of a loop of rows would spill. Of 16 warps with 32
        # elements half as many, shared by programs, have the registers.
        # count_nonzero 145 x 549016 bf16: 68.0 us, with half as many elements 70.6 (H100).
        if configuration.kernel != "rows" or _is_simple(problem, launch(problem, configuration, limits)):
            return configuration
        if configuration.warps > LONG_WARPS:
            return configuration._replace(warps=LONG_WARPS, occupancy=COUNTED_OCCUPANCY)
        return configuration._replace(elements=min(configuration.elements, COUNTED_ELEMENTS))
    by_columns = configuration.kernel == "columns" and problem.K > 1
    return _wide_columns(problem, configuration, limits) if by_columns else configuration


def with_neighbours_together(problem: Problem, configuration: Configuration, limits: Limits) -> Configuration:
    """What to launch with where a thread has few accumulators, because neighbours are combined first.

    any 1073741824 bool: 259 us, otherwise 274; all.dim 300 x 300001: 32.8 us, by eight warps 35.1, otherwise 47 (H200).
    """
    M, N, *_ = problem
    if configuration.kernel != "rows" or _is_simple(problem, launch(problem, configuration, limits)):
        return configuration
    if TOGETHER_BYTES * limits.sm_count > M * N or (N < TOGETHER_ROW and FEW_ROWS * limits.sm_count >= M):
        return configuration
    warps = LONG_WARPS if N % (VECTOR_BYTES // problem.itemsize) == 0 else LONG_WARPS // 2
    together = configuration._replace(elements=TOGETHER_ELEMENTS, warps=warps, occupancy=OCCUPANCY, stages=1)
    return together if launch_or_none(problem, together, limits) is not None else configuration


def _wide_columns(problem: Problem, configuration: Configuration, limits: Limits) -> Configuration:
    """By the rules where they chose, or where the estimate, which knows no such results, chose more of a thread."""
    by_rules = columns(problem, limits)
    keeps = configuration != by_rules and configuration.elements <= max(by_rules.elements, ELEMENTS)
    return configuration if keeps else columns(problem, limits, wide=True)


def _is_simple(problem: Problem, launched: Plan | None) -> bool:
    """Whether this is a launch in which a result is of one tile."""
    if launched is None:
        return False
    length = problem.N if launched.kernel == "columns" else problem.N * problem.K
    return launched.splits == 1 and launched.step >= length


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: other kernels, and neighbours of all that are legal.

    The default is by the rules, or by the estimate where it promises much.
    """
    if problem.accumulators == 3:
        return _of_moments(problem, limits)
    by_rules, *others = _candidates(problem, limits)
    us = {each: estimate(problem, each, limits) for each in (by_rules, *others)}
    as_columns = by_rules.kernel == "columns" or problem.N * problem.K * problem.itemsize <= MODEL_CLASSES_BYTES
    fitted = problem.K > 1 and as_columns
    known = [each for each in us if _is_known(problem, each, by_rules, limits)] if fitted else list(us)
    if problem.K == 1:
        # Of rows it takes long loops too lightly, and fewer warps were not timed.
        # max.dim 64 x 9581 float64: 10.2 us by a program for each row, by five of as many warps 7.73 (H100).
        known = [each for each in known if (each.split, each.warps) == (by_rules.split, by_rules.warps)]
    whole = _of_whole_matrices(problem, known, limits) if fitted and by_rules.kernel != "short_classes" else []
    default = min(whole or known, key=lambda each: us[each])
    most = math.inf if fitted else MODEL_ELEMENTS
    if not whole and (_elements(problem, limits) > most or us[default] >= MODEL_GAIN[fitted] * us[by_rules]):
        default = by_rules
    others = sorted(us, key=lambda each: us[each])[:MAX_CONFIGURATIONS]
    return [default, *(each for each in others if each != default)]


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds that a launch takes."""
    if problem.accumulators == 3:
        return estimate_moments(problem, launch(problem, configuration, limits), limits)
    return estimate_values(problem, configuration, limits)


def _of_moments(problem: Problem, limits: Limits) -> list[Configuration]:
    """As :func:`configurations`. By the rules where there is little, which the estimate was not fitted to."""
    M, N, K, *_ = problem
    fitted = MIN_MOMENTS[0] <= M * N * K and MIN_MOMENTS[1] <= N
    launches = _legal(problem, [*kinds(problem, limits), *moment_candidates(problem, limits)], limits)
    by_rules = next(iter(launches.values()))
    us = {
        each: estimate_moments(problem, planned, limits)
        for planned, each in launches.items()
        if each == by_rules or has_registers_to_merge(problem, planned)
    }
    default, *others = sorted(us, key=lambda each: us[each])[:MAX_CONFIGURATIONS]
    gain = MOMENTS_GAIN.get(by_rules.kernel, OTHER_MOMENTS_GAIN)
    if by_rules.stages > 1:
        gain = PIPELINED_MOMENTS_GAIN
    elif K == 1 and N <= SHORT_MOMENTS:
        gain = OTHER_MOMENTS_GAIN
    if not fitted or us[default] >= gain * us[by_rules]:
        others = [default, *(each for each in others if each != by_rules)]
        default = by_rules
    return [default, *others]


def _is_known(problem: Problem, each: Configuration, by_rules: Configuration, limits: Limits) -> bool:
    """Whether the estimate compares this well to the others.

    Sums of classes spill where programs have more than by the rules: 25995 x 831 x 5 bf16. Loops of programs that share
    nothing take longer than it says: amax 13168 x 44 x 42 bf16: 28.3 us by 64 columns, by 128 31.8 (H100).
    Of many columns of 32 bits it takes slower tiles for the faster ones.
    amax 40 x 752 x 1735 float32: 90.0 us by the rules, by half as many warps 102 (H100).
    """
    if each.kernel != "columns":
        return each in kinds(problem, limits)
    if not _is_loop(problem, each):
        if each.block_k < by_rules.block_k and in_one_large_tile(problem, limits):
            return False
        return each.elements * problem.itemsize <= MAX_TILE_BYTES or each.elements <= by_rules.elements
    if each.split:
        looped = by_rules.kernel != "columns" or _is_loop(problem, by_rules)
        by_rules_only = are_many_words(problem, limits) or are_some_odd_words(problem, limits)
        return looped and (each == by_rules or not by_rules_only)
    wider = each.block_k > max(by_rules.block_k, problem.K)
    return by_rules.kernel == "columns" and _is_loop(problem, by_rules) and not by_rules.split and not wider


def _is_loop(problem: Problem, each: Configuration) -> bool:
    """Whether columns have more elements than a tile."""
    return each.elements * each.warps * WARP < power_of_2(problem.N) * each.block_k


def _of_whole_matrices(problem: Problem, known: list[Configuration], limits: Limits) -> list[Configuration]:
    """Of few columns those that are one tile of all of a matrix, which are the fastest then.

    max.dim 2389 x 267 x 4 float32: 9.2 us, by more columns in a loop 10.2, in classes 12.4 (H100).
    Of more bytes classes may be as fast: amax 20000 x 1000 x 3 bf16: 59 us, in classes 51 (H100).
    """
    M, N, K, size, _ = problem
    few = K <= MAX_CLASSES and MIN_WHOLE < N and power_of_2(N) * power_of_2(K) <= MAX_WHOLE_TILE
    if not few or limits.sm_count > M or M * N * K * size > MAX_WHOLE_BYTES:
        return []
    columns = (each for each in known if each.kernel == "columns" and each.block_k == power_of_2(K))
    return [each for each in columns if not each.split and not _is_loop(problem, each)]


def _candidates(problem: Problem, limits: Limits) -> list[Configuration]:
    """By the rules first. All are legal, and each another launch."""
    others = kinds(problem, limits)
    candidates = [*others, *_in_one_tile(problem, limits), *_narrow(problem)]
    for each in others:
        for field in ("elements", "warps", "block_k"):
            value = getattr(each, field)
            candidates += [each._replace(**{field: value * 2}), each._replace(**{field: value // 2})]
        # As many elements of a tile.
        candidates += [
            each._replace(elements=each.elements * 2, warps=each.warps // 2),
            each._replace(elements=each.elements // 2, warps=each.warps * 2),
        ]
        candidates += [
            each._replace(split=not each.split),
            each._replace(stages=1 if each.stages > 1 else 3),
            each._replace(neighbours=not each.neighbours),
        ]
        if problem.N * problem.K % KNOWN_MULTIPLE == 0 or problem.N * problem.K * problem.itemsize <= SHORT_BYTES:
            # Longer odd rows are not read element by element.
            vector = 1 if each.vector > 1 else VECTOR_BYTES // problem.itemsize
            candidates.append(each._replace(vector=vector, neighbours=False))
    return list(_legal(problem, candidates, limits).values())


def _legal(problem: Problem, candidates: Iterable[Configuration], limits: Limits) -> dict[Plan, Configuration]:
    found: dict[Plan, Configuration] = {}
    for candidate in candidates:
        planned = launch_or_none(problem, candidate, limits)
        if planned is not None:
            found.setdefault(planned, candidate)
    return found


def _in_one_tile(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """All elements of a few columns, by many warps: nothing is looped over or exchanged."""
    neighbours = min(problem.K * problem.itemsize, LINE_BYTES)
    for block_k in TILE_COLUMNS if problem.K > 1 else ():
        # Less than a line of neighbours only where twice as many would leave multiprocessors without a program, or
        # threads with more elements.
        twice = 2 * block_k
        # Single values of 16 bits in whole pieces have twice as many.
        # amax 16 x 682 x 128 bf16: 5.54 us by 16 columns, 6.10 by 8 (H100).
        whole = problem.accumulators == 1 and problem.itemsize == 2 and problem.K % twice == 0
        most = (2 if whole else 1) * ELEMENTS * MAX_TILE_WARPS * WARP
        fits = twice <= TILE_COLUMNS[-1] and twice * power_of_2(problem.N) <= most
        busy = 9 * limits.sm_count * twice <= 10 * problem.M * problem.K
        if fits and busy and block_k * problem.itemsize < neighbours:
            continue
        if _is_part_of_a_sector(problem, block_k, limits):
            continue
        yield _tile(problem, ELEMENTS, block_k)
    if problem.K > 1:
        wide = min(problem.K * problem.itemsize, 2 * SECTOR_BYTES)
        yield from (_tile(problem, *each) for each in WIDE_TILES if each[1] * problem.itemsize >= wide)
        if problem.K == 2:
            yield _tile(problem, ELEMENTS, problem.K)


def _tile(problem: Problem, each: int, block_k: int) -> Configuration:
    """All elements of ``block_k`` columns, ``each`` to a thread or more."""
    lanes = block_k * power_of_2(problem.N)
    warps = min(max(lanes // (each * WARP), 1), MAX_TILE_WARPS)
    elements = max(lanes // (warps * WARP), 1)
    # A position for each element too spills 16 bytes in 64 registers.
    occupancy = OCCUPANCY // (2 if problem.accumulators == 2 and elements > ELEMENTS else 1)
    return Configuration("columns", elements, warps, occupancy, 1, block_k, False)


def _is_part_of_a_sector(problem: Problem, block_k: int, limits: Limits) -> bool:
    """Whether neighbours that programs read apart had better be one program's, whose threads can have them.

    This holds even if it leaves half of the multiprocessors without a program.
    sum 1 x 1106 x 1024 bf16: 5.36 us by programs of 8 columns, 6.10 by programs of 4 (H100).
    sum 1 x 1372 x 615 bf16: 4.71 us by 77 programs, 5.45 by 154 (H100).
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
