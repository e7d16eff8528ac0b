# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/cudnn_batch_norm_backward.py."""

from __future__ import annotations

import torch

from ._defect import Seen, check_close, defect, sample

aten = torch.ops.aten


@defect(
    "CB1",
    title="takes the saved 1 / standard deviation for the variance: every training with cuDNN has wrong gradients",
    pytorch="the gradients",
    upstream={"5.3.2": Seen("AssertionError", "AssertionError")},
    native_cpu="has no kernel of this gradient",
)
def cb1(device: torch.device) -> None:
    x, dy = sample(4, 3, 5, 5, device=device) * 3, sample(4, 3, 5, 5, device=device).flip(0)
    weight, reserve = torch.ones(3, device=device), torch.empty(0, dtype=torch.uint8, device=device)
    upcast = [t.double().requires_grad_() for t in (x, weight, torch.zeros_like(weight))]
    center = upcast[0].mean((0, 2, 3), keepdim=True)
    invstd = torch.rsqrt((upcast[0] - center).square().mean((0, 2, 3), keepdim=True) + 1e-5)
    y = (upcast[0] - center) * invstd * upcast[1].view(1, 3, 1, 1) + upcast[2].view(1, 3, 1, 1)
    y.backward(dy.double())
    mean, rstd = (t.detach().flatten().float() for t in (center, invstd))
    if device.type == "cuda":
        _, mean, rstd, reserve = torch.cudnn_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5)
    gradients = aten.cudnn_batch_norm_backward(x, dy, weight, None, None, mean, rstd, 1e-5, reserve)
    for actual, leaf in zip(gradients, upcast, strict=True):
        assert leaf.grad is not None
        check_close(actual, leaf.grad, 1e-4)
