# SPDX-License-Identifier: Apache-2.0
"""What a planned launch makes the device do, from its numbers alone. One adapter for each family: whoever changes the
fields of a plan changes them here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from flag_gems_overrides.ops.families.batch_norm import plan as batch_norm_plan
from flag_gems_overrides.ops.families.group_norm import plan as group_norm_plan
from flag_gems_overrides.ops.families.norm import launches as norm_launches
from flag_gems_overrides.ops.families.norm import plan as norm_plan
from flag_gems_overrides.ops.families.norm.blocks_plan import plan_blocks
from flag_gems_overrides.ops.families.reduction import plan as reduction_plan
from flag_gems_overrides.ops.families.scan import plan as scan_plan
from flag_gems_overrides.ops.families.softmax import plan as softmax_plan
from flag_gems_overrides.ops.launch.devices import Limits
from flag_gems_overrides.ops.launch.sizes import power_of_2


class Work(NamedTuple):
    """All launches of one call together."""

    programs: int
    iterations: int
    """Tiles of the program that has the most, one after the other."""
    lanes: int
    """Elements of the input that all tiles have room for, those read again not counted twice."""
    reads: float
    """How often an element of the input is read."""
    workspace: int
    """Numbers that programs write for each other."""


class Kind(NamedTuple):
    """Operators that are planned alike."""

    name: str
    has_inner: bool
    """Whether K may be more than 1."""
    itemsizes: tuple[int, ...]
    inputs: int
    """Tensors of [M, N, K] that are read."""
    reduces: bool
    """Whether the result is [M, K] and not [M, N, K]."""
    work: Callable[[int, int, int, int, Limits], Work]
    max_lanes: float = 2.5
    """For an element: a tile is up to twice as wide as its rows, and rows and columns both may be."""
    max_bytes: float = 2.5
    """For a compulsory byte: a gradient that reads its inputs for the sums and for the result has 2.3."""


def _softmax(inputs: int) -> Callable[[int, int, int, int, Limits], Work]:
    def work(M: int, N: int, K: int, itemsize: int, limits: Limits) -> Work:
        plan = softmax_plan.plan(M, N, K, itemsize, inputs, limits)
        if isinstance(plan, softmax_plan.Single):
            return Work(plan.programs, 1, plan.programs * plan.block, 1, 0)
        if isinstance(plan, softmax_plan.Short):
            return Work(plan.programs, 1, plan.programs * plan.lanes * plan.depth * plan.columns, 1, 0)
        if isinstance(plan, softmax_plan.Rows):
            tile = plan.block_m * plan.depth * plan.width
            return Work(plan.programs, 1, plan.programs * tile, 1, 0)
        if isinstance(plan, softmax_plan.Interleaved):
            programs, tile = M * plan.splits, plan.step * plan.depth
            iterations = _cdiv(N * K, plan.splits * tile)
            numbers = 2 * (3 - inputs) * programs * K
            return Work(programs, 2 * iterations, programs * iterations * plan.block * plan.depth, 2, numbers)
        if isinstance(plan, softmax_plan.Strided):
            programs, tile = M * plan.splits * plan.blocks, plan.step * plan.depth
            iterations = _cdiv(N * K, plan.splits * tile)
            parts = 1 if plan.columns else plan.step // K
            numbers = (3 - inputs) * M * K * (plan.splits * parts + 1)
            return Work(programs, 2 * iterations, programs * iterations * plan.block * plan.depth, 2, numbers)
        if isinstance(plan, softmax_plan.Blocks):
            iterations = _cdiv(N * K, plan.step * plan.depth)
            return Work(M, iterations, M * iterations * plan.block * plan.depth, 2 if plan.looped else 1, 0)
        columns = plan.vec if plan.contiguous else plan.block_k
        length = _cdiv(N // plan.vec if plan.contiguous else N, plan.group)
        tiles = max(_cdiv(length, plan.lanes * plan.depth), 1)
        blocks = _cdiv(plan.blocks * plan.group, plan.programs)
        lanes = plan.blocks * plan.group * tiles * plan.lanes * plan.depth * columns
        numbers = plan.blocks * plan.group * (1 if plan.contiguous else columns) if plan.group > 1 else 0
        return Work(plan.programs, blocks * tiles, lanes, 2 if plan.looped else 1, numbers)

    return work


def _reduction(accumulators: int) -> Callable[[int, int, int, int, Limits], Work]:
    def work(M: int, N: int, K: int, itemsize: int, limits: Limits) -> Work:
        plan = reduction_plan.plan(M, N, K, itemsize, accumulators, limits)
        columns = plan.kernel == "columns"
        programs = plan.blocks * plan.splits
        iterations = max(_cdiv(N if columns else N * K, plan.splits * plan.step), 1)
        tile = plan.block_m * plan.block_n * (plan.block_k if columns else 1)
        numbers = accumulators * plan.splits * M * K if plan.splits > 1 else 0
        return Work(programs, iterations, programs * iterations * tile, 1, numbers)

    return work


def _norm(backward: bool, residual: bool = False) -> Callable[[int, int, int, int, Limits], Work]:
    def work(M: int, N: int, K: int, itemsize: int, limits: Limits) -> Work:
        plan = norm_plan.plan(norm_plan.Problem(M, N, K, itemsize, backward, residual), limits)
        if isinstance(plan, norm_launches.Flat):
            width = N if plan.columns else power_of_2(N)
            return Work(plan.programs, 1, plan.programs * plan.block_m * width, 1, 0)
        if isinstance(plan, norm_launches.ShortRows):
            return Work(plan.programs, 1, plan.programs * plan.block_m * N, 1, 0)
        if isinstance(plan, norm_launches.FewRows):
            # dx reads a row once, the other sums read all rows again.
            lanes = plan.row_programs * plan.block_m * plan.block_n
            iterations = _cdiv(M, plan.column_rows)
            return Work(plan.row_programs + plan.column_programs, iterations, lanes, 2, 0)
        blocks = plan_blocks(M, N, itemsize, True, limits) if backward else None
        if isinstance(plan, norm_launches.TwoPasses | norm_launches.Split) and blocks is not None:
            tiles, tile = blocks.programs * blocks.blocks, blocks.block_m * blocks.block_n
            return Work(blocks.programs, blocks.blocks, tiles * tile, 1 if blocks.held else 2, 0)
        if isinstance(plan, norm_launches.TwoPasses):
            turns = _cdiv(plan.rows, plan.columns.block_m)
            sums, columns = math.prod(plan.sums[0]), math.prod(plan.columns[0])
            of_sums = sums * plan.blocks * plan.sums.block_m * plan.sums.block_n
            lanes = columns * turns * plan.columns.block_m * plan.columns.block_n
            numbers = 2 * M * plan.slices + (2 * plan.splits * N if plan.splits > 1 else 0)
            return Work(sums + columns, plan.blocks + turns, max(of_sums, lanes), 2, numbers)
        if isinstance(plan, norm_launches.Loop):
            groups, blocks = plan.programs // plan.group, _cdiv(plan.slice_size, plan.block_n)
            lanes = M * _cdiv(N, plan.block_n) * plan.block_n
            return Work(plan.programs, _cdiv(M, groups) * blocks, lanes, 2, 0)
        if isinstance(plan, norm_launches.Split):
            groups, tile = plan.programs // plan.group, plan.chunks * plan.block_n
            numbers = 2 * groups * N if backward and groups > 1 else 0
            return Work(plan.programs, _cdiv(M, groups), M * plan.group * tile, 1, numbers)
        tile = plan.block_m * plan.chunks * plan.block_n
        iterations = _cdiv(M, plan.programs * plan.block_m)
        numbers = 2 * plan.programs * N if backward and plan.programs > 1 else 0
        return Work(plan.programs, iterations, plan.programs * iterations * tile, 1, numbers)

    return work


def _batch_norm(inputs: int) -> Callable[[int, int, int, int, Limits], Work]:
    def work(M: int, N: int, K: int, itemsize: int, limits: Limits) -> Work:
        plan = batch_norm_plan.plan(batch_norm_plan.Problem(M, N, K, itemsize, inputs), limits)
        if isinstance(plan, batch_norm_plan.Flat):
            places, planes = plan.lanes * plan.vec, 3 if inputs == 1 else 2
            lanes = plan.programs * plan.slice_size * plan.rows * places
            numbers = planes * plan.group * plan.width
            if not plan.by_place:
                numbers = planes * (plan.programs * places + plan.group * N)
            # Of both launches; the rest is a tile too.
            return Work(2 * plan.programs, 2 * (plan.slice_size + (plan.rest > 0)), lanes, 2, numbers)
        tiling = plan.tiling
        tile = tiling.channels * tiling.block
        if isinstance(plan, batch_norm_plan.Channels):
            return Work(tiling.blocks, 1, tiling.blocks * (tile + tiling.edges + tiling.channels * tiling.rest), 1, 0)
        tiles = _cdiv(plan.slice_size, tiling.rows)
        # Heads and tails of runs.
        edge_tiles = _cdiv(_cdiv(M, plan.group), tiling.edges // (2 * tiling.vec)) if tiling.edges else 0
        turns = _cdiv(tiling.blocks * plan.group, plan.programs)
        numbers = 3 * plan.group * N if plan.group > 1 else 0
        lanes = tiling.blocks * plan.group * (tiles * tile + edge_tiles * tiling.edges)
        return Work(plan.programs, turns * (tiles + edge_tiles), lanes, 2, numbers)

    return work


def _group_norm(inputs: int) -> Callable[[int, int, int, int, Limits], Work]:
    """Of one group a sample."""

    def work(M: int, N: int, K: int, itemsize: int, limits: Limits) -> Work:
        problem = group_norm_plan.Problem(M, N, K, 1, itemsize, inputs, inputs == 2)
        plan = group_norm_plan.plan(problem, limits)
        if isinstance(plan, group_norm_plan.Tile):
            groups, tile = plan.samples * plan.groups, plan.block_d * plan.block_hw
            iterations = _cdiv(M, plan.programs * groups)
            numbers = 2 * plan.programs * N if plan.programs > 1 else 0
            return Work(plan.programs, iterations, plan.programs * iterations * groups * tile, 1, numbers)
        if isinstance(plan, group_norm_plan.BackwardFew):
            iterations = _cdiv(M, plan.samples)
            of_groups = plan.group_programs * plan.groups * plan.block
            of_sums = plan.channel_programs * iterations * plan.samples * plan.block_c * plan.block_hw
            return Work(plan.group_programs + plan.channel_programs, iterations, max(of_groups, of_sums), 2, 0)
        if isinstance(plan, group_norm_plan.BackwardChannels):
            tile, iterations = plan.block_d * plan.block_hw, _cdiv(M, plan.shares)
            tiles = _cdiv(plan.slice_size, plan.vectors.lanes)
            of_sums = M * plan.parts * tiles * plan.vectors.lanes * plan.vectors.vec
            lanes = max(plan.programs * iterations * tile, of_sums)
            numbers = 2 * M * plan.parts + (2 * plan.shares * N if plan.shares > 1 else 0)
            return Work(M * plan.parts + plan.programs, tiles + iterations, lanes, 2, numbers)
        if isinstance(plan, group_norm_plan.ShortRows):
            return Work(plan.programs, 1, plan.programs * plan.groups * N * K, 1, 0)
        tile = plan.vectors.lanes * plan.vectors.vec
        tiles = _cdiv(N * K, tile)
        if isinstance(plan, group_norm_plan.Rows):
            return Work(plan.programs, 1, plan.programs * plan.groups * plan.chunks * tile, 1, 0)
        if isinstance(plan, group_norm_plan.Loop):
            return Work(plan.programs, _cdiv(M, plan.programs) * 2 * tiles, M * tiles * tile, 2, 0)
        if isinstance(plan, group_norm_plan.Split):
            iterations = _cdiv(plan.slice_size, plan.vectors.lanes) + 1
            return Work(M * (plan.splits + plan.tiles), iterations, M * tiles * tile, 2, 2 * M * plan.splits)
        if isinstance(plan, group_norm_plan.BackwardRows):
            iterations = _cdiv(M, plan.programs)
            numbers = plan.programs * 2 * (plan.columns + (N if plan.programs > 1 else 0))
            return Work(plan.programs, iterations, M * plan.chunks * tile, 1, numbers)
        sums = plan.sums
        across = 1 if sums.whole else _cdiv(K, sums.block_hw)
        blocks = _cdiv(N, sums.block_d)
        lanes = M * blocks * sums.block_d * across * (sums.block_hw + (sums.rest_hw if sums.whole else 0))
        if isinstance(plan, group_norm_plan.BackwardLoop):
            iterations = _cdiv(M, plan.programs) * (blocks * across + tiles)
            return Work(plan.programs, iterations, max(lanes, M * tiles * tile), 2, 2 * M * N if M > 1 else 0)
        programs = M * plan.parts
        iterations = plan.blocks * _cdiv(across, plan.splits) + 1
        numbers = 2 * programs + (2 * M * plan.splits * N if M * plan.splits > 1 else 0)
        return Work(programs + M * plan.tiles, iterations, max(lanes, M * tiles * tile), 2, numbers)

    return work


def _scan(M: int, N: int, K: int, itemsize: int, limits: Limits) -> Work:
    plan = scan_plan.plan(scan_plan.Problem(M, N, K, itemsize), limits)
    lanes = plan.programs * plan.steps * plan.units * plan.depth * plan.lanes
    if isinstance(plan, scan_plan.Chunks):
        numbers = plan.blocks * (plan.chunks - 1) * (plan.lanes if K > 1 else 1)
        return Work(plan.programs, plan.steps, lanes, 2, numbers)
    return Work(plan.programs, plan.steps, lanes, 1, plan.words if isinstance(plan, scan_plan.Shared) else 0)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


KINDS = (
    Kind("softmax", True, (2, 4, 8), 1, False, _softmax(1)),
    Kind("softmax gradient", True, (2, 4, 8), 2, False, _softmax(2)),
    Kind("batch norm", True, (2, 4, 8), 1, False, _batch_norm(1)),
    Kind("batch norm gradient", True, (2, 4, 8), 2, False, _batch_norm(2)),
    Kind("group norm", True, (2, 4, 8), 1, False, _group_norm(1)),
    # Two dimensions of a tile are twice as wide as they need be. Of thousands of channels of one element the gradient
    # writes as many sums as its inputs have elements, in float32.
    Kind("group norm gradient", True, (2, 4, 8), 2, False, _group_norm(2), max_lanes=4.0, max_bytes=4.5),
    Kind("cumsum", True, (1, 2, 4, 8), 1, False, _scan, max_lanes=4.0),
    Kind("reduction", True, (1, 2, 4, 8), 1, True, _reduction(1)),
    Kind("reduction with index", True, (1, 2, 4, 8), 1, True, _reduction(2)),
    Kind("reduction with statistics", True, (2, 4, 8), 1, True, _reduction(3)),
    Kind("layer_norm", False, (2, 4, 8), 1, False, _norm(False)),
    Kind("layer_norm gradient", False, (2, 4, 8), 2, False, _norm(True)),
    Kind("layer_norm of a sum", False, (2, 4, 8), 2, False, _norm(False, True)),
)
