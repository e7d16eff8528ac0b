# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/groupnorm.py."""

from __future__ import annotations

import torch

from ._defect import check_close, defect, everywhere, sample, since_4_2

aten = torch.ops.aten


def composed(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Group norm of [N, C, HW] from operators that no override stands for."""
    rows = x.reshape(x.shape[0], groups, -1)
    centred = rows - rows.mean(2, keepdim=True)
    return (centred * torch.rsqrt((centred * centred).mean(2, keepdim=True) + 1e-5)).reshape(x.shape)


@defect(
    "G1",
    title="wrong where the channels of a group are no power of two: neighbouring groups are read and written as well",
    pytorch="the normalized groups and their gradients, for any number of channels",
    references=("#4984", "#4985"),
    upstream=everywhere("AssertionError"),
)
def g1(device: torch.device) -> None:
    x, dy = sample(2, 6, 8, device=device), sample(2, 6, 8, device=device).flip(0)
    y, mean, rstd = torch.native_group_norm(x, None, None, 2, 6, 8, 2, 1e-5)
    check_close(y, composed(x, 2))
    upcast = x.double().requires_grad_()
    composed(upcast, 2).backward(dy.double())
    dx, _, _ = aten.native_group_norm_backward(dy, x, mean, rstd, None, 2, 6, 8, 2, [True, False, False])
    assert upcast.grad is not None
    check_close(dx, upcast.grad)


@defect(
    "G2",
    title="a group is one tile: with more than 2^20 elements, padded to powers of two, it is refused",
    pytorch="groups of any size",
    upstream=since_4_2("InterpreterError", "CompilationError"),
)
def g2(device: torch.device) -> None:
    x = sample(1, 2, 600_000, device=device)
    y, _, _ = torch.native_group_norm(x, None, None, 1, 2, 600_000, 1, 1e-5)
    check_close(y, composed(x, 1))


@defect(
    "G3",
    title="float64 is computed in float32",
    pytorch="float64 accuracy",
    upstream=everywhere("AssertionError"),
)
def g3(device: torch.device) -> None:
    x = sample(2, 4, 64, device=device, dtype=torch.float64)
    check_close(torch.native_group_norm(x, None, None, 2, 4, 64, 2, 1e-5)[0], composed(x, 2), 1e-12)


@defect(
    "G4",
    title="no samples, or channels without elements: a launch of no programs or of an empty tile fails",
    pytorch="an empty result, and gradients of weight and bias that are 0",
    upstream=since_4_2("InterpreterError", "CompilationError"),
    native_cpu="has NaN for weight where channels have no elements (2.13)",
)
def g4(device: torch.device) -> None:
    for shape in ((0, 4, 3), (2, 4, 0)):
        x, weight = torch.ones(shape, device=device), torch.ones(4, device=device)
        sizes = (*shape, 2)
        y, mean, rstd = torch.native_group_norm(x, weight, weight, *sizes, 1e-5)
        assert y.shape == shape
        dx, dw, db = aten.native_group_norm_backward(x, x, mean, rstd, weight, *sizes, [True] * 3)
        assert dx.shape == shape
        for gradient in (dw, db):
            check_close(gradient, torch.zeros(4, device=device), 0)
