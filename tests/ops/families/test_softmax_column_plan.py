# SPDX-License-Identifier: Apache-2.0
"""How columns of softmax, over a dimension that is not the last, are launched: what was timed is planned so."""

from __future__ import annotations

import pytest
from gpus import H100, H200, INTERPRETER

from flag_gems_overrides.ops.families.softmax.plan import (
    Blocks,
    Configuration,
    Interleaved,
    Problem,
    Short,
    Split,
    Strided,
    launch,
    plan,
)
from flag_gems_overrides.ops.launch.sizes import WARP, cdiv, power_of_2


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_few_columns_are_read_as_they_lie_where_l2_does_not_hold_them(size, inputs):
    assert isinstance(plan(35, 2436552, 3, size, inputs, H200), Interleaved)
    # Whole vectors, but of 16 bits.
    assert isinstance(plan(35, 2436552, 4, size, inputs, H200), Interleaved if size == 2 else Split)
    assert isinstance(plan(1, 243655, 3, size, inputs, H200), Split)
    assert isinstance(plan(100000, 500, 3, size, inputs, H200), (Short, Split))


def test_odd_columns_loaded_one_by_one_are_read_as_they_lie_unless_they_are_small():
    assert isinstance(plan(2, 1000000, 3, 2, 2, H200), Interleaved)
    assert isinstance(plan(2, 600000, 3, 2, 2, H200), Split)
    assert isinstance(plan(2, 1000000, 3, 8, 1, H200), Split)
    assert isinstance(plan(3000, 7000, 3, 2, 2, H200), Blocks)
    assert isinstance(plan(3000, 7000, 6, 2, 2, H200), Blocks)


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("size", [2, 4])
def test_columns_of_no_whole_vectors_are_read_as_they_lie_by_a_program_for_each_block(size, inputs):
    for M, N, K in [(1444, 588, 39), (132, 3000, 501), (5000, 2000, 1023)]:
        assert isinstance(plan(M, N, K, size, inputs, H200), Blocks), (M, N, K)
    assert isinstance(plan(1444, 588, 40, size, inputs, H200), Blocks if (size, inputs) != (4, 2) else Split)
    # Multiprocessors without a block; whole vectors that L1 does not hold; columns of which a tile has too few; those
    # that threads hold.
    for M, N, K in [(131, 3000, 501), (1444, 2000, 40), (1444, 588, 16385), (1444, 15, 39)]:
        assert not isinstance(plan(M, N, K, size, inputs, H200), Blocks), (M, N, K)
    assert not isinstance(plan(1444, 588, 39, 8, inputs, H200), Blocks)


@pytest.mark.parametrize(
    ("M", "N", "K", "inputs"),
    [
        (7404, 129, 68, 1),
        (600, 129, 68, 1),
        (3000, 140, 72, 1),
        (3000, 140, 36, 1),
        (4000, 170, 68, 1),
        (2000, 140, 140, 1),
        (3000, 200, 100, 1),
        (3000, 250, 68, 1),
        (1000, 140, 260, 1),
        (5000, 70, 68, 1),
        (5000, 100, 68, 1),
        (5000, 70, 68, 2),
        (5000, 120, 68, 2),
        (3000, 80, 84, 2),
        (2000, 100, 140, 2),
        (4000, 96, 196, 2),
        (5000, 100, 36, 2),
        (10000, 40, 100, 2),
    ],
)
def test_many_blocks_of_16_bits_are_read_as_they_lie_where_tiles_would_take_longer(M, N, K, inputs):
    p = plan(M, N, K, 2, inputs, H100)
    assert isinstance(p, Blocks)
    assert p.warps <= 8
    assert isinstance(plan(400, N, K, 2, inputs, H100), Split)


@pytest.mark.parametrize(
    ("M", "N", "K", "inputs"),
    [
        (700, 190, 300, 1),  # L1 does not hold them
        (1000, 100, 268, 2),
        (7404, 250, 128, 1),
        (7404, 160, 128, 1),  # whole lines
        (7404, 64, 128, 1),
        (7404, 128, 128, 2),
        (7404, 64, 64, 2),
    ],
)
def test_many_blocks_of_16_bits_are_in_tiles_where_those_take_less(M, N, K, inputs):
    assert isinstance(plan(M, N, K, 2, inputs, H100), Split)


@pytest.mark.parametrize("size", [2, 4])
def test_the_one_block_of_few_columns_is_halved_so_that_two_groups_take_turns(size):
    p = plan(1, 262144, 64 // size, size, 1, H200)
    assert p.blocks == 2
    assert p.programs == 2 * p.group


@pytest.mark.parametrize(
    ("M", "N", "K", "size", "inputs", "warps", "depth"),
    [
        (48, 4479, 2, 4, 1, 8, 18),
        (48, 4479, 2, 4, 2, 16, 9),
        (300, 4479, 2, 4, 1, 8, 18),
        (40, 5000, 4, 2, 1, 16, 10),
        (300, 16384, 2, 4, 1, 16, 32),  # in place of a loop all that registers hold
        (300, 4096, 2, 8, 2, 16, 8),
        (100, 1500, 8, 2, 2, 16, 3),  # in place of a group
        (13, 1107, 8, 2, 1, 8, 9),  # in place of a tile as long as a power of two
        (40, 900, 4, 4, 1, 8, 8),
    ],
)
def test_few_columns_that_a_program_holds(M, N, K, size, inputs, warps, depth):
    p = plan(M, N, K, size, inputs, H200)
    assert isinstance(p, Short)
    assert (p.programs, p.columns, p.warps, p.depth) == (M, K, warps, depth)
    assert p.lanes * K == p.warps * WARP * p.vec, "a load for each thread"


@pytest.mark.parametrize(("M", "N", "K"), [(300, 16385, 2), (48, 16384, 2), (48, 4479, 6), (48, 4479, 16)])
def test_columns_that_no_program_holds_or_of_rows_longer_than_a_sector(M, N, K):
    assert isinstance(plan(M, N, K, 4, 1, H200), Blocks if H200.sm_count <= M else Split)


@pytest.mark.parametrize(
    ("N", "K", "elements", "warps", "vec", "rule"),
    [
        (100, 6, 16, 4, 2, "a power of two of columns"),
        (100, 2, 16, 4, 4, "whole vectors"),
        (100, 8, 16, 4, 8, "whole vectors"),  # of 32 bytes
        (129, 2, 2, 4, 2, "no more elements than a program"),
        (1, 256, 4, 1, 4, "no more elements than a program"),
        (1, 2**30, 4, 32, 4, "no more elements than a program"),
    ],
)
def test_programs_that_cannot_have_all_columns(N, K, elements, warps, vec, rule):
    with pytest.raises(ValueError, match=rule):
        launch(Problem(5, N, K, 4, 1), Configuration("short", elements, warps, vec=vec), H200)


@pytest.mark.parametrize(
    ("M", "N", "K", "size", "inputs", "lanes", "blocks", "vec"),
    [
        (3085456, 29, 3, 2, 2, 8, 8, 1),
        (5729, 56, 5, 2, 1, 4, 4, 1),
        (60000, 64, 6, 2, 1, 8, 4, 2),
        (60000, 100, 2, 4, 1, 32, 4, 2),
        (30000, 300, 3, 2, 1, 32, 1, 1),  # of several warps
        (60000, 13, 13, 2, 1, 2, 4, 1),
        (60000, 50, 12, 2, 1, 16, 2, 4),
        (60000, 40, 8, 2, 1, 16, 8, 8),
        (50000, 30, 3, 8, 2, 8, 8, 1),
        (400000, 10, 3, 2, 1, 4, 16, 1),  # half the lanes of a warp
        (800000, 6, 3, 2, 1, 2, 32, 1),  # a quarter
        (1041666, 4, 3, 2, 1, 2, 64, 1),  # two rows to a thread at least
        (277777, 5, 9, 2, 1, 1, 8, 1),
        (6000, 260, 8, 2, 1, 128, 1, 8),  # three vectors to a thread
        (40000, 20, 16, 2, 1, 8, 8, 8),  # rows of a sector
    ],
)
def test_many_short_blocks_are_read_side_by_side(M, N, K, size, inputs, lanes, blocks, vec):
    p = plan(M, N, K, size, inputs, H200)
    assert isinstance(p, Short)
    assert (p.lanes, p.columns, p.vec, p.width) == (lanes, blocks * power_of_2(K), vec, power_of_2(K))
    # Few elements, columns of two, rows longer than a sector, and what a program has as it lies.
    for other in [(30, N, K), (M, 2, K), (M, N, 32 // size + 1), (M, 3072, K)]:
        assert not getattr(plan(*other, size, inputs, H200), "width", 0)


@pytest.mark.parametrize(
    ("N", "K", "elements", "width", "rule"),
    [(29, 3, 16, 8, "all columns"), (700, 3, 16, 4, "no more elements"), (29, 6, 1, 8, "no more elements")],
)
def test_what_is_not_side_by_side(N, K, elements, width, rule):
    with pytest.raises(ValueError, match=rule):
        launch(Problem(500, N, K, 2, 1), Configuration("short", elements, 4, block_k=width), H200)


@pytest.mark.parametrize(
    ("N", "K", "size", "inputs", "block_k", "rounds"),
    [
        (4980, 85, 2, 1, 16, 2),  # no less than a sector
        (6000, 45, 4, 2, 16, 2),
        (20000, 100, 2, 2, 16, 2),
        (4980, 84, 2, 1, 16, 1),
        (3000, 256, 2, 1, 16, 1),  # of two numbers for each column
        (20000, 44, 4, 1, 8, 1),
        (100000, 64, 2, 1, 16, 3),
        (20000, 300, 2, 1, 64, 7),  # of no whole sectors, and so many that reading more costs more
        (8192, 300, 2, 1, 16, 1),
        (20000, 200, 2, 1, 16, 1),
        (20000, 150, 2, 2, 16, 1),
    ],
)
def test_groups_of_few_elements_read_few_words_of_each_other(N, K, size, inputs, block_k, rounds):
    p = plan(1, N, K, size, inputs, H200)
    assert isinstance(p, Split)
    assert (p.block_k, cdiv(p.group, p.members)) == (block_k, rounds)
    many = plan(1, 400 * N, K, size, inputs, H200)
    assert isinstance(many, Strided) or many.block_k >= 64 // size, "L2 does not hold them"


def test_columns_little_longer_than_a_tile_have_half_as_many_warps():
    for M, N, K, warps in [(1, 192, 40768, 4), (23, 255, 712, 8), (2, 192, 8192, 8)]:
        p = plan(M, N, K, 2, 2, H100)
        assert isinstance(p, Split)
        assert (p.warps, p.looped) == (warps, True), (M, N, K)
    for M, warps in [(3, 4), (4, 8)]:
        p = plan(M, 631, 60, 8, 1, H100)
        assert isinstance(p, Split)
        assert (p.warps, p.looped) == (warps, False), M


def test_columns_of_float32_are_held_in_lines():
    assert not plan(24, 51, 131072, 4, 1, H200).looped
    # Where nothing else holds them, they are one.
    assert plan(24, 5100, 131072, 4, 1, H200).looped


def test_two_columns_of_16_bits_are_read_as_they_lie():
    for M, N, inputs in [(24, 401203, 1), (24, 250000, 1), (24, 401203, 2)]:
        assert isinstance(plan(M, N, 2, 2, inputs, H100), Interleaved)
    # Few bytes; float32; whole vectors.
    for M, N, K, size, inputs in [(22, 250000, 2, 2, 1), (20, 401203, 2, 2, 2), (24, 401203, 2, 4, 1)]:
        assert isinstance(plan(M, N, K, size, inputs, H100), Split)
    assert isinstance(plan(1, 299204, 8, 2, 2, H100), Split)


def test_pairs_of_16_bits_are_read_as_they_lie_too():
    for M, inputs in [(72, 1), (36, 1), (12, 1), (36, 2)]:
        assert isinstance(plan(M, 30365, 6, 2, inputs, H200), Interleaved)
    assert isinstance(plan(4, 30365, 6, 2, 1, H200), Split)
    assert isinstance(plan(36, 30365, 6, 4, 1, H200), Split)


@pytest.mark.parametrize(
    ("M", "N", "size", "inputs"),
    [(63, 9347, 2, 1), (63, 9347, 2, 2), (63, 9347, 4, 1), (20, 9347, 2, 1), (10, 100000, 2, 1)],
)
def test_eight_columns_of_16_bits_are_read_as_they_lie_forward(M, N, size, inputs):
    way = Interleaved if (M, size, inputs) == (63, 2, 1) else Split
    assert isinstance(plan(M, N, 8, size, inputs, H100), way)


@pytest.mark.parametrize(
    ("M", "N", "K", "inputs", "group", "looped"),
    [
        (1, 2048, 102832, 2, 8, False),
        (16, 1024, 8192, 2, 4, False),
        (1, 2048, 102832, 1, 16, False),
        (64, 880, 8192, 2, 1, True),  # one program, which waits for none
        (27, 8688, 640, 2, 20, True),  # of which L1 has half as much as it could
        (64, 16384, 160, 2, 19, True),  # no larger group than was timed
    ],
)
def test_groups_hold_columns_that_l2_does_not(M, N, K, inputs, group, looped):
    p = plan(M, N, K, 2, inputs, H200)
    assert (p.group, p.looped) == (group, looped)


def test_two_or_three_columns_are_vectors_side_by_side_where_tiles_are_many_and_small():
    for M, N, K in [(300, 3, 3000), (151, 2, 4736)]:
        p = plan(M, N, K, 2, 1, H200)
        assert isinstance(p, Short)
        assert (p.columns, p.lanes, p.depth, p.vec, p.warps) == (512, 1, N, 8, 2)
    # The gradient; larger tiles.
    for M, N, K, inputs in [(151, 2, 4736, 2), (40, 3, 100000, 1)]:
        assert isinstance(plan(M, N, K, 2, inputs, H200), Split), (M, N, K, inputs)


def test_a_thread_has_a_whole_vector_of_short_float32_columns_forward():
    found = {(N, inputs): plan(4, N, 200000, 4, inputs, H200) for N, inputs in ((5, 1), (7, 1), (9, 1), (7, 2))}
    assert all(isinstance(p, Short) and p.lanes == 1 for p in found.values())
    assert [p.vec for p in found.values()] == [4, 4, 2, 2]


def test_columns_of_few_elements_have_a_thread_each():
    few = [(1, 2, 131072, 1), (4, 4, 40000, 1), (2, 3, 100000, 2), (3, 5, 316368, 1), (3, 5, 316368, 2)]
    for M, N, K, inputs in [*few, (5, 8, 262144, 2), (10, 12, 100000, 1)]:
        p = plan(M, N, K, 2, inputs, H200)
        assert isinstance(p, Short)
        assert (p.columns, p.lanes, p.depth, p.vec, p.warps) == (256, 1, N, 4, 2)
    # Fewer columns, for two inputs.
    p = plan(10, 12, 100000, 2, 2, H200)
    assert isinstance(p, Short)
    assert (p.columns, p.lanes, p.depth, p.vec, p.warps) == (128, 1, 12, 2, 2)
    # Longer ones; many, of which a tile has whole ones to a thread; more than 32 bits count.
    for M, N, K in [(4, 17, 40000), (40, 4, 100000), (1 << 14, 5, 1 << 16)]:
        assert isinstance(plan(M, N, K, 2, 1, H200), Split), (M, N, K)


@pytest.mark.parametrize(
    ("problem", "columns"),
    [
        ((3, 251, 44042, 4, 1), 64),
        ((8, 300, 10002, 4, 1), 64),
        ((3, 251, 44042, 2, 2), 32),
        ((10, 160, 10002, 2, 2), 64),
        ((10, 210, 10002, 2, 2), 32),  # two of which would not run at once
        ((8, 150, 20002, 4, 1), 64),
        # Neither fewer sectors nor held in place of read twice.
        ((5, 200, 30002, 4, 2), None),
        ((10, 180, 20002, 2, 1), None),
        # Longer than 64 columns are held; too few columns; fours.
        ((20, 600, 6002, 4, 1), None),
        ((1, 300, 10002, 4, 1), None),
        ((3, 251, 44044, 2, 2), None),
    ],
    ids=str,
)
def test_long_columns_in_pairs(problem, columns):
    p = plan(*problem, H200)
    assert (p.columns if isinstance(p, Short) else None) == columns


def test_pairs_of_16_bits_that_l2_does_not_hold_are_in_tiles_where_few_threads_would_hold_them():
    for N in (32, 29):
        p = plan(69, N, 35518, 2, 1, H100)
        assert (p.block_k, p.vec, p.warps, p.looped) == (128, 2, 8, False)
    # L2 holds it; tiles would be partly empty; short and long columns; fours, odd rows, float32.
    others = [(500, 30, 762), (20, 24, 100002), (69, 16, 35518), (5, 56, 271838), (69, 32, 35516), (69, 32, 35517)]
    for problem in others:
        assert isinstance(plan(*problem, 2, 1, H100), Short)
    assert isinstance(plan(69, 32, 35518, 4, 1, H100), Short)


def test_groups_that_would_hold_columns_fit_on_the_device():
    assert plan(1, 2048, 102832, 2, 1, INTERPRETER).looped  # 16 programs, of which 12 run at once


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("M", "N", "K", "inputs", "columns", "lanes", "warps"),
    [
        (3, 503, 44043, 1, 64, 8, 16),
        (3, 251, 44043, 1, 64, 8, 16),
        (6, 100, 20001, 1, 128, 4, 16),
        (3, 100, 100001, 1, 128, 4, 16),
        (3, 100, 20001, 1, 64, 4, 8),  # for more programs
        (3, 130, 20001, 1, 64, 8, 16),
        (20, 700, 3001, 1, 32, 16, 16),  # as many as a program can hold
        (1, 300, 12001, 1, 32, 16, 16),  # for more programs
        (3, 251, 44043, 2, 32, 16, 16),
        (3, 503, 44043, 2, 32, 16, 16),
        (5, 56, 135919, 2, 128, 4, 16),
        (5, 100, 60001, 2, 128, 4, 16),  # of which two programs run at once
        (5, 101, 60001, 2, 64, 8, 16),
        (8, 40, 3001, 2, 64, 4, 8),  # for more programs
        (2, 56, 20001, 2, 64, 4, 8),
    ],
)
def test_columns_of_several_threads_are_read_in_lines(M, N, K, inputs, columns, lanes, warps, size):
    p = plan(M, N, K, size, inputs, H200)
    assert isinstance(p, Short)
    assert (p.columns, p.lanes, p.warps) == (columns, lanes, warps)
    # Too few programs; columns that are too long; float64.
    for other in [(1, N, 8401, size, inputs), (M, 1025, K, size, inputs), (M, N, K, 8, inputs)]:
        other = plan(*other, H200)
        assert not isinstance(other, Short) or (other.columns, other.warps) != (columns, warps)
    # What would spill elsewhere.
    for N, K, inputs in [(700, 3001, 1), (503, 44043, 2)]:
        other = plan(20, N, K, size, inputs, H200._replace(capability=(10, 0)))
        assert not isinstance(other, Short) or other.warps < 16


@pytest.mark.parametrize(
    ("M", "N", "K", "inputs", "vec"),
    [(664, 16, 542, 2, 2), (664, 16, 542, 1, 2), (1000, 10, 602, 2, 2), (500, 30, 762, 1, 2), (664, 16, 541, 2, 1)],
)
def test_a_thread_has_two_columns_of_16_bits_where_they_are_loaded_together(M, N, K, inputs, vec):
    p = plan(M, N, K, 2, inputs, H200)
    assert isinstance(p, Short)
    assert (p.vec, p.columns) == (vec, vec * 128)


def test_columns_are_half_sectors_only_in_programs_that_run_at_once():
    for M, N, K, size, block_k in [(5, 1520, 72, 2, 8), (13, 1904, 12, 2, 4), (42, 2244, 8, 4, 4)]:
        p = plan(M, N, K, size, 1, H200)
        assert (p.block_k, p.group) == (block_k, 1)
    for M, N, K, size in [(27, 3285, 32, 4), (15, 4000, 64, 4), (20, 2500, 48, 4)]:
        p = plan(M, N, K, size, 1, H200)
        assert (p.block_k, p.looped) == (32, True)
        assert p.group > 1
    # Not of float32, nor of many elements; what a group holds without spills.
    assert plan(16, 2000, 64, 2, 1, H200).group > 1
    assert plan(4, 7357, 38, 4, 1, H200).group > 1
    for M, N, block_k, looped in [
        (16, 3285, 32, True),
        (16, 2600, 32, True),
        (8, 3900, 16, False),
        (2, 3000, 16, False),
    ]:
        p = plan(M, N, 32, 4, 1, H200)
        assert (p.block_k, p.looped, p.depth * p.vec) == (block_k, looped, 16)
        assert plan(M, N, 32, 4, 2, H200).group > 1
    # Whole sectors of little more than run at once; of twice as many, of columns that groups would hold.
    assert plan(40, 2000, 32, 4, 1, H200).looped
    for M, N in [(64, 2000), (40, 1500), (32, 2000)]:
        p = plan(M, N, 32, 4, 1, H200)
        assert (p.block_k, p.group) == (8, 1)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("M", "N", "K", "inputs", "columns", "rows"),
    [
        (2, 160, 131043, 1, 128, 40),
        (2, 160, 131043, 2, 64, 20),
        (20, 160, 4001, 2, 64, 20),
        (2, 100, 131043, 2, 128, 25),
        # One of them would run at a time; too few for each multiprocessor.
        (2, 161, 131043, 1, 64, 21),
        (2, 250, 80001, 2, 32, 16),
        (8, 160, 4001, 2, 32, 10),
        (1, 160, 60001, 1, 64, 20),
    ],
)
def test_odd_columns_are_wide_where_two_programs_run_at_once(M, N, K, inputs, columns, rows, size):
    p = plan(M, N, K, size, inputs, H100)
    assert isinstance(p, Short)
    assert (p.columns, p.depth, p.warps) == (columns, rows, 16)


def test_columns_of_long_odd_rows_have_two_threads_each():
    for M, N, K, size in [(5, 56, 135919, 2), (5, 40, 60001, 4), (140, 33, 60001, 4)]:
        p = plan(M, N, K, size, 1, H200)
        assert (p.lanes, p.columns, p.warps) == (2, 128, 8)
    for M, N, K in [(5, 56, 135918), (300, 56, 3001), (4, 56, 40001)]:
        assert plan(M, N, K, 4, 1, H200).lanes == 1
    for M, N, K, lanes in [(56, 16, 15207, 2), (100, 15, 12001, 2), (100, 8, 12001, 1), (60, 15, 12001, 1)]:
        p = plan(M, N, K, 8, 1, H200)
        assert (p.lanes, p.columns, p.warps) == (lanes, 128 // lanes, 4)


def test_groups_of_long_columns_of_a_gradient_read_half_of_l2_at_a_time():
    # All blocks at a time of few bytes, and of shorter columns.
    for M, N, group in [(14, 6336, 16), (16, 6336, 16), (10, 6336, 6), (30, 3000, 2)]:
        p = plan(M, N, 256, 2, 2, H100)
        assert isinstance(p, Split)
        assert (p.looped, p.vec, p.block_k, p.group) == (True, 8, 64, group)


@pytest.mark.parametrize(
    ("M", "N", "K", "size", "inputs", "group"),
    [
        (22, 2048, 341, 4, 1, 7),
        (16, 2048, 341, 4, 1, 7),
        (98, 1500, 367, 4, 2, 16),  # of which each reads in one round what all found
        (10, 2048, 341, 4, 1, 4),  # L2 holds all
    ],
)
def test_groups_read_columns_again_that_l2_has(M, N, K, size, inputs, group):
    p = plan(M, N, K, size, inputs, H200)
    assert isinstance(p, Split)
    assert (p.vec, p.looped, p.group) == (1, True, group)
    at_once = p.programs // p.group
    assert p.blocks <= at_once or at_once * N * p.block_k * size * (inputs + 1) <= 2 / 3 * H200.l2_bytes


@pytest.mark.parametrize(
    ("M", "N", "K", "size", "inputs", "step", "blocks", "warps"),
    [
        (1, 32768, 3231, 2, 1, 25848, 26, 4),
        (49, 3767, 367, 4, 1, 1468, 3, 4),
        (1, 2000000, 33, 4, 2, 924, 1, 8),
        (4, 150000, 63, 2, 1, 1008, 1, 4),
        (3, 16384, 2194, 4, 1, 4388, 9, 4),  # in pairs
        (15, 388780, 12, 2, 2, 1008, 1, 4),  # in fours
        (20, 8000, 132, 2, 2, 1848, 1, 8),
        (1, 32768, 3232, 2, 1, 6464, 7, 4),  # whole vectors of 16 bits
        (3, 16384, 2192, 2, 2, 4384, 5, 4),
        (3, 16384, 2192, 4, 1, 0, 0, 0),
        (8, 40001, 16, 2, 1, 0, 0, 0),
        (16, 8192, 2192, 2, 2, 0, 0, 0),
        (39, 9024, 21, 8, 1, 252, 1, 4),  # float64
        (39, 9024, 21, 8, 2, 252, 1, 4),
        (39, 9024, 24, 8, 2, 0, 0, 0),
        (10, 10000, 50, 8, 1, 250, 1, 4),
        (20, 4000, 64, 8, 1, 256, 1, 4),
        (20, 4000, 66, 8, 1, 0, 0, 0),
        (8, 6000, 33, 8, 1, 462, 1, 8),
        (7, 6000, 33, 8, 1, 0, 0, 0),
        (39, 9024, 8, 8, 1, 0, 0, 0),
        (140, 1499, 197, 8, 1, 0, 0, 0),
        (2, 3000, 1001, 4, 1, 0, 0, 0),  # few bytes
        (4, 5000, 301, 2, 2, 0, 0, 0),
        (4, 5000, 301, 2, 1, 0, 0, 0),
        (8, 7000, 301, 2, 1, 4816, 5, 4),
        (8, 7000, 302, 2, 1, 3624, 4, 4),
        (5, 7000, 302, 2, 1, 0, 0, 0),
        (100, 1000, 301, 2, 2, 0, 0, 0),  # short ones
        (98, 1500, 367, 4, 2, 0, 0, 0),
        (30, 2499, 361, 4, 2, 0, 0, 0),
        (30, 2500, 361, 4, 2, 1444, 3, 4),
        (60, 2899, 301, 2, 2, 0, 0, 0),
        (130, 990, 302, 2, 2, 0, 0, 0),
        (130, 1001, 302, 2, 2, 3624, 4, 4),  # in pairs
        (40, 1500, 276, 2, 2, 3864, 1, 16),  # in fours
        (11, 6336, 276, 2, 2, 3864, 1, 16),
        (3, 6336, 276, 2, 2, 0, 0, 0),
        (8, 1004, 8695, 2, 2, 69560, 68, 4),  # of which L2 holds little
        (11, 2164, 7705, 2, 1, 61640, 61, 4),
        (20, 1500, 3001, 2, 1, 24008, 24, 4),
        (20, 1500, 2001, 2, 1, 0, 0, 0),
        (4, 1500, 5001, 4, 2, 0, 0, 0),
        (11, 6336, 280, 2, 2, 1960, 1, 8),  # whole vectors of which the last block is half empty
        (9, 6336, 280, 2, 2, 0, 0, 0),
        (11, 6336, 312, 2, 2, 0, 0, 0),
        (11, 6336, 256, 2, 2, 0, 0, 0),
        (70000, 3001, 1001, 2, 1, 0, 0, 0),
        (11, 25281, 72, 2, 1, 1008, 1, 4),
        (7, 25281, 72, 2, 1, 0, 0, 0),
        (4, 22173, 43, 4, 2, 1892, 1, 16),  # fewer bytes of long ones
        (10, 10000, 51, 4, 1, 1020, 1, 8),
        (10, 9999, 51, 4, 1, 0, 0, 0),
        (8, 20000, 43, 2, 2, 3784, 1, 16),
        (3, 2048, 10011, 4, 1, 40044, 79, 4),
        (9, 2048, 5011, 4, 1, 0, 0, 0),
    ],
)
def test_long_columns_of_no_whole_vectors_are_read_as_they_lie(M, N, K, size, inputs, step, blocks, warps):
    p = plan(M, N, K, size, inputs, H100)
    assert isinstance(p, Strided) == (step > 0)
    if isinstance(p, Strided):
        assert (p.step, p.blocks, p.warps) == (step, blocks, warps)
        assert (p.columns > 0) == (blocks == 1)
        assert p.step >= 0.84 * p.blocks * p.block, "most of each tile has some"


@pytest.mark.parametrize(
    ("M", "N", "K", "size", "inputs", "lanes", "depth"),
    [
        (399, 32, 51, 2, 2, 4, 8),
        (399, 32, 51, 4, 2, 4, 8),
        (800, 32, 51, 2, 2, 2, 16),
        (1200, 32, 51, 2, 2, 1, 32),
        (600, 16, 51, 2, 2, 2, 8),
        (399, 32, 51, 2, 1, 2, 16),
        (150, 60, 201, 4, 1, 4, 15),
        (207, 35, 255, 4, 1, 2, 18),
        (600, 35, 255, 4, 1, 1, 35),
        (200, 32, 50, 2, 1, 1, 32),  # two columns that are loaded together
        (500, 8, 101, 2, 2, 1, 8),
    ],
)
def test_few_short_columns_have_several_threads_each(M, N, K, size, inputs, lanes, depth):
    p = plan(M, N, K, size, inputs, H100)
    assert isinstance(p, Short)
    assert (p.lanes, p.depth, p.warps) == (lanes, depth, 4)


def test_columns_held_by_a_program_of_most_warps_where_most_multiprocessors_have_one():
    p = plan(88, 4766, 8, 2, 1, H200)
    assert isinstance(p, Short)
    assert (p.warps, p.depth, p.vec, p.programs) == (32, 5, 8, 88)
    # Half of the multiprocessors; more registers than were timed; the gradient.
    for M, N, inputs in [(66, 4766, 1), (88, 5130, 1), (88, 4766, 2)]:
        assert getattr(plan(M, N, 8, 2, inputs, H200), "warps", 0) != 32


@pytest.mark.parametrize(
    ("N", "K", "size", "inputs", "warps", "depth"),
    [
        (40, 75, 4, 2, 8, 4),
        (33, 33, 4, 1, 4, 3),
        (48, 42, 4, 1, 4, 4),  # in pairs
        (70, 60, 4, 2, 8, 5),  # in vectors, of no whole sectors
        (24, 17, 4, 2, 4, 1),
        (40, 75, 2, 2, 8, 2),
        (50, 45, 2, 2, 4, 4),
        (50, 42, 2, 2, 4, 3),
        (28, 52, 4, 1, 4, 4),
        (15, 75, 4, 2, 4, 4),  # few elements, which L2 does not hold
    ],
)
def test_small_blocks_of_odd_columns_are_held_by_a_program_each(N, K, size, inputs, warps, depth):
    p = plan(8184, N, K, size, inputs, H200)
    assert isinstance(p, Blocks)
    assert (p.warps, p.depth, p.looped) == (warps, depth, False)


@pytest.mark.parametrize(
    ("M", "N", "K", "size"),
    [
        (8184, 40, 72, 4),  # whole sectors
        (8184, 40, 76, 2),  # loaded by 8 bytes
        (8184, 100, 20, 4),  # whole rows in a tile
        (8184, 180, 10, 4),
        (200, 40, 75, 4),  # few elements
        (8184, 15, 74, 4),  # of a column, in pairs
        (4000, 15, 75, 4),  # which L2 holds
        (30000, 20, 19, 4),  # of a block
        (8184, 40, 41, 2),
        (8184, 16, 139, 4),  # most of a tile would be empty
    ],
)
def test_what_is_no_small_block(M, N, K, size):
    assert not isinstance(plan(M, N, K, size, 2, H200), Blocks)


def test_long_columns_of_16_bits_that_no_cache_holds_are_read_by_many_programs_each():
    for M, N, K in [(209, 428126, 3), (342, 38281, 7)]:
        assert isinstance(plan(M, N, K, 2, 1, H200), Interleaved)
    for M, N, K, inputs in [(3000, 7000, 3, 1), (342, 38281, 7, 2), (147, 26752, 4, 1)]:
        assert isinstance(plan(M, N, K, 2, inputs, H200), Blocks)


@pytest.mark.parametrize(
    ("M", "N", "K", "size", "registers"),
    [
        (128, 552, 12, 2, 144),
        (7, 187, 2424, 4, 144),
        (7, 187, 9696, 4, 80),  # five waves, by 144 registers six: half as many elements
        (700, 187, 2420, 4, 80),
        (3000, 140, 72, 4, 128),
        (600, 300, 100, 4, 128),
        (280, 105, 260, 2, 128),
        (280, 105, 256, 2, 128),  # half as many loads
        (7, 256, 2432, 4, 128),  # no masks
    ],
)
def test_masked_tiles_have_registers_for_all_loads_if_no_program_waits_longer(M, N, K, size, registers):
    p = plan(M, N, K, size, 1, H200)
    assert isinstance(p, Split)
    assert not p.looped
    assert p.registers == registers


def test_half_as_long_columns_of_long_odd_rows_have_two_threads_each():
    for M, N, K, two in [
        (1351, 29, 2871, True),
        (1351, 16, 2871, False),
        (1351, 29, 2876, False),
        (300, 29, 2871, False),
    ]:
        found = plan(M, N, K, 2, 1, H200)
        assert isinstance(found, Short)
        assert (found.lanes == 2) == two


@pytest.mark.parametrize(
    ("N", "K", "block_k"),
    [(64, 226, 64), (100, 250, 32), (100, 262, 32), (64, 225, None), (200, 251, None), (200, 250, None)],
)
def test_gradients_of_16_bits_that_a_program_would_read_twice_alone_are_in_tiles(N, K, block_k):
    p = plan(415, N, K, 2, 2, H200)
    if block_k is None:
        assert isinstance(p, Blocks)
        assert p.looped
    else:
        assert isinstance(p, Split)
        assert (p.vec, p.block_k, p.looped, p.group, p.registers) == (2, block_k, False, 1, 64)
        assert p.warps == 8


def test_gradients_of_16_bits_in_tiles_that_are_half_empty_are_held():
    for M, N, K, lanes, depth in [(18990, 1263, 4, 256, 5), (9000, 700, 8, 256, 3)]:
        p = plan(M, N, K, 2, 2, H200)
        assert isinstance(p, Short)
        assert (p.lanes, p.depth, p.warps) == (lanes, depth, 8)
    # Mostly filled, of float32, all at once.
    for M, N, K, size in [(4000, 1000, 4, 2), (4000, 1263, 4, 4), (4000, 1500, 4, 2), (264, 1263, 4, 2)]:
        assert isinstance(plan(M, N, K, size, 2, H200), Split)


def test_few_long_columns_are_of_groups_unless_they_are_little():
    for N, K, size, inputs, kind in [(6296, 12, 2, 2, Split), (5000, 7, 4, 1, Split), (5843, 3, 2, 2, Short)]:
        assert isinstance(plan(1, N, K, size, inputs, H100), kind)


@pytest.mark.parametrize(
    ("M", "N", "K", "size", "group", "warps", "depth"),
    [
        (313, 8192, 8, 2, 3, 8, 4),  # by one program each in two waves
        (171, 8051, 8, 2, 3, 8, 4),
        (23, 255, 712, 2, 1, 8, 4),
        (31, 585, 576, 2, 1, 8, 4),
        (1, 1747, 2364, 2, 7, 8, 4),  # in fours
        (26, 318, 1000, 4, 1, 16, 8),  # by two programs of half as many warps, which wait for each other
        (200, 318, 1000, 4, 2, 8, 8),
    ],
)
def test_gradients_of_columns_in_vectors(M, N, K, size, group, warps, depth):
    p = plan(M, N, K, size, 2, H100)
    assert isinstance(p, (Split, Blocks))
    assert (getattr(p, "group", 1), p.warps, p.depth) == (group, warps, depth)
