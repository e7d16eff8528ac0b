# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a call to prepared launches, for group normalization."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ..norm.partial_sums import sum_partials
from ..norm.plan import plan_partial_sums
from .backward import (
    group_norm_backward_apply,
    group_norm_backward_loop,
    group_norm_backward_sums,
    group_norm_backward_tile,
)
from .forward import group_norm_apply, group_norm_loop, group_norm_partial_statistics, group_norm_tile
from .launches import LOOP_REGISTERS, Configuration, Loop, Problem, Split, Tile
from .plan import choose, launch

# Of the kernel that makes dx of sums. Left to itself the compiler spills 32 bytes for a fifth program to a
# multiprocessor (8 x 256 x 10001 bfloat16, sm_100, 48 registers).
APPLY_REGISTERS = 80

_Parameter = tuple[torch.Size, torch.dtype]


class Sizes(NamedTuple):
    """What a call says about its input, as aten passes it."""

    N: int
    C: int
    HW: int
    G: int


def problem(op: str, *arguments: Any) -> Problem:
    """What ``op`` is planned for on these arguments of its ATen overload; only sizes and dtypes are read."""
    if op == "group_norm_backward":
        _, x, _, _, _, N, C, HW, G, (dx, _, _) = arguments
        return _problem(Sizes(N, C, HW, G), x.dtype, 2, dx)
    x, _, _, N, C, HW, G, _ = arguments
    return _problem(Sizes(N, C, HW, G), x.dtype, 1, False)


def _problem(sizes: Sizes, dtype: torch.dtype, inputs: int, dx: bool) -> Problem:
    N, C, HW, G = sizes
    return Problem(N * G, C // G, HW, G, dtype.itemsize, inputs, dx)


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
    compute = _forward_launch(dtype, sizes, eps, device, configuration)
    return _Forward(Allocation(shape, dtype, device), statistic, compute)


def _forward_launch(
    dtype: torch.dtype, sizes: Sizes, eps: float, device: int, configuration: Configuration | None
) -> Callable[..., None]:
    if math.prod(sizes) == 0:
        return _forward_of_nothing
    N, C, HW, G = sizes
    D = C // G
    (eps_bits,) = struct.unpack("q", struct.pack("d", eps))
    limits, problem = devices.limits(device), _problem(sizes, dtype, 1, False)
    plan = launch(problem, configuration or choose(problem, limits), limits)
    if isinstance(plan, Tile):
        return group_norm_tile.bind(
            device, (plan.programs,), N * G, G, D, HW, eps_bits, **_tile_options(plan, "BLOCK_M")
        )
    blocks = {"num_warps": plan.warps, "BLOCK_D": plan.block_d, "BLOCK_HW": plan.block_hw, "VEC": plan.vec}
    if isinstance(plan, Loop):
        return group_norm_loop.bind(
            device,
            (plan.programs,),
            N * G,
            G,
            D,
            HW,
            D * HW,
            eps_bits,
            **blocks,
            STAGES=plan.stages,
            maxnreg=LOOP_REGISTERS,
        )
    statistics = group_norm_partial_statistics.bind(
        device,
        (N * G * plan.splits,),
        D * HW,
        plan.slice_size,
        plan.splits,
        num_warps=plan.warps,
        BLOCK=plan.block_d * plan.block_hw,
        VEC=plan.vec,
        STAGES=plan.stages,
    )
    apply = group_norm_apply.bind(
        device,
        (N * G * plan.tiles,),
        G,
        D,
        HW,
        D * HW,
        plan.slice_size,
        plan.splits,
        eps_bits,
        **blocks,
        BLOCK_S=1 << (plan.splits - 1).bit_length(),
    )
    partial = Allocation((N * G, plan.splits), _accumulator(dtype), device)
    return functools.partial(_forward_split, statistics, apply, partial)


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
    compute = _backward_launch(dtypes[0], sizes, want, device, configuration)
    return _Backward(Allocation(shape, dtypes[0], device), parameter, compute)


def _backward_launch(
    dtype: torch.dtype,
    sizes: Sizes,
    want: tuple[bool, bool, bool],
    device: int,
    configuration: Configuration | None,
) -> Callable[..., None]:
    if math.prod(sizes) == 0 or not any(want):
        return _backward_of_nothing
    N, C, HW, G = sizes
    D = C // G
    want_input = want[0]
    limits, problem = devices.limits(device), _problem(sizes, dtype, 2, want_input)
    plan = launch(problem, configuration or choose(problem, limits), limits)
    sums = apply = None
    if isinstance(plan, Tile):
        rows = plan.programs // -(-G // plan.groups)
        first = group_norm_backward_tile.bind(
            device,
            (plan.programs,),
            N,
            G,
            D,
            HW,
            BLOCK_N=plan.samples,
            **_tile_options(plan, "BLOCK_G"),
            STAGES=plan.stages,
        )
    else:
        blocks = {"num_warps": plan.warps, "BLOCK_D": plan.block_d, "BLOCK_HW": plan.block_hw, "VEC": plan.vec}
        if isinstance(plan, Loop):
            rows = N
            first = group_norm_backward_loop.bind(
                device, (plan.programs,), N * G, G, D, HW, **blocks, STAGES=plan.stages, maxnreg=LOOP_REGISTERS
            )
        else:
            rows, parts = N * plan.splits, -(-D // plan.block_d) * plan.splits
            first = group_norm_backward_sums.bind(
                device,
                (N * G * parts,),
                G,
                D,
                HW,
                plan.slice_size,
                plan.splits,
                **blocks,
                STAGES=plan.stages,
                maxnreg=LOOP_REGISTERS,
            )
            if want_input:
                apply = group_norm_backward_apply.bind(
                    device, (N * G * plan.tiles,), G, D, HW, parts, **blocks, BLOCK=256, maxnreg=APPLY_REGISTERS
                )
    outputs = want[1] + want[2]
    if outputs and rows > 1:
        adding = plan_partial_sums(rows, C, outputs, limits)
        sums = sum_partials.bind(
            device,
            (adding.programs, outputs),
            rows,
            C,
            C,
            num_warps=adding.warps,
            BLOCK_P=adding.block_p,
            BLOCK_N=adding.block_n,
            PDL=False,
        )
    partial = Allocation((rows, C), _accumulator(dtype), device)
    if isinstance(plan, Split):
        of_groups = Allocation((N * G, parts, 2), _accumulator(dtype), device)
        return functools.partial(_backward_split, first, apply, sums, partial, of_groups)
    return functools.partial(_backward_whole, first, sums, partial)


def _tile_options(plan: Tile, groups: str) -> dict[str, int]:
    return {
        "num_warps": plan.warps,
        groups: plan.groups,
        "BLOCK_D": plan.block_d,
        "BLOCK_HW": plan.block_hw,
        "VEC": plan.vec,
    }


def _forward_split(
    statistics: Launch,
    apply: Launch,
    partial: Allocation,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> None:
    partial_mean, partial_squares = partial(), partial()
    statistics(input, partial_mean, partial_squares)
    apply(input, weight, bias, output, mean, rstd, partial_mean, partial_squares)


def _backward_whole(
    launch: Launch,
    sums: Launch | None,
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
    """One kernel for dx and the sums of each program, and one that adds these up, if there are several."""
    if sums is None:
        launch(grad_out, input, weight, mean, rstd, dx, dweight, dbias)
        return
    a = None if dweight is None else partial()
    b = None if dbias is None else partial()
    launch(grad_out, input, weight, mean, rstd, dx, a, b)
    sums(a, b, dweight, dbias)


def _backward_split(
    launch: Launch,
    apply: Launch | None,
    sums: Launch | None,
    partial: Allocation,
    of_groups: Allocation,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    """One kernel for the sums, one that makes dx of them, and one that adds them up."""
    a = dweight if sums is None or dweight is None else partial()
    b = dbias if sums is None or dbias is None else partial()
    parts = None if apply is None else of_groups()
    launch(grad_out, input, weight, mean, rstd, a, b, parts)
    if apply is not None:
        apply(grad_out, input, weight, mean, rstd, dx, parts)
    if sums is not None:
        sums(a, b, dweight, dbias)


def _forward_of_nothing(*tensors: torch.Tensor) -> None:
    # As PyTorch: the mean of a group without elements is 0, its rstd is NaN.
    tensors[-2].zero_()
    tensors[-1].fill_(math.nan)


def _backward_of_nothing(*tensors: torch.Tensor | None) -> None:
    for gradient in tensors[-2:]:
        if gradient is not None:
            gradient.zero_()


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


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
