# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/rms_norm.py."""

from __future__ import annotations

import torch

from ._defect import check_close, defect, everywhere, sample


def composed(x: torch.Tensor, dims: int, eps: float) -> torch.Tensor:
    """RMS norm over the last ``dims`` dimensions from operators that no override stands for."""
    return x * torch.rsqrt((x * x).mean(tuple(range(-dims, 0)), keepdim=True) + eps)


@defect(
    "R1",
    title="fails without a weight",
    pytorch="the normalized rows",
    upstream=everywhere("AttributeError"),
)
def r1(device: torch.device) -> None:
    x = sample(3, 8, device=device)
    check_close(torch.rms_norm(x, (8,), eps=1e-5), composed(x, 1, 1e-5))


@defect(
    "R2",
    title="eps that is left out is 1e-5",
    pytorch="the machine epsilon of the type computed in",
    upstream=everywhere("AssertionError"),
)
def r2(device: torch.device) -> None:
    x, weight = sample(3, 8, device=device) * 1e-3, torch.ones(8, device=device)
    check_close(torch.rms_norm(x, (8,), weight), composed(x, 1, torch.finfo(torch.float32).eps))


@defect(
    "R3",
    title="the gradient of a weight with more than one dimension is one-dimensional: autograd refuses it",
    pytorch="the gradients for any normalized_shape",
    upstream=everywhere("RuntimeError"),
)
def r3(device: torch.device) -> None:
    x, weight = (sample(*shape, device=device).requires_grad_() for shape in ((3, 4, 8), (4, 8)))
    upcast = [t.detach().double().requires_grad_() for t in (x, weight)]
    dy = sample(3, 4, 8, device=device).flip(0)
    torch.rms_norm(x, (4, 8), weight, 1e-5).backward(dy)
    (composed(upcast[0], 2, 1e-5) * upcast[1]).backward(dy.double())
    for actual, expected in zip((x, weight), upcast, strict=True):
        assert actual.grad is not None
        assert expected.grad is not None
        check_close(actual.grad, expected.grad)


@defect(
    "R4",
    title="1 / root mean square of float64 rows is kept in float32, for the gradient",
    pytorch="float64 accuracy",
    upstream=everywhere("AssertionError"),
)
def r4(device: torch.device) -> None:
    x = sample(2, 300, device=device, dtype=torch.float64).requires_grad_()
    weight = torch.ones(300, device=device, dtype=torch.float64)
    upcast = x.detach().clone().requires_grad_()
    dy = sample(2, 300, device=device, dtype=torch.float64).flip(0)
    torch.rms_norm(x, (300,), weight, 1e-5).backward(dy)
    composed(upcast, 1, 1e-5).backward(dy)
    assert x.grad is not None
    assert upcast.grad is not None
    check_close(x.grad, upcast.grad, 1e-12)


@defect(
    "R5",
    title="the gradient has no gradient, and no error says so",
    pytorch="second derivatives",
    upstream=everywhere("RuntimeError"),
)
def r5(device: torch.device) -> None:
    x, weight = sample(2, 8, device=device).requires_grad_(), torch.ones(8, device=device)
    (first,) = torch.autograd.grad(torch.rms_norm(x, (8,), weight, 1e-5).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    upcast = x.detach().double().requires_grad_()
    (first,) = torch.autograd.grad(composed(upcast, 1, 1e-5).sum(), upcast, create_graph=True)
    check_close(second, torch.autograd.grad(first.square().sum(), upcast)[0])
