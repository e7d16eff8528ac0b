# SPDX-License-Identifier: Apache-2.0
"""What a step calls is what is tuned."""

from __future__ import annotations

import flag_gems
import pytest
import torch

from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf.tune import called
from flag_gems_overrides.perf.tune.families import FAMILIES
from flag_gems_overrides.perf.tune.grid import points, random_cases

# Sizes that no other test has: what a process has launched before is planned already.
ROWS, COLUMNS = 37, 211


def step():
    norm = torch.nn.GroupNorm(4, 12, device=flag_gems.device)
    x = torch.randn(ROWS, COLUMNS, device=flag_gems.device, requires_grad=True)
    torch.softmax(x, -1).sum().backward()
    norm(torch.randn(3, 12, 7, device=flag_gems.device))
    return x.var()


def test_problems_are_those_of_the_overrides_that_a_step_launches():
    lookup = table.lookup
    found = called.problems_of(step)
    assert table.lookup is lookup
    softmax = FAMILIES["softmax"].plan.Problem
    assert found["softmax"] == [softmax(ROWS, COLUMNS, 1, 4, 1), softmax(ROWS, COLUMNS, 1, 4, 2)]
    assert [tuple(problem[:4]) for problem in found["group_norm"]] == [(12, 3, 7, 4)]
    [of_family] = [called.points(FAMILIES["softmax"], found["softmax"])]
    assert [point.case.key for point in of_family] == [
        f"softmax {ROWS}x{COLUMNS} dim=1 float32",
        f"softmax_backward {ROWS}x{COLUMNS} dim=1 float32",
    ]


def test_nothing_is_noted_after_a_step_that_fails():
    lookup = table.lookup
    with pytest.raises(ZeroDivisionError):
        called.problems_of(lambda: 1 // 0)
    assert table.lookup is lookup


@pytest.mark.parametrize("name", FAMILIES)
def test_every_problem_of_the_ops_of_a_family_has_a_case(name):
    family = FAMILIES[name]
    problems = [point.problem for point in points(family, random_cases(family, 60, 3))]
    found = called.points(family, problems)
    assert [point.problem for point in found] == problems


def test_moments_have_no_case():
    family = FAMILIES["reduction"]
    assert called.points(family, [family.plan.Problem(64, 64, 1, 4, 3)]) == []
