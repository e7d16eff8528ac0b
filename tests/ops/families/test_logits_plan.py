# SPDX-License-Identifier: Apache-2.0
"""What the cross entropy of logits is planned as, without a GPU."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flag_gems_overrides.ops.families.gather import logits_plan
from flag_gems_overrides.ops.families.gather.launches import Problem
from flag_gems_overrides.ops.families.gather.plan import WARPS
from flag_gems_overrides.ops.launch.devices import Limits

H200 = Limits(132, 60 << 20, 65536, 2048, 227 << 10, (9, 0))


@given(N=st.integers(1, 3000) | st.integers(1, 1 << 24), C=st.integers(1, 1024), size=st.sampled_from([2, 4, 8]))
@example(2100, 1000, 2)
@example(1422493, 9, 2)
def test_whole_rows_of_logits(N, C, size):
    problem = Problem(N, C, 1, size)
    if not logits_plan.is_whole(problem):
        return
    found = logits_plan.cross_entropy(problem, H200, False, True)
    assert isinstance(found, logits_plan.Whole)
    threads = found.warps * 32
    assert C <= found.block_c < 2 * C
    assert C % found.vec == 0
    assert 0 < found.programs * found.block_r < N + found.block_r or found.programs == 1
    assert found.registers * threads <= H200.registers_per_sm
    # Warps beyond the fewest have a piece for each thread, and run at once.
    assert found.warps <= WARPS or threads <= found.block_r * found.block_c // found.vec
    assert found.warps <= WARPS or found.programs * threads <= H200.sm_count * H200.threads_per_sm


@pytest.mark.parametrize(("C", "size", "rows"), [(102, 2, 4), (101, 2, 4), (101, 4, 4), (140, 2, 4), (104, 2, 16)])
def test_a_thread_has_parts_of_one_row_of_many_pieces(C, size, rows):
    """Several are more than 64 registers hold."""
    assert logits_plan.cross_entropy(Problem(262144, C, 1, size), H200, False, True).block_r == rows


@pytest.mark.parametrize("problem", [(31, 49, 1, 2), (35, 17, 1, 2), (64, 27, 1, 2), (86, 11, 1, 4), (8, 97, 1, 4)])
def test_few_logits_are_of_one_program(problem):
    found = logits_plan.cross_entropy(Problem(*problem), H200, False, True)
    assert found.programs == 1
    assert found.block_r * found.block_c <= 2 * 32 * found.warps


@pytest.mark.parametrize(("N", "C", "size", "warps"), [(1168, 163, 2, 4), (1024, 145, 4, 4), (132 * 4, 163, 2, 16)])
def test_several_programs_of_a_multiprocessor_have_few_warps(N, C, size, warps):
    found = logits_plan.cross_entropy(Problem(N, C, 1, size), H200, False, True)
    assert (found.block_r, found.warps) == (4, warps)


def test_several_programs_that_compute_in_float64_have_many_warps():
    assert logits_plan.cross_entropy(Problem(800, 200, 1, 8), H200, False, True).warps == 16


@pytest.mark.parametrize(("N", "C", "programs"), [(1643, 723, 822), (2048, 1000, 1024), (4001, 400, 1001)])
def test_rows_beyond_what_runs_at_once_are_in_equal_shares(N, C, programs):
    found = logits_plan.cross_entropy(Problem(N, C, 1, 2), H200, False, True)
    assert (found.warps, found.registers, found.programs) == (4, 64, programs)
    # All at once; a gradient is wanted.
    assert logits_plan.cross_entropy(Problem(1056, C, 1, 2), H200, False, True).registers != 64
    assert logits_plan.cross_entropy(Problem(N, C, 1, 2), H200, False, True, gradient=True).registers == 0
