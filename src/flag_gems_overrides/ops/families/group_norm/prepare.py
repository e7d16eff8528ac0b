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
from ...launch.sizes import WARP
from ..norm.prepare import after_another, has_pdl
from .forward import group_norm_apply, group_norm_loop, group_norm_partial_statistics, group_norm_rows
from .launches import Configuration, Loop, Problem, Rows, ShortRows, Split, Vectors
from .layer_norm import forward_or_none
from .legal_forward import MAX_HELD_OF_SEVERAL
from .loads import LOOP_REGISTERS, MAX_WARPS
from .plan import choose, launch
from .short_rows import group_norm_short_rows

# Registers of a thread of the gradient that holds groups, by whether its program has less than 16 warps. By itself the
# compiler makes room for a second program of 16 warps, and spills 16 bytes (25605 x 261 x 24 float16, sm_90).
ROWS_REGISTERS = {True: 255, False: 128}
# Registers of a forward thread with the maximum of 16-bit elements in vectors of several channels, for more programs at
# a time. 512 x 16 x 4499 bf16 in 8 groups: 58.1 us, with the compiler's 76 registers 60.8 (H100).
# By itself the compiler spills 8 bytes of 512 x 16 x 4500 float16 (sm_90, Triton 3.6).
FULL_REGISTERS = 64
# Elements, from which on SINGLES_REGISTERS applies, of a thread with several groups, each of its own channel.
SINGLES_OF_MANY = 8
# Registers of such a thread. By itself the compiler makes room for an eighth program of 4 warps, and spills 8 bytes
# (4877 x 136 in 8 groups of 16 bits, sm_90, Triton 3.6).
SINGLES_REGISTERS = 72


def all_registers(warps: int, needed: bool) -> dict[str, int]:
    """All registers that a thread can have, where the compiler spills 8 bytes to make room for a second program."""
    return {"maxnreg": ROWS_REGISTERS[warps < MAX_WARPS]} if needed else {}


def _of_many_singles(plan: Rows, D: int) -> bool:
    elements = plan.groups * plan.chunks * plan.vectors.lanes * plan.vectors.vec // (plan.warps * WARP)
    return plan.vectors.vec == 1 < min(D, plan.groups) and plan.early and elements >= SINGLES_OF_MANY


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
    layer_norm = None if configuration else forward_or_none(problem, plan, dtype, eps, device)
    if layer_norm is not None:
        return layer_norm
    if isinstance(plan, ShortRows):
        return group_norm_short_rows.bind(
            device,
            (plan.programs,),
            N * G,
            G,
            eps_bits,
            num_warps=plan.warps,
            D=D,
            HW=HW,
            BLOCK_M=plan.groups,
            ROWS=plan.rows,
            VEC=plan.vec,
            ONE_GROUP=G == 1,
        )
    sizes_of_group = G, D, HW, D * HW
    if isinstance(plan, Rows):
        options = options_of(plan.vectors)
        if D == 1:
            options["SPAN"] = 0
        # These need all registers: 4 x 6 x 4099 bf16 in 2 groups on sm_80; 1 x 2 x 3363 float64 in 2 groups on sm_90.
        several = plan.vectors.span > 1 and limits.capability[0] < 9
        # No multiprocessor has a second program that would need registers: 4 x 6 x 4099 float32 in 2 groups, sm_90,
        # Triton 3.6.
        few = plan.vectors.span > 1 and limits.sm_count >= plan.programs
        edges = plan.vectors.unaligned and plan.warps == MAX_WARPS and (several or few or dtype.itemsize == 8)
        registers = all_registers(plan.warps, edges)
        full = plan.warps < MAX_WARPS and plan.chunks * plan.vectors.vec == MAX_HELD_OF_SEVERAL
        if full and plan.vectors.span > 1 and dtype.itemsize == 2 and limits.capability[0] < 10:
            registers = {"maxnreg": FULL_REGISTERS}
        if HW == 1 < G and _of_many_singles(plan, D) and limits.capability[0] == 9:
            registers = {"maxnreg": SINGLES_REGISTERS}
        if plan.registers:
            registers = {"maxnreg": plan.registers}
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
            PACKED=plan.registers > 0,
            INT64_ROWS=plan.int64_rows(),
            **registers,
        )
    if isinstance(plan, Loop):
        return group_norm_loop.bind(
            device,
            (plan.programs,),
            N * G,
            *sizes_of_group,
            eps_bits,
            num_warps=plan.warps,
            **options_of(plan.vectors),
            STAGES=plan.stages,
            maxnreg=LOOP_REGISTERS,
        )
    assert isinstance(plan, Split)
    pdl, options = has_pdl(device), options_of(plan.vectors)
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
        **after_another(pdl),
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
        PDL=pdl,
    )
    partial = Allocation((N * G, plan.splits), accumulator(dtype), device)
    return functools.partial(_forward_split, statistics, apply, partial)


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


def options_of(vectors: Vectors) -> dict[str, int | bool]:
    return {"LANES": vectors.lanes, "VEC": vectors.vec, "SPAN": vectors.span, "UNALIGNED": vectors.unaligned}


def _forward_of_nothing(*tensors: torch.Tensor) -> None:
    # As PyTorch: the mean of a group without elements is 0, its rstd is NaN.
    tensors[-2].zero_()
    tensors[-1].fill_(math.nan)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
