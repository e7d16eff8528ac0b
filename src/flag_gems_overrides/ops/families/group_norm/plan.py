# SPDX-License-Identifier: Apache-2.0
"""How a group norm of [N, C, HW] is launched: plain numbers in, a plan out."""

from __future__ import annotations

from collections.abc import Iterator

from ...launch.devices import Limits
from ...plans import table
from .backward_plan import (
    groups_as_they_lie,
    groups_beside_channels,
    long_channels_of_16_bits,
    odd_groups_of_16_bits,
    tile_loops,
    whole_groups,
)
from .estimate import estimate
from .forward_plan import held_rows, in_chunks_of_a_warp, in_three_chunks, in_two_chunks, short_rows, vector_loops
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
from .legal import launch, launch_or_none, span, widest
from .programs import STAGES

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
    """The default and the configurations worth timing beside it. All are legal, and their launches differ."""
    found: dict[Launch, Configuration] = {}
    for candidate in _candidates(problem, limits):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def plan(problem: Problem, limits: Limits) -> Launch:
    """The chosen launch of a problem of at least one element."""
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
    """The legal configuration with the least estimated time."""
    unlisted = _unlisted(problem, limits)
    if unlisted is not None:
        return unlisted
    legal = (each for each in _defaults(problem, limits) if launch_or_none(problem, each, limits) is not None)
    return min(legal, key=lambda each: estimate(problem, each, limits))


def _defaults(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    if problem.inputs == 1:
        yield held_rows(problem, limits)
        yield from vector_loops(problem, limits)
    else:
        yield from whole_groups(problem, limits)
        yield from groups_beside_channels(problem, limits)
        yield from groups_as_they_lie(problem, limits)
        yield from tile_loops(problem, limits)


def _unlisted(problem: Problem, limits: Limits) -> Configuration | None:
    """Configurations of short, odd and long groups, which no table has."""
    return (
        in_three_chunks(problem, limits)
        or short_rows(problem, limits)
        or in_two_chunks(problem, limits)
        or in_chunks_of_a_warp(problem, limits)
        or odd_groups_of_16_bits(problem, limits)
        or long_channels_of_16_bits(problem, limits)
    )
