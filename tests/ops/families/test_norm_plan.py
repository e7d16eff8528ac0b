# SPDX-License-Identifier: Apache-2.0
"""The plans of layer_norm as functions of numbers, for any GPU."""

from __future__ import annotations

import math

import pytest
from gpus import A100, B200, H100, H100_PCIE, H200, INTERPRETER, RTX4090
from hypothesis import example, given
from hypothesis import strategies as st

from flag_gems_overrides.ops.families.norm import rms_plan
from flag_gems_overrides.ops.families.norm.backward_plan import plan_partial_sums
from flag_gems_overrides.ops.families.norm.blocks_plan import plan_blocks
from flag_gems_overrides.ops.families.norm.launches import (
    MAX_GROUP_IN_TURN,
    MAX_GROUP_OF_ONE_WARP,
    MIN_TURNS,
    PROGRAMS_PER_SM,
    Configuration,
    FewRows,
    Flat,
    Launch,
    Loop,
    Problem,
    Rows,
    ShortRows,
    Split,
    columns,
    launch,
    launch_or_none,
)
from flag_gems_overrides.ops.families.norm.long_plan import loop
from flag_gems_overrides.ops.families.norm.many_rows_plan import by_four_warps, in_chunks_of_a_warp, in_two_chunks
from flag_gems_overrides.ops.families.norm.plan import choose, configurations, plan
from flag_gems_overrides.ops.launch.devices import Limits
from flag_gems_overrides.ops.launch.sizes import power_of_2

# Many small ones, and all magnitudes.
numbers = st.integers(1, 300) | st.integers(1, 70000) | st.integers(1, 2**31)
sizes = st.sampled_from([2, 4, 8])
limits = st.sampled_from([A100, H100_PCIE, H200, B200, RTX4090, INTERPRETER])
# (whether backward, how many tensors a program loads, how many float32 of each element it keeps)
DIRECTIONS = [(False, 1, 1), (True, 2, 4)]
directions = st.sampled_from(DIRECTIONS)


def default(M: int, N: int, size: int, backward: bool, limits: Limits) -> Launch:
    problem = Problem(M, N, 1, size, backward)
    return launch(problem, configurations(problem, limits)[0], limits)


def _plans(kind, direction, M, N, size, limits):
    """Of all configurations, those that launch this kind, with a residual too."""
    backward = direction[0]
    problems = [Problem(M, N, 1, size, backward, residual) for residual in {False, not backward}]
    found = [launch(each, configuration, limits) for each in problems for configuration in configurations(each, limits)]
    return [p for p in found if isinstance(p, kind)]


def _span(N: int, p: Rows | Split) -> int:
    """Most elements of a row that are in whole vectors."""
    return N // p.vec * p.vec


@given(directions, numbers, numbers, sizes, limits)
@example(DIRECTIONS[0], 2**31, 1, 2, H200)
@example(DIRECTIONS[1], 1, 2**31, 2, H200)
@example(DIRECTIONS[1], 2048, 50257, 2, H200)
@example(DIRECTIONS[0], 8, 1003, 2, INTERPRETER)
def test_vectors_are_whole(direction, M, N, size, limits):
    for p in _plans((Rows, Split), direction, M, N, size, limits):
        assert p.vec == power_of_2(p.vec)
        assert p.vec * size <= 16
        assert p.unaligned == (N % p.vec != 0)


@given(directions, numbers, numbers, sizes, limits)
@example(DIRECTIONS[1], 16384, 4098, 2, H200)
def test_rows_all_columns_are_in_a_tile(direction, M, N, size, limits):
    for p in _plans(Rows, direction, M, N, size, limits):
        # The pieces before the last are full, also in a row whose edges take a vector more.
        assert p.chunks * p.block_n >= _span(N, p) >= (p.chunks - 1) * p.block_n + p.vec
        for side in (p.block_m, p.block_n, p.warps):
            assert side == power_of_2(side)
        # A pipelined tile whose rows share the warps gets its layout wrong.
        assert p.stages == 1 or p.warps == 1 or p.block_n >= p.warps * 32 * p.vec


@given(directions, numbers, numbers, sizes, limits)
@example(DIRECTIONS[0], 6913, 129, 4, A100)
def test_rows_are_shared_out_evenly(direction, M, N, size, limits):
    for p in _plans(Rows, direction, M, N, size, limits):
        if p.unaligned:
            assert 1 <= p.programs <= M
        else:
            assert (p.programs - 1) * p.block_m < M, (
                "no program without rows: its partial sums would be work for nothing"
            )
        # Each program of a gradient stores partial sums.
        a_tile_each = not direction[0] and p.programs == min(-(-M // p.block_m), 2**30 // p.block_m)
        assert a_tile_each or p.programs <= max(limits.sm_count * 32, p.vec)


@given(directions, numbers, numbers, sizes, limits)
@example(DIRECTIONS[0], 2**30 + 8, 2, 2, H200)
@example(DIRECTIONS[0], 2**31 - 1, 1, 8, H200)
@example(DIRECTIONS[1], 2**31 - 1, 1, 2, H200)
def test_rows_are_counted_in_64_bits_where_32_do_not_do(direction, M, N, size, limits):
    for p in _plans(Rows, direction, M, N, size, limits):
        assert p.programs * p.block_m < 2**31, "the step of a kernel's loop is an int32"
        last = M - 1 + p.programs * p.block_m
        assert p.int64_rows(M) == (last >= 2**31)


def _heads(first: int, N: int, vec: int, step: int) -> set[int]:
    return {row * N % vec for row in range(first, first + 9 * step, step)}


@given(directions, numbers, st.integers(1, 70000), sizes, limits)
@example(DIRECTIONS[0], 2048, 40499, 2, H200)
@example(DIRECTIONS[1], 19, 1001, 2, INTERPRETER)
@example(DIRECTIONS[1], 12, 12002, 2, INTERPRETER)
def test_all_rows_of_a_program_start_equally_far_from_a_vector(direction, M, N, size, limits):
    for p in _plans((Rows, Split), direction, M, N, size, limits):
        if not p.unaligned:
            continue
        step = p.programs if isinstance(p, Rows) else p.programs // p.group
        for first in range(min(step, 9)):
            assert step == M or len(_heads(first, N, p.vec, step)) == 1


@given(directions, numbers, numbers, sizes, limits)
@example(DIRECTIONS[1], 16384, 8192, 2, H200)
@example(DIRECTIONS[1], 8192, 4096, 4, H200)
@example(DIRECTIONS[1], 8192, 4096, 8, H200)
def test_rows_fit_in_registers(direction, M, N, size, limits):
    for p in _plans(Rows, direction, M, N, size, limits):
        _, _, kept = direction
        each = kept * max(1, size // 4)
        elements = p.block_m * p.chunks * p.block_n // (32 * p.warps)
        available = min(limits.registers_per_sm // (32 * p.warps), 256)
        # What is left holds addresses, and weight and bias.
        assert elements * each <= available // 2 or elements == 1


@given(directions, numbers, numbers, sizes, limits)
def test_pipelines_fit_in_shared_memory(direction, M, N, size, limits):
    for p in _plans((Rows, Split), direction, M, N, size, limits):
        tile = p.chunks * p.block_n * (p.block_m if isinstance(p, Rows) else 1) * size * direction[1]
        assert p.stages in (1, 3, 4)
        assert p.stages == 1 or (p.stages - 1) * tile + 2048 <= limits.shared_bytes


@given(directions, numbers, numbers, sizes, limits)
@example(DIRECTIONS[0], 3, 2**19 + 1, 2, H200)
def test_split_all_columns_are_in_a_slice(direction, M, N, size, limits):
    for p in _plans(Split, direction, M, N, size, limits):
        assert p.slice_size % 16 == 0, "a slice starts at a vector, and the compiler sees it"
        assert p.slice_size <= p.chunks * p.block_n
        assert p.group * p.slice_size >= _span(N, p)
        assert (p.group - 1) * p.slice_size < N + 16
        assert p.block_n == p.warps * 512 // size, "each piece is as wide as the warps"


@given(directions, numbers, numbers, sizes, limits)
@example(DIRECTIONS[1], 8192, 32768, 2, H200)
@example(DIRECTIONS[0], 1000, 12288, 4, H200)
@example(DIRECTIONS[0], 120, 393216, 4, A100)
@example(DIRECTIONS[1], 20, 393216, 4, RTX4090)
def test_programs_that_wait_for_each_other_all_run(direction, M, N, size, limits):
    """Else the cooperative launch is refused."""
    for p in _plans(Split, direction, M, N, size, limits):
        assert p.programs % p.group == 0
        assert 1 <= p.programs // p.group <= M
        threads = 32 * p.warps
        quarter = limits.registers_per_sm // 4 // (-(-p.registers // 8) * 8 * 32)  # as they are handed out
        shared = (p.stages - 1) * p.chunks * p.block_n * size * direction[1] + 1024
        on_one = min(
            4 * quarter // p.warps,
            limits.threads_per_sm // threads,
            limits.shared_bytes // shared,
            PROGRAMS_PER_SM,
        )
        assert p.programs <= limits.sm_count * on_one
        assert p.registers <= 255


@given(directions, numbers, numbers, sizes, limits)
def test_each_warp_waits_for_itself(direction, M, N, size, limits):
    """No barrier may be in the loop that waits: a block is of one warp, or the program is."""
    for p in _plans(Split, direction, M, N, size, limits):
        assert p.block in (32, MAX_GROUP_OF_ONE_WARP)
        assert p.warps == 1 or p.block == 32
        assert p.warps > 1 or p.group <= p.block, "one look at the group"


@given(directions, numbers, numbers, sizes, limits)
@example(DIRECTIONS[0], 12, 1376837, 4, H200)
@example(DIRECTIONS[1], 1, 2**31, 8, H200)
def test_the_programs_of_loops_share_rows_and_all_run(direction, M, N, size, limits):
    for p in _plans(Loop, direction, M, N, size, limits):
        assert p.block_n == power_of_2(p.block_n)
        assert p.slice_size % p.block_n == 0
        assert p.programs % p.group == 0
        assert 1 <= p.programs // p.group <= M
        assert (p.group - 1) * p.slice_size < N <= p.group * p.slice_size
        if p.group > 1:
            threads = 32 * p.warps
            on_one = min(limits.registers_per_sm // (p.registers * threads), limits.threads_per_sm // threads)
            assert p.programs <= limits.sm_count * on_one


def test_rows_at_once_leave_no_program_with_more_blocks_than_others():
    """112 x 524288 bf16: 23 rows at once took 5 turns of 12 blocks."""
    p = default(112, 524288, 2, False, H100)
    turns = -(-112 // (p.programs // p.group))
    assert turns * p.slice_size // p.block_n <= 56


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


@pytest.mark.parametrize(
    ("M", "N", "size", "halved"),
    [(1000000, 9, 4, True), (30000, 13, 4, True), (500000, 25, 2, True), (8000, 13, 4, False), (500000, 33, 4, False)]
    + [(500000, 14, 4, True), (300000, 30, 2, True), (500000, 13, 8, True)]
    + [(500000, 12, 4, False), (500000, 14, 8, False), (500000, 7, 2, False), (200000, 7, 4, False)]
    + [(16593145, 5, 4, True), (1000000, 7, 4, True)],
)
def test_many_short_rows_of_single_elements_or_pairs_are_halved(M, N, size, halved):
    problem = Problem(M, N, 1, size, False)
    found = choose(problem, H200)
    p = launch(problem, in_two_chunks(problem, found, H200), H200)
    assert (isinstance(p, Rows) and p.chunks == 2 and p.block_n == power_of_2(N) // 2) == halved
    assert halved or p == launch(problem, found, H200)


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
        found = choose(problem, H200)
        p = launch(problem, in_chunks_of_a_warp(problem, found, H200), H200)
        if chunks is None:
            assert p == launch(problem, found, H200)
        else:
            assert (p.chunks, p.block_n, p.block_m, p.warps) == (chunks, 32, 4, 2)


@pytest.mark.parametrize(
    ("M", "N", "warps"), [(5152, 276, 4), (20000, 406, 4), (2000, 276, 1), (5152, 700, 1), (5152, 384, 1)]
)
def test_many_rows_of_pairs_or_fours_of_layer_norm_are_for_four_warps(M, N, warps):
    problem = Problem(M, N, 1, 2, False)
    p = launch(problem, by_four_warps(problem, choose(problem, H200), H200), H200)
    assert (p.warps, p.block_m) == (warps, 4 if N == 384 else warps)


@pytest.mark.parametrize(
    ("M", "N", "residual", "way"),
    [(5, 24632, False, (13, 2048, 168)), (5, 24631, False, (25, 1024, 128)), (5, 24632, True, (25, 1024, 128))]
    + [(20, 24632, False, (13, 1024, 128))],
)
def test_few_rows_of_float64_are_shared_by_few_programs(M, N, residual, way):
    p = plan(Problem(M, N, 1, 8, False, residual), H200)
    assert (p.group, p.block_n, p.registers) == way


@pytest.mark.parametrize(("N", "vec"), [(1100001, 8), (1100002, 8), (139510617, 8)])
def test_rms_norm_reads_a_single_row_in_vectors(N, vec):
    for residual in (False, True):
        p = rms_plan.plan_forward(Problem(1, N, 1, 2, False, residual), H200)
        assert isinstance(p, rms_plan.Split)
        assert p.vec == vec


@pytest.mark.parametrize(
    ("M", "N", "size", "groups"), [(128, 358122, 8, 3), (64, 700001, 8, 2), (24, 2000000, 8, 8), (128, 358122, 4, 8)]
)
def test_gradients_of_long_float64_keep_few_rows_in_cache(M, N, size, groups):
    problem = Problem(M, N, 1, size, True)
    p = launch(problem, Configuration("loop", 8, chunks=4, registers=128), H200)
    assert p.programs // p.group == groups


@pytest.mark.parametrize(
    ("M", "N", "size", "residual", "pairs"),
    [(16384, 738, 2, False, True), (9000, 1002, 2, False, True)]
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


@given(directions, numbers, numbers | st.integers(1, 4096), sizes, limits)
@example(DIRECTIONS[0], 90882, 175, 2, H200)
@example(DIRECTIONS[1], 18179, 91, 2, H200)
def test_loops_only_what_nothing_else_holds(direction, M, N, size, limits):
    if isinstance(default(M, N, size, direction[0], limits), Loop):
        # Float64 goes from whole rows to loops; others are first split over programs, of which each holds so many.
        held = {2: 4096, 4: 4096, 8: 2048}[size]
        assert N * direction[1] > held * (1 if size == 8 else min(limits.sm_count // 2, MAX_GROUP_IN_TURN))


@pytest.mark.parametrize("size", [2, 4])
@given(M=st.integers(1, 10**6), N=st.integers(2**18, 2**20))
def test_many_rows_in_turn_wait_for_few_programs(size, M, N):
    p = default(M, N, size, False, H200)
    if isinstance(p, Split):
        assert p.group <= MAX_GROUP_IN_TURN or p.programs // p.group * MIN_TURNS > M


@given(numbers, st.integers(1, 16), sizes, limits)
def test_rows_of_a_few_elements_are_all_in_a_tile(M, N, size, limits):
    for p in _plans(Flat, DIRECTIONS[0], M, N, size, limits):
        assert (p.programs - 1) * p.block_m < M <= p.programs * p.block_m
        assert p.columns or power_of_2(N) == N
        assert p.block_m * N >= 16


@given(numbers, st.integers(1, 16), sizes, limits)
@example(2**31, 5, 8, H200)
def test_short_rows_are_whole_vectors_of_a_thread(M, N, size, limits):
    for p in _plans(ShortRows, DIRECTIONS[0], M, N, size, limits):
        assert (p.programs - 1) * p.block_m < M <= p.programs * p.block_m
        assert p.block_m == p.rows * p.warps * 32
        assert p.rows * N % p.vec == 0
        assert p.vec * size <= 16
        # Of what was read and of the results.
        assert p.rows * N * max(1, size // 4) <= 64


@given(numbers, st.integers(1, 16), sizes, limits)
def test_rows_of_5_to_7_columns_are_whole_to_a_thread(M, N, size, limits):
    p = default(M, N, size, False, limits)
    assert isinstance(p, ShortRows) == (5 <= N <= 7)
    if isinstance(p, ShortRows):
        assert p.rows * N <= 16
        assert p.vec == 1 or p.rows * 32 * limits.sm_count <= M
        assert p == rms_plan.plan_forward(Problem(M, N, 1, size, False), limits)


@pytest.mark.parametrize(
    ("M", "N", "size", "vec", "warps"),
    [(226634, 5, 4, 2, 4), (32768, 5, 4, 2, 1), (400, 5, 4, 1, 1), (226634, 7, 2, 2, 4), (300000, 6, 2, 4, 4)],
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


@given(st.integers(1, 2048), st.integers(1, 20000), sizes, limits)
def test_gradients_of_few_rows_have_programs_for_all_rows_and_all_columns(M, N, size, limits):
    for p in _plans(FewRows, DIRECTIONS[1], M, N, size, limits):
        assert (p.row_programs - 1) * p.block_m < M <= p.row_programs * p.block_m
        assert (p.column_programs - 1) * p.columns < N <= p.column_programs * p.columns
        assert p.block_n == power_of_2(N)
        for elements in (p.block_m * p.block_n, p.column_rows * p.columns):
            assert elements * max(1, size // 4) <= 32 * 32 * p.warps or elements <= p.columns
        assert p.columns == power_of_2(p.columns)
        assert p.column_rows == power_of_2(p.column_rows)


IN_ONE_LAUNCH = [(1000, 1, 2, True), (23, 5, 8, True), (64, 100, 2, True), (6, 1000, 4, True), (99, 3240, 4, True)]
IN_ONE_LAUNCH += [(941, 235, 4, True), (1000, 256, 2, True), (300, 2, 4, False), (424, 1, 4, False)]
IN_ONE_LAUNCH += [(2, 8193, 2, False), (2000, 63, 2, False), (1024, 1000, 2, False), (300, 3240, 4, False)]
IN_ONE_LAUNCH += [(1, 1000, 4, False)]


@pytest.mark.parametrize(("M", "N", "size", "few"), IN_ONE_LAUNCH)
def test_gradients_of_few_rows_of_rms_norm_are_one_launch(M, N, size, few):
    p = rms_plan.plan_backward(M, N, size, H200)
    assert isinstance(p, FewRows) == few
    assert not few or (p.row_programs + p.column_programs) * p.warps <= 16 * H200.sm_count


# Rows, columns, bytes, and warps of the one launch, 0 of others: of layer_norm and of rms_norm.
FEW_EDGES = [
    (256, 3283, 2, 4, 8),
    (200, 2501, 2, 4, 8),
    (512, 1501, 2, 4, 4),
    (256, 3282, 2, 4, 8),
    (300, 3001, 2, 4, 0),
]
FEW_EDGES += [(513, 1501, 2, 0, 0), (200, 2500, 2, 0, 0), (180, 3401, 2, 8, 8), (512, 1000, 2, 0, 0)]


@pytest.mark.parametrize(("M", "N", "size", "warps", "rms_warps"), FEW_EDGES)
def test_gradients_of_few_rows_with_edges_come_in_some_waves(M, N, size, warps, rms_warps):
    p = plan(Problem(M, N, 1, size, True), H200)
    assert (p.warps if isinstance(p, FewRows) else 0) == warps
    p = rms_plan.plan_backward(M, N, size, H200)
    assert (p.warps if isinstance(p, FewRows) else 0) == rms_warps


# Rows, columns, chunks of layer_norm's gradients and of rms_norm's.
SHORT_IN_CHUNKS = [(1693816, 37, 5, 5), (1693816, 47, 6, 6), (1693816, 49, 1, 1), (90000, 37, 1, 1)]
SHORT_IN_CHUNKS += [(1048576, 76, 1, 3), (400000, 140, 1, 5), (400000, 100, 1, 1), (90000, 76, 1, 1)]


@pytest.mark.parametrize(("M", "N", "chunks", "rms_chunks"), SHORT_IN_CHUNKS)
def test_many_short_rows_of_gradients_are_in_chunks(M, N, chunks, rms_chunks):
    found = plan(Problem(M, N, 1, 2, True), H200), rms_plan.plan_backward(M, N, 2, H200)
    assert all(isinstance(p, Rows) for p in found)
    assert tuple(p.chunks for p in found) == (chunks, rms_chunks)


@pytest.mark.parametrize(("M", "programs"), [(1928, 964), (1584, 792), (1000, 1000)])
def test_two_rows_of_256_are_of_a_program_of_layer_norm(M, programs):
    assert plan(Problem(M, 256, 1, 2, False), H200).programs == programs


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
    assert (p.block_m, p.warps, p.stages) == (rows, 1, 1 if N > 64 and (size == 2 or M > 200000) else 3)


@pytest.mark.parametrize(
    ("N", "size", "single"),
    [(3000, 2, True), (3001, 2, False), (2000, 2, False), (3000, 4, False), (8000, 2, False)],
)
def test_gradients_of_a_row_alone_are_one_tile(N, size, single):
    p = plan(Problem(1, N, 1, size, True), H200)
    assert (isinstance(p, Rows) and p.programs == p.chunks == p.stages == 1 and p.warps > 4) == single


@pytest.mark.parametrize(
    ("M", "N", "few"), [(80, 2343, True), (100, 2343, True), (300, 2344, False), (80, 14456, False)]
)
def test_gradients_of_few_rows_are_no_groups(M, N, few):
    assert isinstance(plan(Problem(M, N, 1, 2, True), H200), FewRows) == few


# Rows, columns, bytes, and whether the programs of layer_norm's gradient and of rms_norm's have many warps.
MANY_WARPS = [(262979, 3, 2, True, True), (20000, 17, 2, True, True), (60000, 9, 4, True, True)]
MANY_WARPS += [(30000, 7, 8, True, True), (40491, 33, 2, False, True), (2000, 63, 2, True, True)]
MANY_WARPS += [(100001, 33, 4, False, False), (65534, 85, 4, False, False), (1048576, 7, 2, False, False)]
MANY_WARPS += [(20000, 16, 2, False, False), (60000, 1, 4, False, False), (16000, 25, 8, True, True)]
MANY_WARPS += [(41229, 9, 2, True, True), (262979, 3, 2, True, True), (34585, 13, 4, True, True)]
MANY_WARPS += [(130000, 31, 2, False, False), (33000, 31, 4, True, True), (90773, 9, 2, False, True)]
MANY_WARPS += [(20000, 25, 2, True, True), (3030, 47, 2, True, True), (10001, 41, 2, True, True)]
MANY_WARPS += [(16519, 123, 2, True, True), (8403, 161, 2, False, True), (30001, 123, 2, True, False)]
MANY_WARPS += [(5000, 101, 4, False, True), (4000, 77, 8, False, True), (34000, 123, 2, False, False)]
MANY_WARPS += [(574480, 2, 2, False, True), (174195, 4, 2, False, True), (891107, 2, 2, False, False)]


@pytest.mark.parametrize(("M", "N", "size", "layer_norm", "rms_norm"), MANY_WARPS)
def test_gradients_of_many_short_rows_are_by_programs_of_many_warps(M, N, size, layer_norm, rms_norm):
    problem = Problem(M, N, 1, size, True)
    for p, many in ((plan(problem, H200), layer_norm), (rms_plan.plan_backward(M, N, size, H200), rms_norm)):
        assert isinstance(p, Rows)
        assert (p.warps > 1 and p.stages == 1) == many
        assert not many or N <= 64 or p.block_m * p.block_n == 8 * 32 * p.warps
        assert not many or (p.programs <= 2 * H200.sm_count and p.block_m * p.block_n <= p.warps * 32 * 16)


# Rows, columns, bytes, and whether gradients are by programs that have columns of all rows.
BLOCKS = [(8, 722496, 2, True), (16, 150001, 2, True), (2, 9000, 2, True), (3, 200000, 4, True), (17, 150001, 2, False)]
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
    assert plan_blocks(3, 300001, 4, True, H200) is not None


@pytest.mark.parametrize(
    ("M", "N", "size", "stages"),
    [(49, 2097152, 4, 1), (12, 2000000, 4, 1), (20, 1000001, 4, 1), (40, 1000001, 4, 0), (100, 2097152, 4, 0)]
    + [(40, 1000000, 2, 0), (20, 10995539, 2, 0), (20, 200001, 4, 0), (20, 2000000, 8, 0)],
)
def test_blocks_of_rows_that_would_be_read_in_a_loop_are_of_more_rows(M, N, size, stages):
    assert plan_blocks(M, N, size, True, H200) is None
    p = plan_blocks(M, N, size, True, H200, looped=True)
    assert (p.stages if p is not None else 0) == stages
    assert p is None or (p.held == 0 and p.block_m * p.block_n in (2048, 4096))


# Rows, columns, bytes, and tiles of a program that stay in its registers: of single elements in 16 rows one.
HELD = [(2, 9000, 2, 1), (3, 200001, 2, 2), (8, 100001, 2, 2), (16, 60002, 2, 2), (16, 60001, 2, 0), (2, 1500000, 2, 0)]


@pytest.mark.parametrize(("M", "N", "size", "held"), HELD)
def test_tiles_are_held(M, N, size, held):
    p = plan_blocks(M, N, size, False, H200)
    assert p is not None
    assert p.held == held
    assert not held or held == p.blocks


@given(st.integers(1, 70), numbers, sizes, st.booleans(), limits, st.booleans())
@example(16, 67000, 2, True, H200, False)
@example(16, 33001, 2, False, H200, False)
@example(49, 2097152, 4, True, H200, True)
def test_blocks_are_all_columns_and_their_programs_all_run(M, N, size, mean, limits, looped):
    p = plan_blocks(M, N, size, mean, limits, looped)
    if p is None:
        return
    assert p.block_m >= M
    assert (p.programs - 1) * p.blocks * p.block_n < N <= p.programs * p.blocks * p.block_n
    # Of 8 warps, with 128 registers a thread.
    assert p.programs <= 2 * limits.sm_count
    # A word for each thread: of one that two have, one may see it first. All at once beside a tile in registers.
    assert p.words == power_of_2(p.words)
    assert 256 <= p.words * p.block_m <= 4096
    assert p.blocks > 1 or p.programs <= p.words


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
    (12000, 406, 2, "pairs"),
]
AT_ONCE += [
    (13000, 406, 2, "pairs"),
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
    assert many.vec == (2 if residual or N <= 640 else 8)


# Rows, columns, whether there is a residual, and warps of a row of pairs.
MANY_PAIRS = [(60000, 262, True, 1), (60000, 318, True, 1), (60000, 322, True, 2), (27381, 498, True, 2)]
MANY_PAIRS += [(20000, 406, False, 1), (8448, 638, False, 1), (20000, 642, False, 0), (20000, 382, False, 0)]
MANY_PAIRS += [(20000, 408, False, 0), (20000, 404, False, 0), (60000, 260, True, 0)]


@pytest.mark.parametrize(("M", "N", "residual", "warps"), MANY_PAIRS)
def test_many_rows_of_pairs_have_no_edges(M, N, residual, warps):
    found = choose(Problem(M, N, 1, 2, False, residual), H200)
    assert (found.vec == 2) == (warps > 0)
    assert not warps or found == Configuration("rows", warps, 2)


@pytest.mark.parametrize(("M", "N"), [(20000, 406), (13000, 598)])
def test_many_rows_of_pairs_of_rms_norm_are_not_those_of_layer_norm(M, N):
    p = rms_plan.plan_forward(Problem(M, N, 1, 2, False), H200)
    assert p.vec == 8


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("M", "N", "size", "way"), AT_ONCE)
def test_short_rows_that_are_all_loaded_at_once_have_no_edges(M, N, size, way, residual):
    found = choose(Problem(M, N, 1, size, False, residual), H200)
    assert (found == Configuration("rows", 4)) == (way == "single" or (way.endswith("residual") and not residual))
    assert (found == Configuration("rows", 2 if residual else 1, 2)) == (
        way == "pairs" or (way == "pairs of sums" and residual)
    )


@pytest.mark.parametrize(
    ("M", "N", "residual", "one"),
    [(1, 16384, False, True), (3, 12288, False, True), (4, 16384, False, False), (2, 27688, False, False)],
)
def test_a_few_long_rows_are_not_shared(M, N, residual, one):
    assert (choose(Problem(M, N, 1, 2, False, residual), H200) == Configuration("rows", 16, 8)) == one


@pytest.mark.parametrize(
    ("M", "N", "late"), [(42, 8253, False), (100, 9001, False), (132, 14001, True), (42, 16001, True)]
)
def test_rows_alone_on_their_multiprocessors_have_early_weights(M, N, late):
    for p in (plan(Problem(M, N, 1, 2, False), H200), rms_plan.plan_forward(Problem(M, N, 1, 2, False), H200)):
        assert isinstance(p, Rows)
        assert (p.warps, p.unaligned, p.late) == (16, True, late)


# Rows, columns, and whether rms_norm holds rows of 16 bits with edges, with a weight that is loaded late.
HELD_ROWS = [
    (579, 20361, True, False),
    (579, 20362, True, False),
    (579, 24001, True, False),
    (400, 17001, True, False),
    (1000, 30001, True, True),
]
HELD_ROWS += [
    (579, 20364, False, False),
    (270, 20361, False, False),
    (264, 17001, False, False),
    (1000, 33001, False, False),
]


@pytest.mark.parametrize(("M", "N", "held", "late"), HELD_ROWS)
def test_rms_norm_holds_long_rows_with_edges_where_multiprocessors_have_equally_many(M, N, held, late):
    p = rms_plan.plan_forward(Problem(M, N, 1, 2, False), H200)
    assert isinstance(p, Rows) == held
    assert not isinstance(p, Rows) or (p.warps, p.unaligned, p.late) == (16, True, late)


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
    assert isinstance(planned, rms_plan.Split)
    assert (rms_plan.plan_shared_backward(M, N, size, planned, H200) is not None) == shared
    assert rms_plan.plan_shared_backward(M, N, size, planned, A100) is None


SHARED_ODD_ROWS = [(135, 15399, 2, True), (200, 15399, 2, True), (264, 14801, 2, True), (132, 15399, 2, False)]
SHARED_ODD_ROWS += [(133, 15399, 4, False), (200, 15400, 2, False), (200, 14343, 2, False), (200, 15399, 4, False)]


@pytest.mark.parametrize(("M", "N", "size", "shared"), SHARED_ODD_ROWS)
def test_programs_share_odd_rows_of_which_one_fills_a_multiprocessor(M, N, size, shared):
    p = plan(Problem(M, N, 1, size, False), H200)
    assert (isinstance(p, Split) and p.warps == 4 and p.group == 4 and p.vec == 8) == shared


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


@pytest.mark.parametrize(("M", "N", "way"), [(3000, 8879, (4, 128)), (3000, 9225, (8, 0)), (500, 8879, (8, 0))])
def test_long_odd_rows_of_rms_norm_have_limited_registers_instead_of_pipelines(M, N, way):
    p = rms_plan.plan_forward(Problem(M, N, 1, 2, False), H200)
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
    [(168, 614089, 4, 4), (168, 300001, 1, 1), (168, 614090, 4, 2), (100, 614089, 4, 1), (19, 614089, 1, 1)],
)
def test_loops_over_long_unaligned_rows_of_float32_read_vectors(M, N, vec, rms_vec):
    problem = Problem(M, N, 1, 4, False)
    assert launch(problem, loop(problem, H200), H200).vec == vec
    assert rms_plan.plan_forward(problem, H200).vec == rms_vec
    assert N < 400000 or isinstance(plan(problem, H200), Loop)


@given(numbers, st.integers(1, 70000), sizes, limits)
@example(1025, 31, 2, INTERPRETER)
def test_gradients_of_rms_norm_have_all_rows(M, N, size, limits):
    p = rms_plan.plan_backward(M, N, size, limits)
    if isinstance(p, Rows):
        assert p.chunks * p.block_n >= _span(N, p)
        assert p.unaligned or (p.programs - 1) * p.block_m < M
        assert not p.unaligned or p.programs == M or p.programs * N % p.vec == 0
    elif isinstance(p, FewRows):
        assert p.row_programs * p.block_m >= M
        assert p.column_programs * p.columns >= N


@pytest.mark.parametrize(
    ("M", "N", "size", "shared"),
    [(1, 116109, 2, True), (1, 50257, 4, True), (1, 2**20 + 1, 2, False), (1, 50257, 8, False), (2, 2**21, 4, True)]
    + [(3253, 44208, 2, False), (1500, 60000, 2, True), (2000, 40000, 4, True), (270, 20000, 4, False)],
)
def test_programs_share_even_one_row_of_rms_norm(M, N, size, shared):
    p = rms_plan.plan_forward(Problem(M, N, 1, size, False), H200)
    assert (isinstance(p, Loop) and p.group > 1) == shared


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


@given(numbers, numbers, limits)
def test_splits_of_rows_have_all_rows(M, N, limits):
    p = columns(M, N, limits)
    assert (p.splits - 1) * p.rows < M <= p.splits * p.rows
    assert (p.programs - 1) * p.block_n < N <= p.programs * p.block_n
    assert p.splits == 1 or p.splits * p.programs <= 4 * limits.sm_count


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [2, 4, 8])
@given(N=st.integers(1, 70000))
def test_a_new_number_of_rows_does_not_compile(backward, size, N):
    """As long as the rows fill the device; a multiple of 16, because the tensor's end decides how wide loads are."""

    # A loop takes the number of programs to a row as an argument.
    varying = ("programs", "group", "slice_size")

    def compiled(M):
        return {k: v for k, v in default(M, N, size, backward, H200)._asdict().items() if k not in varying}

    assert len({str(compiled(16 * M)) for M in (5000, 6001, 20000, 10**6)}) == 1


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_few_kernels_for_all_lengths(backward, size):
    seen = set()
    for N in (*range(1, 20000, 7), *range(20000, 70000, 37)):
        p = default(4096, N, size, backward, H200)._asdict()
        seen.add(tuple(p[k] for k in p if k not in ("programs", "group", "slice_size")))
    assert len(seen) <= 81  # of 16 bits with edges, of vectors, and of halves of vectors


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


# What tests/gpu/test_layernorm.py relies on: (rows, columns, forward, backward), in bfloat16 on an H200.
WAYS = [
    (4096, 1000, (Rows, False, 1), (Rows, False, 4)),
    (4096, 1003, (Rows, True, 1), (Rows, True, 4)),
    (512, 24576, (Rows, False, 16), (Split, False, 1)),
    (640, 40960, (Split, False, 1), (Split, False, 1)),
    (256, 20001, (Split, True, 1), (Split, True, 1)),
    (128, 98304, (Split, False, 4), (Split, False, 2)),
    (128, 90001, (Split, True, 1), (Split, True, 2)),
    (20, 393216, (Split, False, 4), (Split, False, 4)),
    (8, 200001, (Split, True, 4), (Split, True, 4)),
    (3, 2**22 + 8, (Loop, False, 8), (Loop, False, 8)),
]


@pytest.mark.parametrize(("M", "N", "forward", "backward"), WAYS)
def test_the_gpu_tests_take_every_way(M, N, forward, backward):
    for is_backward, expected in ((False, forward), (True, backward)):
        p = default(M, N, 2, is_backward, H200)
        assert (type(p), getattr(p, "unaligned", None), p.warps) == expected


@pytest.mark.parametrize("backward", [False, True])
def test_the_accuracy_tests_take_every_way(backward):
    from accuracy.test_layernorm import FEW, SHAPES

    ways = set()
    for shape, k in SHAPES + FEW:
        M, N = math.prod(shape[:-k]), math.prod(shape[-k:])
        for size in (2, 4, 8):
            p = default(M, N, size, backward, INTERPRETER)
            ways.add((type(p).__name__, getattr(p, "unaligned", None)))
            if isinstance(p, Rows):
                ways |= {("rows", p.block_m > 1), ("chunks", p.chunks > 1), ("warps", p.warps > 1)}
    assert {("Rows", False), ("Rows", True), ("Split", False), ("Loop", False)} <= ways, ways
    assert {(name, several) for name in ("rows", "chunks", "warps") for several in (False, True)} <= ways, ways


@pytest.mark.parametrize(("size", "N"), [(2, 64), (2, 768), (2, 1000), (2, 1024), (4, 64), (4, 1000), (4, 4096)])
@given(M=st.integers(H200.sm_count + 1, 2**31))
def test_short_rows_are_forward_one_tile_a_program_without_a_pipeline(M, N, size):
    p = default(M, N, size, False, H200)
    assert p.stages == 1
    assert p.programs == min(-(-M // p.block_m), 2**30 // p.block_m)
    # What a thread holds of a tile: two or more elements where there are enough rows, 8 vectors at most.
    assert 2 <= p.block_m * p.chunks * p.block_n // (p.warps * 32) <= 8 * 16 // size


def test_few_rows_are_spread_over_programs():
    assert default(256, 128, 2, False, H200).programs == 128
    assert default(256, 128, 8, False, H200).programs == 256


@given(numbers, numbers, st.sampled_from([1, 2]), limits)
def test_partial_sums_are_added_in_tiles_that_a_program_holds(P, N, outputs, limits):
    p = plan_partial_sums(P, N, outputs, limits)
    assert (p.programs - 1) * p.block_n < N <= p.programs * p.block_n
    assert p.block_p == power_of_2(p.block_p) < 2 * P
    assert p.block_n == power_of_2(p.block_n)
    assert p.block_p * p.block_n <= 32 * 32 * p.warps


def test_few_partial_sums_leave_no_tile_empty():
    """16 and 2 of them took tiles of 128 rows, most of the time of the smallest of these shapes."""
    for M, N in ((1024, 65536), (20, 393216)):
        p = default(M, N, 2, True, H200)
        P = p.programs // p.group
        assert plan_partial_sums(P, N, 2, H200).block_p < 2 * P


@pytest.mark.parametrize(("M", "N"), [(64, 64), (16, 128), (1, 64), (128, 32), (512, 8), (3, 100), (17, 1)])
@pytest.mark.parametrize("size", [2, 4])
def test_very_small_gradients_take_one_program_and_no_second_launch(M, N, size):
    p = default(M, N, size, True, H200)
    assert (p.programs, p.stages, p.unaligned) == (1, 1, False)
    assert p.block_m >= M
    assert p.chunks * p.block_n >= N


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


@pytest.mark.parametrize(("M", "N", "size", "stages"), [(70811, 65, 2, 1), (60000, 65, 2, 3), (65534, 85, 4, 3)])
def test_gradients_of_single_16_bit_elements_are_not_pipelined_where_there_are_rows_for_more_programs(
    M, N, size, stages
):
    p = default(M, N, size, True, H200)
    assert (p.vec, p.stages) == (1, stages)
    assert p.programs == H200.sm_count * (16 if stages == 1 else 8)


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
