# SPDX-License-Identifier: Apache-2.0
"""How rows are divided among programs: what was timed is planned so."""

from __future__ import annotations

import pytest
from gpus import A100, H200, RTX4090
from moment_rules import configuration_by_rules, plan_by_rules

from flag_gems_overrides.ops.families.reduction import pairs_call
from flag_gems_overrides.ops.families.reduction.pairs_call import by_lanes
from flag_gems_overrides.ops.families.reduction.plan import (
    Configuration,
    Problem,
    choose,
    launch,
    plan,
    with_neighbours_together,
    with_wide_accumulators,
    with_wide_results,
)


@pytest.mark.parametrize("limits", [H200, A100, RTX4090], ids=["h200", "a100", "4090"])
@pytest.mark.parametrize(
    "problem",
    [(1, 1 << 24, 1), (16, 1 << 20, 1), (8, 1 << 21, 1), (1, 65536, 256), (1, 100000, 200), (200, 40999, 3)],
    ids=str,
)
@pytest.mark.parametrize("itemsize", [2, 4])
def test_few_long_rows_occupy_the_device(problem, itemsize, limits):
    p = plan(*problem, itemsize, 1, limits)
    assert p.blocks * p.splits >= limits.sm_count


@pytest.mark.parametrize("problem", [(128, 768, 197), (16, 1000, 4096), (8, 300, 8192)])
def test_a_warp_for_each_tile_only_where_that_fills_the_device(problem):
    """128 x 768 x 197 bf16, amax: 21 us, so 59."""
    assert plan(*problem, 2, 1, H200).warps > 2


def test_a_row_of_float64_read_by_single_elements_is_one_tile():
    """max.dim of the first by single warps in two iterations 67.2 us, so 56.7 (H100)."""
    for N in 561, 901:
        p = plan(32911, N, 1, 8, 2, H200)
        assert (p.vector, p.warps, p.step, p.edge_lanes) == (1, 4, 1024, 0)


@pytest.mark.parametrize("accumulators", [1, 2])
@pytest.mark.parametrize(
    ("M", "N", "itemsize", "rows"),
    [
        (493032, 17, 2, 64),
        (361388, 83, 2, 32),
        (12000, 83, 2, 32),
        (200000, 125, 2, 32),
        (1000000, 9, 1, 256),
        (400000, 201, 1, 16),
        (900000, 34, 2, 32),
        (500000, 76, 1, 32),
    ],
)
def test_short_rows_are_loaded_by_lanes(M, N, itemsize, rows, accumulators):
    """amin of 361388 x 83 bf16 64 us with a lane for each element, so 29 (H100)."""
    p = plan(M, N, 1, itemsize, accumulators, H200)
    assert (p.kernel, p.block_k, p.step >= N, p.splits) == ("columns", rows, True, 1)
    assert p.depth * p.lanes <= N < (p.depth + 1) * p.lanes
    for other in (1000, N, itemsize), (M, 64, itemsize), (M, 62, 2), (M, 16 * N, itemsize), (M, 33, 8):
        assert plan(other[0], other[1], 1, other[2], accumulators, H200).kernel == "rows"
    assert plan(M, N, 1, max(itemsize, 2), 3, H200).kernel == "rows"  # moments are of floating elements


@pytest.mark.parametrize(("M", "N", "accumulators"), [(300000, 63, 2), (20000, 23, 1), (400000, 62, 1)])
def test_short_rows_of_float32_that_are_not_loaded_by_lanes(M, N, accumulators):
    """max.dim of 300000 x 63 float32 by lanes 38.5 us, so 35.1; sum of 400000 x 62 46.0 and 41.1 (H100)."""
    assert plan(400000, 23, 1, 4, 1, H200).kernel == "columns"
    assert plan(M, N, 1, 4, accumulators, H200).kernel == "rows"


@pytest.mark.parametrize(
    ("problem", "warps"),
    [
        ((44520, 2560, 8, 2), 8),
        ((16000, 10240, 2, 1), 8),
        ((544, 10312, 2, 1), 8),
        ((30000, 6144, 4, 1), 8),
        ((30000, 5120, 4, 2), 8),
    ],
)
def test_rows_a_little_longer_than_a_tile_are_one(problem, warps):
    """min of 44520 x 2560 int64 in two tiles 343 us, so 300 (H100)."""
    M, N, itemsize, accumulators = problem
    p = plan(M, N, 1, itemsize, accumulators, H200)
    assert (p.step >= N, p.warps, p.edge_lanes) == (True, warps, 0)
    assert plan(M, 7 * N // 4, 1, itemsize, accumulators, H200).step < N


@pytest.mark.parametrize(("M", "N", "itemsize"), [(256, 30338, 2), (200, 30001, 2), (263, 137715, 1)])
def test_long_rows_of_which_each_multiprocessor_has_two(M, N, itemsize):
    """sum of 256 x 30338 bf16 by two programs for each row 14.6 us, so 13.2 (H100)."""
    p = plan(M, N, 1, itemsize, 1, H200)
    assert (p.splits, p.warps, p.block_n) == (1, 16, 8192)
    assert plan(150, N, 1, itemsize, 1, H200).warps < 16


def test_a_few_tiles_are_not_shared():
    """mean 13 x 191 x 616 bf16, by three programs for each result 7.3 us, so 5.7 (H100)."""
    assert plan(13, 191, 616, 2, 1, H200).splits == 1
    assert plan(1, 1 << 20, 64, 2, 1, H200).splits > 1


@pytest.mark.parametrize("accumulators", [1, 2, 3])
@pytest.mark.parametrize("N", [3, 5, 6, 7])
def test_whole_short_rows_of_a_thread(N, accumulators):
    p = plan(1000001, N, 1, 4, accumulators, H200)
    assert (p.kernel, p.vector, p.splits) == ("short", 4, 1)


@pytest.mark.parametrize("N", [2, 3, 5, 6, 7])
@pytest.mark.parametrize("M", [40, 1001, 8296])
def test_few_whole_short_rows_of_a_thread(M, N):
    """prod of 8296 x 7 int16: 145 instructions, as rows 317 (sm_90)."""
    for accumulators in 1, 2:
        p = plan(M, N, 1, 4, accumulators, H200)
        assert (p.kernel, p.vector, p.warps) == ("short", 1, 1)
    assert plan(M, N, 1, 4, 3, H200).kernel == "rows"
    for M, N in (1001, 1), (3, 5):
        assert plan(M, N, 1, 4, 1, H200).kernel == "rows"


def test_little_rows_are_read_element_by_element():
    """max.dim 1 x 112 float16: 2.90 us in vectors, so 2.76; amax 7 x 2 float32: 2.87 and 2.76 us (H100)."""
    for M, N, itemsize, accumulators in (1, 112, 2, 2), (384, 64, 2, 2), (7, 2, 4, 1), (1, 20, 2, 2):
        p = plan(M, N, 1, itemsize, accumulators, H200)
        assert (p.kernel, p.vector, p.neighbours) == ("rows", 1, 1)


@pytest.mark.parametrize(("N", "itemsize"), [(2, 1), (2, 2), (4, 1), (4, 2), (2, 4)])
def test_values_of_less_than_a_vector_are_a_thread_s(N, itemsize):
    """sum 3387879 x 2 bf16 in vectors of a row 23.5 us, so 12.9 (H100)."""
    p = plan(1000001, N, 1, itemsize, 1, H200)
    assert (p.kernel, p.vector) == ("short", min(16 // itemsize, 8))
    assert plan(1000001, 16 // itemsize, 1, itemsize, 1, H200).kernel == "rows"


def test_a_long_odd_row_is_read_in_vectors():
    """sum 1749885 int32, as a shorter one was timed, 9.44 us, so 8.73 (H100)."""
    for N in 1000001, 1749885, 4411665:
        assert plan(1, N, 1, 4, 1, H200).vector == 4


def test_positions_of_odd_rows_of_bytes_in_vectors():
    """min.dim 131072 x 717 int8 element by element 103 us, so 47 (H100)."""
    for M, N in (131072, 717), (60000, 333):
        assert plan(M, N, 1, 1, 2, H200).vector == 16
    assert plan(3177, 193, 1, 1, 2, H200).vector == 1


def test_even_rows_of_32_bits_have_no_edges():
    """prod 21296 x 294 float32 in vectors of four with edges 24.5 us, so 16.0 (H100)."""
    for M, N in (21296, 294), (100000, 510):
        p = plan(M, N, 1, 4, 1, H200)
        assert (p.vector, p.edge_lanes, p.step) == (2, 0, 512)
    for N, itemsize, accumulators in (293, 4, 1), (292, 4, 1), (514, 4, 1), (294, 2, 1):
        assert plan(21296, N, 1, itemsize, accumulators, H200).vector == 16 // itemsize


@pytest.mark.parametrize(
    ("M", "N", "itemsize", "lanes", "rows"),
    [
        (116284, 47, 2, 8, 16),
        (951209, 91, 2, 16, 16),
        (300000, 91, 1, 16, 16),
        (32911, 561, 8, 64, 2),
        (14844, 554, 2, 64, 8),
        (60000, 402, 4, 64, 4),
    ],
)
def test_pairs_of_short_rows_by_few_lanes(M, N, itemsize, lanes, rows):
    """aminmax of the last 145 us with a lane for every element, so 58 (H100)."""
    problem = Problem(M, N, 1, itemsize, 2)
    p = by_lanes(problem, launch(problem, pairs_call.choose(problem, True, H200), H200), H200)
    assert p is not None
    assert (p.lanes, p.block_m, p.edge_lanes) == (lanes, rows, 0)
    assert p.depth * p.lanes <= N < (p.depth + 1) * p.lanes
    for other in (100, N, itemsize), (M, 16 * N, itemsize), (300000, 72, 1), (300000, 150, 1):
        problem = Problem(other[0], other[1], 1, other[2], 2)
        assert by_lanes(problem, launch(problem, pairs_call.choose(problem, True, H200), H200), H200) is None


@pytest.mark.parametrize("M", [234, 150, 1000])
def test_rows_of_16_bits_with_edges_in_one_large_tile(M):
    """mean of 150 x 16181 bf16 7.8 us by three programs for each row, so 6.4 (H100)."""
    p = plan(M, 16181, 1, 2, 1, H200)
    assert (p.blocks, p.step, p.splits, p.warps) == (M, 16384, 1, 16)
    for other in (400, 16181, 2), (M, 12001, 2), (M, 30001, 2), (M, 16181, 4):
        p = plan(*other[:2], 1, other[2], 1, H200)
        assert p.step < 16384 or p.warps != 16


@pytest.mark.parametrize(
    ("problem", "step", "warps", "vector"),
    [
        ((40, 32768, 2, 1), 32768, 16, 8),
        ((24, 36053, 2, 1), 65536, 32, 8),
        ((4, 30896, 4, 1), 32768, 32, 4),
        ((64, 16181, 2, 1), 16384, 8, 8),
        ((128, 5535, 4, 1), 8192, 8, 4),
        ((63, 7633, 8, 1), 8192, 16, 2),
        ((40, 15431, 2, 2), 16384, 16, 8),
        ((100, 5001, 4, 2), 8192, 8, 4),
        ((108, 3225, 8, 2), 4096, 16, 1),
        ((64, 7001, 8, 2), 8192, 16, 1),
        ((17, 8871, 4, 3), 16384, 16, 4),
    ],
)
def test_a_long_row_is_one_tile_where_each_multiprocessor_has_one_at_most(problem, step, warps, vector):
    """sum of 40 x 32768 bf16 5.66 us by four programs for each row, so 4.79 (H100)."""
    M, N, itemsize, accumulators = problem
    p = plan(M, N, 1, itemsize, accumulators, H200)
    assert (p.blocks, p.step, p.splits, p.warps, p.vector) == (M, step, 1, warps, vector)


@pytest.mark.parametrize(
    "problem", [(133, 40000, 2, 1), (20, 131072, 2, 1), (120, 20000, 4, 2), (64, 9001, 8, 2), (17, 9001, 8, 3)]
)
def test_a_long_row_that_is_not_one_tile(problem):
    M, N, itemsize, accumulators = problem
    p = plan(M, N, 1, itemsize, accumulators, H200)
    assert p.step < N


@pytest.mark.parametrize("M", [132, 128, 100])
def test_longer_rows_nearly_as_many_as_multiprocessors_are_not_shared(M):
    """amax of 128 x 131072 bf16 21.2 us by four programs for each row, so 19.4 (H100)."""
    p = plan(M, 131072, 1, 2, 1, H200)
    assert (p.step, p.splits, p.warps) == (32768, 1, 32)
    assert plan(90, 131072, 1, 2, 1, H200).splits > 1


def test_rows_of_a_program_each_where_multiprocessors_have_none():
    """argmax of 2 x 1533 float32 3.35 us by one program, as another row was timed, so 3.15 (H100)."""
    assert plan(2, 1533, 1, 4, 2, H200).blocks == 2


@pytest.mark.parametrize(
    ("N", "warps", "depth"), [(2209, 8, 8), (3001, 16, 5), (4129, 16, 8), (4128, 8, 8), (7166, 8, 13), (8191, 16, 15)]
)
def test_long_rows_of_float64_are_groups_of_lanes(N, warps, depth):
    """var_mean 8000 x 3001 float64 107 us in a loop with edges, so 70.9 (H100)."""
    planned = plan_by_rules(8000, N, 1, 8)
    assert (planned.warps, planned.depth, planned.edge_lanes, planned.splits) == (warps, depth, 0, 1)


def test_groups_of_lanes_have_all_of_a_short_row():
    """Whatever the elements of a configuration: programs cannot share what one lane has of it."""
    planned = launch(Problem(2, 1001, 1, 2, 3), Configuration("rows", 8, 1, 24, split=True, stages=2), H200)
    assert (planned.splits, planned.block_n, planned.lanes * planned.depth <= 1001) == (1, 1024, True)


@pytest.mark.parametrize(
    ("M", "N", "itemsize"), [(4096, 1023, 4), (4096, 1024, 4), (16384, 1023, 4), (2000, 777, 4), (4096, 2047, 2)]
)
def test_moments_of_rows_that_fill_a_short_tile_are_a_program_each(M, N, itemsize):
    """std 2000 x 777 float32 9.2 us, so 6.8; var_mean 4096 x 2047 bf16 15.9 and 13.4 (H100)."""
    planned = plan_by_rules(M, N, 1, itemsize)
    assert (planned.blocks, planned.block_m, planned.splits, planned.warps) == (M, 1, 1, 4)
    assert planned.step >= N
    assert plan_by_rules(M, 3 * planned.step // 4 - 1, 1, itemsize).block_m == 8


@pytest.mark.parametrize(
    ("M", "N", "itemsize", "vector", "lanes"),
    [
        (524288, 24, 4, 2, 4),
        (200000, 40, 4, 2, 8),
        (600000, 20, 4, 2, 4),
        (100000, 96, 4, 2, 16),
        (300000, 65, 4, 1, 16),
        (300000, 66, 4, 2, 16),
        (300000, 33, 4, 1, 8),
        (524288, 24, 2, 4, 4),
        (300000, 65, 2, 1, 8),
        (300000, 97, 4, 4, 0),
        (524288, 32, 4, 4, 0),
        (19095, 536, 4, 4, 64),
        (20000, 424, 2, 8, 64),
        (20000, 1536, 2, 8, 256),
        (12576, 248, 2, 8, 0),
        (6, 691, 4, 1, 128),
    ],
)
def test_moments_of_short_rows_have_no_idle_lanes(M, N, itemsize, vector, lanes):
    """std 300000 x 65 float32 61.8 us, so 35.0; var_mean 200000 x 40 22.2 and 18.7, 6 x 691 3.65 and 3.28 (H100)."""
    planned = plan_by_rules(M, N, 1, itemsize)
    assert (planned.vector, planned.lanes, planned.splits) == (vector, lanes, 1)
    assert (planned.edge_lanes == 0) is (N != 97)


@pytest.mark.parametrize(
    ("M", "N", "itemsize", "warps", "registers", "depth"),
    [
        (20000, 9001, 2, 4, 128, 8),
        (728, 9383, 2, 4, 128, 9),
        (601, 5240, 4, 4, 128, 10),
        (90, 20000, 4, 16, 128, 9),
        (1500, 3001, 4, 4, 64, 5),
        (3000, 7777, 2, 4, 128, 7),
        (1000, 49151, 2, 16, 128, 11),
    ],
)
def test_moments_of_long_rows_are_loaded_together_in_groups(M, N, itemsize, warps, registers, depth):
    """var_mean 20000 x 9001 bf16 174.5 us in a loop, so 127; std 601 x 5240 float32 12.0 and 10.3 (H100)."""
    planned = plan_by_rules(M, N, 1, itemsize)
    lanes = warps * 32 * (16 // itemsize)
    assert planned[1:3] == (M, 1)
    assert (planned.warps, planned.registers, planned.lanes, planned.depth) == (warps, registers, lanes, depth)
    assert planned.depth * lanes <= N - 2 * (planned.vector - 1) * (planned.edge_lanes > 0) < (depth + 1) * lanes


@pytest.mark.parametrize("problem", [(60, 20000, 1, 4), (132, 8000, 1, 4), (1000, 49152, 1, 2)])
def test_moments_of_longer_or_of_few_rows_are_no_groups(problem):
    assert plan_by_rules(*problem).lanes == 0


@pytest.mark.parametrize(
    ("M", "N", "itemsize", "lanes"),
    [(145861, 272, 2, 32), (60000, 136, 2, 16), (300000, 188, 4, 32), (5000, 272, 2, 0)],
)
def test_many_rows_of_moments_that_leave_lanes_idle_are_grouped(M, N, itemsize, lanes):
    """var_correction 145861 x 272 bf16 62.0 us in one tile of 512 lanes for a row (torch.compile 50.0; H100)."""
    planned = plan_by_rules(M, N, 1, itemsize)
    assert (planned.lanes, planned.splits) == (lanes, 1)


@pytest.mark.parametrize(
    ("M", "N", "itemsize", "warps", "vector"),
    [(3, 6801, 2, 8, 8), (60, 3501, 2, 4, 8), (12, 13001, 1, 16, 16), (60, 2101, 4, 4, 4), (1, 2049, 2, 4, 8)],
)
def test_positions_of_few_odd_rows_are_read_in_vectors(M, N, itemsize, warps, vector):
    """argmax 3 x 6801 bf16, whose single elements spill, 5.40 us, so 3.55 (H100)."""
    p = plan(M, N, 1, itemsize, 2, H200)
    assert (p.warps, p.vector, p.neighbours, p.step >= N, p.splits) == (warps, vector, vector, True, 1)
    assert p.edge_lanes
    assert plan(M, 2001, 1, itemsize, 2, H200).vector == 1  # 16 elements to a thread


@pytest.mark.parametrize(
    ("M", "N", "rows"),
    [(20000, 33, 32), (8000, 75, 16), (8000, 41, 32), (4300, 41, 32), (8000, 50, 32), (2000, 75, 8)],
)
def test_positions_of_fewer_short_rows_by_lanes(M, N, rows):
    """max.dim 20000 x 33 bf16 8.5 us, so 4.1 (H100)."""
    p = plan(M, N, 1, 2, 2, H200)
    assert (p.kernel, p.block_k, p.step >= N, p.warps) == ("columns", rows, True, 4)
    fewest = 8 if N > 64 else rows
    assert plan(131 * fewest, N, 1, 2, 2, H200).kernel == "rows"  # multiprocessors without a program


@pytest.mark.parametrize(
    ("M", "N", "size", "rows"),
    [
        (100000, 33, 4, 16),
        (140000, 127, 4, 8),
        (3000, 201, 4, 2),
        (20000, 235, 8, 1),
        (60000, 101, 8, 2),
    ],
)
def test_positions_of_odd_short_rows_are_found_by_single_warps(M, N, size, rows):
    """argmin 20000 x 235 float64 by four rows and two warps 21.9 us, so 19.8 (H100)."""
    p = plan(M, N, 1, size, 2, H200)
    assert (p.kernel, p.vector, p.block_m, p.warps) == ("rows", 1, rows, 1)


@pytest.mark.parametrize(("M", "N"), [(9556, 19), (13992, 27), (24505, 9)])
def test_positions_of_shorter_rows_of_64_bits_are_found_by_two_warps(M, N):
    """max.dim 13992 x 27 float64 by single warps of half as many rows 5.35 us, so 5.08 (H100)."""
    p = plan(M, N, 1, 8, 2, H200)
    assert (p.kernel, p.block_m * p.block_n, p.warps) == ("rows", 512, 2)


def test_positions_of_few_long_rows_are_shared_in_smaller_tiles():
    """logsumexp 144 x 101219 float16 in tiles of twice as many elements 21.0 us, so 20.4 (H100)."""
    assert plan(144, 101219, 1, 2, 2, H200).block_n == 2048


@pytest.mark.parametrize(
    ("M", "N", "itemsize", "warps", "vector"), [(4, 6665, 2, 8, 8), (100, 3001, 2, 4, 8), (20, 7001, 1, 8, 16)]
)
def test_values_of_few_odd_rows_are_read_in_vectors(M, N, itemsize, warps, vector):
    """amax 4 x 6665 int16, whose single elements spill, 3.67 us, so 3.04 (H100)."""
    p = plan(M, N, 1, itemsize, 1, H200)
    assert (p.warps, p.vector, p.step >= N, p.splits) == (warps, vector, True, 1)
    assert p.edge_lanes
    assert plan(M, 2001, 1, itemsize, 1, H200).vector == 1


@pytest.mark.parametrize("N", [301, 515, 738, 1001])
def test_values_of_rows_with_edges_are_of_single_warps(N):
    """vector_norm 100000 x 545 float16, by warps of which two had nothing, 86 us, so 45.7 (H100)."""
    p = plan(20000, N, 1, 2, 1, H200)
    assert (p.block_m, p.step, p.vector, p.warps, p.splits) == (4, 256, 8, 4, 1)
    fewest = max(12, 8192 // (512 if N <= 512 else 1024)) * 132
    more = plan(fewest + 1, N, 1, 2, 1, H200)
    assert (more.block_m, more.step, more.vector, more.warps, more.splits) == (4, 256, 8, 4, 1)
    for other in ((20000, 255, 2, 1), (20000, 1025, 2, 1), (20000, N, 4, 1), (20000, N, 2, 2), (fewest, N, 2, 1)):
        M, length, size, accumulators = other
        assert plan(M, length, 1, size, accumulators, H200).step >= length


@pytest.mark.parametrize("N", [129, 131, 255])
def test_many_odd_words_that_are_added_up_in_64_bits_are_of_single_warps(N):
    """sum_dim 300000 x 131 int32 by warps that share rows 174 us, so 70; but 8745 x 479 15.1, not 13.2 (H100)."""

    def wide(M, length, size=4):
        problem = Problem(M, length, 1, size, 1)
        return launch(problem, with_wide_accumulators(problem, choose(problem, H200), H200), H200)

    p = wide(100000, N)
    assert (p.block_m, p.step, p.vector, p.warps, p.splits) == (4, 128, 4, 4, 1)
    for M, length in ((60000, N), (134161, 437), (8745, 479), (20000, 1001)):
        assert wide(M, length).step >= length


def test_rows_of_bytes_with_edges_are_of_single_warps():
    """any 60000 x 1101 bool, by warps that share rows, 49.1 us, so 41.5 (H100); not sums, in 64 bits."""
    p = plan(60000, 1101, 1, 1, 1, H200)
    assert (p.block_m, p.step, p.vector, p.warps, p.splits) == (8, 512, 16, 4, 1)
    problem = Problem(60000, 1101, 1, 1, 1)
    launched = launch(problem, with_wide_accumulators(problem, choose(problem, H200), H200), H200)
    assert (launched.block_m, launched.step) == (4, 2048)


def test_positions_of_few_rows_are_apart():
    """argmax 399 x 735 float32, by programs of two rows and eight warps, 5.20 us, so 4.07 (H100)."""
    p = plan(399, 735, 1, 4, 2, H200)
    assert (p.block_m, p.warps, p.splits) == (1, 1, 1)


@pytest.mark.parametrize(
    ("problem", "warps"),
    [((1183, 1995, 1, 2), 1), ((227, 9437, 1, 4), 16), ((281, 6967, 1, 4), 8), ((136, 9447, 1, 2), 4)],
)
def test_positions_of_rows_with_edges_are_of_one_program(problem, warps):
    """argmin 1183 x 1995 float16 by two rows to a program 7.00 us, min.dim 227 x 9437 float32 by two to each 10.0."""
    p = plan(*problem, 2, H200)
    assert (p.block_m, p.warps, p.splits) == (1, warps, 1)


@pytest.mark.parametrize(
    ("M", "N", "warps", "elements"), [(145, 549016, 8, 32), (20000, 1840, 4, 16), (1000, 8192, 8, 32)]
)
def test_counts_of_16_bits_have_fewer_elements_or_more_registers_in_a_loop(M, N, warps, elements):
    """Of 32 by 16 warps, 16 bytes of count_nonzero 145 x 549016 bf16 spill; of 16 70.6 us, so 68.0 (H100)."""
    problem = Problem(M, N, 1, 2, 1)
    found = with_wide_results(problem, choose(problem, H200), H200)
    assert (found.warps, found.elements) == (warps, elements)
    assert launch(problem, found, H200).registers == (80 if N > 8192 and warps == 8 else 64)


@pytest.mark.parametrize(("M", "N", "rows"), [(14686637, 9, 64), (1000000, 21, 32), (3000000, 13, 64)])
def test_odd_short_rows_of_8_bytes_are_read_by_lanes(M, N, rows):
    """nansum 14686637 x 9 int64 467 us, so 390 (H100)."""
    p = plan(M, N, 1, 8, 1, H200)
    assert (p.kernel, p.block_k, p.warps, p.lanes) == ("columns", rows, 4, 8)
    for other in ((M, N + 1, 1), (M, 33, 1), (20000, N, 1), (M, N, 2)):
        assert plan(*other[:2], 1, 8, other[2], H200).kernel == "rows"


def test_long_odd_rows_of_16_bits_are_not_pipelined():
    """sum 16777181 float16 in a pipelined loop 22.1 us, so 19.9 (H100)."""
    for M, N in (1, 16777181), (419, 55135), (8192, 50257):
        assert (plan(M, N, 1, 2, 1, H200).stages, plan(M, N, 1, 1, 1, H200).stages) == (1, 3)


def test_programs_do_not_share_rows_of_8_bytes_of_which_there_is_one_for_each_multiprocessor():
    """sum 158 x 7864 float64 by three programs for each row 10.04 us, by one 9.75 (H100)."""
    for M, N in (158, 7864), (256, 5216), (264, 16384):
        assert plan(M, N, 1, 8, 1, H200).splits == 1


@pytest.mark.parametrize(("N", "accumulators"), [(4, 3), (7, 1), (4, 2)])
def test_few_short_rows_are_of_more_warps(N, accumulators):
    """std 55550 x 4 bf16 by single warps of eight rows to a thread 3.21 us (H100)."""
    p = plan(55550, N, 1, 2, accumulators, H200)
    assert (p.kernel, p.vector, p.warps, p.blocks) == ("short", 2, 4, 217)


@pytest.mark.parametrize(("M", "N", "warps"), [(6, 24, 4), (1000, 50, 4), (1, 20, 1)])
def test_threads_have_a_vector_of_few_moments_of_float64(M, N, warps):
    """var_mean 6 x 24 float64 by 8 elements to a thread 3.35 us (H100)."""
    p = plan(M, N, 1, 8, 3, H200)
    assert (p.kernel, p.vector, p.warps) == ("rows", 2, warps)


@pytest.mark.parametrize(("M", "warps"), [(310356, 4), (78666, 1), (1200000, 8)])
def test_single_elements_are_of_two_programs_for_each_multiprocessor(M, warps):
    """prod 310356 x 1 int16 by 152 programs of eight warps 4.00 us, so 3.76 (H100)."""
    p = plan(M, 1, 1, 2, 1, H200)
    assert (p.kernel, p.warps, p.blocks >= 2 * H200.sm_count) == ("short", warps, True)


@pytest.mark.parametrize(
    ("problem", "lanes"),
    [((6, 691, 4), 128), ((1, 1063, 2), 128), ((1, 2047, 2), 128), ((1, 2049, 2), 0), ((1, 2047, 4), 0)],
)
def test_few_odd_rows_of_moments_have_128_lanes(problem, lanes):
    """var_mean 6 x 691 float32 with a lane for each element 3.65 us, so 3.28 (H100)."""
    M, N, itemsize = problem
    assert plan(M, N, 1, itemsize, 3, H200).lanes == lanes


def test_little_moments_of_float64_are_no_loop():
    """var_mean 28 x 2209: 4.87 us in two iterations, in one tile 3.88 (H200)."""
    for M, N in ((28, 2209), (36, 2378), (10, 1200), (3, 1261)):
        p = plan(M, N, 1, 8, 3, H200)
        assert (p.blocks, p.splits) == (M, 1)
        assert p.step >= N


def test_few_odd_rows_of_positions_are_of_four_warps():
    """argmax 221 x 1481 float32: 3.78 us, so 3.61; 391 x 1161: 4.13 us, so 3.85 (H200)."""
    for M, N in ((221, 1481), (391, 1161), (224, 1765)):
        p = plan(M, N, 1, 4, 2, H200)
        assert (p.warps, p.block_n, p.neighbours) == (4, 2048, 4)


@pytest.mark.parametrize(
    ("M", "N", "itemsize", "elements", "warps"),
    [
        (96153, 520, 2, 64, 2),  # sum: 30.4 us, otherwise 42.9 (H200)
        (367647, 136, 2, 64, 2),
        (83333, 300, 4, 32, 2),  # amax: 31.2 us, otherwise 36.4
        (62500, 800, 2, 16, 4),  # few lanes are idle
        (1500, 520, 2, 16, 4),  # few rows
    ],
)
def test_rows_that_leave_lanes_idle_have_programs_of_more_rows(M, N, itemsize, elements, warps):
    found = choose(Problem(M, N, 1, itemsize, 1), H200)
    assert (found.kernel, found.elements, found.warps) == ("rows", elements, warps)


@pytest.mark.parametrize(
    ("M", "N", "itemsize", "elements", "warps"),
    [
        (10, 20000, 2, 8, 16),  # var_mean: 3.88 us, shared by programs 4.58 (H200)
        (4, 1267915, 2, 32, 4),  # 9.5 us, by eight warps 10.3
        (5, 1000000, 4, 16, 4),  # 14.5 and 15.3
        (32, 2121270, 4, 16, 8),  # edges: 77.9, by four warps 84.1
        (3000, 50001, 2, 16, 8),  # not shared
    ],
)
def test_few_long_rows_of_moments(M, N, itemsize, elements, warps):
    found = configuration_by_rules(M, N, 1, itemsize)
    assert (found.kernel, found.elements, found.warps) == ("rows", elements, warps)


@pytest.mark.parametrize(("N", "itemsize", "vector"), [(64, 2, 4), (32, 2, 4), (64, 4, 2), (32, 4, 4), (8, 2, 8)])
def test_short_rows_of_moments_in_half_vectors(N, itemsize, vector):
    """var_mean 1000000 x 64 bf16: 42.6 us, in vectors 51.1 (H200)."""
    assert configuration_by_rules(1000000, N, 1, itemsize).vector == vector


@pytest.mark.parametrize(
    ("M", "N", "warps"),
    [
        (1, 1 << 30, 8),  # any of bools: 259 us, otherwise 274 (H200)
        (300, 300001, 4),  # edges
        (1, 1 << 21, None),  # little
        (192, 11770, None),  # a few short rows
        (100000, 512, None),  # one tile
    ],
)
def test_bytes_whose_neighbours_are_combined_first(M, N, warps):
    problem = Problem(M, N, 1, 1, 1)
    chosen = choose(problem, H200)
    found = with_neighbours_together(problem, chosen, H200)
    if warps is None:
        assert found == chosen
    else:
        assert (found.elements, found.warps, found.occupancy, found.stages) == (32, warps, 32, 1)
