# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from flag_gems_overrides.interpreter.launch import InterpretedKernel


@triton.jit
def _sum_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, KEEP: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    total = tl.sum(x, AXIS, keep_dims=KEEP)
    if AXIS is None:
        tl.store(out_ptr + tl.zeros([1, 1], tl.int32) if KEEP else out_ptr, total)
    elif KEEP:
        shape: tl.constexpr = (1, N) if AXIS == 0 else (M, 1)
        tl.store(out_ptr + tl.arange(0, shape[0] * shape[1]).reshape(shape), total)
    else:
        tl.store(out_ptr + tl.arange(0, N if AXIS == 0 else M), total)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_sum_along(dtype: torch.dtype, axis: int | None, keep: bool):
    x = torch.randint(-50, 50, (8, 16)).to(dtype)
    expected = x.sum() if axis is None else x.sum(axis)
    out = torch.empty(expected.numel(), dtype=dtype)
    _sum_kernel[(1,)](x, out, M=8, N=16, AXIS=axis, KEEP=keep)
    assert torch.equal(out, expected.reshape(-1).to(dtype))


@triton.jit
def _column_sum(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out_ptr + tl.arange(0, N), tl.sum(x, 0))


def test_a_sum_loses_no_more_than_a_tree_does():
    """numpy adds the rows of a column one after the other, and loses 100 times as much."""
    x = torch.rand(4096, 4)
    out = torch.empty(4)
    _column_sum[(1,)](x, out, M=4096, N=4)
    torch.testing.assert_close(out.double(), x.double().sum(0), rtol=12 * 2**-24, atol=0)


@triton.jit
def _compose(a, b, c, d):
    """First x -> a x + b, then x -> c x + d: associative, but the order counts."""
    return a * c, b * c + d


@triton.jit
def _composed(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + i)
    b = tl.load(b_ptr + i)
    c, d = tl.reduce((a, b), 0, _compose)
    tl.store(out_ptr, c)
    tl.store(out_ptr + 1, d)
    c, d = tl.associative_scan((a, b), 0, _compose)
    tl.store(out_ptr + 2 + i, c)
    tl.store(out_ptr + 2 + BLOCK + i, d)
    c, d = tl.associative_scan((a, b), 0, _compose, reverse=True)
    tl.store(out_ptr + 2 + 2 * BLOCK + i, c)
    tl.store(out_ptr + 2 + 3 * BLOCK + i, d)


def _compose_in_python(a: torch.Tensor, b: torch.Tensor) -> list[tuple[int, int]]:
    result = [(1, 0)]
    for c, d in zip(a.tolist(), b.tolist(), strict=True):
        result.append((result[-1][0] * c, result[-1][1] * c + d))
    return result[1:]


def test_a_kernels_own_function_with_two_values():
    a, b = torch.randint(-2, 3, (16,)), torch.randint(-9, 9, (16,))
    out = torch.empty(2 + 64, dtype=torch.int64)
    _composed[(1,)](a, b, out, BLOCK=16)
    forward, backward = _compose_in_python(a, b), _compose_in_python(a.flip(0), b.flip(0))[::-1]
    assert tuple(out[:2].tolist()) == forward[-1]
    assert list(zip(out[2:18].tolist(), out[18:34].tolist(), strict=True)) == forward
    assert list(zip(out[34:50].tolist(), out[50:66].tolist(), strict=True)) == backward


def test_a_kernels_own_function_is_called_for_whole_blocks(monkeypatch: pytest.MonkeyPatch):
    """Once for each level of the tree; the stock interpreter calls it for every element."""
    calls = []
    call = InterpretedKernel.__call__
    monkeypatch.setattr(InterpretedKernel, "__call__", lambda self, *args: calls.append(self) or call(self, *args))
    a = torch.ones(1024, dtype=torch.int64)
    _composed[(1,)](a, a, torch.empty(2 + 4096, dtype=torch.int64), BLOCK=1024)
    assert len(calls) == 3 * 10


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _product(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.reduce(x, 0, _multiply))


def test_half_precision_is_rounded_in_every_step():
    """As by the instruction that multiplies halves; not once, at the end."""
    x = torch.tensor([0.1, 0.3, 0.7, 0.9], dtype=torch.float16)
    out = torch.empty(1, dtype=torch.float16)
    _product[(1,)](x, out, BLOCK=4)
    assert out.item() == ((x[0] * x[1]) * (x[2] * x[3])).item()


AXIS: tl.constexpr = tl.constexpr(0)


@triton.jit
def _sum_along_a_global(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out_ptr + tl.arange(0, N), tl.sum(x, AXIS))
    tl.store(out_ptr + N + tl.arange(0, N)[None, :], tl.cumsum(x, AXIS) if M == 1 else tl.sum(x, AXIS, keep_dims=True))


def test_the_axis_may_be_a_global_constexpr():
    x = torch.randn(8, 16)
    out = torch.empty(2, 16)
    _sum_along_a_global[(1,)](x, out, M=8, N=16)
    torch.testing.assert_close(out, x.sum(0).expand(2, 16))
    _sum_along_a_global[(1,)](x[:1], out, M=1, N=16)
    torch.testing.assert_close(out, x[:1].expand(2, 16))
