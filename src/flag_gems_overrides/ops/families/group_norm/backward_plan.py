# SPDX-License-Identifier: Apache-2.0
"""What is worth an estimate for the gradients of a group norm.

Figures in comments: the input as N x C x HW (N x C where HW is 1), its type and its groups, the time this way, and the
time otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import BackwardFew, Configuration, Problem
from .legal import launch_or_none
from .legal_parts import of_sums, sums, tiles_and_lanes, unaligned_channels
from .loads import MAX_WARPS, span, widest
from .programs import ELEMENTS_HELD, MAX_WARPS_PER_SM, PROGRAMS_PER_SM, STAGES, VECTORS_OF_FEW, WARPS

# Maximum number of elements of a thread of 8 warps with several groups. 11272 x 64 x 4 x 2 bf16 in 8 groups: 40.9 us
# with 16, 31.9 with 8 by 4 warps (H100).
MAX_OF_8_WARPS = 8
# Warps of a multiprocessor for tiles of whole groups.
WARPS_OF_TILES = (16, 32, 64)
# Maximum number of programs of a multiprocessor for these.
MAX_PROGRAMS_OF_TILES = 24
# Maximum number of programs of a multiprocessor that hold groups as they lie.
MAX_RESIDENT = 32
# Maximum number of groups of a multiprocessor that have a program each, of float64. More were not timed.
MAX_ALONE = 8
# Maximum number of bytes of an input for one launch of all gradients, which reads everything twice.
MAX_BYTES_OF_FEW = 3 << 19
# Elements of a thread of this launch.
ELEMENTS_OF_FEW = 8
# Warps of a program of this launch.
FEW_WARPS = 8
# Warps of a multiprocessor for this launch.
WARPS_OF_FEW = 32
# Minimum number of elements of a channel for 16 warps of this launch, where 8 have room.
MIN_WIDTH_OF_16_WARPS = 8
# Maximum number of tiles of a program of channels.
ITERATIONS_OF_FEW = 4
# Bytes that a program of channels reads of a sample, at least.
BYTES_OF_FEW_CHANNELS = 64
# Minimum share of the lanes of a large tile of channels x elements that have an element.
MIN_USED = 0.6
# Maximum number of elements of a thread where fewer than 8 warps hold a group. With 48, 8 bytes spill (512 x 7 x 6000
# float16, sm_80).
MAX_HELD_OF_FEW = 40
# Elements of half a vector of 16 bits, and of the longest groups that are loaded in an odd number of them, without
# edges. 120 x 69 x 44 x 19 bf16 in 69 groups: 20.0 us, with edges 23.9 (H200). Longer ones and those with several
# channels in a load were not timed.
FOURS, MAX_FOURS = 4, 2048
# Minimum number of elements of a group that is worth a loop, where there are many groups.
MIN_LARGE = 1024
# Minimum number of elements of a channel in a tile of channels x elements.
MIN_WIDTH = 512
# Minimum number of bytes of a channel in such a tile, where the channel has fewer elements than MIN_WIDTH.
MIN_WIDTH_BYTES = 128
# Maximum ratio of the lanes of a tile's shape to those of the shape with the fewest.
MAX_MASKED = 1.1


def backward(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    yield from _whole_groups(problem)
    yield from _groups_beside_channels(problem, limits)
    yield from _groups_as_they_lie(problem, limits)
    yield from _tile_loops(problem, limits)


def _whole_groups(problem: Problem) -> Iterator[Configuration]:
    """Whole groups, as channels x elements; none if a program does not hold one."""
    block_d, block_hw = power_of_2(problem.N), power_of_2(problem.K)
    group = block_d * block_hw
    if group > ELEMENTS_HELD and (problem.N == 1 or MIN_USED * group > problem.size):
        return
    for warps in (1, 2, 4, 8):
        # At least an element for each thread of a warp: Triton loads smaller tiles once for each layout that it keeps.
        fewest = max(warps * WARP // group, 1)
        if warps > 1 and fewest >= 2 * power_of_2(problem.M):
            return
        for more in (1, 2, 4, 8, 16):
            groups = fewest * more
            if more > 1 and groups >= 2 * power_of_2(problem.M):
                break
            many = warps == 8 or min(block_d, block_hw) > 1
            if many and groups > 1 and groups * group > MAX_OF_8_WARPS * warps * WARP:
                break
            for at_once in WARPS_OF_TILES:
                programs_per_sm = min(at_once // warps, MAX_PROGRAMS_OF_TILES)
                yield Configuration("tile", warps, groups, 1, 1, block_d, block_hw, programs_per_sm, STAGES)


def _groups_beside_channels(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Programs of whole groups and programs of channels of all samples, in one launch, if all run at once."""
    block, block_hw = power_of_2(problem.size), power_of_2(problem.K)
    if problem.M * problem.size * problem.itemsize > MAX_BYTES_OF_FEW:
        return
    of_channel = power_of_2(problem.samples) * block_hw
    channels = problem.groups * problem.N
    sector = power_of_2_within(max(BYTES_OF_FEW_CHANNELS // (problem.K * problem.itemsize), 1))
    # 16 warps of 16 bits in channels that are not short: 3 x 3 x 2448 bf16 in 3 groups: 4.6 us, by 8 5.0. Else where 8
    # have no room: 7 x 5400 x 5 float32 in 8 groups: 5.3 us by 8, 6.5 by 16 (H100).
    for warps in (FEW_WARPS, MAX_WARPS):
        threads, found = warps * WARP, False
        for held in (ELEMENTS_OF_FEW * threads, 2 * ELEMENTS_OF_FEW * threads):
            # As few groups to a program as give each thread an element, as long as there are multiprocessors.
            together = max(threads // block, power_of_2_within(max(problem.M // limits.sm_count, 1)))
            together = max(1, min(together, held // block, power_of_2(problem.M)))
            block_c = max(threads // of_channel, sector, power_of_2_within(max(channels // limits.sm_count, 1)))
            block_c = max(1, min(block_c, held // of_channel, power_of_2(channels)))
            configuration = Configuration("few", warps, together, 1, 1, block_c, block_hw)
            launched = launch_or_none(problem, configuration, limits)
            if isinstance(launched, BackwardFew):
                programs = launched.group_programs + launched.channel_programs
                at_once = limits.sm_count * (WARPS_OF_FEW // warps)
                if programs <= at_once and problem.samples <= ITERATIONS_OF_FEW * launched.samples:
                    yield configuration
                    found = True
        if found and (problem.itemsize > 2 or block_hw < MIN_WIDTH_OF_16_WARPS):
            return


def _groups_as_they_lie(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Whole groups that are not small, as they lie, by each number of warps that hold one."""
    vec = widest(problem)
    fours = problem.itemsize == 2 and problem.size % vec == FOURS and problem.size <= MAX_FOURS
    if fours and span(problem, FOURS) == 1:
        vec = FOURS
    found = False
    for warps in (1, 2, 4, 8, MAX_WARPS):
        elements = cdiv(problem.size // vec, warps * WARP) * vec
        if warps < 8 and elements > MAX_HELD_OF_FEW // (4 if problem.itemsize == 8 else 1):
            continue
        # 16 warps only where 8 do not hold a group: 4 x 925 bf16: 7.5 us, by 16 warps 9.6.
        if warps == MAX_WARPS and found:
            return
        registers = _registers(problem, elements, span(problem, vec) > 1)
        per_sm = max(1, limits.registers_per_sm // (min(registers, 255 if warps <= 8 else 128) * warps * WARP))
        at_once = {1, 2, cdiv(min(per_sm, MAX_RESIDENT), 2), min(per_sm, MAX_RESIDENT)}
        if problem.itemsize == 8 and problem.N == 1 and cdiv(problem.M, limits.sm_count) < MAX_ALONE:
            # A program to each group. 115 x 8 x 917 float64 in 8 groups: 13.1 us, in three turns 15.1 (H200).
            at_once.add(MAX_ALONE)
        for programs_per_sm in sorted(at_once):
            for stages in (STAGES, 1):
                configuration = Configuration("rows", warps, 1, vec, 1, 0, 0, programs_per_sm, stages)
                if launch_or_none(problem, configuration, limits) is not None:
                    yield configuration
                    found = True
                    break


def _registers(problem: Problem, elements: int, several: bool) -> int:
    """Registers of a thread that holds these elements, at least as many as in 60 compiled launches (sm_90)."""
    elements *= 2 if problem.itemsize == 8 else 1
    return cdiv(70 + 10 * elements if several else 50 + 6 * elements, 8) * 8


def _tile_loops(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    if problem.size < MIN_LARGE and limits.sm_count < problem.M:
        return
    vec = widest(problem)
    vectors = max(1, min(VECTORS_OF_FEW, 8 // vec)) if problem.itemsize < 8 else 1
    # 16 warps only of 16 bits. 8189 x 3 x 5206 float64 in 3 groups: 1403 us by 8, otherwise 1643 (H100).
    for warps in (WARPS, 2 * WARPS, *([MAX_WARPS] if problem.itemsize == 2 else [])):
        block_d, block_hw = (1, 1) if unaligned_channels(problem) else _blocks(problem, warps)
        for programs_per_sm in (PROGRAMS_PER_SM, 2 * PROGRAMS_PER_SM):
            if warps == WARPS:
                yield Configuration("split", warps, 1, vec, VECTORS_OF_FEW, block_d, block_hw, programs_per_sm, STAGES)
        for programs_per_sm in (1, 2, PROGRAMS_PER_SM, 2 * PROGRAMS_PER_SM):
            if programs_per_sm * warps <= MAX_WARPS_PER_SM:
                # More warps hide each other's loads. 392 x 125 x 416 bf16 in 1 group, 16 warps: 76.2 us, with a
                # pipeline 82.8 (H100). Other types were not timed so.
                stages = STAGES if warps == WARPS or problem.itemsize > 2 else 1
                yield Configuration("loop", warps, 1, vec, vectors, block_d, block_hw, programs_per_sm, stages)
    for warps in (1, 2, WARPS):
        yield Configuration("channels", warps, stages=STAGES)


class _TileShape(NamedTuple):
    block_d: int
    block_hw: int
    tiles: int  # of a group
    lanes: int  # of all these tiles, masked ones too


def _blocks(problem: Problem, warps: int) -> tuple[int, int]:
    """Channels and elements of a tile: few masked lanes, then the fewest tiles, then the longest rows."""
    max_d, max_hw = power_of_2(problem.N), power_of_2(problem.K)
    shapes = []
    for block_hw in (1 << i for i in range(max_hw.bit_length())):
        tile = sums(problem, 1, block_hw)
        most = warps * WARP * min(2 * VECTOR_BYTES // problem.itemsize, of_sums(problem, warps, tile))
        if block_hw + tile.rest_hw <= most:
            block_d = min(power_of_2_within(most // (block_hw + tile.rest_hw)), max_d)
            tiles, lanes = tiles_and_lanes(problem, sums(problem, block_d, block_hw))
            shapes.append(_TileShape(block_d, block_hw, tiles, lanes))
    min_hw = MIN_WIDTH if problem.K >= MIN_WIDTH else MIN_WIDTH_BYTES // problem.itemsize
    min_hw = min(min_hw, max(shape.block_hw for shape in shapes))
    shapes = [shape for shape in shapes if shape.block_hw >= min_hw]
    max_lanes = MAX_MASKED * min(shape.lanes for shape in shapes)
    allowed = [shape for shape in shapes if shape.lanes <= max_lanes]
    best = min(allowed, key=lambda shape: (shape.tiles, -shape.block_hw))
    # A whole channel in one tile where a thread then has fewer loads than of two tiles, whatever is masked.
    one = min((shape for shape in shapes if shape.block_hw >= problem.K), key=lambda shape: shape.lanes, default=best)
    if one.tiles <= best.tiles and _loads(problem, one, warps) < _loads(problem, best, warps):
        best = one
    return best.block_d, best.block_hw


def _loads(problem: Problem, shape: _TileShape, warps: int) -> int:
    """Loads of a thread for a tile of each input.

    80 x 4096 x 144 bf16 in 32 groups: 182 us with one of 4 x 256 elements, 206 with 4 x 128 and 4 x 16 (H100).
    """
    tile = sums(problem, shape.block_d, shape.block_hw)
    parts = (tile.block_hw, tile.rest_hw) if tile.whole else (tile.block_hw,)
    return sum(cdiv(tile.block_d * part // tile.vec, warps * WARP) for part in parts)
