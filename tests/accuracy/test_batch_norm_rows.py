# SPDX-License-Identifier: Apache-2.0
"""Batch norms of which several rows are read as they lie, all channels of them or blocks by place."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from accuracy.batch_norms import LAYOUTS, Case, Results, check, check_gradients
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, each

from flag_gems_overrides.ops.families.batch_norm import plan, types
from flag_gems_overrides.ops.launch import devices

# Rows that are read as they lie: all channels of several rows, with a rest and without, and by place (1); also where
# vectors are of one channel.
SHORT = [((700, 5), 5), ((133, 3, 7), 3), ((96, 48), 48), ((90, 504), 1), ((31, 40, 16), 1), ((131, 3, 8), 3)]
# Rows that are read by place: blocks that begin and end anywhere, with a rest of rows and without.
BY_PLACE = [(86, 77), (64, 33, 5), (150, 130), (71, 3, 104)]


@pytest.fixture
def short_rows(monkeypatch, device_with):
    """A function that lets blocks of so many channels be read as they lie, by as many programs as there can be."""
    device_with()

    def short_rows(shape: tuple[int, ...], channels: int, itemsize: int) -> None:
        warps = 1 if math.prod(shape[1:]) * itemsize < 2048 or channels < shape[1] else 8
        chosen = types.Configuration("flat", channels, warps, 2, 4, stages=2)
        monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)

    return short_rows


@each("dtype", FLOATING)
@pytest.mark.parametrize(("shape", "channels"), SHORT, ids=str)
def test_short_rows(shape, channels, dtype, short_rows, device):
    short_rows(shape, channels, dtype.itemsize)
    check(Case(shape, dtype, device, mean=10.0))


@pytest.mark.parametrize(("shape", "channels"), SHORT, ids=str)
def test_short_rows_without_parameters_or_some_gradients(shape, channels, short_rows, device):
    short_rows(shape, channels, 4)
    case = Case(shape, torch.float32, device)
    case.weight, case.bias = torch.ones_like(case.weight), torch.zeros_like(case.bias)
    exact, native = case.exact(), case.native()
    case.weight = case.bias = case.running_mean = case.running_var = None
    for mask in itertools.product([True, False], repeat=3):
        ours = case.ours(mask=mask)
        assert_same_answer(ours.y, native.y, exact.y)
        check_gradients(mask, ours, native, exact)


@pytest.mark.parametrize(("shape", "channels"), SHORT, ids=str)
def test_short_rows_of_parts_that_are_unlike(shape, channels, short_rows, device):
    short_rows(shape, channels, 4)
    case = Case(shape, torch.float32, device, mean=1000.0)
    case.x += torch.linspace(-50, 50, shape[0], device=device).view(-1, *[1] * (len(shape) - 1))
    case.x[0] = 0.0
    check(case)


@pytest.fixture
def by_place(monkeypatch, device_with):
    """Rows are read by place, by programs of one warp."""
    device_with()
    chosen = types.Configuration("flat", 1, 1, 2, 4, stages=2)
    monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)


@pytest.mark.usefixtures("by_place")
@each("dtype", FLOATING)
@each("shape", BY_PLACE)
def test_by_place(shape, dtype, device):
    for inputs in (1, 2):
        problem = types.Problem(shape[0], shape[1], math.prod(shape[2:]), dtype.itemsize, inputs)
        assert plan.plan(problem, devices.limits(0)).by_place
    check(Case(shape, dtype, device, mean=10.0))


@pytest.mark.usefixtures("by_place")
@each("shape", BY_PLACE)
def test_by_place_of_parts_that_are_unlike(shape, device):
    case = Case(shape, torch.float32, device, mean=1000.0)
    case.x += torch.linspace(-50, 50, shape[0], device=device).view(-1, *[1] * (len(shape) - 1))
    case.x[0] = 0.0
    check(case)


@pytest.mark.usefixtures("by_place")
@each("shape", BY_PLACE)
def test_some_gradients_by_place_of_misaligned_tensors(shape, device):
    case = Case(shape, torch.bfloat16, device)
    case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    exact, native = case.exact(), case.native()
    for mask in itertools.product([True, False], repeat=3):
        check_gradients(mask, case.ours(mask=mask), native, exact)


@pytest.mark.usefixtures("by_place")
@each("value", [math.nan, math.inf])
def test_values_that_are_not_finite_stay_in_their_channel_by_place(value, device):
    case = Case((86, 77), torch.float32, device)
    case.x[-1, 40] = case.dy[3, 76] = value
    for name, actual in zip(Results._fields[5:], case.ours()[5:], strict=True):
        harmed = {76} if name == "dbias" else {40, 76}
        finite = actual.reshape(-1, 77).isfinite().all(0)
        assert {channel for channel in range(77) if not finite[channel]} == harmed, name


@each("value", [math.nan, math.inf])
def test_values_that_are_not_finite_in_short_rows(value, short_rows, device):
    short_rows((700, 5), 5, 4)
    case = Case((700, 5), torch.float32, device)
    case.x[[0, -1], [1, 3]] = value
    case.dy[5, 0] = value
    for name, actual in zip(Results._fields, case.ours(), strict=True):
        harmed = {0} if name in ("dx", "dweight", "dbias") else set()
        harmed |= {1, 3} if name != "dbias" else set()
        finite = actual.reshape(-1, 5).isfinite().all(0)
        assert {channel for channel in range(5) if not finite[channel]} == harmed, name
