# SPDX-License-Identifier: Apache-2.0
"""How far a family's plans are from the fastest of its own configurations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from flag_gems_overrides.perf.losses import TOLERANCE, TOLERANCE_US
from flag_gems_overrides.perf.statistics import geomean
from flag_gems_overrides.perf.tune.families import Family
from flag_gems_overrides.perf.tune.journal import Measured


class Regret(NamedTuple):
    """What the choice for one problem costs."""

    problem: tuple
    chosen: tuple
    us: float
    best: tuple
    best_us: float
    by_estimate_us: float
    """Of the configuration that the family's estimate thinks best of those that were timed."""

    @property
    def ratio(self) -> float:
        return self.us / self.best_us

    @property
    def is_behind(self) -> bool:
        return self.best_us < self.us * (1 - TOLERANCE) and self.best_us + TOLERANCE_US < self.us


class Tally(NamedTuple):
    """The regrets of a family."""

    family: str
    problems: int
    behind: int
    ratio: float
    """Geometric mean of the chosen configuration's time over that of the fastest."""
    by_estimate: float
    """The same of the one that the estimate thinks best."""
    worst: float


def regrets(family: Family, measured: Iterable[Measured], limits: Any) -> list[Regret]:
    """Of each problem, the largest first."""
    plan = family.plan
    found = []
    for _, row, times in measured:
        us = dict(times)
        problem = plan.Problem(*row.problem)
        chosen, best = next(iter(us)), min(us, key=lambda each: us[each])
        by_estimate = min(us, key=lambda each: plan.estimate(problem, plan.Configuration(*each), limits))
        found.append(Regret(row.problem, chosen, us[chosen], best, us[best], us[by_estimate]))
    return sorted(found, key=lambda each: each.ratio, reverse=True)


def tally(family: str, found: list[Regret]) -> Tally:
    """Of at least one."""
    return Tally(
        family,
        len(found),
        sum(each.is_behind for each in found),
        geomean(each.ratio for each in found),
        geomean(each.by_estimate_us / each.best_us for each in found),
        max(each.ratio for each in found),
    )
