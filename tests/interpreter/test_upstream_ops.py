# SPDX-License-Identifier: Apache-2.0
"""flag_gems' own operators give PyTorch's answers: a sample of what it does in kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable

import flag_gems
import pytest
import torch

from flag_gems_overrides import interpreter

pytestmark = [
    # flag_gems 4.2.0's tuner
    pytest.mark.filterwarnings("ignore:This declarative base already contains a class"),
    # flag_gems 4.2.0's registration
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),
    # flag_gems' pointwise kernels, on Triton 3.7
    pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated"),
]

aten = torch.ops.aten
N = 33


def _layer_norm_backward(layer_norm_backward: Callable, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor):
    statistics = x if x.dtype == torch.float64 else x.float()
    mean = statistics.mean(-1, keepdim=True)
    rstd = (statistics.var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()
    return layer_norm_backward(dy, x, (N,), mean, rstd, w, w, [True, True, True])


def _batch_norm(batch_norm: Callable, x: torch.Tensor, w: torch.Tensor):
    mean, variance = torch.zeros_like(w), torch.ones_like(w)
    return batch_norm(x, w, w, mean, variance, True, 0.1, 1e-5)[0], mean, variance


# Of each operator: upstream's name; how to call it, and how PyTorch's. Both take x, dy of 5 x 33 and w of 33.
OPS: dict[str, tuple[str, Callable, Callable]] = {
    "layer_norm": (
        "layer_norm",
        lambda f, x, dy, w: f(x, (N,), w, w)[0],
        lambda x, dy, w: torch.layer_norm(x, (N,), w, w),
    ),
    "layer_norm_backward": (
        "layer_norm_backward",
        lambda f, x, dy, w: _layer_norm_backward(f, dy, x, w),
        lambda x, dy, w: _layer_norm_backward(aten.native_layer_norm_backward, dy, x, w),
    ),
    "softmax": ("softmax", lambda f, x, dy, w: f(x, -1), lambda x, dy, w: x.softmax(-1)),
    "softmax, columns": ("softmax", lambda f, x, dy, w: f(x, 0), lambda x, dy, w: x.softmax(0)),
    "softmax_backward": (
        "softmax_backward",
        lambda f, x, dy, w: f(dy, x, -1, x.dtype),
        lambda x, dy, w: aten._softmax_backward_data(dy, x, -1, x.dtype),
    ),
    "log_softmax": ("log_softmax", lambda f, x, dy, w: f(x, -1), lambda x, dy, w: x.log_softmax(-1)),
    "prod": ("prod", lambda f, x, dy, w: f(1 + x / 99), lambda x, dy, w: (1 + x / 99).prod()),
    "prod_dim": ("prod_dim", lambda f, x, dy, w: f(x, 1), lambda x, dy, w: x.prod(1)),
    "prod_dim, columns": ("prod_dim", lambda f, x, dy, w: f(x, 0), lambda x, dy, w: x.prod(0)),
    "max": ("max", lambda f, x, dy, w: f(x), lambda x, dy, w: x.max()),
    "max_dim": ("max_dim", lambda f, x, dy, w: tuple(f(x, 1)), lambda x, dy, w: tuple(x.max(1))),
    "max_dim, columns": ("max_dim", lambda f, x, dy, w: tuple(f(x, 0)), lambda x, dy, w: tuple(x.max(0))),
    "amax": ("amax", lambda f, x, dy, w: f(x, [1]), lambda x, dy, w: x.amax(1)),
    "batch_norm": (
        "batch_norm",
        lambda f, x, dy, w: _batch_norm(f, x, w),
        lambda x, dy, w: _batch_norm(aten.native_batch_norm, x, w),
    ),
    # Pointwise kernels are generated, and are given strided buffers instead of tensors.
    "add": ("add", lambda f, x, dy, w: f(x, w), lambda x, dy, w: x + w),
    "gelu": ("gelu", lambda f, x, dy, w: f(x), lambda x, dy, w: torch.nn.functional.gelu(x)),
    "sum_dim": ("sum_dim", lambda f, x, dy, w: f(x, [1]), lambda x, dy, w: x.sum(1)),
    "cumsum": ("cumsum", lambda f, x, dy, w: f(x, 1), lambda x, dy, w: x.cumsum(1)),
    "mm": ("mm", lambda f, x, dy, w: f(x, dy.t()), lambda x, dy, w: x @ dy.t()),
}
TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("op", OPS)
def test_op(op: str, dtype: torch.dtype):
    name, ours, pytorch = OPS[op]
    operands = [t.to(dtype) for t in (torch.randn(5, N), torch.randn(5, N), torch.randn(N))]
    with interpreter.check_bounds():
        actual = ours(getattr(flag_gems, name), *operands)
    expected = pytorch(*(t.double() for t in operands))
    for a, e in zip(*((x if isinstance(x, tuple) else (x,)) for x in (actual, expected)), strict=True):
        torch.testing.assert_close(a.double(), e.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_dispatched_and_differentiated(caplog: pytest.LogCaptureFixture):
    x = torch.randn(5, N)
    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    with flag_gems.use_gems(), caplog.at_level(logging.DEBUG, logger="flag_gems"):
        y1 = x1.softmax(-1)
        (gradient,) = torch.autograd.grad(y1, x1, x)
    y2 = x2.softmax(-1)
    torch.testing.assert_close(y1, y2)
    torch.testing.assert_close(gradient, torch.autograd.grad(y2, x2, x)[0])
    assert "GEMS SOFTMAX" in caplog.messages
    assert {"GEMS SOFTMAX VJP", "GEMS SOFTMAX_BACKWARD"} & set(caplog.messages)  # from 5.3 on the latter


def test_random_numbers_follow_the_seed():
    drawn = []
    with flag_gems.use_gems():
        for seed in (3, 3, 4):
            torch.manual_seed(seed)
            drawn.append((torch.rand(1000), torch.randn(1000), torch.randn(1000)))
    for again, first in zip(drawn[1], drawn[0], strict=True):
        torch.testing.assert_close(again, first, rtol=0, atol=0)
    uniform, normal, another = drawn[0]
    assert not (normal == another).any()
    assert not (normal == drawn[2][1]).any()
    assert 0 <= uniform.min() < 0.05 < 0.95 < uniform.max() < 1
    assert abs(normal.mean()) < 0.2
    assert abs(normal.std() - 1) < 0.1
