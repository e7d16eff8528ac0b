# SPDX-License-Identifier: Apache-2.0
"""Which group_norm kernel to launch, and how."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from .launches import power_of_two, power_of_two_within

# Elements of a tile that one thread holds, in vectors of 16 bytes, and warps of a program.
VECTORS = 2
WARPS = 8
STAGES = 3
# Programs to a multiprocessor where work can be divided at will.
PROGRAMS_PER_SM = 4
# Left to itself the compiler spills 8 bytes for a fourth program to a multiprocessor (float32, 64 registers a thread).
LOOP_REGISTERS = 128
# And 32 bytes for a fifth of the kernel that makes dx of sums (8 x 256 x 10001 bfloat16, sm_100, 48 registers).
APPLY_REGISTERS = 80
# Of small groups, elements that a program holds if there are as many, and bytes that a multiprocessor's programs load
# at a time: layer_norm's, measured on an H200.
ELEMENTS_HELD = 2048
BYTES_IN_FLIGHT = 32768


class Tile(NamedTuple):
    """Programs that hold ``block_m`` whole groups at a time, in the gradient for their share of the samples."""

    programs: int
    block_m: int
    block_d: int
    block_hw: int
    vec: int
    stages: int
    warps: int


class Loop(NamedTuple):
    """Programs that have a group to themselves, in tiles of ``block_d`` x ``block_hw``."""

    programs: int
    block_d: int
    block_hw: int
    vec: int
    stages: int
    warps: int


class Split(NamedTuple):
    """``splits`` programs to a group (forward), or to ``block_d`` channels of it (backward), with ``slice_size``
    elements of it or of each; then one for each of ``tiles``."""

    splits: int
    slice_size: int
    tiles: int
    block_d: int
    block_hw: int
    vec: int
    stages: int
    warps: int


def plan_forward(N: int, G: int, D: int, HW: int, element_size: int, limits: Limits) -> Tile | Loop | Split:
    """How to normalize N x G groups of D channels of HW elements of ``element_size`` bytes."""
    M = N * G
    tile = _tile(M, D, HW, element_size, 8, limits)
    if tile is not None:
        return tile._replace(programs=-(-M // tile.block_m))
    block_d, block_hw = _blocks(D, HW, element_size)
    vec, tiles = math.gcd(HW, 16 // element_size), _tiles(D, HW, block_d, block_hw)
    if limits.sm_count <= M:
        return Loop(_loop_programs(M, D * HW * element_size, limits), block_d, block_hw, vec, STAGES, WARPS)
    block = block_d * block_hw
    splits = max(1, min(PROGRAMS_PER_SM * limits.sm_count // M, D * HW // block))
    slice_size = -(-D * HW // (splits * block)) * block
    return Split(-(-D * HW // slice_size), slice_size, tiles, block_d, block_hw, vec, STAGES, WARPS)


def plan_backward(
    N: int, G: int, D: int, HW: int, element_size: int, want_input: bool, limits: Limits
) -> Tile | Loop | Split:
    """How to compute the gradients of N x G groups of D channels of HW elements of ``element_size`` bytes."""
    tile = _tile(N * G, D, HW, element_size, 16, limits)
    if tile is not None:
        # Each program stores sums for its channels.
        block_g = min(tile.block_m, power_of_two(G))
        tile_bytes = 2 * block_g * tile.block_d * tile.block_hw * element_size
        programs = limits.sm_count * min(max(BYTES_IN_FLIGHT // tile_bytes, PROGRAMS_PER_SM), 16)
        blocks = -(-G // block_g)
        # Loads of single elements need an address each: 8 to a thread spill 16 bytes (64 x 512 x 7 x 7, sm_100).
        halves = 2 if tile.vec == 1 and element_size == 4 else 1
        warps = _tile_warps(halves * block_g * tile.block_d * tile.block_hw, element_size)
        samples = min(N, max(1, programs // blocks))
        stages = STAGES if samples < N else 1
        return tile._replace(programs=blocks * samples, block_m=block_g, stages=stages, warps=warps)
    block_d, block_hw = _blocks(D, HW, element_size)
    vec, tiles = math.gcd(HW, 16 // element_size), _tiles(D, HW, block_d, block_hw)
    if want_input and limits.sm_count <= N * G:
        return Loop(_loop_programs(N * G, 2 * D * HW * element_size, limits), block_d, block_hw, vec, STAGES, WARPS)
    splits = max(1, min(PROGRAMS_PER_SM * limits.sm_count // (N * G * -(-D // block_d)), HW // block_hw))
    slice_size = -(-HW // (splits * block_hw)) * block_hw
    return Split(-(-HW // slice_size), slice_size, tiles, block_d, block_hw, vec, STAGES, WARPS)


def _tile(M: int, D: int, HW: int, element_size: int, share: int, limits: Limits) -> Tile | None:
    """None if a group does not fit one ``share``-th of the registers."""
    block_d, block_hw = power_of_two(D), power_of_two(HW)
    group = block_d * block_hw
    if group * max(1, element_size // 4) * share > limits.registers_per_sm:
        return None
    # Several groups to a program where they are small, as long as there are enough programs.
    block_m = power_of_two_within(min(ELEMENTS_HELD // group, M // (2 * limits.sm_count)))
    warps = _tile_warps(block_m * group, element_size)
    return Tile(0, block_m, block_d, block_hw, math.gcd(HW, 16 // element_size), 1, warps)


def _tile_warps(elements: int, element_size: int) -> int:
    return min(power_of_two_within(elements // (VECTORS * 32 * 16 // element_size)), 16)


def _loop_programs(M: int, group_bytes: int, limits: Limits) -> int:
    """As many groups at a time as half of the L2 cache holds, which the second reading finds there; the same number
    for each program."""
    per_sm = min(max(limits.l2_bytes // 2 // (limits.sm_count * group_bytes), 2), PROGRAMS_PER_SM)
    return -(-M // -(-M // (limits.sm_count * per_sm)))


def _blocks(D: int, HW: int, element_size: int) -> tuple[int, int]:
    """Channels and elements of a tile: the fewest tiles, and of these the longest."""
    size = WARPS * 32 * VECTORS * 16 // element_size
    # Loads of a row are of whole sectors of the cache: not less than 512 elements, if there are as many.
    widths = [1 << i for i in range(size.bit_length()) if min(512, power_of_two(HW)) <= 1 << i <= power_of_two(HW)]
    pairs = [(min(size // width, power_of_two(D)), width) for width in widths]
    return min(pairs, key=lambda pair: (_tiles(D, HW, *pair), -pair[1]))


def _tiles(D: int, HW: int, block_d: int, block_hw: int) -> int:
    return -(-D // block_d) * -(-HW // block_hw)
