# SPDX-License-Identifier: Apache-2.0
"""The plan of softmax as a function of numbers."""

from __future__ import annotations

import pytest
from accuracy.softmaxes import CASES, CHOSEN, LONG, configured
from gpus import A100, H200, INTERPRETER, RTX4090
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flag_gems_overrides.ops.families.softmax.launches import launch_or_none
from flag_gems_overrides.ops.families.softmax.plan import (
    Blocks,
    Interleaved,
    Launched,
    Problem,
    Rows,
    Short,
    Single,
    Split,
    Strided,
    configurations,
    default,
    launch,
    plan,
)
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
    tiles = size == 8 or (size == inputs == 2 and isinstance(p, Rows) and p.block_m == 1)
    assert tiles or p.depth == power_of_2(p.depth)
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

    Rows of up to four elements have a second kernel, for very many.
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
    assert N <= 4 or many[0][0] == many[1][0]


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
    launches = [(shape, dim, None) for shape, dim in [*CASES, *(case[:2] for case in LONG)]]
    for shape, dim, chosen in [*launches, *CHOSEN]:
        problem = Problem(*split_at(shape, wrap_dim(dim, len(shape))), size, inputs)
        configuration = configured(chosen, problem) if chosen else default(problem, INTERPRETER)
        p = launch_or_none(problem, configuration, INTERPRETER)
        if p is None:
            continue
        if isinstance(p, Short) and p.width:
            ways.add(("side by side", p.width > problem.K))
        elif isinstance(p, (Single, Short)):
            ways.add((type(p).__name__, p.programs > 1))
        elif isinstance(p, (Interleaved, Strided)):
            ways.add((type(p).__name__, p.unaligned))
        elif isinstance(p, Blocks):
            ways.add(("Blocks", p.unaligned, p.looped))
        elif isinstance(p, Rows):
            ways.add(("rows", p.block_m > 1, p.depth > 1))
            ways |= {"tiles"} if p.depth & (p.depth - 1) else set()
            ways |= {"pairs"} if p.registers else set()
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
    expected |= {("Blocks", True, False), ("Blocks", False, False), "blocks ahead"}
    expected |= {(False, False, True, False), (True, False, False, True), (True, True, False, True)}
    if (size, inputs) == (2, 2):
        expected |= {"tiles", "pairs"}
    assert expected <= ways, expected - ways
