# SPDX-License-Identifier: Apache-2.0
"""max and max.dim."""

from __future__ import annotations

import pytest
import torch
from accuracy.reductions import (
    FEW,
    FEW_WITH_DIM,
    FLOATING,
    INTEGER,
    SHAPES,
    WITH_DIM,
    assert_same,
    assert_same_error,
    draw,
    each,
    layouts,
    put_nans,
)

from flag_gems_overrides.ops.amax import amax
from flag_gems_overrides.ops.max import max, max_dim
from flag_gems_overrides.ops.min import min_dim

nan, inf = float("nan"), float("inf")


def _check_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> None:
    actual, native = max_dim(x, dim, keepdim), torch.max(x, dim, keepdim)
    assert_same(actual.values, native.values)
    assert_same(actual.indices, native.indices)


@each("dtype", FLOATING)
@each("shape", SHAPES)
def test_whole(shape, dtype, device):
    x = draw(shape, dtype, device)
    assert_same(max(x), torch.max(x))
    assert_same(max(put_nans(x)), torch.max(put_nans(x)))


@each("dtype", FLOATING)
@each("shape, dim", WITH_DIM)
def test_along_a_dimension(shape, dim, dtype, device):
    x = draw(shape, dtype, device)
    _check_dim(x, dim)
    _check_dim(put_nans(x), dim, keepdim=True)


@each("dtype", INTEGER)
@each("shape", FEW)
def test_integers(shape, dtype, device):
    x = draw(shape, dtype, device)
    assert_same(max(x), torch.max(x))
    for dim in range(len(shape)):
        _check_dim(x, dim)


@each("dtype", [torch.int64, torch.int8])
def test_extreme_integers(dtype, device):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.tensor([[low, low, low], [high - 1, high, high], [low, low + 1, low]], dtype=dtype, device=device)
    _check_dim(x, 0)
    _check_dim(x, 1)


@each("shape, dim", [((3, 5), 1), ((3, 5), 0), ((2, 40000), 1), ((9000, 3), 0), ((3, 3001, 5), 1)])
@each("value", [0.0, -inf, inf, nan])
def test_the_first_of_equals(shape, dim, value, device):
    """Wherever equal elements are, the first counts: of all, of the last few, of two far apart, and of zeros of
    different sign."""
    x = torch.full(shape, value, device=device)
    _check_dim(x, dim)
    if value == 0.0:
        x = torch.where(torch.rand(shape, device=device) < 0.5, 0.0, -0.0)
        _check_dim(x, dim)
    if value == -inf:
        return
    low = torch.full(shape, -inf, device=device)
    far = low.clone()
    far.select(dim, shape[dim] // 3).fill_(value)
    far.select(dim, shape[dim] - 1).fill_(value)
    _check_dim(far, dim)


# Short rows, rows in vectors and edges, long ones in splits, with few K and with many; an odd number of rows.
ANYWHERE = [(33, 1), (301, 1), (5001, 1), (20001, 1), (301, 3), (3001, 3), (18, 20), (601, 40)]


@each("dtype", [torch.float32, torch.float64])
@each("N, K", ANYWHERE)
def test_wherever_the_extreme_is(N, K, dtype, device):
    """In each row at another place; then everywhere from there on; and a NaN is more extreme still."""
    places = [0, N // 3, N // 2, 15, 16, N - 17, N - 16, N - 2, 1, 3, N - 4, N - 3, N - 1]
    x = draw((len(places), N, K), torch.int8, device).to(dtype)
    for row, place in enumerate(places):
        x[row, place] = 101
    _check_both(x - 200)  # a padding of 0 would be larger
    for row, place in enumerate(places):
        x[row, place:] = 101
    _check_both(x)
    for row, place in enumerate(reversed(places)):
        x[row, place] = nan
    _check_both(x)


def _check_both(x: torch.Tensor) -> None:
    _check_dim(x, 1)
    actual, native = min_dim(-x, 1), torch.min(-x, 1)
    assert_same(actual.values, native.values)
    assert_same(actual.indices, native.indices)
    assert_same(amax(x, 1), native.values.neg())


@layouts
@each("dtype", [torch.float32, torch.float16])
@each("shape, dim", FEW_WITH_DIM)
def test_layouts(shape, dim, dtype, layout, device):
    x = layout(draw(shape, dtype, device))
    assert_same(max(x), torch.max(x))
    _check_dim(x, dim)


def test_upstream_s_strided_case(device):
    x = draw((200, 260, 3), torch.float32, device)[::2, ::2]
    assert_same(max(x), torch.max(x))
    _check_dim(x, 1)


@each("shape, dim", [((0, 3), 1), ((3, 0), 0), ((2, 0, 4), 0), ((), 0)])
def test_empty_result_and_0_dim(shape, dim, device):
    _check_dim(torch.ones(shape, device=device), dim)


@each("shape, dim", [((0,), 0), ((3, 0), 1), ((3, 4), 2), ((3, 4), -3), ((), 1)])
def test_errors(shape, dim, device):
    x = torch.ones(shape, device=device)
    assert_same_error(lambda: max_dim(x, dim), lambda: torch.max(x, dim))
    if not x.numel():
        assert_same_error(lambda: max(x), lambda: torch.max(x))


def test_result_has_names(device):
    result = max_dim(torch.ones(2, 3, device=device), 1)
    assert type(result) is torch.return_types.max


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_dispatched_with_autograd(dim, overridden, device):
    x = draw((5, 3000), torch.float32, device).requires_grad_()

    def run():
        y = torch.max(x) if dim is None else torch.max(x, dim).values
        return y.detach(), *torch.autograd.grad(y.sum(), x)

    native = run()
    with overridden():
        actual = run()
    for ours, theirs in zip(actual, native, strict=True):
        assert_same(ours, theirs)
