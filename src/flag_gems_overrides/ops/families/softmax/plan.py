# SPDX-License-Identifier: Apache-2.0
"""How a softmax of [M, N, K] over N is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, cdiv
from ...plans import table
from .column_plan import MAX_ROUNDS, has_few_words, rounds
from .defaults import default, is_tiny, others
from .held_plan import MAX_WARPS
from .launches import (
    Blocks,
    Configuration,
    Interleaved,
    Launched,
    Problem,
    Rows,
    Shape,
    Short,
    Single,
    Split,
    Strided,
    estimate,
    launch,
    launch_or_none,
    resident,
)
from .little import are_few_rows_of_float64

__all__ = [
    "Blocks",
    "Configuration",
    "Interleaved",
    "Launched",
    "Problem",
    "Rows",
    "Short",
    "Single",
    "Split",
    "Strided",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
]

# Of each program of a group that reads a row twice, at most, where the table has it though the default holds the row.
MAX_TILES_OF_LOOP = 2
# The share of the tiles of such a loop that has elements, at least, and of waves of programs that the default has so
# that each holds a row. Of the loops 0.54 and 0.87 were timed, of the waves 0.61 and 0.91.
MIN_FILLED_LOOP, MIN_FILLED_WAVES = 0.7, 0.9
# Elements of a thread of few columns, from which the table, of whose such problems none has more than 16, is too far.
MIN_ELEMENTS_OF_FEW = 32
# Tiles of a loop over columns by fewer warps than the default has: with 6 they were the best, with 21 not.
MAX_TILES_OF_NARROW_LOOP = 8
MAX_LOOPED_OF_FLOAT64 = 16
# The longest odd rows that are held where the table has a loop, longer ones were not timed, and how many of them for
# each multiprocessor, which has two at a time.
MAX_ODD_OF_FEW, MAX_ODD_PER_SM = 8192, 2


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, size, inputs = problem
    return inputs, size, K == 1, N == 1, math.gcd(N if K == 1 else K, VECTOR_BYTES // size)


def choose(problem: Problem, limits: Limits) -> Configuration:
    by_rules = default(problem, limits)
    # The table has times of short columns that were tiles of a power of two, and none of few columns as they lie.
    if (
        is_tiny(problem)
        or (are_few_rows_of_float64(problem) and by_rules.kernel == "rows")
        or by_rules.kernel in ("short", "interleaved", "strided", "blocks")
        or _is_held_float64(problem, by_rules)
    ):
        return by_rules
    found = table.lookup(
        "softmax",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    if found is None or _has_other_columns(problem, found, by_rules, limits):
        return by_rules
    if _is_needless_group(problem, found, by_rules, limits) or _has_many_words(problem, found, limits):
        return by_rules
    if _spills_in_a_loop(problem, found, limits) or _is_loop_of_float32(problem, found, by_rules, limits):
        return by_rules
    if _loops_too_long(problem, found, by_rules, limits) or _is_alone_in_waves(problem, found, by_rules, limits):
        return by_rules
    return found


def _is_held_float64(problem: Problem, by_rules: Configuration) -> bool:
    """Whether the default holds long rows of float64 by as many elements to a thread as there are registers for, where
    the table has loops: softmax 195 x 91811 118 us, by the table 130 (H100).
    """
    return problem.itemsize == 8 and problem.K == 1 and by_rules.elements > MAX_LOOPED_OF_FLOAT64


def _is_needless_group(problem: Problem, found: Configuration, by_rules: Configuration, limits: Limits) -> bool:
    """Whether the table has a group for rows that the default has in one tile, or, of float64, reads twice.

    A group was the best of no such row, only of longer ones: softmax 90 x 10840 float32 8.2 us by groups of 4, in one
    tile of 16 warps 7.0 (FlagGems 7.9), 80 x 16384 10.2 and 9.9, 40 x 12000 6.9 and 5.9. Long rows of float64 were
    timed in groups only: log_softmax 213 x 24979 70 us by 25 programs, read twice by one 46. Or in one that
    starts anywhere, if programs fill their waves: the gradient of softmax 8984 x 14637 float16 267 us by one of 32
    warps for each row, by groups of 8 283, softmax 128 x 15239 float32 11.1 and 11.7; not two thirds of two waves, the
    gradient of 161 x 10991, 13.4 and 12.7 (H100).
    """
    if problem.K > 1 or found.group == 1 or by_rules.group > 1:
        return False
    if by_rules.kernel == "rows" or problem.itemsize == 8:
        return True
    launched = launch(problem, by_rules, limits)
    at_once = max(resident(Shape(*by_rules[1:4]), limits), 1)
    held = isinstance(launched, Split) and not launched.looped
    return held and MIN_FILLED_WAVES * cdiv(problem.M, at_once) * at_once <= problem.M


def _has_other_columns(problem: Problem, found: Configuration, by_rules: Configuration, limits: Limits) -> bool:
    """Whether the table has another way to read columns than the default, which fits them better: few, which one
    program holds, though multiprocessors are idle, softmax 1 x 698 x 40 float32 4.8 us by the default and 5.7, the
    gradient of 1 x 416 x 88 bf16 4.55 and 5.1; in a loop by more warps, 1 x 669 x 32768 bf16 62.8 and 74.8 (H100).
    """
    default_columns = launch(problem, by_rules, limits)
    if problem.K == 1 or problem.itemsize == 8 or not isinstance(default_columns, Split) or default_columns.group > 1:
        return False
    if not default_columns.looped:
        long = default_columns.depth * default_columns.vec >= MIN_ELEMENTS_OF_FEW
        return long and default_columns.programs < limits.sm_count
    looped = launch(problem, found, limits)
    if not isinstance(looped, Split) or looped.group > 1 or found.warps >= by_rules.warps:
        return False
    return cdiv(problem.N, looped.depth * looped.lanes) > MAX_TILES_OF_NARROW_LOOP


def _has_many_words(problem: Problem, found: Configuration, limits: Limits) -> bool:
    """Whether the table has a group of columns that the default has fewer of, for fewer words of each other: softmax
    100000 x 64 bf16 30 us by 64 columns, by 32 23 (H100).
    """
    launched = launch(problem, found, limits)
    if not isinstance(launched, Split) or launched.contiguous or launched.vec == 1:
        return False
    return has_few_words(problem, limits) and rounds(launched, problem.inputs) > MAX_ROUNDS


def _spills_in_a_loop(problem: Problem, found: Configuration, limits: Limits) -> bool:
    """Whether the table has 32 elements of float64 to a thread in a loop, of which each load waits for the one before:
    softmax 624 x 277360 2061 us, with 16 1361 (H100).
    """
    launched = launch(problem, found, limits)
    looped = isinstance(launched, Split) and launched.contiguous and launched.looped
    return looped and problem.itemsize == 8 and found.elements > MAX_LOOPED_OF_FLOAT64


def _is_alone_in_waves(problem: Problem, found: Configuration, by_rules: Configuration, limits: Limits) -> bool:
    """Whether the table has rows in one tile of as many warps as a multiprocessor has registers for, more than run at
    once, which the default reads twice or by parts: log_softmax 256 x 20476 float16 12.1 us by the default, so 15.3,
    softmax 500 x 20476 bf16 19.8 and 26.5; 128 x 18684 was best so (H100).
    """
    alone = found.kernel == "rows" and found.warps == MAX_WARPS and by_rules.kernel != "rows"
    return alone and limits.sm_count < problem.M


def _is_loop_of_float32(problem: Problem, found: Configuration, by_rules: Configuration, limits: Limits) -> bool:
    """Whether the table has whole vectors of float32 forward in a loop of one program, where the default has a program
    of as many warps or more, which holds the row or reads it twice: softmax 1322 x 8192 31.0 us by the default, in the
    table's loop 34.8, 1322 x 12288 45.9 and 50.1, 300 x 16384 16.9 and 17.9, 1322 x 16384 60.1 and 68.3 (FlagGems
    61.6), 1322 x 24576 93.6 and 111, 500 x 8192 14.2 and 14.1. Not where only the table's all run at once: 300 x 28672
    34.9 and 33.2. Of a group, where those of the default all do and read the row twice: 140 x 24576 14.7 and 15.6, 217
    x 19304, which the group holds, 16.4 and 18.5 (H100).
    """
    if (problem.itemsize, problem.inputs, problem.K, by_rules.group) != (4, 1, 1, 1):
        return False
    looped = launch(problem, found, limits)
    if not isinstance(looped, Split) or looped.unaligned or found.warps > by_rules.warps:
        return False
    if not looped.looped and (looped.group == 1 or limits.sm_count >= problem.M):
        return False
    by_default = launch(problem, by_rules, limits)
    if not isinstance(by_default, Split) or not by_default.looped:
        return looped.group == 1
    at_once, by_table = (resident(Shape(*each[1:4]), limits) for each in (by_rules, found))
    return at_once >= problem.M or (looped.group == 1 and by_table < problem.M)


def _loops_too_long(problem: Problem, found: Configuration, by_rules: Configuration, limits: Limits) -> bool:
    """Whether the table has a loop where the default holds a row, though what was timed was no loop, or a shorter one.

    A group of as many programs as were best for shorter rows loops over more tiles than any of the table: softmax 216 x
    49696 float32 36.8 us by the default, by 5 programs in a loop of 3 tiles 47.1; 150 x 60000 32.8 and 33.2 (H100). Of
    fewer rows than multiprocessors those that start anywhere: softmax 23 x 122263 float16 10.6 and 11.7, 74 x 42635
    float32 14.5 and 15.2, 68 x 104063 bf16 17.9 and 17.7. Nor had those of the table so little in the second tile as
    the gradients of log_softmax 314 x 20631 float32, 34.5 us by the default and 39.6, and 3 x 263945 bf16, 7.3 and 8.2
    (H100); one row, for which half as many programs as the default has are the table's best, was not timed. Columns are
    in one tile where they were timed: softmax 24 x 51 x 131072 float32 in 64 columns, a loop that spills, 872 us
    (FlagGems 681, H100). Those of 16 bits that a group holds were not timed held: softmax 1 x 2048 x 102832 bf16 497
    us, by two programs in a loop 544 (H100). Nor were odd rows of 16 bits held that all have programs at once: softmax
    119 x 7029 bf16 4.8 us, in a loop 5.4 (FlagGems 5.2), 125 x 6013 4.65 and 5.35, 200 x 7029 5.8 and 6.2, 264 x 6013
    5.8 and 6.6, but 500 x 7501 float16 11.2 and 10.2 (H100).
    """
    looped, held = (launch(problem, each, limits) for each in (found, by_rules))
    if not isinstance(looped, Split) or not looped.looped or (isinstance(held, Split) and held.looped):
        return False
    few = MAX_ODD_PER_SM * limits.sm_count
    if not looped.contiguous:
        return looped.group == 1 or (problem.itemsize == 2 and isinstance(held, Split) and held.group > 1)
    if looped.group == 1 and (problem.itemsize, problem.inputs) == (2, 1) and few >= problem.M:
        return problem.N % 2 == 1 and MAX_ODD_OF_FEW >= problem.N
    of_group = looped.group * looped.depth * looped.lanes
    tiles = cdiv(problem.N // looped.vec, of_group)
    many = tiles > MAX_TILES_OF_LOOP and (looped.unaligned or limits.sm_count <= problem.M)
    empty = problem.N // looped.vec < MIN_FILLED_LOOP * tiles * of_group
    return looped.group > 1 and problem.M > 1 and (many or (empty and tiles == MAX_TILES_OF_LOOP))


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: the neighbours of it that are legal and another launch."""
    first = default(problem, limits)
    candidates = [first]
    for field in ("elements", "warps", "group", "block_k"):
        value = getattr(first, field)
        candidates += [first._replace(**{field: value * 2}), first._replace(**{field: value // 2})]
    candidates += others(problem, limits)
    found: dict[Launched, Configuration] = {}
    for candidate in candidates:
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def plan(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Launched:
    """The launch that is chosen for these sizes, none of them 0."""
    problem = Problem(M, N, K, size, inputs)
    return launch(problem, choose(problem, limits), limits)
