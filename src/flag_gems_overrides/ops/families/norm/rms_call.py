# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a call to prepared launches, for RMS normalization."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.sizes import cdiv, power_of_2
from .call import _NONE, _Parameter
from .launches import Configuration, FewRows, Flat, Loop, Problem, Rows, ShortRows
from .prepare import (
    accumulator,
    has_pdl,
    long_rows_launch,
    loop_launch,
    parameters_options,
    partial_sums_launch,
    rows_options,
)
from .rms_backward import rms_norm_backward_few_rows, rms_norm_backward_rows
from .rms_flat import rms_norm_columns, rms_norm_flat
from .rms_forward import rms_norm_apply, rms_norm_loop, rms_norm_partial_squares, rms_norm_rows
from .rms_plan import Split, plan_backward, plan_forward, plan_shared_backward
from .rms_short_rows import rms_norm_short_rows
from .two_passes_plan import TwoPasses

# Registers of a thread times warps of a program, which a multiprocessor has. Where nothing is named, the compiler takes
# 80 to 96 for the gradient of few rows, and 104 bytes of 39 x 219 float16 spill (Triton 3.6).
REGISTERS_OF_WARPS = 2048


def compute_forward(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    eps: float | None,
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The normalized rows, and 1 / root mean square of each in x's shape with ones for the normalized dimensions."""
    output, rstd = _forward(x, normalized_shape, weight, eps, True, configuration)
    assert rstd is not None
    return output, rstd


def compute_forward_alone(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None, eps: float | None
) -> torch.Tensor:
    """The normalized rows alone. Of short rows the statistic would be as many bytes. 17 x 407398 x 1 float32: 25.2 us,
    with it 34.8 (H100)."""
    return _forward(x, normalized_shape, weight, eps, False, None)[0]


def _forward(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    eps: float | None,
    with_statistic: bool,
    configuration: Configuration | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    new_output, new_statistic, compute = prepare_forward(
        x.shape,
        tuple(normalized_shape),
        x.dtype,
        None if weight is None else (weight.shape, weight.dtype),
        eps,
        x.get_device(),
        False,
        configuration,
        with_statistic,
    )
    output = new_output()
    rstd = new_statistic() if with_statistic else None
    compute(x.contiguous(), None if weight is None else weight.contiguous(), output, rstd, None, None)
    return output, rstd


def compute_forward_of_sum(
    x: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    eps: float,
    differentiable: bool,
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Writes the normalized sum into ``x`` and the sum into ``residual``.

    Returns:
        If it is ``differentiable``, the sum, which nobody else writes to, and 1 / root mean square of each row.
    """
    new_sum, new_statistic, compute = prepare_forward(
        x.shape,
        tuple(normalized_shape),
        x.dtype,
        None if weight is None else (weight.shape, weight.dtype),
        eps,
        x.get_device(),
        True,
        configuration,
        differentiable,
    )
    output, given = x.contiguous(), residual.contiguous()
    total, rstd = (new_sum(), new_statistic()) if differentiable else (given, None)
    compute(output, None if weight is None else weight.contiguous(), output, rstd, given, total)
    if output is not x:
        x.copy_(output)
    if total is not residual:
        residual.copy_(total)
    return (total, rstd) if differentiable else (None, None)


def compute_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    rstd: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients of x and weight, or None for what ``output_mask`` does not ask for."""
    want_input, want_weight = output_mask[0], output_mask[1] and weight is not None
    new_dx, new_dweight, compute = prepare_backward(
        x.shape,
        tuple(normalized_shape),
        (x.dtype, dy.dtype, rstd.dtype),
        (dy.numel(), rstd.numel()),
        None if weight is None else (weight.shape, weight.dtype),
        want_input,
        want_weight,
        x.get_device(),
    )
    dx = new_dx() if want_input else None
    dweight = new_dweight() if want_weight else None
    compute(
        dy.contiguous(),
        x.contiguous(),
        None if weight is None else weight.contiguous(),
        rstd.contiguous(),
        dx,
        dweight,
    )
    return dx, dweight


class _Forward(NamedTuple):
    output: Allocation
    statistic: Allocation
    launch: Callable[..., None]


class _Backward(NamedTuple):
    dx: Allocation
    dweight: Allocation
    launch: Callable[..., None]


@functools.lru_cache(maxsize=4096)
def prepare_forward(
    shape: torch.Size,
    normalized_shape: tuple[int, ...],
    dtype: torch.dtype,
    weight: _Parameter | None,
    eps: float | None,
    device: int,
    residual: bool = False,
    configuration: Configuration | None = None,
    with_statistic: bool = True,
) -> _Forward:
    """What all calls with these arguments share. eps None is PyTorch's default: that of the type it computes in.

    The configuration is ``rms_plan``'s where none is given. Launches with and without a statistic are of different
    kernels.
    """
    _check(shape, normalized_shape, weight)
    outer = shape[: len(shape) - len(normalized_shape)]
    computed = accumulator(dtype)
    (eps_bits,) = struct.unpack("q", struct.pack("d", torch.finfo(computed).eps if eps is None else eps))
    statistic = Allocation((*outer, *(1 for _ in normalized_shape)), computed, device)
    problem = Problem(math.prod(outer), math.prod(normalized_shape), 1, dtype.itemsize, False, residual)
    launch = _forward_launch(problem, dtype, eps_bits, device, configuration)
    return _Forward(Allocation(shape, dtype, device), statistic, launch)


def _forward_launch(
    problem: Problem, dtype: torch.dtype, eps_bits: int, device: int, configuration: Configuration | None
) -> Callable[..., None]:
    M, N, *_ = problem
    if M == 0 or N == 0:
        return _forward_of_nothing
    plan = plan_forward(problem, devices.limits(device), configuration)
    if isinstance(plan, Flat):
        kernel = rms_norm_columns if plan.columns else rms_norm_flat
        return kernel.bind(device, (plan.programs,), M, eps_bits, N=N, BLOCK_M=plan.block_m, num_warps=plan.warps)
    if isinstance(plan, ShortRows):
        options = {"N": N, "BLOCK_M": plan.block_m, "ROWS": plan.rows, "VEC": plan.vec}
        return rms_norm_short_rows.bind(device, (plan.programs,), M, eps_bits, num_warps=plan.warps, **options)
    if isinstance(plan, Rows):
        options = rows_options(plan, M) | parameters_options(plan, 4)
        return rms_norm_rows.bind(device, (plan.programs,), M, N, eps_bits, **options)
    if isinstance(plan, Loop):
        sizes = M, N, eps_bits, plan.slice_size, plan.group
        return loop_launch(rms_norm_loop, sizes, M, dtype, plan, device, UNALIGNED=plan.unaligned)
    blocks = _blocks(plan) | {"TAIL": N % plan.vec != 0}
    squares = rms_norm_partial_squares.bind(
        device, (M * plan.splits,), N, plan.slice_size, plan.splits, **blocks, STAGES=plan.stages
    )
    apply = rms_norm_apply.bind(
        device,
        (M * cdiv(N // plan.vec * plan.vec, plan.block_n),),
        N,
        plan.splits,
        eps_bits,
        **blocks,
        BLOCK_S=power_of_2(plan.splits),
    )
    return functools.partial(_forward_split, squares, apply, Allocation((M, plan.splits), accumulator(dtype), device))


def _blocks(plan: Split) -> dict[str, int]:
    return {"num_warps": plan.warps, "BLOCK_N": plan.block_n, "VEC": plan.vec}


@functools.lru_cache(maxsize=4096)
def prepare_backward(
    shape: torch.Size,
    normalized_shape: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    sizes: tuple[int, int],
    weight: _Parameter | None,
    want_input: bool,
    want_weight: bool,
    device: int,
) -> _Backward:
    """What all calls with these arguments share.

    Args:
        dtypes: of input, grad_out and rstd; a launch is for one combination of them.
        sizes: numbers of elements of grad_out and rstd.
    """
    _check(shape, normalized_shape, weight)
    M, N = math.prod(shape[: len(shape) - len(normalized_shape)]), math.prod(normalized_shape)
    if sizes != (M * N, M):
        raise RuntimeError(f"Expected grad_out of {M * N} elements and rstd of {M}, but got {sizes[0]} and {sizes[1]}")
    size, dtype = weight or _NONE
    dweight = Allocation(size, dtype, device)
    launch = _backward_launch(M, N, dtypes[0], want_input, want_weight, device)
    return _Backward(Allocation(shape, dtypes[0], device), dweight, launch)


def _backward_launch(
    M: int, N: int, dtype: torch.dtype, want_input: bool, want_weight: bool, device: int
) -> Callable[..., None]:
    if M == 0 or N == 0 or not (want_input or want_weight):
        return _backward_of_nothing
    plan = plan_backward(M, N, dtype.itemsize, devices.limits(device))
    if isinstance(plan, FewRows):
        programs = want_input * plan.row_programs + want_weight * plan.column_programs
        return rms_norm_backward_few_rows.bind(
            device,
            (programs,),
            M,
            N,
            num_warps=plan.warps,
            maxnreg=min(255, REGISTERS_OF_WARPS // plan.warps),
            BLOCK_M=plan.block_m,
            BLOCK_N=plan.block_n,
            COLUMN_ROWS=plan.column_rows,
            COLUMNS=plan.columns,
        )
    if isinstance(plan, TwoPasses):
        shared = plan_shared_backward(M, N, dtype.itemsize, plan, devices.limits(device))
        long_rows = long_rows_launch(M, N, dtype, shared, want_input, int(want_weight), False, device)
        return functools.partial(_backward_without_mean, long_rows)
    pdl = want_weight and plan.programs > 1 and has_pdl(device)
    stride = -(-N // 16) * 16
    options = rows_options(plan, M)
    launch = rms_norm_backward_rows.bind(device, (plan.programs,), M, N, stride, **options, PDL=pdl)
    if not want_weight or plan.programs == 1:
        return launch
    launch_sums = partial_sums_launch(plan.programs, N, stride, 1, pdl, device)
    partial = Allocation((plan.programs, stride), accumulator(dtype), device)
    return functools.partial(_backward_with_partial_sums, launch, launch_sums, partial)


def _backward_without_mean(
    launch: Callable[..., None],
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    rstd: torch.Tensor,
    dx: torch.Tensor,
    dweight: torch.Tensor | None,
) -> None:
    no_mean, no_bias = None, None
    launch(grad_out, input, weight, no_mean, rstd, dx, dweight, no_bias)


def _forward_split(
    launch_squares: Launch,
    launch_apply: Launch,
    partial: Allocation,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    output: torch.Tensor,
    rstd: torch.Tensor | None,
    residual: torch.Tensor | None,
    total: torch.Tensor | None,
) -> None:
    squares = partial()
    launch_squares(input, residual, total, squares)
    launch_apply(input if total is None else total, weight, output, rstd, squares)


def _backward_with_partial_sums(
    launch: Callable[..., None],
    launch_sums: Launch,
    partial: Allocation,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
) -> None:
    dweight_partial = partial()
    launch(grad_out, input, weight, rstd, dx, dweight_partial)
    launch_sums(dweight_partial, None, dweight, None)


def _forward_of_nothing(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    output: torch.Tensor,
    rstd: torch.Tensor | None,
    residual: torch.Tensor | None,
    total: torch.Tensor | None,
) -> None:
    if rstd is not None:
        rstd.fill_(math.nan)  # the mean of no squares


def _backward_of_nothing(*tensors: torch.Tensor | None) -> None:
    if tensors[-1] is not None:
        tensors[-1].zero_()


def _check(shape: torch.Size, normalized_shape: tuple[int, ...], weight: _Parameter | None) -> None:
    """Raise PyTorch's error when the shapes do not fit together."""
    dims = len(normalized_shape)
    if not dims:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    if weight is not None and weight[0] != normalized_shape:
        raise RuntimeError(
            f"Expected weight to be of same shape as normalized_shape, but got weight of shape {list(weight[0])} and "
            f"normalized_shape = {list(normalized_shape)}"
        )
    if len(shape) < dims:
        raise ValueError(f"Input tensor must have at least {dims} dimensions, but got {len(shape)}")
    if shape[-dims:] != normalized_shape:
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape "
            f"[*{', '.join(map(str, normalized_shape))}], but got input of size{list(shape)}"
        )
