# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a call to prepared launches, for batch normalization."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...launch.allocation import Allocation
from .layout import same_order, view
from .plan import Configuration, Problem
from .prepare import accumulator, backward_launch, forward_launch

_Vector = tuple[int, torch.dtype]  # elements and dtype of a tensor with a number for each channel


def problem(op: str, *arguments: Any) -> Problem:
    """What ``op`` is planned for on these arguments of its ATen overload; only shapes, strides and dtypes are read."""
    backward = op.endswith("_backward")
    x = arguments[1 if backward else 0]
    layout = view(x.shape, x.stride()) or view(x.shape, _preserved(x.shape, x.stride()))
    assert layout is not None
    return Problem(*layout, x.dtype.itemsize, 2 if backward else 1)


def launch_with(configuration: Configuration, op: str, *arguments: Any) -> tuple[torch.Tensor | None, ...]:
    """The result of ``op`` in training by a launch in this configuration; ValueError where it is not legal."""
    if op.endswith("_backward"):
        grad_out, x, weight, _, _, mean, rstd, train, eps, mask = arguments
        return compute_backward(grad_out, x, weight, mean, rstd, train, eps, mask, configuration)
    x, weight, bias, running_mean, running_var, training, momentum, eps = arguments
    return compute_forward(x, weight, bias, running_mean, running_var, training, momentum, eps, configuration)


def compute_forward(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(output, mean, rstd); the running statistics are updated in place in training."""
    dense, new_output, new_statistic, compute = prepare_forward(
        input.shape,
        input.stride(),
        input.dtype,
        None if weight is None else (weight.numel(), weight.dtype),
        None if bias is None else (bias.numel(), bias.dtype),
        None if running_mean is None else (running_mean.numel(), running_mean.dtype),
        None if running_var is None else (running_var.numel(), running_var.dtype),
        training,
        momentum,
        eps,
        input.get_device(),
        configuration,
    )
    output = new_output()
    mean = new_statistic()
    rstd = new_statistic()
    running = [None if each is None else each.contiguous() for each in (running_mean, running_var)]
    compute(
        input if dense else output.copy_(input),
        None if weight is None else weight.contiguous(),
        None if bias is None else bias.contiguous(),
        *running,
        output,
        mean,
        rstd,
    )
    if training:
        for each, updated in zip((running_mean, running_var), running, strict=True):
            if each is not None and updated is not None and updated is not each:
                each.copy_(updated)
    return output, mean, rstd


def compute_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    spread: torch.Tensor,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The gradients of input, weight and bias, or None for what ``output_mask`` does not ask for.

    ``spread`` is 1 / standard deviation of each channel in training, and the running variance else.
    """
    want_input, want_weight, want_bias = output_mask
    shape, strides = input.shape, input.stride()
    dense, new_dx, new_dparameter, compute = prepare_backward(
        shape,
        strides,
        (input.dtype, grad_out.dtype, mean.dtype, spread.dtype),
        (grad_out.numel(), mean.numel(), spread.numel()),
        None if weight is None else (weight.numel(), weight.dtype),
        train,
        eps,
        (want_input, want_weight, want_bias),
        input.get_device(),
        configuration,
    )
    dx = new_dx() if want_input else None
    dweight = new_dparameter() if want_weight else None
    dbias = new_dparameter() if want_bias else None
    if not dense:
        input = new_dx().copy_(input)
    if not same_order(shape, input.stride(), grad_out.stride()):
        grad_out = grad_out.contiguous() if input.is_contiguous() else new_dx().copy_(grad_out)
    compute(
        grad_out,
        input,
        None if weight is None else weight.contiguous(),
        mean.contiguous(),
        spread.contiguous(),
        dx,
        dweight,
        dbias,
    )
    return dx, dweight, dbias


class _Forward(NamedTuple):
    dense: bool
    output: Allocation
    statistic: Allocation
    launch: Callable[..., None]


class _Backward(NamedTuple):
    dense: bool
    dx: Allocation
    dparameter: Allocation
    launch: Callable[..., None]


@functools.lru_cache(maxsize=4096)
def prepare_forward(
    shape: torch.Size,
    strides: tuple[int, ...],
    dtype: torch.dtype,
    weight: _Vector | None,
    bias: _Vector | None,
    running_mean: _Vector | None,
    running_var: _Vector | None,
    training: bool,
    momentum: float,
    eps: float,
    device: int,
    configuration: Configuration | None = None,
) -> _Forward:
    """What all calls with these arguments share. The dtypes are there because a launch is for one combination."""
    if len(shape) < 2:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-max(len(shape), 1)}, {max(len(shape), 1) - 1}], "
            "but got 1)"
        )
    if (running_mean is None) != (running_var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    if not training and running_mean is None:
        raise RuntimeError("running_mean must be defined in evaluation mode")
    vectors = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check_sizes(shape[1], vectors)
    layout = view(shape, strides)
    ordered = strides if layout else _preserved(shape, strides)
    layout = layout or view(shape, ordered)
    assert layout is not None
    output = Allocation(shape, dtype, device, ordered)
    statistic = Allocation((shape[1],), accumulator(dtype), device)
    launch = forward_launch(layout, dtype, training, momentum, eps, device, configuration)
    return _Forward(ordered is strides, output, statistic, launch)


@functools.lru_cache(maxsize=4096)
def prepare_backward(
    shape: torch.Size,
    strides: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    sizes: tuple[int, ...],
    weight: _Vector | None,
    training: bool,
    eps: float,
    mask: tuple[bool, bool, bool],
    device: int,
    configuration: Configuration | None = None,
) -> _Backward:
    """What all calls with these arguments share.

    Args:
        strides: of the input.
        dtypes: of input, grad_out and the two statistics; a launch is for one combination of them.
        sizes: numbers of elements of grad_out and the two statistics.
    """
    C = shape[1]
    if sizes[0] != math.prod(shape):
        raise RuntimeError(
            f"Expected grad_out to have {math.prod(shape)} elements, as the input, but it has {sizes[0]}"
        )
    given = zip(("mean", "variance"), sizes[1:], dtypes[2:], strict=True)
    _check_sizes(C, {"weight": weight, **{name: (size, dtype) for name, size, dtype in given}})
    layout = view(shape, strides)
    ordered = strides if layout else _preserved(shape, strides)
    layout = layout or view(shape, ordered)
    assert layout is not None
    dx = Allocation(shape, dtypes[0], device, ordered)
    dparameter = Allocation((C,), weight[1] if weight else dtypes[0], device)
    launch = backward_launch(layout, dtypes[0], training, eps, mask, device, configuration)
    return _Backward(ordered is strides, dx, dparameter, launch)


def _preserved(shape: torch.Size, strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that PyTorch gives a copy of such a tensor."""
    return torch.empty_like(torch.empty_strided(shape, strides, device="meta")).stride()


def _check_sizes(C: int, vectors: dict[str, _Vector | None]) -> None:
    """Raise the error of ``torch.nn.functional.batch_norm`` where a tensor has not a number for each channel."""
    for name, each in vectors.items():
        if each is not None and each[0] != C:
            raise RuntimeError(f"{name} should contain {C} elements not {each[0]}")
