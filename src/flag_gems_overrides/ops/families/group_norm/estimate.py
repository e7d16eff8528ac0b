# SPDX-License-Identifier: Apache-2.0
"""An estimate of a launch of a group norm, in microseconds.

Three times are added up: of the memory for all bytes, of the multiprocessors for all lanes, and of the programs of a
multiprocessor that wait one after the other. With several programs at a time, or a pipeline, the longest time hides the
others.

Figures in comments: the input as N x C x HW, its type and its groups, and times of two kernels.
"""

from __future__ import annotations

from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from .launches import (
    BackwardChannels,
    BackwardFew,
    BackwardLoop,
    BackwardRows,
    BackwardSplit,
    Configuration,
    Launch,
    Loop,
    Problem,
    Rows,
    ShortRows,
    Split,
    Sums,
    Tile,
)
from .legal import MAX_WARPS, launch, tiles_and_lanes

# Bytes of memory that a multiprocessor moves in a microsecond, if all are busy.
BYTES_PER_US = 32000
# The same if few are busy.
BYTES_PER_US_OF_FEW = 60000
# Bytes of L2 that a multiprocessor moves in a microsecond.
L2_BYTES_PER_US = 50000
# Microseconds of the first launch.
LAUNCH_US = 2.0
# Microseconds of each other launch.
SECOND_US = 2.0
# Microseconds of the latency of a load.
LOAD_US = 0.8
# Lanes that a multiprocessor loads, computes and stores in a microsecond: 128 instructions a cycle, 1700 cycles, 24
# instructions to a lane.
LANES_PER_US = 128 * 1700 // 24
# Warps that a multiprocessor needs for these; with fewer it does proportionally less.
BUSY_WARPS = 12
# Factor of the time of a float64 lane. 248 groups of 11451: 30 us with two programs each, 51 with one.
FLOAT64 = 4
# The same for groups that a forward program holds. 13 x 64 x 90 float64: 5.1 us, in two launches 6.0 (H100).
FLOAT64_HELD = 2
# Tiles that a program waits for weights and biases that it loads after x.
# 2 x 3035 x 8 float16 in 1 group: 7.5 us, in two launches 5.5 (H100).
LATE_TILES = 0.25
# Factor of the time of a lane of a tile with loads of less than 8 bytes: 60 to 70 instructions of a thread (counted).
# 90248 x 360 x 2 bf16 in 8 groups: 441 us as a tile, as it lies 319.
NARROW = 3
# Divisor of that, and of WARP_LANES, for tiles in turn in two chunks.
# 60000 x 16 x 17 bf16 in 8 groups: 74.7 us, as it lies 130 (H100).
HALVED = 2
# Factor of the time of a lane of sums of channels with loads of less than 16 bytes, whose threads exchange elements.
# 736 x 4003 x 3 float32 in 1 group: 153 us, by programs of channels 80 (H100).
NARROW_SUMS = 5
# Elements of a load from which on NARROW_SUMS is not applied.
# 915 x 842 x 28 bf16 in 2 groups: 89.6 us in a loop, by programs of channels 102 (H100).
WIDE_SUMS = 4
# Lanes that take as long as what each warp does for a tile, such as the sums of a group (counted, not timed).
WARP_LANES = 128
# Single float64 of a thread beyond which fewer warps do not take less time.
# 262144 x 6 x 3 in 6 groups: 116.9 us with 4 in 8 warps, 128.1 with 2 in 16 (H200).
SINGLE_FLOAT64 = 2
# Factor of the programs at a time of a loop, whose own loads hide each other.
# 3968 groups of 17064 bf16: 163 us in one launch, 180 in several (H200).
LOOP_OVERLAP = 2
# Samples that take as long as the rest of a program of channels, from its weights to the sums that it stores.
CHANNELS_TURNS = 1
# Tiles that take as long as the columns that a program adds up at the end.
FOLD_TILES = 2
# Tiles that take as long as the rest of a program of the one launch for all gradients.
# 4 x 4096 float32 in 8 groups: 3.5 us, where tiles of a few elements take 2.8 (H100).
TILES_OF_FEW = 0.5
# Lines of L1 that a program of channels looks up in a microsecond, one for each sample of each input.
# 3608 x 32 bf16 in 32 groups: 8.1 us, as tiles 6.4 (H100).
LINES_PER_US = 1700
# Bytes of a line of L1.
LINE_BYTES = 128


class _Work(NamedTuple):
    """What a launch does."""

    programs: int
    tiles: float
    """Of one program, one after the other. A pipeline hides half of the wait for each."""
    lanes: int
    launches: int = 1
    live: int | None = None
    """Bytes that are read before the last of them are read again, backwards. None if nothing is read again."""
    workspace: int = 0
    """Bytes that are written and read."""
    us: float = 0.0
    """Microseconds added to all else."""


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    chosen = launch(problem, configuration, limits)
    reads, writes = problem.inputs, 1 if problem.inputs == 1 or problem.dx else 0
    numel = problem.M * problem.size
    warps = chosen.sums_warps if isinstance(chosen, BackwardSplit) else chosen.warps
    resident = max(limits.threads_per_sm // WARP // 2 // warps, 1)
    work = _work(problem, chosen, resident * limits.sm_count)
    on_one = cdiv(work.programs, limits.sm_count)
    busy = min(work.programs, limits.sm_count)
    from_memory = float(numel * problem.itemsize * (reads + writes))
    # The part of a workspace that the cache does not hold is written to memory and read back.
    cached = min(limits.l2_bytes // 2 / max(work.workspace, 1), 1)
    from_memory += 2.0 * work.workspace * (1 - cached)
    from_l2 = 2.0 * work.workspace * cached
    if work.live is not None:
        cached = min(limits.l2_bytes // 2 / work.live, 1)
        from_memory += numel * problem.itemsize * reads * (1 - cached)
        from_l2 += numel * problem.itemsize * reads * cached
    of_one = BYTES_PER_US if busy > limits.sm_count // 2 else BYTES_PER_US_OF_FEW
    of_bytes = from_memory / (busy * of_one) + from_l2 / (busy * max(of_one, L2_BYTES_PER_US))
    warps *= min(on_one, resident)
    lanes_per_us = LANES_PER_US
    if problem.itemsize == 8:
        lanes_per_us //= FLOAT64_HELD if isinstance(chosen, Rows) else FLOAT64
    of_lanes = work.lanes / (busy * lanes_per_us * min(1.0, warps / BUSY_WARPS))
    in_turn = cdiv(on_one, resident) * work.tiles * LOAD_US
    longest, total = max(of_bytes, of_lanes, in_turn), of_bytes + of_lanes + in_turn
    at_a_time = float(min(on_one, resident))
    if isinstance(chosen, Tile | BackwardRows) and chosen.stages > 1:
        at_a_time *= work.tiles
    if isinstance(chosen, BackwardLoop):
        at_a_time *= LOOP_OVERLAP
    return LAUNCH_US + SECOND_US * (work.launches - 1) + work.us + longest + (total - longest) / at_a_time


def _work(problem: Problem, chosen: Launch, at_once: int) -> _Work:
    M, N, _, groups, itemsize, inputs, dx = problem
    numel = M * problem.size
    # Bytes of the two sums of each channel, for each tensor of the gradient. Where each group has its own, those of
    # float64 take twice as long: 4096 x 3044 float64 in 1 group: 391 us, by programs of channels 203 (H100).
    of_channels = 2 * max(4, itemsize) * N
    of_group = of_channels * (2 if itemsize == 8 else 1)
    if isinstance(chosen, ShortRows):
        return _Work(chosen.programs, 1, chosen.programs * chosen.groups * problem.size)
    if isinstance(chosen, Rows):
        lanes = chosen.programs * chosen.groups * chosen.chunks * _lanes(chosen)
        # Weight and bias of each element by itself.
        tiles = 1 if chosen.early or N == 1 else 1 + LATE_TILES
        return _Work(chosen.programs, tiles, lanes * (2 if chosen.vectors.span == 3 else 1))
    if isinstance(chosen, Tile):
        held = chosen.samples * chosen.groups
        tiles = cdiv(M, chosen.programs * held)
        lanes = held * chosen.block_d * chosen.block_hw
        warps = chosen.warps
        if itemsize == 8 and chosen.vec == 1:
            warps = max(warps, min(lanes // (SINGLE_FLOAT64 * WARP), MAX_WARPS))
        of_lanes = NARROW if _is_narrow(problem, chosen.vec) else 1
        halved = HALVED if of_lanes == NARROW and tiles > 1 and chosen.chunks > 1 else 1
        lanes = (lanes * of_lanes + warps * WARP_LANES) // halved * chosen.programs * tiles
        alone = chosen.programs == cdiv(groups, chosen.groups)
        workspace = 0 if alone else chosen.programs * chosen.groups * of_channels
        return _Work(chosen.programs, _pipelined(tiles, chosen), lanes, 1 if alone else 2, None, workspace)
    if isinstance(chosen, BackwardFew):
        programs, iterations = chosen.group_programs + chosen.channel_programs, cdiv(problem.samples, chosen.samples)
        of_sums = iterations * chosen.samples * chosen.block_c * chosen.block_hw
        # The programs of the kind that has more to do end last.
        lanes = programs * (max(chosen.groups * chosen.block, of_sums) + chosen.warps * WARP_LANES)
        looked_up = problem.samples * inputs * min(groups * problem.size * itemsize / LINE_BYTES, 1.0)
        return _Work(
            programs, iterations + TILES_OF_FEW, lanes, 1, numel * itemsize * inputs, us=looked_up / LINES_PER_US
        )
    if isinstance(chosen, BackwardRows):
        in_turn = _pipelined(cdiv(M, chosen.programs), chosen) + (FOLD_TILES if chosen.columns else 0)
        workspace = chosen.programs * (2 * 4 * chosen.columns + of_channels)
        lanes = M * (chosen.chunks * _lanes(chosen) + chosen.warps * WARP_LANES)
        return _Work(chosen.programs, in_turn, lanes, 1 if chosen.programs == groups else 2, None, workspace)
    if isinstance(chosen, BackwardChannels):
        turns = cdiv(problem.samples, chosen.shares)
        in_part = cdiv(cdiv(problem.size, chosen.parts), _lanes(chosen))
        before = (2 + _pipelined(in_part, chosen)) * cdiv(M * chosen.parts, at_once) * dx
        lanes = chosen.programs * (turns + CHANNELS_TURNS) * chosen.block_d * chosen.block_hw
        lanes = numel * dx + lanes * (NARROW if _is_narrow(problem, chosen.vec) else 1)
        workspace = 8 * chosen.parts * chosen.programs * turns * dx
        if chosen.shares > 1:
            workspace += chosen.shares * groups * of_channels
        read_again = numel * itemsize * inputs if dx else None
        launches = 1 + dx + (chosen.shares > 1)
        before /= cdiv(chosen.programs, at_once)
        in_turn = before + CHANNELS_TURNS + 1 + (turns - 1) * (0.5 if chosen.ahead else 1)
        return _Work(chosen.programs, in_turn, lanes, launches, read_again, workspace)
    in_group = cdiv(problem.size, _lanes(chosen))
    if isinstance(chosen, Loop):
        live = min(M, at_once, chosen.programs) * problem.size * itemsize
        turns = cdiv(M, chosen.programs)
        return _Work(chosen.programs, turns * (1 + _pipelined(2 * in_group, chosen)), 2 * numel, 1, live)
    if isinstance(chosen, Split):
        in_part = cdiv(cdiv(problem.size, chosen.splits), _lanes(chosen))
        return _Work(M * chosen.splits, 2 + _pipelined(in_part, chosen), 2 * numel, 2, numel * itemsize)
    tiles_of_sums, _ = tiles_and_lanes(problem, chosen.sums)
    lanes = _lanes_of_sums(problem, chosen.sums) + numel * dx
    if isinstance(chosen, BackwardLoop):
        live = min(M, at_once, chosen.programs) * problem.size * itemsize * inputs
        each = 1 + _pipelined(tiles_of_sums, chosen.sums) + _pipelined(in_group, chosen)
        launches = 1 if groups == M else 2
        workspace = M * of_group if launches > 1 else 0
        return _Work(chosen.programs, cdiv(M, chosen.programs) * each, lanes, launches, live, workspace)
    assert isinstance(chosen, BackwardSplit)
    tiles_of_part = cdiv(tiles_of_sums, chosen.parts)
    each = 2 + _pipelined(tiles_of_part, chosen.sums)
    adds = M // groups * chosen.splits > 1
    launches = 1 + dx + adds
    workspace = M * chosen.splits * of_group * adds + 8 * M * chosen.parts * chosen.tiles * dx
    read_again = numel * itemsize * inputs if dx else None
    return _Work(M * chosen.parts, each, lanes, launches, read_again, workspace)


def _lanes_of_sums(problem: Problem, tiles: Sums) -> int:
    """Of all groups."""
    narrow = not tiles.unaligned and tiles.vec < WIDE_SUMS and tiles.vec * problem.itemsize < VECTOR_BYTES
    return problem.M * tiles_and_lanes(problem, tiles)[1] * (NARROW_SUMS if narrow else 1)


def _is_narrow(problem: Problem, vec: int) -> bool:
    return vec * problem.itemsize < VECTOR_BYTES // 2


def _lanes(chosen: Rows | BackwardRows | Loop | Split | BackwardLoop | BackwardSplit | BackwardChannels) -> int:
    """Elements of a tile of vectors."""
    return chosen.vectors.lanes * chosen.vectors.vec


def _pipelined(
    tiles: int, chosen: Tile | BackwardRows | Loop | Split | BackwardLoop | BackwardChannels | Sums
) -> float:
    return 1 + (tiles - 1) * (0.5 if chosen.stages > 1 else 1.0)
