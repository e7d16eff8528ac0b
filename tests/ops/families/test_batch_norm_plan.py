# SPDX-License-Identifier: Apache-2.0
"""Which configuration of a batch norm is taken. The GPU is an H200."""

from __future__ import annotations

import pytest

from flag_gems_overrides.ops.families.batch_norm.launches import Problem
from flag_gems_overrides.ops.families.batch_norm.plan import choose, plan
from flag_gems_overrides.ops.launch.devices import Limits

H200 = Limits(132, 62914560, 65536, 2048, 227 << 10, (9, 0))


@pytest.mark.parametrize(
    ("M", "N", "kernel"),
    [
        (6117, 267, "groups"),
        (7697, 317, "groups"),
        (4000, 201, "groups"),
        (10963, 469, "flat"),
        (2000, 151, "channels"),
    ],
)
def test_a_row_of_the_table_is_taken_near_it_alone(M, N, kernel):
    """6117 x 267 is the nearest row of all of these."""
    assert choose(Problem(M, N, 1, 2, 2), H200).kernel == kernel


@pytest.mark.parametrize(("M", "N", "K", "edges"), [(3, 3, 8001, False), (40, 20, 3001, True), (8, 64, 1001, True)])
def test_forward_tiles_of_little_have_no_heads_and_tails(M, N, K, edges):
    assert (plan(Problem(M, N, K, 2, 1), H200).tiling.edges > 0) == edges
