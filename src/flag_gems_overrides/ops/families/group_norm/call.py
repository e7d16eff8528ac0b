# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a call to prepared launches, for group normalization."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...launch.allocation import Allocation
from .launches import Configuration, Problem
from .prepare import Sizes, forward_launch, problem_of
from .prepare_backward import backward_launch

_Parameter = tuple[torch.Size, torch.dtype]


def problem(op: str, *arguments: Any) -> Problem:
    """What ``op`` is planned for on these arguments of its ATen overload; only sizes and dtypes are read."""
    if op == "group_norm_backward":
        _, x, _, _, _, N, C, HW, G, (dx, _, _) = arguments
        return problem_of(Sizes(N, C, HW, G), x.dtype, 2, dx)
    x, _, _, N, C, HW, G, _ = arguments
    return problem_of(Sizes(N, C, HW, G), x.dtype, 1, False)


def launch_with(configuration: Configuration, op: str, *arguments: Any) -> tuple[torch.Tensor | None, ...]:
    """The result of ``op`` by a launch in this configuration; ValueError where it is not legal."""
    compute: Any = compute_backward if op == "group_norm_backward" else compute_forward
    result: tuple[torch.Tensor | None, ...] = compute(*arguments, configuration)
    return result


def compute_forward(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(output, mean, rstd), by the configuration that the plan chooses unless one is given."""
    new_output, new_statistic, compute = prepare_forward(
        input.shape,
        input.dtype,
        None if weight is None else (weight.shape, weight.dtype),
        None if bias is None else (bias.shape, bias.dtype),
        Sizes(N, C, HxW, group),
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
    )
    return output, mean, rstd


def compute_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The gradients of input, weight and bias, or None for what ``output_mask`` does not ask for."""
    want_input, want_weight, want_bias = output_mask
    new_dx, new_parameter, compute = prepare_backward(
        input.shape,
        (input.dtype, mean.dtype, rstd.dtype),
        (grad_out.numel(), mean.numel(), rstd.numel()),
        None if weight is None else (weight.shape, weight.dtype),
        Sizes(N, C, HxW, group),
        (want_input, want_weight, want_bias),
        input.get_device(),
        configuration,
    )
    dx = new_dx() if want_input else None
    dweight = new_parameter() if want_weight else None
    dbias = new_parameter() if want_bias else None
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


class _Forward(NamedTuple):
    output: Allocation
    statistic: Allocation
    launch: Callable[..., None]


class _Backward(NamedTuple):
    dx: Allocation
    parameter: Allocation
    launch: Callable[..., None]


@functools.lru_cache(maxsize=4096)
def prepare_forward(
    shape: torch.Size,
    dtype: torch.dtype,
    weight: _Parameter | None,
    bias: _Parameter | None,
    sizes: Sizes,
    eps: float,
    device: int,
    configuration: Configuration | None = None,
) -> _Forward:
    """What all calls with these arguments share."""
    if not (sizes.C and sizes.HW):
        # An answer up to PyTorch 2.13, an error from 2.14 on: its function without data knows.
        torch.native_group_norm(torch.empty(shape, device="meta"), None, None, *sizes, eps)
    _check(shape, weight, bias, sizes)
    # PyTorch's statistics are of the input's type, those of half inputs too, or of the parameters' where they differ.
    parameter = weight or bias
    statistic = Allocation((sizes.N, sizes.G), parameter[1] if parameter else dtype, device)
    compute = forward_launch(dtype, sizes, eps, device, configuration)
    return _Forward(Allocation(shape, dtype, device), statistic, compute)


@functools.lru_cache(maxsize=4096)
def prepare_backward(
    shape: torch.Size,
    dtypes: tuple[torch.dtype, ...],
    counts: tuple[int, int, int],
    weight: _Parameter | None,
    sizes: Sizes,
    want: tuple[bool, bool, bool],
    device: int,
    configuration: Configuration | None = None,
) -> _Backward:
    """What all calls with these arguments share.

    Args:
        dtypes: of input, mean and rstd; a launch is for one combination of them.
        counts: numbers of elements of grad_out, mean and rstd.
        want: which of the gradients of input, weight and bias.
    """
    _check(shape, weight, None, sizes)
    expected = (math.prod(shape), sizes.N * sizes.G, sizes.N * sizes.G)
    for name, count, of in zip(("dY", "mean", "rstd"), counts, expected, strict=True):
        if count != of and expected[0]:
            raise RuntimeError(f"Expected {name} of {of} elements, but got {count}")
    parameter = Allocation((sizes.C,), weight[1] if weight else dtypes[0], device)
    compute = backward_launch(dtypes[0], sizes, want, device, configuration)
    return _Backward(Allocation(shape, dtypes[0], device), parameter, compute)


def _check(shape: torch.Size, weight: _Parameter | None, bias: _Parameter | None, sizes: Sizes) -> None:
    """Raise PyTorch's error when the arguments do not fit together."""
    if sizes.G <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {sizes.G}")
    if sizes.C % sizes.G:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(shape)} and num_groups={sizes.G}"
        )
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter[0] != (sizes.C,):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of "
                f"shape {list(parameter[0])} and input of shape {list(shape)}"
            )
    if math.prod(shape) != sizes.N * sizes.C * sizes.HW:
        raise RuntimeError(
            f"Expected input of N * C * HxW = {sizes.N} * {sizes.C} * {sizes.HW} elements, but got shape {list(shape)}"
        )
