# SPDX-License-Identifier: Apache-2.0
"""rms_norm and its gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, ON_GPU, assert_same_error, each

from flag_gems_overrides.ops import _fused_rms_norm as fused
from flag_gems_overrides.ops._fused_rms_norm import _fused_rms_norm, _fused_rms_norm_backward
from flag_gems_overrides.ops.families.norm import rms_plan
from flag_gems_overrides.ops.rms_norm import rms_norm, rms_norm_backward, rms_norm_forward

EPS = 1e-5

# (shape, number of normalized dimensions): rows whole, with and without edges, several to a program; in loops; of a
# whole vector and less, and three columns. The first is upstream's.
SHAPES = [((200, 36), 1), ((65, 100), 1), ((4, 16, 64), 2), ((19, 1001), 1), ((7, 1), 1), ((300,), 1)]
SHAPES += [((3, 20000), 1), ((3, 20001), 1), ((1500, 1), 1), ((700, 3), 1), ((331, 2, 2), 2), ((33, 8), 1)]
# Gradients by programs of many warps: a tile to each, and in turn.
SHAPES += [((1100, 3), 1), ((1100, 31), 1)]
# One row, which programs share, float64 by two kernels.
SHAPES += [((9000,), 1)]
if ON_GPU:
    SHAPES += [
        ((8192, 4096), 1),
        ((65536, 128), 1),
        ((4096, 768), 1),
        ((2**20, 8), 1),
        ((1000, 8192), 1),
        ((1, 4099), 1),
    ]
    SHAPES += [((300, 16384), 1), ((257, 50257), 1), ((30, 2**18), 1), ((16, 8, 128, 128), 3), ((1024, 1023), 1)]
FEW = [
    ((4, 16, 64), 1),
    ((16, 301), 1),
    ((3, 700), 1),
    ((90, 3), 1),
    ((90, 4), 1),
    ((40, 301), 1),
    ((1100, 3), 1),
]  # one of each kind on a small device


@pytest.fixture
def small_device(device_with):
    """A device on which even short rows do not fit a program."""
    device_with(registers_per_sm=2048, sm_count=4)


class Case:
    """Inputs of one dtype, and the truth about them in 64 bits of mantissa (on x86)."""

    def __init__(self, shape, k, dtype, device, scale=2.0):
        def draw(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, device=device).to(dtype)

        self.k, self.normalized = k, list(shape[-k:])
        self.x = (torch.randn(shape, device=device) * scale + scale / 2).to(dtype)
        self.weight, self.dy = draw(shape[-k:]), draw(shape)

    def exact(self, eps: float = EPS) -> list[torch.Tensor]:
        """[y, rstd, dx, dweight]"""
        x, weight, dy = (t.double().cpu().numpy().astype(np.longdouble) for t in (self.x, self.weight, self.dy))
        over = tuple(range(-self.k, 0))
        rstd = 1 / ((x * x).mean(over, keepdims=True) + eps) ** 0.5
        xhat, g = x * rstd, dy * weight
        dx = (g - xhat * (g * xhat).mean(over, keepdims=True)) * rstd
        dweight = (dy * xhat).sum(tuple(range(x.ndim - self.k)))
        return [torch.from_numpy(r.astype(np.float64)).to(self.x.device) for r in (xhat * weight, rstd, dx, dweight)]

    def native(self, weight: torch.Tensor | None, eps: float | None) -> tuple[torch.Tensor, ...]:
        """PyTorch's output and gradients; those of half inputs by its composition, which computes in float32."""
        leaves = [t.detach().clone().requires_grad_() for t in (self.x, weight) if t is not None]
        y = torch.nn.functional.rms_norm(leaves[0], self.normalized, *leaves[1:], eps=eps)
        return (y.detach(), *torch.autograd.grad(y, leaves, self.dy))

    def check(self, weight: torch.Tensor | None, eps: float | None = EPS) -> None:
        exact = self.exact(torch.finfo(torch.promote_types(self.x.dtype, torch.float32)).eps if eps is None else eps)
        native = self.native(weight, eps)
        y, rstd = rms_norm_forward(self.x, self.normalized, weight, eps)
        assert rstd.shape == (*self.x.shape[: -self.k], *(1,) * self.k)
        assert rstd.dtype is (torch.float64 if self.x.dtype is torch.float64 else torch.float32)
        dx, dweight = rms_norm_backward(self.dy, self.x, rstd, self.normalized, weight)
        assert_same_answer(rstd, exact[1].to(rstd.dtype), exact[1])
        assert_same_answer(y, native[0], exact[0])
        assert_same_answer(dx, native[1], exact[2])
        if weight is None:
            assert dweight is None
        else:
            assert_same_answer(dweight, native[2], exact[3])


@each("dtype", FLOATING)
@each("shape, k", SHAPES)
def test_rms_norm(shape, k, dtype, device):
    case = Case(shape, k, dtype, device)
    case.check(case.weight)


@each("dtype", FLOATING)
@each("shape", [(20, 9008), (20, 9002), (20, 9001), (8, 9001), (20, 17001)])
def test_programs_that_share_long_rows(shape, dtype, device, device_with):
    """As few rows at a time as L2 holds, each by two programs."""
    device_with(registers_per_sm=32768, sm_count=8, l2_bytes=1 << 15)
    case = Case(shape, 1, dtype, device)
    case.check(case.weight)


@each("dtype", [torch.float16, torch.bfloat16])
def test_many_rows_of_pairs(dtype, device, device_with):
    """A row to a program of two warps, in two blocks, of which the second is not full."""
    device_with(sm_count=1, capability=(9, 0))
    case = Case((70, 738), 1, dtype, device)
    case.check(case.weight)


@each("M, N", [(903, 76), (1001, 140)])
def test_gradients_of_many_rows_of_fours(M, N, device, device_with):
    """In chunks of 32 lanes, the last of which is not full."""
    device_with(sm_count=1, capability=(9, 0))
    case = Case((M, N), 1, torch.bfloat16, device)
    case.check(case.weight)


@each("dtype", FLOATING)
@each("N", [40001, 40970, 40967])
def test_a_single_row_by_two_kernels(N, dtype, device, device_with, monkeypatch):
    """With less than a vector at its end, also behind whole blocks and slices, and without weight."""
    monkeypatch.setattr(rms_plan, "MAX_SHARED_ROW", N - 1)
    device_with(registers_per_sm=32768, sm_count=4)
    case = Case((1, N), 1, dtype, device)
    case.check(case.weight)
    case.weight = torch.ones_like(case.weight)
    case.check(None)


@each("dtype", FLOATING)
@each("shape, k", FEW)
def test_without_weight(shape, k, dtype, device, small_device):
    case = Case(shape, k, dtype, device)
    case.weight = torch.ones_like(case.weight)
    case.check(None)


@each("dtype", FLOATING)
def test_eps_by_default_is_of_the_type_computed_in(dtype, device):
    case = Case((5, 64), 1, dtype, device, scale=1e-4 if dtype is not torch.float64 else 1e-8)
    case.check(case.weight, None)


@each("shape, k", FEW)
def test_layouts(shape, k, device, small_device):
    case = Case(shape, k, torch.float32, device)
    case.x, case.dy = (t.transpose(0, -1).contiguous().transpose(0, -1) for t in (case.x, case.dy))
    case.weight = torch.stack([case.weight, case.weight], -1)[..., 0]
    case.check(case.weight)


def test_misaligned(device):
    case = Case((9, 64), 1, torch.bfloat16, device)
    case.x = torch.cat([case.x.flatten()[:1], case.x.flatten()])[1:].view(case.x.shape)
    case.check(case.weight)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@each("dtype, other", [(torch.bfloat16, torch.float32), (torch.float32, torch.float16)])
@each("shape, k", FEW)
def test_weight_of_another_dtype(shape, k, dtype, other, device, small_device):
    """PyTorch computes in the wider and returns the input's dtype."""
    case = Case(shape, k, dtype, device)
    case.weight = case.weight.to(other)
    case.check(case.weight)


@each("mask", [(True, False), (False, True), (False, False)])
@each("shape, k", FEW)
def test_any_mask(shape, k, mask, device, small_device):
    case = Case(shape, k, torch.float32, device)
    _, rstd = rms_norm_forward(case.x, case.normalized, case.weight, EPS)
    for wanted, gradient, truth in zip(
        mask,
        rms_norm_backward(case.dy, case.x, rstd, case.normalized, case.weight, output_mask=mask),
        case.exact()[2:],
        strict=True,
    ):
        if wanted:
            assert_same_answer(gradient, truth.float(), truth)
        else:
            assert gradient is None


@each("dtype", FLOATING)
@each("shape, k", SHAPES)
def test_without_a_gradient_the_output_has_the_same_bits(shape, k, dtype, device, small_device):
    """No statistic is stored then."""
    case = Case(shape, k, dtype, device)
    with_statistic, _ = rms_norm_forward(case.x, case.normalized, case.weight, EPS)
    assert torch.equal(rms_norm(case.x, case.normalized, case.weight, EPS), with_statistic)


@each("value", [math.nan, math.inf])
@each("shape, k", FEW)
def test_values_that_are_not_finite_stay_in_their_row(shape, k, value, device, small_device):
    case = Case(shape, k, torch.float32, device)
    case.x.view(-1, math.prod(case.normalized))[1, 2] = value
    y, rstd = rms_norm_forward(case.x, case.normalized, case.weight, EPS)
    dx, dweight = rms_norm_backward(case.dy, case.x, rstd, case.normalized, case.weight)
    # How much of the row itself is NaN depends on the kernel that PyTorch chooses.
    for result in (y.view(-1, *case.normalized), dx.view(-1, *case.normalized)):
        assert torch.isnan(result[1, 2])
        assert torch.isfinite(result).all(1).tolist() == [row != 1 for row in range(len(result))]
    assert torch.isfinite(dweight).sum() == dweight.numel() - (dweight.numel() if math.isnan(value) else 1)


@each("shape", [(0, 8), (3, 0), (0, 0)])
def test_empty(shape, device):
    x, weight = torch.randn(shape, device=device), torch.randn(shape[1:], device=device)
    y, rstd = rms_norm_forward(x, shape[1:], weight, EPS)
    assert y.shape == shape
    dx, dweight = rms_norm_backward(y, x, rstd, shape[1:], weight)
    assert dx.shape == shape
    assert torch.equal(dweight, torch.zeros_like(weight))


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
    x = torch.randn(shape, device=device)
    weight = None if weight is None else torch.ones(weight, device=device)
    arguments = x, normalized, weight, EPS
    assert_same_error(lambda: rms_norm(*arguments), lambda: torch.rms_norm(*arguments))
    with pytest.raises((RuntimeError, ValueError)):
        rms_norm_backward(x, x, x, normalized, weight)


def test_sizes_that_would_be_read_out_of_bounds(device):
    x, rstd = torch.randn(3, 8, device=device), torch.randn(3, 1, device=device)
    for dy, statistic in ((x[:2], rstd), (x, rstd[:2])):
        with pytest.raises(RuntimeError, match="elements and rstd of"):
            rms_norm_backward(dy, x, statistic, [8])


@each("dtype", [torch.float32, torch.bfloat16])
@each("shape, k", FEW)
def test_through_autograd_and_dispatch(shape, k, dtype, overridden, device, small_device):
    case = Case(shape, k, dtype, device)
    native = case.native(case.weight, EPS)
    with overridden():
        actual = case.native(case.weight, EPS)
    exact = case.exact()
    for ours, theirs, truth in zip(actual, native, (exact[0], *exact[2:]), strict=True):
        assert_same_answer(ours, theirs, truth)


def test_gradient_of_the_gradient(overridden, device):
    x, weight = torch.randn(3, 5, device=device).double(), torch.randn(5, device=device).double()

    def second() -> tuple[torch.Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (x, weight)]
        first = torch.autograd.grad(torch.rms_norm(leaves[0], [5], leaves[1]).square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    native = second()
    with overridden():
        actual = second()
    for ours, theirs in zip(actual, native, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_only_what_needs_a_gradient_has_one(overridden, device):
    x, weight = torch.randn(3, 5, device=device), torch.randn(5, device=device)
    with overridden():
        assert not torch.rms_norm(x, [5], weight).requires_grad
        with torch.no_grad():
            assert not torch.rms_norm(x, [5], weight.requires_grad_()).requires_grad
        assert torch.rms_norm(x, [5], weight).requires_grad


@each("mask", [(True, True), (True, False), (False, True)])
@each("shape, k", FEW)
def test_with_its_statistic(shape, k, mask, device, small_device):
    """What PyTorch makes of it on CUDA: the same kernels, arguments in another order."""
    case = Case(shape, k, torch.bfloat16, device)
    arguments = case.x, case.normalized, case.weight, EPS
    y, rstd = _fused_rms_norm(*arguments)
    gradients = _fused_rms_norm_backward(case.dy, case.x, case.normalized, rstd, case.weight, mask)
    same = rms_norm_backward(case.dy, case.x, rstd, case.normalized, case.weight, output_mask=mask)
    for ours, theirs in zip((y, rstd, *gradients), (*rms_norm_forward(*arguments), *same), strict=True):
        assert ours is theirs is None or torch.equal(ours, theirs)


def test_with_its_statistic_called_by_itself_it_has_a_gradient(overridden, device, monkeypatch):
    case = Case((5, 301), 1, torch.float32, device)
    leaves = case.x.requires_grad_(), case.weight.requires_grad_()
    y, _ = _fused_rms_norm(case.x, case.normalized, case.weight, EPS)
    actual = torch.autograd.grad(y, leaves, case.dy)
    native = torch.autograd.grad(torch.rms_norm(case.x, case.normalized, case.weight, EPS), leaves, case.dy)
    for ours, theirs in zip(actual, native, strict=True):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        assert not _fused_rms_norm(case.x, case.normalized, case.weight, EPS)[0].requires_grad
    # Below PyTorch's own autograd nothing is kept for a second graph.
    monkeypatch.setattr(fused._FusedRmsNorm, "forward", lambda *arguments: pytest.fail("a graph of ours"))
    with overridden():
        torch._fused_rms_norm(case.x, case.normalized, case.weight, EPS)


@each("dtype", FLOATING)
@each("weighted", [True, False])
def test_with_its_statistic_through_dispatch(dtype, weighted, overridden, device):
    """flag_gems has it from 5.3.3 on; before that it is PyTorch's."""
    case = Case((2, 3, 301), 1, dtype, device)
    case.weight = case.weight if weighted else torch.ones_like(case.weight)
    arguments = case.x, case.normalized, case.weight if weighted else None, None
    native = torch._fused_rms_norm(*arguments)
    with overridden():
        dispatched = torch._fused_rms_norm(*arguments)
    exact = case.exact(torch.finfo(torch.promote_types(dtype, torch.float32)).eps)
    for ours, theirs, truth in zip(dispatched, native, exact[:2], strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert_same_answer(ours, theirs, truth)
