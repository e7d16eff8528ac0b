# SPDX-License-Identifier: Apache-2.0
"""From tensors to launches, for softmax and log_softmax alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton.language as tl

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Entry, Launch
from ...launch.shape import split_at, wrap_dim
from ...launch.workspace import with_counters
from .backward import softmax_backward_rows, softmax_backward_split
from .forward import softmax_rows, softmax_split
from .plan import Rows, plan


class _Prepared(NamedTuple):
    new_result: Allocation
    launch: Callable[..., None] | None  # takes the inputs and the result; None if they have no elements


def forward(x: torch.Tensor, dim: int, half_to_float: bool, log: bool) -> torch.Tensor:
    new_out, launch = _prepare_forward(x.shape, x.dtype, dim, half_to_float, log, x.get_device())
    out = new_out()
    if launch is not None:
        launch(x.contiguous(), out)
    return out


def backward(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype, log: bool
) -> torch.Tensor:
    shape = output.shape
    if grad_output.shape != shape:
        raise RuntimeError(
            f"Expected tensor for argument #1 'grad' to have same size as tensor for argument #2 'output'; but "
            f"{list(grad_output.shape)} does not equal {list(shape)} (while checking arguments for softmax_backward)"
        )
    new_dx, launch = _prepare_backward(shape, output.dtype, dim, input_dtype, log, output.get_device())
    dx = new_dx()
    if launch is not None:
        launch(grad_output.contiguous(), output.contiguous(), dx)
    return dx


@functools.lru_cache(maxsize=4096)
def _prepare_forward(
    shape: torch.Size, dtype: torch.dtype, dim: int, half_to_float: bool, log: bool, device: int
) -> _Prepared:
    dim = wrap_dim(dim, len(shape))
    if half_to_float and dtype is not torch.float16:
        raise RuntimeError("conversion is supported for Half type only")
    out = Allocation(shape, torch.float32 if half_to_float else dtype, device)
    return _Prepared(out, _launch(softmax_rows, softmax_split, 1, shape, dtype, dim, log, device))


@functools.lru_cache(maxsize=4096)
def _prepare_backward(
    shape: torch.Size, dtype: torch.dtype, dim: int, input_dtype: torch.dtype, log: bool, device: int
) -> _Prepared:
    dim = wrap_dim(dim, len(shape))
    dx = Allocation(shape, input_dtype, device)
    return _Prepared(dx, _launch(softmax_backward_rows, softmax_backward_split, 2, shape, dtype, dim, log, device))


def _launch(
    rows: Entry, split: Entry, inputs: int, shape: torch.Size, dtype: torch.dtype, dim: int, log: bool, device: int
) -> Callable[..., None] | None:
    M, N, K = split_at(shape, dim)
    if M * N * K == 0:
        return None
    compute = tl.float64 if dtype is torch.float64 else tl.float32
    chosen = plan(M, N, K, dtype.itemsize, inputs, devices.limits(device))
    if isinstance(chosen, Rows):
        return rows.bind(
            device,
            (chosen.programs,),
            M,
            N,
            num_warps=chosen.warps,
            LOG=log,
            VEC=chosen.vec,
            BLOCK_M=chosen.block_m,
            DEPTH=chosen.depth,
            WIDTH=chosen.width,
            COMPUTE=compute,
        )
    launch = split.bind(
        device,
        (chosen.programs,),
        chosen.group,
        chosen.blocks,
        N,
        K,
        num_warps=chosen.warps,
        maxnreg=chosen.registers,
        LOG=log,
        INNER=chosen.inner,
        VEC=chosen.vec,
        EDGES=chosen.edges,
        EVEN=chosen.even,
        EVEN_K=chosen.even_k,
        FAR=chosen.far,
        PARTS=chosen.parts,
        LOOP=chosen.loop,
        DEPTH=chosen.depth,
        LANES=chosen.lanes,
        BLOCK_K=chosen.block_k,
        STAGES=chosen.stages,
        AHEAD=chosen.ahead,
        COMPUTE=compute,
        **({"launch_cooperative_grid": True} if chosen.group > 1 else {}),
    )
    if chosen.group == 1:
        return functools.partial(_launch_alone, launch)
    # Forward the programs of a group exchange two numbers for each column, backward one.
    numbers = (3 - inputs) * (1 if chosen.inner else chosen.block_k)
    words = chosen.blocks * chosen.group * numbers + chosen.programs // chosen.group
    return functools.partial(with_counters, launch, words, torch.int64 if dtype is torch.float64 else torch.int32)


def _launch_alone(launch: Launch, *tensors: torch.Tensor) -> None:
    launch(*tensors, None)
