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

# (loads, warps, warps of a multiprocessor, tiles of a program). Columns have more tiles to a program, so that fewer
# programs exchange sums: 65536 x 512 bf16 takes 83 us, its gradient 110; with 8 warps 95 and 112.
ROWS, COLUMNS = (2, 4, 32, 1), (4, 16, 16, 2)
# Least tiles of a program of rows: more tiles make fewer programs.
TILES = (1, 2, 4)
# Warps of a multiprocessor for float32 columns forward: 65536 x 512 takes 128 us, 148 with 16; 240974 x 59 101 and
# 118. The same where no program waits: the gradient of 592 x 206606 bf16 takes 412 us, 444 with a pipeline instead,
# 535 with neither.
COLUMNS_WARPS_ALONE = 32
# Rows that are no whole vectors have twice the loads forward, more warps in gradients, and are padded. Over 45
# problems of more than 8 MB (tune --seed 0) 4 loads reach 90 % of the speed of the fastest configuration and 2 reach
# 76 %; in gradients 32 warps reach 75 %, 64 reach 97 % but spill 16 bytes; 36, the most that spill none, were not
# measured.
SINGLE_LOADS, SINGLE_WARPS = 4, 36
# Whole vectors with more programs to a channel than MANY_PARTS have so many warps to a multiprocessor. With 24 on sm_90
# 20 x 6 x 65536 bfloat16 spills 8 bytes, its gradient 16 (Triton 3.7), that of 4 x 16 x 262144 float32 24 (3.6 too);
# with up to 32 programs none does. The same where runs have heads and tails: 16 x 352 x 39489 float16 spills 8 bytes
# (Triton 3.7). On sm_100 with 20 the gradient of 20 x 6 x 65536 bfloat16 8 bytes, with 16 none.
MANY_PARTS, MANY_PARTS_WARPS, MANY_PARTS_WARPS_SM_100 = 32, 20, 16
# Of the loads of a loop.
STAGES = 3
# Registers of a thread whose elements are of several channels: with 64, 2787 x 719 x 8 float32 spills 64 bytes and
# 1536 x 21 x 32 float16 8; with 72 the first spills 8. Gradients of single elements have fewer loads in flight: 2787
# x 719 x 7 float32 needs 56.
CHANNELS_REGISTERS = 80
# Forward float64 of runs that are no whole vectors: where a program has whole channels, however long, it has twice the
# loads in flight: 8 x 760 x 5421 takes 302 us so, 354 by 528 programs (PyTorch 319), 8 x 300 x 5421 137 and 159 (147),
# unless in the last of its turns, which take as long each, most multiprocessors have none, or runs are shorter than its
# tile: 20 x 200 x 3001 142 us and 135, 8 x 700 x 1971 111 and 104 by half as many loads.
# Where several share a channel, in pieces of a power of two, which have a pipeline, of at most so many lanes for each
# element: 64 x 2 x 362249 405 us element by element in a pipeline, 517 by heads, vectors and tails without, 8 x 60 x
# 5421 32.7 and 36.3, 20 x 20 x 3001 21.7 and 23.5 (H100).
MAX_OF_LAST_TURN, WARPS_OF_PIECES, LOADS_OF_PIECES, MAX_PADDING_OF_PIECES = 4 / 3, 8, 8, 1.2
# Bytes of a gradient's only channel that one program goes through.
MAX_BYTES_ALONE = 32 << 10
# Tiles of a program of half as many columns forward, by the bytes of an element.
MAX_TILES_OF_HALF = {2: 4, 4: 2}
# Half as many columns of float32 to a program where a multiprocessor has no more elements, two tiles.
MAX_SHARE_OF_HALF = 8192
# Gradients of 16 bits with heads and tails, of at most so many times the bytes of L2, in turns that read so much of it:
# 8 x 428 x 5940 bf16 takes 70.8 us by 107 channels at once, by 143 74.0, by 214 76.2, by all of them, a program each,
# 83.7 (torch.compile 75.3; H100). 16 x 500 x 4096, of 2.5 times the bytes, 109 by half of them, 112 by all.
MAX_OF_L2_IN_TURNS, SHARE_OF_L2_IN_TURNS = 2, 2 / 5
# Few columns forward that programs would hold one by one, with as many rows as all registers of a multiprocessor hold:
# by groups of 8 warps 14440 x 5 float32 takes 6.76 us, 10.9 by column (4 warps spill; torch.compile 8.9), 9000 x 5 6.39
# and 8.33, 11769 x 8 float16 7.31 and 8.65, 12000 x 4 float32 6.63 and 8.74 (H100).
FEW_COLUMNS, ROWS_OF_FEW_COLUMNS = (4, 8), range(8193, 16385)
# Their loads, of whole vectors or not, and of odd numbers of more rows: 20000 x 5 float32 takes 7.16 us by 79 programs,
# by flat 9.66, 30000 x 7 bf16 7.56 and 11.4, 20000 x 6 float32, too, 7.21 and 10.4 (H100).
LOADS_OF_FEW_COLUMNS, SINGLES_OF_FEW_COLUMNS = 2, 8
# Most lanes for each element of a run that is read in pieces of a power of two: 32 x 2048 x 49 bf16 takes 14.3 us so,
# 20.4 without; 21627 x 22 x 3, with 4 lanes for 3 elements, 170 and 54.
MAX_PADDING = 1.32


def groups_of(problem: Problem, limits: Limits) -> Configuration:
    """What is estimated to take the least time."""
    by_registers = groups_by_registers(problem, limits)
    variants = _variants_of(by_registers, problem, limits)
    legal = (each for each in variants if launch_or_none(problem, each, limits) is not None)
    fastest = min(legal, key=lambda each: estimate(problem, each, limits), default=by_registers)
    return _in_turns(problem, fastest, limits)


def _in_turns(problem: Problem, groups: Configuration, limits: Limits) -> Configuration:
    """So few channels at once that L2 holds what is read again, where one program to each would read all of them."""
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
    """Of so many rows forward that a program would hold one; None for other problems."""
    A, C, B, size, inputs = problem
    whole = has_vectors(problem)
    possible = B == inputs == 1 and power_of_2(C) in FEW_COLUMNS and A in ROWS_OF_FEW_COLUMNS
    if not possible or size == 8 or (size == 2 and not whole) or limits.capability[0] != 9:
        return None
    loads = LOADS_OF_FEW_COLUMNS if whole else SINGLES_OF_FEW_COLUMNS
    configuration = Configuration("groups", power_of_2(C), 8, loads, 16)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None


def _variants_of(groups: Configuration, problem: Problem, limits: Limits) -> Iterator[Configuration]:
    # A pipeline takes registers: 32 x 256 x 3136 bf16 48 us, 56 by more programs without. On sm_80 16 bytes spill.
    # Forward elements one by one take more of them: 8 bytes spill with 24 warps (135 x 7 x 3982 bfloat16, sm_90).
    share = 5 / 8 if problem.inputs == 1 and problem.K > 1 and not has_vectors(problem) else 3 / 4
    pipelined = groups._replace(stages=STAGES, warps_per_sm=int(groups.warps_per_sm * share))
    if _has_many_parts(problem, pipelined, limits) or has_edges(problem):
        # Forward with 20 misaligned ones spill: 40 bytes of 3 x 528 x 19495 float32, on sm_80 16 of 16 bits.
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
            # Few columns by more, smaller programs: 16481 x 4 float32 8.3 us by 32 of 8 warps, flat 11.5, 11.2 by 8 of
            # 16 warps (H100; torch.compile 10.5).
            single = problem.N % 2 or (problem.itemsize == 4 and 2 < problem.N < FEW_COLUMNS[-1])
            single = single and not has_vectors(problem)
            loads = SINGLES_OF_FEW_COLUMNS if single else LOADS_OF_FEW_COLUMNS
            yield groups._replace(warps=8, loads=loads, warps_per_sm=16, tiles=1)
            if problem.itemsize == 2 and problem.N % 4 == 2 and problem.N > 2:
                # 23640 x 6 bf16 8.9 us by 47 programs of a pipeline, 10.6 by 23 of two tiles; but 60000 x 2 8.1 by 30
                # of a pipeline, 7.0 by 118 of 8 warps (H100).
                yield pipelined._replace(tiles=1)
        wide = has_vectors(problem) and problem.itemsize < 8
        alone = cdiv(problem.N, groups.channels) >= limits.sm_count
        if wide and alone and groups.loads == COLUMNS[0]:
            # With as many loads 8 bytes spill, forward 32 (592 x 206608 bfloat16).
            for warps_per_sm in (COLUMNS_WARPS_ALONE, groups.warps_per_sm):
                yield groups._replace(loads=groups.loads // 2, warps_per_sm=warps_per_sm)
        if alone and problem.inputs == 2 and problem.itemsize < 8:
            yield groups._replace(warps_per_sm=COLUMNS_WARPS_ALONE)
        if wide and problem.inputs == 2 and problem.itemsize == 4:
            # As many programs as there is room for where columns are short: the gradient of 3012 x 512 float32 takes
            # 21.6 us by 128 programs of two tiles at most, by flat 24.7 (H100; PyTorch 22.6). Of misaligned 16 bits 152
            # bytes spill (4012 x 512 bf16).
            yield groups._replace(tiles=1)
        narrow = problem.inputs == 2 and limits.sm_count * groups.channels >= 4 * problem.N
        half = groups._replace(channels=groups.channels // 2, loads=COLUMNS[0] // 2)
        if wide and problem.inputs == 1 and problem.N > MAX_EARLY_COLUMNS:
            # Forward half as many columns where each program has few tiles, and flat's programs add up two blocks of
            # channels: 6319 x 144 float16 12.7 us, with all columns 17.3, by flat 16.5 (torch.compile 11.9), float32
            # 12.3, by flat 14.4, 20000 x 144 bf16 18.8 and 21.0, 5000 x 200 13.1 and 13.0 (H100).
            one_each, most = half._replace(tiles=1), MAX_TILES_OF_HALF[problem.itemsize]
            launched = launch_or_none(problem, one_each, limits)
            if isinstance(launched, Groups) and launched.slice_size <= most * launched.tiling.rows:
                yield one_each
        if wide and narrow and problem.itemsize == 2:
            # Half as many columns, so that fewer programs wait for each other: the gradient of 7868 x 304 bf16 takes
            # 22.4 us so, 26.1 with all of them, by flat 25.1, of 15789 x 304 with all 35.0, by flat 37.7 (H100; PyTorch
            # 23.3 and 39.0). And more programs where columns are short: of 3947 x 304 15.9 us, by flat 18.5.
            yield half
            yield half._replace(tiles=1)
        elif wide and narrow and limits.sm_count * MAX_SHARE_OF_HALF >= problem.M * problem.N:
            # 6287 x 128 float32 16.1 us, 18.0 with all columns, by flat 17.4 (H100).
            yield half._replace(tiles=1)
        # Of whole vectors 104 and 288 bytes spill (156093 x 168 bfloat16, both directions), of float32 that are not
        # aligned 32 (20000 x 128 takes 25.5 us so, 26.1 without; H100), of float64 on sm_100 8 (70000 x 128). Single
        # columns have no pipeline.
        spills = wide or (problem.itemsize == 8 and limits.capability[0] > 9)
        yield groups if spills or problem.N % 2 else pipelined
        return
    # On sm_100 8 bytes of a gradient spill.
    alone = has_vectors(problem) and (problem.inputs == 1 or limits.capability[0] == 9)
    # Few programs do not wait long for each other: the gradient of one channel of 9411 float32 takes 7.5 us by nine, of
    # 28685 7.6 by 28, but by one program 8.9, and of 26192 bf16 8.6; of 8448 bf16 5.9.
    bytes_of_one = problem.M * problem.K * problem.itemsize if problem.N == 1 and problem.inputs == 2 else 0
    balanced = cdiv(problem.N, limits.sm_count) * limits.sm_count <= MAX_OF_LAST_TURN * problem.N
    tile = elements(problem, 2 * groups.loads, True) * MAX_WARPS * WARP
    in_flight = single_float64 and limits.capability[0] == 9 and balanced and tile <= problem.K
    short = problem.M * problem.K <= MAX_ALONE or in_flight
    if alone and short and bytes_of_one <= MAX_BYTES_ALONE:
        # With heads and tails 8 bytes spill (3 x 3 x 8001 float16).
        loads = groups.loads if has_edges(problem) and not in_flight else 2 * groups.loads
        yield groups._replace(warps=MAX_WARPS, loads=loads, warps_per_sm=MAX_WARPS, tiles=ALONE)
    for least in TILES:
        yield pipelined._replace(tiles=least)
        if problem.inputs == 1 and groups.channels > problem.N and has_vectors(problem):
            # No lanes of channels that there are not: 22324 x 3 x 8 bf16 takes 7.8 us so, 9.6 by four channels at a
            # time, whose sums spill 48 bytes (H100).
            yield pipelined._replace(channels=1, tiles=least)


def _has_many_parts(problem: Problem, groups: Configuration, limits: Limits) -> bool:
    """Whether channels of whole vectors have so many programs that merging them spills."""
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
        # 28304 x 64 bfloat16 spills 32 and 56 bytes on sm_80 and sm_100.
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
    # Of few rows several tiles too.
    while columns and warps > 4 and A * channels < 2 * elements(problem, loads, has_vectors(problem)) * warps * WARP:
        warps //= 2
    configuration = Configuration("groups", channels, warps, loads, warps_per_sm, least)
    if _padded(problem, configuration):
        return configuration._replace(channels=max(channels // 2, 1), padded=True)
    return configuration


def _padded(problem: Problem, configuration: Configuration) -> bool:
    """Whether it is worth masked lanes not to divide for each load: where a load is of less than a vector."""
    return problem.K > 1 and not has_vectors(problem) and _padding(problem, configuration) <= MAX_PADDING


def _padding(problem: Problem, configuration: Configuration) -> float:
    """Lanes for each element of a run that is read in pieces."""
    _, channels, warps, loads, *_ = configuration
    run = tiles(problem, channels, warps, loads, True).run
    return cdiv(problem.K, run) * run / problem.K if run else math.inf
