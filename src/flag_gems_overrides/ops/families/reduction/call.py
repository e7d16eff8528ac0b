# SPDX-License-Identifier: Apache-2.0
"""Prepares and launches the reductions of _reduction_kernels.py, each shape once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ...launch import devices, workspace
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.shape import wrap_dim
from .kernels import reduce_kernel, reduce_with_index_kernel
from .plan import plan


def _lowest(dtype: torch.dtype) -> int | float:
    if dtype.is_floating_point:
        return -math.inf
    return 0 if dtype is torch.bool else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> int | float:
    if dtype.is_floating_point:
        return math.inf
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


class Operation(NamedTuple):
    """What makes the one reduction a particular one."""

    combine: str
    identity: Callable[[torch.dtype], int | float]


_PROD = Operation("multiply", lambda dtype: 1.0 if dtype.is_floating_point else 1)
_MAX = Operation("larger", _lowest)
_MIN = Operation("smaller", _highest)
# By the name that PyTorch's error messages use.
OPERATIONS = {
    "prod": _PROD,
    "max": _MAX,
    "amax": _MAX,
    "argmax": _MAX,
    "min": _MIN,
    "amin": _MIN,
    "argmin": _MIN,
}

_TRITON = {
    torch.bool: tl.int1,
    torch.uint8: tl.uint8,
    torch.int8: tl.int8,
    torch.int16: tl.int16,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    if dtype in (torch.int64, torch.float64):
        return dtype
    return torch.float32 if dtype.is_floating_point else torch.int32


class Prepared(NamedTuple):
    """All of a reduction that its shape and dtypes decide."""

    new_out: Allocation | None  # None if only positions are wanted
    new_index: Allocation
    new_partials: tuple[Allocation, ...] = ()  # none without splits
    launch: Launch | None = None  # None if there is no output
    copy: bool = False  # whether the input must be made contiguous first
    blocks: int = 0  # whose programs are to be counted
    before: tuple[int, ...] = ()  # dimensions to be reduced by a launch of their own first


def _runs(shape: tuple[int, ...], dims: tuple[int, ...], order: list[int]) -> list[tuple[int, int]]:
    """The slices of ``order`` that lie in ``dims``, adjacent ones together."""
    runs: list[tuple[int, int]] = []
    for at, d in enumerate(order):
        if d in dims:
            if runs and runs[-1][1] == at:
                runs[-1] = (runs[-1][0], at + 1)
            else:
                runs.append((at, at + 1))
    return runs


def _memory_order(shape: tuple[int, ...], stride: tuple[int, ...], dims: tuple[int, ...]) -> list[int] | None:
    """Dimensions from the outermost in memory to the innermost, without those of size 1.

    None if the tensor has gaps or overlaps, or if what is left of it after a reduction over ``dims`` would not be in
    the order of its dimensions.
    """
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -stride[d])
    expected = 1
    for d in reversed(order):
        if stride[d] != expected:
            return None
        expected *= shape[d]
    kept = [d for d in order if d not in dims]
    return order if kept == sorted(kept) else None


@functools.lru_cache(maxsize=4096)
def _prepare(
    function: str,
    indexed: bool,
    shape: tuple[int, ...],
    stride: tuple[int, ...] | None,
    dtype: torch.dtype,
    cast: torch.dtype | None,
    dim: int | tuple[int, ...] | None,
    keepdim: bool,
    device: int,
) -> Prepared:
    dims = _wrapped(dim, len(shape))
    if function != "prod":
        _check_not_empty(function, shape, dim, dims)
        cast = dtype
    elif cast is None:
        cast = dtype if dtype.is_floating_point else torch.int64
    result = tuple(1 if d in dims else size for d, size in enumerate(shape) if keepdim or d not in dims)
    out = None if function in ("argmax", "argmin") else Allocation(result, cast, device)
    index = Allocation(result, torch.int64, device)
    if 0 in result:
        return Prepared(out, index)

    order = None if stride is None else _memory_order(shape, stride, dims)
    copy = stride is not None and order is None
    if order is None:
        order = [d for d in range(len(shape)) if shape[d] != 1]
    runs = _runs(shape, dims, order)
    if len(runs) > 1:
        # Reductions that take several dimensions give the same in steps; the longest first leaves least to read.
        longest = max(runs, key=lambda run: math.prod(shape[d] for d in order[slice(*run)]))
        return Prepared(out, index, before=tuple(order[slice(*longest)]))
    first, last = runs[0] if runs else (0, 0)
    M, N, K = (math.prod(shape[d] for d in part) for part in (order[:first], order[first:last], order[last:]))

    limits = devices.limits(device)
    planned = plan(M, N, K, dtype.itemsize, indexed, limits)
    operation = OPERATIONS[function]
    acc = _computed_in(cast)
    wide = planned.farthest(N, K) >= 2**31
    options: dict[str, Any] = {
        "num_warps": planned.num_warps,
        # Left to itself, ptxas spills a register or two of 64-bit values to have one more program resident.
        "maxnreg": max(planned.registers, 128) if acc.itemsize == 8 else planned.registers,
        "FLAT_K": K if planned.flat else 0,
        "BLOCK_M": planned.block_m,
        "BLOCK_N": planned.block_n,
        "BLOCK_K": planned.block_k,
        "STEP": planned.step,
        "VECTOR": planned.vector,
        "EDGES": planned.edges,
        "BLOCK_SPLITS": triton.next_power_of_2(planned.splits),
        "ONE_TILE_PER_CTA": planned.splits * planned.step >= (N * K if planned.flat else N),
        "STAGES": planned.num_stages,
        "EVICT": planned.evict,
        "OFFSET": tl.int64 if wide else tl.int32,
        "COMBINE": operation.combine,
        "IDENTITY": operation.identity(dtype),
        "ACC": _TRITON[acc],
    }
    if indexed:
        kernel = reduce_with_index_kernel
        options["GROUP"] = planned.group
    else:
        kernel = reduce_kernel
        options["CAST"] = _TRITON[cast]
    blocks = planned.blocks(M, K)
    launch = kernel.bind(device, (blocks, planned.splits), M, N, K, **options)
    if planned.splits == 1:
        return Prepared(out, index, (), launch, copy)
    count = (planned.splits * M * K,)
    partials = [Allocation(count, acc, device)]
    if indexed:
        partials.append(Allocation(count, torch.int64 if wide else torch.int32, device))
    return Prepared(out, index, tuple(partials), launch, copy, blocks)


def _wrapped(dim: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims = tuple(wrap_dim(d, ndim) for d in (dim if isinstance(dim, tuple) else (dim,)))
    if ndim > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")
    for at, d in enumerate(dims):
        if d in dims[:at]:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return dims


def _check_not_empty(function: str, shape: tuple[int, ...], dim: object, dims: tuple[int, ...]) -> None:
    if 0 not in shape:
        return
    if dim is None or dim == ():
        message = f"{function}(): Expected reduction dim to be specified for input.numel() == 0."
        if function in ("argmax", "argmin"):
            raise IndexError(message)
        raise RuntimeError(f"{message} Specify the reduction dim with the 'dim' argument.")
    for d in dims:
        if shape[d] == 0:
            raise IndexError(f"{function}(): Expected reduction dim {d} to have non-zero size.")


def reduce(
    function: str,
    x: torch.Tensor,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``x`` reduced over ``dim``, or over everything.

    Args:
        function: which reduction, a key of ``OPERATIONS``.
        x: any strides, a real dtype.
        dim: as PyTorch takes it.
        keepdim: whether reduced dimensions stay, with size 1.
        dtype: what ``x`` is converted to first; ``None`` for the default of ``function``.

    Raises:
        IndexError, RuntimeError: as PyTorch does for dimensions that do not exist, come twice or are empty.
    """
    stride = None if x.is_contiguous() else x.stride()
    prepared = _prepare(function, False, x.shape, stride, x.dtype, dtype, dim, keepdim, x.get_device())
    new_out, _, new_partials, launch, copy, blocks, before = prepared
    if before:
        x = reduce(function, x, before, True)
        return reduce(function, x, dim, keepdim)
    out = new_out()  # type: ignore[misc]  # None for others than these functions
    if launch is not None:
        if copy:
            x = x.contiguous()
        if blocks:
            launch(x, out, new_partials[0](), workspace.counters(x, blocks))
        else:
            launch(x, out, None, None)
    return out


def reduce_with_index(
    function: str, x: torch.Tensor, dim: int | None = None, keepdim: bool = False
) -> tuple[Any, torch.Tensor]:
    """The extreme elements of ``x`` along ``dim`` and the position of the first of each, as int64.

    Without ``dim``, the position in ``x`` read row by row. A NaN counts as the extreme. The rest is as in
    :func:`reduce`; the first result of argmax and argmin is ``None``.
    """
    stride = None if x.is_contiguous() else x.stride()
    if dim is None and stride is not None:
        x, stride = x.contiguous(), None
    prepared = _prepare(function, True, x.shape, stride, x.dtype, None, dim, keepdim, x.get_device())
    new_out, new_index, new_partials, launch, copy, blocks, _ = prepared
    out = new_out() if new_out is not None else None
    index = new_index()
    if launch is not None:
        if copy:
            x = x.contiguous()
        if blocks:
            launch(x, out, index, new_partials[0](), new_partials[1](), workspace.counters(x, blocks))
        else:
            launch(x, out, index, None, None, None)
    return out, index
