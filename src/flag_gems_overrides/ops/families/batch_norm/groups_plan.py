# SPDX-License-Identifier: Apache-2.0
"""Configurations of groups of programs that share a block of channels, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import WARP, cdiv, power_of_2
from .estimate import MAX_EARLY_COLUMNS, estimate
from .launches import (
    ALONE,
    LITTLE_BYTES,
    MAX_ALONE,
    MAX_WARPS,
    Configuration,
    Groups,
    Problem,
    elements,
    has_edges,
    has_vectors,
    launch_or_none,
    min_registers,
    tiles,
)
from .side_by_side import ROW_BYTES, neighbours

# (loads, warps, warps of a multiprocessor, tiles of a program). Columns have more warps and tiles to a program, so that
# fewer programs exchange sums. 65536 x 512 bf16: 83 us, with 8 warps 95.
ROWS, COLUMNS = (2, 4, 32, 1), (4, 16, 16, 2)
# Minimum tiles of a program of rows, one of these. More tiles make fewer programs.
TILES = (1, 2, 4)
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

# Forward float64 of runs that are no whole vectors. A program that has whole channels has twice the loads in flight.
# 8 x 760 x 5421: 302 us, by 528 programs 354 (H100).

# Such programs are used up to this ratio of channels in full turns to all channels: all turns take the same time, and
# most multiprocessors may have none in the last. 20 x 200 x 3001: 142 us, by half as many loads 135 (H100).
MAX_OF_LAST_TURN = 4 / 3
# Programs that share a channel read pieces of a power of two in a pipeline: their warps and loads.
# 64 x 2 x 362249: 405 us, by heads, vectors and tails without a pipeline 517 (H100).
WARPS_OF_PIECES, LOADS_OF_PIECES = 8, 8
# Maximum lanes of these pieces for each element.
MAX_PADDING_OF_PIECES = 1.2

# Maximum bytes of the only channel of a gradient that one program goes through.
MAX_BYTES_ALONE = 32 << 10
# Maximum tiles of a program of half as many columns forward, by the bytes of an element.
MAX_TILES_OF_HALF = {2: 4, 4: 2}
# Maximum elements to a multiprocessor, two tiles, with which a program of a float32 gradient has half as many columns.
MAX_SHARE_OF_HALF = 8192
# Gradients of 16 bits with heads and tails, of at most this many times the bytes of L2, are read in turns.
# 8 x 428 x 5940 bf16: 70.8 us by 107 channels at once, 83.7 by all of them (H100).
MAX_OF_L2_IN_TURNS = 2
# Share of L2 that a turn reads.
SHARE_OF_L2_IN_TURNS = 2 / 5
# Forward, this number of columns, rounded up to a power of two, is read by groups of 8 warps where programs would hold
# columns one by one. 14440 x 5 float32: 6.76 us, by column 10.9 (H100). 4 warps spill.
FEW_COLUMNS = (4, 8)
# Rows of these columns: as many as all registers of a multiprocessor hold.
ROWS_OF_FEW_COLUMNS = range(8193, 16385)
# Loads of few columns in whole vectors, and of single elements, also of odd numbers of more rows.
# 20000 x 5 float32: 7.16 us by 79 programs, by flat 9.66 (H100).
LOADS_OF_FEW_COLUMNS, SINGLES_OF_FEW_COLUMNS = 2, 8
# Maximum lanes for each element of a run that is read in pieces of a power of two.
# 32 x 2048 x 49 bf16: 14.3 us, without pieces 20.4; 21627 x 22 x 3, 4 lanes for 3 elements: 170, without 54.
MAX_PADDING = 1.32


def groups_of(problem: Problem, limits: Limits) -> Configuration:
    """The configuration with the lowest estimate."""
    by_registers = groups_by_registers(problem, limits)
    variants = _variants_of(by_registers, problem, limits)
    legal = (each for each in variants if launch_or_none(problem, each, limits) is not None)
    fastest = min(legal, key=lambda each: estimate(problem, each, limits), default=by_registers)
    return _in_turns(problem, fastest, limits)


def _in_turns(problem: Problem, groups: Configuration, limits: Limits) -> Configuration:
    """Fewer channels at once, so that L2 holds what is read again, where a program to each channel would read all."""
    total = problem.M * problem.N * problem.K * problem.itemsize * problem.inputs
    launched = launch_or_none(problem, groups, limits)
    alone = isinstance(launched, Groups) and launched.group == 1 and launched.programs == problem.N
    little_more = limits.l2_bytes < total <= MAX_OF_L2_IN_TURNS * limits.l2_bytes
    if not (problem.inputs == problem.itemsize == 2 and has_edges(problem) and alone and little_more):
        return groups
    blocks = cdiv(problem.N, cdiv(total, int(SHARE_OF_L2_IN_TURNS * limits.l2_bytes)))
    in_turns = groups._replace(blocks=blocks)
    return in_turns if launch_or_none(problem, in_turns, limits) is not None else groups


def few_columns(problem: Problem, limits: Limits) -> Configuration | None:
    """Forward, many rows of few columns, where a program would hold one column. None for other problems."""
    A, C, B, size, inputs = problem
    whole = has_vectors(problem)
    possible = B == inputs == 1 and power_of_2(C) in FEW_COLUMNS and A in ROWS_OF_FEW_COLUMNS
    if not possible or size == 8 or (size == 2 and not whole) or limits.capability[0] != 9:
        return None
    loads = LOADS_OF_FEW_COLUMNS if whole else SINGLES_OF_FEW_COLUMNS
    configuration = Configuration("groups", power_of_2(C), 8, loads, 16)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None


def _variants_of(groups: Configuration, problem: Problem, limits: Limits) -> Iterator[Configuration]:
    # A pipeline takes registers and leaves fewer warps. On sm_80 16 bytes spill. Single elements forward take more
    # registers: 8 bytes spill with 24 warps on sm_90. 32 x 256 x 3136 bf16: 48 us, without a pipeline 56.
    share = 5 / 8 if problem.inputs == 1 and problem.K > 1 and not has_vectors(problem) else 3 / 4
    pipelined = groups._replace(stages=STAGES, warps_per_sm=int(groups.warps_per_sm * share))
    if _has_many_parts(problem, pipelined, limits) or has_edges(problem):
        # Forward with 20 warps unaligned runs spill: 40 bytes of 3 x 528 x 19495 float32, on sm_80 16 of 16 bits.
        few = limits.capability[0] > 9 or (problem.inputs == 1 and has_edges(problem))
        pipelined = pipelined._replace(warps_per_sm=MANY_PARTS_WARPS_SM_100 if few else MANY_PARTS_WARPS)
    single_float64 = problem.inputs == 1 and problem.itemsize == 8 and has_edges(problem)
    if single_float64:
        pieces = pipelined._replace(warps=WARPS_OF_PIECES, loads=LOADS_OF_PIECES, padded=True, stages=STAGES)
        pipelined = pipelined._replace(stages=1)  # or 24 bytes of 3 x 3 x 8001 spill, even with 128 registers
        shared = limits.sm_count > problem.N
        if limits.capability[0] == 9 and shared and _padding(problem, pieces) <= MAX_PADDING_OF_PIECES:
            pipelined = pieces
            yield pieces._replace(warps=WARPS_OF_PIECES // 2)
    elif limits.capability[0] < 9:
        pipelined = pipelined._replace(stages=1) if share < 3 / 4 or has_edges(problem) else groups
    elif problem.K == 1 and groups.warps_per_sm == COLUMNS_WARPS_ALONE:
        pipelined = groups
    if problem.K == 1:
        little = problem.M * problem.N * problem.itemsize <= LITTLE_BYTES
        if problem.inputs == 1 and groups.channels >= problem.N and little:
            # Few columns by more, smaller programs.
            # 16481 x 4 float32: 8.3 us by 32 of 8 warps, 11.2 by 8 of 16 warps (H100).
            single = problem.N % 2 or (problem.itemsize == 4 and 2 < problem.N < FEW_COLUMNS[-1])
            single = single and not has_vectors(problem)
            loads = SINGLES_OF_FEW_COLUMNS if single else LOADS_OF_FEW_COLUMNS
            yield groups._replace(warps=8, loads=loads, warps_per_sm=16, tiles=1)
            if problem.itemsize == 2 and problem.N % 4 == 2 and problem.N > 2:
                # 23640 x 6 bf16: 8.9 us by 47 programs with a pipeline, 10.6 by 23 of two tiles; 60000 x 2 bf16: 8.1 by
                # 30 with a pipeline, 7.0 by 118 of 8 warps (H100).
                yield pipelined._replace(tiles=1)
        wide = has_vectors(problem) and problem.itemsize < 8
        alone = cdiv(problem.N, groups.channels) >= limits.sm_count
        if wide and alone and groups.loads == COLUMNS[0]:
            # With twice the loads gradients spill 8 bytes, forward 32 (592 x 206608 bf16).
            for warps_per_sm in (COLUMNS_WARPS_ALONE, groups.warps_per_sm):
                yield groups._replace(loads=groups.loads // 2, warps_per_sm=warps_per_sm)
        if alone and problem.inputs == 2 and problem.itemsize < 8:
            yield groups._replace(warps_per_sm=COLUMNS_WARPS_ALONE)
        if wide and problem.inputs == 2 and problem.itemsize == 4:
            # As many programs as there is room for where columns are short. Unaligned 16 bits spill 152 bytes (4012 x
            # 512). Gradient of 3012 x 512 float32: 21.6 us by 128 programs of at most two tiles, by flat 24.7 (H100).
            yield groups._replace(tiles=1)
        narrow = problem.inputs == 2 and limits.sm_count * groups.channels >= 4 * problem.N
        half = groups._replace(channels=groups.channels // 2, loads=COLUMNS[0] // 2)
        if wide and problem.inputs == 1 and problem.N > MAX_EARLY_COLUMNS:
            # Forward half as many columns where each program has few tiles, and programs of flat add up two blocks of
            # channels. 6319 x 144 float16: 12.7 us, with all columns 17.3; 5000 x 200 bf16: 13.1, by flat 13.0 (H100).
            one_each, most = half._replace(tiles=1), MAX_TILES_OF_HALF[problem.itemsize]
            launched = launch_or_none(problem, one_each, limits)
            if isinstance(launched, Groups) and launched.slice_size <= most * launched.tiling.rows:
                yield one_each
        if wide and narrow and problem.itemsize == 2:
            # Half as many columns, so that fewer programs wait for each other. More programs where columns are short.
            # Gradient of 7868 x 304 bf16: 22.4 us, with all columns 26.1 (H100).
            yield half
            yield half._replace(tiles=1)
        elif wide and narrow and limits.sm_count * MAX_SHARE_OF_HALF >= problem.M * problem.N:
            # 6287 x 128 float32: 16.1 us, with all columns 18.0 (H100).
            yield half._replace(tiles=1)
        # No pipeline where it spills: whole vectors 104 bytes (156093 x 168 bf16), unaligned float32 32 (20000 x 128),
        # float64 on sm_100 8 (70000 x 128). Single columns have no pipeline.
        spills = wide or (problem.itemsize == 8 and limits.capability[0] > 9)
        yield groups if spills or problem.N % 2 else pipelined
        return
    # On sm_100 gradients spill 8 bytes.
    alone = has_vectors(problem) and (problem.inputs == 1 or limits.capability[0] == 9)
    # A gradient's only channel is shared if it is large: few programs do not wait long for each other.
    # One channel of 28685 float32: 7.6 us by 28 programs, 8.9 by one.
    bytes_of_one = problem.M * problem.K * problem.itemsize if problem.N == 1 and problem.inputs == 2 else 0
    balanced = cdiv(problem.N, limits.sm_count) * limits.sm_count <= MAX_OF_LAST_TURN * problem.N
    tile = elements(problem, 2 * groups.loads, True) * MAX_WARPS * WARP
    in_flight = single_float64 and limits.capability[0] == 9 and balanced and tile <= problem.K
    short = problem.M * problem.K <= MAX_ALONE or in_flight
    if alone and short and bytes_of_one <= MAX_BYTES_ALONE:
        # Twice the loads with heads and tails spill 8 bytes (3 x 3 x 8001 float16).
        loads = groups.loads if has_edges(problem) and not in_flight else 2 * groups.loads
        yield groups._replace(warps=MAX_WARPS, loads=loads, warps_per_sm=MAX_WARPS, tiles=ALONE)
    for least in TILES:
        yield pipelined._replace(tiles=least)
        if problem.inputs == 1 and groups.channels > problem.N and has_vectors(problem):
            # No lanes for absent channels. 22324 x 3 x 8 bf16: 7.8 us, by four channels at a time, which spill, 9.6
            # (H100).
            yield pipelined._replace(channels=1, tiles=least)


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
