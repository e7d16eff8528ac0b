# SPDX-License-Identifier: Apache-2.0
"""How long a launch of batch norm takes, in microseconds of an H200: enough to choose among a few."""

from __future__ import annotations

from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import (
    MAX_WARPS,
    SMALL_GROUP,
    WORDS_OF_THREAD,
    Channels,
    Configuration,
    Flat,
    Groups,
    Problem,
    Tiling,
    by_words,
    has_edges,
    has_vectors,
    launch,
    merge_of,
)

# Bytes that a multiprocessor moves in a microsecond.
BYTES_PER_US = 32000
# Microseconds of a launch.
LAUNCH_US = 2.0
# Microseconds of an iteration.
ITERATION_US = 0.7
# Microseconds of an exchange of sums between programs.
EXCHANGE_US = 2.5
# Microseconds less where programs exchange words instead of flags, and for gradients of columns.
# Gradient of 9000 x 304 bf16: 19.7 us, by a flag 23.1 (H100).
WORDS_US, WORDS_US_OF_COLUMNS = 1.2, 2.2
# Microseconds more forward, where threads read the maximum of words and loads of columns are of 4 or 8 bytes: they
# spill. 9000 x 188 bf16: 25.1 us, by flat 15.0 (H100).
MANY_WORDS_US = 8.0
# Minimum bytes of a load that cp.async copies, so that a pipeline has it in flight.
MIN_STAGED_BYTES = 4
# How many times as long an iteration of shorter loads takes in a pipeline.
# 7663 x 21 x 3 float16: 21.6 us by groups of three stages, 14.9 by flat (H100).
OF_SHORT_LOADS = 2.5
# Number of programs whose wait for each other adds a microsecond; the time grows with the square of the number.
# 2966680 bf16 of one channel: 17.7 us with 527 programs, 24.4 with 1054.
PROGRAMS_OF_US = 360
# groups: how many times as long loads take, by their bytes. Problems of more than 4 MB move 3.6 TB/s with whole
# vectors and 1.5 with loads of 2 bytes.
OF_PARTS_OF_VECTORS = {16: 1.0, 8: 1.3, 4: 1.6, 2: 2.4}
# groups: runs of this many bytes take twice as long as long runs. 55521 x 32 x 20 float32 moves half of 3.6 TB/s.
SHORT_RUN_BYTES = 64
# groups: the maximum of this factor.
MAX_OF_SHORT_RUNS = 3.0
# flat: microseconds of its three launches until all sums are there, by the number of inputs.
# Gradient of 5688 x 96 bf16: 14.1 us.
FLAT_US = {1: 12.0, 2: 10.0}
# flat: microseconds less where a kernel starts before the last one has ended.
# Gradient of 8491 x 5 bf16: 8.8 us, otherwise 11.5 (H100).
EARLY_US = 2.5
# Maximum columns of gradients for EARLY_US, if groups have whole vectors: at its end each program adds up all channels.
# 15789 x 304 bf16: 34.4 us, by groups 30.3; 6287 x 128 float32: 14.3, by groups 15.5 (H100).
MAX_EARLY_COLUMNS = 128
# flat: how many times as long programs of more warps take, by their warps.
# Gradient of 981496 x 224 bf16: 4.1 TB/s by 4 warps; of 1314664 x 185 bf16: 3.9 by 16.
OF_FLAT_WARPS = {8: 1.03, 16: 1.06}
# flat: microseconds more that larger programs of a gradient take to add up channels at the end, by their warps.
# 15789 x 304 bf16: 37.7 us by 4 warps, 43.8 by 8, 44.3 by 16 (H100).
FLAT_SUMS_US = {8: 3.0, 16: 10.0}
# flat: sums that a thread adds up at the end in the time of an iteration.
SUMS_OF_ITERATION = 4
# groups: how many times as long columns of whole vectors take, by the bytes of an element. Forward float32 takes more.
# Gradient of 40000 x 64 float32: 32.0 us, by flat 30.2; forward 69460 x 32 float32: 29.3, by flat 23.0 (H100).
OF_WIDE_COLUMNS, OF_WIDE_COLUMNS_FORWARD = {2: 1.5, 4: 1.25, 8: 1.15}, {2: 1.5, 4: 1.5, 8: 1.15}
# groups: how many times as long columns of less than vectors take, in addition to OF_PARTS_OF_VECTORS.
# 2760 x 74820 bf16: 530 us, at 4250 GB/s it would be 292.
OF_NARROW_COLUMNS = 1.25
# How many times as long runs take that are read as a head, vectors and a tail.
# 16 x 352 x 39489 float16: 577 us, estimated at 582.
OF_EDGES = 1.1
# Vectors that take as long as the head and the tail of a run.
EDGE_VECTORS = 4
# How many reads of the input are counted where L2 holds what is read a second time.
# Gradient of 153491 x 5 x 7 float32: 46 us.
READS_OF_L2 = 1.5
# groups: how many times as long gradients of columns take in turns, by one program to a multiprocessor, where L2 does
# not hold what is read again. 2713 x 28976 float32: 2.5 TB/s, by flat 2.9 (H100).
OF_COLUMNS_IN_TURNS = 1.13
# groups: microseconds more of columns and of rows.
COLUMNS_US, ROWS_US = 5.0, 2.5
# groups: microseconds more of each program of a group above FEW_PROGRAMS in gradients of columns, as each adds up all.
# 28304 x 64 float32: 26.7 us by 66 programs, by flat 25.1; 12000 x 64 float32: 16.1 by 33, by flat 17.8 (H100).
PROGRAM_US = 0.028
# groups: programs of a group that PROGRAM_US does not count.
FEW_PROGRAMS = 16
# groups: how many times as long columns take whose rows begin within a sector, if L2 does not hold them: two programs
# read parts of a sector at different times.
# 8936 x 4028 float32: 330 us by groups, 287 by flat; 8936 x 4096 float32: 255 and 257 (H100).
OF_SPLIT_SECTORS = 1.08
# channels: how many times as long many programs take whose runs are one vector, in addition to the unused half of each
# sector. 2080 x 860 x 4 float32: 67 us, by flat 43; 2080 x 860 x 8 float32, runs of a sector: 66, by flat 77 (H100).
OF_HALF_SECTORS = 1.4
# channels: microseconds of a request for a line by one lane. Reads count for half of a request, stores for the rest of
# two requests.
REQUEST_US = 0.0011
# channels: the same of a request by several lanes.
PARTS_REQUEST_US = 0.0016
# channels: microseconds of an element.
ELEMENT_US = 0.0001
# Bytes of a cache line.
LINE_BYTES = 128
# channels: microseconds of a request of loads of 8 bytes. 3246 x 51 x 6 float32: 14.6 us, by flat 16.4 (H100).
WIDE_REQUEST_US = 0.0013
# channels: OF_PARTS_OF_VECTORS for loads of two bytes where a multiprocessor has several programs.
# 24 x 55416 x 85 float16: 210 us by 4 warps, by flat 337 (H100).
OF_TWO_BYTES = 1.8
# groups: OF_PARTS_OF_VECTORS for runs. Gradient of 1135 x 14 x 65 float32: 21.7 us, by flat 17.8 (H100).
OF_PARTS_OF_RUNS = {16: 1.0, 8: 1.15, 4: 1.6, 2: 2.0}
# flat: programs of a multiprocessor that merge at once.
MERGERS_AT_ONCE = 8
# flat: microseconds more to merge places of runs.
PLACES_US = 2.0
# flat: how many times as long data take by places, where groups read vectors.
# 512 x 35 x 10185 float32: 1364 us, by groups 1295 (H100).
OF_PLACES = 1.08
# flat: how many times as long runs of whole vectors of 16 bits take, up to MAX_OF_L2.
# Gradient of 1825 x 72 x 128 bf16: 67.9 us, by groups 61.5 (H100).
OF_WHOLE_RUNS = 1.3
# flat: maximum bytes of the inputs for OF_WHOLE_RUNS, in sizes of L2.
MAX_OF_L2 = 1.5


class _Work(NamedTuple):
    us: float  # of everything but moving data
    programs: int
    iterations: int  # of a program, one after the other
    slower: float = 1.0  # how many times as long data take
    reads: int = 2
    turns: int = 1  # blocks of a program
    workspace: int = 0  # bytes
    latency: float = 0.0  # microseconds whatever the bytes


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """The greater of the time of the bytes that are moved and the time of a program's iterations."""
    chosen = launch(problem, configuration, limits)
    if isinstance(chosen, Channels):
        work = _of_channels(problem, chosen, limits)
    elif isinstance(chosen, Groups):
        work = _of_groups(problem, chosen)
    else:
        work = _of_flat(problem, chosen, limits)
    size = problem.M * problem.N * problem.K * problem.itemsize
    # Columns in turns, by one program to a multiprocessor: some programs store while others read, so L2 holds less.
    # 842 x 14176 float32: 84.7 us in two turns, 89.0 in one (H100).
    in_turns = problem.K == 1 and problem.inputs == 2 and work.turns > 1 and work.programs <= limits.sm_count
    stored = 1 if in_turns else 0
    at_once = size * (problem.inputs + stored) / work.turns
    in_l2 = work.reads > 1 and at_once <= limits.l2_bytes
    reads = READS_OF_L2 if in_l2 else work.reads
    moved = size * (problem.inputs * reads + 1) * work.slower + work.workspace
    if isinstance(chosen, Groups) and chosen.tiling.columns and (problem.inputs == 2 or problem.itemsize == 8):
        # All programs run at once, and some multiprocessors have one more than others.
        # 32768 x 4592 float32: 1220 us by 144 programs, of which 12 multiprocessors have two, by flat 1044 (H100).
        # Not with rows: 21 x 690 x 466 bf16, gradient: 33.9 us by 660 programs, 49.6 by 132 (H100).
        # Not forward: flat spills 8 bytes to merge columns (3604 x 14720 float32, sm_90).
        in_turn = work.turns * cdiv(work.programs, limits.sm_count)
        busy = chosen.tiling.blocks * chosen.group / in_turn
        if in_turns and not in_l2:
            moved *= OF_COLUMNS_IN_TURNS
    else:
        busy = min(limits.sm_count, work.programs)
    split = isinstance(chosen, Groups) and chosen.tiling.columns and problem.N * problem.itemsize % SECTOR_BYTES > 0
    if split and not in_l2:
        moved *= OF_SPLIT_SECTORS
    return work.us + max(moved / (busy * BYTES_PER_US), work.iterations * ITERATION_US, work.latency)


def _of_channels(problem: Problem, chosen: Channels, limits: Limits) -> _Work:
    tiling, slower = chosen.tiling, 1.0
    if problem.K > 1:
        vector = tiling.vec * problem.itemsize
        several = vector == 2 and tiling.warps < MAX_WARPS
        slower = OF_TWO_BYTES if several else OF_PARTS_OF_VECTORS.get(vector, 1.0)
        # Sectors are read whole. Loads of parts of vectors wait for the same bytes, so the greater factor counts. Short
        # runs as columns do not wait. 77 x 65536 x 3 float16, gradient: 48.5 us, by flat 75.6 (H100).
        row = problem.N * problem.K * problem.itemsize
        read = tiling.channels * (1 if tiling.run else problem.K) * problem.itemsize
        sectors = max(min(SECTOR_BYTES, row) / read, 1.0)
        slower = slower * sectors if tiling.run else max(slower, sectors)
        many = tiling.blocks > limits.sm_count
        slower *= OF_HALF_SECTORS if many and read == VECTOR_BYTES < row else 1.0
        slower *= OF_EDGES + EDGE_VECTORS * tiling.vec / problem.K if tiling.edges else 1.0
    iterations = cdiv(tiling.blocks, _at_once(tiling.warps, limits))
    return _Work(LAUNCH_US, tiling.blocks, iterations, slower, reads=1, latency=_latency(problem, tiling, limits))


def _latency(problem: Problem, tiling: Tiling, limits: Limits) -> float:
    """Microseconds of a multiprocessor's requests, each for a line, and of what its threads compute.

    They exceed the time of the bytes where runs are loaded in less than vectors.
    3128 x 71 x 3 float16: 12.3 us, by flat 15.1; 4096 x 32 x 3 float32: 17.4, by flat 11.6 (H100).
    """
    if problem.K == 1 or tiling.run or tiling.vec * problem.itemsize == VECTOR_BYTES:
        return 0.0
    side_by_side = tiling.channels * problem.K * problem.itemsize
    row = problem.N * problem.K * problem.itemsize
    lines = max(side_by_side / LINE_BYTES, min(row / LINE_BYTES, 1.0))
    programs = max(tiling.blocks / limits.sm_count, 1.0)
    parts = WIDE_REQUEST_US if 2 * tiling.vec * problem.itemsize == VECTOR_BYTES else PARTS_REQUEST_US
    request = REQUEST_US if tiling.vec == problem.K else parts
    requests = (problem.inputs + 3) / 2 * problem.M * lines * request
    return ITERATION_US + programs * (requests + tiling.channels * (tiling.block + tiling.rest) * ELEMENT_US)


def _of_groups(problem: Problem, chosen: Groups) -> _Work:
    tiling, us = chosen.tiling, LAUNCH_US
    turns = cdiv(tiling.blocks * chosen.group, chosen.programs)
    iterations = 2 * turns * cdiv(chosen.slice_size, tiling.rows)
    if tiling.edges:
        runs_at_once = tiling.edges // (2 * tiling.vec)
        iterations += 2 * turns * cdiv(cdiv(problem.M, chosen.group), runs_at_once)
    vector = tiling.vec * problem.itemsize
    if vector < MIN_STAGED_BYTES:
        iterations = int(iterations * OF_SHORT_LOADS)
    elif chosen.stages > 2:
        iterations //= 2
    if chosen.group > 1:
        merges = ITERATION_US * cdiv(chosen.group, chosen.parts)
        waits = 1.0 if tiling.columns else min(chosen.group / SMALL_GROUP, 1.0)
        us += turns * (EXCHANGE_US + merges + waits * (chosen.programs / PROGRAMS_OF_US) ** 2)
        if by_words(problem, chosen):
            us -= turns * (WORDS_US_OF_COLUMNS if tiling.columns and problem.inputs == 2 else WORDS_US)
            many = 2 * power_of_2(chosen.group) * tiling.channels > WORDS_OF_THREAD * WARP * tiling.warps
            spills = many and tiling.columns and problem.inputs == 1 and MIN_STAGED_BYTES <= vector < VECTOR_BYTES
            us += MANY_WORDS_US if spills else 0.0
        us += COLUMNS_US if tiling.columns else ROWS_US
        if tiling.columns and problem.inputs == 2:
            us += PROGRAM_US * max(chosen.group - FEW_PROGRAMS, 0)
    slower = (OF_PARTS_OF_VECTORS if tiling.columns else OF_PARTS_OF_RUNS).get(vector, 1.0)
    if tiling.columns and vector < VECTOR_BYTES:
        slower *= OF_NARROW_COLUMNS
    if tiling.columns and chosen.group > 1:
        # Programs of the last block may have fewer channels, but take as long.
        slower *= tiling.blocks * tiling.channels / problem.N
        wide = OF_WIDE_COLUMNS_FORWARD if problem.inputs == 1 else OF_WIDE_COLUMNS
        slower *= wide[problem.itemsize] if vector == VECTOR_BYTES else 1.0
    elif not tiling.columns:
        slower *= min(1 + SHORT_RUN_BYTES / (problem.K * problem.itemsize), MAX_OF_SHORT_RUNS)
        slower *= cdiv(problem.K, tiling.run) * tiling.run / problem.K if tiling.run else 1.0
        slower *= OF_EDGES + EDGE_VECTORS * tiling.vec / problem.K if tiling.edges else 1.0
    return _Work(us, chosen.programs, iterations, slower, turns=turns)


def _of_flat(problem: Problem, chosen: Flat, limits: Limits) -> _Work:
    wide = problem.inputs == 2 and problem.K == 1 and problem.N > MAX_EARLY_COLUMNS
    wide = wide and has_vectors(problem) and problem.itemsize < 8
    us = FLAT_US[problem.inputs] - (EARLY_US if limits.capability >= (9, 0) and not wide else 0.0)
    # A pipeline hides half of what an iteration waits.
    iterations = cdiv(chosen.programs, _at_once(chosen.warps, limits)) * chosen.slice_size
    iterations *= 1 if chosen.stages > 1 else 2
    sums = 2 * max(problem.itemsize, 4) * (3 if problem.inputs == 1 else 2)
    merge = merge_of(problem, chosen, limits)
    mergers = cdiv(problem.N, merge.channels)
    if chosen.by_place:
        workspace, parts = sums * chosen.group * chosen.width // chosen.unit, chosen.group * chosen.sums_per_row
        # What merges them reads half of it.
        us += workspace / 2 / (min(mergers, limits.sm_count) * BYTES_PER_US)
    else:
        # At the end a program adds up what its threads have.
        at_a_time = max(chosen.block_c * chosen.block_e / (chosen.warps * WARP * SUMS_OF_ITERATION), 1)
        iterations_of_sums = cdiv(chosen.channels, chosen.block_c) * cdiv(chosen.sums_per_row, chosen.block_e)
        us += ITERATION_US * at_a_time * iterations_of_sums
        us += FLAT_SUMS_US.get(chosen.warps, 0.0) if problem.inputs == 2 else 0.0
        workspace, parts = sums * chosen.programs * chosen.lanes * chosen.vec // chosen.unit, chosen.group
    us += ITERATION_US * (cdiv(mergers, MERGERS_AT_ONCE * limits.sm_count) * cdiv(parts, merge.entries) - 1)
    slower = OF_FLAT_WARPS.get(chosen.warps, 1.0)
    if chosen.by_place and problem.K > 1:
        us += PLACES_US
        slower *= OF_PLACES if has_vectors(problem) else 1.0
    whole = problem.K > 1 and problem.itemsize == 2 and has_vectors(problem) and not has_edges(problem)
    if whole and 2 * problem.inputs * problem.M * problem.N * problem.K <= MAX_OF_L2 * limits.l2_bytes:
        slower *= OF_WHOLE_RUNS
    return _Work(us, chosen.programs, iterations, slower, workspace=workspace)


def _at_once(warps: int, limits: Limits) -> int:
    """Programs of this number of warps that run at once. A thread has twice the registers of a full multiprocessor."""
    return limits.sm_count * max(limits.threads_per_sm // WARP // 2 // warps, 1)
