# SPDX-License-Identifier: Apache-2.0
"""From tensors to launches, for nll_loss and nll_loss2d alike."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton.language as tl

from ...launch import devices, workspace
from ...launch.allocation import Allocation
from ...launch.prepared import Entry, Launch
from ...launch.sizes import WARP, cdiv, power_of_2
from . import plan
from .nll import nll_forward, nll_gradient_fill, nll_gradient_images, nll_gradient_tile
from .nll_flat import divisor, nll_gradient_flat
from .nll_scattered import nll_gradient_scatter, nll_gradient_zeros
from .nll_short import nll_gradient_short

NONE, MEAN, SUM = range(3)
# Device assertions, but no checks of integer overflow.
ASSERTIONS: dict[str, Any] = {"debug": True, "sanitize_overflow": False}


class _Forward(NamedTuple):
    new_out: Allocation
    new_total: Allocation
    launch: Callable[..., None]
    words: int  # 0 for one program
    copy: bool  # whether the scores must be made contiguous first


class _Backward(NamedTuple):
    new_dx: Allocation
    launch: Callable[..., None] | None  # None if there is nothing to write


def problem(op: str, grad_output: torch.Tensor, x: torch.Tensor, *_: Any) -> plan.Problem:
    """What the gradient ``op`` is planned for on these arguments; only shapes and dtypes are read."""
    return plan.gradient_problem(*_sizes(x.shape, "2d" in op), x.dtype.itemsize)


def launch_with(configuration: plan.Configuration, op: str, *arguments: Any) -> torch.Tensor:
    """The result of ``op`` by a launch in this configuration; ValueError where it is not legal."""
    grad_output, x, target, weight, reduction, ignore_index, total_weight = arguments
    given = target, weight, reduction, ignore_index, total_weight
    return backward(grad_output, x, *given, "2d" in op, configuration)


def forward(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    spatial: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, and the sum of the weights that count."""
    weight_shape = None if weight is None else weight.shape
    tensors = x.shape, x.stride(), x.dtype, target.shape, target.dtype, weight_shape
    new_out, new_total, launch, words, copy = _prepare_forward(
        *tensors, reduction, ignore_index, spatial, x.get_device()
    )
    out, total = new_out(), new_total()
    if copy:
        x = x.contiguous()
    given = x, target.contiguous(), None if weight is None else weight.contiguous(), out, total
    launch(*given, workspace.counters(x, words, torch.int64) if words else None)
    return out, total


def backward(
    grad_output: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor | None,
    spatial: bool,
    configuration: plan.Configuration | None = None,
) -> torch.Tensor:
    """The gradient by the scores."""
    weight_shape = None if weight is None else weight.shape
    total_shape = None if total_weight is None else total_weight.shape
    # A sum's gradient is one element, expanded: it need not be copied.
    expanded = not any(grad_output.stride())
    tensors = grad_output.shape, expanded, x.shape, x.dtype, target.shape, target.dtype, weight_shape, total_shape
    new_dx, launch = _prepare_backward(*tensors, reduction, ignore_index, spatial, x.get_device(), configuration)
    dx = new_dx()
    if launch is not None:
        launch(
            grad_output if expanded else grad_output.contiguous(),
            target.contiguous(),
            None if weight is None else weight.contiguous(),
            total_weight if reduction == MEAN else None,
            dx,
        )
    return dx


@functools.lru_cache(maxsize=4096)
def _prepare_forward(
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    target: tuple[int, ...],
    target_dtype: torch.dtype,
    weight: tuple[int, ...] | None,
    reduction: int,
    ignore_index: int,
    spatial: bool,
    device: int,
) -> _Forward:
    (_refuse_spatial if spatial else _refuse)(shape, target)
    N, C, D = _sizes(shape, spatial)
    if weight is not None and weight != (C,):
        raise RuntimeError(
            f"weight tensor should be defined either for all {C} classes or no classes but got weight tensor of "
            f"shape: {list(weight)}"
        )
    strides = _strides(shape, stride, spatial)
    accumulator = _accumulator(dtype)
    # PyTorch reduces a single sample, whatever the reduction is.
    reduced = reduction != NONE or len(shape) == 1
    planned = plan.forward(plan.Problem(N, C, D, dtype.itemsize), reduced, devices.limits(device))
    programs = planned.programs
    launch = nll_forward.bind(
        device,
        (programs,),
        N * D,
        C,
        D,
        *(strides or (C * D, D, 1)),
        ignore_index,
        num_warps=planned.warps,
        REDUCED=reduced,
        MEAN=reduction == MEAN,
        ACC=_TRITON[accumulator],
        BLOCK=planned.block,
        WORDS=max(power_of_2(programs), planned.warps * WARP) if programs > 1 else 1,
        ONE_CLASS=C == 1,
        INT64_POSITIONS=N * D + planned.block >= 2**31,
        PREFETCH=planned.prefetch,
        **ASSERTIONS,
    )
    words = programs * (1 if accumulator is torch.float32 else 2) if reduced and programs > 1 else 0
    out = Allocation(() if reduced else target, dtype, device)
    return _Forward(out, Allocation((), dtype, device), launch, words, strides is None)


@functools.lru_cache(maxsize=4096)
def _prepare_backward(
    grad: tuple[int, ...],
    expanded: bool,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    target: tuple[int, ...],
    target_dtype: torch.dtype,
    weight: tuple[int, ...] | None,
    total: tuple[int, ...] | None,
    reduction: int,
    ignore_index: int,
    spatial: bool,
    device: int,
    configuration: plan.Configuration | None = None,
) -> _Backward:
    (_refuse_spatial if spatial else _refuse)(shape, target)
    N, C, D = _sizes(shape, spatial)
    if total is not None and math.prod(total) != 1:
        raise RuntimeError(
            f"expected total_weight to be a single element tensor, got: {list(total)} ({math.prod(total)} elements)"
        )
    if weight is not None and weight != (C,):
        raise RuntimeError("weight tensor should be defined either for all or no classes")
    if reduction == NONE and len(shape) > 1:
        if grad != target:
            raise RuntimeError(f"size mismatch (got grad_output: {list(grad)} target: {list(target)})")
    elif len(grad) > 1 or math.prod(grad) != 1:
        raise RuntimeError(f"Expected a single element grad_output tensor, but got: {list(grad)}")

    dx = Allocation(shape, dtype, device)
    if N * C * D == 0:
        return _Backward(dx, None)
    problem, limits = plan.gradient_problem(N, C, D, dtype.itemsize), devices.limits(device)
    N, C, D, _ = problem
    chosen = plan.launch(problem, configuration or plan.choose(problem, limits), limits)
    grad_stride = 0 if expanded or math.prod(grad) == 1 else 1
    options: dict[str, Any] = {"num_warps": chosen.warps, **ASSERTIONS}
    options |= {"MEAN": reduction == MEAN, "ACC": _TRITON[_accumulator(dtype)]}
    if isinstance(chosen, plan.Scatter):
        clear = nll_gradient_zeros.bind(device, (chosen.programs,), N, C, D, BLOCK=chosen.block, num_warps=chosen.warps)
        options |= {"BLOCK": plan.SCATTERED, "num_warps": plan.WARPS}
        scatter = nll_gradient_scatter.bind(device, (chosen.scatters,), N, C, D, grad_stride, ignore_index, **options)
        return _Backward(dx, functools.partial(_scattered, clear, scatter))
    kernel, sizes, blocks = _gradient_kernel(chosen, N, C, D)
    if isinstance(chosen, plan.Flat):
        options["IGNORED"] = 0 <= ignore_index < C
    options |= blocks
    return _Backward(dx, kernel.bind(device, (chosen.programs,), *sizes, grad_stride, ignore_index, **options))


def _scattered(clear: Launch, scatter: Launch, *given: Any) -> None:
    *_, dx = given
    clear(dx)
    scatter(*given)


def _gradient_kernel(
    chosen: plan.Fill | plan.Short | plan.Images | plan.Tile | plan.Flat, N: int, C: int, D: int
) -> tuple[Entry, tuple[int, ...], dict[str, Any]]:
    """The kernel, its sizes, and its blocks by name."""
    far = N * C * D + plan.MAX_BLOCK >= 2**31
    match chosen:
        case plan.Fill():
            blocks: dict[str, Any] = {"BLOCK": chosen.block, "POSITIONS": chosen.positions, "INT64_OFFSETS": far}
            return nll_gradient_fill, (N, C, D), blocks
        case plan.Short():
            blocks = {"VECTORS": chosen.vectors, "VEC": chosen.vec, "INT64_OFFSETS": far}
            return nll_gradient_short, (N, C), blocks
        case plan.Images():
            sizes: tuple[int, ...] = (N, C, D, chosen.blocks, chosen.step, chosen.advance)
            blocks = {"VECTORS": chosen.vectors, "VEC": chosen.vec, "ALIGN": chosen.align}
            blocks |= {"maxnreg": plan.ROW_REGISTERS}
            return nll_gradient_images, sizes, blocks
        case plan.Flat():
            W, groups = D // chosen.vec, cdiv(C, chosen.classes)
            sizes = N * groups * W, C, W, groups, *divisor(W), *divisor(groups)
            blocks = {"BLOCK": chosen.block, "VEC": chosen.vec, "CLASSES": chosen.classes, "ALIGN": chosen.align}
            return nll_gradient_flat, sizes, blocks | {"ONE_GROUP": groups == 1, "WHOLE": C % chosen.classes == 0}
    blocks = {"BLOCK_N": chosen.block_n, "BLOCK_C": chosen.block_c, "BLOCK_D": chosen.block_d, "VEC": chosen.vec}
    blocks |= {"ONE_TILE": chosen.block_c >= C, "WHOLE": chosen.block_c == C}
    return nll_gradient_tile, (N, C, D, cdiv(D, chosen.block_d), chosen.splits), blocks


def _refuse(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Raise as PyTorch does for shapes that do not go together."""
    if len(shape) not in (1, 2):
        raise RuntimeError("input tensor should be 1D or 2D")
    if len(target) > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if len(shape) == 1 and math.prod(target) != 1:
        raise ValueError(f"For 1D input, 1D target must have size 1, but got target size: {math.prod(target)}")
    if len(shape) == 2 and shape[:1] != target:
        raise RuntimeError(f"size mismatch (got input: {list(shape)}, target: {list(target)})")


def _refuse_spatial(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    if len(target) != 3:
        raise RuntimeError(
            f"only batches of spatial targets supported (3D tensors) but got targets of dimension: {len(target)}"
        )
    if len(shape) != 4:
        raise RuntimeError(
            f"only batches of spatial inputs supported (4D tensors), but got input of dimension: {len(shape)}"
        )
    if (shape[0], *shape[2:]) != target:
        raise RuntimeError(f"size mismatch (got input: {list(shape)} , target: {list(target)}")


def _sizes(shape: tuple[int, ...], spatial: bool) -> tuple[int, int, int]:
    """(N, C, D) of the scores."""
    if spatial:
        return shape[0], shape[1], shape[2] * shape[3]
    return (shape[0] if len(shape) == 2 else 1), shape[-1], 1


def _strides(shape: tuple[int, ...], stride: tuple[int, ...], spatial: bool) -> tuple[int, int, int] | None:
    """Strides of N, C and D; None where the two dimensions of D have no common stride."""
    if not spatial:
        return (stride[0] if len(shape) == 2 else 0), stride[-1], 0
    if shape[2] > 1 and shape[3] > 1 and stride[2] != shape[3] * stride[3]:
        return None
    return stride[0], stride[1], stride[3] if shape[3] > 1 else stride[2]


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


_TRITON = {torch.float32: tl.float32, torch.float64: tl.float64}
