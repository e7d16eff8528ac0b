# SPDX-License-Identifier: Apache-2.0
"""From tensors to launches, for softmax and log_softmax alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton.language as tl

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Entry
from ...launch.shape import split_at, wrap_dim
from ...launch.sizes import WARP, cdiv, power_of_2
from ...launch.workspace import with_counters
from . import (
    backward_blocks,
    backward_columns,
    backward_interleaved,
    backward_rows,
    backward_singly,
    backward_strided,
    forward_blocks,
    forward_columns,
    forward_interleaved,
    forward_rows,
    forward_singly,
    forward_strided,
    plan,
)
from .launches import MERGED_ELEMENTS
from .plan import Blocks, Configuration, Interleaved, Problem, Rows, Short, Single, Split, Strided
from .tile import DEPTH_AXIS

# Columns of a program that merges statistics.
MERGED_COLUMNS = 16


class _Kernels(NamedTuple):
    single: Entry
    short_columns: Entry
    interleaved_statistics: Entry
    interleaved: Entry
    strided_statistics: Entry
    strided_merge: Entry
    strided: Entry
    blocks: Entry
    rows: Entry
    unaligned_rows: Entry
    split_rows: Entry
    looped_rows: Entry
    columns: Entry
    looped_columns: Entry
    looped_single_columns: Entry


_FORWARD = _Kernels(
    forward_rows.softmax_single,
    forward_columns.softmax_short_columns,
    forward_interleaved.softmax_interleaved_statistics,
    forward_interleaved.softmax_interleaved,
    forward_strided.softmax_strided_statistics,
    forward_strided.softmax_strided_merge,
    forward_strided.softmax_strided,
    forward_blocks.softmax_blocks,
    forward_rows.softmax_rows,
    forward_rows.softmax_unaligned_rows,
    forward_rows.softmax_split_rows,
    forward_rows.softmax_looped_rows,
    forward_columns.softmax_columns,
    forward_columns.softmax_looped_columns,
    forward_singly.softmax_looped_single_columns,
)
_BACKWARD = _Kernels(
    backward_rows.softmax_backward_single,
    backward_columns.softmax_backward_short_columns,
    backward_interleaved.softmax_backward_interleaved_sums,
    backward_interleaved.softmax_backward_interleaved,
    backward_strided.softmax_backward_strided_sums,
    backward_strided.softmax_backward_strided_merge,
    backward_strided.softmax_backward_strided,
    backward_blocks.softmax_backward_blocks,
    backward_rows.softmax_backward_rows,
    backward_rows.softmax_backward_unaligned_rows,
    backward_rows.softmax_backward_split_rows,
    backward_rows.softmax_backward_looped_rows,
    backward_columns.softmax_backward_columns,
    backward_columns.softmax_backward_looped_columns,
    backward_singly.softmax_backward_looped_single_columns,
)


class _Prepared(NamedTuple):
    new_result: Allocation
    launch: Callable[..., None] | None  # takes the inputs and the result; None if they have no elements


def problem(op: str, *arguments: Any) -> Problem:
    """What ``op`` is planned for on these arguments of its ATen overload; only shapes and dtypes are read."""
    if op.endswith("_backward"):
        _, output, dim, _ = arguments
        sizes = split_at(output.shape, wrap_dim(dim, output.ndim))
        return Problem(*sizes, output.dtype.itemsize, 2, op.startswith("log_"))
    x, dim, _ = arguments
    return Problem(*split_at(x.shape, wrap_dim(dim, x.ndim)), x.dtype.itemsize, 1)


def launch_with(configuration: Configuration, op: str, *arguments: Any) -> torch.Tensor:
    """The result of ``op`` by a launch in this configuration; ValueError where it is not legal."""
    log = op.startswith("log_")
    if op.endswith("_backward"):
        grad_output, output, dim, input_dtype = arguments
        return backward(grad_output, output, dim, input_dtype, log, configuration)
    x, dim, half_to_float = arguments
    return forward(x, dim, half_to_float, log, configuration)


def forward(
    x: torch.Tensor, dim: int, half_to_float: bool, log: bool, configuration: Configuration | None = None
) -> torch.Tensor:
    new_out, launch = _prepare_forward(x.shape, x.dtype, dim, half_to_float, log, x.get_device(), configuration)
    out = new_out()
    if launch is not None:
        launch(x.contiguous(), out)
    return out


def backward(
    grad_output: torch.Tensor,
    output: torch.Tensor,
    dim: int,
    input_dtype: torch.dtype,
    log: bool,
    configuration: Configuration | None = None,
) -> torch.Tensor:
    shape = output.shape
    if grad_output.shape != shape:
        raise RuntimeError(
            f"Expected tensor for argument #1 'grad' to have same size as tensor for argument #2 'output'; but "
            f"{list(grad_output.shape)} does not equal {list(shape)} (while checking arguments for softmax_backward)"
        )
    new_dx, launch = _prepare_backward(shape, output.dtype, dim, input_dtype, log, output.get_device(), configuration)
    dx = new_dx()
    if launch is not None:
        launch(grad_output.contiguous(), output.contiguous(), dx)
    return dx


@functools.lru_cache(maxsize=4096)
def _prepare_forward(
    shape: torch.Size,
    dtype: torch.dtype,
    dim: int,
    half_to_float: bool,
    log: bool,
    device: int,
    configuration: Configuration | None,
) -> _Prepared:
    dim = wrap_dim(dim, len(shape))
    if half_to_float and dtype is not torch.float16:
        raise RuntimeError("conversion is supported for Half type only")
    out = Allocation(shape, torch.float32 if half_to_float else dtype, device)
    return _Prepared(out, _bind(_FORWARD, 1, shape, dtype, dim, log, device, configuration))


@functools.lru_cache(maxsize=4096)
def _prepare_backward(
    shape: torch.Size,
    dtype: torch.dtype,
    dim: int,
    input_dtype: torch.dtype,
    log: bool,
    device: int,
    configuration: Configuration | None,
) -> _Prepared:
    dim = wrap_dim(dim, len(shape))
    dx = Allocation(shape, input_dtype, device)
    return _Prepared(dx, _bind(_BACKWARD, 2, shape, dtype, dim, log, device, configuration))


def _bind(
    kernels: _Kernels,
    inputs: int,
    shape: torch.Size,
    dtype: torch.dtype,
    dim: int,
    log: bool,
    device: int,
    configuration: Configuration | None,
) -> Callable[..., None] | None:
    M, N, K = split_at(shape, dim)
    if M * N * K == 0:
        return None
    compute = tl.float64 if dtype is torch.float64 else tl.float32
    problem, limits = Problem(M, N, K, dtype.itemsize, inputs, log and inputs == 2), devices.limits(device)
    chosen = plan.launch(problem, configuration or plan.choose(problem, limits), limits)
    if isinstance(chosen, Single):
        return kernels.single.bind(
            device, (chosen.programs,), M * K, num_warps=chosen.warps, LOG=log, BLOCK=chosen.block, COMPUTE=compute
        )
    if isinstance(chosen, Short):
        return kernels.short_columns.bind(
            device,
            (chosen.programs,),
            M,
            N,
            K,
            num_warps=chosen.warps,
            LOG=log,
            LANES=chosen.lanes,
            DEPTH=chosen.depth,
            COLUMNS=chosen.columns,
            VEC=chosen.vec,
            WIDTH=chosen.width,
            CONSTANT_K=K if chosen.width else 0,
            COMPUTE=compute,
            AXIS=1 - DEPTH_AXIS if chosen.width else DEPTH_AXIS,
        )
    if isinstance(chosen, Interleaved):
        return _bind_interleaved(kernels, problem, chosen, log, compute, device)
    if isinstance(chosen, Strided):
        return _bind_strided(kernels, problem, chosen, log, compute, device)
    if isinstance(chosen, Blocks):
        return kernels.blocks.bind(
            device,
            (chosen.programs,),
            N,
            K,
            chosen.step,
            num_warps=chosen.warps,
            maxnreg=chosen.registers,
            LOG=log,
            UNALIGNED=chosen.unaligned,
            VEC=chosen.vec,
            BLOCK=chosen.block,
            DEPTH=chosen.depth,
            LOOPED=chosen.looped,
            ROWS=chosen.rows,
            COLUMNS=chosen.columns,
            COMPUTE=compute,
        )
    if isinstance(chosen, Rows):
        packed = {"PACKED": chosen.registers > 0} if inputs == 2 else {}
        return kernels.rows.bind(
            device,
            (chosen.programs,),
            M,
            N,
            num_warps=chosen.warps,
            maxnreg=chosen.registers or None,
            **packed,
            LOG=log,
            VEC=chosen.vec,
            BLOCK_M=chosen.block_m,
            DEPTH=chosen.depth,
            WIDTH=chosen.width,
            COMPUTE=compute,
        )
    kernel, flags = _kernel_of(kernels, inputs, chosen)
    sizes = (N,) if chosen.contiguous else (N, K)
    options = {
        "num_warps": chosen.warps,
        "maxnreg": chosen.registers,
        "LOG": log,
        "DEPTH": chosen.depth,
        "LANES": chosen.lanes,
        "COMPUTE": compute,
        **flags,
    }
    if chosen.group > 1:
        launch = kernel.bind(
            device,
            (chosen.programs,),
            chosen.group,
            chosen.blocks,
            *sizes,
            launch_cooperative_grid=True,
            **options,
        )
        # Forward the programs of a group exchange two numbers for each row or column, backward one.
        numbers = (3 - inputs) * (1 if chosen.contiguous else chosen.block_k)
        count = chosen.blocks * chosen.group * numbers + chosen.programs // chosen.group
        return functools.partial(with_counters, launch, count, torch.int64 if dtype is torch.float64 else torch.int32)
    if kernel is kernels.unaligned_rows:
        return kernel.bind(device, (chosen.programs,), chosen.blocks, *sizes, **options)
    no_workspace = None
    return kernel.bind(device, (chosen.programs,), no_workspace, chosen.group, chosen.blocks, *sizes, **options)


def _bind_interleaved(
    kernels: _Kernels, problem: Problem, chosen: Interleaved, log: bool, compute: Any, device: int
) -> Callable[..., None]:
    M, N, K, _, inputs, *_ = problem
    grid = M, chosen.splits
    options = {
        "num_warps": chosen.warps,
        "K": K,
        "UNALIGNED": chosen.unaligned,
        "VEC": chosen.vec,
        "BLOCK": chosen.block,
        "STEP": chosen.step,
        "DEPTH": chosen.depth,
        "COMPUTE": compute,
    }
    first = kernels.interleaved_statistics.bind(device, grid, N, **options, **({"LOG": log} if inputs == 2 else {}))
    second = kernels.interleaved.bind(device, grid, N, LOG=log, SPLITS=power_of_2(chosen.splits), **options)
    dtype = torch.float64 if compute is tl.float64 else torch.float32
    partial = Allocation((M, K, chosen.splits), dtype, device)
    return functools.partial(_launch_interleaved, first, second, partial, 3 - inputs)


def _launch_interleaved(
    first: Callable[..., None], second: Callable[..., None], partial: Allocation, count: int, *tensors: torch.Tensor
) -> None:
    statistics = [partial() for _ in range(count)]
    first(*tensors[:-1], *statistics)
    second(*tensors, *statistics)


def _bind_strided(
    kernels: _Kernels, problem: Problem, chosen: Strided, log: bool, compute: Any, device: int
) -> Callable[..., None]:
    M, N, K, _, inputs, *_ = problem
    grid = chosen.blocks, chosen.splits, M
    rows = {"UNALIGNED": chosen.unaligned, "VEC": chosen.vec, "COMPUTE": compute}
    options = {"num_warps": chosen.warps, "BLOCK": chosen.block, "DEPTH": chosen.depth, **rows}
    flags = {"ROWS": chosen.rows, "COLUMNS": chosen.columns, **({"LOG": log} if inputs == 2 else {})}
    first = kernels.strided_statistics.bind(device, grid, N, K, chosen.step, **flags, **options)
    parts = chosen.splits * (1 if chosen.columns else chosen.step // K)
    columns = min(power_of_2(K), MERGED_COLUMNS)
    merged = min(power_of_2(parts), MERGED_ELEMENTS // columns)
    second = kernels.strided_merge.bind(
        device,
        (cdiv(K, columns), M),
        N,
        K,
        parts,
        num_warps=max(1, merged * columns // (8 * WARP)),
        LOG=log,
        ROWS=merged,
        COLUMNS=columns,
        **rows,
    )
    third = kernels.strided.bind(device, grid, N, K, chosen.step, LOG=log, **options)
    dtype = torch.float64 if compute is tl.float64 else torch.float32
    partial = Allocation((M, parts, K), dtype, device)
    result = Allocation((M, K), dtype, device)
    return functools.partial(_launch_strided, first, second, third, partial, result, 3 - inputs)


def _launch_strided(
    first: Callable[..., None],
    second: Callable[..., None],
    third: Callable[..., None],
    partial: Allocation,
    result: Allocation,
    count: int,
    *tensors: torch.Tensor,
) -> None:
    partials, results = [partial() for _ in range(count)], [result() for _ in range(count)]
    first(*tensors[:-1], *partials)
    second(*tensors, *partials, *results)
    third(*tensors, *results)


def _kernel_of(kernels: _Kernels, inputs: int, chosen: Split) -> tuple[Entry, dict[str, Any]]:
    """The kernel of a plan, and the constexprs that not all kernels have."""
    if chosen.contiguous:
        if chosen.group == 1 and not chosen.looped:
            return kernels.unaligned_rows, {"VEC": chosen.vec}
        flags = {"VEC": chosen.vec, "UNALIGNED": chosen.unaligned, "MEMBERS": chosen.members}
        if chosen.looped:
            return kernels.looped_rows, flags
        return kernels.split_rows, {**flags, "EVEN": chosen.even, "PREFETCH": chosen.prefetch}
    flags = {"INT64_OFFSETS": chosen.int64_offsets, "MEMBERS": chosen.members, "BLOCK_K": chosen.block_k}
    if chosen.vec == 1 and (chosen.looped or chosen.group > 1):
        return kernels.looped_single_columns, flags
    flags["VEC"] = chosen.vec
    if chosen.looped:
        return kernels.looped_columns, {**flags, "EVEN_K": chosen.even_k, "STAGES": chosen.stages}
    if inputs == 1:
        flags["STAGES"] = chosen.stages
    return kernels.columns, {**flags, "EVEN": chosen.even}
