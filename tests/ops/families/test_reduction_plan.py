# SPDX-License-Identifier: Apache-2.0
"""How reductions are divided among programs, on any GPU."""

from __future__ import annotations

import collections
import math

import pytest
from gpus import A100, H200, INTERPRETER, RTX4090
from hypothesis import example, given
from hypothesis import strategies as st

from flag_gems_overrides.ops.families.reduction.plan import (
    Configuration,
    Plan,
    Problem,
    choose,
    launch,
    launch_or_none,
    plan,
    with_wide_accumulators,
)

sizes = st.one_of(st.integers(1, 70), st.integers(1, 1 << 20), st.integers(0, 30).map(lambda e: 1 << e))
problems = st.tuples(
    sizes,
    sizes,
    st.one_of(st.just(1), sizes),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([H200, A100, RTX4090, INTERPRETER]),
).filter(lambda problem: problem[3:5] != (1, 3))  # moments are of floating elements


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


@given(st.integers(1, 4096), st.integers(100, 40000), st.sampled_from([2, 4]), st.sampled_from([1, 2, 4, 8, 16]))
@example(144967, 781, 2, 1)
@example(100, 18441, 2, 8)
def test_groups_have_all_vectors_of_rows_that_begin_anywhere(M, N, itemsize, warps):
    vector = 16 // itemsize
    p = launch_or_none(Problem(M, N, 1, itemsize, 3), Configuration("rows", vector, warps, 16, vector), H200)
    if p is None or p.lanes == 0:
        return
    fewest, most = ((N - head) // vector * vector for head in (vector - 1 if p.edge_lanes else 0, 0))
    assert p.depth * p.lanes <= fewest
    assert most <= (p.depth + 1) * p.lanes


@given(problems)
def test_every_element_has_a_place(problem):
    _, N, K, itemsize, _, _ = problem
    p = plan(*problem)
    assert all(map(_is_power_of_two, (p.block_m, p.block_n, p.block_k, p.vector)))
    assert 0 < p.step <= p.block_n
    assert p.vector * itemsize <= 16 or p.kernel == "columns"
    reduced = N * K if p.kernel != "columns" else N
    if p.kernel != "columns":
        assert p.block_k >= K
        # An accumulator meets one k, and a load does not cross the end of what is used.
        if p.splits > 1 or p.step < reduced:
            assert p.step % K == 0
        if p.kernel != "short":  # whose vectors have parts of several rows
            assert p.step % p.vector == 0
            assert bool(p.edge_lanes) == (reduced % p.vector != 0)
        assert p.edge_lanes == 0 or p.edge_lanes >= 2 * p.vector
        assert p.step % p.neighbours == 0
    else:
        assert p.step == (p.depth if p.lanes == 1 else p.block_n)
        assert K % p.vector == 0
    # No split is without a tile of its own.
    assert p.splits == 1 or (p.splits - 1) * p.step < reduced


@given(problems)
def test_the_grid_can_be_launched(problem):
    M, _, K, *_ = problem
    p = plan(*problem)
    assert 1 <= p.splits <= 65535
    assert p.blocks < 1 << 31 or M * K >= 1 << 31


@given(problems)
@example((528, 1025, 1, 1, True, H200))
def test_a_program_fits_the_registers(problem):
    p = plan(*problem)
    threads = p.warps * 32
    assert p.block_m * p.block_n * p.block_k // (p.block_k if p.kernel != "columns" else 1) <= 64 * threads
    partials = p.block_m * (1 << (p.splits - 1).bit_length()) * p.block_k
    assert p.splits == 1 or partials <= 64 * threads
    assert p.registers <= 255
    assert p.registers * threads <= problem[-1].registers_per_sm


def test_counts_past_a_row_are_bounded():
    """What is masked is counted to, and must not wrap around."""
    assert not plan(1, 2**30, 1, 4, 1, H200).int64_offsets
    assert plan(1, 2**31 - 1000, 1, 1, 1, H200).int64_offsets
    assert not plan(1, 2**20, 2**10 + 1, 4, 1, H200).int64_offsets
    assert plan(1, 2**20 - 1, 2**11, 1, 1, H200).int64_offsets


@given(problems)
def test_splits_fill_the_device_and_no_more(problem):
    limits = problem[-1]
    p = plan(*problem)
    programs = p.blocks * p.splits
    if p.splits > 1:
        assert programs * p.warps <= 32 * limits.sm_count


@pytest.mark.parametrize("N", [1, 16, 100, 1000, 4096, 50257, 1 << 20])
def test_another_number_of_rows_costs_no_compilation(N):
    """One kernel for what passes through the L2 cache, one for what is smaller or larger, two for very little, and one
    where each thread of the device has whole rows.
    """
    kernels: dict[tuple[bool, ...], set[Plan]] = collections.defaultdict(set)
    for M in range(4096, 40000, 61):
        through = H200.l2_bytes // 2 < M * N * 2 <= 4 * H200.l2_bytes
        little, least = (H200.sm_count * elements >= M * N for elements in (2048, 1024))
        whole = N == 1 and H200.sm_count * 32 * 8 <= M
        kernels[through, little, least, whole].add(plan(M, N, 1, 2, 2, H200)._replace(blocks=1, splits=1))
    assert all(len(each) == 1 for each in kernels.values())


def test_few_kernels_for_all_lengths():
    """Up to a bucket for each power of two, with whole vectors, odd ends or neither."""
    lengths = (*range(1, 20000, 7), *range(20000, 200000, 61))
    kernels: set[Plan] = {plan(8192, N, 1, 2, 1, H200) for N in lengths}
    assert len({k._replace(blocks=1, splits=1) for k in kernels}) <= 40


def test_known_shapes():
    whole = plan(1, 131072, 1, 2, 1, H200)
    assert (whole.blocks, whole.splits) == (1, 16)
    short = plan(1 << 20, 16, 1, 2, 2, H200)
    assert (short.block_m, short.block_n, short.neighbours, short.warps) == (128, 16, 1, 4)
    vocabulary = plan(8192, 50257, 1, 2, 2, H200)
    assert (vocabulary.vector, vocabulary.neighbours, vocabulary.step, vocabulary.splits) == (8, 8, 2048, 1)
    channels = plan(200, 40999, 3, 2, 1, H200)
    assert channels.kernel == "classes"
    assert channels.step % math.lcm(3, 8) == 0


@pytest.mark.parametrize(("M", "K", "matrices"), [(1, 1000, 1), (6, 1024, 1), (6, 1000002, 2), (600000, 30, 3)])
def test_how_many_matrices_a_program_of_columns_reaches_into(M, K, matrices):
    assert plan(M, 2, K, 2, 1, H200).matrices == matrices


@given(problems)
@example((1, 4411664, 1, 2, 1, H200))
def test_programs_of_wide_accumulators_run_at_once(problem):
    *numbers, limits = problem
    problem = Problem(*numbers)
    planned = choose(problem, limits)
    before = launch(problem, planned, limits)
    launched = launch(problem, with_wide_accumulators(problem, planned, limits), limits)
    assert launched.kernel == before.kernel
    if launched.kernel == "rows" and launched != before:
        assert launched.splits * launched.blocks <= max(24 // launched.warps * limits.sm_count, launched.blocks)


@given(st.integers(1, 30000), st.integers(8, 20000), st.sampled_from([1, 2, 4]))
def test_threads_have_registers_for_single_positions(M, N, itemsize):
    p = plan(M, N, 1, itemsize, 2, H200)
    # Of several rows of 32 bits none spilled: 100000 x 33 13.0 us, by smaller programs 18.5.
    if p.kernel == "rows" and p.vector == 1 and p.step >= N and (itemsize < 4 or p.block_m == 1):
        assert 2 * p.block_m * p.block_n <= p.registers // 2 * p.warps * 32
    with pytest.raises(ValueError, match="registers"):
        launch(Problem(M, 4097, 1, itemsize, 2), Configuration("rows", 32, 8, 32), H200)


def test_the_estimate_knows_how_many_programs_start():
    """std 8 x 15 x 3240 float32 by 3240 programs 5.47 us, so 4.52 (H100)."""
    assert plan(8, 15, 3240, 4, 3, H200).blocks < 8 * H200.sm_count
