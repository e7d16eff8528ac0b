# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a call to prepared launches, for batch normalization."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...launch import devices
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.workspace import with_counters
from .backward import batch_norm_backward_channels, batch_norm_backward_groups
from .flat_backward import (
    batch_norm_backward_flat_apply,
    batch_norm_backward_flat_merge,
    batch_norm_backward_flat_sums,
)
from .flat_forward import batch_norm_flat_apply, batch_norm_flat_merge, batch_norm_flat_statistics
from .forward import batch_norm_channels, batch_norm_evaluation, batch_norm_groups
from .launches import (
    FLAT_REGISTERS,
    MAX_WARPS,
    MERGE_REGISTERS,
    MERGE_WARPS,
    MERGED_CHANNELS,
    MERGED_ELEMENTS,
    WARP,
    cdiv,
    has_vectors,
    power_of_2,
)
from .launches import launch as launch_of
from .layout import View, same_order, view
from .plan import Channels, Configuration, Flat, Groups, Problem, Tiling, plan, plan_evaluation, plan_sums

_Launch = Callable[..., None]
_Vector = tuple[int, torch.dtype]  # elements and dtype of a tensor with a number for each channel


def problem(op: str, *arguments: Any) -> Problem:
    """What ``op`` is planned for on these arguments of its ATen overload; only shapes, strides and dtypes are read."""
    backward = op.endswith("_backward")
    x = arguments[1 if backward else 0]
    layout = view(x.shape, x.stride()) or view(x.shape, _preserved(x.shape, x.stride()))
    assert layout is not None
    return Problem(*layout, x.dtype.itemsize, 2 if backward else 1)


def launch_with(configuration: Configuration, op: str, *arguments: Any) -> tuple[torch.Tensor | None, ...]:
    """The result of ``op`` in training by a launch in this configuration; ValueError where it is not legal."""
    if op.endswith("_backward"):
        grad_out, x, weight, _, _, mean, rstd, train, eps, mask = arguments
        return compute_backward(grad_out, x, weight, mean, rstd, train, eps, mask, configuration)
    x, weight, bias, running_mean, running_var, training, momentum, eps = arguments
    return compute_forward(x, weight, bias, running_mean, running_var, training, momentum, eps, configuration)


def compute_forward(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(output, mean, rstd); the running statistics are updated in place in training."""
    dense, new_output, new_statistic, compute = prepare_forward(
        input.shape,
        input.stride(),
        input.dtype,
        None if weight is None else (weight.numel(), weight.dtype),
        None if bias is None else (bias.numel(), bias.dtype),
        None if running_mean is None else (running_mean.numel(), running_mean.dtype),
        None if running_var is None else (running_var.numel(), running_var.dtype),
        training,
        momentum,
        eps,
        input.get_device(),
        configuration,
    )
    output = new_output()
    mean = new_statistic()
    rstd = new_statistic()
    running = [None if each is None else each.contiguous() for each in (running_mean, running_var)]
    compute(
        input if dense else output.copy_(input),
        None if weight is None else weight.contiguous(),
        None if bias is None else bias.contiguous(),
        *running,
        output,
        mean,
        rstd,
    )
    if training:
        for each, updated in zip((running_mean, running_var), running, strict=True):
            if each is not None and updated is not None and updated is not each:
                each.copy_(updated)
    return output, mean, rstd


def compute_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    spread: torch.Tensor,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
    configuration: Configuration | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The gradients of input, weight and bias, or None for what ``output_mask`` does not ask for.

    ``spread`` is 1 / standard deviation of each channel in training, and the running variance else.
    """
    want_input, want_weight, want_bias = output_mask
    shape, strides = input.shape, input.stride()
    dense, new_dx, new_dparameter, compute = prepare_backward(
        shape,
        strides,
        (input.dtype, grad_out.dtype, mean.dtype, spread.dtype),
        (grad_out.numel(), mean.numel(), spread.numel()),
        None if weight is None else (weight.numel(), weight.dtype),
        train,
        eps,
        (want_input, want_weight, want_bias),
        input.get_device(),
        configuration,
    )
    dx = new_dx() if want_input else None
    dweight = new_dparameter() if want_weight else None
    dbias = new_dparameter() if want_bias else None
    if not dense:
        input = new_dx().copy_(input)
    if not same_order(shape, input.stride(), grad_out.stride()):
        grad_out = grad_out.contiguous() if input.is_contiguous() else new_dx().copy_(grad_out)
    compute(
        grad_out,
        input,
        None if weight is None else weight.contiguous(),
        mean.contiguous(),
        spread.contiguous(),
        dx,
        dweight,
        dbias,
    )
    return dx, dweight, dbias


class _Forward(NamedTuple):
    dense: bool
    output: Allocation
    statistic: Allocation
    launch: _Launch


class _Backward(NamedTuple):
    dense: bool
    dx: Allocation
    dparameter: Allocation
    launch: _Launch


@functools.lru_cache(maxsize=4096)
def prepare_forward(
    shape: torch.Size,
    strides: tuple[int, ...],
    dtype: torch.dtype,
    weight: _Vector | None,
    bias: _Vector | None,
    running_mean: _Vector | None,
    running_var: _Vector | None,
    training: bool,
    momentum: float,
    eps: float,
    device: int,
    configuration: Configuration | None = None,
) -> _Forward:
    """What all calls with these arguments share. The dtypes are there because a launch is for one combination."""
    if len(shape) < 2:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-max(len(shape), 1)}, {max(len(shape), 1) - 1}], "
            "but got 1)"
        )
    if (running_mean is None) != (running_var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    if not training and running_mean is None:
        raise RuntimeError("running_mean must be defined in evaluation mode")
    vectors = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check_sizes(shape[1], vectors)
    layout = view(shape, strides)
    ordered = strides if layout else _preserved(shape, strides)
    layout = layout or view(shape, ordered)
    assert layout is not None
    output = Allocation(shape, dtype, device, ordered)
    statistic = Allocation((shape[1],), _accumulator(dtype), device)
    launch = _forward_launch(layout, dtype, training, momentum, eps, device, configuration)
    return _Forward(ordered is strides, output, statistic, launch)


def _forward_launch(
    layout: View,
    dtype: torch.dtype,
    training: bool,
    momentum: float,
    eps: float,
    device: int,
    configuration: Configuration | None,
) -> _Launch:
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
        options = {**_options(planned.tiling), "RUN": planned.tiling.run}
        return batch_norm_evaluation.bind(device, *_of_evaluation(planned, C, eps_bits), **options)
    chosen = launch_of(problem, configuration, limits) if configuration else plan(problem, limits)
    if isinstance(chosen, Flat):
        return _flat_forward(chosen, problem, dtype, eps_bits, momentum_bits, device)
    tiling = chosen.tiling
    sizes = C, tiling.vectors, tiling.total, eps_bits, momentum_bits
    options = _options(tiling)
    # Left to itself the compiler spills 8 bytes of columns of less than vectors for a second program of 16 warps to a
    # multiprocessor (512 x 999 float16, 592 x 206606 bfloat16, sm_80).
    squeezed = tiling.columns and tiling.warps == MAX_WARPS and not has_vectors(problem) and limits.capability[0] < 9
    if isinstance(chosen, Channels):
        if squeezed:
            options["maxnreg"] = limits.registers_per_sm // (MAX_WARPS * WARP)
        return batch_norm_channels.bind(device, (tiling.blocks,), *sizes, **options)
    alone = chosen.group == 1
    options |= _options_of_groups(chosen, alone)
    if squeezed:
        options["maxnreg"] = chosen.registers
    launch = batch_norm_groups.bind(device, (chosen.programs,), *sizes, *_of_groups(chosen), **options)
    return _with_parts(launch, chosen, alone, 3, C, _accumulator(dtype), device)


@functools.lru_cache(maxsize=4096)
def prepare_backward(
    shape: torch.Size,
    strides: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    sizes: tuple[int, ...],
    weight: _Vector | None,
    training: bool,
    eps: float,
    mask: tuple[bool, bool, bool],
    device: int,
    configuration: Configuration | None = None,
) -> _Backward:
    """What all calls with these arguments share.

    Args:
        strides: of the input.
        dtypes: of input, grad_out and the two statistics; a launch is for one combination of them.
        sizes: numbers of elements of grad_out and the two statistics.
    """
    C = shape[1]
    if sizes[0] != math.prod(shape):
        raise RuntimeError(
            f"Expected grad_out to have {math.prod(shape)} elements, as the input, but it has {sizes[0]}"
        )
    given = zip(("mean", "variance"), sizes[1:], dtypes[2:], strict=True)
    _check_sizes(C, {"weight": weight, **{name: (size, dtype) for name, size, dtype in given}})
    layout = view(shape, strides)
    ordered = strides if layout else _preserved(shape, strides)
    layout = layout or view(shape, ordered)
    assert layout is not None
    dx = Allocation(shape, dtypes[0], device, ordered)
    dparameter = Allocation((C,), weight[1] if weight else dtypes[0], device)
    launch = _backward_launch(layout, dtypes[0], training, eps, mask, device, configuration)
    return _Backward(ordered is strides, dx, dparameter, launch)


def _backward_launch(
    layout: View,
    dtype: torch.dtype,
    training: bool,
    eps: float,
    mask: tuple[bool, bool, bool],
    device: int,
    configuration: Configuration | None,
) -> _Launch:
    A, C, B = layout
    if C == 0 or not any(mask):
        return _nothing
    if A * B == 0:
        return _backward_of_nothing
    want_sums = mask[1] or mask[2]
    problem = Problem(A, C, B, dtype.itemsize, 2)
    limits = devices.limits(device)
    eps_bits = _bits(eps)
    # dx alone is an operation for each element, as all of evaluation is forward.
    if configuration is not None:
        chosen = launch_of(problem, configuration, limits)
    elif training:
        chosen = plan(problem, limits)
    else:
        chosen = plan_sums(problem, limits) if want_sums else plan_evaluation(problem, limits)
    if isinstance(chosen, Flat):
        return _flat_backward(chosen, problem, dtype, mask, device)
    tiling = chosen.tiling
    sizes = C, tiling.vectors, tiling.total, eps_bits
    options = {**_options(tiling), "EVALUATION": not training}
    if isinstance(chosen, Channels):
        return batch_norm_backward_channels.bind(device, (tiling.blocks,), *sizes, **options)
    alone = chosen.group == 1 or not (training or want_sums)
    launch = batch_norm_backward_groups.bind(
        device, (chosen.programs,), *sizes, *_of_groups(chosen),
        **options, **_options_of_groups(chosen, alone), EDGES=tiling.edges,
    )  # fmt: skip
    return _with_parts(launch, chosen, alone, 2, C, _accumulator(dtype), device)


def _flat_forward(
    chosen: Flat, problem: Problem, dtype: torch.dtype, eps_bits: int, momentum_bits: int, device: int
) -> _Launch:
    C, B, grid, accumulator = problem.N, problem.K, (chosen.programs,), _accumulator(dtype)
    total, parts = problem.M * B, (chosen.group, chosen.slice_size)
    options = _options_of_flat(chosen)
    statistics = batch_norm_flat_statistics.bind(
        device, grid, C, B, chosen.width, chosen.per_row, chosen.tiles, chosen.rest, *parts,
        **options, **_options_of_sums(chosen),
    )  # fmt: skip
    merge = batch_norm_flat_merge.bind(
        device, _merge_grid(C), *_of_parts(chosen, C, B), chosen.tiles, chosen.rest, total, eps_bits, momentum_bits,
        chosen.group, chosen.slice_size if chosen.by_place else chosen.part(),
        ROWS=chosen.rows if chosen.by_place else 0, **_options_of_merge(chosen),
    )  # fmt: skip
    apply = batch_norm_flat_apply.bind(device, grid, C, B, chosen.width, chosen.tiles, chosen.rest, *parts, **options)
    columns, partial = _flat_workspace(chosen, 3, C, accumulator, device)
    return functools.partial(_run_flat_forward, statistics, merge, apply, columns, partial)


def _run_flat_forward(
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


def _flat_backward(
    chosen: Flat, problem: Problem, dtype: torch.dtype, mask: tuple[bool, bool, bool], device: int
) -> _Launch:
    C, B, grid, accumulator = problem.N, problem.K, (chosen.programs,), _accumulator(dtype)
    total, parts = problem.M * B, (chosen.group, chosen.slice_size)
    options = _options_of_flat(chosen)
    sums = batch_norm_backward_flat_sums.bind(
        device, grid, C, B, chosen.width, chosen.per_row, chosen.tiles, chosen.rest, *parts,
        **options, **_options_of_sums(chosen),
    )  # fmt: skip
    merge = batch_norm_backward_flat_merge.bind(
        device, _merge_grid(C), *_of_parts(chosen, C, B), chosen.group, **_options_of_merge(chosen)
    )
    apply = None
    if mask[0]:
        apply = batch_norm_backward_flat_apply.bind(
            device, grid, C, B, chosen.width, chosen.tiles, chosen.rest, total, *parts, **options
        )
    columns, partial = _flat_workspace(chosen, 2, C, accumulator, device)
    added = Allocation((2, C), accumulator, device)
    return functools.partial(_run_flat_backward, sums, merge, apply, columns, partial, added)


def _run_flat_backward(
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


def _flat_workspace(
    chosen: Flat, planes: int, C: int, dtype: torch.dtype, device: int
) -> tuple[Allocation | None, Allocation]:
    if chosen.by_place:
        return None, Allocation((planes, chosen.group, chosen.width), dtype, device)
    columns = Allocation((chosen.programs, planes, chosen.lanes * chosen.vec), dtype, device)
    return columns, Allocation((planes, chosen.group, C), dtype, device)


def _options_of_flat(chosen: Flat) -> dict[str, int | bool]:
    return {
        "num_warps": chosen.warps,
        "ROWS": chosen.rows,
        "LANES": chosen.lanes,
        "VEC": chosen.vec,
        "STAGES": chosen.stages,
        "maxnreg": FLAT_REGISTERS,
    }


def _options_of_sums(chosen: Flat) -> dict[str, int]:
    return {"BLOCK_C": chosen.block_c, "BLOCK_E": chosen.block_e}


def _merge_grid(C: int) -> tuple[int]:
    return (cdiv(C, MERGED_CHANNELS),)


def _of_parts(chosen: Flat, C: int, B: int) -> tuple[int, int, int, int]:
    """C, B, width and per_row of what programs store for each other."""
    return (C, B, chosen.width, chosen.per_row) if chosen.by_place else (C, 1, C, 1)


def _options_of_merge(chosen: Flat) -> dict[str, int]:
    entries = chosen.group * (chosen.per_row if chosen.by_place else 1)
    return {
        "num_warps": MERGE_WARPS,
        "CHANNELS": MERGED_CHANNELS,
        "ENTRIES": min(power_of_2(entries), MERGED_ELEMENTS // MERGED_CHANNELS),
        "maxnreg": MERGE_REGISTERS,
    }


def _options(tiling: Tiling) -> dict[str, int | bool]:
    return {
        "num_warps": tiling.warps,
        "CHANNELS": tiling.channels,
        "BLOCK": tiling.block,
        "VEC": tiling.vec,
        "COLUMNS": tiling.columns,
        "INT64_OFFSETS": tiling.int64_offsets,
    }


def _of_groups(chosen: Groups) -> tuple[int, int, int]:
    return chosen.tiling.blocks, chosen.group, chosen.slice_size


def _options_of_groups(chosen: Groups, alone: bool) -> dict[str, int | bool]:
    """``alone``: whether no program waits for another one."""
    run = chosen.tiling.run
    if alone:
        options = {"PARTS": 1, "RUN": run, "STAGES": chosen.stages}
        # Left to itself the compiler spills 8 to 16 bytes of heads and tails for one more program.
        return options | ({"maxnreg": chosen.registers} if chosen.tiling.edges and chosen.registers else {})
    return {
        "PARTS": chosen.parts,
        "RUN": run,
        "STAGES": chosen.stages,
        "maxnreg": chosen.registers,
        "launch_cooperative_grid": True,
    }


def _of_evaluation(planned: Groups, C: int, eps_bits: int) -> tuple[Any, ...]:
    tiling = planned.tiling
    sizes = C, tiling.vectors, tiling.total, eps_bits, planned.group, planned.slice_size
    return (planned.programs,), *sizes


def _with_parts(
    launch: Launch, chosen: Groups, alone: bool, planes: int, C: int, dtype: torch.dtype, device: int
) -> _Launch:
    """With room for ``planes`` numbers of each part and channel, unless programs work alone."""
    if alone:
        return functools.partial(_alone, launch)
    partial = Allocation((planes, chosen.group, C), dtype, device)
    return functools.partial(_together, launch, partial, 2 * chosen.tiling.blocks + 31)


def _alone(launch: Launch, *tensors: torch.Tensor | None) -> None:
    launch(*tensors, None, None)


def _together(
    launch: Launch, partial: Allocation, words: int, first: torch.Tensor, *others: torch.Tensor | None
) -> None:
    with_counters(launch, words, torch.int32, first, *others, partial())


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


def _preserved(shape: torch.Size, strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that PyTorch gives a copy of such a tensor."""
    return torch.empty_like(torch.empty_strided(shape, strides, device="meta")).stride()


def _bits(number: float) -> int:
    (bits,) = struct.unpack("q", struct.pack("d", number))
    return int(bits)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _check_sizes(C: int, vectors: dict[str, _Vector | None]) -> None:
    """Raise the error of ``torch.nn.functional.batch_norm`` where a tensor has not a number for each channel."""
    for name, each in vectors.items():
        if each is not None and each[0] != C:
            raise RuntimeError(f"{name} should contain {C} elements not {each[0]}")
