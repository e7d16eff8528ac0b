# SPDX-License-Identifier: Apache-2.0
"""How rows of softmax are launched: what was timed is planned so."""

from __future__ import annotations

import pytest
from gpus import H100, H200

from flag_gems_overrides.ops.families.softmax.defaults import default
from flag_gems_overrides.ops.families.softmax.plan import (
    Blocks,
    Interleaved,
    Problem,
    Rows,
    Short,
    Split,
    plan,
)


@pytest.mark.parametrize(
    ("M", "N", "size", "one_tile"),
    [
        (4096, 28673, 4, False),  # edges
        (4096, 28676, 4, True),
        (4096, 28672, 4, False),  # too much of the tile would be empty
        (16, 20000, 4, True),  # waiting for a group costs more
        (1, 20000, 4, False),
        (16, 32772, 4, False),
        (4096, 32768, 2, False),
        (4096, 16384, 8, False),
    ],
)
def test_rows_that_fill_a_tile_of_32_warps(M, N, size, one_tile):
    p = plan(M, N, 1, size, 1, H200)
    assert (isinstance(p, Rows) and p.warps == 32) == one_tile
    assert isinstance(plan(M, N, 1, size, 2, H200), Split)


@pytest.mark.parametrize(
    ("M", "N", "warps", "group", "looped"),
    [
        (216, 49696, 8, 7, False),
        (150, 60000, 8, 8, False),
        (7, 524288, 4, 128, False),
        (16, 1048576, 4, 128, True),  # eight rows at a time, where half as many would be held
        (28, 1373216, 4, 264, True),
        (69, 84064, 4, 15, True),  # all at once
        (2, 262144, 8, 32, False),
        (2, 2000000, 8, 245, False),
        (1, 4108384, 8, 132, True),  # held by 264, 64 elements to a thread, it would spill
        (1, 2100000, 8, 128, True),  # and by 132
    ],
)
def test_long_rows_of_float32_have_fewer_warps_if_they_are_few(M, N, warps, group, looped):
    p = plan(M, N, 1, 4, 1, H100)
    assert isinstance(p, Split)
    assert (p.warps, p.group, p.looped) == (warps, group, looped)


@pytest.mark.parametrize(
    ("M", "N", "size", "inputs", "programs"),
    [
        (1, 1048576, 2, 1, 128),
        (1, 262144, 2, 1, 64),
        (1, 147424, 2, 1, 72),
        (1, 50879, 4, 1, 50),
        (1, 403747, 4, 1, 99),
        (1, 329653, 2, 2, 81),
        (1, 151321, 2, 2, 74),
        (3, 360869, 4, 1, 267),
        (25, 37898, 2, 1, 125),
        (5, 262144, 4, 1, 320),
    ],
)
def test_few_rows_have_as_many_programs_as_are_worth_their_wait(M, N, size, inputs, programs):
    p = plan(M, N, 1, size, inputs, H100)
    assert isinstance(p, Split)
    assert not p.looped
    assert p.programs == programs


def test_odd_rows_of_few_waves():
    for M, N in [(64, 24292), (128, 20476)]:
        assert isinstance(plan(M, N, 1, 2, 1, H100), Rows)
    for M, N in [(40, 24292), (133, 24292), (64, 32772), (64, 24296), (64, 24294)]:
        assert isinstance(plan(M, N, 1, 2, 1, H100), Split)
    p = plan(161, 10991, 1, 4, 2, H100)
    assert (p.warps, p.group) == (2, 11)
    for M, N in [(132, 10991), (180, 10991)]:
        assert plan(M, N, 1, 4, 2, H100).group == 1


def test_rows_of_float32_are_read_twice_by_as_many_warps_as_leave_one_wave():
    for M, N, warps in [(1322, 8192, 8), (1322, 12288, 16), (300, 16384, 16)]:
        found = plan(M, N, 1, 4, 1, H100)
        assert isinstance(found, Rows)
        assert found.warps == warps
    # 300 rows of 16 warps are more than run at once, of 8 not.
    for M, N, warps in [(1322, 20480, 16), (1322, 24576, 16), (140, 24576, 16), (300, 28672, 8), (600, 28672, 16)]:
        found = plan(M, N, 1, 4, 1, H100)
        assert (found.looped, found.warps, found.group) == (True, warps, 1)


@pytest.mark.parametrize("size", [2, 4])
def test_gradients_of_long_rows_that_run_at_once_are_read_twice_by_fewer_warps(size):
    for M, N in [(220, 14992), (264, 12296 if size == 4 else 16384), (133, 12296)]:
        p = plan(M, N, 1, size, 2, H100)
        assert isinstance(p, Split)
        assert (p.looped, p.warps, p.depth, p.registers, p.programs) == (True, 16, 2, 64, M)
    # More than at once, a multiprocessor for each, shorter ones; then of no whole vectors.
    for M, N in [(1000, 14992), (132, 14992), (220, 12288 if size == 4 else 10984)]:
        assert isinstance(plan(M, N, 1, size, 2, H100), Rows)
    held = plan(220, 14990, 1, size, 2, H100)
    assert isinstance(held, Rows) or not held.looped
    # 16 bits from 11000 on; L1 holds no two of float32.
    assert isinstance(plan(220, 11000, 1, size, 2, H100), Split) == (size == 2)
    assert isinstance(plan(250, 16384, 1, 4, 2, H100), Rows)


def test_gradients_of_many_rows_little_longer_than_a_tile_are_read_twice_by_few_warps():
    p = plan(4000, 9216, 1, 2, 2, H100)
    assert isinstance(p, Split)
    assert (p.looped, p.warps, p.depth, p.registers, p.group) == (True, 8, 2, 64, 1)
    # Fewer, longer ones, one tile of 16 warps, float32.
    for M, N, size in [(1000, 9216, 2), (4000, 10248, 2), (4000, 8192, 2), (4000, 9216, 4)]:
        assert isinstance(plan(M, N, 1, size, 2, H100), Rows)


def test_gradients_of_few_elements_have_no_program_that_is_alone_on_its_multiprocessor():
    for M, N, K, size in [(171, 67, 1001, 4), (300, 200, 263, 2)]:
        p = plan(M, N, K, size, 2, H200)
        assert isinstance(p, Short)
        assert p.warps == 8
    # Columns in pairs, which a tile holds; more elements than threads side by side hold; the forward.
    assert isinstance(plan(171, 67, 1794, 4, 2, H200), Split)
    assert isinstance(plan(300, 700, 263, 4, 2, H200), Blocks)
    assert isinstance(plan(300, 400, 333, 2, 1, H200), Blocks)


def test_gradients_of_long_rows_that_begin_anywhere_are_read_twice_by_few_warps():
    p = plan(8273, 9269, 1, 2, 2, H200)
    assert (p.looped, p.warps, p.depth, p.registers, p.group) == (True, 8, 2, 64, 1)
    # Multiprocessors without a row; shorter ones; float32.
    for M, N, size in [(100, 9269, 2), (8000, 5001, 2), (8273, 9269, 4)]:
        assert not plan(M, N, 1, size, 2, H200).looped


def test_long_rows_that_begin_anywhere_are_read_twice_by_few_warps():
    for M, N in [(8000, 9269), (4000, 12001)]:
        p = plan(M, N, 1, 2, 1, H200)
        assert (p.looped, p.warps, p.depth, p.registers, p.group) == (True, 8, 4, 64, 1)
    # Shorter ones; float32.
    for N, size in [(7001, 2), (9269, 4)]:
        assert not plan(8000, N, 1, size, 1, H200).looped


def test_a_thread_has_8_elements_of_short_rows_loaded_one_by_one():
    for N, size, depth in [(201, 2, 8), (201, 4, 16), (200, 2, 2), (301, 2, 16)]:
        assert plan(100000, N, 1, size, 1, H200).depth == depth


@pytest.mark.parametrize(
    ("N", "size", "depth", "width"),
    [(439, 8, 7, 64), (153, 8, 5, 32), (90, 8, 3, 32), (90, 4, 8, 16), (45, 8, 4, 16)],
)
def test_rows_of_float64_have_as_many_tiles_as_exist_where_a_warp_has_one(N, size, depth, width):
    p = plan(40000, N, 1, size, 1, H200)
    assert (p.depth, p.width) == (depth, width)


@pytest.mark.parametrize(
    ("problem", "columns"),
    [
        ((3, 2, 27041, 2, 2), 256),
        ((30, 2, 5001, 2, 2), 256),
        ((8, 3, 9001, 2, 2), 128),
        ((300, 2, 5001, 2, 2), 512),
        ((3, 2, 27041, 2, 1), 512),
    ],
)
def test_threads_of_little_odd_gradients_of_16_bits_have_half_a_vector(problem, columns):
    p = plan(*problem, H200)
    assert isinstance(p, Short)
    assert (p.vec, p.columns, p.warps) == (1, columns, 4)


@pytest.mark.parametrize(
    ("M", "N", "depth"), [(349, 2173, 5), (200, 3001, 6), (5000, 2863, 6), (300, 3583, 7), (1000, 3072, 3)]
)
def test_rows_of_float64_have_one_tile_of_up_to_seven_eighths(M, N, depth):
    p = plan(M, N, 1, 8, 1, H200)
    assert isinstance(p, Rows)
    assert (p.depth, p.warps) == (depth, 16)
    for other in (3585, 3074):
        assert plan(M, other, 1, 8, 1, H200).looped


def test_long_rows_of_float64_are_read_twice_by_one_program_where_l2_holds_most_of_them():
    for M, N in [(213, 24979), (180, 24979), (100, 30000), (5000, 24000), (300, 30001)]:
        p = plan(M, N, 1, 8, 1, H200)
        assert (p.group, p.looped, p.warps) == (1, True, 16)
    # More than L2 holds; multiprocessors without a row.
    for M, N in [(5000, 48000), (213, 91811), (98, 24979)]:
        assert plan(M, N, 1, 8, 1, H200).group > 1


def test_a_row_of_float64_has_one_program_where_groups_would_have_up_to_two_each():
    assert plan(88, 14097, 1, 8, 1, H200).group == 1
    # A row to each group; more than two; idle multiprocessors; the gradient.
    for M, N, inputs in [(70, 14097, 1), (90, 40001, 1), (60, 17001, 1), (88, 14097, 2)]:
        assert plan(M, N, 1, 8, inputs, H200).group > 1


def test_long_rows_of_float64_are_held_by_few_programs_or_read_twice():
    p = plan(624, 300001, 1, 8, 1, H200)
    assert p.looped
    assert p.group < 72
    for M, N in [(624, 277360), (288, 87712), (368, 91664), (195, 91811), (8, 1048576)]:
        p = plan(M, N, 1, 8, 1, H200)
        assert not p.looped or p.depth * p.vec <= 16
    # With 32 elements to a thread, where that is fewer rounds: not of few rows, nor the gradient.
    for M, N, group in [(624, 277360, 68), (600, 189865, 47), (195, 91811, 23)]:
        p = plan(M, N, 1, 8, 1, H200)
        assert (p.group, p.looped, p.depth * p.vec) == (group, False, 32)
    for M, N, inputs in [(13, 131411, 1), (624, 277360, 2), (195, 91811, 2)]:
        assert plan(M, N, 1, 8, inputs, H200).depth <= 8


def test_rows_of_float32_up_to_a_large_tile_have_no_group():
    for M, N in [(90, 10840), (80, 16384), (40, 12000)]:
        assert isinstance(plan(M, N, 1, 4, 1, H200), Rows)


def test_few_rows_that_begin_anywhere_are_plain_tiles_of_few_elements():
    for M, N, size, warps in [(16, 689, 2, 4), (90, 1201, 2, 8), (90, 1201, 4, 8), (132, 2047, 2, 8)]:
        p = plan(M, N, 1, size, 1, H200)
        assert isinstance(p, Rows)
        assert (p.warps, p.depth * p.vec) == (warps, 8)
    for M, N, size, inputs in [(133, 689, 2, 1), (133, 1201, 4, 1), (16, 2049, 2, 1), (16, 689, 2, 2)]:
        assert plan(M, N, 1, size, inputs, H200).unaligned


@pytest.mark.parametrize(
    ("M", "N", "size", "inputs", "rows"),
    [
        (6, 8242427, 4, 2, 1),
        (13, 8388608, 2, 2, 1),
        (20, 6000000, 4, 1, 2),
        (16, 2000003, 4, 2, 2),
        (8, 6620032, 2, 1, 2),
        (4, 3051068, 4, 1, 2),
        (5, 2863928, 2, 2, 3),
        (11, 1048576, 4, 2, 4),
        (3, 7045806, 2, 2, 1),
    ],
)
def test_groups_read_few_rows_at_a_time_that_l2_holds(M, N, size, inputs, rows):
    p = plan(M, N, 1, size, inputs, H100)
    assert p.looped
    assert p.programs // p.group == rows


def test_long_rows_that_are_read_by_two_launches():
    for M, N, size in [(1, 79662946, 4), (2, 1796025, 4), (5, 1788355, 2), (2, 2700001, 2)]:
        assert isinstance(plan(M, N, 1, size, 1, H100), Interleaved)
        assert isinstance(plan(M, N, 1, size, 2, H100), Split)
    # One that L2 holds; several that it does not; whole vectors; few bytes; many rows; short ones; float64.
    for M, N, size in [
        (1, 3420377, 4),
        (2, 79662946, 4),
        (8, 3000001, 4),
        (2, 1796024, 4),
        (8, 600001, 2),
        (9, 1048577, 4),
    ]:
        assert isinstance(plan(M, N, 1, size, 1, H100), Split)
    for M, N, size in [(8, 843263, 4), (2, 1796025, 8)]:
        assert isinstance(plan(M, N, 1, size, 1, H100), Split)


def test_gradients_of_few_odd_short_rows_have_two_threads_to_a_row():
    for M, N, size, elements in [(17296, 5, 2, 4), (40000, 7, 2, 4), (70000, 5, 2, 8), (17296, 5, 4, 8)]:
        assert default(Problem(M, N, 1, size, 2), H200).elements == elements


def test_odd_rows_of_16_bits_are_read_twice_where_that_leaves_fewer_waves():
    for M, N in [(119, 7029), (125, 6013), (100, 7501), (200, 7029), (264, 6013)]:
        found = plan(M, N, 1, 2, 1, H200)
        assert isinstance(found, Split)
        assert not found.looped
    for M, N, looped in [(500, 7501, True), (592, 6459, True), (1056, 7501, True), (1057, 7501, False)]:
        assert plan(M, N, 1, 2, 1, H200).looped == looped


def test_few_rows_of_float64_have_two_elements_to_a_thread():
    for M, N, inputs, depth, width, warps in [
        (7, 237, 1, 2, 128, 4),
        (64, 1000, 1, 1, 1024, 16),
        (1, 96, 2, 1, 128, 2),
        (16, 3000, 1, 3, 1024, 16),
    ]:
        p = plan(M, N, 1, 8, inputs, H200)
        assert isinstance(p, Rows)
        assert (p.depth, p.width, p.warps) == (depth, width, warps)
    assert plan(300, 237, 1, 8, 1, H200).depth == 8
    assert plan(287, 299, 1, 8, 1, H200).width == 128  # of 512, four to a thread
    assert plan(600, 299, 1, 8, 1, H200).width == 64


@pytest.mark.parametrize("inputs", [1, 2])
def test_rows_of_two_vectors_have_two_threads_each(inputs):
    for N, size, depth in [(8, 4, 1), (4, 8, 1), (16, 4, 2), (8, 8, 2)]:
        assert plan(400000, N, 1, size, inputs, H200).depth == depth


def test_gradients_of_many_rows_have_as_many_tiles_as_exist_where_a_quarter_would_be_empty():
    for M, N, depth, warps in [(15007, 10148, 5, 16), (6000, 12004, 6, 16), (4000, 12288, 3, 16), (6000, 12292, 4, 32)]:
        p = plan(M, N, 1, 2, 2, H100)
        assert isinstance(p, Rows)
        assert (p.depth, p.warps, p.block_m) == (depth, warps, 1)
    assert plan(4000, 10148, 1, 4, 2, H100).warps == 32
    assert plan(264, 10148, 1, 2, 2, H100).warps == 32


def test_long_rows_of_16_bits_that_no_two_waves_hold_are_read_twice():
    for M in (256, 500):
        p = plan(M, 20476, 1, 2, 1, H200)
        assert isinstance(p, Split)
        assert (p.looped, p.warps, p.group) == (True, 8, 1)
