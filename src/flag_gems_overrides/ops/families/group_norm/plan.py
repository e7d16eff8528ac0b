# SPDX-License-Identifier: Apache-2.0
"""How a group norm of [N, C, HW] is launched: plain numbers in, a plan out."""

from __future__ import annotations

from ...launch.devices import Limits
from ...plans import table
from .backward_plan import backward
from .estimate import estimate
from .forward_plan import forward
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
from .legal import launch, launch_or_none
from .loads import span, widest

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

# Maximum number of configurations that are worth timing.
MAX_CONFIGURATIONS = 24


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    vec = widest(problem)
    return problem.inputs, problem.dx, problem.itemsize, vec, problem.size % vec != 0, span(problem, vec)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup("group_norm", problem, class_of, Configuration, launch_or_none, limits)
    return found or configurations(problem, limits)[0]


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """Legal configurations whose launches differ, those with the least estimated time first."""
    found: dict[Launch, Configuration] = {}
    for candidate in (forward if problem.inputs == 1 else backward)(problem, limits):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None and not _exceeds_cache(problem, launched, limits):
            found.setdefault(launched, candidate)
    return sorted(found.values(), key=lambda each: estimate(problem, each, limits))[:MAX_CONFIGURATIONS]


def _exceeds_cache(problem: Problem, launched: Launch, limits: Limits) -> bool:
    """Whether a loop reads its groups from memory twice. 283 x 4 x 60 x 947 float16 in 4 groups: 236 us with 528 groups
    at once, 207 with 132 (H100)."""
    if not isinstance(launched, Loop | BackwardLoop):
        return False
    return launched.programs * problem.size * problem.itemsize * problem.inputs > limits.l2_bytes


def plan(problem: Problem, limits: Limits) -> Launch:
    """The chosen launch of a problem of at least one element."""
    return launch(problem, choose(problem, limits), limits)
