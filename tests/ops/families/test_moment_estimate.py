# SPDX-License-Identifier: Apache-2.0
"""What the estimate chooses for moments: what was timed is planned so."""

from __future__ import annotations

import pytest
from gpus import H200
from hypothesis import given
from hypothesis import strategies as st
from moment_rules import configuration_by_rules

from flag_gems_overrides.ops.families.reduction import plan
from flag_gems_overrides.ops.families.reduction.launches import Problem, launch, launch_or_none
from flag_gems_overrides.ops.families.reduction.moment_candidates import candidates, has_registers_to_merge

problems = st.builds(
    Problem,
    st.integers(1, 1 << 16),
    st.integers(4, 1 << 16),
    st.one_of(st.just(1), st.integers(1, 1 << 12)),
    st.sampled_from([2, 4, 8]),
    st.just(3),
)


@pytest.mark.parametrize(
    ("M", "N", "K", "itemsize", "launched"),
    [
        (44, 14633, 2, 2, ("columns", 64, 16, 2)),  # var_mean: 5.40 us, by the rules 8.10 (H200)
        (1350, 1024, 2, 2, ("columns", 64, 1, 2)),  # 6.02, 10.3
        (1, 58292, 26, 4, ("columns", 32, 16, 16)),  # 9.37, 15.8
        (21, 47869, 2, 8, ("columns", 8, 2, 2)),  # 13.9, 20.0
        (300000, 97, 1, 4, ("rows", 16, 4, 1)),  # 37.4, 62.6
        (56686, 137, 1, 2, ("rows", 32, 2, 1)),  # 12.2, 18.2
        (2561, 348, 1, 2, ("rows", 8, 2, 1)),  # 3.97, 5.48
    ],
)
def test_the_estimate_knows_better_than_the_rules(M, N, K, itemsize, launched):
    chosen = plan.choose(Problem(M, N, K, itemsize, 3), H200)
    assert (chosen.kernel, chosen.elements, chosen.warps, chosen.block_k) == launched
    assert chosen != configuration_by_rules(M, N, K, itemsize)


@pytest.mark.parametrize(
    ("M", "N", "K", "itemsize"),
    [
        (1, 65536, 256, 2),  # pipelined: 19.4 us, by the estimate 22.7 (H200)
        (20000, 1000, 3, 2),  # classes: 45.8 and 52.4
        (5059512, 16, 1, 4),  # short rows: 110 and 121
        (3, 5, 7, 4),  # little
        (100000, 3, 1, 4),  # a few elements of each result
    ],
)
def test_the_rules_choose_where_the_estimate_knows_less(M, N, K, itemsize):
    assert plan.choose(Problem(M, N, K, itemsize, 3), H200) == configuration_by_rules(M, N, K, itemsize)


@given(problems)
def test_candidates_are_launches_that_have_all_elements(problem):
    found = [
        planned for each in candidates(problem, H200) if (planned := launch_or_none(problem, each, H200)) is not None
    ]
    for planned in found:
        results = planned.block_k if planned.kernel == "columns" else planned.block_m
        assert planned.blocks * results >= problem.M * problem.K
        assert plan.estimate_moments(problem, planned, H200) > 0


def test_a_warp_merges_no_more_results_than_it_has_registers_for():
    problem = Problem(128, 55978, 12, 2, 3)
    spills = plan.Configuration("columns", 32, 1, 24, 1, 16)
    assert not has_registers_to_merge(problem, launch(problem, spills, H200))
    assert has_registers_to_merge(problem, launch(problem, plan.choose(problem, H200), H200))
