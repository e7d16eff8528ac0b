# SPDX-License-Identifier: Apache-2.0
"""From tensors to launches, for running sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton.language as tl

from ...launch import devices, outputs
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.shape import split_at, wrap_dim
from ...launch.sizes import WARP, cdiv, power_of_2
from ...launch.workspace import with_counters
from ..norm.prepare import after_another, has_pdl
from . import plan
from .cumsum import cumsum_alone, cumsum_chunk_sums, cumsum_chunks, cumsum_shared
from .flat import cumsum_flat
from .interleaved import cumsum_interleaved
from .stacked import cumsum_stacked

# Tiles of a narrow input, at most, for each tile of the result, where a chunk is added up.
MAX_NARROW_TILES = 4
# Programs of a grid along its second axis, at most. With blocks of columns along the first axis and rows along the
# second, no program divides before its first load: 16 x 1 float32 has 42 instructions, otherwise 74.
MAX_GRID_ROWS = 65535


class _Prepared(NamedTuple):
    new_out: Allocation
    launch: Callable[..., None] | None  # takes the input and the result; None if they have no elements


def problem(op: str, x: torch.Tensor, dim: int) -> plan.Problem:
    """What ``op`` is planned for on these arguments; only shape and dtype are read."""
    return _problem(_sizes(x.shape, dim), x.dtype, _result(x.dtype, None))


def launch_with(configuration: plan.Configuration, op: str, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The result of ``op`` by a launch in this configuration; ValueError where it is not legal."""
    return cumsum(x, dim, None, configuration)


def cumsum(
    x: torch.Tensor, dim: int, dtype: torch.dtype | None, configuration: plan.Configuration | None = None
) -> torch.Tensor:
    new_out, launch = _prepare(x.shape, x.dtype, dim, dtype, x.get_device(), configuration)
    out = new_out()
    if launch is not None:
        launch(x.contiguous(), out)
    return out


def cumsum_out(x: torch.Tensor, dim: int, dtype: torch.dtype | None, out: torch.Tensor) -> torch.Tensor:
    outputs.check_dtype(out, dtype)
    _, launch = _prepare(x.shape, x.dtype, dim, out.dtype, x.get_device())
    outputs.resize(out, x.shape)
    same = x.data_ptr() == out.data_ptr() and x.dtype is out.dtype and x.stride() == out.stride()
    apart = x.untyped_storage().data_ptr() != out.untyped_storage().data_ptr()
    if not out.is_contiguous() or not (same or apart):
        return out.copy_(cumsum(x, dim, out.dtype))
    if launch is not None:
        launch(x.contiguous(), out)
    return out


@functools.lru_cache(maxsize=4096)
def _prepare(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    dim: int,
    requested: torch.dtype | None,
    device: int,
    configuration: plan.Configuration | None = None,
) -> _Prepared:
    M, N, K = sizes = _sizes(shape, dim)
    result = _result(dtype, requested)
    out = Allocation(shape, result, device)
    if M * N * K == 0:
        return _Prepared(out, None)
    if result is torch.bool:
        if shape:
            raise NotImplementedError("\"cumsum_cuda\" not implemented for 'Bool'")
        return _Prepared(out, lambda x, out: out.copy_(x))
    problem, limits = _problem(sizes, dtype, result), devices.limits(device)
    configuration = configuration or plan.choose(problem, limits)
    chosen = plan.launch(problem, configuration, limits)
    vec, unaligned = plan.vector(problem)
    accumulator = _accumulator(dtype, result, N)
    options: dict[str, Any]
    if isinstance(chosen, plan.Flat):
        options = {"CONVERTED": _TRITON[result], "ACC": accumulator, "ROWS": chosen.rows, "LANES": chosen.lanes}
        sizes = M, N, 2**31 // N + 1
        return _Prepared(out, cumsum_flat.bind(device, (chosen.programs,), *sizes, **options, num_warps=chosen.warps))
    if isinstance(chosen, plan.Interleaved):
        threads = chosen.warps * WARP
        options = {"CONVERTED": _TRITON[result], "ACC": accumulator, "THREADS": threads, "VEC": chosen.vec, "K": K}
        options |= {"TILE": _accumulator(dtype, result, threads * chosen.vec), "COLUMNS": power_of_2(K)}
        options |= {"SINGLE": chosen.steps == 1, "WHOLE": N * K % chosen.vec == 0, "num_warps": chosen.warps}
        return _Prepared(out, cumsum_interleaved.bind(device, (chosen.programs,), N, **options))
    if isinstance(chosen, plan.Stacked):
        options = {"CONVERTED": _TRITON[result], "ACC": accumulator, "THREADS": chosen.warps * WARP, "K": K}
        options |= {"VEC": chosen.vec, "WIDTH": chosen.width, "COLUMNS": power_of_2(K), "num_warps": chosen.warps}
        options["WHOLE"] = M * N * K % chosen.width == 0
        return _Prepared(out, cumsum_stacked.bind(device, (chosen.programs,), M, N, chosen.rows, **options))
    options = {
        "CONVERTED": _TRITON[result],
        "TILE": _accumulator(dtype, result, configuration.step(K) + vec),
        "ACC": accumulator,
        "UNITS": chosen.units,
        "DEPTH": chosen.depth,
        "LANES": chosen.lanes,
        "VEC": vec if unaligned else 1,
        "COLUMNS": K > 1,
        "UNALIGNED": unaligned,
        "DIVISOR": math.gcd(N if K == 1 else K, plan.KNOWN_MULTIPLE),
        "num_warps": chosen.warps,
    }
    if isinstance(chosen, plan.Chunks):
        options["maxnreg"] = chosen.registers
        chunks = chosen.chunks, chosen.length, M, N, K
        pdl = has_pdl(device)
        launch = cumsum_chunks.bind(device, (chosen.programs,), *chunks, **options, **after_another(pdl))
        del options["TILE"]
        # Narrow elements have more tiles at once, for as many bytes on their way.
        options["DEPTH"] *= min(problem.size // dtype.itemsize, MAX_NARROW_TILES, power_of_2(chosen.steps))
        options["PDL"] = pdl
        launch_sums = cumsum_chunk_sums.bind(device, (chosen.programs - chosen.blocks,), *chunks, **options)
        sums = Allocation((chosen.blocks, chosen.chunks - 1, chosen.lanes if K > 1 else 1), _TORCH[accumulator], device)
        return _Prepared(out, functools.partial(_in_chunks, launch_sums, launch, sums))
    options["SINGLE"] = chosen.steps == 1
    if isinstance(chosen, plan.Alone):
        options["SEGMENTED"] = chosen.segmented
        options["WHOLE"] = not unaligned and N % (chosen.depth * (1 if K > 1 else chosen.lanes)) == 0
        options["AT_ONCE"] = plan.at_once(problem, chosen)
        columns = cdiv(K, chosen.lanes)
        options["GRID"] = K > 1 and chosen.programs // columns <= MAX_GRID_ROWS
        grid = (columns, chosen.programs // columns) if options["GRID"] else (chosen.programs,)
        return _Prepared(out, cumsum_alone.bind(device, grid, M, N, K, **options))
    options["LATE"] = problem.size == 8 and unaligned and chosen.steps > 1
    options["PACKED"] = dtype.itemsize == 2 and configuration.elements > 1
    options |= {"MEMBERS": chosen.members, "COPIES": chosen.copies, "maxnreg": chosen.registers}
    launch = cumsum_shared.bind(
        device, (chosen.programs,), chosen.group, M, N, K, launch_cooperative_grid=True, **options
    )
    count = chosen.words * (2 if options["TILE"] is tl.int64 else 1) + chosen.blocks
    return _Prepared(out, functools.partial(with_counters, launch, count, torch.int64))


def _in_chunks(launch_sums: Launch, launch: Launch, new_sums: Allocation, x: torch.Tensor, out: torch.Tensor) -> None:
    sums = new_sums()
    launch_sums(x, sums)
    launch(x, out, sums)


def _sizes(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """(M, N, K)"""
    return plan.merged(*split_at(shape, wrap_dim(dim, len(shape))))


def _result(dtype: torch.dtype, requested: torch.dtype | None) -> torch.dtype:
    return requested or (dtype if dtype.is_floating_point else torch.int64)


def _problem(sizes: tuple[int, int, int], dtype: torch.dtype, result: torch.dtype) -> plan.Problem:
    size = max(dtype.itemsize, result.itemsize)
    return plan.Problem(*sizes, size, not result.is_floating_point, size // dtype.itemsize)


def _accumulator(dtype: torch.dtype, result: torch.dtype, count: int) -> tl.dtype:
    """The type of sums of ``count`` elements. int64 only where they may need it: its scan takes twice as long."""
    if result.is_floating_point:
        return tl.float64 if result is torch.float64 else tl.float32
    narrow = not dtype.is_floating_point and dtype.itemsize <= 2 and count << 8 * dtype.itemsize < 2**31
    return tl.int64 if result is torch.int64 and not narrow else tl.int32


_TORCH = {tl.int32: torch.int32, tl.int64: torch.int64, tl.float32: torch.float32, tl.float64: torch.float64}
_TRITON = {
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
