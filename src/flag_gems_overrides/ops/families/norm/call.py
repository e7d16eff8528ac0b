# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a call to prepared launches, for layer normalization."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from typing import NamedTuple

import torch
from triton import knobs

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.workspace import with_counters
from .backward import layer_norm_backward_rows, layer_norm_backward_split
from .forward import layer_norm_rows, layer_norm_split
from .loop import layer_norm_backward_loop_dweight, layer_norm_backward_loop_dx, layer_norm_loop
from .partial_sums import sum_partials
from .plan import Loop, Rows, Split, plan_backward, plan_forward, plan_partial_sums

_Parameter = tuple[torch.Size, torch.dtype]
_NONE = (torch.Size(), torch.float32)  # never allocated


class _Forward(NamedTuple):
    output: Allocation
    statistic: Allocation
    launch: Callable[..., None]


class _Backward(NamedTuple):
    dx: Allocation
    dweight: Allocation
    dbias: Allocation
    launch: Callable[..., None]


@functools.lru_cache(maxsize=4096)
def prepare_forward(
    shape: torch.Size,
    normalized_shape: tuple[int, ...],
    dtype: torch.dtype,
    weight: _Parameter | None,
    bias: _Parameter | None,
    eps: float,
    device: int,
) -> _Forward:
    """What all calls with these arguments share."""
    _check(shape, normalized_shape, weight, bias)
    outer = shape[: len(shape) - len(normalized_shape)]
    M, N = math.prod(outer), math.prod(normalized_shape)
    statistic = Allocation((*outer, *(1 for _ in normalized_shape)), _accumulator(dtype), device)
    return _Forward(Allocation(shape, dtype, device), statistic, _forward_launch(M, N, dtype, eps, device))


def _forward_launch(M: int, N: int, dtype: torch.dtype, eps: float, device: int) -> Callable[..., None]:
    if M == 0 or N == 0:
        return _forward_of_nothing
    (eps_bits,) = struct.unpack("q", struct.pack("d", eps))
    plan = plan_forward(M, N, dtype.itemsize, devices.limits(device))
    if isinstance(plan, Rows):
        return layer_norm_rows.bind(device, (plan.programs,), M, N, eps_bits, **_rows_options(plan, M))
    if isinstance(plan, Split):
        launch = layer_norm_split.bind(
            device, (plan.programs,), M, N, eps_bits, plan.slice_size, plan.group, **_split_options(plan)
        )
        return _with_workspace(launch, M, plan)
    return layer_norm_loop.bind(device, (plan.programs,), M, N, eps_bits, num_warps=plan.warps, BLOCK_N=plan.block_n)


@functools.lru_cache(maxsize=4096)
def prepare_backward(
    shape: torch.Size,
    normalized_shape: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    sizes: tuple[int, int, int],
    weight: _Parameter | None,
    bias: _Parameter | None,
    want_input: bool,
    want_weight: bool,
    want_bias: bool,
    device: int,
) -> _Backward:
    """What all calls with these arguments share.

    Args:
        dtypes: of input, grad_out, mean and rstd; a launch is for one combination of them.
        sizes: numbers of elements of grad_out, mean and rstd.
    """
    _check(shape, normalized_shape, weight, bias)
    if (want_weight and weight is None) or (want_bias and bias is None):
        raise RuntimeError("tensor does not have a device")
    N = math.prod(normalized_shape)
    M = math.prod(shape[: len(shape) - len(normalized_shape)])
    _check_sizes(M, N, sizes)
    dx, dweight, dbias = (
        Allocation(size, dtype, device) for size, dtype in ((shape, dtypes[0]), weight or _NONE, bias or _NONE)
    )
    launch = _backward_launch(M, N, dtypes[0], want_input, want_weight, want_bias, device)
    return _Backward(dx, dweight, dbias, launch)


def _backward_launch(
    M: int, N: int, dtype: torch.dtype, want_input: bool, want_weight: bool, want_bias: bool, device: int
) -> Callable[..., None]:
    if M == 0 or N == 0 or not (want_input or want_weight or want_bias):
        return _backward_of_nothing
    limits = devices.limits(device)
    plan = plan_backward(M, N, dtype.itemsize, limits)
    if isinstance(plan, Loop) or (isinstance(plan, Split) and not want_input):
        return _backward_loops(M, N, plan, want_input, want_weight or want_bias, limits, device)
    stride = -(-N // 16) * 16
    # Not after a cooperative launch: CUDA does not document the combination, least of all in a graph.
    pdl = isinstance(plan, Rows) and limits.capability >= (9, 0) and not knobs.runtime.interpret
    launch: Callable[..., None]
    if isinstance(plan, Rows):
        partials = plan.programs
        launch = layer_norm_backward_rows.bind(
            device, (plan.programs,), M, N, stride, **_rows_options(plan, M), PDL=pdl
        )
    else:
        partials = plan.programs // plan.group
        split = layer_norm_backward_split.bind(
            device, (plan.programs,), M, N, stride, plan.slice_size, plan.group, **_split_options(plan)
        )
        launch = _with_workspace(split, M, plan)
    if partials == 1 or not (want_weight or want_bias):
        return launch
    outputs = want_weight + want_bias
    sums = plan_partial_sums(partials, N, outputs, limits)
    launch_sums = sum_partials.bind(
        device,
        (sums.programs, outputs),
        partials,
        N,
        stride,
        num_warps=sums.warps,
        BLOCK_P=sums.block_p,
        BLOCK_N=sums.block_n,
        PDL=pdl,
        **({"launch_pdl": True} if pdl else {}),
    )
    partial = Allocation((partials, stride), _accumulator(dtype), device)
    return functools.partial(_backward_with_partial_sums, launch, launch_sums, partial)


def _backward_loops(
    M: int, N: int, plan: Split | Loop, want_input: bool, want_sums: bool, limits: devices.Limits, device: int
) -> Callable[..., None]:
    launch_dx = launch_dweight = None
    if want_input and isinstance(plan, Loop):
        launch_dx = layer_norm_backward_loop_dx.bind(
            device, (plan.programs,), M, N, num_warps=plan.warps, BLOCK_N=plan.block_n
        )
    if want_sums:
        programs = min(-(-N // 128), limits.sm_count * 8)
        launch_dweight = layer_norm_backward_loop_dweight.bind(
            device, (programs,), M, N, num_warps=4, BLOCK_M=16, BLOCK_N=128
        )
    return functools.partial(_backward_in_loops, launch_dx, launch_dweight)


def _rows_options(plan: Rows, M: int) -> dict[str, int | bool]:
    return {
        "num_warps": plan.warps,
        "BLOCK_M": plan.block_m,
        "CHUNKS": plan.chunks,
        "BLOCK_N": plan.block_n,
        "VEC": plan.vec,
        "UNALIGNED": plan.unaligned,
        "INT64_ROWS": plan.int64_rows(M),
        "STAGES": plan.stages,
    }


def _split_options(plan: Split) -> dict[str, int | bool]:
    return {
        "num_warps": plan.warps,
        "maxnreg": plan.registers,
        "launch_cooperative_grid": True,
        "CHUNKS": plan.chunks,
        "BLOCK_N": plan.block_n,
        "VEC": plan.vec,
        "UNALIGNED": plan.unaligned,
        "BLOCK": plan.block,
        "STAGES": plan.stages,
    }


def _with_workspace(launch: Launch, M: int, plan: Split) -> Callable[..., None]:
    """With a word for each row and program of its group, and a counter for each group."""
    return functools.partial(with_counters, launch, M * plan.group + plan.programs // plan.group, torch.int64)


def _backward_with_partial_sums(
    launch: Callable[..., None],
    launch_sums: Launch,
    partial: Allocation,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    dweight_partial = None if dweight is None else partial()
    dbias_partial = None if dbias is None else partial()
    launch(grad_out, input, weight, mean, rstd, dx, dweight_partial, dbias_partial)
    launch_sums(dweight_partial, dbias_partial, dweight, dbias)


def _backward_in_loops(
    launch_dx: Launch | None,
    launch_dweight: Launch | None,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    if launch_dx is not None:
        launch_dx(grad_out, input, weight, mean, rstd, dx)
    if launch_dweight is not None:
        launch_dweight(grad_out, input, mean, rstd, dweight, dbias)


def _forward_of_nothing(*tensors: torch.Tensor) -> None:
    # As PyTorch: the mean of a row without elements is 0, its rstd is NaN.
    tensors[-2].zero_()
    tensors[-1].fill_(math.nan)


def _backward_of_nothing(*tensors: torch.Tensor | None) -> None:
    for gradient in tensors[-2:]:
        if gradient is not None:
            gradient.zero_()


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _check(
    shape: torch.Size, normalized_shape: tuple[int, ...], weight: _Parameter | None, bias: _Parameter | None
) -> None:
    """Raise PyTorch's error when the shapes do not fit together."""
    if not normalized_shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter[0] != normalized_shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(parameter[0])} and normalized_shape = {list(normalized_shape)}"
            )
    if len(shape) < len(normalized_shape) or shape[-len(normalized_shape) :] != normalized_shape:
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape "
            f"[*{''.join(f', {size}' for size in normalized_shape)}], but got input of size{list(shape)}"
        )


def _check_sizes(M: int, N: int, sizes: tuple[int, int, int]) -> None:
    """Raise the error of PyTorch on CUDA when a tensor does not have the size that the kernels expect."""
    for name, size, expected, of in zip(("dY", "mean", "rstd"), sizes, (M * N, M, M), ("M * N", "M", "M"), strict=True):
        if size != expected and M > 0:
            raise RuntimeError(
                f"Expected {name}.numel() == {of} to be true, but got false.  (Could this error message be improved?  "
                "If so, please report an enhancement request to PyTorch.)"
            )
