# SPDX-License-Identifier: Apache-2.0
"""From tensors to launches, for layer normalization."""

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
from .backward import combine_kernel, merged_kernel, split_kernel
from .forward import split_rows_kernel, whole_rows_kernel
from .loop import forward_kernel, input_kernel, weight_bias_kernel
from .plan import Loop, Rows, Split, plan_backward, plan_combine, plan_forward

_Parameter = tuple[torch.Size, torch.dtype]
_NONE = (torch.Size(), torch.float32)  # never allocated


class _Forward(NamedTuple):
    output: Allocation
    statistic: Allocation
    compute: Callable[..., None]


class _Backward(NamedTuple):
    dx: Allocation
    dweight: Allocation
    dbias: Allocation
    compute: Callable[..., None]


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
    """What all calls of this description share."""
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
        return whole_rows_kernel.bind(
            device,
            (plan.programs,),
            M,
            N,
            eps_bits,
            num_warps=plan.warps,
            ROWS=plan.rows,
            CHUNKS=plan.chunks,
            WIDTH=plan.width,
            VEC=plan.vec,
            CUT=plan.cut,
            FAR=plan.far(M),
            STAGES=plan.stages,
        )
    if isinstance(plan, Split):
        launch = split_rows_kernel.bind(
            device, (plan.programs,), M, N, eps_bits, plan.slice_size, plan.group, **_split_options(plan)
        )
        return _with_slots(launch, M, plan)
    return forward_kernel.bind(device, (plan.programs,), M, N, eps_bits, num_warps=plan.warps, BLOCK=plan.block)


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
    """What all calls of this description share. ``dtypes`` and ``sizes`` are those of input (the former), grad_out,
    mean and rstd: a launch is good for one combination of dtypes."""
    _check(shape, normalized_shape, weight, bias)
    if (want_weight and weight is None) or (want_bias and bias is None):
        raise RuntimeError("tensor does not have a device")
    N = math.prod(normalized_shape)
    M = math.prod(shape[: len(shape) - len(normalized_shape)])
    _check_sizes(M, N, sizes)
    dx, dweight, dbias = (
        Allocation(size, dtype, device) for size, dtype in ((shape, dtypes[0]), weight or _NONE, bias or _NONE)
    )
    compute = _backward_launches(M, N, dtypes[0], want_input, want_weight, want_bias, device)
    return _Backward(dx, dweight, dbias, compute)


def _backward_launches(
    M: int, N: int, dtype: torch.dtype, want_input: bool, want_weight: bool, want_bias: bool, device: int
) -> Callable[..., None]:
    if M == 0 or N == 0 or not (want_input or want_weight or want_bias):
        return _backward_of_nothing
    limits = devices.limits(device)
    plan = plan_backward(M, N, dtype.itemsize, limits)
    if isinstance(plan, Loop) or (isinstance(plan, Split) and not want_input):
        return _backward_loops(M, N, plan, want_input, want_weight or want_bias, limits, device)
    # Not behind a cooperative launch: what CUDA makes of both, in a graph above all, is nowhere said.
    overlap = isinstance(plan, Rows) and limits.capability >= (9, 0) and not knobs.runtime.interpret
    stride = -(-N // 16) * 16
    if isinstance(plan, Rows):
        partials = plan.programs
        main: Callable[..., None] = merged_kernel.bind(
            device,
            (plan.programs,),
            M,
            N,
            stride,
            num_warps=plan.warps,
            ROWS=plan.rows,
            CHUNKS=plan.chunks,
            WIDTH=plan.width,
            VEC=plan.vec,
            CUT=plan.cut,
            FAR=plan.far(M),
            STAGES=plan.stages,
            OVERLAP=overlap,
        )
    else:
        partials = plan.programs // plan.group
        launch = split_kernel.bind(
            device,
            (plan.programs,),
            M,
            N,
            stride,
            plan.slice_size,
            plan.group,
            **_split_options(plan),
        )
        main = _with_slots(launch, M, plan)
    if partials == 1 or not (want_weight or want_bias):
        return main
    adding = plan_combine(partials, N, want_weight + want_bias, limits)
    combine = combine_kernel.bind(
        device,
        (adding.programs, want_weight + want_bias),
        partials,
        N,
        stride,
        num_warps=adding.warps,
        ROWS=adding.rows,
        COLUMNS=adding.columns,
        OVERLAP=overlap,
        **({"launch_pdl": True} if overlap else {}),
    )
    return functools.partial(_then_combine, main, combine, Allocation((partials, stride), _accumulator(dtype), device))


def _backward_loops(
    M: int, N: int, plan: Split | Loop, want_input: bool, want_sums: bool, limits: devices.Limits, device: int
) -> Callable[..., None]:
    of_input = of_sums = None
    if want_input and isinstance(plan, Loop):
        of_input = input_kernel.bind(device, (plan.programs,), M, N, num_warps=plan.warps, BLOCK=plan.block)
    if want_sums:
        programs = min(-(-N // 128), limits.sm_count * 8)
        of_sums = weight_bias_kernel.bind(device, (programs,), M, N, num_warps=4, ROWS=16, COLUMNS=128)
    return functools.partial(_in_loops, of_input, of_sums)


def _split_options(plan: Split) -> dict[str, int | bool]:
    return {
        "num_warps": plan.warps,
        "maxnreg": plan.registers,
        "launch_cooperative_grid": True,
        "CHUNKS": plan.chunks,
        "WIDTH": plan.width,
        "VEC": plan.vec,
        "CUT": plan.cut,
        "BLOCK": plan.block,
        "STAGES": plan.stages,
    }


def _with_slots(launch: Launch, M: int, plan: Split) -> Callable[..., None]:
    """With a word for each program and row, and a counter for each group."""
    return functools.partial(with_counters, launch, M * plan.group + plan.programs // plan.group, torch.int64)


def _then_combine(
    main: Callable[..., None],
    combine: Launch,
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
    main(grad_out, input, weight, mean, rstd, dx, dweight_partial, dbias_partial)
    combine(dweight_partial, dbias_partial, dweight, dbias)


def _in_loops(
    of_input: Launch | None,
    of_sums: Launch | None,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    if of_input is not None:
        of_input(grad_out, input, weight, mean, rstd, dx)
    if of_sums is not None:
        of_sums(grad_out, input, mean, rstd, dweight, dbias)


def _forward_of_nothing(*tensors: torch.Tensor) -> None:
    # The mean of a row without elements is a sum of nothing, its rstd one over the square root of 0 / 0.
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
    """Raise CUDA PyTorch's error when a tensor is not as large as the kernels take it to be."""
    for name, size, expected, of in zip(("dY", "mean", "rstd"), sizes, (M * N, M, M), ("M * N", "M", "M"), strict=True):
        if size != expected and M > 0:
            raise RuntimeError(
                f"Expected {name}.numel() == {of} to be true, but got false.  (Could this error message be improved?  "
                "If so, please report an enhancement request to PyTorch.)"
            )
