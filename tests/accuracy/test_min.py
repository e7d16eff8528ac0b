# SPDX-License-Identifier: Apache-2.0
"""min, min.dim and amin: max's reduction with the other comparison and identity."""

from __future__ import annotations

import pytest
import torch
from accuracy.reductions import (
    FEW,
    FEW_WITH_DIM,
    FLOATING,
    INTEGER,
    WITH_DIM,
    assert_same,
    assert_same_error,
    draw,
    each,
    layouts,
    put_nans,
)

from flag_gems_overrides.ops.amin import amin
from flag_gems_overrides.ops.min import min, min_dim

nan, inf = float("nan"), float("inf")


def _check(x: torch.Tensor, dim: int, keepdim: bool = False) -> None:
    actual, native = min_dim(x, dim, keepdim), torch.min(x, dim, keepdim)
    assert_same(actual.values, native.values)
    assert_same(actual.indices, native.indices)
    assert_same(amin(x, dim, keepdim), native.values)


@each("shape, dim", WITH_DIM)
def test_along_a_dimension(shape, dim, device):
    x = put_nans(draw(shape, torch.bfloat16, device))
    _check(x, dim)
    assert_same(min(x), torch.min(x))


@each("dtype", FLOATING + INTEGER)
@each("shape", FEW)
def test_dtypes(shape, dtype, device):
    x = draw(shape, dtype, device)
    assert_same(min(x), torch.min(x))
    for dim in range(len(shape)):
        _check(x, dim, keepdim=True)


@each("dtype", [torch.int64, torch.uint8])
def test_extreme_integers(dtype, device):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.tensor([[high, high, high], [low + 1, low, low], [high, high - 1, high]], dtype=dtype, device=device)
    _check(x, 0)
    _check(x, 1)


@each("shape, dim", [((3, 5), 1), ((2, 40000), 1), ((9000, 3), 0), ((3, 3001, 5), 1)])
@each("value", [0.0, -inf, inf, nan])
def test_the_first_of_equals(shape, dim, value, device):
    _check(torch.full(shape, value, device=device), dim)
    far = torch.full(shape, inf, device=device)
    far.select(dim, shape[dim] // 3).fill_(value)
    far.select(dim, shape[dim] - 1).fill_(value)
    _check(far, dim)


@layouts
@each("shape, dim", FEW_WITH_DIM)
def test_layouts(shape, dim, layout, device):
    x = layout(draw(shape, torch.float32, device))
    assert_same(min(x), torch.min(x))
    _check(x, dim)


@each("dims", [(), (0,), (0, 2), (3, 1), (1, 2, 3)])
def test_several_dimensions(dims, device):
    x = draw((7, 4, 11, 3), torch.float32, device)
    assert_same(amin(x, dims), torch.amin(x, dims))


@each("shape, dim", [((0,), 0), ((3, 0), 1), ((3, 4), 2), ((), 1)])
def test_errors(shape, dim, device):
    x = torch.ones(shape, device=device)
    assert_same_error(lambda: min_dim(x, dim), lambda: torch.min(x, dim))
    assert_same_error(lambda: amin(x, dim), lambda: torch.amin(x, dim))
    if not x.numel():
        assert_same_error(lambda: min(x), lambda: torch.min(x))
        assert_same_error(lambda: amin(x), lambda: torch.amin(x))


@pytest.mark.parametrize("dim", [None, 1])
def test_dispatched_with_autograd(dim, overridden, device):
    x = draw((5, 3000), torch.float32, device).requires_grad_()

    def run():
        y = torch.min(x) if dim is None else torch.min(x, dim).values
        return y.detach(), *torch.autograd.grad(y.sum(), x)

    native = run()
    with overridden():
        actual = run()
    for ours, theirs in zip(actual, native, strict=True):
        assert_same(ours, theirs)
