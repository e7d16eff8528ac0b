# SPDX-License-Identifier: Apache-2.0
"""Legal launches forward: what a program may hold, and the launch that a configuration means.

Figures in comments: the input as N x C x HW (N x C where HW is 1), its type and its groups, the time this way, and the
time otherwise.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2
from ..norm.launches import MAX_SHORT_ELEMENTS
from .launches import Configuration, Loop, Problem, Rows, ShortRows, Split, Vectors
from .loads import MAX_WARPS, check, evenly, pipeline, span, vectors_of

# Number of channels below which the number of a program's last channel is in int32.
MAX_SHORT_CHANNELS = 2**30
# Maximum number of warps of forward programs that hold groups. Above MAX_WARPS a thread has half the registers, and
# holds half as much.
MAX_ROWS_WARPS = 32
# Maximum number of elements of a thread of whole groups, forward. More spill. A float64 takes two registers.
# 440 x 3 x 20480 float64 in 3 groups: 152 us, in two launches, which read x twice, 231 (torch.compile 181, H100).
MAX_HELD = 80
# Registers of a thread beside the pairs that it holds, and 8 more where its program loads several channels at a time:
# without them 8 to 16 bytes spill (Triton 3.6).
REGISTERS_BESIDE_PAIRS = 24
# The same for vectors of several channels, whose weights take registers too.
MAX_HELD_OF_SEVERAL = 40
# Maximum number of elements of float32 or float64 of which a thread of 16 warps loads weight and bias together with x.
# With 32 a multiprocessor has one program, not two: 192 groups of 16 x 1024: 17.9 us, otherwise 14.8 (H100).
# And 80 bytes of float64 spill (440 x 2 x 8192 in 1 group, sm_90, Triton 3.6).
MAX_HELD_EARLY = 24


def short_rows(problem: Problem, configuration: Configuration, limits: Limits) -> ShortRows:
    _, warps, _, vec, *_ = configuration
    rows = vec // math.gcd(problem.size, vec)
    check(vec == power_of_2(vec) and vec * problem.itemsize <= VECTOR_BYTES, "a load has 16 bytes at most")
    # With a weight and a bias for each.
    elements = rows * problem.size * max(1, problem.itemsize // 4)
    check(elements <= MAX_SHORT_ELEMENTS // 2, "a thread has all elements in registers")
    check(problem.groups * problem.N < MAX_SHORT_CHANNELS, "numbers of channels are in 32 bits")
    groups = rows * warps * WARP
    check(cdiv(problem.M, groups) < 2**31, "a grid has fewer programs")
    return ShortRows(cdiv(problem.M, groups), groups, rows, vec, warps)


def rows(problem: Problem, configuration: Configuration, limits: Limits) -> Rows:
    _, warps, groups, vec, vectors_of_thread, _, _, programs_per_sm, _ = configuration
    check(vectors_of_thread == 1 or groups > 1, "chunks are of several groups")
    in_group = problem.size // vec
    lanes = min(power_of_2(cdiv(in_group, vectors_of_thread)), max(warps * WARP, 1))
    if problem.size % vec != 0:
        lanes = max(lanes, 2 * vec)  # one for each element of the edges
    vectors = vectors_of(problem, vec, lanes)
    check(groups == 1 or not vectors.unaligned, "neighbours start at different places of a vector")
    check(groups == power_of_2(groups) and groups // 2 < problem.M, "no lanes for more groups than there are")
    chunks = cdiv(in_group, lanes)
    per_thread = cdiv(groups * chunks * lanes * vec, warps * WARP)
    registers = 0
    if programs_per_sm:
        check(problem.itemsize == 2 and vec > 1 and groups == 1, "pairs of a vector")
        check(vectors.span == 1 and not vectors.unaligned, "vectors of one channel each")
        registers = min(limits.registers_per_sm // (programs_per_sm * warps * WARP) // 8 * 8, 255)
        check(needed_registers(problem, vec, warps) <= registers, "a thread has fewer registers")
    else:
        check(per_thread <= held(problem, vectors, warps), "a thread has more elements than registers")
    programs = cdiv(problem.M, groups)
    check(programs < 2**31, "a grid has fewer programs")
    return Rows(
        programs,
        groups,
        chunks,
        vectors,
        per_thread <= max_held_with_parameters(problem, vec, programs, limits, warps),
        warps,
        registers,
    )


def needed_registers(problem: Problem, vec: int, warps: int) -> int:
    """Registers of a thread of a program that holds a group of 16 bits as pairs."""
    pairs = cdiv(problem.size, vec * warps * WARP) * vec // 2
    several = 8 if vec * warps * WARP > problem.K else 0
    return cdiv(pairs + REGISTERS_BESIDE_PAIRS + several, 8) * 8


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


def loop(problem: Problem, configuration: Configuration, limits: Limits) -> Loop:
    _, warps, _, vec, vectors, _, _, programs_per_sm, stages = configuration
    check(programs_per_sm > 0, "a multiprocessor has programs")
    check(problem.size >= vec * warps * WARP, "a tile is larger than a group")
    check(vec * vectors <= _of_loop(problem), "a thread has more elements than registers")
    found = vectors_of(problem, vec, vectors * warps * WARP)
    check(pipeline(problem, stages, found.lanes * vec) * programs_per_sm <= limits.shared_bytes, "stages are shared")
    return Loop(evenly(problem.M, limits.sm_count * programs_per_sm), found, warps, stages)


def split(problem: Problem, configuration: Configuration, limits: Limits) -> Split:
    _, warps, _, vec, vectors, _, _, programs_per_sm, stages = configuration
    check(programs_per_sm > 0, "a multiprocessor has programs")
    check(vec * vectors <= _of_loop(problem), "a thread has more elements than registers")
    found = vectors_of(problem, vec, vectors * warps * WARP)
    in_group = problem.size // vec
    check(in_group > 0, "a group has a vector")
    tiles = cdiv(in_group, found.lanes)
    splits = max(1, min(limits.sm_count * programs_per_sm // problem.M, tiles))
    slice_size = cdiv(tiles, splits) * found.lanes
    return Split(cdiv(in_group, slice_size), slice_size, tiles, found, warps, stages)


def _of_loop(problem: Problem) -> int:
    """Elements that a thread may have of a tile of vectors: two vectors. Of 16 float32 8 bytes spill (512 x 40960)."""
    return 2 * VECTOR_BYTES // problem.itemsize
