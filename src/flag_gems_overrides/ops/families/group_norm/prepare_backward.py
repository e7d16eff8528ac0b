# SPDX-License-Identifier: Apache-2.0
"""The launches of a planned gradient of group norm, bound."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.devices import Limits
from ...launch.prepared import Launch
from ...launch.sizes import power_of_2
from ..norm.backward_plan import plan_partial_sums
from ..norm.partial_sums import sum_partials
from ..norm.prepare import after_another, has_pdl
from .backward import group_norm_backward_tile
from .backward_channels import group_norm_backward_channels, group_norm_backward_group_sums
from .backward_few import group_norm_backward_few
from .backward_passes import group_norm_backward_apply, group_norm_backward_loop, group_norm_backward_sums
from .backward_rows import group_norm_backward_rows
from .launches import (
    BackwardChannels,
    BackwardFew,
    BackwardLoop,
    BackwardRows,
    BackwardSplit,
    Configuration,
    Sums,
    Tile,
)
from .layer_norm import backward_or_none
from .loads import LOOP_REGISTERS, MAX_WARPS
from .plan import choose, launch
from .prepare import ROWS_REGISTERS, Sizes, accumulator, all_registers, options_of, problem_of

# Registers of a thread of the kernel that makes dx of sums. By itself the compiler takes 48 for a fifth program of a
# multiprocessor, and spills 32 bytes (8 x 256 x 10001 bf16, sm_100).
APPLY_REGISTERS = 80


class _Target(NamedTuple):
    """What is computed, and where."""

    dtype: torch.dtype
    sizes: Sizes
    dx: bool
    """Whether the input's gradient is wanted."""
    device: int
    limits: Limits

    @property
    def groups(self) -> int:
        return self.sizes.N * self.sizes.G

    @property
    def sizes_of_group(self) -> tuple[int, int, int, int]:
        _, C, HW, G = self.sizes
        return G, C // G, HW, C // G * HW


def backward_launch(
    dtype: torch.dtype,
    sizes: Sizes,
    want: tuple[bool, bool, bool],
    device: int,
    configuration: Configuration | None,
) -> Callable[..., None]:
    if math.prod(sizes) == 0 or not any(want):
        return _backward_of_nothing
    limits, problem = devices.limits(device), problem_of(sizes, dtype, 2, want[0])
    plan = launch(problem, configuration or choose(problem, limits), limits)
    layer_norm = None if configuration else backward_or_none(problem, plan, dtype, want, device)
    if layer_norm is not None:
        return layer_norm
    target = _Target(dtype, sizes, want[0], device, limits)
    kernels: Callable[..., None]
    if isinstance(plan, Tile):
        kernels, rows = _tile(target, plan)
    elif isinstance(plan, BackwardFew):
        kernels, rows = _few(target, plan, want[1] + want[2] > 0), 1
    elif isinstance(plan, BackwardRows):
        kernels, rows = _rows(target, plan)
    elif isinstance(plan, BackwardLoop):
        kernels, rows = _loop(target, plan), sizes.N
    elif isinstance(plan, BackwardChannels):
        kernels, rows = _channels(target, plan), plan.shares
    else:
        assert isinstance(plan, BackwardSplit)
        kernels, rows = _split(target, plan), sizes.N * plan.splits
    outputs = want[1] + want[2]
    if not outputs or rows == 1:
        return kernels
    adding = plan_partial_sums(rows, sizes.C, outputs, limits)
    sums = sum_partials.bind(
        device,
        (adding.programs, outputs),
        rows,
        sizes.C,
        sizes.C,
        num_warps=adding.warps,
        BLOCK_P=adding.block_p,
        BLOCK_N=adding.block_n,
        **after_another(has_pdl(device)),
    )
    return functools.partial(_added, kernels, sums, Allocation((rows, sizes.C), accumulator(dtype), device))


# The kernels of dx and of the sums of each channel, and how many rows of sums there are, where the plan does not say.


def _tile(target: _Target, plan: Tile) -> tuple[Launch, int]:
    G, D, HW, _ = target.sizes_of_group
    N = target.sizes.N
    rows = plan.programs // -(-G // plan.groups)
    # These need all registers: 5 x 1 x 147 float32 on sm_90 and sm_100, 16 x 16 x 64 x 4 in 16 groups on sm_100.
    singles = plan.vec == 1 and plan.warps == MAX_WARPS and target.dtype.itemsize == 4
    bound = group_norm_backward_tile.bind(
        target.device,
        (plan.programs,),
        N,
        G,
        D,
        HW,
        num_warps=plan.warps,
        BLOCK_N=plan.samples,
        BLOCK_G=plan.groups,
        BLOCK_D=plan.block_d,
        BLOCK_HW=plan.block_hw // plan.chunks,
        VEC=plan.vec,
        ONE_TILE=rows * plan.samples >= N,
        STAGES=plan.stages,
        CHUNKS=plan.chunks,
        PDL=has_pdl(target.device),
        **all_registers(plan.warps, singles or target.limits.capability[0] > 9),
    )
    return bound, rows


def _few(target: _Target, plan: BackwardFew, sums: bool) -> Launch:
    G, D, HW, _ = target.sizes_of_group
    return group_norm_backward_few.bind(
        target.device,
        (plan.group_programs + sums * plan.channel_programs,),
        target.sizes.N,
        G,
        D,
        HW,
        num_warps=plan.warps,
        BLOCK_G=plan.groups,
        BLOCK=plan.block,
        VEC=plan.vec,
        BLOCK_N=plan.samples,
        BLOCK_C=plan.block_c,
        BLOCK_HW=plan.block_hw,
        CHANNELS_VEC=plan.channels_vec,
        # These need all registers: 5 x 741 x 7 float32 on sm_90, with Triton 3.7.
        **all_registers(plan.warps, plan.warps == MAX_WARPS),
    )


def _rows(target: _Target, plan: BackwardRows) -> tuple[Callable[..., None], int]:
    G, D, _, _ = target.sizes_of_group
    rows = plan.programs // G
    bound = group_norm_backward_rows.bind(
        target.device,
        (plan.programs,),
        target.sizes.N,
        *target.sizes_of_group,
        plan.columns,
        num_warps=plan.warps,
        CHUNKS=plan.chunks,
        **options_of(plan.vectors),
        ONE_CHANNEL=D == 1,
        FOLD=plan.columns > 0,
        BLOCK_D=plan.block_d,
        BLOCK_K=plan.block_k,
        ONE_TILE=rows == target.sizes.N,
        STAGES=plan.stages,
        PDL=has_pdl(target.device),
        maxnreg=ROWS_REGISTERS[plan.warps < MAX_WARPS],
    )
    columns = Allocation((plan.programs, 2, plan.columns), accumulator(target.dtype), target.device)
    return functools.partial(_with_columns, bound, columns if plan.columns else None), rows


def _loop(target: _Target, plan: BackwardLoop) -> Launch:
    return group_norm_backward_loop.bind(
        target.device,
        (plan.programs,),
        target.groups,
        *target.sizes_of_group,
        num_warps=plan.warps,
        **_options_of_sums(plan.sums),
        **options_of(plan.vectors),
        STAGES=plan.stages,
        PDL=has_pdl(target.device),
        maxnreg=LOOP_REGISTERS,
    )


def _channels(target: _Target, plan: BackwardChannels) -> Callable[..., None]:
    of_groups = None
    if target.dx:
        of_groups = group_norm_backward_group_sums.bind(
            target.device,
            (target.groups * plan.parts,),
            *target.sizes_of_group,
            plan.slice_size,
            plan.parts,
            num_warps=plan.warps,
            **options_of(plan.vectors),
            STAGES=plan.stages,
            maxnreg=LOOP_REGISTERS,
        )
    of_channels = group_norm_backward_channels.bind(
        target.device,
        (plan.programs,),
        target.sizes.N,
        *target.sizes_of_group,
        plan.parts,
        num_warps=plan.warps,
        BLOCK_D=plan.block_d,
        BLOCK_HW=plan.block_hw,
        BLOCK_P=power_of_2(plan.parts) if target.dx else 1,
        VEC=plan.vec,
        AHEAD=plan.ahead,
        maxnreg=LOOP_REGISTERS,
    )
    return functools.partial(_groups_first, of_groups, of_channels, _parts(target, plan))


def _split(target: _Target, plan: BackwardSplit) -> Callable[..., None]:
    apply = None
    if target.dx:
        apply = group_norm_backward_apply.bind(
            target.device,
            (target.groups * plan.tiles,),
            *target.sizes_of_group,
            plan.parts,
            plan.tiles,
            num_warps=plan.warps,
            BLOCK=256,
            **options_of(plan.vectors),
            **after_another(has_pdl(target.device)),
            maxnreg=APPLY_REGISTERS,
        )
    sums = _sums(target, plan)
    return functools.partial(_sums_first, sums, apply, _parts(target, plan))


def _sums(target: _Target, plan: BackwardSplit) -> Launch:
    G, D, HW, _ = target.sizes_of_group
    return group_norm_backward_sums.bind(
        target.device,
        (target.groups * plan.parts,),
        G,
        D,
        HW,
        plan.slice_size,
        plan.splits,
        plan.parts,
        plan.blocks,
        num_warps=plan.sums_warps,
        **_options_of_sums(plan.sums),
        PDL=has_pdl(target.device),
        maxnreg=LOOP_REGISTERS,
    )


def _parts(target: _Target, plan: BackwardChannels | BackwardSplit) -> Allocation:
    return Allocation((target.groups, plan.parts, 2), accumulator(target.dtype), target.device)


def _options_of_sums(sums: Sums) -> dict[str, int | bool]:
    return {
        "BLOCK_D": sums.block_d,
        "BLOCK_HW": sums.block_hw,
        "REST_HW": sums.rest_hw,
        "WHOLE": sums.whole,
        "SUMS_VEC": sums.vec,
        "SUMS_UNALIGNED": sums.unaligned,
        "SUMS_STAGES": sums.stages,
    }


# The functions that a call runs. `inputs` are grad_out, input, weight, mean and rstd.


def _added(kernels: Callable[..., None], sums: Launch, partial: Allocation, *tensors: torch.Tensor | None) -> None:
    """Kernels that leave several rows of each channel's sums, and one that adds these up."""
    *inputs, dx, dweight, dbias = tensors
    a = None if dweight is None else partial()
    b = None if dbias is None else partial()
    kernels(*inputs, dx, a, b)
    sums(a, b, dweight, dbias)


def _with_columns(launch: Launch, columns: Allocation | None, *tensors: torch.Tensor | None) -> None:
    """One kernel, whose programs have room to add up the numbers of a channel."""
    launch(*tensors, None if columns is None else columns())


def _groups_first(
    of_groups: Launch | None, of_channels: Launch, of_parts: Allocation, *tensors: torch.Tensor | None
) -> None:
    """One kernel for the sums of groups, if dx is wanted, and one for dx and the sums of channels."""
    *inputs, dx, dweight, dbias = tensors
    parts = None
    if of_groups is not None:
        parts = of_parts()
        of_groups(*inputs, parts)
    of_channels(*inputs, dx, dweight, dbias, parts)


def _sums_first(sums: Launch, apply: Launch | None, of_parts: Allocation, *tensors: torch.Tensor | None) -> None:
    """One kernel for all sums, and one that makes dx of those of the groups."""
    *inputs, dx, dweight, dbias = tensors
    parts = None if apply is None else of_parts()
    sums(*inputs, dweight, dbias, parts)
    if apply is not None:
        apply(*inputs, dx, parts)


def _backward_of_nothing(*tensors: torch.Tensor | None) -> None:
    for gradient in tensors[-2:]:
        if gradient is not None:
            gradient.zero_()
