# SPDX-License-Identifier: Apache-2.0
"""Which configurations are timed."""

from __future__ import annotations

import pytest

from flag_gems_overrides.perf.tune.candidates import MAX_CANDIDATES, OF_EACH_KERNEL, candidates, neighbours
from flag_gems_overrides.perf.tune.families import FAMILIES
from flag_gems_overrides.perf.tune.grid import points, random_cases
from perf.tune.made import FAKE, LIMITS, point


def test_the_default_comes_first_then_two_of_the_kernel_then_neighbours_and_the_best_take_turns():
    # 8 and 2 warps are neighbours of the default, which has 4; 1 and 2 are the best two by the estimate.
    assert [c.warps for c in candidates(point(), LIMITS)] == [4, 1, 2, 8, 3, 5, 16, 32]


def test_what_the_plan_chooses_comes_first_if_asked_for():
    assert candidates(point(), LIMITS, chosen=True)[0] == FAKE.plan.choose(point().problem, LIMITS)


def test_neighbours_differ_in_one_field():
    first = FAMILIES["softmax"].plan.Configuration("rows", 8, 4, prefetch=False)
    found = list(neighbours(first))
    assert first._replace(elements=16) in found
    assert first._replace(elements=4) in found
    assert first._replace(prefetch=True) in found
    assert first._replace(stages=3) in found
    assert all(sum(a != b for a, b in zip(first, each, strict=True)) == 1 for each in found)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_candidates_of_each_of_its_kernels(name):
    family = FAMILIES[name]
    for each in points(family, random_cases(family, 40, 1)):
        found = candidates(each, LIMITS, chosen=True)
        plan = family.plan
        assert found[0] == plan.choose(each.problem, LIMITS)
        launched = [plan.launch_or_none(each.problem, c, LIMITS) for c in found]
        assert None not in launched
        assert len(set(launched)) == len(found) <= MAX_CANDIDATES
        listed = {c.kernel for c in plan.configurations(each.problem, LIMITS)}
        if len(listed) * OF_EACH_KERNEL < MAX_CANDIDATES:
            assert listed <= {c.kernel for c in found}
