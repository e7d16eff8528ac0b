# SPDX-License-Identifier: Apache-2.0
"""Properties of the launches that ``scan.plan`` chooses."""

from __future__ import annotations

import pytest
from gpus import H100, H200

from flag_gems_overrides.ops.families.scan import plan
from flag_gems_overrides.ops.families.scan.launches import launch_or_none
from flag_gems_overrides.ops.families.scan.plan import (
    Alone,
    Configuration,
    Problem,
    at_once,
    choose,
    configurations,
    launch,
    vector,
)


@pytest.mark.parametrize(
    ("problem", "lanes", "depth"),
    [
        (Problem(28, 2354, 1471, 4), 128, 16),
        (Problem(14, 2354, 1470, 8, integer=True), 64, 12),
        (Problem(8178, 16, 353, 2), 128, 8),
        (Problem(8178, 31, 353, 2), 128, 16),
        (Problem(8178, 8, 353, 2), 128, 4),
        (Problem(1000, 64, 353, 2), 128, 16),
        (Problem(8178, 16, 354, 2), 128, 8),
        (Problem(256, 11, 21658, 4), 128, 6),
        (Problem(10508, 21, 247, 8, integer=True, narrower=2), 128, 12),
        (Problem(8178, 16, 777, 2), 128, 8),
    ],
)
def test_columns_that_share_sectors_are_in_wide_pieces(problem, lanes, depth):
    """28 x 2354 x 1471 float32 335 us, by 64 columns 402, 8178 x 16 x 353 bf16 75.2, by 64 of a warp 88 (H100)."""
    assert choose(problem, H200) == Configuration("segments", 1, lanes, depth, 8)


@pytest.mark.parametrize(
    ("problem", "columns"),
    [
        (Problem(8192, 64, 457, 2), Configuration("segments", 1, 64, 8, 16)),
        (Problem(2000, 64, 353, 2), Configuration("segments", 1, 64, 8, 16)),
        (Problem(500, 1200, 201, 2), Configuration("segments", 1, 256, 16, 16)),
        (Problem(884, 1158, 147, 2), Configuration("segments", 1, 128, 16, 16)),
        (Problem(1037, 464, 35, 8), Configuration("segments", 1, 64, 16, 8)),
        (Problem(528, 895, 105, 8), Configuration("segments", 1, 128, 16, 8)),  # 487 us by 16 columns
    ],
)
def test_more_warps_or_all_columns(problem, columns):
    """8192 x 64 x 457 bf16 487 us by 128 columns in two steps, so 383; 2000 x 64 x 353 bf16 94.6
    and 78.5; 884 x 1158 x 147 bf16 396 us by 8 warps, so 315; 500 x 1200 x 201 bf16 358 us by 64 columns, so 209;
    1037 x 464 x 35 float64 169 us by a warp's columns, so 102 (H100)."""
    assert choose(problem, H200) == columns


def test_a_program_for_each_row_that_would_be_shared_in_one_step():
    """57 x 16384 float32 7.95 us by eight programs for each row, so 7.04 (H100)."""
    assert choose(Problem(57, 16384, 1, 4), H200) == Configuration("segments", 4, 128, 8, 16)


@pytest.mark.parametrize("size", [2, 4])
def test_twice_as_wide_pieces_of_many_rows(size):
    """61 x 1024 x 2483 bf16 398 us by 128 columns, so 323; 15 x 420 x 7902 98 us, so 105 (H100)."""
    assert choose(Problem(61, 1024, 2483, size), H200) == Configuration("segments", 1, 256, 8, 16)
    # Too few such programs, most of the last one's columns none, few rows, or larger elements.
    for other in ((20, 4096, 1001), (200, 512, 520), (307, 114, 4344), (15, 420, 7902)):
        assert choose(Problem(*other, size), H200)[:3] != ("segments", 1, 256)
    assert choose(Problem(61, 1024, 2483, 8), H200).lanes == 128


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Problem(175, 8282, 117, 2), (1, 128, 32, 8)),
        (Problem(318, 4216, 102, 4), (1, 128, 32, 8)),
        (Problem(307, 1195, 65, 4), (1, 128, 32, 8)),
        (Problem(400, 3000, 90, 2), (2, 128, 16, 8)),
        # Rows that are at once, of more columns where few lanes have none.
        (Problem(9000, 24, 251, 4), (1, 256, 12, 16)),
        (Problem(300, 2000, 201, 4), (1, 256, 16, 16)),
        (Problem(600, 1200, 147, 4), (1, 256, 16, 16)),
        (Problem(528, 895, 105, 8, integer=True), (1, 128, 16, 8)),
        (Problem(16528, 47, 83, 4), (1, 128, 12, 16)),
        (Problem(4319, 85, 81, 2), (1, 128, 22, 16)),
        (Problem(30000, 13, 83, 4), (1, 128, 8, 8)),
    ],
)
def test_a_program_for_all_columns(problem, expected):
    """318 x 4216 x 102 float32 901 us by 32 columns, so 418, 9000 x 24 x 251 172 by 128, so 154,
    300 x 2000 x 201 700 by 32, so 395, 528 x 895 x 105 int64 429 by 16, so 334 (H100)."""
    assert choose(problem, H200) == Configuration("segments", *expected)
    # Too few programs.
    assert choose(problem._replace(M=65), H200)[:3] != ("segments", *expected[:2])


@pytest.mark.parametrize("narrower", [1, 2, 4])
def test_programs_for_all_columns_are_not_of_wide_integers(narrower):
    """256 x 2000 x 100 int64 363 us, so 473 (H100)."""
    assert choose(Problem(256, 2000, 100, 8, integer=True, narrower=narrower), H200).lanes < 128
    assert choose(Problem(256, 2000, 100, 8), H200).lanes < 128


def test_sectors_are_shared_where_l2_is_nearly_full():
    """3 x 149 x 23821 float16 31.3 us by 32 columns, so 25.8 (H100)."""
    h100 = H200._replace(l2_bytes=50 << 20)
    assert choose(Problem(3, 149, 23821, 2), h100) == Configuration("segments", 1, 128, 16, 8)
    assert choose(Problem(1, 149, 23821, 2), h100).lanes < 128


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Problem(7168, 32, 7, 2), Configuration("stacked", 56, 1, 1, 1)),
        (Problem(4096, 20, 7, 2), Configuration("units", 1, 8, 32, 1)),
    ],
)
def test_many_short_odd_columns_of_16_bits_are_in_one_warp(problem, expected):
    """7168 x 32 x 7 bf16 7.6 us by four warps for each [N, K], so 7.0; 4096 x 20 x 7 5.5 and 4.5 (H100)."""
    assert choose(problem, H200) == expected


@pytest.mark.parametrize(("narrower", "elements"), [(1, 2), (2, 4), (4, 8), (8, 8)])
def test_threads_read_whole_vectors_of_what_is_only_converted(narrower, elements):
    """30136 x 1 x 56 bool by two elements to a thread 10.7 us (H100)."""
    problem = Problem(1, 1, 1687616, 8, integer=True, narrower=narrower)
    assert choose(problem, H200) == Configuration("units", elements, 128 * elements, 1, 4)


@pytest.mark.parametrize(
    ("problem", "elements", "warps"),
    [
        (Problem(400000, 20, 3, 2), 24, 1),
        (Problem(400000, 61, 3, 2), 24, 2),  # one warp has no whole vectors of these rows
        (Problem(853170, 2, 4, 2), 16, 2),
        (Problem(60000, 35, 8, 2), 32, 1),
        (Problem(400000, 16, 4, 4), 8, 2),
        (Problem(400000, 20, 6, 2), 24, 1),
        (Problem(4000000, 5, 3, 8, integer=True), 6, 1),
    ],
)
def test_stacked_columns_are_of_whole_vectors_and_few_warps(problem, elements, warps):
    """205085 x 16 x 8 bfloat16 65.8 us in columns, so 47.1, 8000 x 100 x 3 9.0 by four warps, by one 7.75 (H100)."""
    assert choose(problem, H200) == Configuration("stacked", elements, 1, 1, warps)


@pytest.mark.parametrize(
    ("problem", "depth", "warps"),
    [
        (Problem(16384, 256, 8, 2), 2, 4),
        (Problem(2000, 2961, 8, 2), 4, 8),  # several steps
        (Problem(24371, 256, 4, 4), 2, 4),
        (Problem(366, 664, 4, 2), 3, 8),
    ],
)
def test_rows_of_one_vector(problem, depth, warps):
    """16384 x 256 x 8 float16 99.4 us interleaved, so 50.3 (H100)."""
    assert choose(problem, H200) == Configuration("segments", problem.K, problem.K, depth, warps)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(1717, 10111, 2, 4),
        Problem(12760, 560, 2, 8, integer=True),
        Problem(123, 2728, 2, 4),
        Problem(949, 504, 2, 8, integer=True, narrower=8),
        Problem(3101, 1801, 4, 2),  # several steps
        Problem(16384, 256, 4, 2),  # many rows of half vectors
    ],
)
def test_rows_of_a_vector_of_few_elements_are_interleaved(problem):
    """1717 x 10111 x 2 float32 184 us in vectors of two, so 119, 3101 x 1801 x 4 bfloat16 66.8 and 46.2 (H100)."""
    assert choose(problem, H200).kernel == "interleaved"


@pytest.mark.parametrize("problem", [Problem(240, 402, 1, 2), Problem(170, 411, 1, 2)])
def test_two_tiles_of_few_rows_with_edges_are_of_two_warps(problem):
    """240 x 402 float16 3.52 us by a warp for each row, so 3.23 (H100)."""
    assert choose(problem, H200) == Configuration("segments", 8, 256, 1, 2)
    assert choose(problem._replace(M=1100), H200).kernel == "units"


@pytest.mark.parametrize(("N", "lanes"), [(9, 16), (13, 16), (31, 32)])
def test_many_short_odd_rows_of_a_byte(N, lanes):
    """32768 x 13 uint8 4.56 us with an element to a thread, so 3.90 (H100)."""
    problem = Problem(32768, N, 1, 8, integer=True, narrower=8)
    assert choose(problem, H200) == Configuration("units", 4, lanes, 1, 4)
    for other in (problem._replace(M=4000), problem._replace(narrower=4), problem._replace(N=7)):
        assert choose(other, H200)[:5] != ("units", 4, lanes, 1, 4)


@pytest.mark.parametrize(("N", "depth"), [(151, 2), (251, 2), (131, 1)])
def test_many_rows_of_a_tile_with_edges_are_of_half_a_warp(N, depth):
    """105528 x 151 bfloat16 34.1 us by a warp for each row, so 29.0 (H100)."""
    assert choose(Problem(105528, N, 1, 2), H200) == Configuration("units", 8, 128, depth, 4)
    for other in (Problem(1056, N, 1, 2), Problem(105528, 265, 1, 2)):
        assert choose(other, H200)[:3] != ("units", 8, 128)


def test_many_short_odd_columns_of_8_bytes_are_of_a_thread_each():
    """10630731 x 4 x 3 uint8 606 us stacked, 771 by two elements of a thread, so 406 (H100)."""
    assert choose(Problem(10630731, 4, 3, 8, True, 8), H200)[:3] == ("units", 1, 4)


@pytest.mark.parametrize("problem", [Problem(4000000, 5, 3, 8, True, 2), Problem(37191, 9, 3, 8, True, 8)])
def test_three_columns_of_int64_sums_of_more_rows_are_stacked(problem):
    """4000000 x 5 x 3 int32 299 us with a column to a thread, so 269; 37191 x 9 x 3 bool 10.5 and 9.2 (H100)."""
    assert choose(problem, H200) == Configuration("stacked", 6, 1, 1, 2)


@pytest.mark.parametrize(("narrower", "elements"), [(8, 4), (4, 2)])
def test_many_pairs_of_bytes(narrower, elements):
    """542876 x 2 int8 7.18 us with two elements to a thread, so 6.86 (H100)."""
    problem = Problem(542876, 2, 1, 8, integer=True, narrower=narrower)
    assert choose(problem, H200)[:2] == ("units", elements)


@pytest.mark.parametrize(("K", "elements"), [(24, 4), (32, 8)])
def test_columns_of_no_whole_sectors_are_half_vectors(K, elements):
    """204080 x 4 x 24 float16 40.9 us by whole vectors, so 34.1 (H100)."""
    assert choose(Problem(204080, 4, K, 2), H200) == ("units", elements, 32, 4, 4, 0)


def test_many_rows_of_three_int16():
    """85373 x 3 int16 3.98 us with one element to a thread, so 3.42 (H100)."""
    assert choose(Problem(85373, 3, 1, 8, True, 4), H200) == Configuration("units", 4, 4, 1, 4)


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        (Problem(3, 211195, 68, 2), ("chunks", 2, 64, 6)),  # 150 us, by all columns 226
        (Problem(24115, 682, 8, 2), ("segments", 8, 8, 3)),  # 190 us in one step, in three 232
        (Problem(53, 64, 467, 8, True, 4), ("segments", 1, 32, 8)),  # 10.8 us in one step, in four 12.6
        (Problem(21, 10911, 1, 8, True), ("shared", 2, 64, 2)),  # 6.47 us, in 903 chunks 7.54
        (Problem(156, 34176, 1, 2), ("shared", 8, 256, 4)),  # 15.2 us, in two steps of 16 warps 17.1
    ],
)
def test_steps_and_chunks_take_time(problem, kernel):
    """Microseconds: H100."""
    assert choose(problem, H100)[:4] == kernel


def test_short_rows_of_16_bits_have_a_vector_of_a_thread():
    """880160 x 30 bfloat16 53.1 us with two, so 40.6 (H100)."""
    assert [each[1] for each in configurations(Problem(880160, 30, 1, 2), H200) if each.kernel == "flat"] == [8]
    # Of two vectors half as many lanes have none.
    assert choose(Problem(880160, 65, 1, 2), H200)[:2] == ("flat", 16)


@pytest.mark.parametrize("problem", [Problem(359, 299, 1, 2), Problem(520, 402, 1, 2), Problem(900, 299, 1, 2)])
def test_two_tiles_of_several_rows_with_edges_are_of_one_warp(problem):
    """359 x 299 bfloat16 3.52 us by 4 warps with a row each, so 3.23 (H100)."""
    assert choose(problem, H200) == Configuration("units", 8, 256, 2, 1)
    # More rows, rows without edges or of one tile, what was not timed.
    for other in (problem._replace(M=1100), problem._replace(N=296), problem._replace(N=201), problem._replace(size=4)):
        assert choose(other, H200)[1:] != (8, 256, 2, 1, 0)


@pytest.mark.parametrize(
    ("problem", "depth"),
    [
        (Problem(146, 76, 1691, 8, integer=True), 10),  # H100: 137 us by warps with columns of their own, so 115
        (Problem(300, 40, 1001, 8, integer=True), 5),  # 81 by 8 warps, so 72.5
        (Problem(146, 76, 1691, 8, integer=True, narrower=2), 10),  # 102 and 96
    ],
)
def test_odd_columns_of_int64_are_of_16_warps_in_one_step(problem, depth):
    assert choose(problem, H200) == Configuration("segments", 1, 64, depth, 16)
    others = (problem._replace(N=100), problem._replace(K=1002), problem._replace(integer=False))
    for other in (*others, problem._replace(narrower=8)):
        assert choose(other, H200)[1:] != (1, 64, depth, 16, 0)


@pytest.mark.parametrize(
    ("problem", "elements"),
    [
        (Problem(837780, 3, 54, 2), 2),
        (Problem(400000, 5, 30, 4), 2),
        (Problem(202371, 7, 11, 4), 1),
        # Of single elements also of wide ones of few rows.
        (Problem(1024, 3, 23781, 4), 1),
        (Problem(186, 5, 29001, 2), 1),
        (Problem(9171, 3, 3694, 4), 2),  # 293 us by two vectors to a thread
    ],
)
def test_a_thread_has_one_vector_of_narrow_columns(problem, elements):
    """837780 x 3 x 54 float16 230 us by four to a thread, so 189, 202371 x 7 x 11 float32 65.5 by two, so 50 (H100)."""
    chosen = choose(problem, H200)
    assert (chosen.kernel, chosen.elements) == ("units", elements)


@pytest.mark.parametrize(("problem", "warps"), [(Problem(512, 30, 12, 2), 1), (Problem(2210, 26, 9, 2), 2)])
def test_many_rows_of_a_thread_are_not_of_two_warps_alone(problem, warps):
    """Of a multiprocessor that has no other such program."""
    found = launch(problem, choose(problem, H200), H200)
    assert isinstance(found, Alone)
    assert (found.segmented, found.warps) == (False, warps)


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        (Problem(1, 175128, 1, 8, integer=True), "shared"),
        (Problem(1, 134366, 1, 8, integer=True, narrower=8), "shared"),
        (Problem(5, 1826, 51, 2), "segments"),
    ],
)
def test_chunks_where_the_second_launch_has_started_before(problem, kernel):
    """1 x 175128 int64 7.99 us by programs that share a block, so 6.45 (H100)."""
    assert choose(problem, H200).kernel == "chunks"
    assert choose(problem, H200._replace(capability=(8, 0))).kernel == kernel


@pytest.mark.parametrize("problem", [Problem(3, 13663, 1, 4), Problem(1, 131072, 1, 2), Problem(4, 1184, 7, 4)])
def test_programs_share_a_block_where_chunks_would_gain_little(problem):
    assert choose(problem, H200).kernel == "shared"


@pytest.mark.parametrize("size", [1, 2])
def test_integers_of_few_bytes_spill_with_six_tiles(size):
    """Of two elements, in several steps: 8 bytes (7740 x 5640 uint8, sm_90, Triton 3.6)."""
    problem = Problem(7740, 5640, 1, 8, integer=True, narrower=8 // size)
    found = {each[3:5] for each in configurations(problem, H200) if launch(problem, each, H200).steps > 1}
    assert (7, 8) in found
    assert (6, 8) not in found


@pytest.mark.parametrize(("M", "N"), [(3577, 9582), (1000, 8234), (300, 18622)])
def test_half_vectors_of_float32_spill_with_12_tiles_in_several_steps(M, N):
    problem = Problem(M, N, 1, 4)
    chosen = choose(problem, H200)
    assert chosen.depth <= 10
    assert launch(problem, chosen, H200).steps > 1


@pytest.mark.parametrize(
    "problem",
    [
        Problem(200, 400, 386, 8, integer=True),  # the last of 7 programs has 2 columns: 216 us, by vectors 211.5
        Problem(8178, 16, 150, 2),
        Problem(256, 11, 21660, 4),  # loaded in vectors of 16 bytes
        Problem(8178, 16, 356, 2),  # loaded in vectors of 8 bytes
        Problem(8178, 6, 353, 2),
        Problem(1000, 8, 353, 8, integer=True),
        Problem(1000, 16, 201, 8, integer=True),
        Problem(1000, 100, 353, 8, integer=True),
    ],
)
def test_pieces_that_are_not_wide(problem):
    chosen = choose(problem, H200)
    assert (chosen.elements, chosen.lanes) not in ((1, 64), (1, 128)) or chosen.kernel != "segments"


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        (Problem(541080, 18, 6, 2), "stacked"),  # H100: 200 us in columns, stacked 123
        (Problem(540000, 18, 3, 4), "stacked"),  # 196 and 88
        (Problem(100000, 100, 6, 2), "interleaved"),  # 90 and 126
        (Problem(300000, 12, 6, 8, integer=True, narrower=2), "units"),  # 117 and 157
        (Problem(91, 27, 5, 8, integer=True), "segments"),  # 3.06, interleaved 3.55
    ],
)
def test_few_columns(problem, kernel):
    assert choose(problem, H200).kernel == kernel


@pytest.mark.parametrize("problem", [Problem(1, 1024, 4, 2), Problem(56, 753, 3, 2), Problem(30, 800, 4, 4)])
def test_a_program_for_each_of_few_columns(problem):
    """1 x 1024 x 4 bfloat16 3.75 us as they lie, so 3.29 (H100)."""
    chosen = choose(problem, H200)
    assert (chosen.kernel, chosen.lanes, chosen.warps) == ("segments", 1, 16)


@pytest.mark.parametrize("problem", [Problem(60, 1000, 4, 2), Problem(40, 600, 6, 2), Problem(80, 900, 3, 4)])
def test_few_columns_for_more_programs_than_multiprocessors_are_together(problem):
    """60 x 1000 x 4 float16 4.75 us in a program for each column, so 4.21 (H100)."""
    assert choose(problem, H200).lanes > 1 or choose(problem, H200).kernel == "interleaved"


def test_tiles_of_rows_with_edges_are_of_whole_vectors():
    """6933 x 262 float16 6.3 us with two tiles to a row, 5.8 with one (H100)."""
    chosen = choose(Problem(1056, 262, 1, 2), H200)
    assert (chosen.kernel, chosen.lanes, chosen.depth) == ("units", 256, 1)


@pytest.mark.parametrize(
    ("problem", "lanes", "elements"),
    [
        (Problem(1, 608, 1220, 8, True, narrower=8), 4, 1),  # 11.2 us by 2 columns, 6.3
        (Problem(100, 1000, 40, 8, True, narrower=8), 8, 1),  # by 4 23.9, 18.5
        (Problem(13835, 48, 1, 8, True, narrower=8), 64, 4),  # with two elements to a thread 4.9, 4.6
    ],
)
def test_an_input_of_fewer_bytes(problem, lanes, elements):
    """H100"""
    chosen = choose(problem, H200)
    assert (chosen.lanes, chosen.elements) == (lanes, elements)


@pytest.mark.parametrize("N", [257, 283, 511])
@pytest.mark.parametrize("integer", [False, True])
def test_odd_rows_of_8_bytes_have_four_elements_to_a_thread(N, integer):
    """3348 x 283 int64 11.5 us, 13.4 with two to a thread (H100)."""
    assert choose(Problem(3348, N, 1, 8, integer), H200) == Configuration("segments", 4, 32, 1, 4)
    # Of fewer rows no multiprocessor has a second.
    assert choose(Problem(100, N, 1, 8, integer), H200).warps > 4


@pytest.mark.parametrize("narrower", [1, 2, 8])
def test_rows_of_integers_are_for_four_warps_where_eight_do_not_all_run_at_once(narrower):
    """1570 x 1024 uint8 9.3 us, by 8 warps 10.3 (H100)."""
    assert choose(Problem(1570, 1024, 1, 8, True, narrower), H200) == Configuration("segments", 2, 64, 4, 4)
    assert choose(Problem(1000, 1024, 1, 8, True, narrower), H200) == Configuration("segments", 2, 64, 2, 8)
    assert choose(Problem(1570, 1024, 1, 8, False, narrower), H200).warps == 8


@pytest.mark.parametrize(
    ("problem", "alone"),
    [
        (Problem(18, 8480, 1, 4), True),
        (Problem(32, 12001, 1, 4), True),
        (Problem(50, 12001, 1, 4), True),
        (Problem(46, 13962, 1, 4), False),
        (Problem(18, 16960, 1, 2), True),
        (Problem(12, 16000, 1, 4), False),
        (Problem(12, 24001, 1, 2), False),
        (Problem(18, 6000, 1, 8), False),
        (Problem(16, 5192, 1, 8, integer=True), False),
    ],
)
def test_some_rows_are_a_program_s_each(problem, alone):
    """18 x 8480 float32 by programs that share rows 5.15 us, so 4.41 (H100)."""
    assert isinstance(launch(problem, choose(problem, H200), H200), Alone) is alone


@pytest.mark.parametrize(
    ("size", "integer", "legal"), [(8, False, False), (4, False, False), (2, False, True), (8, True, True)]
)
def test_rows_in_several_steps_of_one_tile_that_do_not_compile(size, integer, legal):
    problem = plan.Problem(5143, 38, 1, size, integer)
    assert (launch_or_none(problem, plan.Configuration("units", 2, 32, 1, 8), H200) is not None) == legal
    assert launch_or_none(problem, plan.Configuration("units", 2, 32, 2, 8), H200) is not None


@pytest.mark.parametrize("integer", [False, True])
def test_few_odd_rows_of_8_bytes_are_scanned_at_once(integer):
    """1 x 855 int64: 3.24 us with edges, by torch.compile in one scan 2.95 (H200)."""
    problem = Problem(1, 855, 1, 8, integer)
    chosen = launch(problem, choose(problem, H200), H200)
    assert vector(problem) == (1, False)
    assert isinstance(chosen, Alone)
    assert at_once(problem, chosen)
    assert vector(problem._replace(M=100)) == vector(problem._replace(N=1025)) == (2, True)


def test_a_tile_more_of_int64_takes_longer_than_warps():
    """1 x 1029 int64: 3.57 us by four warps, so 3.31 (H200)."""
    problem = Problem(1, 1029, 1, 8, True)
    assert choose(problem, H200)[:5] == ("segments", 2, 64, 3, 8)


@pytest.mark.parametrize(("M", "N", "K"), [(3165, 637, 42), (3325, 796, 40)])
def test_a_warp_goes_along_all_of_many_rows_of_int64(M, N, K):
    """647 us in segments of all columns, so 370; 665 in segments of 16 columns, so 452 (H200)."""
    assert choose(Problem(M, N, K, 8, True), H200) == Configuration("units", 2, 64, 8, 1)


def test_a_long_row_of_integers_is_in_chunks():
    """36178152 int64: 236 us by programs that share it, so 227; 4 x 10000000 int64: 238 and 245 us (H200)."""
    for length in (36178152, 36178153):
        assert choose(Problem(1, length, 1, 8, True), H200).kernel == "chunks"
    assert choose(Problem(4, 10000000, 1, 8, True), H200).kernel == "shared"
    assert choose(Problem(1, 40000003, 1, 8), H200).kernel == "shared"
