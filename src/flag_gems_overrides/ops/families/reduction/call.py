# SPDX-License-Identifier: Apache-2.0
"""Prepares the launches of a reduction, once for each shape, and makes them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ...launch import devices, outputs, workspace
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.shape import wrap_dim
from ...launch.sizes import LINE_BYTES, VECTOR_BYTES, power_of_2
from . import plan
from .classes import locate_classes_kernel, reduce_classes_kernel
from .columns import N_AXIS, locate_columns_kernel, reduce_columns_kernel
from .extremum import LARGEST
from .launches import class_step, column_grid
from .plan import Configuration, Plan, Problem
from .policy import Arithmetic, Policy
from .rows import locate_rows_kernel, reduce_rows_kernel
from .short_classes import reduce_short_classes_kernel
from .short_rows import locate_short_rows_kernel, reduce_short_rows_kernel

# Bytes of a column below which an input that passes through the L2 cache need not be the first to leave it, where
# results are integers of 8 bytes: there is as much to write.
# count_nonzero 323132 x 3 x 16 float16: 30.7 us, otherwise 37.8 (H100).
WRITTEN_BYTES = 16


class Step(NamedTuple):
    """One launch and what it writes."""

    new_values: Allocation | None  # None if only positions are wanted
    new_positions: Allocation | None  # None if they are not wanted
    launch: Launch | None = None  # None if there is no result
    new_partials: tuple[Allocation, ...] = ()  # what the programs of a result exchange
    blocks: int = 0  # whose programs are counted; 0 where no result has more than one


class Prepared(NamedTuple):
    """All of a reduction that its shape and dtypes decide."""

    steps: tuple[Step, ...]  # the next reduces the values of the one before
    copy: bool = False  # whether the input must be made contiguous first


@functools.lru_cache(maxsize=4096)
def _prepare(
    policy: Policy,
    shape: tuple[int, ...],
    stride: tuple[int, ...] | None,
    dtype: torch.dtype,
    requested: torch.dtype | None,
    dim: int | tuple[int, ...] | None,
    keepdim: bool,
    device: int,
    configuration: Configuration | None,
) -> Prepared:
    dims = wrapped(dim, len(shape))
    if 0 in shape and policy.empty is not None:
        refuse_empty(policy.name, policy.empty, shape, () if dim is None or dim == () else dims)
    count = math.prod(shape[d] for d in dims if shape)
    if count == 1 and policy.single is not None:
        policy = policy.single
    if dtype.itemsize == 1 and policy.of_bytes is not None:
        policy = policy.of_bytes
    dtypes = policy.dtypes(dtype, requested, count)
    result = tuple(1 if d in dims else size for d, size in enumerate(shape) if keepdim or d not in dims)
    new_values = Allocation(result, dtypes.result, device) if policy.values else None
    new_positions = Allocation(result, torch.int64, device) if policy.positions else None
    if 0 in result:
        return Prepared((Step(new_values, new_positions),))

    order = None
    if stride is not None and not (policy.positions and dim is None):  # those are counted row by row
        order = memory_order(shape, stride, dims)
    copy = stride is not None and order is None
    sizes = [(shape[d], d in dims) for d in order or range(len(shape)) if shape[d] != 1]
    problems = list(problems_of(sizes)) if 0 not in shape else [(math.prod(result), 0, 1)]
    limits = devices.limits(device)
    steps = []
    for number, (M, N, K) in enumerate(problems, 1):
        first, last = number == 1, number == len(problems)
        elements = dtype if first else dtypes.accumulator
        arithmetic = policy.arithmetic(dtypes, elements=elements, first=first, last=last)
        outputs = (new_values, new_positions) if last else (Allocation((M * K,), dtypes.accumulator, device), None)
        # Without elements a program is like one of two elements.
        problem = Problem(M, N or 2, K, elements.itemsize, policy.accumulators)
        planned = configuration or plan.choose(problem, limits)
        counted = elements.itemsize == 2 and dtypes.accumulator.itemsize == 4
        if configuration is None and dtypes.result.itemsize == 8 and (elements.itemsize == 1 or counted):
            planned = plan.with_wide_results(problem, planned, limits)
        if configuration is None and dtypes.accumulator.itemsize == 8 > elements.itemsize:
            planned = plan.with_wide_accumulators(problem, planned, limits, arithmetic.narrow is not None)
        if configuration is None and arithmetic.together:
            planned = plan.with_neighbours_together(problem, planned, limits)
        chosen = plan.launch(problem, planned, limits)
        if K > 1 and last and dtypes.result.itemsize == 8 > elements.itemsize and N * elements.itemsize < WRITTEN_BYTES:
            chosen = chosen._replace(evict="")
        launch = _bind(chosen, arithmetic, M, N, K, count, policy.positions, dtypes.accumulator.itemsize, device)
        if chosen.splits == 1:
            steps.append(Step(*outputs, launch))
            continue
        partials = [Allocation((chosen.splits * M * K,), dtypes.accumulator, device)]
        if policy.positions:
            offset = torch.int64 if chosen.int64_offsets else torch.int32
            partials.append(Allocation((chosen.splits * M * K,), offset, device))
        steps.append(Step(*outputs, launch, tuple(partials), chosen.blocks))
    return Prepared(tuple(steps), copy)


def wrapped(dim: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims = tuple(wrap_dim(d, ndim) for d in (dim if isinstance(dim, tuple) else (dim,)))
    if ndim > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")
    for i, d in enumerate(dims):
        if d in dims[:i]:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return dims


def refuse_empty(name: str, error: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Raise as PyTorch does where a result would be made of no element; without ``dims`` all are reduced."""
    if not dims:
        raise error(name, None)
    for d in dims:
        if shape[d] == 0:
            raise error(name, d)


def memory_order(shape: tuple[int, ...], stride: tuple[int, ...], dims: tuple[int, ...]) -> list[int] | None:
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


def problems_of(sizes: list[tuple[int, bool]]) -> Iterator[tuple[int, int, int]]:
    """(M, N, K) of each launch, from the sizes in memory and whether they are reduced.

    Adjacent dimensions are reduced together, and of those apart the largest first, which leaves least to read.
    """
    runs = [
        (math.prod(size for size, _ in run), reduced)
        for reduced, run in itertools.groupby(sizes, key=lambda size: size[1])
    ]
    while True:
        reduced = [i for i, run in enumerate(runs) if run[1]]
        if not reduced:
            yield math.prod(size for size, _ in runs), 1, 1
            return
        i = max(reduced, key=lambda i: runs[i][0])
        M, K = (math.prod(size for size, _ in part) for part in (runs[:i], runs[i + 1 :]))
        yield M, runs[i][0], K
        if len(reduced) == 1:
            return
        del runs[i]


def _bind(
    chosen: Plan,
    arithmetic: Arithmetic,
    M: int,
    N: int,
    K: int,
    count: int,
    positions: bool,
    accumulator_bytes: int,
    device: int,
) -> Launch:
    """The launch of the kernel that a plan means."""
    options: dict[str, Any] = {
        "OP": arithmetic,
        "BLOCK_N": chosen.block_n,
        "BLOCK_SPLITS": power_of_2(chosen.splits),
        "ONE_TILE_PER_CTA": chosen.splits * chosen.step >= (N if chosen.kernel == "columns" else N * K),
        "STAGES": chosen.stages,
        "EVICT": chosen.evict,
        "INT64_OFFSETS": chosen.int64_offsets,
        "num_warps": chosen.warps,
        # As the plan does for elements of 64 bits.
        "maxnreg": max(chosen.registers, 128) if accumulator_bytes == 8 else chosen.registers,
    }
    sizes: tuple[int, ...] = (M, N)
    grid: tuple[int, ...] = (chosen.blocks, chosen.splits)
    if chosen.kernel == "short":
        kept = "OP", "EVICT", "num_warps", "maxnreg"
        options = {name: options[name] for name in kept}
        options |= {"N": N, "BLOCK_M": chosen.block_m, "VECTOR": chosen.vector}
        kernel, sizes = locate_short_rows_kernel if positions else reduce_short_rows_kernel, (M,)
    elif chosen.kernel == "short_classes":
        kept = "OP", "EVICT", "num_warps", "maxnreg"
        options = {name: options[name] for name in kept}
        options |= {"K": K, "BLOCK_M": chosen.block_m, "LANES": chosen.lanes, "DEPTH": chosen.depth}
        step = class_step(chosen.lanes, K, chosen.vector)
        options |= {"STEP": step, "REST": N * K % step > 0, "VECTOR": chosen.vector}
        kernel = reduce_short_classes_kernel
    elif chosen.kernel == "columns":
        kernel = locate_columns_kernel if positions else reduce_columns_kernel
        sizes = (M, N, K)
        options |= {"BLOCK_K": chosen.block_k, "K_DIVISOR": chosen.vector, "AXIS": N_AXIS}
        grid, options["STARTS"] = column_grid(M, K, chosen)
        options["MATRICES"] = chosen.matrices
        options |= tiles_of_columns(chosen, N)
    else:
        options |= {"VECTOR": chosen.vector, "EDGE_LANES": chosen.edge_lanes}
        if chosen.kernel == "rows":
            kernel = locate_rows_kernel if positions else reduce_rows_kernel
            options["BLOCK_M"] = chosen.block_m
            if positions:
                options["NEIGHBOURS"] = chosen.neighbours
            else:
                options["ALIGN"] = _aligned(chosen, options["ONE_TILE_PER_CTA"])
        else:
            kernel = locate_classes_kernel if positions else reduce_classes_kernel
            options |= {"K": K, "BLOCK_K": chosen.block_k, "STEP": chosen.step}
    if not positions:
        sizes = (*sizes, count)
    return kernel.bind(device, grid, *sizes, **options)


def _aligned(chosen: Plan, one_tile: bool) -> int:
    """The number of elements at a multiple of which the tiles of a row begin: a whole line, or a vector.

    A line if a row has several tiles, and edges. amin 5 x 53687091 float64: 723 us, at whole vectors 775 (H100).
    """
    line = chosen.vector * LINE_BYTES // VECTOR_BYTES
    return line if not one_tile and 2 * line <= chosen.edge_lanes else chosen.vector


def tiles_of_columns(chosen: Plan, N: int) -> dict[str, Any]:
    """What a kernel of columns is compiled with, beside what all are."""
    # Of programs that share results each has a tile in part.
    alone = chosen.block_n >= N
    return {
        "BLOCK_N": chosen.lanes,
        "DEPTH": chosen.depth if alone else 0,
        "REST": not alone or N % chosen.lanes > 0,
    }


# Of the operators that are tuned; the others of the family share their problems.
_TUNED = {"amax": LARGEST, "max_dim": replace(LARGEST, positions=True)}


def problem(op: str, x: torch.Tensor, dim: Any = None, keepdim: bool = False) -> Problem:
    """What ``op`` is planned for on a contiguous ``x`` and one dimension, or all; only shape and dtype are read."""
    shape = x.shape
    dims = wrapped(_hashable(dim), len(shape))
    M, N, K = next(problems_of([(size, d in dims) for d, size in enumerate(shape) if size != 1]))
    return Problem(M, N or 2, K, x.dtype.itemsize, _TUNED[op].accumulators)


def _hashable(dim: Any = None) -> Any:
    return tuple(dim) if isinstance(dim, list) else dim


def launch_with(configuration: Configuration, op: str, x: torch.Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The result of ``op`` by a launch in this configuration; ValueError where it is not legal."""
    policy = _TUNED[op]
    values, positions = reduce(policy, x, _hashable(dim), keepdim, configuration=configuration)
    return (values, positions) if policy.positions else values


def reduce(
    policy: Policy,
    x: torch.Tensor,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    configuration: Configuration | None = None,
) -> tuple[Any, Any]:
    """``x`` reduced over ``dim``, or over everything: the values and their positions, ``None`` for what is not wanted.

    Args:
        policy: which reduction.
        x: any strides, a real dtype.
        dim: as PyTorch takes it; one or, without positions, several.
        keepdim: whether reduced dimensions stay, with size 1.
        dtype: the one that the caller requests.
        configuration: the one to launch with, and not what is planned.

    Returns:
        values: of the dtype that the policy says.
        positions: along ``dim``, as int64; without ``dim``, in ``x`` read row by row.

    Raises:
        IndexError, RuntimeError: as PyTorch does for dimensions that do not exist, come twice or are empty.
    """
    stride = None if x.is_contiguous() else x.stride()
    prepared = _prepare(policy, x.shape, stride, x.dtype, dtype, dim, keepdim, x.get_device(), configuration)
    return _launch(prepared, x, None)


def reduce_into(
    out: torch.Tensor,
    policy: Policy,
    x: torch.Tensor,
    dim: int | tuple[int, ...] | None,
    keepdim: bool,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    """The values of :func:`reduce` in ``out``, of any strides and the dtype that they have; it is resized to fit.

    Where it may share memory with ``x``, all is read before anything is written.
    """
    stride = None if x.is_contiguous() else x.stride()
    prepared = _prepare(policy, x.shape, stride, x.dtype, dtype, dim, keepdim, x.get_device(), None)
    new_values = prepared.steps[-1].new_values
    assert new_values is not None
    outputs.resize(out, new_values.shape)
    if out.is_contiguous() and x.untyped_storage().data_ptr() != out.untyped_storage().data_ptr():
        _launch(prepared, x, out)
    else:
        out.copy_(_launch(prepared, x, None)[0])
    return out


def _launch(prepared: Prepared, x: torch.Tensor, out: torch.Tensor | None) -> tuple[Any, Any]:
    """Values, in ``out`` if that is given, and positions."""
    steps, copy = prepared
    if copy:
        x = x.contiguous()
    last = steps[-1]
    for step in steps:
        new_values, new_positions, launch, new_partials, blocks = step
        values = out if step is last and out is not None else None if new_values is None else new_values()
        positions = None if new_positions is None else new_positions()
        if launch is not None:
            results = (values,) if positions is None else (values, positions)
            if blocks:
                launch(x, *results, *(new() for new in new_partials), workspace.counters(x, blocks))
            else:
                launch(x, *results, *(None,) * len(results), None)
        x = values  # type: ignore[assignment]  # of the last step they are returned
    return values, positions
