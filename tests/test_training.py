# SPDX-License-Identifier: Apache-2.0
"""PyTorch's modules of normalization in small models in training: the losses are those of PyTorch's kernels.

How far two runs may be apart PyTorch says itself: the samples of a batch in another order are the same step, added in
another order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import flag_gems
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import flag_gems_overrides
from flag_gems_overrides.registration import upstream

NORMS = ("batch_norm", "batch_norm_backward", "group_norm", "group_norm_backward", "rms_norm")

ORDERS = 6


class Residual(nn.Module):
    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)),
        )
        self.shortcut = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.body(x))


class ResNet(nn.Module):
    """Two-dimensional batches too: a batch norm of features stands before the classes."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(*(Residual(width, 1 + i % 2) for i in range(blocks)))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(width), nn.Linear(width, 10))

    def forward(self, x: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.blocks(self.stem(x))), (100 * x[:, 0, 0, 0].abs()).long() % 10)


class UNet(nn.Module):
    """Takes noise off an image."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()

        def stage(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(groups, outputs), nn.SiLU(inplace=True)
            )

        self.outer, self.down, self.inner = stage(3, width), stage(width, 2 * width, 2), stage(2 * width, 2 * width)
        self.up, self.out = stage(3 * width, width), nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        clean = F.avg_pool2d(x, 3, 1, 1)
        outer = self.outer(x)
        inner = F.interpolate(self.inner(self.down(outer)), scale_factor=2.0)
        return F.mse_loss(self.out(self.up(torch.cat([outer, inner], 1))), clean)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.of_keys, self.of_queries = nn.RMSNorm(width // heads), nn.RMSNorm(width // heads, eps=1e-6)
        self.qkv, self.mix = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = self.of_queries(q) @ self.of_keys(k).mT / q.shape[-1] ** 0.5
        masked = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
        x = x + self.mix((masked.softmax(-1) @ v).transpose(1, 2).flatten(2))
        h = self.after(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, width), nn.RMSNorm(width)
        self.layers = nn.Sequential(*(Layer(width, width // 16) for _ in range(layers)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.norm(self.layers(self.embed(tokens[:, :-1]))))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _images(batch: int, size: int) -> Tensor:
    return torch.randn(batch, 3, size, size)


# A model, its batch, and what the overrides of its normalization log.
TINY = {
    "resnet": (lambda: ResNet(4, 1), lambda: _images(6, 6), "BATCHNORM"),
    "unet": (lambda: UNet(4, 2), lambda: _images(3, 6), "GROUPNORM"),
    "llama": (lambda: Llama(32, 1, 50), lambda: torch.randint(50, (3, 9)), "RMS_NORM"),
}
SMALL = {
    "resnet": (lambda: ResNet(64, 6), lambda: _images(40, 56), "BATCHNORM"),
    "unet": (lambda: UNet(96, 32), lambda: _images(16, 64), "GROUPNORM"),
    "llama": (lambda: Llama(512, 4, 5000), lambda: torch.randint(5000, (8, 257)), "RMS_NORM"),
}


def train(
    model: Callable[[], nn.Module], batch: Callable[[], Tensor], steps: int, order: int, device: str
) -> list[float]:
    """The losses: the same weights and data every time, the samples in an order of many."""
    torch.manual_seed(0)
    trained, data = model().to(device), batch().to(device)
    if order:
        data = data[torch.randperm(len(data), generator=torch.Generator().manual_seed(order)).to(device)]
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = trained(data)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def apart(some: list[float], others: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(some, others, strict=True)) / max(map(abs, others))


def check(model, batch, logs, steps, device, caplog) -> None:
    native, *reordered = (train(model, batch, steps, order, device) for order in range(ORDERS))
    assert native[-1] < native[0]
    caplog.set_level(logging.DEBUG, logger="flag_gems.ops")
    with flag_gems_overrides.use_overrides(), upstream.use_gems(flag_gems, NORMS):
        ours = train(model, batch, steps, 0, device)
    assert {f"GEMS {logs} {way}" for way in ("FORWARD", "BACKWARD")} == {r.getMessage() for r in caplog.records}
    bound = 3 * max(apart(each, native) for each in reordered)
    assert 0 < bound < 0.1
    assert apart(ours, native) <= bound


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_model(name, device, caplog):
    check(*TINY[name], 4, device, caplog)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SMALL)
def test_a_small_model(name, device, caplog):
    # F.batch_norm is cuDNN's where it can be, whatever flag_gems has registered (docs/limits.md).
    with torch.backends.cudnn.flags(enabled=name != "resnet"):
        check(*SMALL[name], 30, device, caplog)
