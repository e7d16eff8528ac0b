# SPDX-License-Identifier: Apache-2.0
"""Prepares the launches of reductions to pairs, once for each shape, and makes them."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch

from ...launch import devices, workspace
from ...launch.allocation import Allocation
from ...launch.prepared import Launch
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from . import plan
from .call import memory_order, problems_of, refuse_empty, tiles_of_columns, wrapped
from .columns import N_AXIS
from .defaults import kinds
from .launches import MAX_DEPTH, MAX_SHORT, column_grid
from .pair_policy import PairPolicy
from .pair_short_rows import reduce_pairs_of_short_rows_kernel
from .pairs import reduce_pairs_of_columns_kernel, reduce_pairs_of_rows_kernel
from .plan import Configuration, Plan, Problem
from .policy import accumulator

# Elements of a thread of a tile of columns in a loop, at most. With 32, 40 bytes of logsumexp spill.
MAX_LOOPED = 16
# The same where exponentials are made of 8 bytes. With 16, 104 to 152 bytes spill in 128 registers.
MAX_LOOPED_EXPONENTIALS_OF_8_BYTES = 8
# Warps of a multiprocessor in such a loop of odd K, an address for each element. With 24, in 80 registers, 8 bytes of
# aminmax 24 x 25503 x 11 float32 spill.
ODD_LOOPED_OCCUPANCY = 20
# Warps of a program of rows by few lanes.
LANES_WARPS = 4
# Threads of such a row of 16 bits or bytes from which each has two rows, for as many bytes on their way.
# aminmax 951209 x 91 bf16: 72.1 us, otherwise 78.6; logsumexp 116284 x 47 by 8 threads: 11.7 us, otherwise 10.6 (H100).
MIN_THREADS_OF_TWO_ROWS = 16
# Registers of a thread that makes exponentials of as many words of a tile as it was planned registers for. In 64
# registers 40 bytes of logsumexp 191807 x 848 bf16 spill; ptxas takes up to 92.
EXPONENTIALS_REGISTERS = 96


class Step(NamedTuple):
    """One launch and what it writes."""

    new_first: Allocation
    new_second: Allocation | None  # None where the pair has become one result
    launch: Launch | None = None  # None if there is no result
    new_partials: tuple[Allocation, ...] = ()  # what the programs of a result exchange
    blocks: int = 0  # whose programs are counted; 0 where no result has more than one


class Prepared(NamedTuple):
    steps: tuple[Step, ...]  # the next reduces the pairs of the one before
    copy: bool = False  # whether the input must be made contiguous first


@functools.lru_cache(maxsize=4096)
def _prepare(
    policy: PairPolicy,
    shape: tuple[int, ...],
    stride: tuple[int, ...] | None,
    dtype: torch.dtype,
    dim: int | tuple[int, ...] | None,
    keepdim: bool,
    device: int,
) -> Prepared:
    dims = wrapped(dim, len(shape))
    if 0 in shape and policy.empty is not None:
        refuse_empty(policy.name, policy.empty, shape, () if dim is None else dims)
    result = tuple(1 if d in dims else size for d, size in enumerate(shape) if keepdim or d not in dims)
    final = Allocation(result, dtype, device), None if policy.epilogue else Allocation(result, dtype, device)
    if 0 in result:
        return Prepared((Step(*final),))
    order = memory_order(shape, stride, dims) if stride is not None else None
    copy = stride is not None and order is None
    sizes = [(shape[d], d in dims) for d in order or range(len(shape)) if shape[d] != 1]
    problems = list(problems_of(sizes)) if 0 not in shape else [(math.prod(result), 0, 1)]
    elements, computed, steps = dtype, accumulator(dtype), []
    for number, (M, N, K) in enumerate(problems, 1):
        last = number == len(problems)
        chosen = _plan(policy, Problem(M, N or 2, K, elements.itemsize, 2), number == 1 and N > 0, device)
        options: dict[str, Any] = {
            "OP": policy.pairing(dtype, elements, computed, last),
            "BLOCK_N": chosen.block_n,
            "BLOCK_SPLITS": power_of_2(chosen.splits),
            "ONE_TILE_PER_CTA": chosen.splits * chosen.step >= N,
            "STAGES": chosen.stages,
            "EVICT": chosen.evict,
            "INT64_OFFSETS": chosen.int64_offsets,
            "num_warps": chosen.warps,
            "maxnreg": _registers(policy, chosen, computed),
        }
        sizes_of: tuple[int, ...] = (M, N)
        grid: tuple[int, ...] = (chosen.blocks, chosen.splits)
        if chosen.kernel == "short":
            kernel, sizes_of = reduce_pairs_of_short_rows_kernel, (M,)
            options = {name: options[name] for name in ("OP", "EVICT", "num_warps", "maxnreg")}
            options |= {"N": N, "BLOCK_M": chosen.block_m, "VECTOR": chosen.vector}
        elif chosen.kernel == "rows":
            kernel = reduce_pairs_of_rows_kernel
            options |= {"BLOCK_M": chosen.block_m, "VECTOR": chosen.vector, "EDGE_LANES": chosen.edge_lanes}
            options |= {"DEPTH": chosen.depth if chosen.lanes else 0, "NEIGHBOURS": chosen.neighbours}
            options["REST"] = chosen.lanes > 0 and N % chosen.lanes > 0
        else:
            kernel = reduce_pairs_of_columns_kernel
            sizes_of = (M, N, K)
            options |= {"BLOCK_K": chosen.block_k, "K_DIVISOR": chosen.vector, "AXIS": N_AXIS}
            grid, options["STARTS"] = column_grid(M, K, chosen)
            options["MATRICES"] = chosen.matrices
            if policy.tiled and number == 1:
                options |= tiles_of_columns(chosen, N)
            else:
                options |= {"DEPTH": 0, "REST": True}
        launch = kernel.bind(device, grid, *sizes_of, **options)
        pairs = final if last else (Allocation((M * K,), computed, device), Allocation((M * K,), computed, device))
        if chosen.splits == 1:
            steps.append(Step(*pairs, launch))
        else:
            partials = tuple(Allocation((chosen.splits * M * K,), computed, device) for _ in range(2))
            steps.append(Step(*pairs, launch, partials, chosen.blocks))
        elements = computed
    return Prepared(tuple(steps), copy)


def _registers(policy: PairPolicy, chosen: Plan, computed: torch.dtype) -> int:
    if computed.itemsize == 8:
        return max(chosen.registers, 128)
    # Single warps, whose rows have edges, do not spill.
    tile = chosen.kernel == "rows" and not chosen.lanes and not policy.tiled and chosen.warps > 1
    held = tile and chosen.block_m * chosen.block_n >= chosen.registers * chosen.warps * WARP
    return max(chosen.registers, EXPONENTIALS_REGISTERS) if held else chosen.registers


def choose(problem: Problem, of_elements: bool, limits: devices.Limits) -> Configuration:
    """As for a value and its position, but there are no kernels for classes, and none for short rows of pairs.

    Rows that would be loaded as columns are by lanes of their own, see :func:`by_lanes`.
    """
    configuration = plan.choose(problem, limits)
    kernels = ("rows" if problem.K == 1 else "columns", *(("short",) if of_elements else ()))
    if configuration.kernel not in kernels:
        configuration = next(each for each in kinds(problem, limits) if each.kernel in kernels)
    return configuration


def _plan(policy: PairPolicy, problem: Problem, of_elements: bool, device: int) -> Plan:
    limits = devices.limits(device)
    configuration = choose(problem, of_elements, limits)
    found = plan.launch(problem, configuration, limits)
    if found.kernel == "columns" and found.splits * found.step < problem.N:
        most = ODD_LOOPED_OCCUPANCY if problem.K % 2 == 1 else configuration.occupancy
        exponentials = not policy.tiled and problem.itemsize == 8
        elements = min(configuration.elements, MAX_LOOPED_EXPONENTIALS_OF_8_BYTES if exponentials else MAX_LOOPED)
        occupancy = min(configuration.occupancy, most)
        found = plan.launch(problem, configuration._replace(elements=elements, occupancy=occupancy), limits)
    return by_lanes(problem, found, limits) or found if of_elements else found


def by_lanes(problem: Problem, chosen: Plan, limits: devices.Limits) -> Plan | None:
    """Short rows of no whole vectors by few lanes, which exchange pairs: as many lanes as have 8 elements each.

    They are one warp at most, or two of 8 bytes. A lane of longer rows has up to 16 elements if a load takes two or
    more, or if they have 8 bytes. None where that leaves multiprocessors without a program.
    aminmax 32911 x 561 float64: 58 us, with a lane for every element 145 (H100). Even rows of bytes are slower in this
    way: 300000 x 72 uint8: 29.6 us, by vectors of 8 21.3 (H100). Vectors of 2 and 4 of them were not timed.
    """
    M, N, _, size, _ = problem
    vector, wide = math.gcd(N, VECTOR_BYTES // size), 2 if size == 8 else 1
    most = MAX_DEPTH * (2 if vector > 1 else wide)
    lanes = vector
    while N // lanes * vector > MAX_DEPTH and lanes < wide * WARP * vector:
        lanes *= 2
    threads = lanes // vector
    rows = 2 if size <= 2 and threads >= MIN_THREADS_OF_TWO_ROWS else 1
    block_m = LANES_WARPS * WARP // threads * rows
    alone = chosen.kernel == "rows" and chosen.splits == 1 and cdiv(M, block_m) >= limits.sm_count
    fits = N > MAX_SHORT and vector * size < VECTOR_BYTES and N // lanes * vector <= most
    if not (alone and fits) or (size == 1 and vector > 1):
        return None
    return chosen._replace(
        blocks=cdiv(M, block_m),
        block_m=block_m,
        block_n=lanes,
        step=N,
        vector=vector,
        edge_lanes=0,
        neighbours=1,
        warps=LANES_WARPS,
        lanes=lanes,
        depth=N // lanes,
    )


def reduce_pairs(
    policy: PairPolicy, x: torch.Tensor, dim: int | tuple[int, ...] | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """``x`` reduced over ``dim``, or over everything: the result and None, or both numbers.

    Args:
        policy: which reduction.
        x: any strides, a real dtype.
        dim: as PyTorch takes it; one, or several; None or () for all.
        keepdim: whether reduced dimensions stay, with size 1.

    Raises:
        IndexError, RuntimeError: as PyTorch does for dimensions that do not exist, come twice or are empty.
    """
    stride = None if x.is_contiguous() else x.stride()
    steps, copy = _prepare(policy, x.shape, stride, x.dtype, dim, keepdim, x.get_device())
    if copy:
        x = x.contiguous()
    second = None
    for new_first, new_second, launch, new_partials, blocks in steps:
        results = new_first(), None if new_second is None else new_second()
        if launch is not None:
            if blocks:
                launch(x, second, *results, *(new() for new in new_partials), workspace.counters(x, blocks))
            else:
                launch(x, second, *results, None, None, None)
        x, second = results
    return x, second
