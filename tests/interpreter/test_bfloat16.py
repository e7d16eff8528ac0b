# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder

from flag_gems_overrides.interpreter.bfloat16 import narrow, widen
from flag_gems_overrides.interpreter.builder import Builder

ALL_BITS = np.arange(2**16, dtype=np.uint16)


def _torch_bits(values: torch.Tensor) -> np.ndarray:
    return values.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def test_widen_is_exact():
    expected = torch.from_numpy(ALL_BITS.view(np.int16)).view(torch.bfloat16).float()
    assert np.array_equal(widen(ALL_BITS), expected.numpy(), equal_nan=True)


def test_narrow_gives_back_what_widen_took():
    numbers = ~np.isnan(widen(ALL_BITS))
    assert np.array_equal(narrow(widen(ALL_BITS))[numbers], ALL_BITS[numbers])
    assert np.isnan(widen(narrow(widen(ALL_BITS))[~numbers])).all()


def test_narrow_rounds_to_nearest_even():
    # Every bfloat16, and the float32 just below, at and just above half-way to the next.
    offsets = np.array([0, 0x7FFF, 0x8000, 0x8001], np.uint32)
    values = ((ALL_BITS.astype(np.uint32) << 16)[:, None] + offsets).view(np.float32).ravel()
    values = values[~np.isnan(values)]
    assert np.array_equal(narrow(values), _torch_bits(torch.from_numpy(values)))


@triton.jit
def _arithmetic(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    z = tl.load(z_ptr + i)
    tl.store(out_ptr + i, x + y)
    tl.store(out_ptr + n + i, x * y)
    tl.store(out_ptr + 2 * n + i, x - y)
    tl.store(out_ptr + 3 * n + i, tl.fma(x, y, z))
    tl.store(out_ptr + 4 * n + i, -x)
    tl.store(out_ptr + 5 * n + i, x + 1.5)
    tl.store(out_ptr + 6 * n + i, tl.where(x > y, x, y))
    tl.store(out_ptr + 7 * n + i, (x < y).to(tl.bfloat16))
    tl.store(out_ptr + 8 * n + i, tl.maximum(x, y))
    tl.store(out_ptr + 9 * n + i, x.to(tl.float32) / y.to(tl.float32))
    tl.store(out_ptr + 10 * n + i, tl.full([BLOCK], 0.3, tl.bfloat16))
    tl.store(out_ptr + 11 * n + i, (x * 100).to(tl.int32).to(tl.bfloat16))
    tl.store(out_ptr + 12 * n + i, tl.abs(x))


def _results() -> tuple[torch.Tensor, list[torch.Tensor]]:
    n = 256
    x, y, z = torch.randn(3, n).to(torch.bfloat16)
    out = torch.empty(13, n, dtype=torch.bfloat16)
    _arithmetic[(1,)](x, y, z, out, n, BLOCK=n)
    expected = [
        x + y,
        x * y,
        x - y,
        torch.addcmul(z.float(), x.float(), y.float()).to(torch.bfloat16),
        -x,
        x + 1.5,
        torch.maximum(x, y),
        (x < y).to(torch.bfloat16),
        torch.maximum(x, y),
        (x.float() / y.float()).to(torch.bfloat16),
        torch.full((n,), 0.3, dtype=torch.bfloat16),
        (x * 100).to(torch.int32).to(torch.bfloat16),
        x.abs(),
    ]
    return out, expected


def test_arithmetic_is_pytorchs():
    for actual, expected in zip(*_results(), strict=True):
        assert torch.equal(actual, expected)


# The stock ones take the bits for integers, or cut them off.
@pytest.mark.parametrize("method", ["binary_op", "create_fma", "cast_impl"])
def test_arithmetic_of_the_stock_interpreter_is_not(monkeypatch: pytest.MonkeyPatch, method: str):
    monkeypatch.setattr(Builder, method, getattr(InterpreterBuilder, method))
    out, expected = _results()
    assert not all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))


@triton.jit
def _dot(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    offsets = i[:, None] * BLOCK + i[None, :]
    product = tl.dot(tl.load(x_ptr + offsets), tl.load(y_ptr + offsets))
    tl.store(out_ptr + offsets, product)


def test_dot():
    x, y = torch.randn(2, 16, 16).to(torch.bfloat16)
    out = torch.empty(16, 16)
    _dot[(1,)](x, y, out, BLOCK=16)
    torch.testing.assert_close(out, x.float() @ y.float())


@triton.jit
def _sums(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.cumsum(x, 0))
    tl.store(out_ptr + BLOCK, tl.sum(x, 0))


def test_sum_and_cumsum():
    x = torch.randint(-8, 9, (64,)).to(torch.bfloat16)
    out = torch.empty(65, dtype=torch.bfloat16)
    _sums[(1,)](x, out, BLOCK=64)
    assert torch.equal(out[:64], x.cumsum(0))
    assert out[64] == x.sum()
