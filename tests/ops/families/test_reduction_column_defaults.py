# SPDX-License-Identifier: Apache-2.0
"""How columns, along a dimension that is not the last, are divided among programs: what was timed is planned so."""

from __future__ import annotations

import math

import pytest
import torch
from gpus import H200
from moment_rules import plan_by_rules

from flag_gems_overrides.ops.families.reduction import column_defaults, pairs_call
from flag_gems_overrides.ops.families.reduction.extremes import EXTREMES
from flag_gems_overrides.ops.families.reduction.launches import column_grid
from flag_gems_overrides.ops.families.reduction.logsumexp import LOGSUMEXP
from flag_gems_overrides.ops.families.reduction.plan import (
    Configuration,
    Problem,
    choose,
    launch,
    plan,
    with_wide_accumulators,
    with_wide_results,
)


@pytest.mark.parametrize("accumulators", [1, 2])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "problem", [(16, 21, 1 << 18), (4096, 5, 1000), (32, 8, 256), (512, 16, 196), (32, 150, 16384)]
)
def test_few_elements_of_many_results_are_of_few_warps(problem, itemsize, accumulators):
    """4096 x 5 x 1000 bf16, max.dim: 302 us by programs of four warps that loop, 28 us by single ones."""
    p = plan(*problem, itemsize, accumulators, H200)
    looped = p.step < problem[1]
    assert (p.kernel, p.warps <= (1 if looped else 4), p.splits) == ("columns", True, 1)
    assert p.block_n * p.block_k <= 64 * 32 * p.warps


@pytest.mark.parametrize("accumulators", [1, 2])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize(("N", "K"), [(1000000, 64), (1000000, 9), (500000, 24)])
def test_few_columns_of_one_matrix_occupy_the_device(N, K, itemsize, accumulators):
    """What the last program can combine bounds the programs of an output; larger ones make up for it."""
    p = plan(1, N, K, itemsize, accumulators, H200)
    warps = p.blocks * p.splits * p.warps
    assert warps >= 7 * H200.sm_count


@pytest.mark.parametrize("accumulators", [1, 3])
def test_many_short_matrices_of_few_columns_are_read_as_they_lie(accumulators):
    p = plan(1048576, 17, 2, 2, accumulators, H200)
    assert (p.kernel, p.lanes, p.depth, p.splits) == ("short_classes", 4, 8, 1)
    assert plan(1048576, 17, 2, 2, 2, H200).kernel == "columns"  # there are no positions
    assert plan(1000, 17, 2, 2, accumulators, H200).kernel == "columns"


def test_of_four_and_eight_bytes_longer_matrices_are_read_as_they_lie():
    """sum 1773768 x 64 x 2 float32 as columns 491 us, so 326; amax 800000 x 16 x 4 88.1 and 90.9 (H100)."""
    for problem in (1773768, 64, 2, 4, 1), (1000000, 30, 2, 4, 1), (300000, 64, 2, 4, 3), (100000, 33, 8, 8, 1):
        assert plan(*problem, H200).kernel == "short_classes"
    for problem in (1000000, 9, 4, 4, 1), (800000, 16, 4, 4, 1), (524288, 9, 4, 4, 3), (300000, 64, 2, 8, 3):
        assert plan(*problem, H200).kernel == "columns"


@pytest.mark.parametrize(
    ("problem", "lanes", "depth"),
    [
        ((100000, 200, 3, 2), 128, 5),
        ((139122, 64, 5, 2), 64, 8),
        ((300000, 24, 5, 4), 32, 6),
        ((300000, 65, 3, 1), 32, 6),
    ],
)
def test_values_of_three_and_five_columns_are_read_as_they_lie(problem, lanes, depth):
    """sum of the first as columns 126 us, so 48 (H100)."""
    p = plan(*problem, 1, H200)
    assert (p.kernel, p.lanes, p.depth, p.splits) == ("short_classes", lanes, depth, 1)
    M, N, K, itemsize = problem
    for other in (M, N, K, itemsize, 2), (1000, N, K, itemsize, 1), (4 * M, 8, K, itemsize, 1), (M, 50, 7, itemsize, 1):
        assert plan(*other, H200).kernel == "columns"


def test_rows_of_classes_are_read_by_single_warps_where_there_are_rows_enough():
    """20000 x 1000 x 3 bf16, max.dim: 158 us by programs of four warps, 55 us so; not of long rows."""
    many, few = plan(20000, 1000, 3, 2, 2, H200), plan(1, 4000000, 8, 2, 2, H200)
    assert (many.kernel, many.warps, many.stages) == ("classes", 1, 1)
    assert (few.kernel, few.warps, few.stages) == ("classes", 4, 3)
    long = plan(900, 40001, 5, 2, 2, H200)
    assert (long.kernel, long.warps, long.stages) == ("classes", 4, 3)


@pytest.mark.parametrize(("M", "N", "K"), [(1, 1802957, 3), (1, 700001, 7), (1616, 60075, 2), (39, 634456, 4)])
@pytest.mark.parametrize("accumulators", [1, 2])
def test_classes_of_bytes_have_registers(M, N, K, accumulators):
    """any of 1 x 700001 x 7 uint8 64 us with 650 bytes that spill, so 12; 1616 x 60075 x 2 220 by single warps, 98."""
    p = plan(M, N, K, 1, accumulators, H200)
    assert (p.kernel, p.warps >= 2) == ("classes", True)
    assert p.block_n // (p.warps * 32) <= (16 if accumulators == 2 else 32)
    assert p.registers == 128 or K == 2 or p.block_n // (p.warps * 32) <= 16


@pytest.mark.parametrize(
    ("M", "N", "K", "itemsize", "accumulators"),
    [
        (3000, 12000, 3, 2, 2),
        (2793, 5808, 3, 1, 2),
        (4560, 7784, 7, 4, 2),
        (6503, 5952, 7, 1, 1),
        (2000, 8001, 3, 1, 2),
    ],
)
def test_long_classes_are_by_four_warps(M, N, K, itemsize, accumulators):
    """argmax of 3000 x 12000 x 3 bf16 by columns 151 us, so 94 (H100)."""
    p = plan(M, N, K, itemsize, accumulators, H200)
    assert (p.kernel, p.warps, p.stages, p.splits) == ("classes", 4, 3 if accumulators == 2 else 1, 1)


def test_classes_of_float32_moments_are_by_single_warps():
    """std of 28 x 90001 x 6 float32 34.1 us, by four warps 35.9; var_mean of 9 x 100511 x 7 bf16 19.3 and 17.8."""
    assert plan_by_rules(28, 90001, 6, 4).warps == 1
    assert plan_by_rules(9, 100511, 7, 2).warps > 1


@pytest.mark.parametrize(("M", "N", "K", "itemsize"), [(1, 2000003, 17, 4), (1, 3000001, 19, 2), (2, 1000003, 9, 4)])
def test_few_columns_of_odd_moments_are_shared_by_enough_programs(M, N, K, itemsize):
    """std of 1 x 3000001 x 19 bf16 by 128 programs 131 us, so 67 (H100)."""
    p = plan_by_rules(M, N, K, itemsize)
    assert (p.block_k, p.blocks * p.splits > H200.sm_count) == (16, True)


def test_few_columns_of_float64_moments_are_shared_by_enough_programs():
    """var_mean of 1 x 2000003 x 18 by 64 programs 299 us, by 256 130 (H100)."""
    for M, N, K in (1, 2000003, 18), (4, 309425, 7):
        p = plan_by_rules(M, N, K, 8)
        assert p.blocks * p.splits >= H200.sm_count


@pytest.mark.parametrize(("M", "N", "K", "itemsize"), [(1352, 80, 37, 4), (1352, 80, 37, 2), (1100, 100, 51, 4)])
def test_columns_of_more_than_half_a_tile_are_one(M, N, K, itemsize):
    """argmax of 1352 x 80 x 37 float32 in two iterations 16.4 us, so 14.8 (H100)."""
    p = plan(M, N, K, itemsize, 2, H200)
    assert (p.step >= N, p.block_n, p.lanes) == (True, 128, 16)


@pytest.mark.parametrize(("M", "N", "K", "itemsize"), [(24, 3168, 15, 2), (10, 2000, 12, 4)])
@pytest.mark.parametrize("accumulators", [1, 2])
def test_few_results_are_a_program_s_with_all_their_elements(M, N, K, itemsize, accumulators):
    """argmax of the second 5.6 us by programs that share results, 4.1 so (H100)."""
    p = plan(M, N, K, itemsize, accumulators, H200)
    assert (p.kernel, p.splits, p.step >= N) == ("columns", 1, True)
    assert 1 < p.block_k <= 4
    assert p.blocks <= H200.sm_count


@pytest.mark.parametrize(
    ("M", "N", "K", "itemsize", "columns"),
    [
        (191, 18, 61506, 2, 128),
        (191, 18, 61506, 4, 64),
        (4000, 20, 777, 1, 128),
        (5000, 32, 131, 2, 64),
        (2000, 16, 8193, 2, 256),
        (2048, 9, 8155, 2, 256),
        (663226, 11, 10, 2, 64),
        (20000, 20, 300, 2, 64),
    ],
)
def test_many_columns_of_16_bits_to_a_program(M, N, K, itemsize, columns):
    """amax of bf16 by programs of 64 201 us, so 161 (H100)."""
    assert plan(M, N, K, itemsize, 1, H200).block_k == columns


@pytest.mark.parametrize(
    ("N", "K", "itemsize", "accumulators"),
    [(120000, 24, 2, 1), (90000, 31, 4, 1), (150000, 18, 2, 2)],
)
def test_few_columns_by_large_programs(N, K, itemsize, accumulators):
    """prod 146925 x 21 float16 by 128 programs of four warps 17.2 us, so 9.9 (H100)."""
    p = plan(1, N, K, itemsize, accumulators, H200)
    assert (p.blocks, p.splits, p.warps) == (1, 256, 8)
    assert p.registers * p.warps * 32 * 2 <= H200.registers_per_sm, "all are resident"
    assert plan(1, 65536, 42, 2, 2, H200).warps == 4


@pytest.mark.parametrize(("N", "K"), [(146925, 21), (144892, 18), (200000, 31)])
def test_few_columns_in_short_loads_are_shared_by_more_programs(N, K):
    """prod 146925 x 21 float16: 9.38 us by 256 programs, so 8.25 (H200)."""
    p = plan(1, N, K, 2, 1, H200)
    assert (p.blocks, p.splits, p.block_k) == (2, 198, 16)


@pytest.mark.parametrize(("M", "N", "K"), [(5, 201, 13315), (6, 215, 17201), (10, 202, 19761)])
def test_odd_columns_of_words_are_one_tile(M, N, K):
    """any 5 x 201 x 13315 float32: 23.6 us by programs that loop, so 20.9 (H200)."""
    p = plan(M, N, K, 4, 1, H200)
    assert (p.splits, p.step >= N, p.block_k, p.warps) == (1, True, 64, 16)
    assert plan(M, N, K + 1, 4, 1, H200).warps < 16


@pytest.mark.parametrize(("M", "N", "K"), [(32, 81, 128), (26, 91, 122), (25, 69, 137)])
def test_little_values_of_words_are_whole_lines(M, N, K):
    """prod 32 x 81 x 128 float32: 3.88 us by 8 columns, so 3.67 (H200)."""
    p = plan(M, N, K, 4, 1, H200)
    assert (p.splits, p.block_k, p.warps) == (1, 32, 4)
    assert plan(M // 2, N, K, 4, 1, H200).block_k < 32, "more programs rather than lines"


@pytest.mark.parametrize(
    ("N", "K", "itemsize", "kernel"),
    [
        (16, 3, 2, "short_classes"),
        (17, 3, 2, "columns"),
        (16, 3, 4, "columns"),
        (24, 5, 4, "short_classes"),
        (32, 5, 2, "columns"),
        (64, 5, 2, "short_classes"),
        (200, 7, 2, "short_classes"),
        (150, 6, 2, "short_classes"),
        (52, 6, 2, "columns"),
        (136, 7, 4, "columns"),
    ],
)
def test_values_of_columns_that_are_no_power_of_two(N, K, itemsize, kernel):
    """sum 50000 x 200 x 7 bf16 by columns 95 us, so 53, but amax 200000 x 32 x 5 float16 32.6 and 33.7 (H100)."""
    assert plan(300000, N, K, itemsize, 1, H200).kernel == kernel


@pytest.mark.parametrize(("N", "lanes", "depth"), [(40, 8, 5), (57, 8, 7), (5, 1, 5), (64, 64, 1)])
def test_tiles_of_columns_have_few_lanes_without_an_element(N, lanes, depth):
    """max.dim 687181 x 40 x 5 bf16, with 24 of 64 lanes idle 194 us, so 146 (H100)."""
    p = plan(687181, N, 5, 2, 2, H200)
    assert (p.kernel, p.step >= N, p.lanes, p.depth) == ("columns", True, lanes, depth)


def test_wide_accumulators_of_one_tile_have_registers():
    """prod of 64 int16 to a thread takes 72 registers, of which 32 warps have 64."""
    for problem, one_tile in ((Problem(24, 36053, 1, 2, 1), False), (Problem(24, 21083, 1, 4, 1), True)):
        planned = choose(problem, H200)
        assert planned.warps == 32
        assert (with_wide_accumulators(problem, planned, H200) == planned) == one_tile


def test_moments_of_short_classes_from_fewer_elements_on():
    """std of 600000 x 20 x 2 float32 60.5 us in columns, so 46.2 (H100)."""
    assert plan_by_rules(600000, 20, 2, 4).kernel == "short_classes"
    assert plan_by_rules(600000, 16, 2, 4).kernel == plan(600000, 20, 2, 4, 1, H200).kernel == "columns"


@pytest.mark.parametrize(("K", "within"), [(47, True), (99, True), (91, True), (43, False), (75, False)])
def test_all_columns_of_a_matrix_where_few_lanes_are_idle(K, within):
    """nansum 328 x 3073 x 51 float32 120 us, so 90; sum 328 x 3073 x 43 bf16 47.3 and 50.3 (H100)."""
    assert (plan(328, 3073, K, 4, 1, H200).matrices == 0) is within


def test_moments_of_classes_have_full_groups_where_programs_share_none():
    """var_mean 20000 x 1000 x 3 bf16 in groups of four steps 57.7 us, of six 57.0 (H100)."""
    assert [plan_by_rules(M, N, 3, 2).depth for M, N in ((20000, 1000), (9000, 2667))] == [6, 4]
    shared = plan_by_rules(200, 40999, 3, 2)
    assert (shared.kernel, shared.splits > 1, shared.depth) == ("classes", True, 4)


def test_moments_of_three_columns_of_16_bits_are_classes():
    """var_mean 100000 x 200 x 3 bf16 111 us as columns, so 96.8 (H100)."""
    planned = plan_by_rules(100000, 200, 3, 2)
    assert (planned.kernel, planned.warps, planned.step, planned.depth) == ("classes", 1, 240, 3)
    assert plan_by_rules(100000, 400, 3, 2).depth == 5
    for other in ((100000, 160, 3, 2), (100000, 201, 3, 2), (100000, 200, 5, 2), (100000, 200, 3, 4), (500, 200, 3, 2)):
        assert plan_by_rules(*other).kernel == "columns"
    assert plan(100000, 200, 3, 2, 1, H200).kernel == "short_classes"


@pytest.mark.parametrize(
    ("problem", "columns", "programs"),
    [
        ((1, 400, 1024, 4, 1), 8, 128),
        ((168, 2227, 4, 2, 1), 4, 168),
        ((1, 1106, 1024, 2, 1), 8, 128),
        ((16, 1471, 64, 4, 1), 8, 128),
        ((4, 2980, 152, 2, 1), 8, 76),
        ((16, 682, 128, 2, 1), 16, 128),
        ((8, 484, 512, 2, 1), 32, 128),
        ((1, 1372, 615, 2, 1), 8, 77),
    ],
)
def test_little_of_few_columns_is_not_shared(problem, columns, programs):
    planned = plan(*problem, H200)
    assert (planned.splits, planned.block_k, planned.blocks) == (1, columns, programs)
    assert planned.step >= problem[1]


@pytest.mark.parametrize(
    ("problem", "columns"),
    [
        (Problem(4, 8, 88, 4, 3), 8),
        (Problem(3, 8, 120, 4, 3), 8),
        (Problem(3, 16, 120, 4, 3), 8),
        (Problem(4, 8, 96, 4, 3), 32),
        (Problem(4, 8, 88, 2, 3), 32),
        (Problem(4, 8, 88, 4, 1), 32),
        (Problem(4, 8, 87, 4, 3), 32),
        (Problem(4, 4, 88, 4, 3), 32),
    ],
)
def test_a_little_tile_of_moments_divides_the_columns(problem, columns):
    """var_correction 4 x 8 x 88 float32 by 8 columns 3.02 us, by 32 3.40; of 16 bits 3.05 and 3.08 (H100)."""
    assert choose(problem, H200).block_k == columns


@pytest.mark.parametrize(
    ("problem", "policy", "registers"),
    [
        ((191807, 848), LOGSUMEXP, 96),
        ((30109, 425), LOGSUMEXP, 64),
        ((191807, 848), EXTREMES, 64),
    ],
)
def test_exponentials_of_many_elements_have_registers(problem, policy, registers):
    """Of two rows a tuner may find to be the fastest."""
    found = Problem(*problem, 1, 2, 2)
    configuration = pairs_call.choose(found, True, H200)
    launched = launch(found, configuration._replace(elements=64), H200)
    assert pairs_call._registers(policy, launched, torch.float32) == registers


@pytest.mark.parametrize(
    ("M", "N", "K", "size"), [(385, 117, 50, 2), (385, 100, 50, 1), (12, 80, 2048, 4), (6, 69, 3712, 4)]
)
@pytest.mark.parametrize("accumulators", [1, 2])
def test_some_results_of_up_to_128_elements_are_one_tile(M, N, K, size, accumulators):
    """amax 385 x 100 x 50 bf16, in two tiles, 7.15 us, so 5.39 (H100)."""
    p = plan(M, N, K, size, accumulators, H200)
    assert (p.kernel, p.step >= N, p.block_k, p.warps, p.splits) == ("columns", True, 32, 4, 1)
    for other in ((M, 2 * N, K), (M, N, 16 * K)):
        assert plan(*other, size, accumulators, H200).step < other[1]
    many = 132 * 131072 // (N * K * size) + 1
    assert plan(max(M, many), N, K, size, accumulators, H200).step < N


@pytest.mark.parametrize(
    ("N", "K", "tiled"), [(128, 197, True), (97, 197, True), (96, 197, False), (129, 197, False), (128, 198, False)]
)
def test_moments_of_many_odd_columns_of_16_bits_are_one_tile(N, K, tiled):
    """var 3900 x 128 x 197 bf16 by single warps 99.6 us, so 79.5 (H100)."""
    p = plan_by_rules(3900, N, K, 2)
    assert ((p.warps, p.block_k, p.step >= N) == (4, 32, True)) is tiled


@pytest.mark.parametrize(("N", "K", "block_k"), [(10, 7, 256), (14, 11, 256), (14, 10, 256), (31, 1091, 128)])
def test_programs_have_more_columns_of_few_bytes(N, K, block_k):
    """amin 1008445 x 14 x 11 int8 by programs of 64 columns 110 us, so 85 (H100)."""
    M = 4_000_000 // K
    p = plan(M, N, K, 1, 1, H200)
    assert (p.block_k, p.warps, p.step >= N) == (block_k, 4, True)
    assert plan(M, N, K, 2, 1, H200).block_k < block_k or N > 16
    assert plan(20_000 // K, N, K, 1, 1, H200).block_k < block_k
    problem = Problem(M, N, K, 1, 1)  # sum 100000 x 24 x 7 uint8 17.9 us, with more 18.3
    for wide in (with_wide_accumulators, with_wide_results):
        assert wide(problem, choose(problem, H200), H200).block_k < block_k or K > 128


@pytest.mark.parametrize(("M", "N", "K"), [(1448, 284, 653)])
def test_odd_words_are_loaded_by_four_warps(M, N, K):
    """any 2400 x 48 x 545 int32, by single warps 107 us, so 98 (H100)."""
    p = plan(M, N, K, 4, 1, H200)
    assert (p.kernel, p.warps, p.block_n, p.block_k, p.splits) == ("columns", 4, 32, 64, 1)
    assert plan(M, 40, K, 4, 1, H200).warps == 1


def test_odd_columns_of_16_bits_in_less_than_a_sector_are_read_by_four_warps():
    """sum 16384 x 256 x 9 bf16 by two warps of 16 elements 49.6 us, so 41.5 (H100)."""
    p = plan(16384, 256, 9, 2, 1, H200)
    assert (p.kernel, p.warps, p.block_n, p.block_k) == ("columns", 4, 32, 64)


@pytest.mark.parametrize(
    ("problem", "kernel"), [((35751, 214, 4, 2, 1), "short_classes"), ((2965, 3728, 3, 2, 2), "classes")]
)
def test_few_columns_of_16_bits_are_classes(problem, kernel):
    """any 35751 x 214 x 4 bf16 44.2 us as columns, so 27.6, max.dim 2965 x 3728 x 3 52.0 and 35.6 (H100)."""
    assert plan(*problem, H200).kernel == kernel


@pytest.mark.parametrize(
    ("problem", "warps", "splits"),
    [
        ((8, 4096, 1000), 4, 2),
        ((8, 4096, 1008), 4, 2),
        ((30, 3000, 264), 4, 2),
        ((8, 4096, 1024), 2, 4),  # whole blocks of columns
        ((20, 2000, 1000), 2, 1),  # too many to share
        ((8, 50328, 200), 2, 21),  # longer
    ],
)
def test_moments_of_columns_of_no_whole_blocks_are_shared_by_programs_of_four_warps(problem, warps, splits):
    """var_mean 8 x 4096 x 1000 bf16 42.3 us by two warps, so 36.5, amax 36.4 (H100)."""
    p = plan_by_rules(*problem, 2)
    assert (p.kernel, p.block_k, p.warps, p.splits) == ("columns", 32, warps, splits)


@pytest.mark.parametrize(
    ("problem", "warps"), [((2200, 5, 135, 2, 1), 4), ((2200, 5, 135, 2, 2), 4), ((2200, 5, 135, 1, 1), 2)]
)
def test_few_elements_that_are_loaded_one_by_one_are_of_four_warps(problem, warps):
    """all 8 x 5 x 1659497 bf16 67.2 us by two warps, so 61.7 (H100)."""
    p = plan(*problem, H200)
    assert (p.kernel, p.block_k, p.warps) == ("columns", 256 if problem[3] == 2 else p.block_k, warps)


def test_long_odd_columns_of_16_bits_are_shared():
    """prod 8 x 4991 x 151 bf16 in one tile 17.2 us, so 12.7 (H100)."""
    assert plan(8, 4991, 151, 2, 1, H200).splits > 1


@pytest.mark.parametrize(("K", "registers"), [(11, 96), (45, 96), (10, 80)])
def test_pairs_of_odd_columns_in_a_loop_have_registers_for_addresses(K, registers, monkeypatch):
    """In 80 registers 80 bytes of aminmax 24 x 25503 x 45 float32 spill."""
    monkeypatch.setattr(pairs_call.devices, "limits", lambda device: H200)
    assert pairs_call._plan(EXTREMES, Problem(24, 25503, K, 4, 2), True, 0).registers == registers
    # Of logsumexp 82 x 20 x 35448 float64 104 bytes spill with 16 elements of a thread.
    for policy, size, elements in ((LOGSUMEXP, 8, 8), (EXTREMES, 8, 16), (LOGSUMEXP, 4, 16)):
        found = pairs_call._plan(policy, Problem(82, 64, 35437 + K, size, 2), True, 0)
        assert found.block_n * found.block_k == elements * found.warps * 32


@pytest.mark.parametrize(
    ("problem", "lanes", "depth"),
    [
        ((60000, 131, 3, 2), 32, 13),
        ((80953, 87, 5, 2), 32, 14),
        ((40000, 154, 5, 2), 64, 12),
        ((60000, 89, 3, 2), 32, 8),
    ],
)
def test_odd_classes_of_a_warp_have_more_elements(problem, lanes, depth):
    """sum 60000 x 131 x 3 float16 34.4 us as columns, so 23.8 (H100)."""
    p = plan(*problem, 1, H200)
    assert (p.kernel, p.lanes, p.depth) == ("short_classes", lanes, depth)


@pytest.mark.parametrize(("M", "warps"), [(3995, 2), (4488, 2), (3000, 1), (6000, 1)])
def test_classes_of_more_rows_than_programs_at_once_are_by_two_warps(M, warps):
    """any 4488 x 5400 x 3 float16 by single warps 72.4 us, so 62.9 (H100)."""
    p = plan(M, 5400, 3, 2, 1, H200)
    assert (p.kernel, p.warps, p.splits) == ("classes", warps, 1)
    assert plan(M, 5400, 3, 2, 2, H200).warps == 1


@pytest.mark.parametrize(("N", "K", "tile"), [(128, 1153, True), (64, 1153, False), (128, 1154, False)])
def test_odd_values_of_16_bits_are_one_tile(N, K, tile):
    """vector_norm 487 x 128 x 1153 float16 in a loop 65.6 us, so 63.1 (H100)."""
    p = plan(487, N, K, 2, 1, H200)
    assert ((p.block_k, p.warps, p.block_n, p.registers) == (32, 4, 128, 128)) is tile


@pytest.mark.parametrize(
    ("problem", "columns"), [((2, 64, 512, 8, 1), 8), ((1, 128, 976, 8, 2), 8), ((2, 64, 500, 8, 1), 4)]
)
def test_more_than_a_sector_of_64_bits(problem, columns):
    """count_nonzero 2 x 64 x 512 int64 by 256 programs of four columns 4.16 us, so 3.51 (H100)."""
    assert plan(*problem, H200).block_k == columns


@pytest.mark.parametrize(
    ("problem", "columns"),
    [
        ((2048, 16, 8155, 2, 2), 64),
        ((2000, 12, 2048, 1, 1), 256),
        ((20, 12, 2048, 1, 1), 64),
    ],
)
def test_few_values_and_positions_are_in_wide_tiles(problem, columns):
    """max.dim 2048 x 9 x 8155 bf16 by programs of 64 columns 171 us, so 165, amax 2000 x 12 x 2048 int8 45 and 27."""
    assert plan(*problem, H200).block_k == columns


def test_many_long_columns_of_float32_are_not_read_by_four_warps():
    """amax 10 x 1567 x 8192: 190.5 us by four warps, so 178.7; 40 x 752 x 1735: 101.9 and 90.0 us (H100)."""
    p = plan(10, 1567, 8192, 4, 1, H200)
    assert (p.warps, p.block_k, p.block_n, p.splits) == (2, 64, 16, 1)
    for M, N, K in (64, 500, 1025), (40, 752, 1735), (20, 300, 9001):
        p = plan(M, N, K, 4, 1, H200)
        assert (p.warps, p.block_k, p.block_n, p.splits) == (8, 64, 64, 1)


def test_columns_of_words_have_one_tile_in_flight():
    """max.dim 6 x 29514 x 22 bf16: 13.6 us with three, so 11.3 (H100). Halves of vectors still have three."""
    assert plan(6, 29514, 22, 2, 2, H200).stages == 1
    assert column_defaults.columns(Problem(6, 29514, 20, 2, 2), H200).stages == 3


def test_sums_of_five_classes_of_16_bits_have_more_registers():
    """amax 4 x 289742 x 5 float16: 17.2 us by 32 warps, so 14.8 (H100)."""
    assert plan(4, 289742, 5, 2, 1, H200).registers == 128


@pytest.mark.parametrize(
    ("problem", "block_k"),
    [((5, 2629275, 14, 4), 16), ((32, 149323, 13, 2), 16), ((18, 51609, 30, 2), 32), ((49824, 16, 51, 4), 64)],
)
def test_rows_of_few_columns_are_read_as_they_lie(problem, block_k):
    """amax 5 x 2629275 x 14 float32 by columns 327 us, so 280; 49824 x 16 x 51: 74.1 and 66.0 us (H100)."""
    p = plan(*problem, 1, H200)
    assert (p.kernel, p.matrices, p.block_k) == ("columns", 0, block_k)
    M, N, _, itemsize = problem
    assert plan(M, N, 21, itemsize, 1, H200).matrices > 0


def test_a_thread_of_little_moments_has_single_columns():
    """std 2 x 4 x 8192 float32 takes 156 instructions, 322 in vectors."""
    for M, N, K, size, lanes in ((2, 4, 8192, 4, 1), (2, 7, 8192, 8, 1), (7, 6, 16, 4, 1), (4, 12, 2048, 4, 2)):
        p = plan(M, N, K, size, 3, H200)
        assert (p.lanes, p.warps) == (lanes, 1)
    configuration = Configuration("columns", 8, 1, 16, 1, 16, False)
    assert launch(Problem(4, 12, 2048, 4, 3), configuration, H200).lanes == 2
    assert launch(Problem(64, 12, 2048, 4, 3), configuration, H200).lanes == 8  # more bytes: in vectors


@pytest.mark.parametrize(
    ("problem", "starts"),
    [
        ((1, 16, 22, 2, 1), "first"),
        ((4, 6, 3, 2, 1), "first"),
        ((2, 4, 8192, 4, 3), "axis"),
        ((1024, 1024, 1024, 2, 1), "axis"),
        ((70000, 30, 64, 2, 1), "divided"),  # more than an axis has
        ((2, 4, 8191, 4, 3), "divided"),
        ((2, 1000000, 64, 2, 1), "divided"),  # programs share results
    ],
)
def test_programs_of_columns_start_without_a_division_where_they_can(problem, starts):
    """Some 45 instructions before the first load: std 2 x 4 x 8192 float32 has 42 there, 64 with a division."""
    M, _, K, *_ = problem
    chosen = plan(*problem, H200)
    grid, found = column_grid(M, K, chosen)
    assert found == starts
    assert math.prod(grid) == chosen.blocks * chosen.splits


@pytest.mark.parametrize(
    ("M", "K", "itemsize", "accumulators", "elements", "warps"),
    [
        (300, 5, 2, 2, 16, 2),  # max.dim of 300 x 30001 x 5: 44.4 us, by four warps 60.7 (H200)
        (300, 5, 4, 2, 8, 2),
        (900, 5, 2, 2, 8, 4),  # not shared
        (300, 5, 2, 1, 16, 1),  # amax: 38.2 us, with 8 elements 42.3
        (300, 7, 2, 1, 8, 1),
    ],
)
def test_long_classes_have_enough_in_flight(M, K, itemsize, accumulators, elements, warps):
    found = choose(Problem(M, 30001, K, itemsize, accumulators), H200)
    assert (found.kernel, found.elements, found.warps) == ("classes", elements, warps)


def test_some_odd_words_have_twice_as_many_elements():
    """amax 338 x 1208 x 129 float32: 80.7 us by four warps with half as many elements, so 74.2 (H200)."""
    found = choose(Problem(338, 1208, 129, 4, 1), H200)
    assert (found.kernel, found.elements, found.warps, found.block_k) == ("columns", 32, 8, 64)
