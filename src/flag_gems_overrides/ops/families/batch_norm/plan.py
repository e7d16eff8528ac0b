# SPDX-License-Identifier: Apache-2.0
"""How a batch norm of [M, N, K] over M and K is launched: plain numbers in, a plan out. H200."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from ...plans import table
from .estimate import estimate
from .launches import (
    ALONE,
    FLAT_LOADS,
    FLAT_SHARE,
    FLAT_VECTORS,
    LITTLE_BYTES,
    MAX_ALONE,
    MAX_WARPS,
    Channels,
    Configuration,
    Flat,
    Groups,
    Launch,
    Problem,
    Tiling,
    block_of,
    elements,
    has_edges,
    has_vectors,
    held,
    held_of_one,
    launch,
    launch_or_none,
    min_registers,
    places,
    tiles,
)

__all__ = [
    "Channels",
    "Configuration",
    "Flat",
    "Groups",
    "Problem",
    "Tiling",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
    "plan_evaluation",
    "plan_sums",
]

# Bytes that a program reads side by side. Columns: ROW_BYTES, of float64 twice as many (768 x 12661 84 us, 118 with
# 128 bytes). Neighbouring channels: at least NEIGHBOUR_BYTES, half of it if they are padded (50000 x 16 x 7 bf16 49.9
# us, 84.6 with all of it).
ROW_BYTES, NEIGHBOUR_BYTES = 128, 128
# Most elements that a program has of neighbouring channels: the gradient of 445 x 29 x 2 bf16 takes 6.0 us, 8.9 with
# twice as many.
NEIGHBOUR_ELEMENTS = 4096
# Rows that a program has of neighbouring channels at most, unless all multiprocessors have more, where a row is one
# load: each lane of a warp then has another line for L1 to look up, one a cycle, for each tensor. 256 x 150 x 2 float16
# takes 6.5 us with 8 channels, 5.0 with 4; 1024 x 5 x 2 float32 7.4 with 4, 5.3 with 2; the gradients of 445 x 29 x 2
# bf16 8.9 with 8, 6.0 with 4, of 114 x 45 x 2 float16 5.0 with 8, 3.8 with 2 (H100).
NEIGHBOUR_ROWS = 64
# Programs that hold channels: where a multiprocessor has more warps than run at once, programs of more than FEW_WARPS
# get half as many, so that fewer warps wait for each other. 39 x 912883 bf16 takes 89 us so, 117 with 8; 32 x 2048 x 49
# 11.1 and 12.7, its gradient 15.2 and 17.6; the gradients of 5 x 980 x 425 13.8 and 15.1, of 17 x 524288 float64 82 and
# 183. But with 2 instead of 4 that of 16 x 57253 x 36 float32 120 and 116. Programs of columns get as few as hold them,
# of little too: the gradient of 9 x 131072 bf16 takes 10.8 us with 2, 17.5 with 4, 25.0 with 8 (H100; PyTorch 13.4),
# of 8 x 197184 float16 8.3 with 1, 13.6 with 4 (torch.compile 10.8), of 2 x 300000 bf16 6.5 with 1, 8.5 with 2.
WARPS_AT_ONCE, FEW_WARPS = 32, 4
# Programs that hold columns of fewer bytes than a sector of the cache read the rest of it for nothing, from L2:
# LITTLE_BYTES for more programs, down to so many elements of each (64 x 64 bf16 3.15 us with 256, 3.38 with 512, the
# gradient 3.37 and 3.73 with 1024), and so much for programs that hold their columns at all: 14.5 MB of 6319 x 144
# bf16 take 15.3 us so, 18.9 with groups, 17.2 of the gradient of 536 x 4013 bf16 19.9, 21.5 with flat (H100), but 33.6
# of that of 2048 x 1024 float32 28.2, 25.8 with groups (H100; on an H200 20.7 and 21.4, PyTorch 20.4).
LITTLE_ELEMENTS, MAX_BYTES_OF_SECTORS = 256, 20 << 20
# With more rows than these a program has registers for one column of a gradient, and L1 looks up as many lines as the
# rows that it loads from have: 4644 x 64 bf16 takes 16.9 us so, 12.0 with flat, 6000 x 32 float32 17.3 and 11.5, but
# 5687 x 2 bf16 4.9, 4200 x 16 7.6 (with flat 11.2), on an H100. The bytes of a row up to which they do are estimated
# between these, not timed.
ROWS_OF_ONE_COLUMN, MAX_ROW_BYTES = 4096, 64
# Programs that do not wait for each other: of so many waves the last one is a small part.
WAVES = 4
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
# Channels of fewer elements with heads and tails are held by programs, not gone through in tiles of more elements.
MIN_LOOPED = 2048
# flat: warps of a program, warps of a multiprocessor, stages. Whole vectors of float32 columns forward by FEW_WARPS, if
# these have a row: 69460 x 32 23.0 us, 24.4 with 8, 20000 x 128 27.6 and 30.1, 5000 x 512 23.7 and 25.4, 65536 x 512
# 153.8 and 154.8 (H100).
FLAT_WARPS, FLAT_WARPS_PER_SM, STAGES = (16, 8, 4), 16, 3
# Registers of a thread whose elements are of several channels: with 64, 2787 x 719 x 8 float32 spills 64 bytes and
# 1536 x 21 x 32 float16 8; with 72 the first spills 8. Gradients of single elements have fewer loads in flight: 2787
# x 719 x 7 float32 needs 56.
CHANNELS_REGISTERS = 80
# Bytes of a gradient's only channel that one program goes through.
MAX_BYTES_ALONE = 32 << 10
# What the table has is not taken where it is estimated to take so many times as long as the default. The row of the
# gradient of 6117 x 267, which takes 17.4 us by groups, 18.8 by default, is right for 7697 x 317 (21.4 and 26.7 us,
# estimated to take 1.2 times as long) and 4000 x 201 (13.9 and 15.2, 1.02), but 10963 x 469 takes 43.8 by groups, 30.3
# by default (1.8), 2000 x 151 13.6 and 7.9 (4.9), all of 16 bits.
MAX_OF_DEFAULT = 1.5
# Most lanes for each element of a run that is read in pieces of a power of two: 32 x 2048 x 49 bf16 takes 14.3 us so,
# 20.4 without; 21627 x 22 x 3, with 4 lanes for 3 elements, 170 and 54.
MAX_PADDING = 1.32


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, itemsize, inputs = problem
    return inputs, itemsize, K == 1, math.gcd(N if K == 1 else K, VECTOR_BYTES // itemsize)


def choose(problem: Problem, limits: Limits) -> Configuration:
    if _unaligned(problem, limits) is not None:
        # Tables were tuned when runs that begin anywhere were held element by element only.
        return _default(problem, limits)
    default = _default(problem, limits)
    found = table.lookup(
        "batch_norm",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    if found is None or estimate(problem, found, limits) > MAX_OF_DEFAULT * estimate(problem, default, limits):
        return default
    return found


def _default(problem: Problem, limits: Limits) -> Configuration:
    channels = _channels(problem, limits)
    if channels is not None and problem.K == 1:
        return channels
    found = [channels, _flat(problem, limits)]
    elements = problem.M * problem.K
    looped = problem.inputs == 2 and has_edges(problem)
    few = elements < MIN_LOOPED if looped else elements <= held(problem) * MAX_WARPS * WARP
    if channels is None or not few:
        found.append(_groups(problem, limits))
    return min((each for each in found if each), key=lambda each: estimate(problem, each, limits))


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: legal, and each another launch."""
    found: dict[Launch, Configuration] = {}
    for candidate in _candidates(problem, limits):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def _candidates(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    channels, groups, flat = _channels(problem, limits), _groups(problem, limits), _flat(problem, limits)
    yield _default(problem, limits)
    if channels is not None:
        yield from _neighbours_of(channels, "warps", "channels")
        yield channels._replace(loads=1 - channels.loads)
    if flat is not None:
        yield flat
        yield flat._replace(channels=1)
        yield from _neighbours_of(flat, "warps")
    yield groups
    yield _most_groups(problem, limits)
    yield from _neighbours_of(groups, "tiles", "loads", "warps_per_sm", "channels")
    yield groups._replace(padded=not groups.padded)
    for warps in (4, 8, MAX_WARPS):
        for loads in (groups.loads, 2 * groups.loads):
            yield groups._replace(warps=warps, loads=loads, warps_per_sm=16, tiles=ALONE)
    if channels is None:
        yield Configuration("channels", groups.channels, MAX_WARPS)
        yield Configuration("channels", 1, MAX_WARPS)


def _neighbours_of(configuration: Configuration, *fields: str) -> Iterator[Configuration]:
    for field in fields:
        value = getattr(configuration, field)
        yield configuration._replace(**{field: 2 * value})
        yield configuration._replace(**{field: value // 2})


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch for these sizes, none of them 0."""
    return launch(problem, choose(problem, limits), limits)


def plan_sums(problem: Problem, limits: Limits) -> Launch:
    """The same of evaluation where sums are wanted, which flat's kernels do not have."""
    return launch(problem, _channels(problem, limits) or _groups(problem, limits), limits)


def plan_evaluation(problem: Problem, limits: Limits) -> Groups:
    """The same where no program needs what another one has read; each group has one block of channels."""
    _, channels, warps, loads, warps_per_sm, _, padded, *_ = _most_groups(problem, limits)
    tiling = tiles(problem, channels, warps, loads, padded)
    count = cdiv(tiling.total, tiling.rows)
    group = max(1, min(cdiv(WAVES * places(tiling, warps_per_sm, limits), tiling.blocks), count))
    slice_size = cdiv(count, group) * tiling.rows
    group = cdiv(tiling.total, slice_size)
    return Groups(tiling, group, slice_size, 1, group * tiling.blocks, 0, 1)


def _groups(problem: Problem, limits: Limits) -> Configuration:
    """What is estimated to take the least time."""
    most = _most_groups(problem, limits)
    legal = (each for each in _variants_of(most, problem, limits) if launch_or_none(problem, each, limits) is not None)
    return min(legal, key=lambda each: estimate(problem, each, limits), default=most)


def _variants_of(groups: Configuration, problem: Problem, limits: Limits) -> Iterator[Configuration]:
    # A pipeline takes registers: 32 x 256 x 3136 bf16 48 us, 56 by more programs without. On sm_80 16 bytes spill.
    # Forward elements one by one take more of them: 8 bytes spill with 24 warps (135 x 7 x 3982 bfloat16, sm_90).
    share = 5 / 8 if problem.inputs == 1 and problem.K > 1 and not has_vectors(problem) else 3 / 4
    pipelined = groups._replace(stages=STAGES, warps_per_sm=int(groups.warps_per_sm * share))
    if _has_many_parts(problem, pipelined, limits) or has_edges(problem):
        # Forward with 20 misaligned ones spill: 40 bytes of 3 x 528 x 19495 float32, on sm_80 16 of 16 bits.
        few = limits.capability[0] > 9 or (problem.inputs == 1 and has_edges(problem))
        pipelined = pipelined._replace(warps_per_sm=MANY_PARTS_WARPS_SM_100 if few else MANY_PARTS_WARPS)
    if problem.inputs == 1 and problem.itemsize == 8 and has_edges(problem):
        pipelined = pipelined._replace(stages=1)  # or 24 bytes of 3 x 3 x 8001 spill, even with 128 registers
    elif limits.capability[0] < 9:
        pipelined = pipelined._replace(stages=1) if share < 3 / 4 or has_edges(problem) else groups
    elif problem.K == 1 and groups.warps_per_sm == COLUMNS_WARPS_ALONE:
        pipelined = groups
    if problem.K == 1:
        little = problem.M * problem.N * problem.itemsize <= LITTLE_BYTES
        if problem.inputs == 1 and groups.channels >= problem.N and little:
            # Few columns by more, smaller programs: 16481 x 4 float32 8.3 us by 32 of 8 warps, flat 11.5, 11.2 by 8 of
            # 16 warps (H100; torch.compile 10.5).
            yield groups._replace(warps=8, loads=2, warps_per_sm=16, tiles=1)
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
    if alone and problem.M * problem.K <= MAX_ALONE and bytes_of_one <= MAX_BYTES_ALONE:
        # With heads and tails 8 bytes spill (3 x 3 x 8001 float16).
        loads = groups.loads if has_edges(problem) else 2 * groups.loads
        yield groups._replace(warps=MAX_WARPS, loads=loads, warps_per_sm=MAX_WARPS, tiles=ALONE)
    for least in TILES:
        yield pipelined._replace(tiles=least)


def _has_many_parts(problem: Problem, groups: Configuration, limits: Limits) -> bool:
    """Whether channels of whole vectors have so many programs that merging them spills."""
    alike = problem.K > 1 and problem.itemsize < 8 and has_vectors(problem)
    at_once = limits.sm_count * (groups.warps_per_sm // groups.warps)
    return alike and groups.channels == 1 and at_once > MANY_PARTS * problem.N


def _most_groups(problem: Problem, limits: Limits) -> Configuration:
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
    channels = min(row_bytes // size if columns else _neighbours(problem), power_of_2(C))
    registers = min_registers(problem, limits)
    if channels > 1 and not columns and (inputs == 1 or has_vectors(problem)):
        registers = max(registers, CHANNELS_REGISTERS)
    most = limits.registers_per_sm // WARP // registers
    warps_per_sm = min(warps_per_sm, most // warps * warps)
    # Of few rows several tiles too.
    while columns and warps > 4 and A * channels < 2 * elements(problem, loads, has_vectors(problem)) * warps * WARP:
        warps //= 2
    configuration = Configuration("groups", channels, warps, loads, warps_per_sm, least)
    if _padded(problem, configuration):
        return configuration._replace(channels=max(channels // 2, 1), padded=True)
    return configuration


def _flat(problem: Problem, limits: Limits) -> Configuration | None:
    """What is estimated to take the least time; None if rows are too long or too few."""
    legal = (each for each in _flats(problem, limits) if launch_or_none(problem, each, limits) is not None)
    return min(legal, key=lambda each: estimate(problem, each, limits), default=None)


def _flats(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """By channel if a tile has room for a long row, or by place; some may not be legal."""
    A, C, B, size, inputs = problem
    vec = VECTOR_BYTES // size
    wide = B == 1 and inputs == 1 and size == 4 and has_vectors(problem)
    for warps in (FEW_WARPS,) if wide and FEW_WARPS * FLAT_VECTORS * WARP * vec >= C else FLAT_WARPS:
        room = warps * WARP * vec
        of_long_row = C * B * vec // math.gcd(C * B, vec)
        channels, lanes, used = 1, room, room
        if of_long_row <= FLAT_VECTORS * room:
            channels, lanes = C, max(room, power_of_2(of_long_row))
            used = lanes // of_long_row * of_long_row
        of_sums, of_data = 2 * 4 * (3 if inputs == 1 else 2) * lanes, (2 * inputs + 1) * size * used
        for loads in (FLAT_LOADS[inputs], FLAT_LOADS[inputs] // 2):
            of_few = max(A * C * B // (1024 * limits.sm_count), 2) * FLAT_LOADS[inputs] // loads
            least = min(cdiv(FLAT_SHARE * of_sums, of_data * loads), of_few)
            yield Configuration("flat", channels, warps, loads, FLAT_WARPS_PER_SM, least, False, STAGES)


def _padded(problem: Problem, configuration: Configuration) -> bool:
    """Whether it is worth masked lanes not to divide for each load: where a load is of less than a vector."""
    B = problem.K
    if B == 1 or has_vectors(problem):
        return False
    _, channels, warps, loads, *_ = configuration
    run = tiles(problem, channels, warps, loads, True).run
    return run > 0 and cdiv(B, run) * run <= MAX_PADDING * B


def _channels(problem: Problem, limits: Limits) -> Configuration | None:
    """None if a program does not hold a channel."""
    A, C, B, size, inputs = problem
    unaligned = _unaligned(problem, limits)
    if unaligned is not None:
        return unaligned
    most = held(problem) * MAX_WARPS * WARP
    block = power_of_2(A * B)
    if block > most:
        alone = block <= held_of_one(problem, False, limits) * MAX_WARPS * WARP
        return Configuration("channels", 1, MAX_WARPS) if alone else None
    thin = False
    if B == 1:
        # Sectors of 32 bytes, or more as long as there is a program for each multiprocessor.
        channels = min(max(ROW_BYTES // size, 512 // inputs // block), power_of_2(C))
        while channels > 1 and (
            (channels > SECTOR_BYTES // size and channels * limits.sm_count > C)
            or (channels * block > LITTLE_ELEMENTS and _bytes(problem, channels // 2) <= LITTLE_BYTES)
        ):
            channels //= 2
        if channels * block > most:
            # Half of it of two inputs: 2500 x 40 float16 spills 8 bytes on sm_80.
            channels = most // block // (inputs if limits.capability[0] < 9 else 1)
            if channels == 0 or inputs * _bytes(problem, channels) > MAX_BYTES_OF_SECTORS:
                return None
            if inputs == 2 and A > ROWS_OF_ONE_COLUMN and C * size > MAX_ROW_BYTES:
                return None
        # A program that fills the registers of a multiprocessor loads, computes, and stores in turns: 139 x 179633 bf16
        # takes 72 us with 32 channels, 81 with 64 (torch.compile 78); many gradients even with half a sector: 368 x
        # 10763 float16 22.6 with 8 (8 bytes spill by 8 warps), 24.6 with 16 (H200; on an H100 27.2 and 26.4).
        full = channels * block == most
        thin = full and inputs == 2 and SECTOR_BYTES <= channels * size <= 2 * SECTOR_BYTES
        thin = thin and WAVES * channels * limits.sm_count < C
        if thin or (full and channels > 2 * SECTOR_BYTES // size):
            channels //= 2
    else:
        # Several channels of few elements; one warp is enough for 16 of a thread.
        share = power_of_2(cdiv(C, limits.sm_count))
        channels = min(_neighbours(problem), power_of_2(C), NEIGHBOUR_ELEMENTS // block)
        if VECTOR_BYTES // size % B == 0:
            if inputs == 2 and share * B * size >= SECTOR_BYTES and limits.sm_count > cdiv(C, share):
                # As many programs as multiprocessors, down to half of a sector: the gradient of 128 x 296 x 4 float16
                # takes 4.2 us with 2 channels, 4.5 with 4 (H100).
                share //= 2
            elif inputs == 1 and share * B * size >= SECTOR_BYTES:
                # Two to each, with half of a sector at least: 24 x 1024 x 2 float32 takes 3.6 us with 4 channels, 4.4
                # with 8 (torch.compile 3.8), 163 x 512 x 4 bfloat16 5.3 with 2, 5.6 with 4, 300 x 512 x 2 float32 6.7
                # and 7.3, 16 x 512 x 4 bfloat16 3.1 and 3.2 (H100).
                share //= 2
            channels = min(channels, max(share, power_of_2(NEIGHBOUR_ROWS // A)))
        channels = max(1, channels, min(512 // inputs // block, share))
    # Two columns in half as many elements of a thread: 64 x 64 bf16 3.4 us, 3.7 with as many.
    per_thread = held(problem) // 2 // (inputs if B == 1 else 1)
    at_once = WARPS_AT_ONCE * WARP * limits.sm_count
    many = cdiv(C, channels) * channels * block > at_once * per_thread
    # Forward 8 bytes of float64 spill (83 x 34007, sm_80).
    if many and B == 1 and inputs == 2 and not thin:
        per_thread = held(problem)
    elif many and channels * block > FEW_WARPS * WARP * per_thread and (size < 8 or inputs == 2 or B > 1):
        per_thread *= 2
    elif B == 1:
        if limits.sm_count * channels >= 2 * C and channels * block * inputs >= 1024:
            per_thread //= 2
    elif limits.sm_count >= C and channels == 1 and (B % 2 or VECTOR_BYTES // size % B == 0):
        # A load is of one element, or of a row: the gradients of 63 x 4 x 27 bf16 take 3.7 us by 16 warps, 4.1 by 8, of
        # 1 x 1 x 349 float32 2.9 by 4, 3.2 by 2; 18 x 128 x 27 float16 3.6 by 4, 4.1 by 2. Of other vectors more warps
        # are slower: 1 x 15 x 2538 bf16 takes 3.8 us by 16, 3.6 by 8.
        per_thread //= 4 if inputs == 1 and B % 2 and A > 1 else 2
    warps = max(1, min(MAX_WARPS, channels * block // (per_thread * WARP)))
    return Configuration("channels", channels, warps)


def _unaligned(problem: Problem, limits: Limits) -> Configuration | None:
    """A program that holds a channel whose runs it reads as a head, vectors and a tail: 3 x 4232 x 759 float16 takes
    22.0 us so, 33.8 element by element, 16 x 2000 x 875 bf16 53.4 and 90.6, 8 x 64 x 1001 float16 5.4 and 5.8, 2 x 500
    x 801 bf16 5.0 and 5.4.

    Gradients where a multiprocessor has more warps of them than run at once: of 3 x 4232 x 759 float16 29.0 us so, 38.7
    element by element, 54.5 with groups, of 2 x 5000 x 759 21.7 and 25.6 element by element, of 8 x 1000 x 1001 bf16
    24.2 and 34.2 with groups (H100). Of fewer channels these were not timed.
    """
    block, per_thread = block_of(problem, True), held(problem)
    few = problem.N * block <= WARPS_AT_ONCE * WARP * limits.sm_count * per_thread // 2
    if few and problem.inputs == 2:
        return None
    warps = block // (per_thread * WARP)
    if problem.inputs == 1:
        warps = max(warps, power_of_2(problem.M) * 2 * (VECTOR_BYTES // problem.itemsize) // WARP)
    configuration = Configuration("channels", 1, max(1, min(MAX_WARPS, warps)), 1)
    return configuration if launch_or_none(problem, configuration, limits) is not None else None


def _bytes(problem: Problem, channels: int) -> int:
    """Of the sectors that programs of so few columns read."""
    return cdiv(problem.N, channels) * problem.M * SECTOR_BYTES


def _neighbours(problem: Problem) -> int:
    """Channels that lie side by side: of little data a sector, because loading anything takes the time (9 x 120 x 5
    bf16 backward 3.10 us with 8 channels, 3.27 with 16; 43 x 2 x 15 3.5 with 1, 3.7 with 2, on an H100)."""
    row = problem.K * problem.itemsize
    little = problem.M * problem.N * row <= LITTLE_BYTES
    if little:
        return power_of_2(cdiv(SECTOR_BYTES, row)) if 2 * row <= SECTOR_BYTES else 1
    return power_of_2(cdiv(NEIGHBOUR_BYTES, row))
