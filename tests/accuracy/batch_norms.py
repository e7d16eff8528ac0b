# SPDX-License-Identifier: Apache-2.0
"""A batch norm and its gradients beside PyTorch's and the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from accuracy.judge import assert_same_answer
from accuracy.reductions import ON_GPU

from flag_gems_overrides.ops.batch_norm import batch_norm, batch_norm_backward
from flag_gems_overrides.ops.families.batch_norm import groups_plan, plan, types
from flag_gems_overrides.ops.families.batch_norm.layout import view
from flag_gems_overrides.ops.launch.devices import Limits

aten = torch.ops.aten
EPS, MOMENTUM = 1e-5, 0.3

LAYOUTS = {
    "channels last": lambda x: x.transpose(1, -1).contiguous().transpose(1, -1),
    "channels first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "every second": lambda x: torch.stack([x, -x], -1)[..., 0],
    "rows apart": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "expanded": lambda x: x[:1].expand(x.shape),
    "misaligned": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
}


# Elements of a channel of runs up to which a program of one warp holds it; more of them, and columns, are groups.
HELD = 256


def programs_of_one_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors take several programs, also groups, and none is read as it lies."""

    def only(problem: types.Problem, limits: Limits) -> tuple[types.Configuration]:
        if problem.K > 1 and problem.M * problem.K <= HELD:
            return (types.Configuration("channels", 1, 1),)
        return (groups_plan.groups_by_registers(problem, limits),)

    for name in ("ROWS", "COLUMNS"):
        monkeypatch.setattr(groups_plan, name, (2, 1, 4, 2))
    monkeypatch.setattr(plan, "channels_of", only)
    for name in ("groups_of", "flat_of"):
        monkeypatch.setattr(plan, name, lambda problem, limits: ())


class Results(NamedTuple):
    y: torch.Tensor
    mean: torch.Tensor
    rstd: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor
    dx: torch.Tensor | None
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None


class Case:
    """Inputs of one dtype, and the truth about them."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: str, mean: float = 1.0) -> None:
        C = shape[1]
        self.mean = mean
        self.x = (torch.randn(shape, device=device) * 2 + mean).to(dtype)
        self.dy = torch.randn(shape, device=device).to(dtype)
        self.weight, self.bias, self.running_mean = (torch.randn(C, device=device).to(dtype) for _ in range(3))
        self.running_var = (torch.rand(C, device=device) + 0.5).to(dtype)

    def exact(self, training: bool = True) -> Results:
        """In a wider format: float64, or longdouble for float64 input."""
        wide = _Longdouble if self.x.dtype is torch.float64 else _Double
        C, N = self.x.shape[1], self.x.numel() // self.x.shape[1]
        x, dy = (wide.of(t.transpose(0, 1).reshape(C, N)) for t in (self.x, self.dy))
        weight, bias = (wide.of(t).reshape(C, 1) for t in (self.weight, self.bias))
        running_mean, running_var = (wide.of(t).reshape(C, 1) for t in (self.running_mean, self.running_var))
        if training:
            mean = x.mean(1, keepdims=True)
            variance = ((x - mean) ** 2).mean(1, keepdims=True)
            running_mean = (1 - MOMENTUM) * running_mean + MOMENTUM * mean
            running_var = (1 - MOMENTUM) * running_var + MOMENTUM * (variance * N / max(N - 1, 1))
        else:
            mean, variance = running_mean, running_var
        rstd = 1 / (variance + EPS) ** 0.5
        xhat = (x - mean) * rstd
        g = dy * weight
        dx = (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True)) * rstd if training else g * rstd
        channels = (xhat * weight + bias, dx)
        y, dx = (wide.back(t, self.x.device).reshape(C, -1, *self.x.shape[2:]).transpose(0, 1) for t in channels)
        rest = (mean, rstd, running_mean, running_var, (dy * xhat).sum(1), dy.sum(1))
        mean, rstd, running_mean, running_var, dweight, dbias = (wide.back(t, self.x.device).reshape(C) for t in rest)
        return Results(y, mean, rstd, running_mean, running_var, dx, dweight, dbias)

    def ours(self, training: bool = True, mask: tuple[bool, ...] = (True,) * 3) -> Results:
        return self._results(batch_norm, batch_norm_backward, training, mask)

    def native(self, training: bool = True, mask: tuple[bool, ...] = (True,) * 3) -> Results:
        return self._results(aten.native_batch_norm, aten.native_batch_norm_backward, training, mask)

    def _results(self, forward, backward, training: bool, mask: tuple[bool, ...]) -> Results:
        running = [None if t is None else t.clone() for t in (self.running_mean, self.running_var)]
        y, mean, rstd = forward(self.x, self.weight, self.bias, *running, training, MOMENTUM, EPS)
        arguments = self.weight, self.running_mean, self.running_var, mean, rstd, training, EPS, list(mask)
        return Results(y, mean, rstd, *running, *backward(self.dy, self.x, *arguments))


class _Double:
    @staticmethod
    def of(t: torch.Tensor) -> torch.Tensor:
        return t.double()

    @staticmethod
    def back(t: torch.Tensor, device: torch.device) -> torch.Tensor:
        return t


class _Longdouble:
    """float64 is judged by something wider than itself: 64 bits of mantissa on x86."""

    @staticmethod
    def of(t: torch.Tensor) -> np.ndarray:
        return t.cpu().numpy().astype(np.longdouble)

    @staticmethod
    def back(t: np.ndarray, device: torch.device) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(t.astype(np.float64))).to(device)


def check(case: Case, training: bool = True) -> Results:
    """The statistics are CUDA's: PyTorch's CPU kernel keeps those of half inputs in half, and none in evaluation."""
    ours, native, exact = case.ours(training), case.native(training), case.exact(training)
    wide = torch.float64 if case.x.dtype is torch.float64 else torch.float32
    one = case.x.numel() == case.x.shape[1]  # the variance of a sample of one is NaN
    for name, actual, theirs, truth in zip(Results._fields, ours, native, exact, strict=True):
        alike = _alike(case, training, name)
        if name in ("mean", "rstd"):
            assert actual.dtype == wide
            theirs, alike = (theirs, alike) if ON_GPU else (truth.to(wide), iter(()))
        assert_same_answer(actual, theirs, theirs.double() if one and name == "running_var" else truth, alike)
    assert ours.y.stride() == case.x.stride() or view(case.x.shape, case.x.stride()) is None
    return ours


def check_gradients(mask: Sequence[bool], ours: Results, native: Results, exact: Results) -> None:
    """Those that the mask wants, and no others."""
    for wanted, actual, theirs, truth in zip(mask, ours[5:], native[5:], exact[5:], strict=True):
        assert (actual is not None) == wanted
        if actual is not None:
            assert_same_answer(actual, theirs, truth)


def _alike(case: Case, training: bool, name: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """PyTorch's result and the truth for other inputs: the sums of few channels nearly cancel now and then."""
    for _ in range(4):
        other = Case(tuple(case.x.shape), case.x.dtype, str(case.x.device), case.mean)
        yield getattr(other.native(training), name), getattr(other.exact(training), name)
