# SPDX-License-Identifier: Apache-2.0
"""Batch norms whose runs of a channel are no whole vectors and begin anywhere, or are held as columns."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from accuracy.batch_norms import LAYOUTS, Case, Results, check, check_gradients, programs_of_one_warp
from accuracy.reductions import FLOATING, each

from flag_gems_overrides.ops.families.batch_norm import launches, plan, types
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.launch.sizes import VECTOR_BYTES

# Runs that are no whole vectors and begin at each place of one: few and many to a program, and long ones.
UNALIGNED = [(3, 5, 257), (40, 2, 265), (1, 3, 1031), (2, 9, 13, 23), (5, 2, 1028)]


@pytest.fixture
def small_programs(monkeypatch, device_with):
    programs_of_one_warp(monkeypatch)
    device_with()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.usefixtures("small_programs")
@each("dtype", FLOATING)
@each("shape", UNALIGNED)
def test_runs_that_begin_anywhere(shape, dtype, training, device):
    problem = types.Problem(shape[0], shape[1], math.prod(shape[2:]), dtype.itemsize, 2)
    whole_vectors = problem.K * dtype.itemsize % 16 == 0
    assert (plan.plan(problem, devices.limits(0)).tiling.edges == 0) == whole_vectors
    check(Case(shape, dtype, device), training)


@pytest.mark.usefixtures("small_programs")
@each("shape", UNALIGNED)
def test_runs_that_begin_anywhere_of_misaligned_tensors(shape, device):
    case = Case(shape, torch.float16, device)
    case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    check(case)


@pytest.mark.usefixtures("small_programs")
@each("shape", UNALIGNED)
def test_some_gradients_of_runs_that_begin_anywhere(shape, device):
    case = Case(shape, torch.bfloat16, device)
    for training in (True, False):
        exact, native = case.exact(training), case.native(training)
        for mask in itertools.product([True, False], repeat=3):
            ours = case.ours(training, mask)
            check_gradients(mask, ours, native, exact)


@pytest.fixture
def forward_in_parts(monkeypatch, device_with):
    """Forward several programs share a channel, however little there is of it."""
    device_with()
    monkeypatch.setattr(launches, "LITTLE_BYTES", 0)
    monkeypatch.setattr(launches, "LITTLE_EDGES", {})
    gradients = plan.choose

    def choose(problem, limits):
        one_warp = types.Configuration("groups", 1, 1, 1, 16)
        return one_warp if problem.inputs == 1 else gradients(problem, limits)

    monkeypatch.setattr(plan, "choose", choose)


@pytest.mark.usefixtures("forward_in_parts")
@pytest.mark.parametrize("misaligned", [False, True])
@each("dtype", FLOATING)
@each("shape", UNALIGNED)
def test_forward_runs_that_begin_anywhere_in_parts(shape, dtype, misaligned, device):
    case = Case(shape, dtype, device)
    if misaligned:
        case.x = LAYOUTS["misaligned"](case.x)
    check(case)


@pytest.mark.usefixtures("forward_in_parts")
def test_forward_part_with_one_vector_that_is_masked(device):
    problem = types.Problem(1, 3, 1289, 2, 1)
    planned = plan.plan(problem, devices.limits(0))
    assert planned.group > 1
    assert planned.tiling.total == 161
    check(Case((1, 3, 1289), torch.float16, device))


def _first_legal(configurations, problem, limits):
    legal = (each for each in configurations if launches.launch_or_none(problem, each, limits) is not None)
    return next(legal, None)


@pytest.fixture
def held_unaligned(monkeypatch, device_with):
    """Programs hold a channel whose runs begin anywhere, however few there are."""
    device_with()
    others = types.Configuration("groups", 1, 1, 1, 16)
    held = [types.Configuration("channels", 1, warps, loads) for loads in (1, 0) for warps in (1, 2, 4, 8, 16)]
    monkeypatch.setattr(plan, "choose", lambda *of: _first_legal(held, *of) or others)


@pytest.mark.usefixtures("held_unaligned")
@pytest.mark.parametrize("training", [True, False])
@each("dtype", FLOATING)
@each("shape", UNALIGNED)
def test_held_runs_that_begin_anywhere(shape, dtype, training, device):
    problem = types.Problem(shape[0], shape[1], math.prod(shape[2:]), dtype.itemsize, 2)
    planned = plan.plan(problem, devices.limits(0))
    whole_vectors = problem.K * dtype.itemsize % 16 == 0
    assert whole_vectors or planned.tiling.edges > 0
    # 40 x 265 of float64 are too many.
    assert isinstance(planned, types.Channels) or problem.M == 40
    check(Case(shape, dtype, device), training)


@pytest.mark.usefixtures("held_unaligned")
@pytest.mark.parametrize("training", [True, False])
@each("shape", UNALIGNED)
def test_some_gradients_of_held_runs_of_misaligned_tensors_without_weight(shape, training, device):
    case = Case(shape, torch.bfloat16, device)
    case.weight = torch.ones_like(case.weight)
    case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    exact, native = case.exact(training), case.native(training)
    case.weight = case.bias = None
    for mask in itertools.product([True, False], repeat=3):
        check_gradients(mask, case.ours(training, mask), native, exact)


@pytest.mark.usefixtures("held_unaligned")
@each("value", [math.nan, math.inf])
def test_values_that_are_not_finite_stay_in_their_channel_of_held_runs(value, device):
    case = Case((3, 5, 257), torch.float32, device)
    case.x[0, 1, 0] = case.dy[2, 3, 256] = value
    for name, actual in zip(Results._fields[5:], case.ours()[5:], strict=True):
        channels = actual.transpose(0, 1) if name == "dx" else actual
        finite = channels.reshape(5, -1).isfinite().all(1)
        assert {channel for channel in range(5) if not finite[channel]} == ({3} if name == "dbias" else {1, 3}), name


# Short runs that are held as columns: rows of one tile or two, the last program full or not.
COLUMNS = [(70, 20, 2), (45, 33, 4), (38, 5, 8), (67, 3, 2, 8)]


@pytest.fixture(params=[False, True], ids=["one tile", "two tiles"])
def runs_as_columns(request, monkeypatch, device_with):
    """A function that lets runs of a shape be held as 16 columns."""
    device_with()

    def runs_as_columns(shape: tuple[int, ...], itemsize: int) -> None:
        channels = max(16 // math.prod(shape[2:]), 1)
        chosen = types.Configuration("channels", channels, 4 if request.param else 8, int(request.param), padded=True)
        monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)
        monkeypatch.setattr(plan, "channels_of", lambda problem, limits: (chosen,))
        monkeypatch.setattr(plan, "groups_of", lambda problem, limits: ())
        for inputs in (1, 2):
            problem = types.Problem(shape[0], shape[1], math.prod(shape[2:]), itemsize, inputs)
            tiling = plan.plan(problem, devices.limits(0)).tiling
            assert tiling.run == problem.K
            assert (tiling.rest > 0) == request.param

    return runs_as_columns


@pytest.mark.parametrize("training", [True, False])
@each("dtype", FLOATING)
@each("shape", COLUMNS)
def test_runs_as_columns(shape, dtype, training, runs_as_columns, device):
    runs_as_columns(shape, dtype.itemsize)
    case = Case(shape, dtype, device, mean=10.0)
    case.x[-1] += 5.0
    check(case, training)


@pytest.mark.parametrize("training", [True, False])
@each("shape", COLUMNS)
def test_some_gradients_of_runs_as_columns_of_misaligned_tensors_without_weight(
    shape, training, runs_as_columns, device
):
    runs_as_columns(shape, 2)
    case = Case(shape, torch.bfloat16, device)
    case.weight = torch.ones_like(case.weight)
    case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    exact, native = case.exact(training), case.native(training)
    case.weight = case.bias = None
    for mask in itertools.product([True, False], repeat=3):
        check_gradients(mask, case.ours(training, mask), native, exact)


@pytest.fixture
def one_program(monkeypatch, device_with):
    """Programs hold short runs as columns, however few there are."""
    device_with()
    chosen = plan.choose
    several = [
        types.Configuration("channels", channels, warps, two, padded=True)
        for channels, two, warps in itertools.product((32, 16, 8), (1, 0), (1, 2, 4))
    ]
    monkeypatch.setattr(
        plan,
        "choose",
        lambda problem, limits: (
            (problem.K * problem.itemsize <= VECTOR_BYTES and _first_legal(several, problem, limits))
            or chosen(problem, limits)
        ),
    )


@pytest.mark.usefixtures("one_program")
@pytest.mark.parametrize("misaligned", [False, True])
@each("dtype", FLOATING)
@each("shape", [(9, 70, 2), (8, 33, 4), (24, 130, 4), (15, 30, 2)])
def test_few_rows_of_runs_as_columns(shape, dtype, misaligned, device):
    problem = types.Problem(*shape, dtype.itemsize, 1)
    as_columns = problem.K * dtype.itemsize <= VECTOR_BYTES
    assert plan.plan(problem, devices.limits(0)).tiling.run == (problem.K if as_columns else 0)
    case = Case(shape, dtype, device, mean=10.0)
    case.x[-1] += 5.0
    if misaligned:
        case.x = LAYOUTS["misaligned"](case.x)
    check(case)


@each("value", [math.nan, math.inf])
def test_values_that_are_not_finite_stay_in_their_channel_of_runs_as_columns(value, runs_as_columns, device):
    runs_as_columns((38, 5, 8), 4)
    case = Case((38, 5, 8), torch.float32, device)
    case.x[0, 1, 0] = case.dy[37, 3, 7] = value
    for name, actual in zip(Results._fields[5:], case.ours()[5:], strict=True):
        channels = actual.transpose(0, 1) if name == "dx" else actual
        finite = channels.reshape(5, -1).isfinite().all(1)
        assert {channel for channel in range(5) if not finite[channel]} == ({3} if name == "dbias" else {1, 3}), name


@pytest.mark.parametrize("training", [True, False])
@each("dtype", FLOATING)
@pytest.mark.parametrize(
    ("shape", "channels", "warps"), [((6, 3, 22), 2, 1), ((3, 13, 11), 8, 1), ((4, 3, 260), 1, 4)], ids=str
)
def test_runs_in_two_tiles(shape, channels, warps, dtype, training, monkeypatch, device_with, device):
    device_with()
    chosen = types.Configuration("channels", channels, warps, types.TWO_TILES)
    monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)
    monkeypatch.setattr(plan, "channels_of", lambda problem, limits: (chosen,))
    monkeypatch.setattr(plan, "groups_of", lambda problem, limits: ())
    for inputs in (1, 2):
        assert plan.plan(types.Problem(*shape, dtype.itemsize, inputs), devices.limits(0)).tiling.rest > 0
    case = Case(shape, dtype, device, mean=10.0)
    case.x[-1, :, -1] += 5.0
    check(case, training)
