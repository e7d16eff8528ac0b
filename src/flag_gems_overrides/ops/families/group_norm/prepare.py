# SPDX-License-Identifier: Apache-2.0
"""The launches of a planned group norm, bound."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from typing import NamedTuple

import torch

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.sizes import power_of_2
from ..norm.partial_sums import sum_partials
from ..norm.plan import plan_partial_sums
from .backward import group_norm_backward_tile
from .backward_channels import group_norm_backward_channels
from .backward_passes import group_norm_backward_apply, group_norm_backward_loop, group_norm_backward_sums
from .backward_rows import group_norm_backward_rows
from .forward import group_norm_apply, group_norm_loop, group_norm_partial_statistics, group_norm_rows
from .launches import (
    BackwardChannels,
    BackwardLoop,
    BackwardRows,
    BackwardSplit,
    Configuration,
    Loop,
    Problem,
    Rows,
    Split,
    Sums,
    Tile,
    Vectors,
)
from .legal import LOOP_REGISTERS, MAX_WARPS
from .plan import choose, launch

# Of the kernel that makes dx of sums. Left to itself the compiler spills 32 bytes for a fifth program to a
# multiprocessor (8 x 256 x 10001 bfloat16, sm_100, 48 registers).
APPLY_REGISTERS = 80
# Of the gradient that holds groups, by whether a program has less than 16 warps. Left to itself the compiler spills 16
# bytes for a second program of 16 (25605 x 261 x 24 float16, sm_90).
ROWS_REGISTERS = {True: 255, False: 128}


def _all_registers(warps: int, needed: bool) -> dict[str, int]:
    """All that a program of so many warps can have, where the compiler spills 8 bytes to make room for a second one."""
    return {"maxnreg": ROWS_REGISTERS[warps < MAX_WARPS]} if needed else {}


class Sizes(NamedTuple):
    """What a call says about its input, as aten passes it."""

    N: int
    C: int
    HW: int
    G: int


def problem_of(sizes: Sizes, dtype: torch.dtype, inputs: int, dx: bool) -> Problem:
    N, C, HW, G = sizes
    return Problem(N * G, C // G, HW, G, dtype.itemsize, inputs, dx)


def forward_launch(
    dtype: torch.dtype, sizes: Sizes, eps: float, device: int, configuration: Configuration | None
) -> Callable[..., None]:
    if math.prod(sizes) == 0:
        return _forward_of_nothing
    N, C, HW, G = sizes
    D = C // G
    (eps_bits,) = struct.unpack("q", struct.pack("d", eps))
    limits, problem = devices.limits(device), problem_of(sizes, dtype, 1, False)
    plan = launch(problem, configuration or choose(problem, limits), limits)
    sizes_of_group = G, D, HW, D * HW
    if isinstance(plan, Rows):
        options = _options(plan.vectors)
        if D == 1:
            options["SPAN"] = 0
        # 4 x 6 x 4099 bfloat16 in 2 groups, sm_80; 1 x 2 x 3363 float64 in 2 groups, sm_90.
        several = plan.vectors.span > 1 and limits.capability[0] < 9
        edges = plan.vectors.unaligned and plan.warps == MAX_WARPS and (several or dtype.itemsize == 8)
        return group_norm_rows.bind(
            device,
            (plan.programs,),
            N * G,
            *sizes_of_group,
            eps_bits,
            num_warps=plan.warps,
            BLOCK_M=plan.groups,
            CHUNKS=plan.chunks,
            **options,
            EARLY=plan.early,
            INT64_ROWS=plan.int64_rows(),
            **_all_registers(plan.warps, edges),
        )
    if isinstance(plan, Loop):
        return group_norm_loop.bind(
            device,
            (plan.programs,),
            N * G,
            *sizes_of_group,
            eps_bits,
            num_warps=plan.warps,
            **_options(plan.vectors),
            STAGES=plan.stages,
            maxnreg=LOOP_REGISTERS,
        )
    assert isinstance(plan, Split)
    options = _options(plan.vectors)
    apply = group_norm_apply.bind(
        device,
        (N * G * plan.tiles,),
        *sizes_of_group,
        plan.slice_size,
        plan.splits,
        eps_bits,
        plan.tiles,
        num_warps=plan.warps,
        BLOCK_S=1 << (plan.splits - 1).bit_length(),
        **options,
    )
    del options["SPAN"]
    statistics = group_norm_partial_statistics.bind(
        device,
        (N * G * plan.splits,),
        D * HW,
        plan.slice_size,
        plan.splits,
        num_warps=plan.warps,
        **options,
        STAGES=plan.stages,
    )
    partial = Allocation((N * G, plan.splits), _accumulator(dtype), device)
    return functools.partial(_forward_split, statistics, apply, partial)


def backward_launch(
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
    limits, problem = devices.limits(device), problem_of(sizes, dtype, 2, want_input)
    plan = launch(problem, configuration or choose(problem, limits), limits)
    sums = apply = of_groups = None
    sizes_of_group = G, D, HW, D * HW
    if isinstance(plan, Tile):
        rows = plan.programs // -(-G // plan.groups)
        # 5 x 1 x 147 float32 on sm_90 and sm_100, 16 x 16 x 64 x 4 in 16 groups on sm_100.
        singles = plan.vec == 1 and plan.warps == MAX_WARPS and dtype.itemsize == 4
        first = group_norm_backward_tile.bind(
            device,
            (plan.programs,),
            N,
            G,
            D,
            HW,
            num_warps=plan.warps,
            BLOCK_N=plan.samples,
            BLOCK_G=plan.groups,
            BLOCK_D=plan.block_d,
            BLOCK_HW=plan.block_hw,
            VEC=plan.vec,
            ONE_TILE=rows * plan.samples >= N,
            STAGES=plan.stages,
            **_all_registers(plan.warps, singles or limits.capability[0] > 9),
        )
    elif isinstance(plan, BackwardRows):
        rows = plan.programs // G
        first = group_norm_backward_rows.bind(
            device,
            (plan.programs,),
            N,
            *sizes_of_group,
            plan.columns,
            num_warps=plan.warps,
            CHUNKS=plan.chunks,
            **_options(plan.vectors),
            ONE_CHANNEL=D == 1,
            FOLD=plan.columns > 0,
            BLOCK_D=plan.block_d,
            BLOCK_K=plan.block_k,
            ONE_TILE=rows == N,
            STAGES=plan.stages,
            maxnreg=ROWS_REGISTERS[plan.warps < MAX_WARPS],
        )
    elif isinstance(plan, BackwardLoop):
        rows = N
        first = group_norm_backward_loop.bind(
            device,
            (plan.programs,),
            N * G,
            *sizes_of_group,
            num_warps=plan.warps,
            **_options_of_sums(plan.sums),
            **_options(plan.vectors),
            STAGES=plan.stages,
            maxnreg=LOOP_REGISTERS,
        )
    elif isinstance(plan, BackwardChannels):
        rows = plan.shares
        if want_input:
            of_groups = group_norm_backward_sums.bind(
                device,
                (N * G * plan.parts,),
                G,
                D,
                HW,
                HW,
                1,
                plan.parts,
                plan.blocks,
                num_warps=plan.warps,
                **_options_of_sums(plan.sums),
                maxnreg=LOOP_REGISTERS,
            )
        first = group_norm_backward_channels.bind(
            device,
            (plan.programs,),
            N,
            *sizes_of_group,
            plan.parts,
            num_warps=plan.warps,
            BLOCK_D=plan.block_d,
            BLOCK_HW=plan.block_hw,
            BLOCK_P=power_of_2(plan.parts) if want_input else 1,
            VEC=plan.sums.vec,
            AHEAD=plan.ahead,
            maxnreg=LOOP_REGISTERS,
        )
    else:
        assert isinstance(plan, BackwardSplit)
        rows = N * plan.splits
        first = group_norm_backward_sums.bind(
            device,
            (N * G * plan.parts,),
            G,
            D,
            HW,
            plan.slice_size,
            plan.splits,
            plan.parts,
            plan.blocks,
            num_warps=plan.warps,
            **_options_of_sums(plan.sums),
            maxnreg=LOOP_REGISTERS,
        )
        if want_input:
            apply = group_norm_backward_apply.bind(
                device,
                (N * G * plan.tiles,),
                *sizes_of_group,
                plan.parts,
                plan.tiles,
                num_warps=plan.warps,
                BLOCK=256,
                **_options(plan.vectors),
                maxnreg=APPLY_REGISTERS,
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
    if isinstance(plan, BackwardSplit):
        of_parts = Allocation((N * G, plan.parts, 2), _accumulator(dtype), device)
        return functools.partial(_backward_split, first, apply, sums, partial, of_parts)
    if isinstance(plan, BackwardChannels):
        of_parts = Allocation((N * G, plan.parts, 2), _accumulator(dtype), device)
        return functools.partial(_backward_channels, of_groups, first, sums, partial, of_parts)
    if isinstance(plan, BackwardRows):
        columns = Allocation((plan.programs, 2, plan.columns), _accumulator(dtype), device)
        return functools.partial(_backward_rows, first, sums, partial, columns if plan.columns else None)
    return functools.partial(_backward_whole, first, sums, partial)


def _options(vectors: Vectors) -> dict[str, int | bool]:
    return {"LANES": vectors.lanes, "VEC": vectors.vec, "SPAN": vectors.span, "UNALIGNED": vectors.unaligned}


def _options_of_sums(sums: Sums) -> dict[str, int | bool]:
    return {
        "BLOCK_D": sums.block_d,
        "BLOCK_HW": sums.block_hw,
        "REST_HW": sums.rest_hw,
        "WHOLE": sums.whole,
        "SUMS_VEC": sums.vec,
        "SUMS_STAGES": sums.stages,
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


def _backward_rows(
    launch: Launch,
    sums: Launch | None,
    partial: Allocation,
    columns: Allocation | None,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    """The same of programs that have room to add up the numbers of a channel."""
    a = dweight if sums is None or dweight is None else partial()
    b = dbias if sums is None or dbias is None else partial()
    launch(grad_out, input, weight, mean, rstd, dx, a, b, None if columns is None else columns())
    if sums is not None:
        sums(a, b, dweight, dbias)


def _backward_split(
    launch: Launch,
    apply: Launch | None,
    sums: Launch | None,
    partial: Allocation,
    of_parts: Allocation,
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
    parts = None if apply is None else of_parts()
    launch(grad_out, input, weight, mean, rstd, a, b, parts)
    if apply is not None:
        apply(grad_out, input, weight, mean, rstd, dx, parts)
    if sums is not None:
        sums(a, b, dweight, dbias)


def _backward_channels(
    of_groups: Launch | None,
    launch: Launch,
    sums: Launch | None,
    partial: Allocation,
    of_parts: Allocation,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    """One kernel for the sums of groups, if dx is wanted, one for dx and the sums of channels, one that adds these."""
    a = dweight if sums is None or dweight is None else partial()
    b = dbias if sums is None or dbias is None else partial()
    parts = None
    if of_groups is not None:
        parts = of_parts()
        of_groups(grad_out, input, weight, mean, rstd, None, None, parts)
    launch(grad_out, input, weight, mean, rstd, dx, a, b, parts)
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
