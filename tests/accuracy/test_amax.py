# SPDX-License-Identifier: Apache-2.0
"""amax, over one dimension, several or all."""

from __future__ import annotations

import itertools

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

from flag_gems_overrides.ops.amax import amax


def _check(x: torch.Tensor, *args, **kwargs) -> None:
    assert_same(amax(x, *args, **kwargs), torch.amax(x, *args, **kwargs))


@each("dtype", FLOATING)
@each("shape, dim", WITH_DIM)
def test_along_a_dimension(shape, dim, dtype, device):
    x = draw(shape, dtype, device)
    _check(x, dim)
    _check(put_nans(x), [dim], keepdim=True)


@each("dtype", INTEGER)
@each("shape", FEW)
def test_integers(shape, dtype, device):
    x = draw(shape, dtype, device)
    for dim in range(len(shape)):
        _check(x, dim)
    _check(x)


DIMS = [dims for count in range(5) for dims in itertools.combinations(range(4), count)] + [(1, 0), (3, 1, 0), (-1, 0)]


@each("dims", DIMS)
@each("keepdim", [False, True])
def test_several_dimensions(dims, keepdim, device):
    x = put_nans(draw((7, 4, 11, 3), torch.float32, device))
    _check(x, dims, keepdim)
    _check(x.permute(2, 0, 3, 1), dims, keepdim)
    _check(x.to(memory_format=torch.channels_last), dims, keepdim)
    _check(x[:, 1:3], dims, keepdim)


@each("keepdim", [False, True])
def test_all_dimensions_however_they_are_said(keepdim, device):
    x = draw((3, 400, 5), torch.float16, device)
    for dim in ((), [], [0, 1, 2]):
        _check(x, dim, keepdim=keepdim)
    assert_same(amax(x, None, keepdim), torch.amax(x, (), keepdim))


@layouts
@each("shape, dim", FEW_WITH_DIM)
def test_layouts(shape, dim, layout, device):
    x = layout(draw(shape, torch.float32, device))
    _check(x, dim)
    _check(x, ())


def test_sizes_of_one(device):
    x = draw((1, 5, 1, 7, 1), torch.float32, device)
    for dims in ([0], [2], [0, 4], [1, 2], [0, 1, 2, 3, 4]):
        _check(x, dims)


@each("shape, dim", [((0, 3), 1), ((3, 0), 0), ((2, 0, 4), (0, 2)), ((), 0), ((), ()), ((), -1)])
def test_empty_result_and_0_dim(shape, dim, device):
    _check(torch.ones(shape, device=device), dim)


@each(
    "shape, dim",
    [
        ((1,) * 65, 64),
        ((0,), ()),
        ((0,), 0),
        ((3, 0), 1),
        ((3, 0), (0, 1)),
        ((3, 4), 2),
        ((3, 4), [0, -3]),
        ((3, 4), [1, -1]),
        ((), 1),
    ],
)
def test_errors(shape, dim, device):
    x = torch.ones(shape, device=device)
    assert_same_error(lambda: amax(x, dim), lambda: torch.amax(x, dim))


@pytest.mark.parametrize("dims", [(), (0,), (1,), (0, 1)])
def test_dispatched_with_autograd(dims, overridden, device):
    x = draw((5, 3000), torch.float32, device).requires_grad_()

    def run():
        y = torch.amax(x, dims)
        return y.detach(), *torch.autograd.grad(y.sum(), x)

    native = run()
    with overridden():
        actual = run()
    for ours, theirs in zip(actual, native, strict=True):
        torch.testing.assert_close(ours, theirs)
