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
# The same where it goes through them tile by tile: two loads of 16 bytes for each input.
LOADS = 2
# Warps of a multiprocessor whose loads keep the memory busy.
WARPS_PER_SM = 32
# What a program of columns reads side by side: a DRAM burst of 64 bytes twice.
ROW_BYTES = 128
# Numbers of other programs that the last one has at a time, for each of its threads.
PARTS_PER_THREAD = 8
# Tiles of a program that are worth its place in the workspace.
MIN_TILES = 4
# A second wave of programs for a few channels leaves the device half empty: more, smaller programs even that out.
WAVES = 4


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


class Parts(NamedTuple):
    """``splits`` programs to a block of channels, each with ``slice_size`` rows, or vectors, of them: two kernels."""

    tiling: Tiling
    splits: int
    slice_size: int
    parts: int  # that the last program merges at a time

    @property
    def programs(self) -> int:
        return self.tiling.blocks * self.splits


def plan(problem: Problem, limits: Limits) -> Channels | Parts:
    """The launch for these sizes, none of them 0."""
    return _channels(problem, limits) or parts(problem, limits)


def parts(problem: Problem, limits: Limits) -> Parts:
    """The launch of kernels that go through channels tile by tile; evaluation has no other."""
    _, C, B, size, _ = problem
    vec = VECTOR_BYTES // size
    if B == 1:
        channels = min(max(ROW_BYTES // size, 1), power_of_2(C))
        # More warps, so that fewer programs have partial sums of many channels.
        warps = 8
        block = max(LOADS * vec * warps * WARP // channels, 1)
    else:
        channels, warps = 1, 4
        block = LOADS * vec * warps * WARP
    tiling = _tiling(problem, channels, block, warps)
    unit = 1 if B == 1 else tiling.vec
    tiles = cdiv(tiling.total * unit, block)
    splits = _splits(tiling.blocks, tiles, limits.sm_count * WARPS_PER_SM // warps)
    # Whole tiles: only a channel's last one is not full.
    slice_size = cdiv(tiles, splits) * (block // unit)
    splits = cdiv(tiling.total, slice_size)
    merged = max(PARTS_PER_THREAD * warps * WARP // channels, 1)
    return Parts(tiling, splits, slice_size, min(power_of_2(splits), merged))


def _splits(blocks: int, tiles: int, places: int) -> int:
    """Programs for each block of channels: one wave of the device, or several."""
    splits = places // blocks if 2 * blocks <= places else cdiv(WAVES * places, blocks)
    return max(1, min(splits, tiles // MIN_TILES))


def _channels(problem: Problem, limits: Limits) -> Channels | None:
    """None if a program does not hold a channel."""
    A, C, B, size, inputs = problem
    elements = ELEMENTS_OF_CHANNELS[inputs] // (2 if size == 8 else 1)
    most = elements * MAX_WARPS * WARP
    if most < A * B:
        return None
    block = power_of_2(A * B)
    if B == 1:
        # Sectors of 32 bytes, or more as long as there is a program for each multiprocessor.
        channels = min(max(ROW_BYTES // size, 512 // block), power_of_2(C))
        while channels > 32 // size and channels * limits.sm_count > C:
            channels //= 2
        if channels * block > most:
            return None
    else:
        # Several channels of few elements; one warp is enough for 16 of a thread.
        channels = max(1, min(512 // block, power_of_2(cdiv(C, limits.sm_count))))
    warps = max(1, min(MAX_WARPS, channels * block // (elements // 2 * WARP)))
    return Channels(_tiling(problem, channels, block, warps))


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
