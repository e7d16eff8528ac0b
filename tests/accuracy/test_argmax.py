# SPDX-License-Identifier: Apache-2.0
"""argmax and argmin."""

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

from flag_gems_overrides.ops.argmax import argmax
from flag_gems_overrides.ops.argmin import argmin

both = pytest.mark.parametrize(("ours", "native"), [(argmax, torch.argmax), (argmin, torch.argmin)], ids=["max", "min"])


@both
@each("shape, dim", WITH_DIM)
def test_along_a_dimension(shape, dim, ours, native, device):
    x = draw(shape, torch.bfloat16, device)
    assert_same(ours(x, dim), native(x, dim))
    x = put_nans(x)
    assert_same(ours(x, dim, True), native(x, dim, True))


@both
@each("keepdim", [False, True])
@each("shape", [*FEW, (), (1,), (3, 5000)])
def test_whole(shape, keepdim, ours, native, device):
    x = draw(shape, torch.float32, device)
    assert_same(ours(x, None, keepdim), native(x, None, keepdim))
    x = put_nans(x)
    assert_same(ours(x), native(x))


@both
@each("dtype", [*FLOATING, *INTEGER[1:]])
@each("shape", FEW)
def test_dtypes(shape, dtype, ours, native, device):
    x = draw(shape, dtype, device)
    assert_same(ours(x), native(x))
    assert_same(ours(x, 0), native(x, 0))


@both
@layouts
@each("shape, dim", FEW_WITH_DIM)
def test_layouts(shape, dim, layout, ours, native, device):
    x = layout(draw(shape, torch.float32, device))
    assert_same(ours(x, dim), native(x, dim))
    assert_same(ours(x), native(x))


@both
def test_ties_are_counted_row_by_row(ours, native, device):
    x = torch.zeros(4, 5, device=device).t()
    x[1, 2] = x[3, 0] = 1 if ours is argmax else -1
    assert ours(x).item() == native(x).item() == 6


@both
@each("shape, dim", [((0,), None), ((3, 0), 1), ((3, 4), 2), ((), 1)])
def test_errors(shape, dim, ours, native, device):
    x = torch.ones(shape, device=device)
    assert_same_error(lambda: ours(x, dim), lambda: native(x, dim))


@both
def test_bool_is_refused(ours, native, device):
    x = torch.ones(3, dtype=torch.bool, device=device)
    assert_same_error(lambda: ours(x), lambda: native(x))


@both
def test_dispatched(ours, native, overridden, device):
    x = draw((5, 3000), torch.float32, device)
    expected = native(x), native(x, 0), native(x, 1)
    with overridden():
        actual = native(x), native(x, 0), native(x, 1)
    for each_actual, each_expected in zip(actual, expected, strict=True):
        assert_same(each_actual, each_expected)
