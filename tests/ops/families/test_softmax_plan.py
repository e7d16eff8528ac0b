# SPDX-License-Identifier: Apache-2.0
"""The plan of softmax as a function of numbers."""

from __future__ import annotations

import pytest
from accuracy.softmaxes import CASES, LONG
from gpus import A100, H100, H200, INTERPRETER, RTX4090
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flag_gems_overrides.ops.families.softmax.defaults import default
from flag_gems_overrides.ops.families.softmax.plan import (
    Blocks,
    Configuration,
    Interleaved,
    Launched,
    Problem,
    Rows,
    Short,
    Single,
    Split,
    Strided,
    configurations,
    launch,
    plan,
)
from flag_gems_overrides.ops.families.softmax.row_plan import MAX_ODD_GRADIENT
from flag_gems_overrides.ops.launch.shape import split_at, wrap_dim
from flag_gems_overrides.ops.launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2

limits = st.sampled_from([H200, A100, RTX4090, INTERPRETER])
sizes = st.sampled_from([2, 4, 8])
inputs = st.sampled_from([1, 2])
# Many small ones, and all magnitudes.
numbers = st.integers(1, 300) | st.integers(1, 10**7)


@given(numbers, numbers, numbers, sizes, inputs, limits)
@example(1, 1, 1, 2, 1, H200)
@example(2**31, 3, 1, 2, 1, H200)
@example(1, 2**31 + 7, 1, 2, 2, H200)
@example(3, 5, 2**31 + 1, 4, 1, H200)
@example(1, 10923, 48, 2, 2, INTERPRETER)
@example(3085456, 29, 3, 2, 2, H200)
@example(1, 2**31 - 1, 2, 2, 1, H200)
@example(2**30 + 5, 2, 2, 2, 1, H200)
@example(2**31 + 5, 2, 2, 2, 1, H200)
@example(1, 3000000, 9, 2, 1, H200)
@example(1, 9000, 2049, 2, 2, H200)
@example(1, 1000, 3000001, 2, 1, H200)
def test_every_element_belongs_to_one_tile(M, N, K, size, inputs, limits):
    assume(M * N * K < 2**40)  # what a kernel is asked for is a tensor
    p = plan(M, N, K, size, inputs, limits)
    if isinstance(p, Single):
        assert N == 1
        assert p.programs * p.block >= M * K > (p.programs - 1) * p.block
        return
    if isinstance(p, Short):
        assert K > 1
        assert p.lanes * p.depth >= N > p.lanes * (p.depth - 1)
        each, count = (p.columns // p.width, M) if p.width else (p.columns, M * K)
        assert p.programs * each >= count > (p.programs - 1) * each
        return
    if isinstance(p, Rows):
        assert K == 1
        assert p.depth * p.width >= N
        assert p.programs * p.block_m >= M > (p.programs - 1) * p.block_m
        assert p.block_m * p.width % (p.warps * WARP * p.vec) == 0, "as many vectors side by side as threads"
        return
    if isinstance(p, Interleaved):
        assert p.step % K == p.step % p.vec == 0, "a lane has elements of one column, and whole vectors"
        assert p.block >= p.step > p.block // 2
        assert p.splits < 2**16
        assert p.unaligned == (N * K % p.vec != 0)
        assert M < 2**31
        return
    if isinstance(p, Strided):
        assert p.step % K == p.step % p.vec == 0, "a lane has elements of one column, and whole vectors"
        assert p.blocks * p.block >= p.step > (p.blocks - 1) * p.block
        assert p.splits < 2**16
        assert p.unaligned == (N * K % p.vec != 0)
        assert M < 2**16
        if p.columns:
            assert p.blocks == 1
            assert p.columns >= K
            assert p.rows * p.columns >= p.step
        return
    if isinstance(p, Blocks):
        assert K > 1
        assert p.programs == M
        assert p.step % K == p.step % p.vec == 0, "a lane has elements of one column, and whole vectors"
        assert p.block >= p.step > p.block // 2
        assert p.rows * p.columns >= p.step
        assert p.looped == (p.step * p.depth < N * K)
        assert p.unaligned == (N * K % p.vec != 0)
        return
    assert p.contiguous == (K == 1)
    assert p.blocks == (M if p.contiguous else M * cdiv(K, p.block_k))
    length = N // p.vec if p.contiguous else N
    share = cdiv(max(length, 1), p.group)
    assert p.looped == (share > p.depth * p.lanes)
    assert p.programs % p.group == 0
    assert p.programs > 0
    assert p.programs // p.group <= p.blocks, "no group without a block: it would not leave its counter at zero"
    assert p.programs < 2**31
    # What a kernel adds to one of its arguments, in 32 bits if the argument has no more.
    assert length >= 2**31 or length + p.group - 1 < 2**31
    assert p.blocks >= 2**31 or p.blocks - 1 + p.programs // p.group < 2**31


@given(numbers, numbers, numbers, sizes, inputs, limits)
def test_programs_that_wait_for_each_other_fit_on_the_device(M, N, K, size, inputs, limits):
    p = plan(M, N, K, size, inputs, limits)
    if isinstance(p, Split) and p.group > 1:
        threads = p.warps * WARP
        on_one = min(limits.registers_per_sm // (p.registers * threads), limits.threads_per_sm // threads)
        assert p.programs <= limits.sm_count * on_one


@given(numbers, numbers, numbers, sizes, inputs, limits)
@example(1, 2, 2**31 - 1, 2, 1, H200)
def test_what_the_compiler_asks_for(M, N, K, size, inputs, limits):
    p = plan(M, N, K, size, inputs, limits)
    assert 1 <= p.warps <= 32
    assert p.warps * WARP <= limits.threads_per_sm
    if isinstance(p, (Single, Short)):
        tile = (p.block,) if isinstance(p, Single) else (p.lanes, p.columns)
        assert all(side == power_of_2(side) for side in tile)
        assert p.programs < 2**31
        return
    assert p.vec * size <= VECTOR_BYTES
    if isinstance(p, (Blocks, Interleaved, Strided)):
        assert p.block == power_of_2(p.block) == p.warps * WARP * p.vec
        assert N * K + p.step * p.depth < 2**31 or not isinstance(p, Blocks)
        assert p.step * p.depth < 2**31
        return
    shape = (p.block_m, p.width) if isinstance(p, Rows) else (p.lanes, p.depth, p.block_k)
    assert size == 8 or p.depth == power_of_2(p.depth)
    assert all(side == power_of_2(side) for side in shape)
    assert (N if K == 1 else K) % p.vec == 0 or p.unaligned
    if isinstance(p, Split):
        if p.even:
            assert p.even_k
            assert not p.unaligned
            assert (N // p.vec if p.contiguous else N) % (p.group * p.lanes * p.depth) == 0
        if p.unaligned:
            assert p.contiguous
            assert 2 * p.vec <= N, "an interior and edges"
        if not p.contiguous:
            assert p.even_k == (K % p.block_k == 0)
            assert p.int64_offsets or p.lanes * p.depth * K < 2**31
            assert p.int64_offsets or K + p.block_k <= 2**31


def _elements(p: Launched) -> int:
    """Of each input that a program holds."""
    if isinstance(p, Single):
        return p.block
    if isinstance(p, Short):
        return p.lanes * p.depth * p.columns
    if isinstance(p, (Blocks, Interleaved, Strided)):
        return p.block * p.depth
    return p.block_m * p.depth * p.width if isinstance(p, Rows) else p.lanes * p.depth * p.block_k


@given(numbers, numbers, numbers, sizes, inputs, limits)
def test_configurations_are_legal_few_and_begin_with_the_default(M, N, K, size, inputs, limits):
    problem = Problem(M, N, K, size, inputs)
    found = configurations(problem, limits)
    assert 1 <= len(found) <= 12
    assert launch(problem, found[0], limits) == launch(problem, default(problem, limits), limits)
    assert len({launch(problem, each, limits) for each in found}) == len(found)


@given(numbers, numbers, sizes, inputs, limits)
def test_a_tile_fits_in_registers(M, N, size, inputs, limits):
    for K in (1, 7, 64):
        p = plan(M, N, K, size, inputs, limits)
        tile = _elements(p)
        # In float32 or float64, next to what a program needs anyway.
        words = tile // (p.warps * WARP) * inputs * (2 if size == 8 else 1)
        assert words <= 64


@given(st.integers(2, 10**6), sizes, inputs)  # rows of one element are one flat tensor: M is what there is of it
def test_a_new_number_of_rows_rarely_compiles(N, size, inputs):
    """Without a table what the compiler sees depends on M only where there are too few rows to fill the device.

    Rows of up to four elements have a second kernel, for very many, and gradients of odd rows.
    """

    def compiled(M):
        problem = Problem(M, N, 1, size, inputs)
        p = launch(problem, default(problem, H200), H200)._asdict()
        return {
            key: power_of_2(value) if key == "group" else value
            for key, value in p.items()
            if key not in ("programs", "blocks")
        }

    many = [compiled(M) for M in (5000, 6001, 20000)], [compiled(M) for M in (10**6, 3 * 10**6)]
    assert all(other == group[0] for group in many for other in group)
    assert N <= 4 or (inputs == 2 and N <= MAX_ODD_GRADIENT) or many[0][0] == many[1][0]


@given(sizes, inputs)
def test_a_new_length_compiles_for_its_power_of_2_only(size, inputs):
    seen = set()
    for N in range(1, 20000, 7):
        p = plan(4096, N, 1, size, inputs, H200)._asdict()
        seen.add(
            tuple((k, power_of_2(v) if k == "group" else v) for k, v in p.items() if k not in ("programs", "blocks"))
        )
    assert len(seen) < 100


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("size", [2, 4])
def test_the_accuracy_tests_take_every_way(size, inputs):
    ways = set()
    for shape, dim in [*CASES, *(case[:2] for case in LONG)]:
        M, N, K = split_at(shape, wrap_dim(dim, len(shape)))
        p = plan(M, N, K, size, inputs, INTERPRETER)
        if isinstance(p, Short) and p.width:
            ways.add(("side by side", p.width > K))
        elif isinstance(p, (Single, Short)):
            ways.add((type(p).__name__, p.programs > 1))
        elif isinstance(p, Interleaved):
            ways.add(("Interleaved", p.unaligned))
        elif isinstance(p, Blocks):
            ways.add(("Blocks", p.unaligned, p.looped))
        elif isinstance(p, Rows):
            ways.add(("rows", p.block_m > 1, p.depth > 1))
            ways |= {"tiles"} if p.depth & (p.depth - 1) else set()
        else:
            ways.add((p.contiguous, p.unaligned, p.group > 1, p.looped))
            several = p.group > 1 and p.programs // p.group < p.blocks
            ahead = p.stages > 1 and not p.looped and p.programs < p.blocks
            names = {"even": p.even, "odd K": not p.even_k, "in turn": several, "blocks ahead": ahead}
            ways |= {name for name, taken in names.items() if taken}
    expected = {("rows", True, False), ("rows", True, True), ("rows", False, True), "even", "odd K", "in turn"}
    # (contiguous, unaligned, a group of programs, a loop)
    expected |= {(True, True, False, False), (True, False, True, False), (True, True, True, False)}
    expected |= {(True, False, True, True), (True, True, True, True)}
    expected |= {(False, False, False, False), (False, False, False, True), (False, False, True, True)}
    expected |= {("Single", False), ("Single", True), ("Short", False), ("Short", True)}
    expected |= {("side by side", False), ("side by side", True)}
    expected |= {("Interleaved", False), ("Interleaved", True)}
    expected |= {("Blocks", False, True), ("Blocks", True, True)}
    if (size, inputs) != (2, 1):
        expected.add(("Blocks", True, False))
    if (size, inputs) == (2, 2):
        expected |= {("Blocks", False, False), "tiles"}
    if (size, inputs) == (4, 2):
        expected.add((False, False, True, False))
    else:
        # Twice by one program.
        expected.add((True, False, False, True))
    if (size, inputs) == (2, 1):
        expected |= {"blocks ahead", (True, True, False, True)}
    assert expected <= ways, expected - ways


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


def test_gradients_of_few_elements_have_no_program_that_is_alone_on_its_multiprocessor():
    for M, N, K, size in [(171, 67, 1001, 4), (300, 200, 263, 2)]:
        p = plan(M, N, K, size, 2, H200)
        assert isinstance(p, Short)
        assert p.warps == 8
    # Columns in pairs, which a tile holds; more elements than threads side by side hold; the forward.
    assert isinstance(plan(171, 67, 1794, 4, 2, H200), Split)
    assert isinstance(plan(300, 700, 263, 4, 2, H200), Blocks)
    assert isinstance(plan(300, 400, 333, 2, 1, H200), Blocks)


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


def test_groups_that_would_hold_columns_fit_on_the_device():
    assert plan(1, 2048, 102832, 2, 1, INTERPRETER).looped  # 16 programs, of which 12 run at once


@pytest.mark.parametrize(
    ("N", "size", "depth", "width"),
    [(439, 8, 7, 64), (153, 8, 5, 32), (90, 8, 3, 32), (90, 4, 8, 16), (45, 8, 4, 16)],
)
def test_rows_of_float64_have_as_many_tiles_as_exist_where_a_warp_has_one(N, size, depth, width):
    p = plan(40000, N, 1, size, 1, H200)
    assert (p.depth, p.width) == (depth, width)


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


def test_rows_of_float32_up_to_a_large_tile_have_no_group():
    for M, N in [(90, 10840), (80, 16384), (40, 12000)]:
        assert isinstance(plan(M, N, 1, 4, 1, H200), Rows)


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


def test_few_rows_that_begin_anywhere_are_plain_tiles_of_few_elements():
    for M, N, size, warps in [(16, 689, 2, 4), (90, 1201, 2, 8), (90, 1201, 4, 8), (132, 2047, 2, 8)]:
        p = plan(M, N, 1, size, 1, H200)
        assert isinstance(p, Rows)
        assert (p.warps, p.depth * p.vec) == (warps, 8)
    for M, N, size, inputs in [(133, 689, 2, 1), (133, 1201, 4, 1), (16, 2049, 2, 1), (16, 689, 2, 2)]:
        assert plan(M, N, 1, size, inputs, H200).unaligned


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
        (8184, 15, 75, 4),  # of a column
        (30000, 20, 19, 4),  # of a block
        (8184, 40, 41, 2),
        (8184, 16, 139, 4),  # most of a tile would be empty
    ],
)
def test_what_is_no_small_block(M, N, K, size):
    assert not isinstance(plan(M, N, K, size, 2, H200), Blocks)


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
        (1351, 29, 2870, False),
        (300, 29, 2871, False),
    ]:
        found = plan(M, N, K, 2, 1, H200)
        assert isinstance(found, Short)
        assert (found.lanes == 2) == two


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
