# SPDX-License-Identifier: Apache-2.0
"""skip_layer_norm, of which the truth is layer_norm of the sum."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, ON_GPU, assert_same_error, each
from accuracy.test_layernorm import EPS
from accuracy.test_layernorm import Case as LayerNormCase

from flag_gems_overrides.ops.skip_layernorm import skip_layer_norm

# (shape, number of normalized dimensions): a whole vector and three columns, rows with and without edges, of several
# programs, in loops.
SHAPES = [((33, 8), 1), ((700, 3), 1), ((4, 16, 64), 2), ((19, 1001), 1), ((3, 5000), 1), ((7, 1), 1), ((300,), 1)]
if ON_GPU:
    SHAPES += [((8192, 4096), 1), ((65536, 128), 1), ((4096, 768), 1), ((2**20, 8), 1), ((1000, 8192), 1)]
    SHAPES += [((1, 4099), 1), ((257, 50257), 1), ((30, 2**18), 1), ((16, 8, 128, 128), 3), ((1024, 1023), 1)]
# The host needs half a minute in longdouble for the truth about more elements in float64.
WITH_DTYPES = [
    (*case, dtype) for case in SHAPES for dtype in FLOATING if dtype != torch.float64 or math.prod(case[0]) <= 2**24
]
FEW = [((4, 16, 64), 1), ((9, 301), 1), ((90, 3), 1), ((90, 4), 1)]
LONG = [((5, 1001), 1), ((3, 2, 40, 50), 2)]


class Case(LayerNormCase):
    """Inputs of one dtype, and what comes out of them."""

    def __init__(self, shape, k, dtype, device):
        super().__init__(shape, k, dtype, device)
        self.residual = torch.randn(shape, device=device).to(dtype)

    def results(self, function, parameters: bool = True) -> list[torch.Tensor]:
        """[y, and the gradients of x, residual, weight and bias]"""
        leaves = [self.x, self.residual, *([self.weight, self.bias] if parameters else [])]
        leaves = [t.detach().requires_grad_() for t in leaves]
        x, residual, weight, bias = leaves if parameters else (*leaves, None, None)
        y = function(x, residual, self.normalized, weight, bias, EPS)
        return [y.detach(), *torch.autograd.grad(y, leaves, self.dy)]

    def of_the_sum(self) -> list[torch.Tensor]:
        """The truth about :meth:`results`."""
        wide = torch.promote_types(self.x.dtype, torch.float32)
        case = copy.copy(self)
        case.x = self.x.to(wide) + self.residual.to(wide)
        y, _, _, dx, dweight, dbias = case.exact()
        return [y, dx, dx, dweight, dbias]

    def check(self, parameters: bool = True) -> None:
        if not parameters:
            self.weight, self.bias = torch.ones_like(self.weight), torch.zeros_like(self.bias)
        actual, native = (self.results(function, parameters) for function in (skip_layer_norm, composed))
        assert actual[0].is_contiguous()
        for ours, theirs, truth in zip(actual, native, self.of_the_sum()[: len(actual)], strict=True):
            assert_same_answer(ours, theirs, truth)
        with torch.no_grad():
            rest = (self.weight, self.bias) if parameters else (None, None)
            alone = skip_layer_norm(self.x, self.residual, self.normalized, *rest, EPS)
        assert torch.equal(alone, actual[0])


def composed(x, residual, normalized, weight, bias, eps):
    return torch.layer_norm(x + residual, normalized, weight, bias, eps)


@pytest.fixture
def small_device(device_with):
    """A device on which even short rows do not fit its programs."""
    device_with(registers_per_sm=1024, sm_count=1)


@each("dtype", [torch.float16, torch.bfloat16])
@each("shape", [(70, 141), (67, 255)])
def test_many_odd_rows_of_16_bits(shape, dtype, device, device_with):
    """A tile of four rows in chunks of 32, with all rows and not."""
    device_with(sm_count=2)
    Case(shape, 1, dtype, device).check()


@each("shape, k, dtype", WITH_DTYPES)
def test_skip_layer_norm(shape, k, dtype, device):
    Case(shape, k, dtype, device).check()


@each("dtype", FLOATING)
@each("shape, k", LONG)
def test_rows_too_long_for_all_programs(shape, k, dtype, device, small_device):
    Case(shape, k, dtype, device).check()


@each("shape, k", FEW)
def test_without_weight_and_bias(shape, k, device):
    Case(shape, k, torch.bfloat16, device).check(parameters=False)


LAYOUTS = {
    "every second": lambda x: torch.stack([x, -x], -1)[..., 0],
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "expanded": lambda x: x[:1].expand(x.shape),
    "misaligned": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=[name.replace(" ", "-") for name in LAYOUTS])
@each("shape, k", FEW)
def test_layouts(shape, k, layout, device):
    """x and residual of different ones, too."""
    case = Case(shape, k, torch.float32, device)
    case.residual, case.weight, case.bias, case.dy = map(layout, (case.residual, case.weight, case.bias, case.dy))
    case.check()
    case.x = layout(case.x)
    case.check()


@each("dtype", [torch.float16, torch.bfloat16])
@each("shape, k", FEW)
def test_the_sum_of_halves_is_rounded(shape, k, dtype, device):
    """As PyTorch's: a gradient computed from a rounded sum and the mean of another is many times too large where all
    elements of a row are equal."""
    case = Case(shape, k, dtype, device)
    case.x, case.residual = torch.full_like(case.x, 3.0), torch.full_like(case.x, 1 / 300)
    case.weight = torch.ones_like(case.weight)
    case.check()
    y = skip_layer_norm(case.x, case.residual, case.normalized, None, None, EPS)
    assert torch.equal(y, torch.zeros_like(y))


@each("value", [math.nan, math.inf])
@each("which", ["x", "residual"])
@each("shape, k", FEW)
def test_values_that_are_not_finite_stay_in_their_row(shape, k, which, value, device):
    case = Case(shape, k, torch.float32, device)
    getattr(case, which).view(-1, shape[-1])[1, 0] = value
    y, dx, *_ = case.results(skip_layer_norm)
    for result in (y, dx):
        finite = torch.isfinite(result.view(-1, shape[-1])).all(1)
        assert finite.tolist() == [row != 1 for row in range(len(finite))]


@each("dtype", FLOATING)
@each("shape", [(0, 8), (3, 0), (0, 0)])
def test_empty(shape, dtype, device):
    case = Case(shape, 1, dtype, device)
    for ours, theirs in zip(case.results(skip_layer_norm), case.results(composed), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@each("wanted", [(0,), (1,), (2,), (3,), (0, 3), (1, 2)])
def test_only_what_needs_a_gradient_has_one(wanted, device):
    case = Case((9, 301), 1, torch.float32, device)
    everything = case.results(skip_layer_norm)[1:]
    leaves = [case.x, case.residual, case.weight, case.bias]
    for at in wanted:
        leaves[at].requires_grad_()
    x, residual, weight, bias = leaves
    skip_layer_norm(x, residual, case.normalized, weight, bias, EPS).backward(case.dy)
    for at, leaf in enumerate(leaves):
        assert (leaf.grad is not None) == (at in wanted)
        if at in wanted:
            torch.testing.assert_close(leaf.grad, everything[at])
    with torch.no_grad():
        assert not skip_layer_norm(x, residual, case.normalized, weight, bias, EPS).requires_grad


def test_gradient_of_the_gradient(device):
    case = Case((3, 5), 1, torch.float64, device)

    def second(function) -> tuple[torch.Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (case.x, case.residual, case.weight, case.bias)]
        y = function(*leaves[:2], [5], *leaves[2:], EPS)
        first = torch.autograd.grad(y.pow(3).sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    for ours, theirs in zip(second(skip_layer_norm), second(composed), strict=True):
        torch.testing.assert_close(ours, theirs)


@each("shape, k", [((19, 1001), 1), ((3, 20000), 1)])
def test_the_same_call_has_the_same_bits(shape, k, device):
    case = Case(shape, k, torch.float32, device)
    for first, second in zip(case.results(skip_layer_norm), case.results(skip_layer_norm), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("shape", "normalized", "weight", "bias"),
    [
        ((3, 8), [7], None, None),
        ((4, 3, 7), [3, 8], None, None),
        ((8,), [3, 8], None, None),
        ((3, 8), [], None, None),
        ((3, 8), [8], (7,), None),
        ((3, 8), [8], None, (1, 8)),
    ],
)
def test_errors(shape, normalized, weight, bias, device):
    x = torch.randn(shape, device=device)
    weight = None if weight is None else torch.ones(weight, device=device)
    bias = None if bias is None else torch.ones(bias, device=device)
    arguments = x, x, normalized, weight, bias, EPS
    assert_same_error(lambda: skip_layer_norm(*arguments), lambda: composed(*arguments))
    with pytest.raises(RuntimeError):
        skip_layer_norm(x.requires_grad_(), *arguments[1:])
