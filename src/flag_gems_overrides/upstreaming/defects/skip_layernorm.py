# SPDX-License-Identifier: Apache-2.0
"""Upstream's fused/skip_layernorm.py. PyTorch has no such function: it answers for ``layer_norm(x + residual)``."""

from __future__ import annotations

import math

import torch

from ._defect import check_close, check_raises, defect, everywhere, sample
from .layernorm import composed


@defect(
    "SL1",
    title="fails without weight and bias",
    pytorch="the normalized rows",
    upstream=everywhere("AttributeError"),
)
def sl1(device: torch.device) -> None:
    import flag_gems

    x, residual = sample(3, 8, device=device), sample(3, 8, device=device).flip(0)
    check_close(flag_gems.skip_layer_norm(x, residual, (8,), None, None), composed(x + residual, 1))


@defect(
    "SL2",
    title="float64 is computed in float32",
    pytorch="float64 accuracy",
    upstream=everywhere("AssertionError"),
)
def sl2(device: torch.device) -> None:
    import flag_gems

    x = sample(2, 300, device=device, dtype=torch.float64)
    ones = torch.ones(300, device=device, dtype=torch.float64)
    y = flag_gems.skip_layer_norm(x, x.flip(0), (300,), ones, ones)
    check_close(y, composed(x + x.flip(0), 1) + 1, 1e-12)


@defect(
    "SL3",
    title="a normalized_shape that x does not end in is taken for the size of its rows",
    pytorch="RuntimeError",
    upstream=everywhere("AssertionError: answered"),
)
def sl3(device: torch.device) -> None:
    import flag_gems

    x, ones = sample(3, 8, device=device), torch.ones(4, device=device)
    text = "Given normalized_shape=[4], expected input with shape [*, 4]"
    check_raises(RuntimeError, text, lambda: flag_gems.skip_layer_norm(x, x, [4], ones, ones))


@defect(
    "SL4",
    title="a residual of fewer elements is read as if it had those of x, from whatever lies behind it",
    pytorch="it is expanded to the shape of x",
    upstream=everywhere("AssertionError: 16 of 24 elements wrong"),
)
def sl4(device: torch.device) -> None:
    import flag_gems

    x, ones = sample(3, 8, device=device), torch.ones(8, device=device)
    residual = torch.full((24,), math.nan, device=device)[:8].copy_(x[1])
    check_close(flag_gems.skip_layer_norm(x, residual, (8,), ones, ones), composed(x + residual, 1) + 1)


@defect(
    "SL5",
    title="the result says that it needs a gradient, and has none",
    pytorch="the gradients of x, residual, weight and bias",
    upstream=everywhere("NotImplementedError"),
)
def sl5(device: torch.device) -> None:
    import flag_gems

    x, residual = (sample(3, 4, 8, device=device).flip(at).requires_grad_() for at in (0, 1))
    weight, bias = (sample(4, 8, device=device).flip(at).requires_grad_() for at in (0, 1))
    leaves = (x, residual, weight, bias)
    upcast = [leaf.detach().double().requires_grad_() for leaf in leaves]
    dy = sample(3, 4, 8, device=device).flip(2)
    flag_gems.skip_layer_norm(x, residual, (4, 8), weight, bias).backward(dy)
    (composed(upcast[0] + upcast[1], 2) * upcast[2] + upcast[3]).backward(dy.double())
    for actual, expected in zip(leaves, upcast, strict=True):
        assert actual.grad is not None
        assert expected.grad is not None
        check_close(actual.grad, expected.grad)


@defect(
    "SL6",
    title="the sum of half x and a float32 residual is rounded to half",
    pytorch="float32, as of every sum of the two",
    upstream=everywhere("AssertionError: dtype torch.bfloat16"),
)
def sl6(device: torch.device) -> None:
    import flag_gems

    x, ones = sample(3, 8, device=device, dtype=torch.bfloat16), torch.ones(8, device=device)
    residual = sample(3, 8, device=device).flip(0)
    y = flag_gems.skip_layer_norm(x, residual, (8,), ones, ones)
    assert y.dtype is torch.float32, f"dtype {y.dtype}"
    check_close(y, composed(x + residual, 1) + 1)
