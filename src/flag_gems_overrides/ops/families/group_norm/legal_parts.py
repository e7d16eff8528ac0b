# SPDX-License-Identifier: Apache-2.0
"""Legal launches of gradients that read groups twice: in tiles of channels for their sums, and as they lie for dx.

Figures in comments: the input as N x C x HW (N x C where HW is 1), its type and its groups, the time this way, and the
time otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import BackwardChannels, BackwardLoop, BackwardSplit, Configuration, Problem, Sums, Vectors
from .legal_whole import of_tile
from .loads import (
    LOOP_REGISTERS,
    MAX_ELEMENTS,
    MAX_WARPS,
    WAVES,
    check,
    evenly,
    pipeline,
    stages_of,
    vector,
    vectors_of,
    widest,
)

# Maximum number of single elements of each input of a thread of a tile of sums, in 8 warps or fewer.
MAX_SINGLES_OF_SUMS = 8
# Below this number of elements of a channel, a thread has several channels of a tile of sums.
MIN_LONG = 256
# Minimum number of vectors of a channel, not a whole number of them, that sums read as it lies.
# 19 x 16384 x 171 bf16 in 4 groups: 198 us, as single elements 361 (torch.compile 220, H100).
MIN_VECTORS_OF_CHANNEL = 4
# Vectors of a thread of such a channel.
VECTORS_OF_UNALIGNED = 2
# Maximum number of warps of programs that only add up such channels.
MAX_WARPS_OF_UNALIGNED = 4
# Maximum number of parts of a group, whose sums the threads of a program load at once.
MAX_PARTS_HELD = 256
# The same where this many parts of each group are enough for all programs that run at once.
MAX_PARTS_OF_MANY = 32
# Programs of a multiprocessor that add up groups; a group has a part for each.
SUMS_OF_GROUPS_PER_SM = 8
# Maximum number of bytes of a channel of two samples to which WAVES_OF_TWO does not apply.
# 2 x 2400000 x 4 float16 in 1 group: 100 us, in parts 111 (H100).
MAX_BYTES_OF_TWO = 8
# Maximum ratio of the programs that hold sums of channels to those that have registers at once, with two samples.
# 2 x 1060873 x 5 bf16 in 1 group: 94 us, in parts 83 (H100).
WAVES_OF_TWO = 2
# Minimum number of samples of a program that holds sums of channels, if more programs than run at once have some.
MIN_TURNS = 16


def of_sums(problem: Problem, warps: int, tile: Sums) -> int:
    """Elements of each input that a thread may have of a tile of sums, in a loop.

    With as many as of_tile, vectors of less than 16 bytes spill 136 bytes (9 x 136216 x 60 bf16, sm_90), whole channels
    176 (25605 x 261 x 24), single float64 8 (1 x 64 x 50259). With half as many, short whole channels in pairs of
    float32 spill 24 (2 x 25648 x 126 in 16 groups).
    """
    vec, most = tile.vec, of_tile(problem, warps)
    if vec == 1 and problem.itemsize < 8 and warps < MAX_WARPS:
        return MAX_SINGLES_OF_SUMS
    if tile.whole and vec == 2 and problem.itemsize == 4 and tile.block_hw < MIN_LONG:
        return most // 4
    halved = tile.whole or vec * problem.itemsize < VECTOR_BYTES if vec > 1 else problem.itemsize == 8
    return most // (2 if halved else 1)


def sums(problem: Problem, block_d: int, block_hw: int, stages: int = 1) -> Sums:
    """Tiles of ``block_hw`` elements of ``block_d`` channels, and the one that has the rest of a channel."""
    rest = problem.K - block_hw
    rest_hw = power_of_2(rest) if 0 < rest <= block_hw // 2 else 0
    whole = block_hw + rest_hw >= problem.K
    return Sums(block_d, block_hw, rest_hw, whole, vector(problem), False, stages_of(problem, stages, block_d))


def unaligned_channels(problem: Problem) -> bool:
    """Whether sums read channels as vectors and edges."""
    full = VECTOR_BYTES // problem.itemsize
    return vector(problem) < full and MIN_VECTORS_OF_CHANNEL * full <= problem.K


def _unaligned_sums(problem: Problem, warps: int, stages: int) -> Sums:
    full, most = VECTOR_BYTES // problem.itemsize, warps * WARP * VECTORS_OF_UNALIGNED
    lanes = min(_lanes_of_channel(problem), most)
    whole = problem.K // full <= lanes
    block_d = min(most // lanes, power_of_2(problem.N))
    # Whole channels are loaded without a pipeline. 307 x 104 x 51 float32 in 1 group, seven tiles in turn by a program
    # for each sample: 22.9 us, in parts 21.1 (H100).
    return Sums(block_d, lanes * full, 0, whole, vector(problem), True, 1 if whole else stages)


def _lanes_of_channel(problem: Problem) -> int:
    full = VECTOR_BYTES // problem.itemsize
    return max(power_of_2(problem.K // full), 2 * full)  # one for each element of the edges


def _sums(problem: Problem, configuration: Configuration, warps: int) -> Sums:
    if unaligned_channels(problem):
        return _unaligned_sums(problem, warps, configuration.stages)
    found = sums(problem, configuration.block_d, configuration.block_hw, configuration.stages)
    _check_sums(problem, found, warps)
    return found


def tiles_and_lanes(problem: Problem, tile: Sums) -> tuple[int, int]:
    """(Tiles of a group, lanes of all of them)."""
    blocks = cdiv(problem.N, tile.block_d)
    if tile.whole:
        return blocks, blocks * tile.block_d * (tile.block_hw + tile.rest_hw)
    across = cdiv(problem.K, tile.block_hw)
    # The first tile of each block of channels is waited for.
    return blocks * (1 + across), blocks * tile.block_d * across * tile.block_hw


def _check_sums(problem: Problem, found: Sums, warps: int) -> None:
    check(min(found.block_d, found.block_hw) > 0, "a tile has a size")
    check(found.block_d <= power_of_2(problem.N), "a tile has no more channels than a group")
    check(found.block_hw <= power_of_2(problem.K), "a tile is no longer than a channel")
    check(found.block_d == 1 or found.block_hw < 1 << 16, "offsets have 32 bits")
    elements = found.block_d * (found.block_hw + found.rest_hw)
    check(elements <= of_sums(problem, warps, found) * warps * WARP, "a thread has more elements than registers")


def backward_loop(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardLoop:
    _, warps, _, vec, vectors, _, _, programs_per_sm, stages = configuration
    check(problem.dx, "the kernel computes dx")
    check(programs_per_sm > 0, "a multiprocessor has programs")
    found = _sums(problem, configuration, warps)
    check(vec * vectors <= MAX_ELEMENTS // (4 if problem.itemsize == 8 else 1), "a thread has registers")
    read = vectors_of(problem, vec, vectors * warps * WARP)
    elements = max(found.block_d * (found.block_hw + found.rest_hw), read.lanes * (vec + max(4 // problem.itemsize, 1)))
    check(pipeline(problem, stages, elements) * programs_per_sm <= limits.shared_bytes, "stages are shared")
    return BackwardLoop(evenly(problem.M, limits.sm_count * programs_per_sm), found, read, warps, stages)


def backward_split(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardSplit:
    _, warps, _, vec, vectors, _, _, programs_per_sm, _ = configuration
    check(programs_per_sm > 0, "a multiprocessor has programs")
    sums_warps = warps
    if unaligned_channels(problem):
        of_channel = max(_lanes_of_channel(problem) // (VECTORS_OF_UNALIGNED * WARP), 1)
        sums_warps = min(of_channel, warps, MAX_WARPS_OF_UNALIGNED)
        programs_per_sm = programs_per_sm * warps // sums_warps
    found = _sums(problem, configuration, sums_warps)
    check(vec * vectors <= MAX_ELEMENTS // (4 if problem.itemsize == 8 else 1), "a thread has registers")
    read = vectors_of(problem, vec, vectors * warps * WARP)
    parts = _parts(problem, found, limits.sm_count * programs_per_sm)
    tiles = cdiv(problem.size // vec, read.lanes)
    return BackwardSplit(*parts, tiles, found, sums_warps, read, warps)


def backward_channels(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardChannels:
    warps, stages = configuration.warps, configuration.stages
    check(problem.samples > 1, "sums of parts are those of channels")
    check(problem.K * problem.itemsize <= _bytes_of_held_channel(problem), "few bytes beside elements are sums")
    read = vectors_of(problem, widest(problem), warps * WARP * (1 if problem.itemsize == 8 else 2))
    of_channel = power_of_2(problem.K)
    of_whole = Sums(1, of_channel, 0, True, vector(problem), False, 1)
    most = warps * WARP * of_sums(problem, warps, of_whole)
    check(of_channel <= most, "a thread has more elements than registers")
    of_program = min(power_of_2_within(most // of_channel), power_of_2(problem.N))
    side_by_side = problem.groups * cdiv(problem.N, of_program)
    # All programs take the same long time: no more than have registers at once, or many times as many.
    resident = limits.sm_count * (limits.registers_per_sm // (LOOP_REGISTERS * warps * WARP))
    if resident >= WAVES * side_by_side:
        shares = resident // side_by_side
    else:
        shares = min(cdiv(WAVES * resident, side_by_side), problem.samples // MIN_TURNS)
    shares = evenly(problem.samples, max(1, shares))
    # Loads of 2 bytes are issued ahead, for more bytes in flight; those of more bytes have no registers for it.
    # 615 x 34610 float16 in 2 groups: 104.6 us, otherwise 106.8 (H100).
    ahead = problem.itemsize == 2 and shares < problem.samples
    programs = side_by_side * shares
    too_little = problem.K * problem.itemsize > MAX_BYTES_OF_TWO and programs > WAVES_OF_TWO * resident
    check(problem.samples > 2 or not too_little, "few bytes beside elements are sums")
    parts, slice_size = _slices(problem, read, limits)
    return BackwardChannels(
        parts, slice_size, read, stages, programs, shares, of_program, of_channel, vector(problem), ahead, warps
    )


def _bytes_of_held_channel(problem: Problem) -> int:
    """Four vectors, or eight where all are whole float32 ones: 60 x 26484 x 32: 353 us, in parts 367 (H100)."""
    whole_float32 = problem.itemsize == 4 and vector(problem) * problem.itemsize == VECTOR_BYTES
    return MIN_VECTORS_OF_CHANNEL * VECTOR_BYTES * (2 if whole_float32 else 1)


def _slices(problem: Problem, read: Vectors, limits: Limits) -> tuple[int, int]:
    """(Parts of a group, vectors of each); a program holds the sums of all parts."""
    at_once, in_group = limits.sm_count * SUMS_OF_GROUPS_PER_SM, problem.size // read.vec
    tiles = cdiv(in_group, read.lanes)
    most = MAX_PARTS_OF_MANY if at_once <= problem.M * MAX_PARTS_OF_MANY else MAX_PARTS_HELD
    slice_size = cdiv(tiles, min(_parts_of_group(problem, at_once), tiles, most)) * read.lanes
    return cdiv(in_group, slice_size), slice_size


class _Parts(NamedTuple):
    """Of a group: see BackwardSplit."""

    parts: int
    splits: int
    slice_size: int
    blocks: int


def _parts_of_group(problem: Problem, at_once: int) -> int:
    """Parts of each group. Where few groups run at once there are many parts, so that the last programs are a small
    share of all, and no multiprocessor waits. 278 x 1071 x 675 bf16, 278 groups of one part: 2001 us (H100)."""
    of_each = at_once // problem.M
    return of_each if of_each >= WAVES else cdiv(WAVES * at_once, problem.M)


def _parts(problem: Problem, found: Sums, at_once: int) -> _Parts:
    for_group = _parts_of_group(problem, at_once)
    blocks_of_channels = cdiv(problem.N, found.block_d)
    splits = 1 if found.whole else max(1, min(for_group // blocks_of_channels, problem.K // found.block_hw))
    slice_size = problem.K if found.whole else cdiv(problem.K, splits * found.block_hw) * found.block_hw
    splits = cdiv(problem.K, slice_size)
    blocks = cdiv(blocks_of_channels, max(1, for_group // splits))
    return _Parts(cdiv(blocks_of_channels, blocks) * splits, splits, slice_size, blocks)
