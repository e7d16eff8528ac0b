# SPDX-License-Identifier: Apache-2.0
"""Which configuration of a batch norm is taken. The GPU is an H200."""

from __future__ import annotations

import pytest
import torch
from gpus import H100, H200

from flag_gems_overrides.ops.families.batch_norm import prepare
from flag_gems_overrides.ops.families.batch_norm.flat_plan import flat_of
from flag_gems_overrides.ops.families.batch_norm.groups_plan import groups_of
from flag_gems_overrides.ops.families.batch_norm.launches import (
    MAX_PROGRAMS_BY_WORDS,
    Channels,
    Flat,
    Groups,
    Problem,
    by_words,
    launch,
    merge_of,
)
from flag_gems_overrides.ops.families.batch_norm.layout import View
from flag_gems_overrides.ops.families.batch_norm.plan import choose, plan
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.launch.sizes import cdiv


@pytest.mark.parametrize(
    ("M", "N", "kernel"),
    [
        (6117, 267, "flat"),
        (7697, 317, "flat"),
        (13085, 185, "flat"),
        (6000, 185, "flat"),
        (10963, 469, "flat"),
        (2000, 151, "channels"),
    ],
)
def test_a_row_of_the_table_is_not_taken_where_it_is_estimated_to_take_longer(M, N, kernel):
    """6117 x 267, by groups, is the nearest row of all of these."""
    assert choose(Problem(M, N, 1, 2, 2), H200).kernel == kernel


@pytest.mark.parametrize(("M", "N", "K", "edges"), [(3, 3, 8001, False), (40, 20, 3001, True), (8, 64, 1001, True)])
def test_forward_tiles_of_little_have_no_heads_and_tails(M, N, K, edges):
    assert (plan(Problem(M, N, K, 2, 1), H200).tiling.edges > 0) == edges


@pytest.mark.parametrize(
    ("problem", "channels", "block", "rest", "warps"),
    [
        (Problem(72, 154744, 1, 2, 1), 32, 64, 8, 2),
        (Problem(139, 100000, 1, 2, 1), 32, 128, 16, 4),
        (Problem(96, 120000, 1, 2, 1), 32, 64, 32, 2),
        (Problem(40, 200000, 1, 2, 1), 32, 32, 8, 1),
        (Problem(100, 100000, 1, 2, 1), 64, 128, 0, 8),  # 64 and 64 rows
        (Problem(72, 154744, 1, 2, 2), 16, 128, 0, 4),
        (Problem(40, 200000, 1, 2, 2), 32, 64, 0, 4),
        (Problem(1, 1, 8453, 4, 2), 1, 16384, 0, 16),  # with a head and a tail
        (Problem(3, 64, 4001, 2, 2), 1, 16384, 0, 16),
        (Problem(121, 1789, 6, 2, 2), 2, 1024, 0, 4),
        (Problem(121, 1500, 6, 2, 2), 2, 1024, 0, 4),
        (Problem(121, 1000, 6, 2, 2), 2, 1024, 0, 4),
        (Problem(200, 2000, 5, 2, 2), 4, 1024, 0, 8),
        (Problem(121, 1789, 6, 4, 2), 4, 1024, 0, 8),
        (Problem(1, 16384, 82, 8, 1), 2, 128, 0, 1),
        (Problem(541, 2712, 1, 2, 1), 16, 512, 64, 8),
        (Problem(700, 30000, 1, 2, 1), 16, 512, 256, 8),
        (Problem(300, 100000, 1, 4, 1), 32, 256, 64, 8),
        (Problem(600, 40000, 1, 4, 1), 16, 512, 128, 8),
        (Problem(1000, 40000, 1, 4, 1), 16, 1024, 0, 16),
        (Problem(2000, 20000, 1, 4, 1), 8, 2048, 0, 16),
        (Problem(1000, 20000, 1, 8, 1), 8, 1024, 0, 16),
        (Problem(1024, 20000, 1, 2, 1), 16, 1024, 0, 16),
        (Problem(400, 131072, 1, 2, 1), 16, 512, 0, 8),
        (Problem(1200, 20000, 1, 4, 1), 8, 1024, 256, 8),
        (Problem(270, 4600, 1, 4, 1), 16, 512, 0, 8),
        (Problem(257, 8000, 1, 2, 2), 16, 256, 32, 8),
        (Problem(600, 5000, 1, 4, 2), 8, 1024, 0, 16),
        (Problem(257, 14320, 1, 4, 2), 8, 256, 32, 4),
        (Problem(257, 14320, 1, 8, 2), 8, 256, 32, 8),
        (Problem(301, 10355, 1, 2, 2), 16, 256, 64, 8),
        (Problem(611, 3448, 1, 2, 2), 8, 512, 128, 8),
        (Problem(700, 30000, 1, 4, 2), 16, 512, 256, 16),
        (Problem(272, 16, 19, 8, 2), 1, 8192, 0, 16),
        (Problem(3, 3216, 32, 2, 2), 8, 128, 0, 4),
        (Problem(1, 59229, 224, 2, 2), 4, 256, 0, 4),
        (Problem(1, 9850925, 1, 4, 1), 512, 1, 0, 16),
        (Problem(5, 1148, 6, 2, 2), 8, 32, 0, 1),
        (Problem(7, 4000, 9, 2, 2), 4, 64, 0, 1),
        (Problem(6, 436044, 22, 2, 1), 4, 128, 16, 1),
        (Problem(6, 436044, 22, 2, 2), 4, 128, 16, 1),
        (Problem(3, 400000, 48, 2, 2), 2, 256, 0, 2),
        (Problem(9, 150000, 15, 4, 2), 4, 128, 16, 1),
        (Problem(9, 150000, 15, 4, 1), 4, 256, 0, 2),
        (Problem(19, 100000, 7, 4, 2), 8, 256, 0, 4),
        (Problem(15, 300000, 9, 2, 2), 4, 128, 16, 1),
        (Problem(3, 700000, 11, 2, 2), 8, 64, 0, 2),
        (Problem(11, 80000, 34, 2, 2), 2, 512, 0, 4),
        (Problem(15, 86126, 49, 2, 1), 2, 1024, 0, 4),
        (Problem(8, 300000, 30, 2, 2), 4, 256, 0, 2),
        (Problem(8, 300000, 28, 2, 2), 4, 256, 0, 4),
        (Problem(60, 1000, 180, 2, 1), 1, 8192, 4096, 8),
        (Problem(60, 1000, 180, 2, 2), 1, 8192, 4096, 8),
        (Problem(119, 512, 72, 2, 2), 1, 8192, 1024, 16),
        (Problem(119, 100, 72, 2, 2), 1, 16384, 0, 16),
        (Problem(5, 4096, 1745, 8, 2), 1, 8192, 1024, 16),
        (Problem(19, 100000, 7, 2, 2), 4, 128, 16, 1),
        (Problem(88, 1906, 43, 2, 2), 1, 4096, 0, 8),
        (Problem(2, 2000001, 1, 4, 1), 128, 2, 0, 4),
        (Problem(4, 1000001, 1, 2, 1), 128, 4, 0, 4),
    ],
    ids=str,
)
def test_programs_hold_channels_as_they_were_timed(problem, channels, block, rest, warps):
    tiling = plan(problem, H200).tiling
    assert (tiling.channels, tiling.block, tiling.rest, tiling.warps) == (channels, block, rest, warps)


@pytest.mark.parametrize(
    ("problem", "columns", "rest", "warps"),
    [
        (Problem(139, 1309, 2, 4, 1), 16, 16, 4),
        (Problem(168, 3479, 4, 4, 1), 16, 64, 4),
        (Problem(300, 2000, 4, 2, 1), 16, 64, 4),
        (Problem(250, 3000, 8, 2, 1), 16, 0, 4),
        (Problem(140, 1209, 2, 2, 2), 16, 16, 4),
        (Problem(150, 2000, 4, 4, 2), 16, 32, 4),
        (Problem(200, 1500, 2, 2, 2), 16, 0, 8),
        (Problem(40, 3000, 2, 4, 1), 16, 8, 1),
        (Problem(2080, 150, 4, 4, 1), 8, 256, 16),
        (Problem(2080, 860, 4, 4, 1), 8, 256, 16),
        (Problem(1200, 900, 4, 4, 1), 16, 256, 16),
        (Problem(2560, 400, 4, 4, 1), 8, 512, 16),
        (Problem(2048, 300, 2, 4, 1), 8, 0, 16),
        (Problem(1400, 400, 4, 4, 1), 16, 512, 16),
        (Problem(3000, 200, 4, 4, 1), 8, 1024, 16),
        (Problem(33, 20000, 4, 2, 2), 16, 4, 1),
    ],
    ids=str,
)
def test_short_runs_are_held_as_columns(problem, columns, rest, warps):
    tiling = plan(problem, H200).tiling
    assert (tiling.run, tiling.channels, tiling.rest, tiling.warps) == (problem.K, columns, rest, warps)


@pytest.mark.parametrize(
    ("problem", "columns", "rest", "warps"),
    [
        (Problem(9, 1000000, 2, 2, 1), 64, 1, 1),
        (Problem(9, 20000, 2, 2, 1), 32, 1, 1),
        (Problem(9, 1000000, 2, 4, 1), 32, 1, 1),
        (Problem(9, 500000, 2, 8, 1), 16, 0, 1),
        (Problem(24, 300000, 4, 2, 1), 64, 8, 2),
        (Problem(31, 300000, 2, 4, 1), 32, 0, 2),
        (Problem(24, 1370, 2, 2, 1), 16, 8, 1),
        (Problem(31, 1370, 2, 2, 1), 16, 0, 2),
    ],
    ids=str,
)
def test_short_runs_of_few_rows_are_held_as_columns_forward(problem, columns, rest, warps):
    tiling = plan(problem, H200).tiling
    assert (tiling.run, tiling.channels, tiling.rest, tiling.warps) == (problem.K, columns, rest, warps)
    for other in (problem._replace(inputs=2), problem._replace(M=5), problem._replace(N=1000)):
        assert plan(other, H200).tiling.run == 0


def test_columns_of_16_bits_have_half_a_line_where_each_program_has_one_tile():
    planned = plan(Problem(6319, 144, 1, 2, 1), H200)
    assert isinstance(planned, Groups)
    assert (planned.tiling.channels, planned.programs) == (32, 125)


@pytest.mark.parametrize(
    ("shape", "warps", "run", "shared"),
    [
        ((64, 2, 362249), 8, 1024, True),
        ((8, 760, 5421), 16, 0, False),
        ((8, 300, 5421), 16, 0, False),
        ((8, 60, 5421), 4, 512, True),
        ((8, 140, 5421), 4, 0, True),  # not fewer channels than multiprocessors
        ((20, 200, 3001), 4, 0, True),  # runs shorter than a tile of all warps
        ((300, 70, 131), 4, 0, True),  # in pieces of 256 elements half of the lanes are masked
    ],
)
def test_float64_of_odd_runs_is_read_in_a_pipeline_or_by_all_warps(shape, warps, run, shared):
    planned = plan(Problem(*shape, 8, 1), H200)
    assert isinstance(planned, Groups)
    assert (planned.tiling.warps, planned.tiling.run, planned.group > 1) == (warps, run, shared)


@pytest.mark.parametrize(
    ("problem", "warps_per_sm"),
    [(Problem(40000, 64, 33, 8, 2), 28), (Problem(40000, 64, 33, 4, 2), 16), (Problem(20000, 300, 1, 8, 2), 16)],
    ids=str,
)
def test_gradients_of_much_float64_have_more_programs_at_once(problem, warps_per_sm):
    chosen = choose(problem, H200)
    assert (chosen.kernel, chosen.warps_per_sm) == ("flat", warps_per_sm)


@pytest.mark.parametrize(
    ("problem", "channels"),
    [(Problem(112, 1979813, 1, 2, 2), 32), (Problem(112, 1979814, 1, 2, 2), 16), (Problem(112, 20001, 1, 2, 2), 16)],
    ids=str,
)
def test_gradients_of_odd_columns_that_l2_does_not_hold_are_of_two_sectors(problem, channels):
    assert choose(problem, H200).channels == channels


# Few channels, few rows, and runs that are not short, or of no power of two; gradients and float64 of some channels.
@pytest.mark.parametrize(
    "problem",
    [
        (451, 64, 2, 4, 1),
        (24, 1024, 2, 4, 1),
        (40, 1000, 2, 4, 1),
        (100, 4000, 16, 4, 1),
        (140, 1209, 3, 4, 1),
        (285, 128, 2, 8, 1),
        (285, 128, 2, 4, 2),
        (150, 200, 4, 4, 2),
    ],
)
def test_other_runs_are_held_channel_by_channel(problem):
    planned = plan(Problem(*problem), H200)
    assert isinstance(planned, Channels)
    assert planned.tiling.run == 0


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        (Problem(2000, 30000, 1, 2, 1), "groups"),
        (Problem(400, 131073, 1, 2, 1), "flat"),
        (Problem(300, 40000, 1, 2, 2), "groups"),
        (Problem(257, 14320, 1, 2, 2), "groups"),
        (Problem(380, 10000, 1, 2, 2), "groups"),
        (Problem(2500, 100, 1, 4, 2), "flat"),
        (Problem(900, 3001, 4, 2, 1), "flat"),
        (Problem(1000, 3000, 2, 2, 2), "flat"),
        (Problem(513, 8000, 1, 2, 2), "groups"),
        (Problem(4000, 300, 4, 4, 1), "flat"),
        (Problem(2080, 860, 8, 2, 1), "flat"),
        (Problem(2080, 860, 8, 4, 1), "channels"),
        (Problem(1200, 860, 4, 4, 2), "flat"),
        (Problem(8936, 4028, 1, 4, 2), "flat"),
        (Problem(8936, 4096, 1, 4, 2), "groups"),
        (Problem(8936, 4028, 1, 4, 1), "flat"),
        (Problem(8936, 4032, 1, 4, 1), "groups"),
        (Problem(1400, 860, 4, 4, 1), "flat"),
        (Problem(9000, 188, 1, 2, 1), "flat"),
        (Problem(9000, 190, 1, 2, 1), "flat"),
        (Problem(70155, 10, 1, 2, 1), "flat"),
        (Problem(46882, 14, 1, 4, 1), "flat"),
        (Problem(7000, 300, 1, 2, 1), "groups"),
        (Problem(8000, 8184, 1, 2, 2), "flat"),
        (Problem(3000, 4028, 1, 8, 2), "groups"),
        (Problem(16827, 6150, 1, 8, 1), "flat"),
        (Problem(8000, 5000, 1, 8, 1), "flat"),
    ],
    ids=str,
)
def test_many_columns_are_not_held_where_that_is_slower(problem, kernel):
    assert choose(problem, H200).kernel == kernel


@pytest.mark.parametrize(
    ("problem", "configuration"),
    [
        (Problem(23640, 6, 1, 2, 1), ("groups", 8, 16, 4, 12, 1)),
        (Problem(60000, 2, 1, 2, 1), ("groups", 2, 8, 2, 16, 1)),
        (Problem(24813, 4, 1, 2, 1), ("groups", 4, 8, 2, 16, 1)),
        (Problem(14440, 5, 1, 4, 1), ("groups", 8, 8, 8, 16, 1)),
        (Problem(9000, 5, 1, 4, 1), ("groups", 8, 8, 8, 16, 1)),
        (Problem(11769, 8, 1, 2, 1), ("groups", 8, 8, 2, 16, 1)),
        (Problem(12000, 4, 1, 4, 1), ("groups", 4, 8, 2, 16, 1)),
        (Problem(20000, 5, 1, 4, 1), ("groups", 8, 8, 8, 16, 1)),
        (Problem(20000, 6, 1, 4, 1), ("groups", 8, 8, 8, 16, 1)),
        (Problem(30000, 7, 1, 2, 1), ("groups", 8, 8, 8, 16, 1)),
    ],
    ids=str,
)
def test_few_columns_forward_as_they_were_timed(problem, configuration):
    assert choose(problem, H200)[:6] == configuration


@pytest.mark.parametrize(
    ("problem", "configuration"),
    [
        (Problem(7868, 304, 1, 2, 2), ("groups", 32, 16, 2, 16, 2)),
        (Problem(15789, 304, 1, 2, 2), ("groups", 32, 16, 2, 16, 2)),
        (Problem(3947, 304, 1, 2, 2), ("groups", 32, 16, 2, 16, 1)),
        (Problem(6287, 128, 1, 4, 2), ("groups", 16, 16, 2, 16, 1)),
        (Problem(16435, 123, 1, 2, 2), ("flat", 123, 4, 2, 16, 4)),
        (Problem(9000, 188, 1, 2, 2), ("flat", 188, 4, 2, 16, 5)),
        (Problem(3000, 301, 1, 4, 2), ("flat", 1, 4, 2, 16, 2)),
        (Problem(7552, 17, 1, 2, 2), ("flat", 17, 4, 2, 16, 1)),
        (Problem(8192, 5, 1, 4, 2), ("channels", 1, 16, 0, 0, 1)),
        (Problem(13085, 188, 1, 4, 2), ("groups", 32, 16, 4, 16, 1)),
        (Problem(40000, 64, 1, 4, 2), ("flat", 64, 4, 2, 16, 2)),
        (Problem(447, 10080, 1, 8, 2), ("channels", 8, 16, 0, 0, 1)),
        (Problem(900, 6000, 1, 8, 2), ("channels", 4, 16, 0, 0, 1)),
        (Problem(5, 5212815, 1, 4, 2), ("channels", 256, 4, 0, 0, 1)),
        (Problem(16, 230039, 1, 4, 2), ("channels", 128, 4, 0, 0, 1)),
        (Problem(16, 60001, 1, 4, 2), ("channels", 32, 1, 0, 0, 1)),
        (Problem(40, 1000001, 1, 4, 2), ("channels", 64, 8, 0, 0, 1)),
        (Problem(20, 1000001, 1, 8, 2), ("channels", 32, 4, 0, 0, 1)),
        (Problem(40, 2000, 201, 2, 2), ("channels", 1, 16, 1, 0, 1)),
    ],
    ids=str,
)
def test_gradients_of_some_columns_as_they_were_timed(problem, configuration):
    assert choose(problem, H200)[:6] == configuration


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        (Problem(8233, 32, 1, 4, 1), "flat"),
        (Problem(9000, 16, 1, 4, 1), "flat"),
        (Problem(4500, 64, 1, 4, 1), "flat"),
        (Problem(5000, 64, 1, 4, 1), "flat"),
        (Problem(6319, 144, 1, 4, 1), "groups"),
        (Problem(12000, 144, 1, 4, 1), "flat"),
        (Problem(20000, 144, 1, 2, 1), "groups"),
        (Problem(20000, 300, 1, 2, 1), "flat"),
        (Problem(5000, 200, 1, 2, 1), "groups"),
        (Problem(5000, 201, 1, 2, 1), "channels"),
        (Problem(4581, 120, 1, 2, 1), "flat"),
        (Problem(4581, 121, 1, 2, 1), "flat"),
        (Problem(4000, 120, 1, 2, 1), "channels"),
        (Problem(6000, 30, 1, 2, 1), "channels"),
        (Problem(7000, 20, 1, 2, 1), "channels"),
        (Problem(4281, 38, 1, 2, 1), "channels"),
        (Problem(4000, 64, 1, 4, 1), "channels"),
    ],
    ids=str,
)
def test_columns_of_many_rows_are_read_as_they_lie(problem, kernel):
    assert choose(problem, H200).kernel == kernel


@pytest.mark.parametrize(
    ("problem", "programs", "tiles"),
    [
        (Problem(4480, 3, 3, 2, 2), 105, 1),
        (Problem(1, 1, 52479, 4, 2), None, 1),
        (Problem(8, 56, 10153, 2, 2), 504, 5),
    ],
    ids=str,
)
def test_programs_of_few_tiles_are_rounded_up(problem, programs, tiles):
    planned = launch(problem, groups_of(problem, H200), H200)
    assert isinstance(planned, Groups)
    assert cdiv(planned.slice_size, planned.tiling.rows) == tiles
    assert programs in (None, planned.programs)


@pytest.mark.parametrize(("shape", "programs"), [((35110, 5, 1), 87), ((11144, 5, 3), 87), ((8192, 60, 1), 86)])
def test_fewer_programs_than_multiprocessors_are_rounded_up(shape, programs):
    planned = plan(Problem(*shape, 2, 2), H200)
    assert isinstance(planned, Flat)
    assert planned.programs == programs


@pytest.mark.parametrize(
    ("problem", "channels"),
    [
        (Problem(64, 40, 7, 2, 2), 1),
        (Problem(140, 130, 5, 2, 2), 1),
        (Problem(140, 24, 3, 4, 2), 1),
        (Problem(140, 1300, 5, 2, 2), 4),
        (Problem(64, 40, 7, 2, 1), 1),
        (Problem(64, 77, 5, 2, 1), 1),
        (Problem(128, 200, 5, 2, 1), 2),
        (Problem(140, 1300, 5, 2, 1), 4),
    ],
    ids=str,
)
def test_few_channels_have_a_program_each(problem, channels):
    planned = plan(problem, H200)
    assert isinstance(planned, Channels)
    assert planned.tiling.channels == channels


@pytest.mark.parametrize(("K", "held"), [(5001, False), (7001, True), (12001, True), (20001, False)])
def test_gradients_of_few_runs_with_edges_are_held_where_elements_are_many(K, held):
    chosen = choose(Problem(1, 16, K, 4, 2), H200)
    assert (chosen.kernel == "channels" and chosen.loads > 0) == held


@pytest.mark.parametrize(
    ("shape", "inputs", "kernel"),
    [
        ((1917, 18, 3), 2, "channels"),
        ((2700, 4, 2), 2, "channels"),
        ((1917, 330, 3), 2, "flat"),
        ((3128, 71, 3), 1, "channels"),
        ((80, 8192, 14), 2, "flat"),
        ((77, 65536, 3), 2, "channels"),
        ((256, 2662, 63), 1, "flat"),
        ((24, 55416, 85), 1, "channels"),
        ((1825, 72, 128), 2, "groups"),
        ((3688, 35, 120), 1, "groups"),
        ((3267, 19, 10), 1, "groups"),
        ((2499, 3, 10), 1, "groups"),
        ((6014, 106, 4), 1, "flat"),
    ],
)
def test_few_channels_of_short_runs_are_held(shape, inputs, kernel):
    assert choose(Problem(*shape, 2, inputs), H200).kernel == kernel


@pytest.mark.parametrize(("M", "N", "kernel"), [(2713, 28976, "flat"), (1500, 30000, "flat"), (2713, 8000, "groups")])
def test_many_columns_that_l2_does_not_hold_are_read_as_they_lie(M, N, kernel):
    assert choose(Problem(M, N, 1, 4, 2), H200).kernel == kernel


@pytest.mark.parametrize(("shape", "blocks"), [((8, 428, 5940), 107), ((16, 500, 4096), 0), ((8, 200, 5940), 0)])
def test_gradients_of_a_little_more_than_l2_holds_are_in_turns_that_it_holds(shape, blocks):
    assert choose(Problem(*shape, 2, 2), H100).blocks == blocks


def test_columns_in_turns_that_l2_holds_have_two_programs_to_a_multiprocessor():
    limits = H100
    assert plan(Problem(842, 14175, 1, 4, 2), limits).programs > limits.sm_count


@pytest.mark.parametrize(
    ("problem", "channels", "warps"),
    [
        (Problem(229, 702368, 1, 2, 2), 16, 8),
        (Problem(229, 33000, 1, 2, 2), 16, 8),
        (Problem(229, 70236, 1, 2, 2), 32, 16),
        (Problem(268, 225776, 1, 4, 2), 16, 16),
        (Problem(1000, 40000, 1, 4, 2), 8, 16),
    ],
    ids=str,
)
def test_gradients_of_many_columns_are_held_by_sectors(problem, channels, warps):
    assert choose(problem, H200)[:3] == ("channels", channels, warps)


@pytest.mark.parametrize(
    "problem", [Problem(500, 131072, 1, 2, 2), Problem(382, 23795, 1, 4, 2), Problem(1100, 40000, 1, 4, 2)], ids=str
)
def test_gradients_of_many_columns_are_not_held_where_that_is_slower(problem):
    assert choose(problem, H200).kernel != "channels"


@pytest.mark.parametrize(
    ("problem", "programs"),
    [(Problem(8000, 32, 1, 4, 1), 125), (Problem(56029, 2, 1, 2, 2), 54), (Problem(13489, 112, 1, 2, 1), 63)],
    ids=str,
)
def test_few_elements_are_read_by_as_many_programs_as_multiprocessors_at_most(problem, programs):
    planned = plan(problem, H200)
    assert isinstance(planned, Flat)
    assert planned.programs == programs


def test_channels_that_programs_hold_badly_are_shared_by_groups():
    assert choose(Problem(8079, 17, 2, 2, 1), H200).kernel == "groups"


def test_groups_have_no_lanes_of_channels_that_there_are_not():
    assert choose(Problem(22324, 3, 8, 2, 1), H200)[:2] == ("groups", 1)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Problem(1, 1, 84365, 4, 2), True),
        (Problem(20, 1, 56272, 2, 2), True),
        (Problem(9000, 304, 1, 2, 2), True),
        (Problem(1, 1, 84365, 8, 2), False),
    ],
    ids=str,
)
def test_groups_exchange_words_of_two_float32(problem, words):
    planned = plan(problem, H200)
    assert isinstance(planned, Groups)
    assert by_words(problem, planned) == words


@pytest.mark.parametrize(
    ("shape", "words"), [((16, 64, 25000), True), ((16, 32, 40000), True), ((20, 6, 65536), False)]
)
def test_small_groups_of_many_programs_exchange_words(shape, words):
    problem = Problem(*shape, 2, 1)
    planned = plan(problem, H200)
    assert isinstance(planned, Groups)
    assert planned.programs > MAX_PROGRAMS_BY_WORDS
    assert by_words(problem, planned) == words


@pytest.mark.parametrize(
    ("layout", "dtype", "registers"),
    [
        ((3779, 3, 4), torch.float16, 128),
        ((1000, 3, 12), torch.float16, 128),
        ((3779, 3, 4), torch.bfloat16, None),
        ((2048, 3, 8), torch.float16, None),
        ((3779, 150, 4), torch.float16, None),
        ((1000, 3, 4), torch.float16, None),
        ((16, 16, 704), torch.float32, 128),
        ((1, 43, 15011), torch.float32, 128),
        ((16, 160, 704), torch.float32, None),
    ],
)
def test_full_programs_that_are_alone_on_a_multiprocessor_have_all_registers(layout, dtype, registers, monkeypatch):
    monkeypatch.setattr(devices, "limits", lambda device: H200)
    monkeypatch.setattr(prepare.batch_norm_channels, "bind", lambda *_, **options: options.get("maxnreg"))
    assert prepare.forward_launch(View(*layout), dtype, True, 0.1, 1e-5, 0, None) == registers


@pytest.mark.parametrize(
    ("problem", "channels"),
    [
        (Problem(4, 9877648, 4, 2, 1), 64),
        (Problem(3, 1000000, 4, 2, 1), 64),
        (Problem(4, 3000000, 8, 2, 1), 32),
        (Problem(7, 3000000, 4, 2, 1), 16),
        (Problem(4, 300000, 4, 2, 1), 32),
        (Problem(4, 1000000, 2, 2, 1), 64),
        (Problem(5, 1000000, 4, 4, 1), 16),
        (Problem(1, 9000000, 4, 2, 1), 128),
    ],
    ids=str,
)
def test_single_warps_of_many_have_more_channels_of_16_bits(problem, channels):
    planned = plan(problem, H200)
    assert isinstance(planned, Channels)
    assert (planned.tiling.channels, planned.tiling.warps) == (channels, 1)


@pytest.mark.parametrize(
    ("problem", "merge"),
    [
        (Problem(18, 320016, 3, 2, 2), (128, 8, 4)),
        (Problem(300, 120, 99, 4, 1), (2, 1024, 8)),
        (Problem(56259, 3, 16, 2, 1), (8, 128, 4)),
    ],
    ids=str,
)
def test_as_many_channels_are_merged_as_leave_many_programs(problem, merge):
    configuration = flat_of(problem, H200)
    assert configuration is not None
    flat = launch(problem, configuration, H200)
    assert isinstance(flat, Flat)
    assert merge_of(problem, flat, H200) == merge
