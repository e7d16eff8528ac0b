# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a call to prepared launches, for layer normalization."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from triton import knobs

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Entry, Launch
from ...launch.workspace import with_counters
from . import launches, plan
from .backward import layer_norm_backward_rows, layer_norm_backward_split
from .columns import layer_norm_backward_columns, layer_norm_backward_few_rows
from .flat import layer_norm_columns, layer_norm_flat
from .forward import layer_norm_rows, layer_norm_split
from .launches import Configuration, FewRows, Flat, Loop, Problem, Rows, Split
from .loop import layer_norm_backward_loop, layer_norm_loop
from .partial_sums import sum_partials

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


def problem(op: str, *arguments: Any) -> Problem:
    """What ``op`` is planned for on the arguments of a case; only shapes and dtypes are read."""
    backward, residual = op.endswith("_backward"), op.startswith("skip_")
    x, normalized_shape = arguments[1:3] if backward or residual else arguments[:2]
    N = math.prod(normalized_shape)
    return Problem(x.numel() // N, N, 1, x.dtype.itemsize, backward, residual)


def launch_with(
    configuration: Configuration, op: str, *arguments: Any
) -> torch.Tensor | tuple[torch.Tensor | None, ...]:
    """The results of ``op`` by a launch in this configuration; ValueError where it is not legal."""
    if op.startswith("skip_"):
        x, residual, normalized_shape, weight, bias, eps = arguments
        return forward_of_sum(x, residual, normalized_shape, weight, bias, eps, False, configuration)[0]
    compute: Callable[..., tuple[torch.Tensor | None, ...]] = backward if op.endswith("_backward") else forward
    return compute(*arguments, configuration)


def forward(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    new_output, new_statistic, compute = prepare_forward(
        input.shape,
        tuple(normalized_shape),
        input.dtype,
        None if weight is None else (weight.shape, weight.dtype),
        None if bias is None else (bias.shape, bias.dtype),
        eps,
        input.get_device(),
        configuration,
    )
    output = new_output()
    mean = new_statistic()
    rstd = new_statistic()
    compute(
        input.contiguous(),
        None if weight is None else weight.contiguous(),
        None if bias is None else bias.contiguous(),
        output,
        mean,
        rstd,
        None,
        None,
    )
    return output, mean, rstd


def forward_of_sum(
    input: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    differentiable: bool,
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """:func:`forward` of input + residual: the output, and if it is ``differentiable`` the sum, mean and rstd."""
    new_output, new_statistic, compute = prepare_forward(
        input.shape,
        tuple(normalized_shape),
        input.dtype,
        None if weight is None else (weight.shape, weight.dtype),
        None if bias is None else (bias.shape, bias.dtype),
        eps,
        input.get_device(),
        configuration,
        True,
        differentiable,
    )
    output = new_output()
    mean, rstd, total = (new_statistic(), new_statistic(), new_output()) if differentiable else (None, None, None)
    compute(
        input.contiguous(),
        None if weight is None else weight.contiguous(),
        None if bias is None else bias.contiguous(),
        output,
        mean,
        rstd,
        residual.contiguous(),
        total,
    )
    return output, total, mean, rstd


def backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_mask: Sequence[bool],
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    want_input, want_weight, want_bias = output_mask
    new_dx, new_dweight, new_dbias, compute = prepare_backward(
        input.shape,
        tuple(normalized_shape),
        (input.dtype, grad_out.dtype, mean.dtype, rstd.dtype),
        (grad_out.numel(), mean.numel(), rstd.numel()),
        None if weight is None else (weight.shape, weight.dtype),
        None if bias is None else (bias.shape, bias.dtype),
        want_input,
        want_weight,
        want_bias,
        input.get_device(),
        configuration,
    )
    dx = new_dx() if want_input else None
    dweight = new_dweight() if want_weight else None
    dbias = new_dbias() if want_bias else None
    compute(
        grad_out.contiguous(),
        input.contiguous(),
        None if weight is None else weight.contiguous(),
        mean.contiguous(),
        rstd.contiguous(),
        dx,
        dweight,
        dbias,
    )
    return dx, dweight, dbias


@functools.lru_cache(maxsize=4096)
def prepare_forward(
    shape: torch.Size,
    normalized_shape: tuple[int, ...],
    dtype: torch.dtype,
    weight: _Parameter | None,
    bias: _Parameter | None,
    eps: float,
    device: int,
    configuration: Configuration | None = None,
    residual: bool = False,
    differentiable: bool = True,
) -> _Forward:
    """What all calls with these arguments share. The configuration is ``plan.choose``'s where none is given.

    Args:
        differentiable: whether there are tensors for the statistics, and for the sum with a residual.
    """
    _check(shape, normalized_shape, weight, bias)
    outer = shape[: len(shape) - len(normalized_shape)]
    M, N = math.prod(outer), math.prod(normalized_shape)
    statistic = Allocation((*outer, *(1 for _ in normalized_shape)), _accumulator(dtype), device)
    launch = _forward_launch(Problem(M, N, 1, dtype.itemsize, False, residual), dtype, eps, device, configuration)
    return _Forward(Allocation(shape, dtype, device), statistic, launch)


def _forward_launch(
    problem: Problem, dtype: torch.dtype, eps: float, device: int, configuration: Configuration | None
) -> Callable[..., None]:
    M, N, *_ = problem
    if M == 0 or N == 0:
        return _forward_of_nothing
    (eps_bits,) = struct.unpack("q", struct.pack("d", eps))
    chosen = _planned(problem, device, configuration)
    if isinstance(chosen, Flat):
        kernel = layer_norm_columns if chosen.columns else layer_norm_flat
        return kernel.bind(device, (chosen.programs,), M, eps_bits, num_warps=chosen.warps, N=N, BLOCK_M=chosen.block_m)
    if isinstance(chosen, Rows):
        return layer_norm_rows.bind(
            device, (chosen.programs,), M, N, eps_bits, **_rows_options(chosen, M), LATE=chosen.late
        )
    if isinstance(chosen, Split):
        sizes = M, N, eps_bits, chosen.slice_size, chosen.group
        return _with_workspace(
            layer_norm_split.bind(device, (chosen.programs,), *sizes, **_split_options(chosen)), M, chosen
        )
    assert isinstance(chosen, Loop)
    sizes = M, N, eps_bits, chosen.slice_size, chosen.group
    return _loop(layer_norm_loop, sizes, M, dtype, chosen, device)


def _planned(problem: Problem, device: int, configuration: Configuration | None) -> launches.Launch:
    limits = devices.limits(device)
    return launches.launch(problem, configuration or plan.choose(problem, limits), limits)


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
    configuration: Configuration | None = None,
) -> _Backward:
    """What all calls with these arguments share. The configuration is ``plan.choose``'s where none is given.

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
    launch = _backward_launch(M, N, dtypes[0], want_input, want_weight, want_bias, device, configuration)
    return _Backward(dx, dweight, dbias, launch)


def _backward_launch(
    M: int,
    N: int,
    dtype: torch.dtype,
    want_input: bool,
    want_weight: bool,
    want_bias: bool,
    device: int,
    configuration: Configuration | None,
) -> Callable[..., None]:
    outputs = want_weight + want_bias
    if M == 0 or N == 0 or not (want_input or outputs):
        return _backward_of_nothing
    chosen = _planned(Problem(M, N, 1, dtype.itemsize, True), device, configuration)
    if isinstance(chosen, FewRows):
        programs = want_input * chosen.row_programs + (outputs > 0) * chosen.column_programs
        return layer_norm_backward_few_rows.bind(
            device,
            (programs,),
            M,
            N,
            num_warps=chosen.warps,
            BLOCK_M=chosen.block_m,
            BLOCK_N=chosen.block_n,
            COLUMN_ROWS=chosen.column_rows,
            COLUMNS=chosen.columns,
        )
    if isinstance(chosen, Loop) or (isinstance(chosen, Split) and not want_input):
        dx = None
        if want_input and isinstance(chosen, Loop):
            dx = _loop(layer_norm_backward_loop, (M, N, chosen.slice_size, chosen.group), M, dtype, chosen, device)
        sums = _sums_of_columns(M, N, dtype, outputs, device) if outputs else None
        return functools.partial(_backward_in_two, dx, sums)
    stride = -(-N // 16) * 16
    # Not after a cooperative launch: CUDA does not document the combination, least of all in a graph.
    pdl = isinstance(chosen, Rows) and _has_pdl(device)
    launch: Callable[..., None]
    if isinstance(chosen, Rows):
        partials = chosen.programs
        launch = layer_norm_backward_rows.bind(
            device, (chosen.programs,), M, N, stride, **_rows_options(chosen, M), PDL=pdl
        )
    else:
        assert isinstance(chosen, Split)
        partials = chosen.programs // chosen.group
        sizes = M, N, stride, chosen.slice_size, chosen.group
        split = layer_norm_backward_split.bind(device, (chosen.programs,), *sizes, **_split_options(chosen))
        launch = _with_workspace(split, M, chosen)
    if partials == 1 or not outputs:
        return launch
    launch_sums = _partial_sums(partials, N, stride, outputs, pdl, device)
    partial = Allocation((partials, stride), _accumulator(dtype), device)
    return functools.partial(_backward_with_partial_sums, launch, launch_sums, partial)


def _sums_of_columns(M: int, N: int, dtype: torch.dtype, outputs: int, device: int) -> Callable[..., None]:
    """dweight and dbias from grad_out, input, mean and rstd."""
    chosen = launches.columns(M, N, devices.limits(device))
    stride = -(-N // 16) * 16
    pdl = chosen.splits > 1 and _has_pdl(device)
    launch = layer_norm_backward_columns.bind(
        device,
        (chosen.programs, chosen.splits),
        M,
        N,
        stride,
        chosen.rows,
        num_warps=chosen.warps,
        BLOCK_M=chosen.block_m,
        BLOCK_N=chosen.block_n,
        VEC=math.gcd(N, 16 // dtype.itemsize),
        PDL=pdl,
    )
    if chosen.splits == 1:
        return launch
    launch_sums = _partial_sums(chosen.splits, N, stride, outputs, pdl, device)
    partial = Allocation((chosen.splits, stride), _accumulator(dtype), device)
    return functools.partial(_columns_with_partial_sums, launch, launch_sums, partial)


def _partial_sums(P: int, N: int, stride: int, outputs: int, pdl: bool, device: int) -> Launch:
    sums = plan.plan_partial_sums(P, N, outputs, devices.limits(device))
    return sum_partials.bind(
        device,
        (sums.programs, outputs),
        P,
        N,
        stride,
        num_warps=sums.warps,
        BLOCK_P=sums.block_p,
        BLOCK_N=sums.block_n,
        PDL=pdl,
        **({"launch_pdl": True} if pdl else {}),
    )


def _loop(
    kernel: Entry, sizes: tuple[int, ...], M: int, dtype: torch.dtype, chosen: Loop, device: int
) -> Callable[..., None]:
    options = {"num_warps": chosen.warps, "BLOCK_N": chosen.block_n, "VEC": chosen.vec, "STAGES": chosen.stages}
    if chosen.group == 1:
        no_workspace = None
        return kernel.bind(device, (chosen.programs,), no_workspace, *sizes, **options)
    launch = kernel.bind(
        device, (chosen.programs,), *sizes, maxnreg=chosen.registers, launch_cooperative_grid=True, **options
    )
    # Up to two words for each row and program of its group, and a counter for each group.
    count = 2 * M * chosen.group + chosen.programs // chosen.group
    return functools.partial(with_counters, launch, count, torch.int64 if dtype is torch.float64 else torch.int32)


def _has_pdl(device: int) -> bool:
    return devices.limits(device).capability >= (9, 0) and not knobs.runtime.interpret


def _rows_options(rows: Rows, M: int) -> dict[str, int | bool]:
    return {
        "num_warps": rows.warps,
        "BLOCK_M": rows.block_m,
        "CHUNKS": rows.chunks,
        "BLOCK_N": rows.block_n,
        "VEC": rows.vec,
        "UNALIGNED": rows.unaligned,
        "INT64_ROWS": rows.int64_rows(M),
        "ONE_TILE": rows.programs * rows.block_m >= M,
        "STAGES": rows.stages,
    }


def _split_options(split: Split) -> dict[str, int | bool]:
    return {
        "num_warps": split.warps,
        "maxnreg": split.registers,
        "launch_cooperative_grid": True,
        "CHUNKS": split.chunks,
        "BLOCK_N": split.block_n,
        "VEC": split.vec,
        "UNALIGNED": split.unaligned,
        "BLOCK": split.block,
        "STAGES": split.stages,
    }


def _with_workspace(launch: Launch, M: int, split: Split) -> Callable[..., None]:
    """With a word for each row and program of its group, and a counter for each group."""
    return functools.partial(with_counters, launch, M * split.group + split.programs // split.group, torch.int64)


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


def _columns_with_partial_sums(
    launch: Launch,
    launch_sums: Launch,
    partial: Allocation,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    dweight_partial = None if dweight is None else partial()
    dbias_partial = None if dbias is None else partial()
    launch(grad_out, input, mean, rstd, dweight_partial, dbias_partial)
    launch_sums(dweight_partial, dbias_partial, dweight, dbias)


def _backward_in_two(
    launch_dx: Callable[..., None] | None,
    launch_sums: Callable[..., None] | None,
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
    if launch_sums is not None:
        launch_sums(grad_out, input, mean, rstd, dweight, dbias)


def _forward_of_nothing(*tensors: torch.Tensor | None) -> None:
    # As PyTorch: the mean of a row without elements is 0, its rstd is NaN.
    mean, rstd = tensors[4:6]
    if mean is not None and rstd is not None:
        mean.zero_()
        rstd.fill_(math.nan)


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
