# SPDX-License-Identifier: Apache-2.0
"""The plans of layer_norm as functions of numbers, for any GPU."""

from __future__ import annotations

import math

import pytest
from gpus import A100, B200, H100_PCIE, H200, INTERPRETER, RTX4090
from hypothesis import example, given
from hypothesis import strategies as st
from norms import default

from flag_gems_overrides.ops.families.norm import rms_plan
from flag_gems_overrides.ops.families.norm.backward_plan import plan_partial_sums
from flag_gems_overrides.ops.families.norm.blocks_plan import plan_blocks
from flag_gems_overrides.ops.families.norm.launches import (
    MAX_GROUP_IN_TURN,
    MAX_GROUP_OF_ONE_WARP,
    MIN_TURNS,
    PROGRAMS_PER_SM,
    FewRows,
    Flat,
    Loop,
    Problem,
    Rows,
    ShortRows,
    Split,
    TwoPasses,
    launch,
)
from flag_gems_overrides.ops.families.norm.plan import configurations
from flag_gems_overrides.ops.families.norm.two_passes_plan import plan_two_passes
from flag_gems_overrides.ops.launch.sizes import power_of_2

# Many small ones, and all magnitudes.
numbers = st.integers(1, 300) | st.integers(1, 70000) | st.integers(1, 2**31)
sizes = st.sampled_from([2, 4, 8])
limits = st.sampled_from([A100, H100_PCIE, H200, B200, RTX4090, INTERPRETER])
# (whether backward, how many tensors a program loads, how many float32 of each element it keeps)
DIRECTIONS = [(False, 1, 1), (True, 2, 4)]
directions = st.sampled_from(DIRECTIONS)


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


@given(numbers, numbers, sizes, limits)
@example(12, 1376837, 4, H200)
def test_the_programs_of_loops_share_rows_and_all_run(M, N, size, limits):
    for p in _plans(Loop, DIRECTIONS[0], M, N, size, limits):
        assert p.block_n == power_of_2(p.block_n)
        assert p.slice_size % p.block_n == 0
        assert p.programs % p.group == 0
        assert 1 <= p.programs // p.group <= M
        assert (p.group - 1) * p.slice_size < N <= p.group * p.slice_size
        if p.group > 1:
            threads = 32 * p.warps
            on_one = min(limits.registers_per_sm // (p.registers * threads), limits.threads_per_sm // threads)
            assert p.programs <= limits.sm_count * on_one


@given(directions, numbers, numbers | st.integers(1, 4096), sizes, limits)
@example(DIRECTIONS[0], 90882, 175, 2, H200)
@example(DIRECTIONS[1], 18179, 91, 2, H200)
def test_loops_only_what_nothing_else_holds(direction, M, N, size, limits):
    if isinstance(default(M, N, size, direction[0], limits), Loop | TwoPasses):
        # Float64 goes from whole rows to those; others are first split over programs, of which each holds so many.
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


@given(st.integers(1, 2048), st.integers(1, 20000), sizes, limits)
def test_gradients_of_few_rows_have_programs_for_all_rows_and_all_columns(M, N, size, limits):
    for p in _plans(FewRows, DIRECTIONS[1], M, N, size, limits):
        assert (p.row_programs - 1) * p.block_m < M <= p.row_programs * p.block_m
        assert (p.column_programs - 1) * p.columns < N <= p.column_programs * p.columns
        assert p.block_n == power_of_2(N)
        for elements in (p.block_m * p.block_n, p.column_rows * p.columns):
            assert elements * max(1, size // 4) <= 32 * 32 * p.warps or elements <= p.columns
        assert p.columns == power_of_2(p.columns)
        assert p.column_rows == power_of_2(M)


@given(st.integers(1, 20), numbers, sizes, st.booleans(), limits)
@example(16, 67000, 2, True, H200)
@example(16, 33001, 2, False, H200)
def test_blocks_are_all_columns_and_their_programs_all_run(M, N, size, mean, limits):
    p = plan_blocks(M, N, size, mean, limits)
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


@given(numbers, numbers, sizes, limits)
def test_two_passes_have_all_rows_and_columns(M, N, size, limits):
    p = plan_two_passes(M, N, size, limits)
    assert (p.splits - 1) * p.rows < M <= p.splits * p.rows
    blocks = p.columns.programs[0]
    assert (blocks - 1) * p.columns.block_n < N <= blocks * p.columns.block_n
    assert (p.slices - 1) * p.blocks * p.sums.block_n < N <= p.slices * p.blocks * p.sums.block_n
    assert p.sums.programs[0] == -(-M // p.sums.block_m)
    assert max(p.slices, p.splits) < 2**16
    assert p.vec == 16 // size if M == 1 else math.gcd(N, 16 // size)
    assert p.splits == 1 or blocks * p.splits * p.columns.warps <= 16 * limits.sm_count


def _compiled(p) -> tuple:
    """What the kernels of a launch are compiled for: a loop takes the number of programs to a row as an argument."""
    if isinstance(p, TwoPasses):
        return p.sums[1:], p.columns[1:], p.vec, p.spread
    return tuple(v for k, v in p._asdict().items() if k not in ("programs", "group", "slice_size"))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [2, 4, 8])
@given(N=st.integers(65, 70000))
def test_a_new_number_of_rows_does_not_compile(backward, size, N):
    """As long as the rows fill the device; a multiple of 16, because the tensor's end decides how wide loads are."""
    assert len({_compiled(default(16 * M, N, size, backward, H200)) for M in (5000, 6001, 20000, 10**6)}) == 1


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_few_kernels_for_all_lengths(backward, size):
    seen = set()
    for N in (*range(1, 20000, 7), *range(20000, 70000, 37)):
        seen.add(_compiled(default(4096, N, size, backward, H200)))
    assert len(seen) <= 88  # of 16 bits with edges, of vectors, of their parts, and of chunks of a warp


# What tests/gpu/test_layernorm.py relies on: (rows, columns, forward, backward), in bfloat16 on an H200.
WAYS = [
    (4096, 1000, (Rows, False, 1), (Rows, False, 4)),
    (4096, 1003, (Rows, True, 1), (Rows, True, 4)),
    (512, 24576, (Rows, False, 16), (Split, False, 4)),
    (640, 40960, (Split, False, 1), (Split, False, 4)),
    (256, 20001, (Split, True, 1), (Split, True, 1)),
    (128, 98304, (Split, False, 4), (Split, False, 4)),
    (128, 90001, (Split, True, 1), (Split, True, 2)),
    (30, 11168, (Rows, False, 16), (FewRows, None, 16)),
    (30, 17168, (Split, False, 1), (Split, False, 1)),
    (217, 13691, (Rows, True, 8), (Split, True, 1)),
    (1, 98304, (Split, False, 4), (Split, False, 2)),
    (20, 393216, (Loop, False, 8), (TwoPasses, None, None)),
    (8, 200001, (Split, True, 4), (Split, True, 4)),
    (3, 2**22 + 8, (Loop, False, 8), (TwoPasses, None, None)),
]


@pytest.mark.parametrize(("M", "N", "forward", "backward"), WAYS)
def test_the_gpu_tests_take_every_way(M, N, forward, backward):
    for is_backward, expected in ((False, forward), (True, backward)):
        p = default(M, N, 2, is_backward, H200)
        assert (type(p), getattr(p, "unaligned", None), getattr(p, "warps", None)) == expected


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
    twice = ("TwoPasses", None) if backward else ("Loop", False)
    assert {("Rows", False), ("Rows", True), ("Split", False), twice} <= ways, ways
    assert {(name, several) for name in ("rows", "chunks", "warps") for several in (False, True)} <= ways, ways


@pytest.mark.parametrize(("size", "N"), [(2, 64), (2, 768), (2, 1000), (2, 1024), (4, 64), (4, 1000), (4, 4096)])
@given(M=st.integers(H200.sm_count + 1, 2**31))
def test_short_rows_are_forward_one_tile_a_program_without_a_pipeline(M, N, size):
    p = default(M, N, size, False, H200)
    assert p.stages == 1
    assert p.programs == min(-(-M // p.block_m), 2**30 // p.block_m)
    # What a thread holds of a tile: two or more elements where there are enough rows, 8 vectors at most.
    assert 2 <= p.block_m * p.chunks * p.block_n // (p.warps * 32) <= 8 * 16 // size


@given(numbers, numbers, st.sampled_from([1, 2]), limits)
def test_partial_sums_are_added_in_tiles_that_a_program_holds(P, N, outputs, limits):
    p = plan_partial_sums(P, N, outputs, limits)
    assert (p.programs - 1) * p.block_n < N <= p.programs * p.block_n
    assert p.block_p == power_of_2(p.block_p) < 2 * P
    assert p.block_n == power_of_2(p.block_n)
    assert p.block_p * p.block_n <= 32 * 32 * p.warps
