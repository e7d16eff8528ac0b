# SPDX-License-Identifier: Apache-2.0
"""The launches of a planned layer normalization, bound."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable

import torch
from triton import knobs

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Entry, Launch
from ...launch.workspace import with_counters
from . import launches, plan
from .backward import layer_norm_backward_rows, layer_norm_backward_split
from .backward_plan import plan_partial_sums
from .blocks import norm_backward_blocks
from .blocks_plan import REGISTERS, WARPS, Blocks, plan_blocks
from .columns import layer_norm_backward_few_rows
from .flat import layer_norm_columns, layer_norm_flat
from .forward import layer_norm_rows, layer_norm_split
from .launches import Configuration, FewRows, Flat, Loop, Problem, Rows, ShortRows, Split
from .loop import layer_norm_loop
from .partial_sums import sum_partials
from .short_rows import layer_norm_short_rows
from .two_passes import norm_backward_columns, norm_backward_sums
from .two_passes_plan import TwoPasses, moves_less, plan_two_passes


def forward_launch(
    problem: Problem, dtype: torch.dtype, eps: float, device: int, configuration: Configuration | None
) -> Callable[..., None]:
    M, N, *_ = problem
    if M == 0 or N == 0:
        return _forward_of_nothing
    (eps_bits,) = struct.unpack("q", struct.pack("d", eps))
    chosen = planned(problem, device, configuration)
    if isinstance(chosen, Flat):
        kernel = layer_norm_columns if chosen.columns else layer_norm_flat
        return kernel.bind(device, (chosen.programs,), M, eps_bits, num_warps=chosen.warps, N=N, BLOCK_M=chosen.block_m)
    if isinstance(chosen, ShortRows):
        options = {"N": N, "BLOCK_M": chosen.block_m, "ROWS": chosen.rows, "VEC": chosen.vec}
        return layer_norm_short_rows.bind(device, (chosen.programs,), M, eps_bits, num_warps=chosen.warps, **options)
    if isinstance(chosen, Rows):
        return layer_norm_rows.bind(
            device, (chosen.programs,), M, N, eps_bits, **rows_options(chosen, M), **parameters_options(chosen, 2)
        )
    if isinstance(chosen, Split):
        sizes = M, N, eps_bits, chosen.slice_size, chosen.group
        return _with_workspace(
            layer_norm_split.bind(device, (chosen.programs,), *sizes, **_split_options(chosen)), M, chosen
        )
    assert isinstance(chosen, Loop)
    sizes = M, N, eps_bits, chosen.slice_size, chosen.group
    return loop_launch(layer_norm_loop, sizes, M, dtype, chosen, device, UNALIGNED=chosen.unaligned)


def planned(problem: Problem, device: int, configuration: Configuration | None) -> launches.Launch:
    """What is launched: in this configuration, or in the one that is chosen."""
    limits = devices.limits(device)
    if configuration is None:
        configuration = plan.choose(problem, limits)
    return launches.launch(problem, configuration, limits)


def backward_launch(
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
    chosen = planned(Problem(M, N, 1, dtype.itemsize, True), device, configuration)
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
    if isinstance(chosen, TwoPasses | Split):
        shared = chosen if isinstance(chosen, Split) else None
        return long_rows_launch(M, N, dtype, shared, want_input, outputs, True, device, configuration is None)
    assert isinstance(chosen, Rows)
    stride, pdl = -(-N // 16) * 16, has_pdl(device)
    launch = layer_norm_backward_rows.bind(device, (chosen.programs,), M, N, stride, **rows_options(chosen, M), PDL=pdl)
    return _with_partial_sums(launch, chosen.programs, N, dtype, outputs, pdl, device)


def long_rows_launch(
    M: int,
    N: int,
    dtype: torch.dtype,
    shared: Split | None,
    want_input: bool,
    outputs: int,
    mean: bool,
    device: int,
    free: bool = True,
) -> Callable[..., None]:
    """All gradients of rows that no program holds; without a mean, rms_norm's. ``shared``: how programs hold them.
    ``free``: the configuration is not given."""
    limits = devices.limits(device)
    if free and want_input and outputs:
        blocks = plan_blocks(M, N, dtype.itemsize, mean, limits)
        if blocks is not None:
            return _blocks_launch(M, N, blocks, device)
        if shared is not None and moves_less(M, N, dtype.itemsize, shared.programs // shared.group, outputs):
            shared = None
    if shared is not None and want_input:
        return _shared_rows_launch(M, N, dtype, shared, outputs, device)
    return _two_passes_launch(M, N, dtype, want_input, outputs, device)


def _shared_rows_launch(
    M: int, N: int, dtype: torch.dtype, chosen: Split, outputs: int, device: int
) -> Callable[..., None]:
    sizes = M, N, -(-N // 16) * 16, chosen.slice_size, chosen.group
    split = layer_norm_backward_split.bind(device, (chosen.programs,), *sizes, **_split_options(chosen))
    # Not after a cooperative launch: CUDA does not document the combination, least of all in a graph.
    pdl, partials = False, chosen.programs // chosen.group
    return _with_partial_sums(_with_workspace(split, M, chosen), partials, N, dtype, outputs, pdl, device)


def _with_partial_sums(
    launch: Callable[..., None], partials: int, N: int, dtype: torch.dtype, outputs: int, pdl: bool, device: int
) -> Callable[..., None]:
    if partials == 1 or not outputs:
        return launch
    stride = -(-N // 16) * 16
    launch_sums = partial_sums_launch(partials, N, stride, outputs, pdl, device)
    partial = Allocation((partials, stride), accumulator(dtype), device)
    return functools.partial(_backward_with_partial_sums, launch, launch_sums, partial)


def _blocks_launch(M: int, N: int, chosen: Blocks, device: int) -> Callable[..., None]:
    launch = norm_backward_blocks.bind(
        device,
        (chosen.programs,),
        M,
        N,
        chosen.blocks,
        chosen.programs,
        num_warps=WARPS,
        maxnreg=REGISTERS,
        launch_cooperative_grid=True,
        BLOCK_M=chosen.block_m,
        BLOCK_N=chosen.block_n,
        WORDS=chosen.words,
        ONCE=chosen.programs <= chosen.words,
        VEC=chosen.vec,
        HELD=chosen.held,
        STAGES=chosen.stages,
    )
    return functools.partial(with_counters, launch, M * chosen.programs + 1, torch.int64)


def _two_passes_launch(
    M: int, N: int, dtype: torch.dtype, want_input: bool, outputs: int, device: int
) -> Callable[..., None]:
    plan = plan_two_passes(M, N, dtype.itemsize, devices.limits(device))
    pdl, stride = has_pdl(device), -(-N // 16) * 16
    options = {"VEC": plan.vec, "SPREAD": plan.spread, "SINGLE": M == 1}
    columns = norm_backward_columns.bind(
        device,
        plan.columns.programs,
        M,
        N,
        stride,
        plan.rows,
        num_warps=plan.columns.warps,
        BLOCK_M=plan.columns.block_m,
        BLOCK_N=plan.columns.block_n,
        **options,
        **after_another(pdl and want_input),
    )
    launch: Callable[..., None] = functools.partial(_columns_alone, columns)
    if want_input:
        sums = norm_backward_sums.bind(
            device,
            plan.sums.programs,
            M,
            N,
            plan.blocks,
            num_warps=plan.sums.warps,
            BLOCK_M=plan.sums.block_m,
            BLOCK_N=plan.sums.block_n,
            WORDS=plan.words,
            **options,
            PDL=pdl,
        )
        with_workspace = functools.partial(with_counters, sums, plan.sums.programs[0], torch.int32)
        words = Allocation((M * (plan.slices + 1) * 2,), accumulator(dtype), device)
        launch = functools.partial(_in_two_passes, with_workspace, columns, words, M * plan.slices * 2)
    return _with_partial_sums(launch, plan.splits, N, dtype, outputs, pdl and want_input, device)


def _columns_alone(
    launch: Launch,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    *gradients: torch.Tensor | None,
) -> None:
    no_weight, no_sums = None, None
    launch(grad_out, input, no_weight, mean, rstd, *gradients, no_sums)


def _in_two_passes(
    launch_sums: Callable[..., None],
    launch_columns: Launch,
    words: Allocation,
    size: int,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    *gradients: torch.Tensor | None,
) -> None:
    partial = words()
    sums = partial[size:]  # at the end, so that a store without its mask leaves the allocation
    launch_sums(grad_out, input, weight, mean, rstd, sums, partial)
    launch_columns(grad_out, input, weight, mean, rstd, *gradients, sums)


def partial_sums_launch(P: int, N: int, stride: int, outputs: int, pdl: bool, device: int) -> Launch:
    sums = plan_partial_sums(P, N, outputs, devices.limits(device))
    return sum_partials.bind(
        device,
        (sums.programs, outputs),
        P,
        N,
        stride,
        num_warps=sums.warps,
        BLOCK_P=sums.block_p,
        BLOCK_N=sums.block_n,
        **after_another(pdl),
    )


def loop_launch(
    kernel: Entry,
    sizes: tuple[int, ...],
    M: int,
    dtype: torch.dtype,
    chosen: Loop,
    device: int,
    **edges: bool,
) -> Callable[..., None]:
    options = {
        "num_warps": chosen.warps,
        "BLOCK_N": chosen.block_n,
        "VEC": chosen.vec,
        "BLOCK": chosen.block,
        "STAGES": chosen.stages,
        **edges,
    }
    if chosen.group == 1:
        no_workspace = None
        return kernel.bind(device, (chosen.programs,), no_workspace, *sizes, **options)
    launch = kernel.bind(
        device, (chosen.programs,), *sizes, maxnreg=chosen.registers, launch_cooperative_grid=True, **options
    )
    # Up to two words for each row and program of its group, and a counter for each group.
    count = 2 * M * chosen.group + chosen.programs // chosen.group
    return functools.partial(with_counters, launch, count, torch.int64 if dtype is torch.float64 else torch.int32)


def has_pdl(device: int) -> bool:
    return devices.limits(device).capability >= (9, 0) and not knobs.runtime.interpret


def after_another(pdl: bool) -> dict[str, bool]:
    """Options of a kernel that starts before the one that it waits for has ended, with PDL."""
    return {"PDL": True, "launch_pdl": True} if pdl else {"PDL": False}


def rows_options(rows: Rows, M: int) -> dict[str, int | bool]:
    limited = {"maxnreg": rows.registers} if rows.registers else {}
    return limited | {
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


def parameters_options(rows: Rows, most: int) -> dict[str, int | bool]:
    """How weight and bias are loaded. Where they are late and a row has more than ``most`` chunks, half of ``most`` are
    loaded at a time: all would spill where they are misaligned, 280 bytes of 32768 bf16 by 16 warps.

    Each load is waited for. rms_norm of 216 x 16384 float32: 15.9 us by two at a time, 16.9 one by one (H100).
    """
    at_once = most // 2 if rows.late and rows.chunks > most else rows.chunks
    return {"LATE": rows.late, "AT_ONCE": at_once, "PACKED": rows.packed}


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
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    dweight_partial = None if dweight is None else partial()
    dbias_partial = None if dbias is None else partial()
    launch(grad_out, input, weight, mean, rstd, dx, dweight_partial, dbias_partial)
    launch_sums(dweight_partial, dbias_partial, dweight, dbias)


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


def accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
