# SPDX-License-Identifier: Apache-2.0
"""native_layer_norm and native_layer_norm_backward."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, ON_GPU, each

from flag_gems_overrides.ops.families.norm.exchange import clear_last
from flag_gems_overrides.ops.layernorm import layer_norm, layer_norm_backward

aten = torch.ops.aten
EPS = 1e-5

# (shape, number of normalized dimensions). On the interpreter's device of 4 multiprocessors these take every way
# through the plans. The first rows are upstream's.
SHAPES = [
    ((200, 36), 1),
    ((65, 100), 1),
    ((1, 4099), 1),
    ((4, 8, 8), 2),
    ((4, 16, 64), 1),
    ((2, 3, 4, 5), 3),
    ((33, 768), 1),
    ((3, 5000), 1),
    ((19, 1001), 1),
    ((7, 1), 1),
    ((1, 1), 1),
    ((300,), 1),
    ((2, 20000), 1),
    ((8, 1003), 1),
    ((13, 5001), 1),
    ((17, 15001), 1),
]
if ON_GPU:
    SHAPES += [((4096, 100), 1), ((1, 40999), 1), ((100, 40499), 1), ((4096, 256), 1), ((4, 16, 64, 4), 3)]
    SHAPES += [((20, 6, 65536), 2), ((16, 16, 4098), 2), ((16, 8, 128, 128), 3), ((8, 1024, 4096), 1)]
    SHAPES += [((2**20, 64), 1), ((4096, 768), 1), ((1000, 8192), 1), ((1000, 12288), 1), ((500, 16384), 1)]
    SHAPES += [((300, 32768), 1), ((257, 50257), 1), ((100, 65536), 1), ((30, 2**18), 1), ((3, 2**21 + 1), 1)]
# The host needs half a minute in longdouble for the truth about more elements in float64.
WITH_DTYPES = [
    (*case, dtype) for case in SHAPES for dtype in FLOATING if dtype != torch.float64 or math.prod(case[0]) <= 2**24
]
FEW = [((4, 16, 64), 1), ((16, 301), 1), ((2, 20000), 1)]


class Case:
    """Inputs of one dtype, and the truth about them."""

    def __init__(self, shape: tuple[int, ...], k: int, dtype: torch.dtype, device: str, mean: float = 1.0) -> None:
        def draw(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, device=device).to(dtype)

        self.shape, self.k, self.normalized = shape, k, list(shape[-k:])
        self.x = (torch.randn(shape, device=device) * 2 + mean).to(dtype)
        self.weight, self.bias, self.dy = draw(shape[-k:]), draw(shape[-k:]), draw(shape)

    def exact(self) -> tuple[torch.Tensor, ...]:
        """(y, mean, rstd, dx, dweight, dbias) in a wider format: float64, or longdouble for float64 input."""
        wide = _Longdouble if self.x.dtype is torch.float64 else _Double
        x, weight, bias, dy = (wide.of(t) for t in (self.x, self.weight, self.bias, self.dy))
        N = math.prod(self.normalized)
        x, dy = x.reshape(-1, N), dy.reshape(-1, N)
        weight, bias = weight.reshape(1, N), bias.reshape(1, N)
        mean = x.mean(1, keepdims=True)
        rstd = 1 / (((x - mean) ** 2).mean(1, keepdims=True) + EPS) ** 0.5
        xhat = (x - mean) * rstd
        g = dy * weight
        dx = (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True)) * rstd
        results = (xhat * weight + bias, mean, rstd, dx, (dy * xhat).sum(0), dy.sum(0))
        statistics = (*self.shape[: -self.k], *(1,) * self.k)
        shapes = (self.shape, statistics, statistics, self.shape, self.normalized, self.normalized)
        return tuple(wide.back(t, self.x.device).reshape(s) for t, s in zip(results, shapes, strict=True))


class _Double:
    @staticmethod
    def of(t: torch.Tensor) -> torch.Tensor:
        return t.double()

    @staticmethod
    def back(t: torch.Tensor, device: torch.device) -> torch.Tensor:
        return t


class _Longdouble:
    """float64 is judged by something wider than itself: 64 bits of mantissa on x86."""

    @staticmethod
    def of(t: torch.Tensor) -> np.ndarray:
        return t.cpu().numpy().astype(np.longdouble)

    @staticmethod
    def back(t: np.ndarray, device: torch.device) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(t.astype(np.float64))).to(device)


def _native_statistics(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """As CUDA keeps them. PyTorch's CPU kernel keeps those of half inputs in half."""
    x = case.x if case.x.dtype is torch.float64 else case.x.float()
    return aten.native_layer_norm(x, case.normalized, None, None, EPS)[1:]


def _check_forward(case: Case) -> None:
    y, mean, rstd = layer_norm(case.x, case.normalized, case.weight, case.bias, EPS)
    exact = case.exact()
    assert_same_answer(y, aten.native_layer_norm(case.x, case.normalized, case.weight, case.bias, EPS)[0], exact[0])
    for actual, native, truth in zip((mean, rstd), _native_statistics(case), exact[1:3], strict=True):
        assert_same_answer(actual, native, truth)
    assert y.is_contiguous()


def _check_backward(case: Case, layout: Callable[[torch.Tensor], torch.Tensor] = lambda t: t) -> None:
    """Each side goes back from its own forward; ours from statistics laid out as ``layout`` does."""
    arguments = case.normalized, case.weight, case.bias
    _, *statistics = layer_norm(case.x, *arguments, EPS)
    _, *native_statistics = aten.native_layer_norm(case.x, *arguments, EPS)
    tensors = case.weight, case.bias, [True] * 3
    actual = layer_norm_backward(case.dy, case.x, case.normalized, *map(layout, statistics), *tensors)
    native = aten.native_layer_norm_backward(case.dy, case.x, case.normalized, *native_statistics, *tensors)
    for ours, theirs, truth in zip(actual, native, case.exact()[3:], strict=True):
        assert_same_answer(ours, theirs, truth)


@each("shape, k, dtype", WITH_DTYPES)
def test_forward(shape, k, dtype, device):
    _check_forward(Case(shape, k, dtype, device))


@each("shape, k, dtype", WITH_DTYPES)
def test_backward(shape, k, dtype, device):
    _check_backward(Case(shape, k, dtype, device))


@each("dtype", [torch.float32, torch.float64])
def test_variance_of_a_small_spread_about_a_large_mean(dtype, device):
    """A variance taken as the difference of two large sums has no digit left here."""
    for shape in ((5, 300), (3, 5000), (2, 20000)):
        case = Case(shape, 1, dtype, device, mean=3000.0)
        statistics = layer_norm(case.x, case.normalized, None, None, EPS)[1:]
        for actual, native, truth in zip(statistics, _native_statistics(case), case.exact()[1:3], strict=True):
            assert_same_answer(actual, native, truth)


@pytest.fixture
def small_device(device_with):
    """A device on which even short rows do not fit its programs."""
    device_with(registers_per_sm=1024, sm_count=1)


@each("dtype", FLOATING)
@each("shape, k", [((5, 1001), 1), ((3, 2, 40, 50), 2), ((1, 777), 1)])
def test_rows_too_long_for_all_programs(shape, k, dtype, device, small_device):
    case = Case(shape, k, dtype, device)
    _check_forward(case)
    _check_backward(case)


@each("mask", [(True, True, True), (False, True, False), (False, False, True)])
def test_sums_of_columns_by_several_programs(mask, device, device_with):
    """Three splits of the rows, the last shorter."""
    device_with(registers_per_sm=1024)
    case = Case((205, 300), 1, torch.float32, device)
    arguments = case.normalized, case.weight, case.bias
    _, *statistics = layer_norm(case.x, *arguments, EPS)
    _, *native_statistics = aten.native_layer_norm(case.x, *arguments, EPS)
    rest = *arguments[1:], list(mask)
    actual = layer_norm_backward(case.dy, case.x, case.normalized, *statistics, *rest)
    native = aten.native_layer_norm_backward(case.dy, case.x, case.normalized, *native_statistics, *rest)
    for ours, theirs, truth, wanted in zip(actual, native, case.exact()[3:], mask, strict=True):
        assert (ours is not None) == wanted
        if wanted:
            assert_same_answer(ours, theirs, truth)


def test_gradient_of_rows_too_long_for_all_programs_without_weight(device, small_device):
    case = Case((5, 1001), 1, torch.float64, device)
    case.weight = torch.ones_like(case.weight)
    _, *statistics = layer_norm(case.x, case.normalized, None, None, EPS)
    _, *native_statistics = aten.native_layer_norm(case.x, case.normalized, None, None, EPS)
    rest = None, None, [True, False, False]
    ours = layer_norm_backward(case.dy, case.x, case.normalized, *statistics, *rest)[0]
    theirs = aten.native_layer_norm_backward(case.dy, case.x, case.normalized, *native_statistics, *rest)[0]
    assert_same_answer(ours, theirs, case.exact()[3])


# On a device of 16 multiprocessors groups of more programs than they look at together, 35 each.
def test_groups_of_many_programs(device, device_with):
    device_with(sm_count=16)
    case = Case((2, 140000), 1, torch.float32, device)
    case.x += torch.linspace(-50, 50, 140000, device=device)  # or the mean of each program's slice were that of the row
    _check_forward(case)
    _check_backward(Case((2, 70000), 1, torch.float32, device, mean=0.0))


@each("dtype", [torch.float16, torch.bfloat16])
@each("M, N", [(70, 141), (67, 255)])
def test_many_odd_rows_of_16_bits(M, N, dtype, device, device_with):
    """A tile of four rows in chunks of 32, with all rows and not."""
    device_with(sm_count=2)
    _check_forward(Case((M, N), 1, dtype, device))


@each("dtype", [torch.float16, torch.bfloat16])
@each("M, N", [(66, 386), (65, 602)])
def test_many_rows_of_pairs(M, N, dtype, device, device_with):
    device_with(sm_count=1, capability=(9, 0))
    _check_forward(Case((M, N), 1, dtype, device))


@each(
    "M, N, dtype",
    [(801, 37, torch.float16), (1101, 22, torch.bfloat16), (259, 129, torch.float16)] + [(601, 29, torch.float64)],
)
def test_gradients_of_many_short_rows_in_chunks(M, N, dtype, device, device_with):
    """The last tile of a part of its rows; pairs; chunks of a warp."""
    device_with(sm_count=1, capability=(9, 0))
    _check_backward(Case((M, N), 1, dtype, device))


def test_loops_of_many_programs(device, device_with):
    """A group of 44 programs for a row of float64, which look at 32 together."""
    device_with(sm_count=40)
    case = Case((1, 90000), 1, torch.float64, device)
    case.x += torch.linspace(0, 100, 90000, device=device)
    _check_forward(case)
    _check_backward(case)


# Rows of a whole vector and less, of one program and several; read as they lie, and three columns one by one.
FEW_ELEMENTS = [((1, 1), 1), ((2100, 1), 1), ((7, 2), 1), ((1500, 2), 1), ((90, 2, 2), 2), ((33, 8), 1), ((700, 3), 1)]


@each("dtype", FLOATING)
@each("shape, k", FEW_ELEMENTS)
def test_rows_of_a_few_elements(shape, k, dtype, device):
    case = Case(shape, k, dtype, device)
    _check_forward(case)
    bare = layer_norm(case.x, case.normalized, None, None, EPS)[0]
    exact = (case.exact()[0] - case.bias) / case.weight
    native = aten.native_layer_norm(case.x, case.normalized, None, None, EPS)[0]
    assert_same_answer(bare, native, exact.to(case.x.dtype).to(exact.dtype))


@each("value", [math.nan, math.inf, -math.inf])
@each("columns", [1, 2, 3, 4])
def test_few_elements_that_are_not_finite_stay_in_their_row(columns, value, device):
    """Whether a mean with an infinity is one or a NaN depends on the order of the operations."""
    x = torch.randn(300, columns, device=device)
    x[0, 0] = x[150, -1] = value
    actual, native = layer_norm(x, [columns]), aten.native_layer_norm(x, [columns], None, None, EPS)
    assert torch.equal(torch.isnan(actual[0]), torch.isnan(native[0]))
    for ours, theirs in zip(actual, native, strict=True):
        assert torch.equal(torch.isfinite(ours), torch.isfinite(theirs))


EQUAL = [
    (*case, dtype)
    for case in ((3, 1), (3, 2), (3, 3), (5, 7), (3, 33), (2, 100), (3, 1001), (1, 4099))
    for dtype in FLOATING
] + [(2, 20000, torch.float32), (1, 20001, torch.bfloat16)]


def _check_equal_elements(M: int, N: int, dtype: torch.dtype, device: str) -> None:
    for value in (1 / 3, -1234.56, 3e4):
        x = torch.full((M, N), value, device=device).to(dtype)
        y, mean, rstd = layer_norm(x, [N], None, None, EPS)
        assert torch.equal(y, torch.zeros_like(x)), value
        assert torch.equal(mean, x[:, :1].to(mean.dtype)), value
        # PyTorch's own on CUDA is 3.5 % off in rows of 20000: its mean is rounded.
        torch.testing.assert_close(rstd, torch.full_like(rstd, EPS**-0.5), rtol=1e-5, atol=0)


@each("M, N, dtype", EQUAL)
def test_equal_elements_are_exactly_0(M, N, dtype, device):
    """A mean that is rounded leaves a difference, which 1 / sqrt(eps) makes 316 times as large."""
    _check_equal_elements(M, N, dtype, device)


@each("dtype", [torch.float32, torch.float64])
def test_equal_elements_of_rows_too_long_for_all_programs_are_exactly_0(dtype, device, small_device):
    _check_equal_elements(3, 1001, dtype, device)


def test_more_partial_sums_than_are_added_together(device, device_with):
    """300 programs, each with a row of them, which are added 64 at a time."""
    device_with(sm_count=160)
    _check_backward(Case((300, 2560), 1, torch.bfloat16, device))


LAYOUTS = {
    "every second": lambda x: torch.stack([x, -x], -1)[..., 0],
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "rows apart": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "expanded": lambda x: x[:1].expand(x.shape),
    "misaligned": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=[name.replace(" ", "-") for name in LAYOUTS])
@each("shape, k", FEW)
def test_layouts(shape, k, layout, device):
    case = Case(shape, k, torch.float32, device)
    case.x, case.weight, case.bias, case.dy = map(layout, (case.x, case.weight, case.bias, case.dy))
    _check_forward(case)
    _check_backward(case)


@each("shape, k", FEW)
def test_statistics_of_any_strides(shape, k, device):
    """PyTorch reads other memory."""
    _check_backward(Case(shape, k, torch.float32, device), LAYOUTS["every second"])


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("with_weight", [True, False])
@each("shape, k", FEW)
def test_any_mask_with_or_without_weight_and_bias(shape, k, with_weight, with_bias, device):
    case = Case(shape, k, torch.float32, device)
    weight = case.weight if with_weight else None
    bias = case.bias if with_bias else None
    if not with_weight:
        case.weight = torch.ones_like(case.weight)
    if not with_bias:
        case.bias = torch.zeros_like(case.bias)
    exact = case.exact()
    y, mean, rstd = layer_norm(case.x, case.normalized, weight, bias, EPS)
    native_y, *native_statistics = aten.native_layer_norm(case.x, case.normalized, weight, bias, EPS)
    assert_same_answer(y, native_y, exact[0])
    for mask in itertools.product([True, False], repeat=3):
        rest = weight, bias, list(mask)
        if (mask[1] and not with_weight) or (mask[2] and not with_bias):
            with pytest.raises(RuntimeError, match="tensor does not have a device"):
                layer_norm_backward(case.dy, case.x, case.normalized, mean, rstd, *rest)
            with pytest.raises(RuntimeError, match="tensor does not have a device"):
                aten.native_layer_norm_backward(case.dy, case.x, case.normalized, *native_statistics, *rest)
            continue
        actual = layer_norm_backward(case.dy, case.x, case.normalized, mean, rstd, *rest)
        native = aten.native_layer_norm_backward(case.dy, case.x, case.normalized, *native_statistics, *rest)
        for ours, theirs, truth in zip(actual, native, exact[3:], strict=True):
            if theirs is None:
                assert ours is None
            else:
                assert_same_answer(ours, theirs, truth)


@each("dtype", FLOATING)
def test_statistics_are_wide_and_shaped_for_broadcasting(dtype, device):
    x = torch.randn(2, 3, 4, 8, device=device).to(dtype)
    for normalized, shape in (([8], (2, 3, 4, 1)), ([4, 8], (2, 3, 1, 1)), ([2, 3, 4, 8], (1, 1, 1, 1))):
        _, mean, rstd = layer_norm(x, normalized)
        assert mean.shape == rstd.shape == shape
        assert mean.dtype == rstd.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)


@each("dtype", FLOATING)
def test_no_rows(dtype, device):
    x = torch.randn(0, 3, 8, device=device).to(dtype)
    weight = torch.randn(8, device=device).to(dtype)
    actual = layer_norm(x, [8], weight, weight, EPS)
    native = aten.native_layer_norm(x, [8], weight, weight, EPS)
    assert actual[0].shape == native[0].shape
    assert actual[1].shape == actual[2].shape == (0, 3, 1)
    gradients = layer_norm_backward(x, x, [8], *actual[1:], weight, weight, [True] * 3)
    native = aten.native_layer_norm_backward(x, x, [8], *native[1:], weight, weight, [True] * 3)
    for ours, theirs in zip(gradients, native, strict=True):
        assert_same_answer(ours, theirs, theirs)


@each("shape", [(3, 0), (2, 3, 0), (0, 0)])
def test_no_columns(shape, device):
    x = torch.randn(shape, device=device)
    weight = torch.randn(0, device=device)
    actual = layer_norm(x, [0], weight, weight, EPS)
    native = aten.native_layer_norm(x, [0], weight, weight, EPS)
    for ours, theirs in zip(actual, native, strict=True):
        assert_same_answer(ours, theirs, theirs)
    gradients = layer_norm_backward(x, x, [0], *actual[1:], weight, weight, [True] * 3)
    native = aten.native_layer_norm_backward(x, x, [0], *native[1:], weight, weight, [True] * 3)
    for ours, theirs in zip(gradients, native, strict=True):
        assert_same_answer(ours, theirs, theirs)


@each("value", [math.nan, math.inf, -math.inf])
@each("shape, k", FEW)
def test_values_that_are_not_finite_stay_in_their_row_and_column(shape, k, value, device):
    """Whether infinities make an infinity or a NaN depends on the order of the operations; which elements does not."""
    case = Case(shape, k, torch.float32, device)
    arguments = case.normalized, case.weight, case.bias
    clean = [*layer_norm(case.x, *arguments, EPS)]
    clean += layer_norm_backward(case.dy, case.x, case.normalized, *clean[1:], *arguments[1:], [True] * 3)
    case.dy.view(-1, math.prod(case.normalized))[-1, -2] = value
    case.x.view(-1, math.prod(case.normalized))[0, 5] = value
    actual = [*layer_norm(case.x, *arguments, EPS)]
    actual += layer_norm_backward(case.dy, case.x, case.normalized, *actual[1:], *arguments[1:], [True] * 3)
    native = [*aten.native_layer_norm(case.x, *arguments, EPS)]
    native += aten.native_layer_norm_backward(case.dy, case.x, case.normalized, *native[1:], *arguments[1:], [True] * 3)
    for ours, theirs, before in zip(actual, native, clean, strict=True):
        assert torch.equal(torch.isfinite(ours), torch.isfinite(theirs))
        unharmed = torch.isfinite(ours)
        assert ours.dim() == 1 or torch.equal(ours[unharmed], before[unharmed])
    for ours, theirs in zip(actual[:3], native[:3], strict=True):
        assert torch.equal(torch.isnan(ours), torch.isnan(theirs))


@pytest.mark.parametrize("eps", [0.0, 1.0, 1e-12, -1e-5])
@each("dtype", [torch.float32, torch.float64])
def test_eps(eps, dtype, device):
    x = torch.cat([torch.randn(3, 40, device=device), torch.ones(2, 40, device=device)]).to(dtype)
    actual = layer_norm(x, [40], None, None, eps)
    native = aten.native_layer_norm(x, [40], None, None, eps)
    truth = aten.native_layer_norm(x.double(), [40], None, None, eps)
    for ours, theirs, exact in zip(actual, native, truth, strict=True):
        assert_same_answer(ours, theirs, exact)


@each("dtype", [torch.float16, torch.bfloat16])
def test_half_input_with_wide_parameters(dtype, device):
    """No CUDA kernel of PyTorch takes this; upstream's does, and keeps each gradient in its tensor's dtype."""
    case = Case((19, 300), 1, dtype, device)
    weight, bias = case.weight.float(), case.bias.float()
    y, mean, rstd = layer_norm(case.x, case.normalized, weight, bias, EPS)
    dx, dweight, dbias = layer_norm_backward(case.dy, case.x, case.normalized, mean, rstd, weight, bias, [True] * 3)
    wide = case.x.float(), case.normalized
    native_y, *statistics = aten.native_layer_norm(*wide, weight, bias, EPS)
    native = aten.native_layer_norm_backward(case.dy.float(), *wide, *statistics, weight, bias, [True] * 3)
    exact = case.exact()
    assert_same_answer(y, native_y.to(dtype), exact[0])
    assert_same_answer(dx, native[0].to(dtype), exact[3])
    assert_same_answer(dweight, native[1], exact[4])
    assert_same_answer(dbias, native[2], exact[5])


@each("dtype", FLOATING)
@each("shape, k", FEW)
def test_through_autograd_and_dispatch(shape, k, dtype, overridden, device):
    case = Case(shape, k, dtype, device)

    def gradients() -> tuple[torch.Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (case.x, case.weight, case.bias)]
        y = torch.nn.functional.layer_norm(leaves[0], case.normalized, leaves[1], leaves[2], EPS)
        return (y.detach(), *torch.autograd.grad(y, leaves, case.dy))

    native = gradients()
    with overridden():
        actual = gradients()
    exact = case.exact()
    for ours, theirs, truth in zip(actual, native, (exact[0], *exact[3:]), strict=True):
        assert_same_answer(ours, theirs, truth)


@triton.jit
def _second_group_leaves(slots_ptr, M, GROUP):
    if tl.program_id(0) // GROUP == 1:
        clear_last(slots_ptr, M, GROUP, 1, 32)


def test_a_group_that_leaves_clears_the_words_of_its_last_row_alone():
    """Those of the next row belong to another group, which may be waiting for them."""
    M, group, groups = 7, 4, 3
    slots = torch.ones(M * group + groups, dtype=torch.int64, device="cuda" if ON_GPU else "cpu")
    slots[M * group :] = 0
    _second_group_leaves[(groups * group,)](slots, M, group)
    rows, counts = slots[: M * group].view(M, group), slots[M * group :]
    assert rows.sum(1).tolist() == [4, 4, 4, 4, 0, 4, 4]
    assert counts.tolist() == [0, 0, 0]
