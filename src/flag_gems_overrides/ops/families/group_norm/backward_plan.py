# SPDX-License-Identifier: Apache-2.0
"""What each kernel would do for the gradients of a group norm.

Figures in comments: the input as N x C x HW (N x C where HW is 1), its type and its groups, the time this way, and the
time otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import BackwardFew, Configuration, Problem, Tile
from .legal import (
    MAX_HELD_BACKWARD,
    MAX_WARPS,
    launch_or_none,
    of_sums,
    of_tile,
    span,
    sums,
    tiles_and_lanes,
    unaligned_channels,
    vector,
    widest,
)
from .programs import (
    BYTES_IN_FLIGHT,
    ELEMENTS_HELD,
    MAX_PROGRAMS_PER_SM,
    MAX_WARPS_PER_SM,
    PROGRAMS_PER_SM,
    STAGES,
    VECTORS_OF_FEW,
    WARPS,
)

# Programs of a multiprocessor that add up channels without a pipeline, or one channel at a time. Only other programs
# hide their loads. 80 x 531 x 608 bf16: 100.7 us, with four programs 113.4 (H100).
PROGRAMS_PER_SM_OF_SUMS = 8
# Maximum number of lanes of an odd group of 16 bits (``odd_groups_of_16_bits``); half where a group is a sample.
MAX_ODD_WIDTH = 128
# Lanes of a tile of these groups.
ELEMENTS_OF_ODD_GROUPS = 256
# Programs of a multiprocessor for these groups.
ODD_GROUPS_PER_SM = 24
# Minimum number of tiles of a program where a group is a sample.
TURNS_OF_ODD_SAMPLES = 8
# The same where a group is a channel. 2000 x 32 x 63 bf16 in 32 groups: 21.5 us, otherwise 23.1.
TURNS_OF_ODD_CHANNELS = 5
# Minimum size of a channel of 16 bits that a single program of a multiprocessor reads twice
# (``long_channels_of_16_bits``).
MIN_LONG_CHANNEL = 32768
# Minimum number of groups of such a program, so that few multiprocessors are idle in the last turn.
TURNS_OF_LONG_CHANNELS = 16
# Maximum number of programs of a multiprocessor that hold groups.
# 26155 x 12 x 3 x 7 bf16 in 4 groups: 124 us with 4 programs of one warp, 70.6 with 8, 44.2 with 16.
MAX_RESIDENT = 32
# Elements of a tile, one vector to a thread. 31464 groups of 427 bf16: 54 us, with twice as many elements 64.
ELEMENTS_OF_TILE = 1024
# Elements of a tile of float64 that are loaded one by one.
# 512 x 133 x 9 in 133 groups: 17.2 us by 4 warps, with 1024 elements by 8 warps 25.9 (H200).
ELEMENTS_OF_FLOAT64 = 256
# Warps of a multiprocessor for these tiles: as many as have registers.
WARPS_PER_SM_OF_FLOAT64 = 28
# Maximum number of elements of all samples that one program holds, with as many groups as fill a sector. This saves the
# launch that adds partial sums. 7 x 6 x 1 bf16: 5.1 us with two launches.
ELEMENTS_OF_ALL = 4096
# Maximum number of elements of which a thread has two, so that several programs of one warp share the groups.
# 16 x 11 x 1 bf16 in 11 groups: 2.74 us, with a sector of groups 3.10 (torch.compile 2.94, H100).
LITTLE = 256
# The same for groups of one element. 30 x 64 bf16 in 64 groups: 3.14 us, with a sector of groups 3.34 (H100).
LITTLE_SINGLES = 2048
# Maximum number of bytes of an input for one launch of all gradients, which reads everything twice.
# 64 x 4874 bf16 in 2 groups: 7.1 us, in two launches 11.0 (H100).
MAX_BYTES_OF_FEW = 1 << 20
# The same for groups of more than LARGE_GROUP elements. 61 x 2943 x 2 float32: 8.7 us, in two launches 12.1 (H100).
MAX_BYTES_OF_FEW_LARGE = 3 << 19
# Groups of more elements than this are large.
LARGE_GROUP = 4096
# Elements of a thread of this launch.
ELEMENTS_OF_FEW = 8
# Warps of a multiprocessor for this launch.
WARPS_OF_FEW = 32
# Maximum number of tiles of a program of channels.
# 200 x 24 x 20 bf16 in 4 groups: 5.7 us with four tiles of 4 warps, 4.3 with two of 8 (H100).
ITERATIONS_OF_FEW = 4
# Bytes that a program of channels reads of a sample, at least.
BYTES_OF_FEW_CHANNELS = 64
# Maximum number of lanes of a tile with all samples that is faster than this launch.
# 101 x 3 float16 in 1 group: 3.15 us, in this launch 3.43; 4 x 80 float32: 3.47, in this launch 3.10 (H100).
LANES_OF_QUICK = 512
# Maximum number of loads of a group of such a tile.
# 16 x 60 x 32 bf16 in 60 groups: 3.26 us, in this launch 3.57; 6 x 4 x 41 in 4: 4.09, in this launch 3.41 (H100).
LOADS_OF_QUICK = 4
# Minimum share of the lanes of a large tile of channels x elements that have an element.
# 2048 groups of 16 x 49 float32, where 77 % have one, take 35 us.
MIN_USED = 0.6
# Maximum number of elements of a thread where fewer than 8 warps hold a group. With 48, 8 bytes spill (512 x 7 x 6000
# float16, sm_80).
MAX_HELD_OF_FEW = 40
# Minimum number of elements of a channel in a tile of channels x elements.
MIN_WIDTH = 512
# Minimum number of bytes of a channel in such a tile, where the channel has fewer elements than MIN_WIDTH.
MIN_WIDTH_BYTES = 128
# Maximum ratio of the lanes of a tile's shape to those of the shape with the fewest.
MAX_MASKED = 1.1


def odd_groups_of_16_bits(problem: Problem, limits: Limits) -> Configuration | None:
    """A warp has two or four small odd groups of 16 bits, for all gradients, without a pipeline. A group is a sample of
    channels of one element, or a channel. None for others, and where programs would have too few tiles.

    1693816 x 37 float16 in 1 group: 200 us, as it lies 307 (torch.compile 272, H100).
    64 x 1216 x 91 float16 in 1216 groups: 29.9 us, as it lies 32.7 (torch.compile 33.6, H100).
    """
    size, width = problem.size, power_of_2(problem.size)
    if problem.inputs == 1 or not problem.dx or problem.itemsize != 2 or size % 2 == 0:
        return None
    widest_tile = MAX_ODD_WIDTH if problem.N == 1 else MAX_ODD_WIDTH // 2
    if not (problem.N == 1 or (problem.groups == 1 and problem.K == 1)) or not WARP < width <= widest_tile:
        return None
    rows, turns = ELEMENTS_OF_ODD_GROUPS // width, TURNS_OF_ODD_CHANNELS if problem.N == 1 else TURNS_OF_ODD_SAMPLES
    if limits.capability[0] != 9 or turns * ODD_GROUPS_PER_SM * limits.sm_count * rows > problem.M:
        return None
    block_d, block_hw = power_of_2(problem.N), power_of_2(problem.K)
    return Configuration("tile", 1, rows, 1, 1, block_d, block_hw, ODD_GROUPS_PER_SM, 1)


def long_channels_of_16_bits(problem: Problem, limits: Limits) -> Configuration | None:
    """One program for each multiprocessor, for many groups of one long channel. It reads a group again from L2, which
    holds the groups of all programs. None for others, and where too many lanes of a tile have no element.

    8 x 376 x 39936 bf16 in 376 groups: 327 us, by two programs of 8 warps 358, in several launches 396 (torch.compile
    383, H100).
    """
    one_channel = problem.N == 1 and problem.K >= MIN_LONG_CHANNEL and problem.K % widest(problem) == 0
    if problem.inputs == 1 or not problem.dx or problem.itemsize != 2 or not one_channel:
        return None
    vec, programs = widest(problem), limits.sm_count
    block_hw = VECTORS_OF_FEW * vec * MAX_WARPS * WARP
    masked = cdiv(problem.K, block_hw) * block_hw > MAX_MASKED * problem.K
    live = programs * problem.K * problem.itemsize * problem.inputs
    few = TURNS_OF_LONG_CHANNELS * programs > problem.M
    if limits.capability[0] != 9 or masked or live > limits.l2_bytes // 2 or few:
        return None
    return Configuration("loop", MAX_WARPS, 1, vec, 1, 1, block_hw, 1, STAGES)


def whole_groups(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Whole groups, as channels x elements; none if a program does not hold one."""
    M, N, K, groups, itemsize, inputs, _ = problem
    block_d, block_hw = power_of_2(N), power_of_2(K)
    group = block_d * block_hw
    if group > min(of_tile(problem) * MAX_WARPS * WARP, limits.registers_per_sm // (16 * max(1, itemsize // 4))):
        return
    if group > ELEMENTS_HELD and (N == 1 or MIN_USED * group > N * K):
        return
    single = itemsize == 8 and vector(problem) == 1
    # Several groups to a program where they are small, as long as there are enough programs.
    most = ELEMENTS_OF_FLOAT64 if single else ELEMENTS_OF_TILE
    together = power_of_2_within(min(most // group, M // (2 * limits.sm_count)))
    of_all = power_of_2(problem.samples) * power_of_2(min(cdiv(SECTOR_BYTES, N * K * itemsize), groups))
    few = max(power_of_2(problem.samples), 2 * WARP // group)
    if M * group <= LITTLE:
        of_all = few
    elif group == 1 and M <= LITTLE_SINGLES:
        of_all = min(of_all, few)
    of_one = ELEMENTS_OF_ALL if groups < PROGRAMS_PER_SM * limits.sm_count else ELEMENTS_OF_TILE
    if of_all * group <= min(of_one, of_tile(problem) * MAX_WARPS * WARP):
        together = max(together, of_all)
    # At least an element for each thread of a warp: Triton loads smaller tiles once for each layout that it keeps.
    together = max(together, WARP // group)
    elements = together * group
    per_thread = min(VECTOR_BYTES // itemsize, of_tile(problem))
    warps = power_of_2_within(elements // (per_thread * WARP))
    # More than 8 warps only where 8 do not hold a tile: 143 groups of 3 x 4 float32: 3.7 us, by 16 warps 4.4. Of loads
    # shorter than a vector a thread holds half: all of them spill 8 bytes (223 x 3 x 6 float32).
    held = of_tile(problem, 8) // (1 if vector(problem) * itemsize == VECTOR_BYTES else 2)
    warps = min(warps, 8 if elements <= held * 8 * WARP else MAX_WARPS)
    in_flight = BYTES_IN_FLIGHT // (inputs * elements * itemsize)
    warps_per_sm = WARPS_PER_SM_OF_FLOAT64 if single else MAX_WARPS_PER_SM
    programs_per_sm = min(max(in_flight, PROGRAMS_PER_SM), MAX_PROGRAMS_PER_SM, max(warps_per_sm // warps, 1))
    yield Configuration("tile", warps, together, 1, 1, block_d, block_hw, programs_per_sm, STAGES)


def groups_beside_channels(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Programs of whole groups and programs of channels of all samples, in one launch, if all run at once."""
    block, block_hw = power_of_2(problem.size), power_of_2(problem.K)
    if problem.M * block <= LITTLE or any(_is_quick(problem, each, limits) for each in whole_groups(problem, limits)):
        return
    max_bytes = MAX_BYTES_OF_FEW_LARGE if problem.size > LARGE_GROUP else MAX_BYTES_OF_FEW
    if problem.M * problem.size * problem.itemsize > max_bytes:
        return
    of_channel = power_of_2(problem.samples) * block_hw
    channels = problem.groups * problem.N
    sector = power_of_2_within(max(BYTES_OF_FEW_CHANNELS // (problem.K * problem.itemsize), 1))
    for warps in (4, 8, MAX_WARPS):
        held, threads = ELEMENTS_OF_FEW * warps * WARP, warps * WARP
        for most in (1, 2):
            # As few groups to a program as give each thread an element, as long as there are multiprocessors.
            together = max(threads // block, power_of_2_within(max(problem.M // limits.sm_count, 1)))
            together = max(1, min(together, most * held // block, power_of_2(problem.M)))
            block_c = max(threads // of_channel, sector, power_of_2_within(max(channels // limits.sm_count, 1)))
            block_c = max(1, min(block_c, most * held // of_channel, power_of_2(channels)))
            found = Configuration("few", warps, together, 1, 1, block_c, block_hw)
            launched = launch_or_none(problem, found, limits)
            if isinstance(launched, BackwardFew):
                programs = launched.group_programs + launched.channel_programs
                at_once = limits.sm_count * (WARPS_OF_FEW // warps)
                if programs <= at_once and problem.samples <= ITERATIONS_OF_FEW * launched.samples:
                    yield found


def _is_quick(problem: Problem, configuration: Configuration, limits: Limits) -> bool:
    """Whether a program of a tile has all samples of its groups, and few lanes."""
    chosen = launch_or_none(problem, configuration, limits)
    if not isinstance(chosen, Tile) or chosen.samples < problem.samples:
        return False
    block = chosen.block_d * chosen.block_hw
    return chosen.samples * chosen.groups * block <= LANES_OF_QUICK and block <= LOADS_OF_QUICK * chosen.vec


def groups_as_they_lie(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Whole groups that are not small, as they lie, by each number of warps that hold one."""
    vec = widest(problem)
    of_float64 = 4 if problem.itemsize == 8 else 1
    found = False
    for warps in (1, 2, 4, 8, MAX_WARPS):
        most = MAX_HELD_BACKWARD[span(problem, vec) > 1, max(warps, 8)] // of_float64
        if warps < 8:
            most = min(most, MAX_HELD_OF_FEW // of_float64)
        # 16 warps only where 8 do not hold a group: 4 x 925 bf16: 7.5 us, by 16 warps 9.6.
        if cdiv(problem.size // vec, warps * WARP) * vec <= most and (warps < MAX_WARPS or not found):
            found = warps == 8
            registers = _registers(problem, cdiv(problem.size // vec, warps * WARP) * vec, span(problem, vec) > 1)
            per_sm = max(1, limits.registers_per_sm // (min(registers, 255 if warps <= 8 else 128) * warps * WARP))
            per_sm = min(per_sm, MAX_RESIDENT)
            for stages in (STAGES, 2, 1):
                yield Configuration("rows", warps, 1, vec, 1, 0, 0, per_sm, stages)


def _registers(problem: Problem, elements: int, several: bool) -> int:
    """Registers of a thread that holds these elements, at least as many as in 60 compiled launches (sm_90)."""
    elements *= 2 if problem.itemsize == 8 else 1
    return cdiv(70 + 10 * elements if several else 50 + 6 * elements, 8) * 8


def tile_loops(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    vec = widest(problem)
    vectors = max(1, min(VECTORS_OF_FEW, 8 // vec)) if problem.itemsize < 8 else 1
    for warps in (WARPS, 2 * WARPS, MAX_WARPS):
        block_d, block_hw, per_sm = 1, 1, PROGRAMS_PER_SM_OF_SUMS
        if not unaligned_channels(problem):
            block_d, block_hw = _blocks(problem, warps)
            if block_d > 1 and sums(problem, block_d, block_hw, STAGES).stages > 1:
                per_sm = PROGRAMS_PER_SM
        if warps == WARPS:
            # Only 4 warps: 144 groups of 123 x 3995 bf16: 279 us, by 8 warps 303. Two vectors of a thread are for the
            # second kernel: 1472 groups of 32 x 1327 float64: 666 us, with one vector 802.
            yield Configuration("split", warps, 1, vec, VECTORS_OF_FEW, block_d, block_hw, per_sm, STAGES)
            yield Configuration("channels", warps, stages=STAGES)
        elif 2 * limits.sm_count < problem.M:
            continue
        for programs_per_sm in (PROGRAMS_PER_SM, MAX_WARPS // warps):
            yield Configuration("loop", warps, 1, vec, vectors, block_d, block_hw, programs_per_sm, STAGES)


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
