# SPDX-License-Identifier: Apache-2.0
"""From tensors to launches, for the cross entropy of logits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton

from ...launch import devices, workspace
from ...launch.allocation import Allocation
from . import plan
from .call import _TRITON, ASSERTIONS, MEAN, NONE, _accumulator
from .cross_entropy import cross_entropy_forward, cross_entropy_gradient


class _Prepared(NamedTuple):
    new_loss: Allocation
    new_total: Allocation | None  # None without a reduction
    new_statistics: Allocation  # for each row
    new_partials: Allocation | None
    new_dx: Allocation
    forward: Callable[..., None]
    gradient: Callable[..., None]  # of a reduction, or of a gradient that is expanded
    gradients: Callable[..., None]  # of one gradient for each row


class CrossEntropy(torch.autograd.Function):
    """Of x [R, C], contiguous, and targets of [R] or [R, C]."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None,
        reduction: int,
        ignore_index: int,
        smoothing: float,
    ) -> torch.Tensor:
        key = x.shape, x.dtype, target.dim() == 2, weight is not None, reduction, ignore_index, smoothing
        prepared = _prepare(*key, x.get_device())
        loss, statistics = prepared.new_loss(), [prepared.new_statistics() for _ in range(3)]
        total = partials = arrived = None
        if prepared.new_total is not None and prepared.new_partials is not None:
            total, partials, arrived = prepared.new_total(), prepared.new_partials(), workspace.counters(x, 1)
        prepared.forward(x, target, weight, loss, total, *statistics, partials, arrived)
        ctx.save_for_backward(x, target, weight, total, *statistics)
        ctx.prepared, ctx.mean = prepared, reduction == MEAN
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, target, weight, total, *statistics = ctx.saved_tensors
        dx = ctx.prepared.new_dx()
        expanded = not any(grad.stride())
        launch = ctx.prepared.gradient if expanded else ctx.prepared.gradients
        launch(
            grad if expanded else grad.contiguous(),
            x,
            target,
            weight,
            total if ctx.mean else None,
            *statistics,
            dx,
        )
        return dx, None, None, None, None, None


@functools.lru_cache(maxsize=4096)
def _prepare(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    probabilities: bool,
    weighted: bool,
    reduction: int,
    ignore_index: int,
    smoothing: float,
    device: int,
) -> _Prepared:
    R, C = shape
    accumulator = _accumulator(dtype)
    planned = plan.cross_entropy(plan.Problem(max(R, 1), C, 1, dtype.itemsize), devices.limits(device))
    grid = (planned.programs,)
    options: dict[str, Any] = {
        "MEAN": reduction == MEAN,
        "PROBABILITIES": probabilities,
        "SMOOTHING": float(smoothing),
        "ACC": _TRITON[accumulator],
        "VEC": planned.vec,
        "BLOCK_R": planned.block_r,
        "BLOCK_C": planned.block_c,
        "num_warps": planned.warps,
        **ASSERTIONS,
    }
    reduced = reduction != NONE
    forward = cross_entropy_forward.bind(
        device,
        grid,
        R,
        C,
        ignore_index,
        REDUCED=reduced,
        BLOCK_PROGRAMS=triton.next_power_of_2(planned.programs),
        **options,
    )
    gradients = [cross_entropy_gradient.bind(device, grid, R, C, stride, ignore_index, **options) for stride in (0, 1)]
    return _Prepared(
        Allocation(() if reduced else (R,), dtype, device),
        Allocation((), accumulator, device) if reduced else None,
        Allocation((R,), accumulator, device),
        Allocation((2, planned.programs), accumulator, device) if reduced else None,
        Allocation(shape, dtype, device),
        forward,
        *gradients,
    )
