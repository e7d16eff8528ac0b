# SPDX-License-Identifier: Apache-2.0
"""Prepares the launches of variances and their like, once for each shape, and makes them."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from triton import JITFunction

from ...launch import devices, workspace
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.sizes import cdiv, power_of_2
from . import plan
from .call import memory_order, problems_of, wrapped
from .columns import N_AXIS
from .defaults import kinds
from .launches import column_grid
from .moment_classes import moments_of_classes_kernel
from .moment_columns import moments_of_columns_kernel
from .moment_rows import moments_of_rows_kernel
from .moment_short_classes import moments_of_short_classes_kernel
from .moment_short_rows import moments_of_short_rows_kernel
from .moments import variance
from .plan import Configuration, Problem
from .policy import Dtypes, Policy, accumulator
from .sum import add, zero


class Step(NamedTuple):
    """One launch and what it writes."""

    new_squares: Allocation
    new_mean: Allocation | None  # None if it is not wanted
    launch: Launch | None = None  # None if there is no result
    new_partials: tuple[Allocation, ...] = ()  # sums of squares, means, counts
    blocks: int = 0  # whose programs are counted; 0 where no result has more than one


class Prepared(NamedTuple):
    steps: tuple[Step, ...]  # the next reduces what the one before has written
    copy: bool = False  # whether the input must be made contiguous first


@functools.lru_cache(maxsize=4096)
def _prepare(
    epilogue: JITFunction,
    correction: float,
    means: bool,
    shape: tuple[int, ...],
    stride: tuple[int, ...] | None,
    dtype: torch.dtype,
    dim: int | tuple[int, ...] | None,
    keepdim: bool,
    device: int,
    configuration: Configuration | None,
) -> Prepared:
    dims = wrapped(dim, len(shape))
    count = math.prod(shape[d] for d in dims if shape)
    if count == 0:
        correction = max(correction, 0.0)  # 0 divided by 0, whatever it is
    result = tuple(1 if d in dims else size for d, size in enumerate(shape) if keepdim or d not in dims)
    final = (Allocation(result, dtype, device), Allocation(result, dtype, device) if means else None)
    if 0 in result:
        return Prepared((Step(*final),))
    order = memory_order(shape, stride, dims) if stride is not None else None
    copy = stride is not None and order is None
    sizes = [(shape[d], d in dims) for d in order or range(len(shape)) if shape[d] != 1]
    problems = list(problems_of(sizes)) if 0 not in shape else [(math.prod(result), 0, 1)]
    if count == 1:
        # The root of 0 or NaN is itself, and slow. std 5 x 312809 x 1 float16: 11.6 us with it, FlagGems 3.5 (H100).
        epilogue = variance
    if count == 1 and correction >= 1 and not means:
        problems = [(math.prod(result), 0, 1)]  # all are 0 divided by 0: nothing need be read
    limits = devices.limits(device)
    steps = []
    weight, elements, computed = 1, dtype, accumulator(dtype)
    for number, (M, N, K) in enumerate(problems, 1):
        last = number == len(problems)
        # What passes between launches is little, and a large mean has no digits to lose.
        new_squares, new_mean = final if last else (Allocation((M * K,), torch.float64, device) for _ in range(2))
        policy = Policy("", add, zero, lambda *_: None, epilogue=epilogue, parameter=correction)  # type: ignore
        dtypes = Dtypes(computed, computed, dtype)
        arithmetic = policy.arithmetic(dtypes, elements=elements, first=True, last=last)
        problem = Problem(M, max(N, 1), K, elements.itemsize, 3)
        chosen = plan.launch(problem, configuration or _choose(problem, number == 1, limits), limits)
        one_tile = chosen.splits == 1 and chosen.step >= N
        options: dict[str, Any] = {
            "OP": arithmetic,
            "BLOCK_SPLITS": power_of_2(chosen.splits),
            "STAGES": chosen.stages,
            "EVICT": chosen.evict,
            "INT64_OFFSETS": chosen.int64_offsets,
            "num_warps": chosen.warps,
            "maxnreg": max(chosen.registers, 128) if computed.itemsize == 8 else chosen.registers,
        }
        sizes_of: tuple[int, ...] = (M, N, weight, count)
        grid: tuple[int, ...] = (chosen.blocks, chosen.splits)
        # Means are not loaded in groups. Without elements nothing is.
        lanes, depth = (chosen.lanes, chosen.depth) if number == 1 and N > 0 else (0, 0)
        rest = one_tile and lanes > 0 and (N % lanes > 0 or chosen.edge_lanes > 0)
        if chosen.kernel == "columns":
            kernel = moments_of_columns_kernel
            sizes_of = (M, N, K, weight, count)
            options |= {"BLOCK_K": chosen.block_k, "K_DIVISOR": chosen.vector, "AXIS": N_AXIS}
            grid, options["STARTS"] = column_grid(M, K, chosen)
            options["MATRICES"] = chosen.matrices
            options |= {"LANES": lanes or chosen.block_n, "DEPTH": depth or 1, "REST": rest}
            options["ONE_TILE"] = one_tile and depth > 0
        else:
            options |= {"VECTOR": chosen.vector, "EDGE_LANES": chosen.edge_lanes}
        if chosen.kernel == "classes":
            kernel = moments_of_classes_kernel
            options |= {"BLOCK_N": chosen.block_n, "STEP": chosen.step, "DEPTH": depth or 1}
            options |= {"K": K, "BLOCK_K": chosen.block_k, "TAIL": _tail(N * K, chosen)}
        if chosen.kernel == "rows":
            kernel = moments_of_rows_kernel
            options |= {"BLOCK_M": chosen.block_m, "BLOCK_N": lanes or chosen.block_n}
            options |= {"DEPTH": depth if lanes else 0, "REST": rest, "ONE_TILE_PER_CTA": one_tile}
        if chosen.kernel == "short":
            kernel, sizes_of = moments_of_short_rows_kernel, (M, count)
            options = {name: options[name] for name in ("OP", "EVICT", "num_warps", "maxnreg")}
            options |= {"N": N, "BLOCK_M": chosen.block_m, "VECTOR": chosen.vector}
        if chosen.kernel == "short_classes":
            kernel = moments_of_short_classes_kernel
            options = {name: options[name] for name in ("OP", "EVICT", "num_warps", "maxnreg")}
            options |= {"K": K, "BLOCK_M": chosen.block_m, "LANES": lanes, "DEPTH": depth, "VECTOR": chosen.vector}
            options["REST"] = N * K % lanes > 0
        launch = kernel.bind(device, grid, *sizes_of, **options)
        if chosen.splits == 1:
            steps.append(Step(new_squares, new_mean, launch))
        else:
            partials = tuple(Allocation((chosen.splits * M * K,), computed, device) for _ in range(3))
            steps.append(Step(new_squares, new_mean, launch, partials, chosen.blocks))
        weight, elements, computed = weight * N, torch.float64, torch.float64
    return Prepared(tuple(steps), copy)


def _tail(length: int, chosen: plan.Plan) -> int | None:
    """How many elements a lane of classes has after whole groups, where only their number decides.

    var_mean 20000 x 1000 x 3 bf16: 58.2 us, otherwise 60.9 (H100).
    """
    if chosen.edge_lanes or chosen.splits > 1:
        return None
    return cdiv(length % (chosen.step * chosen.depth), chosen.step)


def _choose(problem: Problem, elements: bool, limits: devices.Limits) -> Configuration:
    """Of means there are no kernels for classes and whole short rows, nor groups of float64."""
    configuration = plan.choose(problem, limits)
    if configuration.kernel not in ("rows", "columns") and not elements:
        configuration = next(each for each in kinds(problem, limits) if each.kernel in ("rows", "columns"))
    if not elements and configuration.kernel == "rows" and plan.launch(problem, configuration, limits).lanes:
        configuration = configuration._replace(elements=4 * configuration.elements)
    return configuration


def moments(
    epilogue: JITFunction,
    x: torch.Tensor,
    dim: int | tuple[int, ...] | None,
    correction: float | None,
    keepdim: bool,
    means: bool = False,
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What ``epilogue`` makes of the sums of squared deviations over ``dim``, and the means if they are wanted.

    Args:
        epilogue: ``moments.variance`` or ``moments.deviation``.
        x: floating, any strides.
        dim: one or several; None or () for all.
        correction: what the number of elements is diminished by; None is 1.
        keepdim: whether reduced dimensions stay, with size 1.
        means: whether they are wanted.
        configuration: the one to launch with, and not what is planned; for dimensions that are one launch.

    Raises:
        IndexError, RuntimeError: as PyTorch does for dimensions that do not exist or come twice.
    """
    stride = None if x.is_contiguous() else x.stride()
    correction = 1.0 if correction is None else float(correction)
    steps, copy = _prepare(
        epilogue, correction, means, x.shape, stride, x.dtype, dim, keepdim, x.get_device(), configuration
    )
    if copy:
        x = x.contiguous()
    squares = None
    for new_squares, new_mean, launch, new_partials, blocks in steps:
        out, mean = new_squares(), None if new_mean is None else new_mean()
        if launch is not None:
            if blocks:
                launch(x, squares, out, mean, *(new() for new in new_partials), workspace.counters(x, blocks))
            else:
                launch(x, squares, out, mean, None, None, None, None)
        x, squares = mean, out  # type: ignore[assignment]  # of the last step they are returned
    return squares, x  # type: ignore[return-value]
