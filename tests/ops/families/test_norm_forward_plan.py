# SPDX-License-Identifier: Apache-2.0
"""How layer_norm is launched forward: what was timed is planned so."""

from __future__ import annotations

import pytest
from gpus import A100, H100, H200
from norms import default

from flag_gems_overrides.ops.families.norm import rms_plan
from flag_gems_overrides.ops.families.norm.launches import (
    Configuration,
    Loop,
    Problem,
    Rows,
    ShortRows,
    Split,
    launch,
    launch_or_none,
)
from flag_gems_overrides.ops.families.norm.long_plan import loop
from flag_gems_overrides.ops.families.norm.plan import choose, plan
from flag_gems_overrides.ops.launch.sizes import power_of_2


def test_rows_at_once_leave_no_program_with_more_blocks_than_others():
    """112 x 524288 bf16: 23 rows at once took 5 turns of 12 blocks."""
    p = default(112, 524288, 2, False, H100)
    turns = -(-112 // (p.programs // p.group))
    assert turns * p.slice_size // p.block_n <= 56


@pytest.mark.parametrize(
    ("M", "N", "size", "in_parts"),
    [(1000000, 9, 4, True), (30000, 13, 4, True), (500000, 25, 2, True), (8000, 13, 4, False), (500000, 33, 4, False)]
    + [(500000, 14, 4, True), (300000, 30, 2, True), (500000, 13, 8, True)]
    + [(500000, 12, 4, False), (500000, 14, 8, False), (500000, 7, 2, False), (200000, 7, 4, False)]
    + [(16593145, 5, 4, True), (1000000, 7, 4, True)],
)
def test_many_short_rows_of_single_elements_or_pairs_are_in_parts(M, N, size, in_parts):
    problem = Problem(M, N, 1, size, False)
    p = launch(problem, choose(problem, H200), H200)
    part = power_of_2(N) // (4 if N % 2 else 2)
    assert (isinstance(p, Rows) and (p.block_n, p.chunks) == (part, -(-N // part))) == in_parts


@pytest.mark.parametrize(
    ("M", "N", "size", "chunks"),
    [(21419, 141, 2, 5), (9000, 189, 2, 6), (100000, 255, 2, 8), (100000, 129, 2, 5), (3000, 201, 2, 7)]
    + [
        (21419, 142, 2, None),
        (21419, 127, 2, None),
        (21419, 257, 2, None),
        (21419, 141, 4, None),
        (1000, 141, 2, None),
    ],
)
def test_odd_rows_of_16_bits_have_few_idle_lanes(M, N, size, chunks):
    for residual in (False, True):
        problem = Problem(M, N, 1, size, False, residual)
        p = launch(problem, choose(problem, H200), H200)
        assert ((p.chunks, p.block_n, p.block_m, p.warps) == (chunks, 32, 4, 2)) == (chunks is not None)


@pytest.mark.parametrize(
    ("M", "N", "warps"), [(5152, 276, 4), (20000, 406, 4), (2000, 276, 1), (5152, 700, 1), (5152, 384, 1)]
)
def test_many_rows_of_pairs_or_fours_of_layer_norm_are_for_four_warps(M, N, warps):
    problem = Problem(M, N, 1, 2, False)
    p = launch(problem, choose(problem, H200), H200)
    assert (p.warps, p.block_m) == (warps, 4 if N == 384 else warps)


@pytest.mark.parametrize(
    ("M", "N", "residual", "way"),
    [(5, 24632, False, (13, 2048, 168)), (5, 24631, False, (25, 1024, 128)), (5, 24632, True, (25, 1024, 128))]
    + [(20, 24632, False, (13, 1024, 128))],
)
def test_few_rows_of_float64_are_shared_by_few_programs(M, N, residual, way):
    p = plan(Problem(M, N, 1, 8, False, residual), H200)
    assert (p.group, p.block_n, p.registers) == way


@pytest.mark.parametrize(
    ("M", "N", "size", "vec", "warps"),
    [(226634, 5, 4, 2, 1), (32768, 5, 4, 2, 1), (400, 5, 4, 1, 1), (226634, 7, 2, 2, 4), (300000, 6, 2, 4, 4)],
)
def test_short_rows_as_they_were_timed(M, N, size, vec, warps):
    p = default(M, N, size, False, H200)
    assert (type(p), p.vec, p.warps) == (ShortRows, vec, warps)


@pytest.mark.parametrize(
    ("problem", "configuration"),
    [
        (Problem(300, 5, 1, 4, True), Configuration("short", 1, 1)),
        (Problem(300, 5, 1, 4, False), Configuration("short", 1, 3)),
        (Problem(300, 5, 1, 4, False), Configuration("short", 1, 8)),
        (Problem(300, 9, 1, 2, False), Configuration("short", 1, 8)),
        (Problem(300, 33, 1, 8, False), Configuration("short", 1, 1)),
    ],
)
def test_not_all_rows_are_short(problem, configuration):
    """No gradients, vectors, or more elements than registers."""
    assert launch_or_none(problem, configuration, H200) is None


@pytest.mark.parametrize(("N", "vec", "warps", "unaligned"), [(393619, 8, 4, True), (393618, 2, 8, False)])
def test_loops_over_odd_rows_of_16_bits_read_vectors(N, vec, warps, unaligned):
    p = default(344, N, 2, False, H200)
    assert (type(p), p.vec, p.warps, p.unaligned) == (Loop, vec, warps, unaligned)


@pytest.mark.parametrize(("M", "programs"), [(1928, 964), (1584, 792), (1000, 1000)])
def test_two_rows_of_256_are_of_a_program_of_layer_norm(M, programs):
    assert plan(Problem(M, 256, 1, 2, False), H200).programs == programs


# Rows, columns, bytes, and whether a residual's sums are normalized by a program of 16 warps to a row.
LONG_SUMS = [(195, 16368, 2, True), (150, 12288, 2, True), (400, 16384, 2, True), (195, 8184, 4, True)]
LONG_SUMS += [(500, 16384, 2, False), (195, 11000, 2, False), (195, 6000, 4, False)]


@pytest.mark.parametrize(("M", "N", "size", "one"), LONG_SUMS)
def test_long_rows_of_sums_have_a_program_each(M, N, size, one):
    problem = Problem(M, N, 1, size, False, True)
    for p in (plan(problem, H200), rms_plan.plan_forward(problem, H200)):
        assert (isinstance(p, Rows) and p.programs == M and p.warps == 16 and p.late) == one


@pytest.mark.parametrize(
    ("M", "N", "size", "single"),
    [
        (224, 2723, 2, True),
        (200, 1501, 2, True),
        (400, 2723, 2, False),
        (264, 4097, 2, False),
        (224, 2722, 2, False),
    ],
)
def test_a_few_odd_rows_of_16_bits_are_loaded_one_by_one(M, N, size, single):
    assert (choose(Problem(M, N, 1, size, False), H200) == Configuration("rows", 8)) == single


@pytest.mark.parametrize(
    ("M", "N", "size", "residual", "kernel"),
    [
        (673225, 5, 4, False, "rows"),
        (400001, 7, 4, False, "rows"),
        (400001, 5, 4, True, "rows"),
        (200001, 5, 4, False, "short"),
        (390001, 5, 4, False, "short"),
        (1400000, 5, 2, False, "short"),
        (673225, 6, 4, False, "short"),
        (673225, 5, 8, False, "short"),
    ],
)
def test_short_odd_rows_of_float32_beyond_a_share_of_l2_are_tiles(M, N, size, residual, kernel):
    assert choose(Problem(M, N, 1, size, False, residual), H200).kernel == kernel


@pytest.mark.parametrize(
    ("M", "N", "size", "vec"),
    [(240001, 5, 4, 2), (330001, 5, 4, 1), (220001, 7, 4, 2), (240001, 6, 4, 4), (330001, 5, 2, 2)],
)
def test_short_odd_rows_of_float32_that_take_more_of_l2_are_loaded_one_by_one(M, N, size, vec):
    assert choose(Problem(M, N, 1, size, False), H200).vec == vec


# Rows, columns, bytes, and whether a row has four warps which load it one by one, or pairs without edges.
AT_ONCE = [(1976, 371, 2, "single"), (700, 371, 2, "single"), (2112, 383, 2, "single"), (2113, 371, 2, "")]
AT_ONCE += [
    (500, 371, 2, ""),
    (1976, 595, 2, ""),
    (1976, 371, 4, ""),
    (1976, 406, 2, "pairs"),
]
AT_ONCE += [
    (14000, 374, 2, "pairs of sums"),
    (1976, 255, 2, ""),
    (2000, 451, 2, "single without a residual"),
]


@pytest.mark.parametrize(
    ("M", "N", "residual", "warps"), [(3000, 602, False, 1), (3000, 602, True, 4), (3000, 1002, True, 4)]
)
def test_longer_rows_of_pairs_have_no_edges(M, N, residual, warps):
    assert choose(Problem(M, N, 1, 2, False, residual), H200) == Configuration("rows", warps, 2)
    many = choose(Problem(3 * M, N, 1, 2, False, residual), H200)
    assert many.vec == 2


# Rows, columns, whether there is a residual, and warps of a row of pairs.
MANY_PAIRS = [(60000, 262, True, 1), (60000, 318, True, 1), (60000, 322, True, 2), (27381, 498, True, 2)]
MANY_PAIRS += [(8448, 638, False, 1), (20000, 642, False, 1), (20000, 802, False, 2)]
MANY_PAIRS += [(20000, 408, False, 0), (20000, 404, False, 0), (60000, 260, True, 0)]


@pytest.mark.parametrize(("M", "N", "residual", "warps"), MANY_PAIRS)
def test_many_rows_of_pairs_have_no_edges(M, N, residual, warps):
    found = choose(Problem(M, N, 1, 2, False, residual), H200)
    assert (found.vec == 2) == (warps > 0)
    assert not warps or found == Configuration("rows", warps, 2)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("M", "N", "size", "way"), AT_ONCE)
def test_short_rows_that_are_all_loaded_at_once_have_no_edges(M, N, size, way, residual):
    found = choose(Problem(M, N, 1, size, False, residual), H200)
    assert (found == Configuration("rows", 4)) == (way == "single" or (way.endswith("residual") and not residual))
    assert (found == Configuration("rows", 2 if residual else 1, 2)) == (
        way == "pairs" or (way == "pairs of sums" and residual)
    )


@pytest.mark.parametrize(("M", "N", "early"), [(42, 8253, 8), (60, 12001, 8), (132, 14001, 0), (42, 16001, 0)])
def test_rows_alone_on_their_multiprocessors_have_early_weights(M, N, early):
    for p in (plan(Problem(M, N, 1, 2, False), H200), rms_plan.plan_forward(Problem(M, N, 1, 2, False), H200)):
        assert isinstance(p, Rows)
        assert (p.warps, p.unaligned, p.late) == (early or 16, True, early == 0)


# Rows, columns, warps of a program and registers of a thread.
ODD_ROWS = [(641, 5001, 4, 96), (500, 7001, 4, 128), (300, 8879, 4, 128), (3000, 8879, 4, 128), (900, 5001, 4, 72)]
ODD_ROWS += [(641, 8879, 1, 255), (641, 11781, 1, 255), (700, 14001, 1, 255), (300, 13001, 1, 255)]
ODD_ROWS += [(390, 5001, 8, 0), (264, 8879, 8, 0), (641, 4103, 4, 0), (641, 8878, 8, 0)]


@pytest.mark.parametrize(("M", "N", "warps", "registers"), ODD_ROWS)
def test_odd_rows_come_in_few_waves_or_are_shared(M, N, warps, registers):
    p = plan(Problem(M, N, 1, 2, False), H200)
    assert isinstance(p, Split if warps == 1 else Rows)
    assert (p.warps, p.registers) == (warps, registers)
    for limits, residual in ((A100, False), (H200, True)):
        other = plan(Problem(M, N, 1, 2, False, residual), limits)
        limited = residual and N % 2 == 1 and 8200 < N <= 10247 and M <= 2112
        assert isinstance(other, Split) or other.registers == (128 if limited else 0)


@pytest.mark.parametrize(
    ("M", "N", "residual", "way"),
    [(300, 8879, True, (8, 128)), (132, 8879, True, (16, 0)), (2113, 8879, True, (8, 0)), (300, 10249, True, (8, 0))],
)
def test_long_odd_sums_of_some_waves_have_limited_registers(M, N, residual, way):
    p = plan(Problem(M, N, 1, 2, False, residual), H200)
    assert isinstance(p, Rows)
    assert (p.warps, p.registers) == way


@pytest.mark.parametrize(
    ("M", "N", "warps", "registers"), [(8000, 9001, 4, 128), (800, 6001, 8, 0), (4000, 15999, 8, 0)]
)
def test_odd_rows_of_many_waves_are_not_shared(M, N, warps, registers):
    p = plan(Problem(M, N, 1, 2, False), H200)
    assert isinstance(p, Rows)
    assert (p.warps, p.registers) == (warps, registers)


@pytest.mark.parametrize(("itemsize", "registers"), [(2, 80), (4, 0)])
def test_single_elements_of_16_warps_have_more_registers(itemsize, registers):
    p = plan(Problem(18, 5573, 1, itemsize, False), H200)
    assert isinstance(p, Rows)
    assert (p.warps, p.registers) == (16, registers)


def test_odd_rows_that_are_pipelined_by_few_warps_stay_so():
    p = plan(Problem(4000, 5001, 1, 2, False), H200)
    assert isinstance(p, Rows)
    assert (p.stages, p.warps, p.registers) == (4, 4, 0)


@pytest.mark.parametrize(
    ("M", "N", "one"), [(4400, 1001, True), (8000, 983, True), (2000, 601, True), (9000, 983, False)]
)
def test_short_odd_rows_hardly_more_than_pipelines_have_a_program_each(M, N, one):
    p = plan(Problem(M, N, 1, 2, False), H200)
    assert isinstance(p, Rows)
    assert (p.programs == M, p.late, p.warps) == (one, False, 1)


@pytest.mark.parametrize(
    ("M", "N", "vec", "rms_vec"),
    [(168, 614089, 4, 4), (168, 300001, 1, 1), (168, 614090, 4, 2), (100, 614089, 4, 1), (7, 1000001, 4, 1)],
)
def test_loops_over_long_unaligned_rows_of_float32_read_vectors(M, N, vec, rms_vec):
    problem = Problem(M, N, 1, 4, False)
    assert launch(problem, loop(problem, H200), H200).vec == vec
    assert rms_plan.plan_forward(problem, H200).vec == rms_vec
    assert N < 400000 or isinstance(plan(problem, H200), Loop)


@pytest.mark.parametrize(("N", "residual", "stages", "registers"), [(67088, False, 3, 128), (69048, True, 4, 152)])
def test_pipelines_of_groups_leave_registers(N, residual, stages, registers):
    p = plan(Problem(1, N, 1, 2, False, residual), H200)
    assert isinstance(p, Split)
    assert (p.warps, p.stages, p.registers) == (4, stages, registers)


@pytest.mark.parametrize("N", [400004, 262118])
def test_unaligned_rows_of_16_bits_in_turn_are_read_in_a_loop(N):
    assert isinstance(plan(Problem(50, N, 1, 2, False), H200), Loop)


@pytest.mark.parametrize(("M", "N", "size"), [(51, 725424, 2), (64, 837024, 4)])
def test_loops_of_whole_vectors_are_by_four_programs_to_a_multiprocessor(M, N, size):
    p = plan(Problem(M, N, 1, size, False), H200)
    assert isinstance(p, Loop)
    assert (p.warps, p.registers) == (8, 64)


@pytest.mark.parametrize(
    ("M", "N", "launched", "warps"),
    [
        (600, 80001, Split, 1),
        (400, 100001, Split, 1),
        (88, 85975, Split, 1),
        (40, 60001, Split, 4),
        (4, 80001, Split, 4),
        (4, 262117, Split, 4),
        (300, 150001, Loop, 4),
        (192, 262117, Loop, 4),
        (40, 262117, Loop, 4),
    ],
)
def test_long_odd_rows_of_16_bits_are_read_in_vectors(M, N, launched, warps):
    p = plan(Problem(M, N, 1, 2, False), H200)
    assert (type(p), p.vec, p.warps, p.unaligned) == (launched, 8, warps, True)


@pytest.mark.parametrize(("M", "N", "stages"), [(700, 3872, 1), (300, 5120, 1), (132, 4096, 4)])
def test_sums_have_pipelines_only_where_they_are_few(M, N, stages):
    p = plan(Problem(M, N, 1, 2, False, residual=True), H200)
    assert isinstance(p, Rows)
    assert p.stages == stages


def test_few_rows_are_spread_over_programs():
    assert default(256, 128, 2, False, H200).programs == 128
    assert default(256, 128, 8, False, H200).programs == 256


@pytest.mark.parametrize(
    ("M", "N", "residual", "vec", "warps", "rows"),
    [
        (2048, 4092, False, 4, 4, 1),
        (1024, 4100, False, 4, 4, 1),
        (256, 12292, False, 4, 8, 1),
        (8192, 4092, True, 4, 4, 1),
        (65536, 516, False, 4, 1, 1),
        (65536, 260, False, 4, 1, 2),
        (400, 16380, True, 8, 8, 1),  # with edges, for 16 warps spill otherwise
        (1024, 4098, False, 2, 4, 1),
        (1024, 4098, True, 2, 4, 1),
        (8192, 4098, False, 8, 2, 1),  # with edges
    ],
)
def test_rows_of_halves_of_vectors_have_no_edges(M, N, residual, vec, warps, rows):
    launched = plan(Problem(M, N, 1, 2, False, residual), H200)
    assert isinstance(launched, Rows)
    assert (launched.vec, launched.warps, launched.block_m) == (vec, warps, rows)
    assert launched.late == (vec == 8 and launched.stages == 1)


@pytest.mark.parametrize(
    ("M", "N", "size", "early"),
    [
        (788, 5136, 2, True),
        (1500, 3072, 2, True),
        (2000, 2400, 2, True),
        (800, 4096, 2, True),
        (2200, 5136, 2, True),
        (400, 8192, 4, True),
        (800, 3072, 4, True),
        (2600, 3072, 2, False),
        (3059, 2400, 2, False),
        (1200, 8192, 2, False),
        (788, 5136, 4, False),
        (400, 8192, 8, False),
    ],
)
def test_pipelines_of_few_rows_have_equally_many(M, N, size, early):
    launched = plan(Problem(M, N, 1, size, False), H200)
    assert (launched.programs == M and launched.stages == 1 and not launched.late) == early


@pytest.mark.parametrize(
    ("M", "N", "size", "residual", "packed"),
    [(2048, 24576, 2, False, True), (300, 32768, 2, False, True), (4096, 16392, 2, False, True)]
    + [(100, 24576, 2, False, False), (4096, 16384, 2, False, False), (4096, 32776, 2, False, False)]
    + [(4096, 24577, 2, False, False), (2048, 24576, 4, False, False), (2048, 24576, 2, True, False)],
)
def test_layer_norm_holds_long_rows_of_whole_vectors_in_pairs(M, N, size, residual, packed):
    """2048 x 24576 bf16: 56.7 us, in float32 71.6."""
    problem = Problem(M, N, 1, size, False, residual)
    in_pairs = Configuration("rows", 16, 8, registers=64, late=True, packed=True)
    assert (choose(problem, H200) == in_pairs) == packed
    assert choose(problem, A100) != in_pairs


@pytest.mark.parametrize(
    ("problem", "fields"),
    [(Problem(300, 24576, 1, 4, False), {"vec": 4}), (Problem(300, 24576, 1, 2, False, True), {})]
    + [(Problem(300, 24576, 1, 2, False), {"late": False}), (Problem(300, 24576, 1, 2, False), {"vec": 4})]
    + [(Problem(300, 4096, 1, 2, False), {"rows": 2}), (Problem(300, 4096, 1, 2, True), {"late": False})],
)
def test_pairs_are_of_one_row_of_16_bits_in_whole_vectors(problem, fields):
    in_pairs = Configuration("rows", 16, 8, registers=64, late=True, packed=True)
    assert launch_or_none(Problem(300, 24576, 1, 2, False), in_pairs, H200) is not None
    assert launch_or_none(problem, in_pairs._replace(**fields), H200) is None
