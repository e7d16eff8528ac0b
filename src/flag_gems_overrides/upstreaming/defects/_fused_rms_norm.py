# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/_fused_rms_norm.py."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ._defect import Seen, check_close, defect, sample
from .rms_norm import composed

aten = torch.ops.aten


def _since(release: str, outcome: str) -> Mapping[str, Seen]:
    return {release: Seen(outcome, outcome)}


@defect(
    "FR1",
    title="1 / root mean square has one dimension, whatever the input's",
    pytorch="the input's shape with ones for the normalized dimensions",
    upstream=_since("5.3.3", "AssertionError: shape (6,), not (2, 3, 1)"),
)
def fr1(device: torch.device) -> None:
    x = sample(2, 3, 8, device=device)
    _, rstd = torch._fused_rms_norm(x, [8], torch.ones(8, device=device), 1e-5)
    check_close(rstd, torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5))


@defect(
    "FR2",
    title="eps that is left out is 1e-5",
    pytorch="the machine epsilon of the type computed in",
    upstream=_since("5.3.3", "AssertionError"),
)
def fr2(device: torch.device) -> None:
    x = sample(3, 8, device=device) * 1e-3
    y, _ = torch._fused_rms_norm(x, [8], torch.ones(8, device=device), None)
    check_close(y, composed(x, 1, torch.finfo(torch.float32).eps))


@defect(
    "FR3",
    title="refuses float64",
    pytorch="float64 accuracy",
    upstream=_since("5.3.3", "AssertionError: _fused_rms_norm does not support dtype torch.float64"),
)
def fr3(device: torch.device) -> None:
    x = sample(3, 8, device=device, dtype=torch.float64)
    y, _ = torch._fused_rms_norm(x, [8], torch.ones(8, device=device, dtype=torch.float64), 1e-5)
    check_close(y, composed(x, 1, 1e-5), 1e-12)


@defect(
    "FR4",
    title="gradients of float64 rows are computed in float32",
    pytorch="float64 accuracy",
    upstream=_since("5.4.0.dev0", "AssertionError"),
    native_cpu="has no kernel of this gradient",
)
def fr4(device: torch.device) -> None:
    x = sample(2, 300, device=device, dtype=torch.float64)
    dy, weight = x.flip(0), torch.ones(300, device=device, dtype=torch.float64)
    rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
    dx, _ = aten._fused_rms_norm_backward(dy, x, [300], rstd, weight, [True, True])
    upcast = x.clone().requires_grad_()
    composed(upcast, 1, 1e-5).backward(dy)
    assert upcast.grad is not None
    check_close(dx, upcast.grad, 1e-12)
