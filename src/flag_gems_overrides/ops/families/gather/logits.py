# SPDX-License-Identifier: Apache-2.0
"""From tensors to launches, for the cross entropy of logits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ...launch import devices, workspace
from ...launch.allocation import Allocation
from ...launch.sizes import WARP, cdiv, power_of_2
from . import logits_plan
from .call import _TRITON, ASSERTIONS, MEAN, NONE, _accumulator
from .cross_entropy import cross_entropy_rows, cross_entropy_rows_gradient, cross_entropy_total
from .cross_entropy_looped import cross_entropy_looped, cross_entropy_looped_gradient
from .cross_entropy_shared import cross_entropy_shared
from .launches import Problem
from .plan import FORWARD_BLOCK, WARPS


class _Prepared(NamedTuple):
    new_loss: Allocation
    new_total: Allocation | None  # of a mean of classes
    workspace: tuple[int, torch.dtype] | None  # its size
    new_statistics: Allocation  # for each row
    new_dx: Allocation
    total: Callable[..., None] | None  # None if the forward finds it
    forward: Callable[..., None]
    gradient: Callable[..., None]  # of a reduction, or of a gradient that is expanded
    gradients: Callable[..., None]  # of one gradient for each row
    written: Callable[..., None] | None  # corrects a gradient that the forward wrote, unless the loss's is 1


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
        differentiable: bool,
    ) -> torch.Tensor:
        options = reduction, ignore_index, smoothing
        prepared = _prepare(
            x.shape, x.dtype, target.dim() == 2, target.dtype, weight is None, *options, differentiable, x.get_device()
        )
        loss = prepared.new_loss()
        statistics = [prepared.new_statistics() if differentiable else None for _ in range(3)]
        total = None if prepared.new_total is None else prepared.new_total()
        counters = None if prepared.workspace is None else workspace.counters(x, *prepared.workspace)
        if prepared.total is not None:
            prepared.total(target, weight, total, counters)
        ctx.dx = None if prepared.written is None else prepared.new_dx()
        prepared.forward(x, target, weight, loss, total, *statistics, counters, ctx.dx)
        ctx.save_for_backward(x, target, weight, total, *statistics)
        ctx.prepared, ctx.options = prepared, options
        return loss

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        prepared = ctx.prepared
        if torch.is_grad_enabled():  # the gradient has to have one too
            x, target, weight, *_ = ctx.saved_tensors
            loss = torch._C._nn.cross_entropy_loss(x, target, weight, *ctx.options)
            (dx,) = torch.autograd.grad(loss, x, grad, create_graph=True)
            return dx, None, None, None, None, None, None
        expanded = not any(grad.stride())
        launch = prepared.gradient if expanded else prepared.gradients
        # The gradient that the forward wrote is returned once.
        dx, ctx.dx = ctx.dx, None
        if dx is None:
            dx = prepared.new_dx()
        elif prepared.written is not None:
            launch = prepared.written
        launch(grad if expanded else grad.contiguous(), *ctx.saved_tensors, dx)
        return dx, None, None, None, None, None, None


@functools.lru_cache(maxsize=4096)
def _prepare(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    probabilities: bool,
    target: torch.dtype,
    unweighted: bool,
    reduction: int,
    ignore_index: int,
    smoothing: float,
    differentiable: bool,
    device: int,
) -> _Prepared:
    R, C = shape
    accumulator = _accumulator(dtype)
    limits = devices.limits(device)
    problem = Problem(max(R, 1), C, 1, dtype.itemsize)
    reduced, mean, classes = reduction != NONE, reduction == MEAN, not probabilities and smoothing == 0
    written = differentiable and reduced and (classes or logits_plan.is_whole(problem, limits))
    written = written and logits_plan.writes_gradient(problem, limits)
    # Without rows, programs that share a row would clear words before the workspace.
    shared = classes and R > 0
    planned = logits_plan.cross_entropy(problem, limits, written, shared, differentiable, reduced)
    options: dict[str, Any] = {
        "MEAN": mean,
        "PROBABILITIES": probabilities,
        "SMOOTHING": float(smoothing),
        "ACC": _TRITON[accumulator],
        **ASSERTIONS,
    }
    held = isinstance(planned, logits_plan.Whole)
    forward, words = _forward(planned, R, C, ignore_index, reduced, options, device)
    total = None
    if written and mean and not probabilities:
        programs = min(_groups(planned), cdiv(R, FORWARD_BLOCK))
        words = max(words, programs)
        blocks = {"BLOCK": FORWARD_BLOCK, "WORDS": _words_at_once(programs, WARPS)}
        total = cross_entropy_total.bind(
            device, (programs,), R, C, ignore_index, ACC=_TRITON[accumulator], **blocks, **ASSERTIONS
        )

    def bind_gradient(stride: int, written: bool) -> Callable[..., None]:
        planned = logits_plan.cross_entropy_gradient(problem, limits, written, held)
        grid, blocks = (planned.programs,), {**_blocks(planned, C), "WRITTEN": written}
        if isinstance(planned, logits_plan.Whole):
            return cross_entropy_rows_gradient.bind(device, grid, R, C, stride, ignore_index, **blocks, **options)
        return cross_entropy_looped_gradient.bind(
            device, grid, R, C, planned.members, stride, ignore_index, **blocks, **options
        )

    return _Prepared(
        Allocation(() if reduced else (R,), dtype, device),
        Allocation((), accumulator, device) if mean and not probabilities else None,
        (words, torch.int64 if accumulator is torch.float64 else torch.int32) if words else None,
        Allocation((R,), accumulator, device),
        Allocation(shape, dtype, device),
        total,
        forward,
        bind_gradient(0, False),
        bind_gradient(1, False),
        bind_gradient(0, True) if written else None,
    )


def _forward(
    planned: logits_plan.Whole | logits_plan.Looped | logits_plan.Shared,
    R: int,
    C: int,
    ignore_index: int,
    reduced: bool,
    options: dict[str, Any],
    device: int,
) -> tuple[Callable[..., None], int]:
    """The launch of the loss, and the words of its workspace."""
    grid, blocks = (planned.programs,), _blocks(planned, C)
    if isinstance(planned, logits_plan.Shared):
        options = {name: option for name, option in options.items() if name not in ("PROBABILITIES", "SMOOTHING")}
        shared = cross_entropy_shared.bind(device, grid, R, C, planned.group, ignore_index, **blocks, **options)
        return functools.partial(_without_dx, shared), 2 * R * planned.group
    groups = _groups(planned)
    blocks |= {"REDUCED": reduced, "WORDS": _words_at_once(groups, planned.warps)}
    words = 2 * groups if reduced and groups > 1 else 0
    if isinstance(planned, logits_plan.Whole):
        blocks["LOOPS"] = cdiv(R, planned.block_r) > planned.programs
        return cross_entropy_rows.bind(device, grid, R, C, ignore_index, **blocks, **options), words
    words += 2 * R * planned.group + groups if planned.group > 1 else 0
    return cross_entropy_looped.bind(device, grid, R, C, planned.group, ignore_index, **blocks, **options), words


def _without_dx(launch: Callable[..., None], *given: Any) -> None:
    launch(*given[:-1])


def _groups(planned: logits_plan.Whole | logits_plan.Looped | logits_plan.Shared) -> int:
    """Programs, or groups of them that share a row."""
    return planned.programs if isinstance(planned, logits_plan.Whole) else planned.programs // planned.group


def _words_at_once(programs: int, warps: int) -> int:
    """Words that the last of ``programs`` programs reads at once: one for each thread at least."""
    threads = warps * WARP
    return min(max(power_of_2(programs), threads), threads * logits_plan.MAX_WORDS_OF_THREAD) if programs > 1 else 1


def _blocks(
    planned: logits_plan.Whole | logits_plan.Looped | logits_plan.Shared | logits_plan.LoopedGradient, C: int
) -> dict[str, Any]:
    """The tile options of a kernel of cross entropy, and its launch options."""
    if isinstance(planned, logits_plan.Whole):
        return {
            "VEC": planned.vec,
            "BLOCK_R": planned.block_r,
            "DEPTH": planned.depth,
            "WIDTH": planned.width,
            "num_warps": planned.warps,
            **({"maxnreg": planned.registers} if planned.registers else {}),
        }
    if isinstance(planned, logits_plan.Looped):
        return {
            "UNALIGNED": C % planned.vec != 0,
            "VEC": planned.vec,
            "LANES": planned.lanes,
            "DEPTH": planned.depth,
            "MEMBERS": planned.members if planned.group > 1 else 1,
            "num_warps": planned.warps,
            "maxnreg": planned.registers,
            **({"launch_cooperative_grid": True} if planned.group > 1 else {}),
        }
    if isinstance(planned, logits_plan.Shared):
        return {
            "UNALIGNED": C % planned.vec != 0,
            "VEC": planned.vec,
            "LANES": planned.warps * WARP,
            "DEPTH": planned.depth,
            "ROWS": planned.rows,
            "MEMBERS": planned.members,
            "num_warps": planned.warps,
            "maxnreg": planned.registers,
        }
    return {
        "UNALIGNED": C % planned.vec != 0,
        "VECTORS": planned.vectors,
        "VEC": planned.vec,
        "STAGES": planned.stages,
        "num_warps": planned.warps,
    }
