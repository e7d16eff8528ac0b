# SPDX-License-Identifier: Apache-2.0
"""What a group norm is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ..norm.launches import VECTOR_BYTES, WARP, cdiv, power_of_two

MAX_WARPS = 16
# Elements of each input that a thread may hold of whole groups, by the number of inputs, and of the tiles of a loop: 32
# of bfloat16 spill 8 bytes (16 x 320 x 64 x 64, sm_90). Of float64 a quarter: half of it spills 40.
MAX_ELEMENTS, MAX_LOOP_ELEMENTS = {1: 32, 2: 16}, 16
# Bytes of them in a gradient whose elements are loaded one by one, with an address each: twice as many spill 16 bytes
# (64 x 512 x 7 x 7 float32, sm_100; 3 x 6 x 4099 bfloat16, sm_90).
MAX_SINGLE_BYTES = 16
# Most of a thread, for the kernels with a loop. Left to itself the compiler spills 8 bytes for a fourth program to a
# multiprocessor (float32, 64 registers a thread).
LOOP_REGISTERS = 128
# For ``estimate``: bytes a multiprocessor moves in a microsecond, the same from L2; microseconds of a launch and of an
# iteration.
BYTES_PER_US, L2_BYTES_PER_US, LAUNCH_US, ITERATION_US = 32000, 50000, 2.0, 0.7


class Problem(NamedTuple):
    """Group norm of M rows, N channels of K elements each: the kernels' N * G, D and HW.

    groups: of a sample, M / groups samples. inputs: tensors of that size that are read, 1 forward and 2 backward.
    dx: backward, whether the gradient of the input is wanted.
    """

    M: int
    N: int
    K: int
    groups: int
    itemsize: int
    inputs: int
    dx: bool = False


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: tile, which holds whole groups; loop, one program to a group; split, several."""

    kernel: str
    groups: int  # tile: of a program
    block_d: int  # channels of a tile
    block_hw: int  # elements of each
    warps: int
    programs_per_sm: int = 0  # most, where programs have several tiles
    stages: int = 1  # of the loads of a loop


class Tile(NamedTuple):
    """Programs that hold ``groups`` whole groups at a time, in the gradient the same ones of ``samples`` samples."""

    programs: int
    samples: int
    groups: int
    block_d: int
    block_hw: int
    vec: int
    warps: int
    stages: int


class Loop(NamedTuple):
    """Programs that have a group to themselves, in tiles of ``block_d`` x ``block_hw``."""

    programs: int
    block_d: int
    block_hw: int
    vec: int
    warps: int
    stages: int


class Split(NamedTuple):
    """``splits`` programs to a group (forward), or to ``block_d`` channels of it (backward), with ``slice_size``
    elements of it or of each; then one for each of ``tiles``."""

    splits: int
    slice_size: int
    tiles: int
    block_d: int
    block_hw: int
    vec: int
    warps: int
    stages: int


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Tile | Loop | Split | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Tile | Loop | Split:
    """ValueError if the problem cannot be launched so."""
    kernel, groups, block_d, block_hw, warps, programs_per_sm, stages = configuration
    elements = groups * block_d * block_hw
    if elements < 1 or not 0 < warps <= MAX_WARPS or stages < 1:
        raise ValueError(f"no legal program: {configuration}")
    if elements > held(problem, kernel) * warps * WARP:
        raise ValueError("a thread has more elements than registers")
    if kernel == "tile":
        return _tile(problem, configuration, limits)
    if groups != 1 or programs_per_sm < 1:
        raise ValueError(f"no legal program: {configuration}")
    if block_d > power_of_two(problem.N) or block_hw > power_of_two(problem.K):
        raise ValueError("a tile is larger than a group")
    if kernel == "loop":
        return _loop(problem, configuration, limits)
    return _split(problem, configuration, limits)


def held(problem: Problem, kernel: str) -> int:
    """Elements of each input that a thread may hold."""
    most = MAX_ELEMENTS[problem.inputs] if kernel == "tile" else MAX_LOOP_ELEMENTS
    if problem.itemsize == 8:
        return most // 4
    return min(most, MAX_SINGLE_BYTES // problem.itemsize) if problem.inputs == 2 and vector(problem) == 1 else most


def vector(problem: Problem) -> int:
    """Elements of each channel that one load takes."""
    return math.gcd(problem.K, VECTOR_BYTES // problem.itemsize)


def tiles_of_group(problem: Problem, block_d: int, block_hw: int) -> int:
    return cdiv(problem.N, block_d) * cdiv(problem.K, block_hw)


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: the bytes that are moved, and the iterations of a program one after the other."""
    M, N, K, _, itemsize, inputs, dx = problem
    chosen = launch(problem, configuration, limits)
    numel, outputs = M * N * K, 1 if inputs == 1 or dx else 0
    launches = 1
    again = inputs * outputs
    if isinstance(chosen, Tile):
        programs, again = chosen.programs, 0
        iterations = cdiv(M, programs * chosen.samples * chosen.groups)
    elif isinstance(chosen, Loop):
        programs = chosen.programs
        iterations = cdiv(M, programs) * 2 * tiles_of_group(problem, chosen.block_d, chosen.block_hw)
    else:
        launches += outputs
        programs = M * chosen.splits * (cdiv(N, chosen.block_d) if inputs == 2 else 1)
        share = chosen.block_hw * (chosen.block_d if inputs == 1 else 1)
        iterations = cdiv(chosen.slice_size, share) + 1
    resident = limits.sm_count * max(limits.threads_per_sm // WARP // 2 // chosen.warps, 1)
    iterations *= cdiv(programs, resident)
    busy = min(programs, limits.sm_count)
    moved = numel * itemsize * (inputs + outputs) / BYTES_PER_US + numel * itemsize * again / L2_BYTES_PER_US
    return LAUNCH_US * launches + max(moved / busy, iterations * ITERATION_US / chosen.stages)


def _tile(problem: Problem, configuration: Configuration, limits: Limits) -> Tile:
    _, groups, block_d, block_hw, warps, programs_per_sm, stages = configuration
    if (block_d, block_hw) != (power_of_two(problem.N), power_of_two(problem.K)):
        raise ValueError("a program does not hold a group, or more")
    if problem.inputs == 1:
        return Tile(cdiv(problem.M, groups), 1, groups, block_d, block_hw, vector(problem), warps, 1)
    if programs_per_sm < 1:
        raise ValueError(f"no legal program: {configuration}")
    all_samples = power_of_two(problem.M // problem.groups)
    of_sample = min(groups // all_samples or groups, power_of_two(problem.groups))
    samples = groups // of_sample
    blocks, iterations = cdiv(problem.groups, of_sample), cdiv(problem.M // problem.groups, samples)
    side_by_side = min(iterations, max(1, limits.sm_count * programs_per_sm // blocks))
    stages = stages if side_by_side < iterations else 1
    return Tile(blocks * side_by_side, samples, of_sample, block_d, block_hw, vector(problem), warps, stages)


def _loop(problem: Problem, configuration: Configuration, limits: Limits) -> Loop:
    if problem.inputs == 2 and not problem.dx:
        raise ValueError("the kernel computes dx")
    _, _, block_d, block_hw, warps, programs_per_sm, stages = configuration
    # The same number of groups for each program.
    programs = cdiv(problem.M, cdiv(problem.M, limits.sm_count * programs_per_sm))
    return Loop(programs, block_d, block_hw, vector(problem), warps, stages)


def _split(problem: Problem, configuration: Configuration, limits: Limits) -> Split:
    _, _, block_d, block_hw, warps, programs_per_sm, stages = configuration
    M, N, K = problem.M, problem.N, problem.K
    programs = limits.sm_count * programs_per_sm
    # Forward a slice is of a group, backward of each channel of a block.
    length, unit = (N * K, block_d * block_hw) if problem.inputs == 1 else (K, block_hw)
    rows = M if problem.inputs == 1 else M * cdiv(N, block_d)
    splits = max(1, min(programs // rows, length // unit))
    slice_size = cdiv(length, splits * unit) * unit
    tiles = tiles_of_group(problem, block_d, block_hw)
    return Split(cdiv(length, slice_size), slice_size, tiles, block_d, block_hw, vector(problem), warps, stages)
