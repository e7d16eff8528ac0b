# SPDX-License-Identifier: Apache-2.0
"""Configurations of groups of programs that share a block of channels, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import LITTLE_BYTES, MAX_ALONE, MAX_WARPS, elements, has_edges, has_vectors, min_registers, tiles
from .types import ALONE, Configuration, Problem

# Bytes of a row of columns that a program reads side by side, twice as many for float64.
# 768 x 12661 float64: 84 us, with 128 bytes 118.
ROW_BYTES = 128
# Bytes of neighbouring channels that a program reads side by side at least, half of it if they are padded.
# 50000 x 16 x 7 bf16: 49.9 us, with all of it 84.6.
NEIGHBOUR_BYTES = 128
# (loads, warps, warps of a multiprocessor, tiles of a program). Columns have more warps and tiles to a program, so that
# fewer programs exchange sums. 65536 x 512 bf16: 83 us, with 8 warps 95.
ROWS, COLUMNS = (2, 4, 32, 1), (4, 16, 16, 2)
# Warps of a multiprocessor for float32 columns forward, and where no program waits.
# 65536 x 512 float32: 128 us, with 16 warps 148; gradient of 592 x 206606 bf16: 412, with a pipeline instead 444.
COLUMNS_WARPS_ALONE = 32
# Loads forward of rows that are no whole vectors: 45 problems of more than 8 MB reach 90 % of the speed of the fastest
# configuration, 76 % with 2 loads.
SINGLE_LOADS = 4
# Warps of a multiprocessor for gradients of rows that are no whole vectors. 64 would be faster, but spill 16 bytes.
SINGLE_WARPS = 36
# Programs to a channel above which whole vectors get MANY_PARTS_WARPS warps to a multiprocessor: to merge more parts
# takes registers. Runs with heads and tails get them too.
MANY_PARTS = 32
# Warps above MANY_PARTS. With 24, 20 x 6 x 65536 bf16 spills 8 bytes on sm_90, and with 20 on sm_100.
MANY_PARTS_WARPS, MANY_PARTS_WARPS_SM_100 = 20, 16
# Stages of a loop's loads.
STAGES = 3
# Registers of a thread whose elements are of several channels. With 64, 2787 x 719 x 8 float32 spills 64 bytes, with 72
# still 8. Gradients of single elements have fewer loads in flight and need less.
CHANNELS_REGISTERS = 80
# Programs that share a channel of float64 read pieces of a power of two in a pipeline: their warps and loads.
# 64 x 2 x 362249: 405 us, by heads, vectors and tails without a pipeline 517 (H100).
WARPS_OF_PIECES, LOADS_OF_PIECES = 8, 8
# Up to this many times the bytes of L2, channels may be read in turns, each of a share of L2.
# Gradient of 8 x 428 x 5940 bf16: 70.8 us by 107 channels at once, 83.7 by all of them (H100).
MAX_OF_L2_IN_TURNS, SHARE_OF_L2_IN_TURNS = 2, 2 / 5
# Warps of small programs of few columns, one of their loads, and warps of a multiprocessor.
# 14440 x 5 float32: 6.76 us, by column 10.9 (H100).
WARPS_OF_FEW_COLUMNS, LOADS_OF_FEW_COLUMNS, FEW_COLUMNS_WARPS = 8, (2, 4, 8), 16
# Maximum lanes for each element of a run that is read in pieces of a power of two.
# 32 x 2048 x 49 bf16: 14.3 us, without pieces 20.4; 21627 x 22 x 3, 4 lanes for 3 elements: 170, without 54.
MAX_PADDING = 1.32
# Maximum warps of a multiprocessor that may be halved to double the loads of a thread. With 128 registers 16 bytes
# spill: gradient of 24 x 18 x 2984 bf16.
MAX_OF_MORE_LOADS = 28
# Maximum tiles, of twice as many loads, of a program that has single columns forward.
# 231847 x 5 bf16, 7 tiles by 8 warps to a multiprocessor: 26.3 us, by 16 warps 15.9 (H200).
MAX_TILES_OF_SINGLE = 2
# Programs to a multiprocessor up to which the gradient of one channel has more programs instead of more loads.
# 1 x 1 x 120047 float16: 6.07 us by a load, by two 6.79; 1 x 1 x 229920 bf16: 6.22 by two, by four 7.18 (H200).
PROGRAMS_OF_ONE = 1.5
# Minimum tiles of a program that has twice as many as others, so that fewer programs exchange sums.
MORE_TILES = 2


def groups_of(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Some may not be legal. None has fewer registers for its loads than those that were compiled without spills."""
    for groups in (_columns if problem.K == 1 else _rows)(groups_by_registers(problem, limits), problem, limits):
        if groups.tiles == ALONE:
            yield groups
            for warps in (groups.warps, groups.warps // 2):
                yield groups._replace(warps=warps)
                yield groups._replace(warps=warps, loads=max(groups.loads // 2, 1))
            continue
        few = _has_few_programs(problem, groups, limits)
        if few and _has_few_programs(problem, groups._replace(loads=groups.loads // 2), limits):
            groups = groups._replace(loads=groups.loads // 2)
        larger = [groups]
        if problem.K > 1:
            larger.append(groups._replace(warps=2 * groups.warps))
        if (
            groups.warps_per_sm in range(2 * groups.warps, MAX_OF_MORE_LOADS + 1)
            and groups.loads <= COLUMNS[0]
            and not few
            and not _has_many_single_columns(problem, groups, limits)
        ):
            # Twice as many registers for twice as many loads.
            larger.append(groups._replace(loads=2 * groups.loads, warps_per_sm=groups.warps_per_sm // 2))
        for each in larger:
            yield each
            yield each._replace(tiles=MORE_TILES * each.tiles)
            yield each._replace(tiles=MORE_TILES**2 * each.tiles)
            # Forward columns with 64 registers spill 8 bytes: 46882 x 14 float32.
            if problem.K > 1 or problem.inputs == 2 or each.warps_per_sm < COLUMNS_WARPS_ALONE:
                yield each._replace(channels=max(each.channels // 2, 1))
            yield each._replace(stages=1)


def _columns(groups: Configuration, problem: Problem, limits: Limits) -> Iterator[Configuration]:
    yield groups
    wide = has_vectors(problem) and problem.itemsize < 8
    if problem.inputs == 1 and groups.channels >= problem.N:
        for loads in LOADS_OF_FEW_COLUMNS[: 1 if wide else None]:
            yield groups._replace(
                warps=WARPS_OF_FEW_COLUMNS, loads=loads, warps_per_sm=FEW_COLUMNS_WARPS, tiles=1
            )  # fmt: skip
    alone = cdiv(problem.N, groups.channels) >= limits.sm_count
    if wide and alone and groups.loads == COLUMNS[0]:
        # With twice the loads gradients spill 8 bytes, forward 32 (592 x 206608 bf16).
        yield groups._replace(loads=groups.loads // 2, warps_per_sm=COLUMNS_WARPS_ALONE)
    if alone and problem.inputs == 2 and problem.itemsize < 8:
        yield groups._replace(warps_per_sm=COLUMNS_WARPS_ALONE)
    yield groups._replace(channels=max(groups.channels // 2, 1), loads=COLUMNS[0] // 2)
    if wide and (problem.itemsize == 4 or groups.loads < COLUMNS[0]):
        yield groups._replace(tiles=1)  # unaligned 16 bits spill 152 bytes (4012 x 512)
    # No pipeline where it spills: whole vectors 104 bytes (156093 x 168 bf16), unaligned float32 32 (20000 x 128),
    # float64 on sm_100 8 (70000 x 128).
    spills = wide or (problem.itemsize == 8 and limits.capability[0] > 9)
    if not spills and limits.capability[0] >= 9 and groups.warps_per_sm < COLUMNS_WARPS_ALONE:
        yield groups._replace(stages=STAGES, warps_per_sm=groups.warps_per_sm * 3 // 4)


def _rows(groups: Configuration, problem: Problem, limits: Limits) -> Iterator[Configuration]:
    # A pipeline takes registers and leaves fewer warps. On sm_80 16 bytes spill. Single elements forward take more
    # registers: 8 bytes spill with 24 warps on sm_90. 32 x 256 x 3136 bf16: 48 us, without a pipeline 56.
    single, edges, newest = not has_vectors(problem), has_edges(problem), limits.capability[0] > 9
    share = 5 / 8 if problem.inputs == 1 and single else 3 / 4
    pipelined = groups._replace(stages=STAGES, warps_per_sm=int(groups.warps_per_sm * share))
    many_parts = _has_many_parts(problem, pipelined, limits)
    if edges or many_parts:
        # Forward with 20 warps unaligned runs spill: 40 bytes of 3 x 528 x 19495 float32, on sm_80 16 of 16 bits.
        few = newest or (problem.inputs == 1 and edges)
        pipelined = pipelined._replace(warps_per_sm=MANY_PARTS_WARPS_SM_100 if few else MANY_PARTS_WARPS)
    if problem.inputs == 1 and problem.itemsize == 8 and edges:
        if limits.capability[0] == 9:
            yield pipelined._replace(warps=WARPS_OF_PIECES, loads=LOADS_OF_PIECES, padded=True)
        pipelined = pipelined._replace(stages=1)  # or 24 bytes of 3 x 3 x 8001 spill, even with 128 registers
    elif limits.capability[0] < 9:
        pipelined = pipelined._replace(stages=1) if share < 3 / 4 or edges else groups
    yield pipelined
    total = problem.M * problem.N * problem.K * problem.itemsize * problem.inputs
    if limits.l2_bytes < total <= MAX_OF_L2_IN_TURNS * limits.l2_bytes and has_vectors(problem):
        yield pipelined._replace(blocks=cdiv(problem.N, cdiv(total, int(SHARE_OF_L2_IN_TURNS * limits.l2_bytes))))
    # With 64 registers heads and tails spill 48 bytes: 32 x 417 x 12158 bf16.
    yield pipelined._replace(stages=1) if edges or many_parts else groups
    if groups.channels > 1 and has_vectors(problem):
        yield pipelined._replace(channels=1)
    # On sm_100 gradients spill 8 bytes.
    if has_vectors(problem) and (problem.inputs == 1 or limits.capability[0] == 9):
        short = problem.M * problem.K <= MAX_ALONE
        # Twice the loads with heads and tails spill 8 bytes (3 x 3 x 8001 float16).
        loads = groups.loads if edges and (short or problem.itemsize < 8 or newest) else 2 * groups.loads
        yield groups._replace(warps=MAX_WARPS, loads=loads, warps_per_sm=MAX_WARPS, tiles=ALONE)


def _has_few_programs(problem: Problem, groups: Configuration, limits: Limits) -> bool:
    """Whether the gradient of one channel has at most PROGRAMS_OF_ONE programs to a multiprocessor."""
    lanes = groups.loads * groups.warps * WARP * VECTOR_BYTES // problem.itemsize
    one = problem.N == 1 and problem.inputs == 2
    return one and PROGRAMS_OF_ONE * limits.sm_count * lanes >= problem.M * problem.K


def _has_many_single_columns(problem: Problem, groups: Configuration, limits: Limits) -> bool:
    """Whether twice as many loads of single columns forward leave a program more than MAX_TILES_OF_SINGLE tiles."""
    columns = cdiv(problem.N, groups.channels) * groups.channels
    loads = cdiv(problem.M * columns, limits.sm_count * groups.warps * WARP)
    single = problem.K == 1 and problem.inputs == 1 and not has_vectors(problem)
    return single and loads > MAX_TILES_OF_SINGLE * 2 * groups.loads


def _has_many_parts(problem: Problem, groups: Configuration, limits: Limits) -> bool:
    """Whether channels of whole vectors have more programs than can merge them without spills."""
    alike = problem.K > 1 and problem.itemsize < 8 and has_vectors(problem)
    at_once = limits.sm_count * (groups.warps_per_sm // groups.warps)
    return alike and groups.channels == 1 and at_once > MANY_PARTS * problem.N


def groups_by_registers(problem: Problem, limits: Limits) -> Configuration:
    """As many programs at once as there are registers for."""
    A, C, B, size, inputs = problem
    columns = B == 1
    loads, warps, warps_per_sm, least = COLUMNS if columns else ROWS
    if columns and inputs == 1 and size == 4 and not has_vectors(problem):
        warps_per_sm = COLUMNS_WARPS_ALONE  # of whole vectors 72 bytes spill (69460 x 32)
    elif columns and size == 8:
        loads //= 2  # 8 bytes spill
    if columns and inputs == 2 and limits.capability[0] != 9:
        # 28304 x 64 bf16 spills 32 bytes on sm_80 and 56 on sm_100.
        loads //= 2
    single = not columns and not has_vectors(problem)
    if single and inputs == 1:
        loads = max(loads, SINGLE_LOADS)
    elif single:
        warps_per_sm = max(warps_per_sm, SINGLE_WARPS)
    row_bytes = ROW_BYTES * (2 if size == 8 else 1)
    channels = min(row_bytes // size if columns else neighbours(problem), power_of_2(C))
    registers = min_registers(problem, limits)
    if channels > 1 and not columns and (inputs == 1 or has_vectors(problem)):
        registers = max(registers, CHANNELS_REGISTERS)
    max_warps = limits.registers_per_sm // WARP // registers
    warps_per_sm = min(warps_per_sm, max_warps // warps * warps)
    # Smaller programs, so that few rows make several tiles too.
    while columns and warps > 4 and A * channels < 2 * elements(problem, loads, has_vectors(problem)) * warps * WARP:
        warps //= 2
    configuration = Configuration("groups", channels, warps, loads, warps_per_sm, least)
    if _padded(problem, configuration):
        return configuration._replace(channels=max(channels // 2, 1), padded=True)
    return configuration


def _padded(problem: Problem, configuration: Configuration) -> bool:
    """Whether masked lanes are worth that threads do not divide: only where a load is less than a vector."""
    return problem.K > 1 and not has_vectors(problem) and _padding(problem, configuration) <= MAX_PADDING


def _padding(problem: Problem, configuration: Configuration) -> float:
    """Lanes for each element of a run that is read in pieces."""
    _, channels, warps, loads, *_ = configuration
    run = tiles(problem, channels, warps, loads, True).run
    return cdiv(problem.K, run) * run / problem.K if run else math.inf


def neighbours(problem: Problem) -> int:
    """Channels that a program has side by side. Of little data they fill a sector, as each load takes the time.

    Gradient of 9 x 120 x 5 bf16: 3.10 us with 8 channels, 3.27 with 16 (H100).
    """
    row = problem.K * problem.itemsize
    little = problem.M * problem.N * row <= LITTLE_BYTES
    if little:
        return power_of_2(cdiv(SECTOR_BYTES, row)) if 2 * row <= SECTOR_BYTES else 1
    return power_of_2(cdiv(NEIGHBOUR_BYTES, row))
