# SPDX-License-Identifier: Apache-2.0
"""Which configurations of a problem are worth timing."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from flag_gems_overrides.perf.tune.families import Point

# Of a problem. 1300 random problems with twelve each take four H100s and 64 cores five minutes.
MAX_CANDIDATES = 12
# Of each kernel, whatever the estimate thinks of the others.
OF_EACH_KERNEL = 2
# Configurations of the least estimated time whose neighbours are candidates too.
MAX_CENTERS = 4


def candidates(point: Point, limits: Any, chosen: bool = False) -> list[Any]:
    """The default configuration, then others that are legal, each another launch.

    First the two of each kernel that the family's estimate thinks best. Then the neighbours of the default and the best
    of all take turns: the estimate knows little of what neighbours differ in.

    Args:
        chosen: the first is what the plan chooses, with the device's table.
    """
    plan, problem = point.family.plan, point.problem
    listed = plan.configurations(problem, limits)
    first = plan.choose(problem, limits) if chosen else listed[0]
    launches = {plan.launch_or_none(problem, first, limits): first}

    def add(configuration: Any) -> None:
        launched = plan.launch_or_none(problem, configuration, limits)
        if launched is not None:
            launches.setdefault(launched, configuration)

    def ranked() -> list[Any]:
        return sorted(launches.values(), key=lambda each: plan.estimate(problem, each, limits))

    for each in listed:
        add(each)
    best = ranked()
    first_of_kernel = {each.kernel: each for each in reversed(best)}
    near = list(neighbours(first))
    for each in (*near, *(n for c in (*best[:MAX_CENTERS], *first_of_kernel.values()) for n in neighbours(c))):
        add(each)
    best = ranked()
    of_kernel = defaultdict(list)
    for each in best:
        of_kernel[each.kernel].append(each)
    found = dict.fromkeys([first, *(each for group in of_kernel.values() for each in group[:OF_EACH_KERNEL])])
    for pair in itertools.zip_longest([each for each in best if each in near], best):
        found |= dict.fromkeys(each for each in pair if each is not None)
    return list(found)[:MAX_CANDIDATES]


def neighbours(configuration: Any) -> Iterator[Any]:
    """One field twice as large, half as large, or the other of two; they may not be legal."""
    for field, value in configuration._asdict().items():
        if isinstance(value, bool):
            yield configuration._replace(**{field: not value})
        elif field == "stages":
            yield configuration._replace(stages=1 if value > 1 else 3)
        elif isinstance(value, int) and value > 0:
            yield configuration._replace(**{field: 2 * value})
            if value > 1:
                yield configuration._replace(**{field: value // 2})
