# SPDX-License-Identifier: Apache-2.0
"""Upstream's fused/fused_add_rms_norm.py. PyTorch has no such function: it answers for ``residual += x`` and
``x = rms_norm(residual)``."""

from __future__ import annotations

import torch

from ._defect import check_close, check_raises, defect, everywhere, sample
from .rms_norm import composed

EPS = 1e-5


@defect(
    "FA1",
    title="fails without a weight",
    pytorch="the normalized rows",
    upstream=everywhere("AttributeError"),
)
def fa1(device: torch.device) -> None:
    import flag_gems

    x, residual = sample(3, 8, device=device), sample(3, 8, device=device).flip(0)
    total = x + residual
    flag_gems.fused_add_rms_norm(x, residual, (8,), None, EPS)
    check_close(x, composed(total, 1, EPS))


@defect(
    "FA2",
    title="x and residual of other strides stay as they are: copies of them are written to",
    pytorch="the normalized rows in x, the sum in residual",
    upstream=everywhere("AssertionError"),
)
def fa2(device: torch.device) -> None:
    import flag_gems

    x, residual, ones = sample(3, 16, device=device)[:, ::2], sample(8, 3, device=device).t(), torch.ones(8)
    total = x + residual
    flag_gems.fused_add_rms_norm(x, residual, (8,), ones.to(device), EPS)
    check_close(residual, total)
    check_close(x, composed(total, 1, EPS))


@defect(
    "FA3",
    title="has no gradient",
    pytorch="the gradients of x, residual and weight",
    upstream=everywhere("RuntimeError: element 0 of tensors does not require grad"),
)
def fa3(device: torch.device) -> None:
    import flag_gems

    weight = sample(8, device=device).requires_grad_()
    x, residual = sample(3, 8, device=device), sample(3, 8, device=device).flip(0)
    rows = composed(x + residual, 1, EPS)
    flag_gems.fused_add_rms_norm(x, residual, (8,), weight, EPS)[0].sum().backward()
    assert weight.grad is not None
    check_close(weight.grad, rows.sum(0))


@defect(
    "FA4",
    title="a normalized_shape that x does not end in is taken for the size of its rows",
    pytorch="RuntimeError",
    upstream=everywhere("AssertionError: answered"),
)
def fa4(device: torch.device) -> None:
    import flag_gems

    x, ones = sample(3, 8, device=device), torch.ones(4, device=device)
    text = "Given normalized_shape=[4], expected input with shape"
    check_raises(RuntimeError, text, lambda: flag_gems.fused_add_rms_norm(x, x.clone(), [4], ones, EPS))
