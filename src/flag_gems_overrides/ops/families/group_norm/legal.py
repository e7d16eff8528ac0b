# SPDX-License-Identifier: Apache-2.0
"""The launch that a configuration of a group norm means, if it is legal: a grid that is not too large, registers for
what a thread holds, shared memory for pipelines.

Figures in comments: the input as N x C x HW (N x C where HW is 1), its type and its groups, the time this way, and the
time otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from ..norm.launches import MAX_SHORT_ELEMENTS, MIN_UNALIGNED
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
    Vectors,
)

# Maximum number of warps of a program; forward programs that hold groups have up to MAX_ROWS_WARPS.
MAX_WARPS = 16
# Number of channels below which the number of a program's last channel is in int32.
MAX_SHORT_CHANNELS = 2**30
# Triton knows whether an argument is a multiple of this.
KNOWN_MULTIPLE = 16
# Maximum number of warps of forward programs that hold groups. Above MAX_WARPS a thread has half the registers, and
# holds half as much.
MAX_ROWS_WARPS = 32
# Maximum number of elements of a thread of whole groups, forward. More spill. A float64 takes two registers.
# 440 x 3 x 20480 float64 in 3 groups: 152 us, in two launches, which read x twice, 231 (torch.compile 181, H100).
MAX_HELD = 80
# The same for vectors of several channels, whose weights take registers too.
MAX_HELD_OF_SEVERAL = 40
# Maximum number of elements of float32 or float64 of which a thread of 16 warps loads weight and bias together with x.
# With 32 a multiprocessor has one program, not two: 192 groups of 16 x 1024: 17.9 us, otherwise 14.8 (H100).
# And 80 bytes of float64 spill (440 x 2 x 8192 in 1 group, sm_90, Triton 3.6).
MAX_HELD_EARLY = 24
# Maximum number of elements of each input of a thread of whole groups, backward, by whether it has a sum for each
# element (else for each vector), and by the warps of its program.
MAX_HELD_BACKWARD = {(False, 8): 56, (False, 16): 32, (True, 8): 36, (True, 16): 16}
# Maximum number of elements of each input of a thread of a tile, backward, and of the tiles of a loop.
MAX_ELEMENTS = 16
# Maximum number of bytes of these elements where each has its own load and address, by up to 8 warps. Twice as many
# spill 16 bytes (64 x 512 x 7 x 7 float32, sm_100).
MAX_SINGLE_BYTES = 16
# Maximum number of elements of these by more warps, whose threads have half the registers. 8 spill 24 bytes
# (62 x 64 x 39 float16 in one program, sm_90, Triton 3.7).
MAX_SINGLES = 4
# Maximum number of pieces of an input, the groups of one sample in a tile, that tiles of all samples read. With more,
# tiles fill sectors, and several share the samples. 1000 x 700 float32 in 700 groups: 16.3 us, otherwise 36.9 (H100).
MAX_PIECES = 3 << 17
# Range of lanes of a channel in tiles of single elements that are loaded in two chunks, so that half as many threads
# exchange the sums of a group. 2097152 x 8 x 13 float32 in 8 groups: 1033 us, otherwise 1437 (H100).
MIN_HALVED_TILE, MAX_HALVED_TILE = 8, 32
# Minimum number of lanes of such a channel, for each channel of a group.
# 100000 x 16 x 7 float16 in 4 groups, of 4 x 8 lanes: 50.7 us, otherwise 45.9 (H100).
MIN_HALVED_OF_CHANNEL = 4
# Minimum number of programs of a multiprocessor, if each has one such tile.
# 3000 x 8 x 15 bf16, 375 programs: 6.86 us, otherwise 7.41 (H100).
MIN_HALVED_PER_SM = 2
# Registers of a thread of the kernels with a loop. By itself the compiler takes 64 for a fourth program of a
# multiprocessor, and spills 8 bytes (float32).
LOOP_REGISTERS = 128
# Parts of all groups, as a multiple of the programs that run at once, where a group would have fewer parts than this.
WAVES = 4
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
# Bytes of shared memory of a program in addition to its pipeline.
OTHER_SHARED = 4096


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launch | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launch:
    """ValueError if the problem cannot be launched so."""
    kernel, warps, groups, vec, vectors, *_, stages = configuration
    most = MAX_ROWS_WARPS if (kernel, problem.inputs) == ("rows", 1) else MAX_WARPS
    if min(groups, vec, vectors, stages) < 1 or not 0 < warps <= most:
        raise ValueError(f"no legal program: {configuration}")
    made = _LAUNCHES.get((kernel, problem.inputs))
    if made is None:
        raise ValueError(f"no such kernel: {configuration}")
    return made(problem, configuration, limits)


def _check(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(rule)


def vector(problem: Problem) -> int:
    """Elements of each channel that one load takes."""
    return math.gcd(problem.K, VECTOR_BYTES // problem.itemsize)


def widest(problem: Problem) -> int:
    """Elements of a load of a group as it lies: a whole vector where the group is long enough for edges."""
    full = VECTOR_BYTES // problem.itemsize
    return full if problem.size >= MIN_UNALIGNED else math.gcd(problem.size, full)


def span(problem: Problem, vec: int) -> int:
    """Channels that a vector has elements of, at most; 3 stands for more."""
    if problem.N == 1 or problem.K % vec == 0:
        return 1
    if vec % problem.K == 0 and problem.size % vec == 0:
        return min(vec // problem.K, 3)
    return min(1 + cdiv(vec - 1, problem.K), 3)


def _vectors(problem: Problem, vec: int, lanes: int) -> Vectors:
    _check(vec * problem.itemsize <= VECTOR_BYTES, "a load has 16 bytes at most")
    unaligned = problem.size % vec != 0
    _check(not unaligned or problem.size >= 4 * vec, "a group is too short for edges")
    return Vectors(lanes, vec, span(problem, vec), unaligned)


def _short_rows(problem: Problem, configuration: Configuration, limits: Limits) -> ShortRows:
    _, warps, _, vec, *_ = configuration
    rows = vec // math.gcd(problem.size, vec)
    _check(vec == power_of_2(vec) and vec * problem.itemsize <= VECTOR_BYTES, "a load has 16 bytes at most")
    # With a weight and a bias for each.
    elements = rows * problem.size * max(1, problem.itemsize // 4)
    _check(elements <= MAX_SHORT_ELEMENTS // 2, "a thread has all elements in registers")
    _check(problem.groups * problem.N < MAX_SHORT_CHANNELS, "numbers of channels are in 32 bits")
    groups = rows * warps * WARP
    _check(cdiv(problem.M, groups) < 2**31, "a grid has fewer programs")
    return ShortRows(cdiv(problem.M, groups), groups, rows, vec, warps)


def _rows(problem: Problem, configuration: Configuration, limits: Limits) -> Rows:
    _, warps, groups, vec, vectors_of_thread, *_ = configuration
    _check(vectors_of_thread == 1 or groups > 1, "chunks are of several groups")
    in_group = problem.size // vec
    lanes = min(power_of_2(cdiv(in_group, vectors_of_thread)), max(warps * WARP, 1))
    if problem.size % vec != 0:
        lanes = max(lanes, 2 * vec)  # one for each element of the edges
    vectors = _vectors(problem, vec, lanes)
    _check(groups == 1 or not vectors.unaligned, "neighbours start at different places of a vector")
    _check(groups == power_of_2(groups) and groups // 2 < problem.M, "no lanes for more groups than there are")
    chunks = cdiv(in_group, lanes)
    per_thread = cdiv(groups * chunks * lanes * vec, warps * WARP)
    most = held(problem, vectors, warps)
    _check(per_thread <= most, "a thread has more elements than registers")
    programs = cdiv(problem.M, groups)
    _check(programs < 2**31, "a grid has fewer programs")
    return Rows(
        programs,
        groups,
        chunks,
        vectors,
        per_thread <= max_held_with_parameters(problem, vec, programs, limits, warps),
        warps,
    )


def max_held_with_parameters(problem: Problem, vec: int, programs: int, limits: Limits, warps: int = MAX_WARPS) -> int:
    """Elements that a thread of the forward kernel may hold if it loads weight and bias together with x.

    With a weight and a bias for each element these take twice the registers of x. A thread with more elements loads
    them after x, and waits twice: 8 x 1277 float32: 4.4 us that way, FlagGems 4.1 (H200).
    """
    channels = span(problem, vec)
    if channels == 1:
        limited = problem.N > 1 and problem.itemsize > 2 and warps >= MAX_WARPS
        return MAX_HELD_EARLY if limited else 32
    return 8 if channels == 3 and (programs > limits.sm_count or problem.itemsize == 8) else 16


def held(problem: Problem, vectors: Vectors, warps: int = MAX_WARPS) -> int:
    """Elements of a group that a thread may hold forward."""
    most = MAX_HELD if vectors.span == 1 else MAX_HELD_OF_SEVERAL
    if warps > MAX_WARPS:
        return most // (8 if problem.itemsize == 8 else 2)
    return MAX_HELD // 2 if problem.itemsize == 8 else most


def _loop(problem: Problem, configuration: Configuration, limits: Limits) -> Loop:
    _, warps, _, vec, vectors, _, _, programs_per_sm, stages = configuration
    _check(programs_per_sm > 0, "a multiprocessor has programs")
    _check(problem.size >= vec * warps * WARP, "a tile is larger than a group")
    _check(vec * vectors <= _of_loop(problem), "a thread has more elements than registers")
    found = _vectors(problem, vec, vectors * warps * WARP)
    _check(_pipeline(problem, stages, found.lanes * vec) * programs_per_sm <= limits.shared_bytes, "stages are shared")
    return Loop(_evenly(problem.M, limits.sm_count * programs_per_sm), found, warps, stages)


def _split(problem: Problem, configuration: Configuration, limits: Limits) -> Split:
    _, warps, _, vec, vectors, _, _, programs_per_sm, stages = configuration
    _check(programs_per_sm > 0, "a multiprocessor has programs")
    _check(vec * vectors <= _of_loop(problem), "a thread has more elements than registers")
    found = _vectors(problem, vec, vectors * warps * WARP)
    in_group = problem.size // vec
    _check(in_group > 0, "a group has a vector")
    tiles = cdiv(in_group, found.lanes)
    splits = max(1, min(limits.sm_count * programs_per_sm // problem.M, tiles))
    slice_size = cdiv(tiles, splits) * found.lanes
    return Split(cdiv(in_group, slice_size), slice_size, tiles, found, warps, stages)


def _of_loop(problem: Problem) -> int:
    """Elements that a thread may have of a tile of vectors: two vectors. Of 16 float32 8 bytes spill (512 x 40960)."""
    return 2 * VECTOR_BYTES // problem.itemsize


def _stages(problem: Problem, stages: int, rows: int) -> int:
    """Stages of a loop over tiles of ``rows`` rows of channels' elements: 1 for single elements of several rows, and
    for loads of less than 4 bytes.

    Triton orders shared memory by what a thread holds, row by row, so that 16 threads of a warp meet in one bank.
    39249 x 8 x 5 float32, 16 x 8 groups of 5 to a tile: 26.6 us, with a pipeline 33.5 (H100).
    """
    vec = vector(problem)
    return stages if (vec > 1 or rows == 1) and vec * problem.itemsize >= 4 else 1


def _pipeline(problem: Problem, stages: int, elements: int) -> int:
    """Bytes of shared memory."""
    return (stages - 1) * elements * problem.itemsize * problem.inputs + OTHER_SHARED


def _evenly(work: int, most: int) -> int:
    """Programs, no more than ``most``, that have the same number of ``work`` pieces each."""
    return cdiv(work, cdiv(work, most))


def _tile(problem: Problem, configuration: Configuration, limits: Limits) -> Tile:
    _, warps, groups, _, _, block_d, block_hw, programs_per_sm, stages = configuration
    _check((block_d, block_hw) == (power_of_2(problem.N), power_of_2(problem.K)), "a program holds a group, or more")
    _check(programs_per_sm > 0, "a multiprocessor has programs")
    _check(
        groups * block_d * block_hw <= of_tile(problem, warps) * warps * WARP,
        "a thread has more elements than registers",
    )
    # All samples at once, of groups that lie next to each other; more groups where each program still has some.
    of_sample = groups // power_of_2(problem.samples) or groups
    of_sample = max(of_sample, power_of_2_within(problem.groups // (limits.sm_count * programs_per_sm)))
    of_sample = min(of_sample, groups, power_of_2(problem.groups))
    # As many groups as fill a sector, where all multiprocessors then have groups: 512 x 3000 x 2 bf16 in 3000 groups:
    # 23.1 us with 8 groups of 64 samples to a tile, 43.8 with 2 of 256 (H100).
    sector = min(power_of_2(cdiv(SECTOR_BYTES, problem.size * problem.itemsize)), groups)
    blocks, pieces = cdiv(problem.groups, sector), problem.M // of_sample
    if pieces > MAX_PIECES:
        blocks *= cdiv(problem.samples, groups // sector)
    if blocks >= limits.sm_count:
        of_sample = min(max(of_sample, sector), power_of_2(problem.groups))
    samples = groups // of_sample
    blocks, iterations = cdiv(problem.groups, of_sample), cdiv(problem.samples, samples)
    # A program with two tiles takes twice as long as one with a single tile: 9180 groups of 104 bf16: 10.5 us in 528
    # programs, 9.9 in 765 (H200).
    most = max(1, limits.sm_count * programs_per_sm // blocks)
    side_by_side = iterations if iterations < 2 * most else most
    in_turn = side_by_side < iterations
    stages = _stages(problem, stages, groups * block_d) if in_turn else 1
    found = Tile(blocks * side_by_side, samples, of_sample, block_d, block_hw, vector(problem), warps, stages, 1)
    many = in_turn or found.programs >= MIN_HALVED_PER_SM * limits.sm_count
    return found._replace(chunks=2) if many and _halved(found) else found


def _halved(found: Tile) -> bool:
    """Whether the tiles of a launch are loaded in two chunks; each thread has an element of both."""
    fewest = max(MIN_HALVED_TILE, MIN_HALVED_OF_CHANNEL * found.block_d)
    if found.vec > 1 or found.stages > 1 or not fewest <= found.block_hw <= MAX_HALVED_TILE:
        return False
    return found.samples * found.groups * found.block_d * found.block_hw >= 2 * WARP * found.warps


def of_tile(problem: Problem, warps: int = MAX_WARPS) -> int:
    """Elements of each input that a thread may have of a tile of channels x elements."""
    if problem.itemsize == 8:
        return MAX_ELEMENTS // 4
    if vector(problem) == 1:
        return MAX_SINGLE_BYTES // problem.itemsize if warps < MAX_WARPS else MAX_SINGLES
    return MAX_ELEMENTS


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


def _few(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardFew:
    _, warps, groups, _, _, block_c, block_hw, *_ = configuration
    _check(problem.dx, "the kernel computes dx")
    _check(block_hw == power_of_2(problem.K), "a program holds whole channels")
    _check(groups == power_of_2(groups) and groups // 2 < problem.M, "no lanes for more groups than there are")
    block, vec = power_of_2(problem.size), math.gcd(problem.size, VECTOR_BYTES // problem.itemsize)
    threads = warps * WARP
    _check(groups * block <= of_few(problem) * threads, "a thread has more elements than registers")
    channels = problem.groups * problem.N
    _check(0 < block_c <= power_of_2(channels), "no lanes for more channels than there are")
    channels_vec = vector(problem) if problem.K > 1 else math.gcd(channels, VECTOR_BYTES // problem.itemsize)
    # Half as many single elements: of all of them 40 bytes spill (300 x 6 x 51 float16 in 6 groups, sm_90).
    most = of_few(problem) // (2 if channels_vec == 1 else 1) * threads // (block_c * block_hw)
    _check(most > 0, "a thread has more elements than registers")
    samples = min(power_of_2_within(most), power_of_2(problem.samples))
    _check(problem.M * problem.size + samples * channels * problem.K + groups * block < 2**31, "offsets have 32 bits")
    group_programs, channel_programs = cdiv(problem.M, groups), cdiv(channels, block_c)
    return BackwardFew(
        group_programs, groups, block, vec, channel_programs, samples, block_c, block_hw, channels_vec, warps
    )


def of_few(problem: Problem) -> int:
    """Elements of each input that a thread may have."""
    return MAX_ELEMENTS // (2 if problem.itemsize == 8 else 1)


def _backward_rows(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardRows:
    _, warps, _, vec, _, _, _, programs_per_sm, stages = configuration
    _check(programs_per_sm > 0, "a multiprocessor has programs")
    in_group, lanes = problem.size // vec, warps * WARP
    _check(in_group > lanes // 2, "each thread has a vector")
    vectors, chunks = _vectors(problem, vec, lanes), cdiv(in_group, lanes)
    most = MAX_HELD_BACKWARD[vectors.span > 1, max(warps, 8)] // (4 if problem.itemsize == 8 else 1)
    if vectors.unaligned and vectors.span == 1 and warps == MAX_WARPS:
        most -= most // 4  # with 32 float32, 8 bytes spill
    _check(chunks * vec <= most, "a thread has more elements than registers")
    # Weights of vectors of several channels are in the pipeline too, two float32 for each.
    elements = chunks * lanes * (vec + (max(4 // problem.itemsize, 1) if vectors.span > 1 else 0))
    side_by_side = min(problem.samples, max(1, limits.sm_count * programs_per_sm // problem.groups))
    side_by_side = _evenly(problem.samples, side_by_side)
    if vectors.unaligned and side_by_side < problem.samples:
        # All rows of a program start equally far from a vector.
        step = vec // math.gcd(problem.groups * problem.size, vec)
        side_by_side = min(cdiv(side_by_side, step) * step, problem.samples)
    # Two stages with 16 warps: three spill 8 bytes (157 x 8 x 14976 float16).
    stages = min(stages, 2 if warps == MAX_WARPS else stages) if side_by_side < problem.samples else 1
    resident = cdiv(side_by_side * problem.groups, limits.sm_count)
    _check(_pipeline(problem, stages, elements) * min(resident, programs_per_sm) <= limits.shared_bytes, "stages fit")
    columns = in_group if vectors.span == 1 else problem.size
    if columns == problem.N or problem.N == 1:
        columns = 0
    # Channels that a program adds up at once: all where there are few, each by more threads. 1 x 8 x 2687 bf16 in 4
    # groups: 13.3 us with 32 threads to each of two channels, of which the 84 iterations were about 8 (H200).
    per_channel = power_of_2(cdiv(columns, problem.N))
    block_d = min(power_of_2(problem.N), 4 * lanes // min(per_channel, WARP)) if columns else 1
    block_k = min(per_channel, 4 * lanes // block_d)
    return BackwardRows(side_by_side * problem.groups, chunks, vectors, columns, block_d, block_k, warps, stages)


def sums(problem: Problem, block_d: int, block_hw: int, stages: int = 1) -> Sums:
    """Tiles of ``block_hw`` elements of ``block_d`` channels, and the one that has the rest of a channel."""
    rest = problem.K - block_hw
    rest_hw = power_of_2(rest) if 0 < rest <= block_hw // 2 else 0
    whole = block_hw + rest_hw >= problem.K
    return Sums(block_d, block_hw, rest_hw, whole, vector(problem), False, _stages(problem, stages, block_d))


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
    _check(min(found.block_d, found.block_hw) > 0, "a tile has a size")
    _check(found.block_d <= power_of_2(problem.N), "a tile has no more channels than a group")
    _check(found.block_hw <= power_of_2(problem.K), "a tile is no longer than a channel")
    _check(found.block_d == 1 or found.block_hw < 1 << 16, "offsets have 32 bits")
    elements = found.block_d * (found.block_hw + found.rest_hw)
    _check(elements <= of_sums(problem, warps, found) * warps * WARP, "a thread has more elements than registers")


def _backward_loop(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardLoop:
    _, warps, _, vec, vectors, _, _, programs_per_sm, stages = configuration
    _check(problem.dx, "the kernel computes dx")
    _check(programs_per_sm > 0, "a multiprocessor has programs")
    found = _sums(problem, configuration, warps)
    _check(vec * vectors <= MAX_ELEMENTS // (4 if problem.itemsize == 8 else 1), "a thread has registers")
    read = _vectors(problem, vec, vectors * warps * WARP)
    elements = max(found.block_d * (found.block_hw + found.rest_hw), read.lanes * (vec + max(4 // problem.itemsize, 1)))
    _check(_pipeline(problem, stages, elements) * programs_per_sm <= limits.shared_bytes, "stages are shared")
    return BackwardLoop(_evenly(problem.M, limits.sm_count * programs_per_sm), found, read, warps, stages)


def _backward_split(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardSplit:
    _, warps, _, vec, vectors, _, _, programs_per_sm, _ = configuration
    _check(programs_per_sm > 0, "a multiprocessor has programs")
    sums_warps = warps
    if unaligned_channels(problem):
        of_channel = max(_lanes_of_channel(problem) // (VECTORS_OF_UNALIGNED * WARP), 1)
        sums_warps = min(of_channel, warps, MAX_WARPS_OF_UNALIGNED)
        programs_per_sm = programs_per_sm * warps // sums_warps
    found = _sums(problem, configuration, sums_warps)
    _check(vec * vectors <= MAX_ELEMENTS // (4 if problem.itemsize == 8 else 1), "a thread has registers")
    read = _vectors(problem, vec, vectors * warps * WARP)
    parts = _parts(problem, found, limits.sm_count * programs_per_sm)
    tiles = cdiv(problem.size // vec, read.lanes)
    return BackwardSplit(*parts, tiles, found, sums_warps, read, warps)


def _backward_channels(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardChannels:
    warps, stages = configuration.warps, configuration.stages
    _check(problem.samples > 1, "sums of parts are those of channels")
    _check(problem.K * problem.itemsize <= _bytes_of_held_channel(problem), "few bytes beside elements are sums")
    read = _vectors(problem, widest(problem), warps * WARP * (1 if problem.itemsize == 8 else 2))
    of_channel = power_of_2(problem.K)
    of_whole = Sums(1, of_channel, 0, True, vector(problem), False, 1)
    most = warps * WARP * of_sums(problem, warps, of_whole)
    _check(of_channel <= most, "a thread has more elements than registers")
    of_program = min(power_of_2_within(most // of_channel), power_of_2(problem.N))
    side_by_side = problem.groups * cdiv(problem.N, of_program)
    # All programs take the same long time: no more than have registers at once, or many times as many.
    resident = limits.sm_count * (limits.registers_per_sm // (LOOP_REGISTERS * warps * WARP))
    if resident >= WAVES * side_by_side:
        shares = resident // side_by_side
    else:
        shares = min(cdiv(WAVES * resident, side_by_side), problem.samples // MIN_TURNS)
    shares = _evenly(problem.samples, max(1, shares))
    # Loads of 2 bytes are issued ahead, for more bytes in flight; those of more bytes have no registers for it.
    # 615 x 34610 float16 in 2 groups: 104.6 us, otherwise 106.8 (H100).
    ahead = problem.itemsize == 2 and shares < problem.samples
    programs = side_by_side * shares
    too_little = problem.K * problem.itemsize > MAX_BYTES_OF_TWO and programs > WAVES_OF_TWO * resident
    _check(problem.samples > 2 or not too_little, "few bytes beside elements are sums")
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


_LAUNCHES: dict[tuple[str, int], Callable[[Problem, Configuration, Limits], Launch]] = {
    ("short", 1): _short_rows,
    ("rows", 1): _rows,
    ("loop", 1): _loop,
    ("split", 1): _split,
    ("tile", 2): _tile,
    ("few", 2): _few,
    ("rows", 2): _backward_rows,
    ("loop", 2): _backward_loop,
    ("split", 2): _backward_split,
    ("channels", 2): _backward_channels,
}
