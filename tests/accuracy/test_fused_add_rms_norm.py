# SPDX-License-Identifier: Apache-2.0
"""fused_add_rms_norm, of which the truth is rms_norm of the sum, written to where the arguments are."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, ON_GPU, assert_same_error, each
from accuracy.test_rms_norm import EPS
from accuracy.test_rms_norm import Case as RmsNormCase

from flag_gems_overrides.ops.families.norm import rms_plan
from flag_gems_overrides.ops.fused_add_rms_norm import fused_add_rms_norm

# (shape, number of normalized dimensions): a whole vector and three columns, rows with and without edges, of several
# programs, in loops.
SHAPES = [((33, 8), 1), ((700, 3), 1), ((4, 16, 64), 2), ((19, 1001), 1), ((3, 20000), 1), ((7, 1), 1), ((300,), 1)]
if ON_GPU:
    SHAPES += [((8192, 4096), 1), ((65536, 128), 1), ((4096, 768), 1), ((2**20, 8), 1), ((1000, 8192), 1)]
    SHAPES += [((1, 4099), 1), ((257, 50257), 1), ((30, 2**18), 1), ((16, 8, 128, 128), 3), ((1024, 1023), 1)]
# The host needs half a minute in longdouble for the truth about more elements in float64.
WITH_DTYPES = [
    (*case, dtype) for case in SHAPES for dtype in FLOATING if dtype != torch.float64 or math.prod(case[0]) <= 2**24
]
FEW = [((4, 16, 64), 1), ((9, 301), 1), ((90, 3), 1), ((90, 4), 1)]
# In a loop, and by several programs.
LONG = [((5, 1001), 1), ((5, 1024), 1), ((1, 1001), 1), ((3, 2, 40, 50), 2)]


class Case(RmsNormCase):
    """Inputs of one dtype, and what comes out of them."""

    def __init__(self, shape, k, dtype, device):
        super().__init__(shape, k, dtype, device)
        self.residual, self.dtotal = (torch.randn(shape, device=device).to(dtype) for _ in range(2))

    def results(self, function, weighted: bool = True) -> list[torch.Tensor]:
        """[y, sum, and the gradients of x, residual and weight]; arguments keep their strides."""
        leaves = [t.detach().requires_grad_() for t in (self.x, self.residual, *([self.weight] if weighted else []))]
        x, residual = (like(leaf) for leaf in leaves[:2])
        y, total = function(x, residual, self.normalized, leaves[2] if weighted else None, EPS)
        assert (y is x, total is residual) == (True, True)
        return [y.detach(), total.detach(), *torch.autograd.grad((y, total), leaves, (self.dy, self.dtotal))]

    def of_the_sum(self) -> list[torch.Tensor]:
        """The truth about :meth:`results`."""
        case = copy.copy(self)
        case.x = self.x + self.residual
        y, _, dx, dweight = case.exact()
        dx = dx + self.dtotal.double()
        return [y, self.x.double() + self.residual.double(), dx, dx, dweight]

    def check(self, weighted: bool = True) -> None:
        if not weighted:
            self.weight = torch.ones_like(self.weight)
        actual, native = (self.results(function, weighted) for function in (fused_add_rms_norm, composed))
        truths = self.of_the_sum()[: len(actual)]
        for ours, theirs, truth in zip(actual, native, truths, strict=True):
            assert_same_answer(ours, theirs, truth)
        # Without a gradient nothing else is stored, and Triton may lay a row out over other lanes: its sum of squares
        # is added in another order.
        x, residual = like(self.x), like(self.residual)
        fused_add_rms_norm(x, residual, self.normalized, self.weight if weighted else None, EPS)
        assert_same_answer(x, native[0], truths[0])
        assert torch.equal(residual, self.x + self.residual)
        assert torch.equal(residual, actual[1])


def like(x: torch.Tensor) -> torch.Tensor:
    """A copy in memory that is laid out in the same way, and is as aligned; a view if it has to be one."""
    if x.is_contiguous() and not x.storage_offset():
        return x.clone()
    end = x.storage_offset() + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True)) + 1
    memory = torch.full((max(end, 0),), math.nan, dtype=x.dtype, device=x.device)
    return torch.as_strided(memory, x.shape, x.stride(), x.storage_offset()).copy_(x)


def composed(x, residual, normalized, weight, eps):
    total = residual + x
    return x.copy_(torch.rms_norm(total, normalized, weight, eps)), residual.copy_(total)


@pytest.fixture
def small_device(device_with):
    """A device on which even short rows do not fit its programs."""
    device_with(registers_per_sm=1024, sm_count=2)


@each("shape, k, dtype", WITH_DTYPES)
def test_fused_add_rms_norm(shape, k, dtype, device):
    Case(shape, k, dtype, device).check()


@each("dtype", FLOATING)
@each("shape, k", LONG)
def test_rows_too_long_for_a_program(shape, k, dtype, device, small_device):
    Case(shape, k, dtype, device).check()


@each("dtype", FLOATING)
@each("shape", [(20, 9008), (20, 9001)])
def test_programs_that_share_long_rows(shape, dtype, device, device_with):
    device_with(registers_per_sm=32768, sm_count=8, l2_bytes=1 << 15)
    Case(shape, 1, dtype, device).check()


@each("dtype", FLOATING)
def test_a_single_row_by_two_kernels(dtype, device, device_with, monkeypatch):
    """With less than a vector behind its whole blocks."""
    monkeypatch.setattr(rms_plan, "MAX_SHARED_ROW", 1 << 14)
    device_with(registers_per_sm=32768, sm_count=4)
    Case((1, 20487), 1, dtype, device).check()


@each("shape, k", FEW)
def test_without_weight(shape, k, device):
    Case(shape, k, torch.bfloat16, device).check(weighted=False)


LAYOUTS = {
    "every second": lambda x: torch.stack([x, -x], -1)[..., 0],
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "misaligned": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=[name.replace(" ", "-") for name in LAYOUTS])
@each("shape, k", FEW)
def test_layouts(shape, k, layout, device):
    """x and residual of different ones, too."""
    case = Case(shape, k, torch.float32, device)
    case.residual, case.weight, case.dy, case.dtotal = map(layout, (case.residual, case.weight, case.dy, case.dtotal))
    case.check()
    case.x = layout(case.x)
    case.check()


@each("which", ["x", "residual"])
def test_what_lies_between_the_elements_is_left_alone(which, device):
    case = Case((9, 301), 1, torch.float32, device)
    given = {"x": case.x, "residual": case.residual}
    wide = torch.full((9, 602), 7.0, device=device)
    wide[:, ::2] = given[which]
    given[which] = wide[:, ::2]
    fused_add_rms_norm(given["x"], given["residual"], case.normalized, case.weight, EPS)
    assert torch.equal(wide[:, 1::2], torch.full_like(wide[:, 1::2], 7.0))


@each("differentiable", [True, False])
def test_versions_tell_autograd_what_was_written_to(differentiable, device):
    case = Case((4, 8), 1, torch.float32, device)
    x, residual, weight = case.x, case.residual, case.weight.requires_grad_(differentiable)
    before = x._version, residual._version
    fused_add_rms_norm(x, residual, case.normalized, weight, EPS)
    assert x._version > before[0]
    assert residual._version > before[1]
    kept = torch.ones_like(x, requires_grad=True)
    product = kept * x
    fused_add_rms_norm(x.detach(), residual.detach(), case.normalized, None, EPS)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@each("dtype", [torch.float32, torch.float64])
def test_layers_in_a_row_share_a_residual(dtype, device):
    """The second writes to what the first has returned."""
    case = Case((5, 301), 1, dtype, device)

    def gradients(function) -> tuple[torch.Tensor, ...]:
        leaves = [t.detach().clone().requires_grad_() for t in (case.x, case.residual, case.weight)]
        x, residual = (leaf * 1 for leaf in leaves[:2])
        for _ in range(3):
            x, residual = function(x * 2, residual, case.normalized, leaves[2], EPS)
        return torch.autograd.grad((x * case.dy).sum() + residual.square().sum(), leaves)

    for ours, theirs in zip(gradients(fused_add_rms_norm), gradients(composed), strict=True):
        torch.testing.assert_close(ours, theirs)


@each("output", [0, 1])
def test_the_gradient_of_one_of_the_results(output, device):
    case = Case((5, 301), 1, torch.float32, device)

    def gradients(function) -> tuple[torch.Tensor | None, ...]:
        leaves = [t.detach().clone().requires_grad_() for t in (case.x, case.residual, case.weight)]
        results = function(leaves[0] * 1, leaves[1] * 1, case.normalized, leaves[2], EPS)
        return torch.autograd.grad(results[output], leaves, case.dy, allow_unused=True)

    for ours, theirs in zip(gradients(fused_add_rms_norm), gradients(composed), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs)


@each("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_only_what_needs_a_gradient_has_one(wanted, device):
    case = Case((9, 301), 1, torch.float32, device)
    everything = case.results(fused_add_rms_norm)[2:]
    leaves = [t.requires_grad_(at in wanted) for at, t in enumerate((case.x, case.residual, case.weight))]
    results = fused_add_rms_norm(leaves[0] * 1, leaves[1] * 1, case.normalized, leaves[2], EPS)
    torch.autograd.backward(results, (case.dy, case.dtotal))
    for at, leaf in enumerate(leaves):
        assert (leaf.grad is not None) == (at in wanted)
        if at in wanted:
            torch.testing.assert_close(leaf.grad, everything[at])


@each("which", ["x", "residual"])
def test_a_leaf_that_needs_a_gradient_is_refused_and_stays_as_it_is(which, device):
    case = Case((3, 8), 1, torch.float32, device)
    leaf = getattr(case, which).requires_grad_()
    before = case.x.detach().clone(), case.residual.detach().clone()
    arguments = case.x, case.residual, case.normalized, case.weight, EPS
    assert_same_error(lambda: fused_add_rms_norm(*arguments), lambda: leaf.add_(1))
    assert torch.equal(case.x, before[0])
    assert torch.equal(case.residual, before[1])
    with torch.no_grad():
        fused_add_rms_norm(*arguments)
    assert torch.equal(case.residual.detach(), before[0] + before[1])


def test_no_gradient_of_the_gradient(device):
    """Said, and not wrong."""
    case = Case((3, 5), 1, torch.float64, device)
    x = case.x.requires_grad_()
    y, _ = fused_add_rms_norm(x * 1, case.residual, case.normalized, case.weight, EPS)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@each("value", [math.nan, math.inf])
@each("which", ["x", "residual"])
@each("shape, k", FEW)
def test_values_that_are_not_finite_stay_in_their_row(shape, k, which, value, device):
    case = Case(shape, k, torch.float32, device)
    getattr(case, which).view(-1, shape[-1])[1, 0] = value
    y, _, dx, *_ = case.results(fused_add_rms_norm)
    for result in (y, dx):
        finite = torch.isfinite(result.view(-1, shape[-1])).all(1)
        assert finite.tolist() == [row != 1 for row in range(len(finite))]


@each("dtype", FLOATING)
@each("shape", [(0, 8), (3, 0), (0, 0)])
def test_empty(shape, dtype, device):
    case = Case(shape, 1, dtype, device)
    for ours, theirs in zip(case.results(fused_add_rms_norm), case.results(composed), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@each("shape, k", [((19, 1001), 1), ((3, 20000), 1)])
def test_the_same_call_has_the_same_bits(shape, k, device):
    case = Case(shape, k, torch.float32, device)
    for first, second in zip(case.results(fused_add_rms_norm), case.results(fused_add_rms_norm), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("shape", "normalized", "weight"),
    [
        ((3, 8), [7], None),
        ((4, 3, 7), [3, 8], None),
        ((8,), [3, 8], None),
        ((3, 8), [], None),
        ((3, 8), [8], (7,)),
        ((3, 4, 8), [4, 8], (8,)),
    ],
)
def test_errors(shape, normalized, weight, device):
    x, residual = torch.randn(shape, device=device), torch.randn(shape, device=device)
    weight = None if weight is None else torch.ones(weight, device=device)
    before = x.clone(), residual.clone()
    arguments = x, residual, normalized, weight, EPS
    assert_same_error(lambda: fused_add_rms_norm(*arguments), lambda: composed(*arguments))
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])
