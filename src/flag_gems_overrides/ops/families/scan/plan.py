# SPDX-License-Identifier: Apache-2.0
"""How a cumsum over N of [M, N, K] is launched: plain numbers in, a plan out."""

from __future__ import annotations

from ...launch.devices import Limits
from ...plans import table
from .candidates import columns, rows
from .estimate import estimate
from .launches import (
    KNOWN_MULTIPLE,
    Alone,
    Chunks,
    Configuration,
    Flat,
    Interleaved,
    Launch,
    Problem,
    Shared,
    Stacked,
    at_once,
    launch,
    launch_or_none,
    merged,
    vector,
)
from .rules import of_a_row, of_columns

__all__ = [
    "KNOWN_MULTIPLE",
    "Alone",
    "Chunks",
    "Configuration",
    "Flat",
    "Interleaved",
    "Problem",
    "Shared",
    "Stacked",
    "at_once",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "merged",
    "plan",
    "vector",
]

# Configurations of a problem at most.
MAX_CONFIGURATIONS = 24


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    return problem.integer, problem.size, problem.K == 1, *vector(problem)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup("scan", problem, class_of, Configuration, launch_or_none, limits)
    return found or configurations(problem, limits)[0]


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch that is chosen, for a problem of at least one element."""
    problem = Problem(*merged(*problem[:3]), *problem[3:])
    return launch(problem, choose(problem, limits), limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """Legal configurations, one for each launch: the rule's before all others, these by their estimate. The first is
    the default."""
    found: dict[Launch, Configuration] = {}
    wide = of_columns(problem, limits) if problem.K > 1 else of_a_row(problem, limits)
    first = [wide] if wide else []
    for candidate in (*first, *(rows(problem, limits) if problem.K == 1 else columns(problem, limits))):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    by_estimate = sorted(found.values(), key=lambda each: (each != wide, estimate(problem, each, limits)))
    return by_estimate[:MAX_CONFIGURATIONS]
