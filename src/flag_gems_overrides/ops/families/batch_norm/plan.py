# SPDX-License-Identifier: Apache-2.0
"""How a batch norm of [A, C, B] over A and B is launched: plain numbers in, a plan out. H200."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits

WARP = 32
VECTOR_BYTES = 16
# Elements of each input that a thread holds where a program has whole channels, by the number of inputs, and warps.
ELEMENTS_OF_CHANNELS, MAX_WARPS = {1: 32, 2: 16}, 16
# What a program reads side by side: of columns, and of neighbouring channels at least.
ROW_BYTES, NEIGHBOUR_BYTES, SECTOR_BYTES = 128, 128, 32
# Programs that hold columns of fewer bytes than a sector of the cache read the rest of it for nothing, from L2: so much
# for more programs, and so much for programs that hold their columns at all.
LITTLE_BYTES_OF_SECTORS, MAX_BYTES_OF_SECTORS = 1 << 20, 16 << 20
# Of the bytes of a vector, the share that a thread loads where it loads one by one.
SINGLES = 4
# Numbers of other programs that the last one of a group has at a time, for each of its threads.
PARTS_PER_THREAD = 4
# Tiles of a program that are worth the wait for the others of its group.
MIN_TILES = 2
# Of evaluation, whose programs do not wait: more programs than run at once shorten the last round.
WAVES = 4


class Shape(NamedTuple):
    """Of a program that goes through channels tile by tile."""

    loads: int  # of 16 bytes of each input that a thread has in flight; a quarter of it where it loads one by one
    warps: int
    warps_per_sm: int  # which leaves a thread 65536 / 32 / warps_per_sm registers


# Columns have more to a program, so that fewer of them tell each other of many channels: 65536 x 512 bf16 takes 83 and
# 110 us, forward and backward, with 8 warps 95 and 112.
ROWS, COLUMNS = Shape(2, 4, 32), Shape(4, 16, 16)


class Problem(NamedTuple):
    """Batch norm of [A, C, B]. inputs: tensors of that size that are read, 1 forward and 2 backward."""

    A: int
    C: int
    B: int
    itemsize: int
    inputs: int


class Tiling(NamedTuple):
    """What a program has of [A, C, B]. Names as in tile.py."""

    channels: int
    block: int
    vec: int
    vectors: int
    total: int
    columns: bool
    int64_offsets: bool
    warps: int
    blocks: int  # of channels


class Channels(NamedTuple):
    """Programs that hold whole channels: the ``*_channels`` kernels."""

    tiling: Tiling


class Groups(NamedTuple):
    """``group`` programs to a block of channels, each with ``slice_size`` rows, or vectors, of them."""

    tiling: Tiling
    group: int
    slice_size: int
    parts: int  # that the last program merges at a time
    programs: int
    registers: int  # most for one thread, which makes ``programs`` fit on the device


def plan(problem: Problem, limits: Limits) -> Channels | Groups:
    """The launch for these sizes, none of them 0."""
    return _channels(problem, limits) or _groups(problem, limits)


def plan_evaluation(problem: Problem, limits: Limits) -> Groups:
    """The same where no program needs what another one has read; each group has one block of channels."""
    tiling = _tiles(problem, limits)
    tiles = cdiv(tiling.total, _tile(tiling))
    group = max(1, min(cdiv(WAVES * _places(problem, tiling, limits), tiling.blocks), tiles))
    slice_size = cdiv(tiles, group) * _tile(tiling)
    group = cdiv(tiling.total, slice_size)
    return Groups(tiling, group, slice_size, 1, group * tiling.blocks, 0)


def _groups(problem: Problem, limits: Limits) -> Groups:
    tiling = _tiles(problem, limits)
    places = _places(problem, tiling, limits)
    # All channels at once if there are places, or in as few rounds as can be, evenly. With fewer at a time, so that L2
    # holds what is read a second time, groups are larger and wait longer: 65536 x 512 bf16 148 and 354 us.
    at_once = cdiv(tiling.blocks, cdiv(tiling.blocks, places))
    group = max(1, min(places // at_once, tiling.total // (MIN_TILES * _tile(tiling))))
    # Whole lines of memory.
    unit = 1 if tiling.columns else ROW_BYTES // problem.itemsize // tiling.vec
    slice_size = cdiv(cdiv(tiling.total, group), unit) * unit
    group = cdiv(tiling.total, slice_size)
    merged = int(PARTS_PER_THREAD * tiling.warps * WARP) // tiling.channels
    registers = min(limits.registers_per_sm * limits.sm_count // (places * tiling.warps * WARP) // 8 * 8, 255)
    programs = min(places // group, tiling.blocks) * group
    return Groups(tiling, group, slice_size, min(power_of_2(group), max(merged, 1)), programs, registers)


def _tiles(problem: Problem, limits: Limits) -> Tiling:
    A, C, B, size, inputs = problem
    columns = B == 1
    loads, warps, _ = COLUMNS if columns else ROWS
    if columns and inputs == 2 and limits.capability[0] != 9:
        # 28304 x 64 bfloat16 spills 32 and 56 bytes on sm_80 and sm_100.
        loads //= 2
    vec = math.gcd(C if columns else B, VECTOR_BYTES // size)
    # Elements that are loaded one by one take an address and a mask each.
    elements = max(loads * (VECTOR_BYTES if vec * size == VECTOR_BYTES else VECTOR_BYTES // SINGLES) // size, 1)
    channels = min(ROW_BYTES // size if columns else _neighbours(problem), power_of_2(C))
    # Of few rows several tiles too.
    while columns and warps > 4 and A * channels < 4 * elements * warps * WARP:
        warps //= 2
    return _tiling(problem, channels, elements * warps * WARP // channels, warps)


def _tile(tiling: Tiling) -> int:
    """Rows, or vectors, of a tile."""
    return tiling.block if tiling.columns else tiling.block // tiling.vec


def _places(problem: Problem, tiling: Tiling, limits: Limits) -> int:
    """Programs that the device has at once. float64 takes twice the registers."""
    warps = (COLUMNS if tiling.columns else ROWS).warps_per_sm
    if not tiling.columns and problem.itemsize == 2 and limits.capability[0] > 9:
        # One program less, for 72 registers: of 64 Triton 3.6 spills 8 to 24 bytes (20 x 6 x 65536, sm_100).
        warps -= tiling.warps
    warps = min(warps // (2 if problem.itemsize == 8 else 1), limits.threads_per_sm // WARP)
    return limits.sm_count * max(warps // tiling.warps, 1)


def _channels(problem: Problem, limits: Limits) -> Channels | None:
    """None if a program does not hold a channel."""
    A, C, B, size, inputs = problem
    elements = ELEMENTS_OF_CHANNELS[inputs] // (2 if size == 8 else 1)
    most = elements * MAX_WARPS * WARP
    block = power_of_2(A * B)
    if block > most:
        return None
    if B == 1:
        # Sectors of 32 bytes, or more as long as there is a program for each multiprocessor.
        channels = min(max(ROW_BYTES // size, 512 // block), power_of_2(C))
        while channels > 1 and (
            (channels > SECTOR_BYTES // size and channels * limits.sm_count > C)
            or (inputs == 1 and channels * block > 512 and _bytes(problem, channels // 2) <= LITTLE_BYTES_OF_SECTORS)
        ):
            channels //= 2
        if channels * block > most:
            # Half of it of two inputs: 2500 x 40 float16 spills 8 bytes on sm_80.
            channels = most // (inputs * block)
            if channels == 0 or _bytes(problem, channels) > MAX_BYTES_OF_SECTORS:
                return None
    else:
        # Several channels of few elements; one warp is enough for 16 of a thread.
        channels = min(512 // block, power_of_2(cdiv(C, limits.sm_count)))
        channels = max(1, channels, min(_neighbours(problem), power_of_2(C), most // block))
    warps = max(1, min(MAX_WARPS, channels * block // (elements // 2 * WARP)))
    return Channels(_tiling(problem, channels, block, warps))


def _bytes(problem: Problem, channels: int) -> int:
    """Of the sectors that programs of so few columns read."""
    return cdiv(problem.C, channels) * problem.A * SECTOR_BYTES


def _neighbours(problem: Problem) -> int:
    """Channels that lie side by side."""
    return power_of_2(cdiv(NEIGHBOUR_BYTES, problem.B * problem.itemsize))


def _tiling(problem: Problem, channels: int, block: int, warps: int) -> Tiling:
    A, C, B, size, _ = problem
    columns = B == 1
    run = C if columns else B
    vec = math.gcd(run, VECTOR_BYTES // size)
    total = A if columns else A * B // vec
    # Of the tile after the last too, whose elements are masked.
    far = A * C * B + channels * block * (C if columns else 1) >= 2**31
    return Tiling(channels, block, vec, run // vec, total, columns, far, warps, cdiv(C, channels))


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The next."""
    return 1 << max(n - 1, 0).bit_length()
