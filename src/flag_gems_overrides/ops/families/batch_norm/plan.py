# SPDX-License-Identifier: Apache-2.0
"""How a batch norm of [M, N, K] over M and K is launched: plain numbers in, a plan out.

That of a tuned table, or else the one with the lowest estimate of all that are worth a look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, cdiv
from ...plans import table
from .channels_plan import channels_of
from .estimate import MIN_FLAT_US, estimate, estimate_launch
from .flat_plan import flat_of
from .groups_plan import groups_by_registers, groups_of
from .launches import launch, launch_or_none, places, tiles
from .types import TWO_TILES, Channels, Configuration, Flat, Groups, Launch, Problem, Tiling

__all__ = [
    "TWO_TILES",
    "Channels",
    "Configuration",
    "Flat",
    "Groups",
    "Problem",
    "Tiling",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
    "plan_evaluation",
    "plan_sums",
]

# Waves of programs that do not wait for each other, so that the last wave is a small part of the time.
WAVES = 4
# Configurations that are worth timing.
MAX_CONFIGURATIONS = 24


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, itemsize, inputs = problem
    return inputs, itemsize, K == 1, math.gcd(N if K == 1 else K, VECTOR_BYTES // itemsize)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup("batch_norm", problem, class_of, Configuration, launch_or_none, limits)
    return _fastest(problem, limits) if found is None else found


def _fastest(problem: Problem, limits: Limits) -> Configuration:
    best = _ranked(problem, limits, flat=False)[0]
    # Flat never takes less.
    if estimate(problem, best, limits) <= MIN_FLAT_US[problem.inputs]:
        return best
    found = _by_launch(problem, (best, *flat_of(problem, limits)), limits)
    return found[min(found, key=lambda launched: estimate_launch(problem, launched, limits))]


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """Legal configurations that are worth timing, one for each different launch: those with the lowest estimates."""
    return _ranked(problem, limits)[:MAX_CONFIGURATIONS]


def _ranked(problem: Problem, limits: Limits, flat: bool = True) -> list[Configuration]:
    candidates = (*channels_of(problem, limits), *groups_of(problem, limits))
    found = _by_launch(problem, (*candidates, *(flat_of(problem, limits) if flat else ())), limits)
    return [found[each] for each in sorted(found, key=lambda launched: estimate_launch(problem, launched, limits))]


def _by_launch(problem: Problem, candidates: Iterable[Configuration], limits: Limits) -> dict[Launch, Configuration]:
    """The first configuration of each different launch."""
    found: dict[Launch, Configuration] = {}
    for each in dict.fromkeys(candidates):
        launched = launch_or_none(problem, each, limits)
        if launched is not None:
            found.setdefault(launched, each)
    return found


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch for these sizes, none of them 0."""
    return launch(problem, choose(problem, limits), limits)


def plan_sums(problem: Problem, limits: Limits) -> Launch:
    """The launch in evaluation where sums are wanted. Flat's kernels do not add up in evaluation."""
    return launch(problem, _ranked(problem, limits, flat=False)[0], limits)


def plan_evaluation(problem: Problem, limits: Limits) -> Groups:
    """The launch in evaluation where no program needs the sums of another. Each group has one block of channels."""
    _, channels, warps, loads, warps_per_sm, _, padded, *_ = groups_by_registers(problem, limits)
    tiling = tiles(problem, channels, warps, loads, padded)
    count = cdiv(tiling.total, tiling.rows)
    group = max(1, min(cdiv(WAVES * places(tiling, warps_per_sm, limits), tiling.blocks), count))
    slice_size = cdiv(count, group) * tiling.rows
    group = cdiv(tiling.total, slice_size)
    return Groups(tiling, group, slice_size, 1, group * tiling.blocks, 0, 1)
