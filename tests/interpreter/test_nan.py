# SPDX-License-Identifier: Apache-2.0
"""NaN goes where hardware lets it go."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flag_gems_overrides.interpreter.builder import Builder

NAN = float("nan")
X = [1.0, NAN, 1.0, NAN]
Y = [2.0, 2.0, NAN, NAN]


@triton.jit
def _elementwise(x_ptr, y_ptr, out_ptr):
    i = tl.arange(0, 4)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(out_ptr + i, tl.maximum(x, y))
    tl.store(out_ptr + 4 + i, tl.minimum(x, y))
    tl.store(out_ptr + 8 + i, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 12 + i, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 16 + i, tl.clamp(x, 0.0, 0.5))
    tl.store(out_ptr + 20 + i, tl.clamp(x, 0.0, 0.5, propagate_nan=tl.PropagateNan.ALL))


EXPECTED = {
    "create_maxnumf": [2.0, 2.0, 1.0, NAN],
    "create_minnumf": [1.0, 2.0, 1.0, NAN],
    "create_maximumf": [2.0, NAN, NAN, NAN],
    "create_minimumf": [1.0, NAN, NAN, NAN],
    "create_clampf": [0.5, 0.0, 0.5, 0.0, 0.5, NAN, 0.5, NAN],
}


def _results(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    out = torch.empty(24, dtype=dtype)
    _elementwise[(1,)](torch.tensor(X, dtype=dtype), torch.tensor(Y, dtype=dtype), out)
    return dict(zip(EXPECTED, out.float().split([4, 4, 4, 4, 8]), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_maximum_minimum_and_clamp(dtype: torch.dtype):
    for name, result in _results(dtype).items():
        torch.testing.assert_close(result, torch.tensor(EXPECTED[name]), equal_nan=True, msg=name)


# As the stock interpreter had them until Triton 3.8.
NUMPY = {
    "create_maxnumf": lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.maximum),
    "create_minnumf": lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.minimum),
    "create_clampf": lambda self, x, low, high, propagate_nan: self.ternary_op(x, low, high, np.clip),
}


@pytest.mark.parametrize("method", NUMPY)
def test_numpy_lets_it_through(monkeypatch: pytest.MonkeyPatch, method: str):
    monkeypatch.setattr(Builder, method, NUMPY[method])
    assert not torch.allclose(_results(torch.float32)[method], torch.tensor(EXPECTED[method]), equal_nan=True)


@triton.jit
def _reductions(x_ptr, out_ptr, index_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.max(x, 0))
    tl.store(out_ptr + 1, tl.min(x, 0))
    value, index = tl.max(x, 0, return_indices=True)
    tl.store(out_ptr + 2, value)
    tl.store(index_ptr, index)
    value, index = tl.min(x, 0, return_indices=True)
    tl.store(out_ptr + 3, value)
    tl.store(index_ptr + 1, index)


def _reduced(x: list[float]) -> tuple[list[float], list[int]]:
    out, index = torch.empty(4), torch.empty(2, dtype=torch.int32)
    _reductions[(1,)](torch.tensor(x), out, index, BLOCK=len(x))
    return out.tolist(), index.tolist()


def test_a_maximum_drops_it():
    assert _reduced([NAN, 3.0, 1.0, NAN])[0][:2] == [3.0, 1.0]
    assert str(_reduced([NAN, NAN])[0][0]) == "nan"


def test_of_equal_maxima_the_first_counts():
    assert _reduced([1.0, 3.0, 3.0, 1.0]) == ([3.0, 1.0, 3.0, 1.0], [1, 0])
    assert _reduced([-0.0, 0.0, 0.0, -0.0])[1] == [0, 0]


def test_what_the_index_says_about_it_depends_on_its_place():
    """So a kernel that relies on either does not pass here."""
    assert _reduced([5.0, 1.0, NAN, 1.0])[1][0] == 0
    assert _reduced([5.0, NAN, 1.0, 2.0])[1][0] != 0
