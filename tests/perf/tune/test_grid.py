# SPDX-License-Identifier: Apache-2.0
"""Problems that the tuner measures."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf import problems
from flag_gems_overrides.perf.cases import Shapes
from flag_gems_overrides.perf.tune import grid
from flag_gems_overrides.perf.tune.families import FAMILIES
from perf.tune.made import FAKE


def test_the_grid_is_coarse_first_and_each_problem_once():
    shapes = Shapes(Path(__file__).parents[3] / "benchmark" / "core_shapes.yaml")

    def points(seed):
        return list(grid.points(FAKE, grid.cases(FAKE, shapes, seed)))

    found = points(0)
    assert 500 < len(found) < 3000
    problems = [each.problem for each in found]
    assert len(set(problems)) == len(problems)
    assert problems == [each.problem for each in points(0)]
    other = {each.problem for each in points(1)}
    assert len(other & set(problems)) < len(problems) / 2
    early, late = problems[: len(problems) // 4], problems
    for size in ("M", "N", "K"):
        spread = [max(math.log2(getattr(p, size)) for p in part) for part in (early, late)]
        assert spread[0] > 0.8 * spread[1]
    assert {p.N % 16 == 0 for p in problems} == {True, False}
    assert all(math.prod(p[:3]) <= 4 * grid.MAX_ELEMENTS for p in problems)


def test_no_number_of_rows_or_columns_is_further_from_the_grid_than_the_lookup_reaches():
    assert grid.LEVELS[-1] / 2 <= table.MAX_DISTANCE


def test_random_problems_are_those_of_a_hunt_by_turns():
    found = list(grid.random_cases(FAMILIES["group_norm"], 6, 11))
    assert found[::2] == list(itertools.islice(problems.cases("group_norm", 11), 3))
    assert {case.op for case in found[1::2]} == {"group_norm_backward"}
