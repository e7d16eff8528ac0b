# SPDX-License-Identifier: Apache-2.0
"""How rms_norm is launched forward: what was timed is planned so."""

from __future__ import annotations

import pytest
from gpus import H200

from flag_gems_overrides.ops.families.norm import rms_plan
from flag_gems_overrides.ops.families.norm.launches import (
    Loop,
    Problem,
    Rows,
)


@pytest.mark.parametrize(
    ("M", "N", "size", "residual", "early"),
    [
        (216, 8192, 4, False, True),
        (400, 8192, 4, False, True),
        (300, 16384, 2, False, True),
        (700, 8192, 4, False, True),
        (400, 4096, 4, False, True),
        (800, 16384, 2, False, True),
        (1000, 8192, 4, False, False),
        (300, 16384, 2, True, False),
    ],
)
def test_hardly_more_rows_than_pipelines_have_a_program_each_in_rms_norm(M, N, size, residual, early):
    p = rms_plan.plan_forward(Problem(M, N, 1, size, False, residual), H200)
    assert (isinstance(p, Rows) and (p.programs, p.stages, p.late) == (M, 1, False)) == early


@pytest.mark.parametrize(("N", "vec"), [(1100001, 8), (1100002, 8), (139510617, 8)])
def test_rms_norm_reads_a_single_row_in_vectors(N, vec):
    for residual in (False, True):
        p = rms_plan.plan_forward(Problem(1, N, 1, 2, False, residual), H200)
        assert isinstance(p, rms_plan.Split)
        assert p.vec == vec


@pytest.mark.parametrize(
    ("M", "N", "size", "residual", "pairs"),
    [(16384, 802, 2, False, True), (9000, 1002, 2, False, True)]
    + [
        (16384, 738, 2, True, False),
        (16384, 740, 2, False, False),
        (16384, 1026, 2, False, False),
        (4000, 738, 2, False, False),
    ],
)
def test_rms_norm_reads_many_rows_of_pairs_without_pipelines(M, N, size, residual, pairs):
    p = rms_plan.plan_forward(Problem(M, N, 1, size, False, residual), H200)
    assert isinstance(p, rms_plan.Rows)
    assert ((p.vec, p.warps, p.stages, p.block_m, p.programs) == (2, 2, 1, 1, M)) == pairs


@pytest.mark.parametrize(
    ("M", "N", "size", "way"),
    [
        (5152, 276, 2, (4, 4, 3)),
        (4000, 490, 2, (4, 4, 8)),
        (2000, 276, 2, (1, 1, 2)),
        (16389, 17, 4, (4, 16, 1)),
        (920, 27680, 4, (16, 1, 14)),
        (700, 32768, 4, (16, 1, 16)),
    ],
)
def test_rows_of_rms_norm_that_are_a_warps_or_fill_a_multiprocessor(M, N, size, way):
    """Short ones by programs of four warps, long float32 by one of 16 where multiprocessors have equally many."""
    p = rms_plan.plan_forward(Problem(M, N, 1, size, False), H200)
    assert isinstance(p, rms_plan.Rows)
    assert (p.warps, p.block_m, p.chunks) == way
    assert N < 4096 or isinstance(rms_plan.plan_forward(Problem(270, N, 1, size, False), H200), Loop)


@pytest.mark.parametrize("residual", [False, True])
def test_rms_norm_reads_long_odd_rows_in_vectors(residual):
    odd, even = (rms_plan.plan_forward(Problem(425, N, 1, 2, False, residual), H200) for N in (178003, 178002))
    assert (odd.unaligned, odd.vec) == (True, 8)
    assert (even.unaligned, even.vec) == (False, 2)


# Rows, columns, and whether rms_norm holds rows of 16 bits with edges.
HELD_ROWS = [(579, 20361, True), (579, 20362, True), (579, 24001, True), (400, 17001, True), (1000, 30001, True)]
HELD_ROWS += [(579, 20364, False), (270, 20361, False), (264, 17001, False), (1000, 33001, False)]


@pytest.mark.parametrize(("M", "N", "held"), HELD_ROWS)
def test_rms_norm_holds_long_rows_with_edges_where_multiprocessors_have_equally_many(M, N, held):
    p = rms_plan.plan_forward(Problem(M, N, 1, 2, False), H200)
    assert isinstance(p, Rows) == held
    assert not isinstance(p, Rows) or (p.warps, p.unaligned, p.packed) == (16, True, True)


@pytest.mark.parametrize(
    ("M", "N", "warps"),
    [(8192, 6001, 4), (4096, 10001, 8), (4096, 12001, 8), (4096, 12288, 8), (500, 20001, 16), (300, 32768, 16)]
    + [(500, 10001, None), (1000, 12288, None), (4096, 24576, None), (100, 32768, None), (4096, 20004, None)],
)
def test_rms_norm_holds_rows_in_pairs_where_more_programs_fit(M, N, warps):
    p = rms_plan.plan_forward(Problem(M, N, 1, 2, False), H200)
    assert (p.warps if isinstance(p, Rows) and p.packed else None) == warps
    others = [rms_plan.plan_forward(Problem(M, N, 1, size, False, size == 2), H200) for size in (2, 4)]
    assert not any(isinstance(other, Rows) and other.packed for other in others)


@pytest.mark.parametrize(("M", "N", "way"), [(3000, 8879, (4, 128)), (3000, 9225, (8, 64)), (500, 8879, (8, 0))])
def test_long_odd_rows_of_rms_norm_have_limited_registers_instead_of_pipelines(M, N, way):
    p = rms_plan.plan_forward(Problem(M, N, 1, 2, False), H200)
    assert isinstance(p, Rows)
    assert (p.warps, p.registers) == way


@pytest.mark.parametrize(
    ("M", "N", "size", "shared"),
    [(1, 116109, 2, True), (1, 50257, 4, True), (1, 2**20 + 1, 2, False), (1, 50257, 8, False), (2, 2**21, 4, True)]
    + [(3253, 44208, 2, False), (1500, 60000, 2, True), (2000, 40000, 4, True), (270, 20000, 4, False)],
)
def test_programs_share_even_one_row_of_rms_norm(M, N, size, shared):
    p = rms_plan.plan_forward(Problem(M, N, 1, size, False), H200)
    assert (isinstance(p, Loop) and p.group > 1) == shared


@pytest.mark.parametrize(
    ("M", "N", "size", "warps"),
    [(10850, 8505, 4, 16), (133, 16382, 4, 16), (8192, 6457, 4, 8), (132, 8505, 4, None), (8192, 8505, 8, None)],
)
def test_long_rows_of_float32_that_are_no_vectors_have_a_program_each_in_rms_norm(M, N, size, warps):
    launched = rms_plan.plan_forward(Problem(M, N, 1, size, False), H200)
    edges = isinstance(launched, Rows) and launched.unaligned and launched.late
    assert (launched.warps if edges else None) == warps
    if edges:
        assert launched.programs == M
    of_sum = rms_plan.plan_forward(Problem(M, N, 1, size, False, True), H200)
    assert getattr(of_sum, "unaligned", False) == (warps == 8), "a residual has registers too"
