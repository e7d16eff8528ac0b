# SPDX-License-Identifier: Apache-2.0
"""Norms by one kernel, whichever the plan takes for their size: rows that a thread has whole, loops over odd rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from accuracy import test_fused_add_rms_norm, test_rms_norm, test_skip_layernorm
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, each
from accuracy.test_layernorm import EPS, LAYOUTS, Case, _check_backward, _check_equal_elements, _check_forward

from flag_gems_overrides.ops.families.norm import plan, rms_plan
from flag_gems_overrides.ops.families.norm.launches import Configuration
from flag_gems_overrides.ops.layernorm import layer_norm
from flag_gems_overrides.ops.rms_norm import rms_norm_forward

VECTORS = [(dtype, vec) for dtype in FLOATING for vec in (1, 2, 4, 8) if vec * dtype.itemsize <= 16]
COLUMNS = [3, 5, 6, 7]
# Whole programs and an odd rest, by one warp.
ROWS = 301


@pytest.fixture
def backward_by(monkeypatch, device_with) -> Callable[..., None]:
    """A function that takes the fields of the configuration of gradients."""
    device_with()
    choose = plan.choose

    def backward_by(*fields, **named) -> None:
        chosen = Configuration(*fields, **named)
        monkeypatch.setattr(
            plan, "choose", lambda problem, limits: chosen if problem.backward else choose(problem, limits)
        )
        # As the plan of RMS norm's gradients asks for it.
        monkeypatch.setattr(rms_plan, "single_row", lambda problem: chosen)

    return backward_by


@pytest.fixture
def forward_by(monkeypatch, device_with) -> Callable[..., None]:
    """A function that takes the fields of the configuration of forward passes."""
    device_with()
    choose = plan.choose

    def forward_by(*fields, **named) -> None:
        chosen = Configuration(*fields, **named)
        monkeypatch.setattr(
            plan, "choose", lambda problem, limits: choose(problem, limits) if problem.backward else chosen
        )

    return forward_by


def _check_float32(case: Case) -> None:
    """Of few different rows: PyTorch's own error may be none."""
    actual = layer_norm(case.x, case.normalized, case.weight, case.bias, EPS)
    for ours, truth in zip(actual, case.exact()[:3], strict=True):
        torch.testing.assert_close(ours, truth.float(), rtol=1e-5, atol=1e-5)


@each("dtype, vec", VECTORS)
@each("N", COLUMNS)
def test_layer_norm_of_short_rows(N, dtype, vec, forward_by, device):
    forward_by("short", 1, vec)
    _check_forward(Case((ROWS, N), 1, dtype, device))


@each("dtype, vec", VECTORS)
@each("N", COLUMNS)
def test_rms_norm_of_short_rows(N, dtype, vec, forward_by, device):
    forward_by("short", 1, vec)
    case = test_rms_norm.Case((ROWS, N), 1, dtype, device)
    case.check(case.weight)


@each("dtype, vec", VECTORS)
@each("N", [5, 6])
def test_sums_of_short_rows(N, dtype, vec, forward_by, device):
    forward_by("short", 1, vec)
    for kind in (test_skip_layernorm.Case, test_fused_add_rms_norm.Case):
        kind((ROWS, N), 1, dtype, device).check()


@each("rows", [1, 2, 127, 128, 129, 513])
def test_numbers_of_short_rows(rows, forward_by, device):
    """Less than a program's, as many, and more, by four warps with a row or two to a thread."""
    for vec in (1, 2):
        forward_by("short", 4, vec)
        _check_float32(Case((rows, 5), 1, torch.float32, device))


@each("with_weight, with_bias", [(False, False), (True, False), (False, True)])
@each("vec", [1, 4])
def test_short_rows_without_parameters(vec, with_weight, with_bias, forward_by, device):
    forward_by("short", 1, vec)
    case = Case((ROWS, 7), 1, torch.float32, device)
    if not with_weight:
        case.weight = torch.ones_like(case.weight)
    if not with_bias:
        case.bias = torch.zeros_like(case.bias)
    arguments = case.normalized, case.weight if with_weight else None, case.bias if with_bias else None, EPS
    actual, native = layer_norm(case.x, *arguments), torch.ops.aten.native_layer_norm(case.x, *arguments)
    for ours, theirs, truth in zip(actual, native, case.exact()[:3], strict=True):
        assert_same_answer(ours, theirs, truth)
    test_skip_layernorm.Case((ROWS, 7), 1, torch.float32, device).check(parameters=False)
    test_rms_norm.Case((ROWS, 7), 1, torch.float32, device).check(None)
    test_fused_add_rms_norm.Case((ROWS, 7), 1, torch.float32, device).check(weighted=False)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=[name.replace(" ", "-") for name in LAYOUTS])
def test_layouts_of_short_rows(layout, forward_by, device):
    forward_by("short", 1, 4)
    case = Case((ROWS, 5), 1, torch.float32, device)
    case.x, case.weight, case.bias = map(layout, (case.x, case.weight, case.bias))
    _check_float32(case)


@each("value", [math.nan, math.inf, -math.inf])
@each("vec", [1, 2, 4])
def test_values_that_are_not_finite_stay_in_their_short_row(vec, value, forward_by, device):
    forward_by("short", 1, vec)
    x = torch.randn(ROWS, 5, device=device)
    x[0, 0] = x[150, -1] = x[-1, 2] = value
    native = torch.ops.aten.native_layer_norm(x, [5], None, None, EPS)
    for ours, theirs in zip(layer_norm(x, [5]), native, strict=True):
        assert torch.equal(torch.isfinite(ours), torch.isfinite(theirs))
    # PyTorch's kernel for CUDA (2.11) has NaN in a whole row with an infinity, its formula 0 next to it.
    exact = x * torch.rsqrt(x.square().mean(1, keepdim=True) + EPS)
    y, _ = rms_norm_forward(x, [5], None, EPS)
    assert torch.equal(torch.isfinite(y), torch.isfinite(exact))


@each("dtype", FLOATING)
@each("N", COLUMNS)
def test_equal_elements_of_short_rows_are_exactly_0(N, dtype, forward_by, device):
    for vec in (1, 2):
        forward_by("short", 1, vec)
        _check_equal_elements(ROWS, N, dtype, device)


# Rows that begin everywhere in a vector: in one program and in several, of which the last may have edges alone.
ODD = [(9, 1001), (9, 8195), (17, 9001)]


@each("dtype", FLOATING)
@each("shape", ODD)
def test_loops_over_odd_rows_read_as_vectors(shape, dtype, forward_by, device):
    forward_by("loop", 4, 16 // dtype.itemsize, chunks=1, registers=64)
    _check_forward(Case(shape, 1, dtype, device))


@each("dtype", FLOATING)
def test_loops_over_odd_sums(dtype, forward_by, device):
    forward_by("loop", 4, 16 // dtype.itemsize, chunks=1, registers=64)
    for parameters in (True, False):
        test_skip_layernorm.Case((9, 8195), 1, dtype, device).check(parameters)


@each("value", [math.nan, math.inf])
@each("column", [0, 4000, 8194])
def test_values_that_are_not_finite_stay_in_their_odd_row(column, value, forward_by, device):
    forward_by("loop", 4, 8, chunks=1, registers=64)
    x = torch.randn(9, 8195, device=device).to(torch.bfloat16)
    x[3:5, column] = value
    finite = torch.tensor([row not in (3, 4) for row in range(9)], device=device)
    for actual in layer_norm(x, [8195]):
        assert torch.equal(torch.isfinite(actual).all(1), finite)


@each("dtype", [torch.float16, torch.bfloat16])
@each("shape", ODD)
def test_equal_elements_of_loops_over_odd_rows_are_exactly_0(shape, dtype, forward_by, device):
    forward_by("loop", 4, 8, chunks=1, registers=64)
    _check_equal_elements(*shape, dtype, device)


# Rows that are held in pairs, of whole vectors and with edges, in one chunk and in several.
IN_PAIRS = [((3, 1000), 1), ((3, 1304), 1), ((9, 1301), 1), ((9, 2999), 2), ((2, 4096), 8)]


@each("dtype", [torch.float16, torch.bfloat16])
@each("shape, warps", IN_PAIRS)
def test_rows_in_pairs(shape, warps, dtype, forward_by, device, monkeypatch):
    packed = Configuration("rows", warps, 8, registers=64, late=True, packed=True)
    forward_by(*packed)
    _check_forward(Case(shape, 1, dtype, device))
    monkeypatch.setattr(rms_plan, "packed_row_of_rms_norm", lambda problem, limits: packed)
    case = test_rms_norm.Case(shape, 1, dtype, device)
    case.check(case.weight)


@each("dtype", [torch.float16, torch.bfloat16])
@each("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_stay_in_their_row_of_pairs(value, dtype, forward_by, device):
    forward_by("rows", 1, 8, registers=64, late=True, packed=True)
    x = torch.randn(17, 1301, device=device).to(dtype)
    x[0, 0] = x[8, -1] = x[-1, 650] = value
    native = torch.ops.aten.native_layer_norm(x, [1301], None, None, EPS)
    for ours, theirs in zip(layer_norm(x, [1301]), native, strict=True):
        assert torch.equal(torch.isfinite(ours), torch.isfinite(theirs))


@each("dtype", [torch.float16, torch.bfloat16])
@each("N", [1000, 1301])
def test_equal_elements_of_rows_of_pairs_are_exactly_0(N, dtype, forward_by, device):
    forward_by("rows", 1, 8, registers=64, late=True, packed=True)
    _check_equal_elements(9, N, dtype, device)


# Rows of one launch by 16 warps: more columns than programs of columns have, half of a last one, one row.
IN_ONE_LAUNCH = [(5, 9001), (3, 16384), (40, 4104), (1, 8200)]


@each("dtype", [torch.float16, torch.bfloat16, torch.float32])
@each("shape", IN_ONE_LAUNCH)
def test_gradients_of_few_rows_by_16_warps(shape, dtype, backward_by, device):
    if dtype == torch.float32:
        shape = shape[0], shape[1] // 2
    backward_by("few_rows", 16)
    _check_backward(Case(shape, 1, dtype, device))
    case = test_rms_norm.Case(shape, 1, dtype, device)
    case.check(case.weight)
