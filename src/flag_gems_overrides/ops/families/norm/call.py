# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a call to its results, for layer normalization."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...launch.allocation import Allocation
from .launches import Configuration, Problem
from .prepare import accumulator, backward_launch, forward_launch

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
    statistic = Allocation((*outer, *(1 for _ in normalized_shape)), accumulator(dtype), device)
    launch = forward_launch(Problem(M, N, 1, dtype.itemsize, False, residual), dtype, eps, device, configuration)
    return _Forward(Allocation(shape, dtype, device), statistic, launch)


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
    launch = backward_launch(M, N, dtypes[0], want_input, want_weight, want_bias, device, configuration)
    return _Backward(dx, dweight, dbias, launch)


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
