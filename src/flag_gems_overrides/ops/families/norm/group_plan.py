# SPDX-License-Identifier: Apache-2.0
"""Which group_norm kernel to launch, and how."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from .rms_plan import power_of_two, power_of_two_within

# Elements of a tile that one thread holds, in vectors of 16 bytes.
VECTORS = 2
WARPS = 8
STAGES = 3
# Programs to a multiprocessor where work can be divided at will.
PROGRAMS_PER_SM = 4
# Elements that a program of small groups holds at least, if there are as many.
FEWEST_HELD = 2048


class Tile(NamedTuple):
    """Programs that hold ``block_g`` whole groups; ``samples`` programs share the samples of each of ``blocks``."""

    blocks: int
    samples: int
    block_g: int
    block_d: int
    block_hw: int
    vec: int
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
    elements of it or of each; then one for each tile."""

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
    vec = math.gcd(HW, 16 // element_size)
    tile = _tile(N, G, D, HW, element_size, 4, limits)
    if tile is not None:
        # A kernel counts programs in 32 bits.
        return tile._replace(samples=min(N, 2**30 // tile.blocks))
    block_d, block_hw = _blocks(D, HW, element_size)
    if limits.sm_count <= N * G:
        return Loop(min(N * G, 2**30), block_d, block_hw, vec, STAGES, WARPS)
    block = block_d * block_hw
    splits = max(1, min(PROGRAMS_PER_SM * limits.sm_count // (N * G), D * HW // block))
    slice_size = -(-D * HW // (splits * block)) * block
    return Split(
        -(-D * HW // slice_size), slice_size, _tiles(D, HW, block_d, block_hw), block_d, block_hw, vec, STAGES, WARPS
    )


def plan_backward(
    N: int, G: int, D: int, HW: int, element_size: int, want_input: bool, limits: Limits
) -> Tile | Loop | Split:
    """How to compute the gradients of N x G groups of D channels of HW elements of ``element_size`` bytes."""
    vec = math.gcd(HW, 16 // element_size)
    tile = _tile(N, G, D, HW, element_size, 8, limits)
    if tile is not None:
        # Each program stores sums for its channels.
        return tile._replace(samples=min(N, max(1, PROGRAMS_PER_SM * limits.sm_count // tile.blocks)))
    block_d, block_hw = _blocks(D, HW, element_size)
    if want_input and limits.sm_count <= N * G:
        return Loop(min(N * G, 2**30), block_d, block_hw, vec, STAGES, WARPS)
    blocks = -(-D // block_d)
    splits = max(1, min(PROGRAMS_PER_SM * limits.sm_count // (N * G * blocks), HW // block_hw))
    slice_size = -(-HW // (splits * block_hw)) * block_hw
    return Split(
        -(-HW // slice_size), slice_size, _tiles(D, HW, block_d, block_hw), block_d, block_hw, vec, STAGES, WARPS
    )


def _tile(N: int, G: int, D: int, HW: int, element_size: int, share: int, limits: Limits) -> Tile | None:
    """None if a group does not fit one ``share``-th of the registers."""
    block_d, block_hw = power_of_two(D), power_of_two(HW)
    group = block_d * block_hw
    if group * max(1, element_size // 4) * share > limits.registers_per_sm:
        return None
    # Several groups to a program where they are small, as long as there are enough programs.
    block_g = min(power_of_two(G), power_of_two_within(FEWEST_HELD // group))
    block_g = min(block_g, power_of_two_within(N * G // (2 * limits.sm_count)))
    warps = min(max(power_of_two_within(block_g * group // (32 * VECTORS * 16 // element_size)), 1), 16)
    return Tile(-(-G // block_g), N, block_g, block_d, block_hw, math.gcd(HW, 16 // element_size), warps)


def _blocks(D: int, HW: int, element_size: int) -> tuple[int, int]:
    """Channels and elements of a tile: the fewest tiles, and of these the longest."""
    size = WARPS * 32 * VECTORS * 16 // element_size
    # Loads of a row are of whole sectors of the cache: not less than 512 elements, if there are as many.
    widths = [1 << i for i in range(size.bit_length()) if min(512, power_of_two(HW)) <= 1 << i <= power_of_two(HW)]
    pairs = [(min(size // width, power_of_two(D)), width) for width in widths]
    return min(pairs, key=lambda pair: (_tiles(D, HW, *pair), -pair[1]))


def _tiles(D: int, HW: int, block_d: int, block_hw: int) -> int:
    return -(-D // block_d) * -(-HW // block_hw)
