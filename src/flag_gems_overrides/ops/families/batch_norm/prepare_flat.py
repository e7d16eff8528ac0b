# SPDX-License-Identifier: Apache-2.0
"""The launches of a batch norm that reads memory as it lies, bound: flat.py."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.sizes import cdiv
from ..norm.prepare import after_another, has_pdl
from .flat_backward import (
    batch_norm_backward_flat_apply,
    batch_norm_backward_flat_merge,
    batch_norm_backward_flat_sums,
)
from .flat_forward import batch_norm_flat_apply, batch_norm_flat_merge, batch_norm_flat_statistics
from .launches import FLAT_REGISTERS, MERGE_REGISTERS, Merge, merge_of
from .types import Flat, Problem


def flat_forward(
    chosen: Flat, problem: Problem, accumulator: torch.dtype, eps_bits: int, momentum_bits: int, device: int
) -> Callable[..., None]:
    C, B, grid = problem.N, problem.K, (chosen.programs,)
    total, parts = problem.M * B, (chosen.group, chosen.slice_size)
    pdl, options = has_pdl(device), _options(chosen)
    merges = merge_of(problem, chosen, devices.limits(device))
    statistics = batch_norm_flat_statistics.bind(
        device, grid, C, B, chosen.width, chosen.per_row, chosen.tiles, chosen.rest, *parts,
        **options, **_options_of_sums(chosen), PDL=pdl,
    )  # fmt: skip
    merge = batch_norm_flat_merge.bind(
        device, _merge_grid(C, merges), *_of_parts(chosen, C, B), chosen.tiles, chosen.rest // chosen.unit, total,
        eps_bits, momentum_bits, chosen.group, chosen.slice_size if chosen.by_place else chosen.part(),
        ROWS=chosen.rows if chosen.by_place else 0, UNIT=chosen.unit,
        **_options_of_merge(merges), **after_another(pdl),
    )  # fmt: skip
    apply = batch_norm_flat_apply.bind(
        device, grid, C, B, chosen.width, chosen.tiles, chosen.rest, *parts, **options, **after_another(pdl)
    )
    columns, partial = _workspace(chosen, 3, C, accumulator, device)
    return functools.partial(_forward, statistics, merge, apply, columns, partial)


def _forward(
    statistics: Launch,
    merge: Launch,
    apply: Launch,
    columns: Allocation | None,
    partial: Allocation,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    output: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> None:
    of_parts = partial()
    statistics(input, None if columns is None else columns(), of_parts)
    merge(of_parts, running_mean, running_var, mean, rstd)
    apply(input, weight, bias, output, mean, rstd)


def flat_backward(
    chosen: Flat, problem: Problem, accumulator: torch.dtype, mask: tuple[bool, bool, bool], device: int
) -> Callable[..., None]:
    C, B, grid = problem.N, problem.K, (chosen.programs,)
    total, parts = problem.M * B, (chosen.group, chosen.slice_size)
    pdl, options = has_pdl(device), _options(chosen)
    merges = merge_of(problem, chosen, devices.limits(device))
    sums = batch_norm_backward_flat_sums.bind(
        device, grid, C, B, chosen.width, chosen.per_row, chosen.tiles, chosen.rest, *parts,
        **options, **_options_of_sums(chosen), PDL=pdl,
    )  # fmt: skip
    merge = batch_norm_backward_flat_merge.bind(
        device, _merge_grid(C, merges), *_of_parts(chosen, C, B), chosen.group,
        **_options_of_merge(merges), **after_another(pdl),
    )  # fmt: skip
    apply = None
    if mask[0]:
        apply = batch_norm_backward_flat_apply.bind(
            device, grid, C, B, chosen.width, chosen.tiles, chosen.rest, total, *parts,
            **options, **after_another(pdl),
        )  # fmt: skip
    columns, partial = _workspace(chosen, 2, C, accumulator, device)
    added = Allocation((2, C), accumulator, device)
    return functools.partial(_backward, sums, merge, apply, columns, partial, added)


def _backward(
    sums: Launch,
    merge: Launch,
    apply: Launch | None,
    columns: Allocation | None,
    partial: Allocation,
    added: Allocation,
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor | None,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
) -> None:
    of_parts = partial()
    of_all = None if apply is None else added()
    sums(grad_out, input, mean, None if columns is None else columns(), of_parts)
    merge(of_parts, rstd, dweight, dbias, of_all)
    if apply is not None:
        apply(grad_out, input, weight, mean, rstd, dx, of_all)


def _workspace(
    chosen: Flat, planes: int, C: int, dtype: torch.dtype, device: int
) -> tuple[Allocation | None, Allocation]:
    if chosen.by_place:
        return None, Allocation((planes, chosen.group, chosen.width // chosen.unit), dtype, device)
    columns = Allocation((chosen.programs, planes, chosen.lanes * chosen.vec // chosen.unit), dtype, device)
    return columns, Allocation((planes, chosen.group, C), dtype, device)


def _options(chosen: Flat) -> dict[str, int | bool]:
    return {
        "num_warps": chosen.warps,
        "ROWS": chosen.rows,
        "LANES": chosen.lanes,
        "VEC": chosen.vec,
        "STAGES": chosen.stages,
        "maxnreg": FLAT_REGISTERS,
    }


def _options_of_sums(chosen: Flat) -> dict[str, int]:
    return {"BLOCK_C": chosen.block_c, "BLOCK_E": chosen.block_e, "UNIT": chosen.unit}


def _merge_grid(C: int, merge: Merge) -> tuple[int]:
    return (cdiv(C, merge.channels),)


def _of_parts(chosen: Flat, C: int, B: int) -> tuple[int, int, int, int]:
    """C, B, width and per_row of what programs store for each other."""
    unit = chosen.unit
    return (C, B // unit, chosen.width // unit, chosen.sums_per_row) if chosen.by_place else (C, 1, C, 1)


def _options_of_merge(merge: Merge) -> dict[str, int]:
    return {
        "num_warps": merge.warps,
        "CHANNELS": merge.channels,
        "ENTRIES": merge.entries,
        "maxnreg": MERGE_REGISTERS,
    }
