# SPDX-License-Identifier: Apache-2.0
"""The launches of a planned batch norm, bound."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from typing import Any

import torch

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from ...launch.workspace import with_counters
from .backward import batch_norm_backward_channels, batch_norm_backward_groups
from .forward import batch_norm_channels, batch_norm_evaluation, batch_norm_groups
from .held import batch_norm_backward_held, batch_norm_held
from .launches import MAX_ELEMENTS, MAX_WARPS, by_words, has_vectors
from .launches import launch as launch_of
from .layout import View
from .plan import Channels, Configuration, Flat, Groups, Problem, Tiling, plan, plan_evaluation, plan_sums
from .prepare_flat import flat_backward, flat_forward
from .waiting import shares_of, words_of


def forward_launch(
    layout: View,
    dtype: torch.dtype,
    training: bool,
    momentum: float,
    eps: float,
    device: int,
    configuration: Configuration | None,
) -> Callable[..., None]:
    A, C, B = layout
    if C == 0:
        return _nothing
    if A * B == 0:
        return functools.partial(_forward_of_nothing, training, eps)
    problem = Problem(A, C, B, dtype.itemsize, 1)
    limits = devices.limits(device)
    eps_bits, momentum_bits = _bits(eps), _bits(momentum)
    if not training:
        planned = plan_evaluation(problem, limits)
        options = {**_options(planned.tiling), "RUN": planned.tiling.run, "EDGES": planned.tiling.edges}
        return batch_norm_evaluation.bind(device, *_of_evaluation(planned, C, eps_bits), **options)
    chosen = launch_of(problem, configuration, limits) if configuration else plan(problem, limits)
    if isinstance(chosen, Flat):
        return flat_forward(chosen, problem, accumulator(dtype), eps_bits, momentum_bits, device)
    tiling = chosen.tiling
    sizes = C, tiling.vectors, tiling.total, eps_bits, momentum_bits
    if isinstance(chosen, Channels) and chosen.depth:
        return batch_norm_held.bind(device, (tiling.blocks,), *sizes, **_options_of_held(chosen))
    options = {**_options(tiling), "EDGES": tiling.edges}
    # Without a limit, the compiler spills 8 bytes to fit a second program of 16 warps on a multiprocessor, for columns
    # of less than vectors (512 x 999 float16, 592 x 206606 bf16, sm_80).
    squeezed = tiling.columns and tiling.warps == MAX_WARPS and not has_vectors(problem) and limits.capability[0] < 9
    if isinstance(chosen, Channels):
        if squeezed or _is_full_and_alone(chosen, dtype, limits):
            options["maxnreg"] = limits.registers_per_sm // (MAX_WARPS * WARP)
        return batch_norm_channels.bind(device, (tiling.blocks,), *sizes, **options, REST=tiling.rest, RUN=tiling.run)
    alone = chosen.group == 1
    words = not alone and by_words(problem, chosen)
    options |= _options_of_groups(chosen, alone, words)
    if squeezed:
        options["maxnreg"] = chosen.registers
    launch = batch_norm_groups.bind(device, (chosen.programs,), *sizes, *_of_groups(chosen), **options)
    return _together(launch, chosen, 3, C, dtype, device, words) if not alone else functools.partial(_alone, launch)


def backward_launch(
    layout: View,
    dtype: torch.dtype,
    training: bool,
    eps: float,
    mask: tuple[bool, bool, bool],
    device: int,
    configuration: Configuration | None,
) -> Callable[..., None]:
    A, C, B = layout
    if C == 0 or not any(mask):
        return _nothing
    if A * B == 0:
        return _backward_of_nothing
    want_sums = mask[1] or mask[2]
    problem = Problem(A, C, B, dtype.itemsize, 2)
    limits = devices.limits(device)
    eps_bits = _bits(eps)
    # dx alone is element-wise, as evaluation forward is.
    if configuration is not None:
        chosen = launch_of(problem, configuration, limits)
    elif training:
        chosen = plan(problem, limits)
    else:
        chosen = plan_sums(problem, limits) if want_sums else plan_evaluation(problem, limits)
    if isinstance(chosen, Flat):
        return flat_backward(chosen, problem, accumulator(dtype), mask, device)
    tiling = chosen.tiling
    sizes = C, tiling.vectors, tiling.total, eps_bits
    if isinstance(chosen, Channels) and chosen.depth:
        held = _options_of_held(chosen)
        return batch_norm_backward_held.bind(device, (tiling.blocks,), *sizes, **held, EVALUATION=not training)
    options = {**_options(tiling), "EVALUATION": not training}
    if isinstance(chosen, Channels):
        if tiling.edges and dtype == torch.float64 and not training and limits.capability[0] < 9:
            # Without a limit, the compiler spills 8 bytes to fit a third program of 16 warps (60 x 1000 x 67, sm_80).
            options["maxnreg"] = limits.registers_per_sm // (MAX_WARPS * WARP)
        if B > 1 and tiling.rest and tiling.channels == 1 and not tiling.int64_offsets:
            # Room for two programs, one of float64. Without a limit, the compiler takes 144 registers by 8 warps, 72 by
            # 16 of float16. With the limit, offsets of 64 bits spill 8 to 24 bytes (60 x 200000 x 180, sm_90, Triton
            # 3.6).
            programs = 2 if dtype.itemsize < 8 else 1
            options["maxnreg"] = min(255, limits.registers_per_sm // (programs * tiling.warps * WARP))
        return batch_norm_backward_channels.bind(
            device,
            (tiling.blocks,),
            *sizes,
            **options,
            EDGES=tiling.edges,
            REST=tiling.rest,
            RUN=tiling.run,
            AGAIN=chosen.again,
        )
    alone = chosen.group == 1 or not (training or want_sums)
    words = not alone and training and mask[0] and by_words(problem, chosen)
    launch = batch_norm_backward_groups.bind(
        device, (chosen.programs,), *sizes, *_of_groups(chosen),
        **options, **_options_of_groups(chosen, alone, words), EDGES=tiling.edges,
    )  # fmt: skip
    return _together(launch, chosen, 2, C, dtype, device, words) if not alone else functools.partial(_alone, launch)


def _is_full_and_alone(chosen: Channels, dtype: torch.dtype, limits: devices.Limits) -> bool:
    """Whether the compiler needs a limit of registers, where no multiprocessor gets a second program of 16 warps.

    Without it, the compiler spills 8 to 16 bytes to fit one (3779 x 3 x 4 float16, not bfloat16; 16 x 16 x 704 float32;
    sm_90, Triton 3.6). Other problems were not timed.
    """
    tiling = chosen.tiling
    full = tiling.channels == 1 and tiling.warps == MAX_WARPS and tiling.block >= MAX_ELEMENTS[1] * MAX_WARPS * WARP
    half = dtype == torch.float16 and tiling.vec * dtype.itemsize == VECTOR_BYTES // 2
    alone = not tiling.columns and tiling.blocks <= limits.sm_count
    return full and alone and (half or dtype == torch.float32) and limits.capability[0] == 9


def accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _options(tiling: Tiling) -> dict[str, int | bool]:
    return {
        "num_warps": tiling.warps,
        "CHANNELS": tiling.channels,
        "BLOCK": tiling.block,
        "VEC": tiling.vec,
        "COLUMNS": tiling.columns,
        "INT64_OFFSETS": tiling.int64_offsets,
    }


def _options_of_held(chosen: Channels) -> dict[str, int | bool]:
    tiling = chosen.tiling
    return {
        "num_warps": tiling.warps,
        "maxnreg": chosen.registers,
        "BLOCK": tiling.block,
        "VEC": tiling.vec,
        "EDGES": tiling.edges,
        "DEPTH": chosen.depth,
    }


def _of_groups(chosen: Groups) -> tuple[int, int, int]:
    return chosen.tiling.blocks, chosen.group, chosen.slice_size


def _options_of_groups(chosen: Groups, alone: bool, words: bool) -> dict[str, int | bool]:
    """``alone``: whether no program waits for another one; ``words``: whether they exchange words."""
    run = chosen.tiling.run
    if alone:
        options = {"PARTS": 1, "SHARES": 1, "RUN": run, "STAGES": chosen.stages}
        # Without a limit, the compiler spills 8 to 16 bytes of heads and tails to fit one more program.
        return options | ({"maxnreg": chosen.registers} if chosen.tiling.edges and chosen.registers else {})
    of_threads = chosen.tiling.warps * WARP // chosen.tiling.channels
    return {
        "PARTS": max(power_of_2(chosen.group), of_threads) if words else chosen.parts,
        "SHARES": 1 if words else shares_of(chosen.group),
        "RUN": run,
        "STAGES": chosen.stages,
        "maxnreg": chosen.registers,
        "launch_cooperative_grid": True,
    }


def _of_evaluation(planned: Groups, C: int, eps_bits: int) -> tuple[Any, ...]:
    tiling = planned.tiling
    sizes = C, tiling.vectors, tiling.total, eps_bits, planned.group, planned.slice_size
    return (planned.programs,), *sizes


def _together(
    launch: Launch, chosen: Groups, planes: int, C: int, dtype: torch.dtype, device: int, words: bool
) -> Callable[..., None]:
    """With room for ``planes`` numbers of each part and channel."""
    if words:
        # Two numbers to a word.
        count = words_of(chosen.tiling.blocks, 1) + cdiv(planes, 2) * chosen.group * C
        return functools.partial(_by_exchange, launch, count)
    partial = Allocation((planes, chosen.group, C), accumulator(dtype), device)
    return functools.partial(_by_flags, launch, partial, words_of(chosen.tiling.blocks, shares_of(chosen.group)))


def _alone(launch: Launch, *tensors: torch.Tensor | None) -> None:
    launch(*tensors, None, None)


def _by_exchange(launch: Launch, count: int, first: torch.Tensor, *others: torch.Tensor | None) -> None:
    with_counters(launch, count, torch.int64, first, *others, None)


def _by_flags(
    launch: Launch, partial: Allocation, count: int, first: torch.Tensor, *others: torch.Tensor | None
) -> None:
    with_counters(launch, count, torch.int32, first, *others, partial())


def _nothing(*tensors: torch.Tensor | None) -> None:
    pass


def _forward_of_nothing(training: bool, eps: float, *tensors: torch.Tensor | None) -> None:
    """The mean of no elements is 0, its rstd NaN."""
    running_mean, running_var, _, mean, rstd = tensors[-5:]
    assert mean is not None
    assert rstd is not None
    if training:
        mean.zero_()
        rstd.fill_(math.nan)
    else:
        assert running_mean is not None
        assert running_var is not None
        mean.copy_(running_mean)
        rstd.copy_((running_var.to(rstd.dtype) + eps).rsqrt())


def _backward_of_nothing(*tensors: torch.Tensor | None) -> None:
    for gradient in tensors[-2:]:
        if gradient is not None:
            gradient.zero_()


def _bits(number: float) -> int:
    (bits,) = struct.unpack("q", struct.pack("d", number))
    return int(bits)
