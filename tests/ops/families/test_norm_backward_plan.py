# SPDX-License-Identifier: Apache-2.0
"""How gradients of layer_norm and rms_norm are launched: what was timed is planned so."""

from __future__ import annotations

import pytest
from gpus import A100, H200
from norms import default

from flag_gems_overrides.ops.families.norm import rms_plan
from flag_gems_overrides.ops.families.norm.backward_plan import plan_partial_sums
from flag_gems_overrides.ops.families.norm.blocks_plan import plan_blocks
from flag_gems_overrides.ops.families.norm.launches import (
    FewRows,
    Problem,
    Rows,
    Split,
    TwoPasses,
)
from flag_gems_overrides.ops.families.norm.plan import plan
from flag_gems_overrides.ops.families.norm.two_passes_plan import moves_less

IN_ONE_LAUNCH = [(1000, 1, 2, True), (23, 5, 8, True), (64, 100, 2, True), (6, 1000, 4, True), (99, 3240, 4, True)]
IN_ONE_LAUNCH += [(941, 235, 4, True), (1000, 256, 2, False), (300, 2, 4, True), (200, 1, 4, False)]
IN_ONE_LAUNCH += [(2, 16385, 2, False), (2000, 63, 2, False), (1024, 1000, 2, False), (300, 3240, 4, False)]
IN_ONE_LAUNCH += [(1, 1000, 4, True), (1, 3000, 2, False), (1216, 1, 4, True), (5000, 1, 4, False), (2, 8193, 2, True)]


@pytest.mark.parametrize(("M", "N", "size", "few"), IN_ONE_LAUNCH)
def test_gradients_of_few_rows_of_rms_norm_are_one_launch(M, N, size, few):
    p = rms_plan.plan_backward(M, N, size, H200)
    assert isinstance(p, FewRows) == few
    assert not few or (p.row_programs + p.column_programs) * p.warps <= 16 * H200.sm_count


# Rows, columns, bytes, and warps of the one launch, 0 of others: of layer_norm and of rms_norm.
FEW_EDGES = [
    (256, 3283, 2, 4, 4),
    (200, 2501, 2, 4, 4),
    (512, 1501, 2, 4, 4),
    (256, 3282, 2, 4, 4),
    (300, 3001, 2, 4, 4),
]
FEW_EDGES += [
    (513, 1501, 2, 0, 0),
    (200, 2500, 2, 4, 4),
    (180, 3401, 2, 4, 4),
    (90, 5401, 2, 8, 8),
    (512, 1000, 2, 0, 0),
]


@pytest.mark.parametrize(("M", "N", "size", "warps", "rms_warps"), FEW_EDGES)
def test_gradients_of_few_rows_with_edges_come_in_some_waves(M, N, size, warps, rms_warps):
    p = plan(Problem(M, N, 1, size, True), H200)
    assert (p.warps if isinstance(p, FewRows) else 0) == warps
    p = rms_plan.plan_backward(M, N, size, H200)
    assert (p.warps if isinstance(p, FewRows) else 0) == rms_warps


# Rows, columns, chunks of layer_norm's gradients and of rms_norm's.
SHORT_IN_CHUNKS = [(1693816, 37, 5, 5), (1693816, 61, 4, 4), (4210878, 11, 6, 6), (950300, 5, 5, 5), (30000, 37, 1, 1)]
SHORT_IN_CHUNKS += [(262144, 97, 7, 1), (1000000, 22, 3, 3), (500000, 44, 3, 3), (500000, 60, 1, 1)]
SHORT_IN_CHUNKS += [(1048576, 76, 1, 3), (400000, 140, 1, 5), (400000, 100, 1, 1), (90000, 76, 1, 1)]


@pytest.mark.parametrize(("M", "N", "chunks", "rms_chunks"), SHORT_IN_CHUNKS)
def test_many_short_rows_of_gradients_are_in_chunks(M, N, chunks, rms_chunks):
    found = plan(Problem(M, N, 1, 2, True), H200), rms_plan.plan_backward(M, N, 2, H200)
    assert all(isinstance(p, Rows) for p in found)
    assert tuple(p.chunks for p in found) == (chunks, rms_chunks)


@pytest.mark.parametrize(("M", "N", "programs"), [(300000, 201, 1056), (1260181, 197, 1056), (60000, 201, 528)])
def test_many_wide_odd_rows_of_gradients_of_rms_norm_have_more_programs(M, N, programs):
    assert rms_plan.plan_backward(M, N, 4, H200).programs == programs


@pytest.mark.parametrize(
    ("M", "N", "size", "rows"),
    [(262144, 97, 2, 2), (70001, 127, 2, 2), (262144, 63, 2, 4), (131072, 181, 2, 1), (262144, 97, 4, 2)]
    + [(60000, 127, 4, 2)],
)
def test_many_odd_rows_of_gradients_of_rms_norm_take_few_registers(M, N, size, rows):
    p = rms_plan.plan_backward(M, N, size, H200)
    assert (p.block_m, p.warps, p.stages) == (rows, 1, 1 if N < 64 or size == 2 or M > 200000 else 3)


@pytest.mark.parametrize(
    ("N", "size", "single"),
    [(3000, 2, True), (3001, 2, False), (2000, 2, False), (3000, 4, False), (8000, 2, False)],
)
def test_gradients_of_a_row_alone_are_one_tile(N, size, single):
    p = plan(Problem(1, N, 1, size, True), H200)
    assert (isinstance(p, Rows) and p.programs == p.chunks == p.stages == 1 and p.warps > 4) == single


@pytest.mark.parametrize(
    ("M", "N", "few"), [(80, 2343, True), (100, 2343, True), (300, 2344, False), (80, 14456, True), (80, 17168, False)]
)
def test_gradients_of_few_rows_are_no_groups(M, N, few):
    assert isinstance(plan(Problem(M, N, 1, 2, True), H200), FewRows) == few


# Rows, columns, bytes, and whether the programs of layer_norm's gradient and of rms_norm's have many warps.
MANY_WARPS = [(262979, 3, 2, True, True), (20000, 17, 2, True, True), (60000, 9, 4, True, True)]
MANY_WARPS += [(30000, 7, 8, True, True), (40491, 33, 2, False, False), (2000, 63, 2, True, True)]
MANY_WARPS += [(100001, 33, 4, False, False), (65534, 85, 4, False, False), (1048576, 7, 2, False, False)]
MANY_WARPS += [(20000, 16, 2, True, True), (60000, 1, 4, False, False), (16000, 25, 8, True, True)]
MANY_WARPS += [(33857, 22, 2, True, True), (2469, 56, 2, True, True), (60000, 60, 2, False, False)]
MANY_WARPS += [(41229, 9, 2, True, True), (262979, 3, 2, True, True), (34585, 13, 4, True, True)]
MANY_WARPS += [(130000, 31, 2, False, False), (33000, 31, 4, True, True), (90773, 9, 2, True, True)]
MANY_WARPS += [(20000, 25, 2, True, True), (3030, 47, 2, True, True), (10001, 41, 2, True, True)]
MANY_WARPS += [(16519, 123, 2, True, True), (8403, 161, 2, False, True), (30001, 123, 2, True, False)]
MANY_WARPS += [(5000, 101, 4, False, True), (4000, 77, 8, False, True), (34000, 123, 2, False, False)]
MANY_WARPS += [(110000, 22, 2, False, True), (522439, 7, 2, False, True), (891107, 2, 2, False, False)]
MANY_WARPS += [(25000, 60, 2, False, False), (5000, 252, 4, False, False), (1594, 84, 2, True, True)]
MANY_WARPS += [(574480, 2, 2, False, True), (174195, 4, 2, True, True)]


@pytest.mark.parametrize(("M", "N", "size", "layer_norm", "rms_norm"), MANY_WARPS)
def test_gradients_of_many_short_rows_are_by_programs_of_many_warps(M, N, size, layer_norm, rms_norm):
    problem = Problem(M, N, 1, size, True)
    for p, many in ((plan(problem, H200), layer_norm), (rms_plan.plan_backward(M, N, size, H200), rms_norm)):
        assert isinstance(p, Rows)
        assert (p.warps > 1 and p.stages == 1) == many
        assert not many or N <= 64 or p.block_m * p.block_n == 8 * 32 * p.warps
        assert not many or (p.programs <= 4 * H200.sm_count and p.block_m * p.block_n <= p.warps * 32 * 16)


# Rows, columns, bytes, and whether gradients are by programs that have columns of all rows.
BLOCKS = [
    (8, 722496, 2, True),
    (16, 150001, 2, True),
    (8, 4000000, 2, False),
    (2, 9000, 2, True),
    (3, 200000, 4, True),
    (17, 150001, 2, False),
]
BLOCKS += [(1, 116109, 2, False), (8, 300000, 4, False), (8, 300000, 8, False), (2, 2**30 + 8, 2, False)]


@pytest.mark.parametrize(("M", "N", "size", "blocks"), BLOCKS)
def test_gradients_of_a_few_long_rows_are_by_programs_with_columns_of_all(M, N, size, blocks):
    for mean in (True, False):
        assert (plan_blocks(M, N, size, mean, H200) is not None) == blocks
        assert plan_blocks(M, N, size, mean, A100) is None


def test_gradients_of_layer_norm_that_blocks_would_read_twice_are_shared():
    assert plan_blocks(12, 66002, 2, True, H200) is None
    assert isinstance(plan(Problem(12, 66002, 1, 2, True), H200), Split)
    assert plan_blocks(12, 66002, 2, False, H200) is not None
    assert plan_blocks(4, 300001, 4, True, H200) is not None


# Rows, columns, bytes, partial sums of programs that share rows, and whether two passes move less.
PASSES = [(121, 8531, 2, 11, False), (11, 93841, 2, 11, True), (24, 60001, 2, 8, True), (64, 100000, 2, 10, False)]
PASSES += [(2, 93841, 2, 1, False)]


@pytest.mark.parametrize(("M", "N", "size", "partials", "twice"), PASSES)
def test_gradients_with_many_partial_sums_are_in_two_passes(M, N, size, partials, twice):
    assert moves_less(M, N, size, partials, 2) == twice


@pytest.mark.parametrize(
    ("M", "N", "size", "spread", "splits"),
    [(21, 2329289, 2, True, 1), (21, 2329290, 2, False, 1), (8, 15031750, 4, False, 1), (4000, 12001, 8, False, 22)],
)
def test_gradients_of_rows_beyond_the_cache_are_in_two_passes(M, N, size, spread, splits):
    assert plan_blocks(M, N, size, True, H200) is None
    p = plan(Problem(M, N, 1, size, True), H200)
    assert isinstance(p, TwoPasses)
    assert (p.spread, p.splits) == (spread, splits)


# Rows, columns, bytes, and tiles of a program that stay in its registers: of single elements in 16 rows one.
HELD = [(2, 9000, 2, 1), (3, 200001, 2, 2), (8, 100001, 2, 2), (16, 60002, 2, 2), (16, 60001, 2, 0), (2, 1500000, 2, 0)]


@pytest.mark.parametrize(("M", "N", "size", "held"), HELD)
def test_tiles_are_held(M, N, size, held):
    p = plan_blocks(M, N, size, False, H200)
    assert p is not None
    assert p.held == held
    assert not held or held == p.blocks


@pytest.mark.parametrize(
    ("M", "N", "size", "shared"),
    [
        (40, 16977, 2, True),
        (2048, 23952, 2, True),
        (1, 116109, 2, True),
        (63, 20001, 4, True),
        (63, 20001, 8, False),
        (20, 300000, 2, False),
        (20, 160000, 2, False),
        (24, 60000, 2, True),
    ],
)
def test_programs_share_rows_of_rms_norms_gradients(M, N, size, shared):
    planned = rms_plan.plan_backward(M, N, size, H200)
    assert isinstance(planned, TwoPasses)
    assert (rms_plan.plan_shared_backward(M, N, size, planned, H200) is not None) == shared
    assert rms_plan.plan_shared_backward(M, N, size, planned, A100) is None


def test_few_partial_sums_leave_no_tile_empty():
    """16 and 2 of them took tiles of 128 rows, most of the time of the smallest of these shapes."""
    for M, N in ((1024, 65536), (20, 262144)):
        p = default(M, N, 2, True, H200)
        P = p.programs // p.group
        assert plan_partial_sums(P, N, 2, H200).block_p < 2 * P


@pytest.mark.parametrize(("M", "N"), [(1, 64), (64, 32), (256, 8), (2, 100), (17, 1), (8, 30)])
@pytest.mark.parametrize("size", [2, 4])
def test_very_small_gradients_take_one_program_and_no_second_launch(M, N, size):
    p = default(M, N, size, True, H200)
    assert (p.programs, p.stages, p.unaligned) == (1, 1, False)
    assert p.block_m >= M
    assert p.chunks * p.block_n >= N


@pytest.mark.parametrize(("M", "N", "size", "stages"), [(70811, 65, 2, 1), (50000, 65, 2, 3), (65534, 85, 4, 3)])
def test_gradients_of_single_16_bit_elements_are_not_pipelined_where_there_are_rows_for_more_programs(
    M, N, size, stages
):
    p = default(M, N, size, True, A100)
    assert (p.vec, p.stages) == (1, stages)
    assert p.programs == A100.sm_count * (16 if stages == 1 else 8)
