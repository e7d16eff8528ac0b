# SPDX-License-Identifier: Apache-2.0
"""How a cumsum over N of [M, N, K] is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits
from ...plans import table
from .launches import (
    KNOWN_MULTIPLE,
    MAX_WARPS,
    WARP,
    Chunks,
    Configuration,
    Launch,
    Problem,
    Steps,
    Whole,
    estimate,
    largest,
    launch,
    launch_or_none,
    resident_programs,
    steps_elements,
)

__all__ = [
    "Chunks",
    "Configuration",
    "Problem",
    "Steps",
    "Whole",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
]

# Elements of a thread, and of a tile at least, where N is in one tile.
WHOLE_ELEMENTS, MIN_TILE = 16, 1024
# The same where that is little, in elements for each multiprocessor: a scan goes through the elements of a thread one
# after the other. With 16 elements 79 x 140 bool took 6.9 us, upstream 2.8, 856 x 80 int64 7.2, upstream 3.2.
LITTLE, LITTLE_ELEMENTS = 2048, 4
# Bytes of the columns that a tile has side by side; fewer where that leaves multiprocessors idle, for an exchange
# costs more: with 128, 22 steps of groups of 6 took 168 us (8192 x 4096 bf16 along 0); the 8 steps of programs that
# are alone took 26 us (256 x 65536 bf16 along 1).
COLUMN_BYTES, SECTOR_BYTES = 128, 32
# (warps, registers of a thread) of a tile where N takes several: as many registers as spill nothing. They say how many
# programs run at once. Rows that are no whole vectors are read element by element, each with its address.
ROW_TILE, OTHER_ROW_TILE, COLUMN_TILE, OTHER_COLUMN_TILE = (16, 64), (8, 128), (8, 96), (8, 128)
# A step of a group takes as long as so many of a program alone: 7.6 and 1.6 us.
EXCHANGES = 4
# Programs that are alone have half the warps where there are many: 64 x 512 x 512 bf16 46 us, 71 with all of them,
# 8192 x 50257 691, 1339. Rows to a multiprocessor: 256 of 65536 take 28 us with all, 38 with half. Blocks of columns
# have a quarter: 801 x 65536 bf16 along 0 92 us, with half 134.
MANY_ROWS = 4
# Of chunks: with 16 elements of a thread, 32 KiB of bf16 are on their way to each multiprocessor.
CHUNK_WARPS, CHUNKS_PER_SM = 8, 4
# By the estimate, which is closer for one launch than for two; and bytes that may be worth two: with one, 786240 took
# 8.0 us and 908480 9.4, and the estimate of chunks is 5.8.
MIN_CHUNKS_GAIN, MIN_CHUNKS_BYTES = 1.25, 1 << 18
# Longer rows that leave much of one tile empty take several.
MAX_WASTEFUL = 4096


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, size, integer = problem
    return integer, size, K == 1, math.gcd(N if K == 1 else K, KNOWN_MULTIPLE) == KNOWN_MULTIPLE


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup(
        "scan",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    return found or _default(problem, limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: legal, and each another launch."""
    default = _default(problem, limits)
    steps = _steps(problem, default.block_k, limits)
    candidates = [default]
    for each in (default, steps, _chunks(problem)):
        elements, warps, block_k = each.elements, each.warps, each.block_k
        candidates += [
            each._replace(shared=not each.shared),
            each._replace(elements=elements // 2),
            each._replace(elements=elements // 2, warps=warps * 2),
            each._replace(warps=warps // 2),
            each._replace(warps=warps * 2),
            each._replace(block_k=block_k // 2),
            each._replace(block_k=block_k * 2),
            each._replace(per_sm=each.per_sm // 2),
            each._replace(per_sm=each.per_sm * 2),
        ]
    # Whole columns, as many as a tile takes.
    width = largest(problem) // next_power_of_2(problem.N)
    for warps in (MAX_WARPS // 2, MAX_WARPS):
        elements = largest(problem) // (warps * WARP)
        candidates.append(Configuration("whole", elements, warps, max(min(width, default.block_k), 1)))
    found: dict[Launch, Configuration] = {}
    for candidate in candidates:
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch that is chosen, for a problem of at least one element."""
    return launch(problem, choose(problem, limits), limits)


def _default(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, _ = problem
    block_n = next_power_of_2(N)
    block_k = min(next_power_of_2(K), max(COLUMN_BYTES // size, MIN_TILE // block_n))
    while block_k * size > SECTOR_BYTES and M * cdiv(K, block_k) < 2 * limits.sm_count:
        block_k //= 2
    most = largest(problem)
    # 3632 x 5496 bf16 in one tile of 8192: 119 us, upstream 59.
    wasteful = K == 1 and MAX_WASTEFUL < block_n <= most and 7 * block_n > 8 * N
    little = M * block_n * cdiv(K, block_k) * block_k <= LITTLE * limits.sm_count
    if little and K > 1:
        # 7 x 528 x 6 float32 in two steps of 8 columns: 5.9 us, upstream 3.5.
        block_k = max(min(block_k, most // block_n), 2)
    if block_n * block_k > most or wasteful:
        steps, chunks = _steps(problem, block_k, limits), _chunks(problem)
        if M * N * K * size < MIN_CHUNKS_BYTES or launch_or_none(problem, chunks, limits) is None:
            return steps
        gain = estimate(problem, steps, limits) / estimate(problem, chunks, limits)
        return chunks if gain > MIN_CHUNKS_GAIN else steps
    min_tile, elements = (MIN_TILE // 4, LITTLE_ELEMENTS) if little else (MIN_TILE, WHOLE_ELEMENTS)
    block_m = min(next_power_of_2(M), max(min_tile // (block_n * block_k), 1))
    tile = block_m * block_n * block_k
    warps = max(1, min(MAX_WARPS, tile // (WARP * elements)))
    return Configuration("whole", max(tile // (warps * WARP), 1), warps, block_k)


def _steps(problem: Problem, block_k: int, limits: Limits) -> Configuration:
    M, N, K, size, _ = problem
    if K > 1:
        warps, registers = COLUMN_TILE if size < 8 and K % KNOWN_MULTIPLE == 0 else OTHER_COLUMN_TILE
    else:
        # Where there are so many rows that each has one program, smaller ones leave no multiprocessor idle.
        few = limits.sm_count >= M and size < 8 and N % KNOWN_MULTIPLE == 0
        warps, registers = ROW_TILE if few else OTHER_ROW_TILE
    elements = steps_elements(problem)
    tiles = cdiv(N, elements * warps * WARP // block_k)
    group = max(min(tiles, resident_programs(registers, warps, limits) // (M * cdiv(K, block_k))), 1)
    shared = cdiv(tiles, group) * EXCHANGES < tiles
    if not shared and (K > 1 or MANY_ROWS * limits.sm_count < M):
        warps //= 4 if K > 1 and MANY_ROWS * limits.sm_count <= M * cdiv(K, block_k) else 2
    return Configuration("steps", elements, warps, block_k, registers, shared)


def _chunks(problem: Problem) -> Configuration:
    block_k = min(next_power_of_2(problem.K), COLUMN_BYTES // problem.size)
    return Configuration("chunks", steps_elements(problem), CHUNK_WARPS, block_k, per_sm=CHUNKS_PER_SM)
