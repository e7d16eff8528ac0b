# SPDX-License-Identifier: Apache-2.0
"""Legal launches of gradients whose programs hold whole groups, or whole channels of all samples.

Figures in comments: the input as N x C x HW (N x C where HW is 1), its type and its groups, the time this way, and the
time otherwise.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .launches import BackwardFew, BackwardRows, Configuration, Problem, Tile
from .loads import MAX_ELEMENTS, MAX_WARPS, check, evenly, pipeline, stages_of, vector, vectors_of

# Maximum number of elements of each input of a thread of whole groups, backward, by whether it has a sum for each
# element (else for each vector), and by the warps of its program.
MAX_HELD_BACKWARD = {(False, 8): 56, (False, 16): 32, (True, 8): 36, (True, 16): 16}
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


def tile(problem: Problem, configuration: Configuration, limits: Limits) -> Tile:
    _, warps, groups, _, _, block_d, block_hw, programs_per_sm, stages = configuration
    check((block_d, block_hw) == (power_of_2(problem.N), power_of_2(problem.K)), "a program holds a group, or more")
    check(programs_per_sm > 0, "a multiprocessor has programs")
    check(
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
    stages = stages_of(problem, stages, groups * block_d) if in_turn else 1
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


def few(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardFew:
    _, warps, groups, _, _, block_c, block_hw, *_ = configuration
    check(problem.dx, "the kernel computes dx")
    check(block_hw == power_of_2(problem.K), "a program holds whole channels")
    check(groups == power_of_2(groups) and groups // 2 < problem.M, "no lanes for more groups than there are")
    block, vec = power_of_2(problem.size), math.gcd(problem.size, VECTOR_BYTES // problem.itemsize)
    threads = warps * WARP
    check(groups * block <= of_few(problem) * threads, "a thread has more elements than registers")
    channels = problem.groups * problem.N
    check(0 < block_c <= power_of_2(channels), "no lanes for more channels than there are")
    channels_vec = vector(problem) if problem.K > 1 else math.gcd(channels, VECTOR_BYTES // problem.itemsize)
    # Half as many single elements: of all of them 40 bytes spill (300 x 6 x 51 float16 in 6 groups, sm_90). A quarter
    # where groups are shorter than a vector: of half 8 bytes spill (252 x 8 x 3 float16 in 8 groups, Triton 3.6).
    short = vec == 1 and problem.itemsize == 2 and problem.size * problem.itemsize < VECTOR_BYTES
    fewer = 1 if channels_vec > 1 else 4 if short else 2
    most = of_few(problem) // fewer * threads // (block_c * block_hw)
    check(most > 0, "a thread has more elements than registers")
    samples = min(power_of_2_within(most), power_of_2(problem.samples))
    check(problem.M * problem.size + samples * channels * problem.K + groups * block < 2**31, "offsets have 32 bits")
    group_programs, channel_programs = cdiv(problem.M, groups), cdiv(channels, block_c)
    return BackwardFew(
        group_programs, groups, block, vec, channel_programs, samples, block_c, block_hw, channels_vec, warps
    )


def of_few(problem: Problem) -> int:
    """Elements of each input that a thread may have."""
    return MAX_ELEMENTS // (2 if problem.itemsize == 8 else 1)


def backward_rows(problem: Problem, configuration: Configuration, limits: Limits) -> BackwardRows:
    _, warps, _, vec, _, _, _, programs_per_sm, stages = configuration
    check(programs_per_sm > 0, "a multiprocessor has programs")
    in_group, lanes = problem.size // vec, warps * WARP
    check(in_group > lanes // 2, "each thread has a vector")
    vectors, chunks = vectors_of(problem, vec, lanes), cdiv(in_group, lanes)
    most = MAX_HELD_BACKWARD[vectors.span > 1, max(warps, 8)] // (4 if problem.itemsize == 8 else 1)
    if vectors.unaligned and vectors.span == 1 and warps == MAX_WARPS:
        most -= most // 4  # with 32 float32, 8 bytes spill
    check(chunks * vec <= most, "a thread has more elements than registers")
    # Weights of vectors of several channels are in the pipeline too, two float32 for each.
    elements = chunks * lanes * (vec + (max(4 // problem.itemsize, 1) if vectors.span > 1 else 0))
    side_by_side = min(problem.samples, max(1, limits.sm_count * programs_per_sm // problem.groups))
    side_by_side = evenly(problem.samples, side_by_side)
    if vectors.unaligned and side_by_side < problem.samples:
        # All rows of a program start equally far from a vector.
        step = vec // math.gcd(problem.groups * problem.size, vec)
        side_by_side = min(cdiv(side_by_side, step) * step, problem.samples)
    # Two stages with 16 warps: three spill 8 bytes (157 x 8 x 14976 float16).
    stages = min(stages, 2 if warps == MAX_WARPS else stages) if side_by_side < problem.samples else 1
    resident = cdiv(side_by_side * problem.groups, limits.sm_count)
    check(pipeline(problem, stages, elements) * min(resident, programs_per_sm) <= limits.shared_bytes, "stages fit")
    columns = in_group if vectors.span == 1 else problem.size
    if columns == problem.N or problem.N == 1:
        columns = 0
    # Channels that a program adds up at once: all where there are few, each by more threads. 1 x 8 x 2687 bf16 in 4
    # groups: 13.3 us with 32 threads to each of two channels, of which the 84 iterations were about 8 (H200).
    per_channel = power_of_2(cdiv(columns, problem.N))
    block_d = min(power_of_2(problem.N), 4 * lanes // min(per_channel, WARP)) if columns else 1
    block_k = min(per_channel, 4 * lanes // block_d)
    return BackwardRows(side_by_side * problem.groups, chunks, vectors, columns, block_d, block_k, warps, stages)
