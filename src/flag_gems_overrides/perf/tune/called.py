# SPDX-License-Identifier: Apache-2.0
"""The problems that a step of the user's has: what to tune where the step is what must be fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flag_gems_overrides import environment, registration
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.cases import Case
from flag_gems_overrides.perf.steps import Step
from flag_gems_overrides.perf.tune import grid
from flag_gems_overrides.perf.tune.families import Family, Point
from flag_gems_overrides.registration import upstream


def problems_of(step: Step) -> dict[str, list[Any]]:
    """The problems that overrides plan for in one call of a step, by family. What this process has launched before is
    planned already and is not among them."""
    with registration.use_overrides() as names, upstream.use_gems(environment.load(), names), planned() as found:
        step()
    return {family: list(problems) for family, problems in found.items()}


@contextmanager
def planned() -> Iterator[dict[str, dict[Any, None]]]:
    """Collects the problems that plans look up, by family, in the order of the first launch."""
    found: dict[str, dict[Any, None]] = {}
    lookup = table.lookup

    def look_up_and_note(family: str, problem: Any, *rest: Any) -> Any:
        found.setdefault(family, {})[problem] = None
        return lookup(family, problem, *rest)

    table.lookup = look_up_and_note  # type: ignore[assignment]
    try:
        yield found
    finally:
        table.lookup = lookup


def points(family: Family, problems: Iterable[Any]) -> list[Point]:
    """The problems that a case of the family's ops has. Moments have none: their kernels are not tuned."""
    cases = [(problem, _case_of(family, problem)) for problem in problems]
    return [Point(family, case, problem) for problem, case in cases if case is not None]


def _case_of(family: Family, problem: Any) -> Case | None:
    for op in family.ops:
        for dtype in OPERATORS[op].dtypes:
            case = grid.case(op, problem[:3], dtype, getattr(problem, "groups", None))
            if family.call.problem(op, *op_inputs.arguments(case, "meta")) == problem:
                return case
    return None
