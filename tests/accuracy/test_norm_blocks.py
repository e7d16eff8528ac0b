# SPDX-License-Identifier: Apache-2.0
"""Gradients of a few long rows by programs that have columns of all rows."""

from __future__ import annotations

import math

import pytest
import torch
from accuracy import test_rms_norm
from accuracy.judge import assert_same_answer
from accuracy.reductions import each
from accuracy.test_layernorm import EPS, Case, _check_backward

from flag_gems_overrides.ops.families.norm import two_passes_plan
from flag_gems_overrides.ops.families.norm.blocks_plan import plan_blocks
from flag_gems_overrides.ops.families.norm.launches import Configuration
from flag_gems_overrides.ops.families.norm.prepare import backward_launch
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.layernorm import layer_norm, layer_norm_backward

aten = torch.ops.aten
# How many tiles of a program stay in registers: of whole vectors, of halves, and of single elements.
SHAPES = [
    ((2, 9000), torch.bfloat16, 1),
    ((4, 14001), torch.float32, 0),
    ((3, 6001), torch.float32, 2),
    ((2, 8202), torch.float32, 2),
    ((2, 9000), torch.float32, 1),
    ((16, 9001), torch.bfloat16, 0),
    ((14, 12008), torch.float16, 0),
    ((4, 20000), torch.float32, 0),
    ((7, 9004), torch.float16, 0),
]


@pytest.fixture(autouse=True)
def four_multiprocessors(device_with) -> None:
    device_with(sm_count=4)


def _check_ways(shape: tuple[int, int], dtype: torch.dtype, held: int) -> None:
    for mean in (True, False):
        found = plan_blocks(*shape, dtype.itemsize, mean, devices.limits(0))
        assert found is not None
        assert found.held == held


@each("shape, dtype, held", SHAPES)
def test_gradients_of_layer_norm(shape, dtype, held, device):
    _check_ways(shape, dtype, held)
    _check_backward(Case(shape, 1, dtype, device))


@each("shape, dtype, held", SHAPES)
def test_gradients_of_rms_norm(shape, dtype, held, device):
    _check_ways(shape, dtype, held)
    case = test_rms_norm.Case(shape, 1, dtype, device)
    case.check(case.weight)


# Of single elements, that belong to neighbouring threads or not, of parts of vectors and of whole ones; splits of rows.
# The fifth has more words of a row than are added up at a time. A single row begins with a whole vector, and the last
# ones end with a part of one.
TWICE = [((5, 9001), torch.float16, 1), ((5, 9002), torch.float32, 1), ((33, 101), torch.float64, 2)]
TWICE += [((1, 9000), torch.bfloat16, 1), ((5, 20003), torch.float32, 33)]
TWICE += [((1, 9001), torch.float16, 1), ((1, 9003), torch.float32, 1), ((1, 8193), torch.float64, 1)]


@each("mask", [(True, True, True), (True, False, True), (False, True, True)])
@each("shape, dtype, multiprocessors", TWICE)
def test_rows_that_are_read_twice(shape, dtype, multiprocessors, mask, device, device_with, monkeypatch):
    """In two passes, or by the second alone."""
    device_with(sm_count=multiprocessors)
    monkeypatch.setattr(two_passes_plan, "WORDS", 0)  # 32
    found = two_passes_plan.plan_two_passes(*shape, dtype.itemsize, devices.limits(0))
    assert (found.splits > 1) == (multiprocessors == 2)
    assert (found.slices > found.words) == (multiprocessors == 33)
    case = Case(shape, 1, dtype, device)
    statistics = layer_norm(case.x, [shape[1]], None, None, EPS)[1:]
    native_statistics = aten.native_layer_norm(case.x, [shape[1]], None, None, EPS)[1:]
    launch = backward_launch(*shape, dtype, *mask, 0, Configuration("loop", 4))
    likes = case.x, case.weight, case.bias
    gradients = [torch.empty_like(like) if wanted else None for like, wanted in zip(likes, mask, strict=True)]
    launch(case.dy, case.x, case.weight, *statistics, *gradients)
    native = aten.native_layer_norm_backward(
        case.dy, case.x, [shape[1]], *native_statistics, case.weight, case.bias, list(mask)
    )
    for actual, theirs, truth in zip(gradients, native, case.exact()[3:], strict=True):
        if actual is not None:
            assert_same_answer(actual, theirs, truth)


@pytest.mark.parametrize(
    ("with_weight", "with_bias", "mask"),
    [(True, False, (True, True, False)), (False, True, (True, False, True)), (True, True, (True, False, True))],
)
@each("N", [8202, 9000, 20000])
def test_with_or_without_weight_and_bias(N, with_weight, with_bias, mask, device):
    case = Case((2, N), 1, torch.float32, device)
    weight = case.weight if with_weight else None
    bias = case.bias if with_bias else None
    if not with_weight:
        case.weight = torch.ones_like(case.weight)
    statistics = layer_norm(case.x, [N], None, None, EPS)[1:]
    native_statistics = aten.native_layer_norm(case.x, [N], None, None, EPS)[1:]
    ours = layer_norm_backward(case.dy, case.x, [N], *statistics, weight, bias, list(mask))
    native = aten.native_layer_norm_backward(case.dy, case.x, [N], *native_statistics, weight, bias, list(mask))
    for actual, theirs, truth, wanted in zip(ours, native, case.exact()[3:], mask, strict=True):
        assert (actual is not None) == wanted
        if wanted:
            assert_same_answer(actual, theirs, truth)


def test_more_programs_than_are_waited_for_together(device, device_with):
    """129, whose words for 16 rows come in two loads, with two tiles held and with none."""
    device_with(sm_count=65, l2_bytes=1 << 23)
    for N, held in ((33002, 2), (33001, 0)):
        found = plan_blocks(16, N, 2, False, devices.limits(0))
        assert found is not None
        assert found.held == held
        assert found.programs > found.words
    for case in (
        Case((16, 33002), 1, torch.float16, device),
        test_rms_norm.Case((16, 33001), 1, torch.float16, device),
    ):
        case.dy, case.weight = case.x + 1, torch.ones_like(case.weight)  # sums that are not small count
        case.check(case.weight) if isinstance(case, test_rms_norm.Case) else _check_backward(case)


@each("value", [math.nan, math.inf])
@each("N", [6001, 14001, 20000])
def test_values_that_are_not_finite_stay_in_their_row_and_column(N, value, device):
    x, dy, weight = (torch.randn(shape, device=device) for shape in ((3, N), (3, N), (N,)))
    _, *statistics = layer_norm(x, [N], weight, weight, EPS)
    dy[1, N - 1] = value
    dx, dweight, dbias = layer_norm_backward(dy, x, [N], *statistics, weight, weight, [True] * 3)
    assert torch.isfinite(dx).all(1).tolist() == [True, False, True]
    for gradient in (dweight, dbias):
        assert torch.isfinite(gradient).sum() == N - 1
        assert not torch.isfinite(gradient[N - 1])
