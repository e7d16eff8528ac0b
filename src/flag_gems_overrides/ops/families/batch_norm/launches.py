# SPDX-License-Identifier: Apache-2.0
"""What a batch norm is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits

WARP = 32
VECTOR_BYTES = 16
# Of the bytes of a vector, the share that a thread loads where it loads one by one.
SINGLES = 4
# Elements of each input that a thread holds where a program has whole channels, by the number of inputs.
MAX_ELEMENTS = {1: 32, 2: 16}
MAX_WARPS = 16
# Of a thread's registers, those that may hold sums and loads; the others are for addresses and masks.
MAX_REGISTERS = 0.75
# More tiles than any program has: programs work alone, with so many elements of a block of channels at most, unless it
# is no more than twice a multiprocessor's share.
ALONE, MAX_ALONE = 1 << 30, 32768
# Numbers of other programs that the last one of a group has at a time, for each of its threads.
PARTS_PER_THREAD = 2
# What a program writes and reads side by side where a channel's elements lie together.
ROW_BYTES = 128
# For ``estimate``: bytes a multiprocessor moves in a microsecond; microseconds of a launch, of an iteration, and until
# programs have exchanged their sums.
BYTES_PER_US, LAUNCH_US, ITERATION_US, EXCHANGE_US = 32000, 2.0, 0.7, 2.5


class Problem(NamedTuple):
    """Batch norm of [M, N, K] over M and K: the kernels' A, C and B. inputs: tensors of that size that are read, 1
    forward and 2 backward."""

    M: int
    N: int
    K: int
    itemsize: int
    inputs: int


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: channels, which holds them, and groups."""

    kernel: str
    channels: int  # of a program
    warps: int
    loads: int = 0  # groups: of 16 bytes of each input that a thread has in flight; a quarter of it one by one
    warps_per_sm: int = 0  # groups: which leaves a thread 65536 / 32 / warps_per_sm registers
    tiles: int = 1  # groups: of a program at least, which are worth the wait for others
    padded: bool = False  # groups: runs of B are read in pieces of a power of two


class Tiling(NamedTuple):
    """What a program has of [A, C, B]. Names as in tile.py."""

    channels: int
    block: int
    vec: int
    vectors: int
    total: int
    columns: bool
    run: int
    int64_offsets: bool
    warps: int
    blocks: int  # of channels

    @property
    def rows(self) -> int:
        """Rows, vectors, or pieces of a tile."""
        return self.block // (self.run or (1 if self.columns else self.vec))


class Channels(NamedTuple):
    """Programs that hold whole channels: the ``*_channels`` kernels."""

    tiling: Tiling


class Groups(NamedTuple):
    """``group`` programs to a block of channels, each with ``slice_size`` rows, vectors, or pieces of them."""

    tiling: Tiling
    group: int
    slice_size: int
    parts: int  # that the last program merges at a time
    programs: int
    registers: int  # most for one thread, which makes ``programs`` fit on the device


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Channels | Groups | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Channels | Groups:
    """ValueError if the problem cannot be launched so."""
    kernel, channels, warps, *_ = configuration
    if not (0 < channels <= power_of_2(problem.N) and 0 < warps <= MAX_WARPS):
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "channels":
        block = power_of_2(problem.M * problem.K)
        if channels * block > held(problem) * warps * WARP:
            raise ValueError("a program does not hold a channel")
        return Channels(_tiling(problem, channels, block, warps))
    return _groups(problem, configuration, limits)


def held(problem: Problem) -> int:
    """Elements of each input that a thread may hold."""
    return MAX_ELEMENTS[problem.inputs] // (2 if problem.itemsize == 8 else 1)


def min_registers(problem: Problem, limits: Limits) -> int:
    """With fewer, batches with no whole vectors, of float64, or on sm_100 spill 8 to 24 bytes (Triton 3.6)."""
    if problem.itemsize == 8:
        return 80
    return 72 if limits.capability[0] > 9 else 56


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: the bytes that are moved, and the iterations of a program one after the other."""
    chosen = launch(problem, configuration, limits)
    numel = problem.M * problem.N * problem.K
    tiling = chosen.tiling
    if isinstance(chosen, Channels):
        programs, reads, exchanges = tiling.blocks, 1, 0
        at_once = limits.sm_count * max(limits.threads_per_sm // WARP // 2 // tiling.warps, 1)
        iterations = cdiv(programs, at_once)
    else:
        programs, reads = chosen.programs, 2
        turns = cdiv(tiling.blocks * chosen.group, programs)
        iterations = 2 * turns * cdiv(chosen.slice_size, tiling.rows)
        exchanges = turns if chosen.group > 1 else 0
    if numel * problem.itemsize * problem.inputs <= limits.l2_bytes:
        reads = 1
    moved = numel * problem.itemsize * (problem.inputs * reads + 1)
    busy = min(limits.sm_count, programs)
    return LAUNCH_US + exchanges * EXCHANGE_US + max(moved / (busy * BYTES_PER_US), iterations * ITERATION_US)


def _groups(problem: Problem, configuration: Configuration, limits: Limits) -> Groups:
    _, channels, warps, loads, warps_per_sm, least, padded = configuration
    tiling = tiles(problem, channels, warps, loads, padded)
    if min(warps_per_sm, least) < 1 or tiling.rows < 1 or tiling.vec > tiling.block:
        raise ValueError(f"no legal program: {configuration}")
    at_once = places(tiling, warps_per_sm, limits)
    registers = min(limits.registers_per_sm * limits.sm_count // (at_once * warps * WARP) // 8 * 8, 255)
    if registers < min_registers(problem, limits):
        raise ValueError("a thread has too few registers to merge parts")
    words = max(problem.itemsize, 4) // 4
    elements = channels * tiling.block // (warps * WARP)
    if elements * (2 * words + problem.inputs * problem.itemsize / 4) > MAX_REGISTERS * registers:
        raise ValueError("a thread has more sums and loads than registers")
    # All channels at once if there are places, or in as few rounds as can be, evenly. With fewer at a time, so that L2
    # holds what is read a second time, groups are larger and wait longer: 65536 x 512 bf16 148 and 354 us.
    blocks = cdiv(tiling.blocks, cdiv(tiling.blocks, at_once))
    group = max(1, min(at_once // blocks, tiling.total // (least * tiling.rows)))
    lanes = tiling.channels * cdiv(tiling.total, tiling.rows) * tiling.block
    if least >= ALONE and lanes > max(MAX_ALONE, 2 * problem.M * problem.N * problem.K // limits.sm_count):
        raise ValueError("a program alone has much more than its share")
    # Whole lines of memory.
    unit = 1 if tiling.columns or tiling.run else max(ROW_BYTES // problem.itemsize // tiling.vec, 1)
    slice_size = cdiv(cdiv(tiling.total, group), unit) * unit
    group = cdiv(tiling.total, slice_size)
    merged = int(PARTS_PER_THREAD * warps * WARP) // channels
    programs = min(at_once // group, tiling.blocks) * group
    return Groups(tiling, group, slice_size, min(power_of_2(group), max(merged, 1)), programs, registers)


def tiles(problem: Problem, channels: int, warps: int, loads: int, padded: bool) -> Tiling:
    """Of programs that go through channels tile by tile."""
    block = elements(problem, loads) * warps * WARP // channels
    run = min(block, power_of_2(problem.K)) if padded and problem.K > 1 else 0
    return _tiling(problem, channels, block, warps, run)


def elements(problem: Problem, loads: int) -> int:
    """Those of so many loads. One by one they take an address and a mask each."""
    loaded = VECTOR_BYTES if has_vectors(problem) else VECTOR_BYTES // SINGLES
    return max(loads * loaded // problem.itemsize, 1)


def has_vectors(problem: Problem) -> bool:
    _, C, B, size, _ = problem
    return math.gcd(C if B == 1 else B, VECTOR_BYTES // size) * size == VECTOR_BYTES


def places(tiling: Tiling, warps_per_sm: int, limits: Limits) -> int:
    """Programs that the device has at once."""
    return limits.sm_count * max(min(warps_per_sm, limits.threads_per_sm // WARP) // tiling.warps, 1)


def _tiling(problem: Problem, channels: int, block: int, warps: int, run: int = 0) -> Tiling:
    A, C, B, size, _ = problem
    columns = B == 1
    width = C if columns else B
    vec = math.gcd(width, VECTOR_BYTES // size)
    total = A if columns else A * cdiv(B, run) if run else A * B // vec
    # Of the tile after the last too, whose elements are masked.
    far = max(A * C * B, total * run) + channels * block * (C if columns else 1) >= 2**31
    return Tiling(channels, block, vec, width // vec, total, columns, run, far, warps, cdiv(C, channels))


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The next."""
    return 1 << max(n - 1, 0).bit_length()
