# SPDX-License-Identifier: Apache-2.0
"""How long a launch of a group norm takes, in microseconds, from its numbers: what the memory takes for all bytes, what
the multiprocessors take for all lanes, and what the programs of one of them wait one after the other. One program does
these in turn; of several to a multiprocessor, and of groups in a pipeline, the longest hides the others.
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

# Bytes that a multiprocessor moves in a microsecond: if all are busy, if few are, and from L2.
BYTES_PER_US, BYTES_PER_US_OF_FEW, L2_BYTES_PER_US = 32000, 60000, 50000
# Microseconds of the first launch, of another launch, and of the latency of a load.
LAUNCH_US, SECOND_US, LOAD_US = 2.0, 2.0, 0.8
# Lanes that a multiprocessor loads, computes and stores in a microsecond: 128 instructions a cycle, 1700 cycles, 24
# instructions to a lane. With fewer than BUSY_WARPS warps proportionally less.
LANES_PER_US, BUSY_WARPS = 128 * 1700 // 24, 12
# float64 takes so many times as long for a lane: 248 groups of 11451 take 30 us with two programs each, 51 with one.
FLOAT64 = 4
# Half of that for groups that a program holds: 13 x 64 x 90 float64 5.1 us, in two launches 6.0, 3 x 7000 5.3 and 5.7,
# 30 x 2 x 5000 7.6 and 7.9 (H100).
FLOAT64_HELD = 2
# Weights and biases that are loaded after x are waited for like a quarter of a tile: 2 x 3035 x 8 float16 in one group
# 7.5 us, in two launches 5.5 (H100).
LATE_TILES = 0.25
# What a tile loads by less than 8 bytes at a time takes so many times as long for a lane: 60 to 70 instructions of a
# thread (counted). 90248 x 360 x 2 bfloat16 in 8 groups takes 441 us as a tile, as it lies 319 with 8 of 25 programs.
NARROW = 3
# Tiles in turn in two chunks take half of that, and for their warps: 60000 x 16 x 17 bf16 in 8 groups takes 74.7 us so,
# as it lies 130, 100000 x 8 x 31 float32 in 8 122 and 145, 100000 x 3 x 11 bf16 in one 26.4 and 32.7 (H100).
HALVED = 2
# Less than 16 bytes at a time in sums of channels, where threads exchange what they have: 736 x 4003 x 3 float32 in one
# group takes 153 us so, 80 by programs of channels, 3 x 8388608 x 3 bf16 in 32 554 and 401 (H100).
# But four elements of 16 bits are not: 915 x 842 x 28 bf16 in 2 takes 102 us by programs of channels, 89.6 in a loop.
NARROW_SUMS, WIDE_SUMS = 5, 4
# The sums of a group, and what each warp does for a tile, take as long as so many lanes (counted, not timed).
WARP_LANES = 128
# With more single float64 to a thread than this, fewer warps do not take less time: 262144 x 6 x 3 in 6 groups 116.9 us
# with 4 in 8 warps, 128.1 with 2 in 16 (H200).
SINGLE_FLOAT64 = 2
# A loop's own loads hide so many times as much as other programs do: 3968 groups of 17064 bfloat16 take 163 us in one
# launch, 180 in several; 512 of 10 x 4096 58 and 66 (H200).
LOOP_OVERLAP = 2
# What each program of channels does besides, from weights to the sums that it stores, takes as long as so many samples.
CHANNELS_TURNS = 1
# A program that adds up its columns at the end takes as long for it as for so many tiles.
FOLD_TILES = 2


# What one launch for all gradients takes besides, in tiles: 4 x 4096 float32 in 8 groups 3.5 us, 1059 x 3 float16 in
# one 3.3, where tiles of a few elements take 2.8 (H100).
TILES_OF_FEW = 0.5
# Its programs of channels look up a line of L1, one a cycle, for each sample of each input: the gradient of 3608 x 32
# bf16 in 32 groups takes 8.1 us so, 6.4 as tiles, of 1059 x 3, many of whose samples are in a line, 3.3 (H100).
LINES_PER_US, LINE_BYTES = 1700, 128


class _Work(NamedTuple):
    """What a launch does."""

    programs: int
    tiles: float
    """Of one program, one after the other; a pipeline hides half of what each waits."""
    lanes: int
    launches: int = 1
    live: int | None = None
    """Bytes that are read before the last of them are read again, backwards; None if nothing is."""
    workspace: int = 0
    """Bytes that are written and read."""
    us: float = 0.0
    """Besides all else."""


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
    # Part of what a workspace has more than the cache does goes to memory and back.
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
    # Bytes of the two sums of each, as many for each of a gradient's tensors: of 4096 x 3044 float64 in one group they
    # take 391 us with a program to a group, 203 by programs of channels, of 1024 x 3044 113 and 61, of 512 x 3044 64.3
    # and 35.8 (H100). Where each group has its own, those of float64 take twice as long.
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
        # The last to end are programs of the kind that has more to do.
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
