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

# Bytes that a multiprocessor moves in a microsecond; microseconds of a launch, of an iteration, and
# of an exchange of sums between programs.
BYTES_PER_US, LAUNCH_US, ITERATION_US, EXCHANGE_US = 32000, 2.0, 0.7, 2.5
# So much less where programs exchange words, and where gradients of columns do: 13 problems take 0.9 to 2.3 us less,
# the gradient of 9000 x 304 bf16 19.7 instead of 23.1 (H100).
WORDS_US, WORDS_US_OF_COLUMNS = 1.2, 2.2
# So much more where threads forward read all the words that they may and loads of columns are of 4 or 8 bytes: 9000 x
# 188 bf16, which spills 64 bytes, takes 25.1 us, by flat 15.0 (H100); 70155 x 10 bf16 spills 216, 46882 x 14 float32
# 352 (sm_90, Triton 3.6).
MANY_WORDS_US = 8.0
# Least bytes of a load that a pipeline has in flight, as cp.async copies them; so much longer takes an iteration of
# shorter ones: 7663 x 21 x 3 float16 21.6 us by groups of three stages, 14.9 by flat, the gradient of 2272 x 3 x 23
# bf16 11.4 and 8.1 (H100).
MIN_STAGED_BYTES, OF_SHORT_LOADS = 4, 2.5
# So many programs that wait for each other add a microsecond, twice as many add four: 2966680 bf16 of one channel
# take 17.7 us with 527 programs, 19.1 with 714, 24.4 with 1054; 2048 x 7 x 12 8.2 with 192, 8.7 with 384, 11.6 with
# 768.
PROGRAMS_OF_US = 360
# groups: how many times as long loads take that are shorter than a vector, by their bytes; runs of SHORT_RUN_BYTES
# take twice as long. Problems of more than 4 MB move 3.6 TB/s with whole vectors, 2.7 with 8 bytes, 2.2 with 4, 1.5
# with 2; 55521 x 32 x 20 float32 half of it, 18435 x 24 x 24 and 43848 x 8 x 4 bfloat16 less.
OF_PARTS_OF_VECTORS, SHORT_RUN_BYTES, MAX_OF_SHORT_RUNS = {16: 1.0, 8: 1.3, 4: 1.6, 2: 2.4}, 64, 3.0
# flat: its three launches, and the time until all sums are there, by the number of inputs. Gradients of 5688 x 96 bf16
# take 14.1 us. So much less where a kernel starts before the last one has ended: 32559 x 111 bf16 23.4 us, 26.7
# without, 1199 x 512 x 3 16.2 and 20.0, 8491 x 5 8.8 and 11.5, 16920 x 40 float64 18.2 and 20.0, forward 69460 x 32
# float32 19.2 and 21.8, 40000 x 96 float16 21.3 and 24.2 (H100). Gradients of wider columns than these take their time
# at the end, where each program adds up all channels: 15789 x 304 bf16 34.4 us, by groups 30.3, 7868 x 304 21.4 and
# 21.0, 824 x 4096 19.9 and 19.4, 3012 x 512 float32 20.0 and 20.4, but 6287 x 128 14.3 and 15.5, 16435 x 123 bf16 15.8
# and 21.5. Not where groups are slow, too, as they have no whole vectors, or of float64: 9000 x 188 bf16 15.0 us, by
# groups 20.7, 6000 x 186 13.3 and 18.1, 20000 x 188 23.6 and 29.3, 3000 x 301 float32 15.5 and 17.2, 9000 x 185 22.2
# and 27.3, 9000 x 188 float64 34.0 and 37.5 (H100).
FLAT_US, EARLY_US, MAX_EARLY_COLUMNS = {1: 12.0, 2: 10.0}, 2.5, 128
# flat: how many times as long large programs take. The gradient of 981496 x 224 bf16 moves 4.1 TB/s by 4 warps, of
# 1314664 x 185 bf16 3.9 by 16.
OF_FLAT_WARPS = {8: 1.03, 16: 1.06}
# flat: microseconds that large programs of a gradient take besides to add up channels at the end. Those of 7868 x 304
# bf16 take 29.7 us by 8 warps, 25.1 by 4, of 15789 x 304 44.3 by 16, 43.8 by 8, 37.7 by 4, of 6287 x 128 float32 21.4
# by 8, 18.1 by 4, of 12000 x 200 float16 25.4 and 24.9 (H100).
FLAT_SUMS_US = {8: 3.0, 16: 10.0}
# flat: sums that a thread adds up at the end in the time of an iteration.
SUMS_OF_ITERATION = 4
# Columns of whole vectors take so many times as long, by the bytes of an element: 156093 x 168 float16 92 us, the
# gradient of 780197 x 136 549, of 538608 x 128 float32 396, of 213671 x 128 float64 300, of 40000 x 64 float32 32.0, by
# flat 30.2. Forward those of float32 more: 69460 x 32 29.3 us, by flat 23.0, 20000 x 128 26.1 and 27.6, 5000 x 512 23.5
# and 23.7 (H100).
OF_WIDE_COLUMNS, OF_WIDE_COLUMNS_FORWARD = {2: 1.5, 4: 1.25, 8: 1.15}, {2: 1.5, 4: 1.5, 8: 1.15}
# Columns of less than vectors, besides what these take: 2760 x 74820 bf16 takes 530 us, 292 at 4250 GB/s; the gradient
# of 14665 x 8523 bf16 912, 294 at 4250.
OF_NARROW_COLUMNS = 1.25
# Runs that are read as a head, vectors and a tail; the edges of a run take as long as so many vectors: an estimate
# that is at 582 and 135 us where these two take 577 and 143 (16 x 352 x 39489 float16, 5 x 7063 x 875 float32).
OF_EDGES, EDGE_VECTORS = 1.1, 4
# What is read a second time, where the cache has room for all that programs go through at once: the gradients of
# 153491 x 5 x 7 float32 take 46 us, of 42972 x 1 x 232 bf16 37.
READS_OF_L2 = 1.5
# Gradients of columns in turns, by one program to a multiprocessor, take so many times as long where L2 does not hold
# what they read again: 2713 x 28976 float32 moves 2.5 TB/s so (618 us), by flat 2.9 (549; PyTorch 601), 1500 x 30000,
# where all programs read 45 MB and store 22 at once, 2.5 too (359; PyTorch 344), but 2713 x 8000 by 250 programs at
# once 2.8 (154; H100).
OF_COLUMNS_IN_TURNS = 1.13
# groups: microseconds that columns and rows take besides.
COLUMNS_US, ROWS_US = 5.0, 2.5
# Gradients of columns: microseconds of each program of a group besides so many, whose sums all of them add. 28304 x 64
# float32 26.7 us by 66 programs, by flat 25.1, 20000 x 64 23.8 and 22.6, 17416 x 120 bf16 by 33 22.9 and 19.9, 12000 x
# 64 by 46 15.5 and 14.6, but 12000 x 64 float32 by 33 16.1 and 17.8, 28304 x 96 by 44 32.5 and 33.4, 28304 x 32 bf16 by
# 55 14.5 and 15.0, 8000 x 96 float32 by 22 15.8 and 20.2 (H100).
PROGRAM_US, FEW_PROGRAMS = 0.028, 16
# The same where rows begin within a sector and L2 does not hold them: programs side by side read its parts one after
# the other. 8936 x 4028 float32 takes 330 us by groups, 287 by flat (PyTorch 290), 8000 x 8184 bf16 276 and 249, but
# 8936 x 4096 float32 255 and 257, 3000 x 4028 104 and 103, of float64 176 and 186; forward 8936 x 4028 float32 200 and
# 175 (H100).
OF_SPLIT_SECTORS = 1.08
# Programs that hold channels whose runs are one vector: of many, so many times as long, besides the other half of each
# sector. 2080 x 860 x 4 float32 takes 67 us, by flat 43, 2500 x 400 x 4 40 and 28, 1200 x 900 x 4 44 and 29, 4000 x 300
# x 4 54 and 33, 2080 x 860 x 8 bf16 70 and 51, the gradient of 1200 x 860 x 4 float32 52 and 40, but 2080 x 860 x 8,
# whose runs are sectors, 66 and 77 (H100).
OF_HALF_SECTORS = 1.4
# channels: microseconds of a request for a line or a part of it, by one lane or by several, and of an element.
# What is read takes half of one, what is stored the rest of two.
REQUEST_US, PARTS_REQUEST_US, ELEMENT_US, LINE_BYTES = 0.0011, 0.0016, 0.0001, 128
# The same of loads of 8 bytes: 3246 x 51 x 6 float32 takes 14.6 us, by flat 16.4 (H100).
WIDE_REQUEST_US = 0.0013
# The same as OF_PARTS_OF_VECTORS: of channels with loads of two bytes where a multiprocessor has several programs: 24 x
# 55416 x 85 float16 210 us by 4 warps, by flat 337, but 256 x 2662 x 63 bf16 by 16 135 and 125 (H100).
OF_TWO_BYTES = 1.8
# The same of groups that read runs: the gradient of 1135 x 14 x 65 float32 21.7 us, by flat 17.8 (H100).
OF_PARTS_OF_RUNS = {16: 1.0, 8: 1.15, 4: 1.6, 2: 2.0}
# flat: programs of a multiprocessor that merge at once.
MERGERS_AT_ONCE = 8
# flat: extra microseconds for merging places of runs, and how many times as long data take where groups read vectors:
# 512 x 35 x 10185 float32 1364 us, by groups 1295, 752 x 184 x 100 71.6 and 71.5 (H100).
PLACES_US, OF_PLACES = 2.0, 1.08
# flat: how many times as long whole vectors of 16 bits take, of at most MAX_OF_L2 times what L2 holds: the gradient of
# 1825 x 72 x 128 bf16 67.9 us, by groups 61.5, 3688 x 35 x 120 48.4 and 45.1, the gradient of 2808 x 19 x 64 21.7 and
# 18.9 (H100).
OF_WHOLE_RUNS, MAX_OF_L2 = 1.3, 1.5


class _Work(NamedTuple):
    us: float  # besides moving data
    programs: int
    iterations: int  # of a program, one after the other
    slower: float = 1.0  # how many times as long data take
    reads: int = 2
    turns: int = 1  # blocks of a program
    workspace: int = 0  # bytes
    latency: float = 0.0  # microseconds whatever the bytes


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """The bytes that are moved, or the iterations of a program one after the other."""
    chosen = launch(problem, configuration, limits)
    if isinstance(chosen, Channels):
        work = _of_channels(problem, chosen, limits)
    elif isinstance(chosen, Groups):
        work = _of_groups(problem, chosen)
    else:
        work = _of_flat(problem, chosen, limits)
    size = problem.M * problem.N * problem.K * problem.itemsize
    # Of columns in turns, by one program to a multiprocessor, some store while others read: 842 x 14176 float32, whose
    # inputs L2 holds in turns of two each, takes 84.7 us so, 89.0 by one (H100).
    in_turns = problem.K == 1 and problem.inputs == 2 and work.turns > 1 and work.programs <= limits.sm_count
    stored = 1 if in_turns else 0
    at_once = size * (problem.inputs + stored) / work.turns
    in_l2 = work.reads > 1 and at_once <= limits.l2_bytes
    reads = READS_OF_L2 if in_l2 else work.reads
    moved = size * (problem.inputs * reads + 1) * work.slower + work.workspace
    if isinstance(chosen, Groups) and chosen.tiling.columns and (problem.inputs == 2 or problem.itemsize == 8):
        # All of their programs run at once, and some multiprocessors have one more. Flat instead: the gradients of
        # 32768 x 4592 float32 1044 us, 1220 by 144 programs of which 12 multiprocessors have two (PyTorch 1110), of
        # 3985 x 17532 511 and 704. Not of rows: of 21 x 690 x 466 bf16 33.9 by 660 programs, 49.6 by 132 (H100).
        # Forward flat, which is taken instead, spills 8 bytes to merge columns (3604 x 14720 float32, sm_90).
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
        # Sectors are read whole, whatever is needed of them: the gradient of 952 x 16384 x 2 bf16 takes 370 us with 8
        # bytes at a time. Parts of vectors wait for that, too: of 77 x 65536 x 3 float16 48.5 us, by flat 75.6, of 32 x
        # 524288 x 3 bf16 148 and 267, forward 40 x 200000 x 3 54.4 and 97.3 (H100). Short runs as columns do not.
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

    They exceed the time of the bytes where runs are loaded in less than vectors. 3128 x 71 x 3 float16 takes 12.3 us,
    by flat 15.1, the gradient of 1917 x 18 x 3 8.4, but 4096 x 32 x 3 float32 17.4 and 11.6, the gradients of 1864 x 8
    x 3 7.9, by groups 6.8, of 80 x 8192 x 14 bf16 46.3 and 42.0 (H100).
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
    """Programs of so many warps, which have twice the registers that there are for as many as possible."""
    return limits.sm_count * max(limits.threads_per_sm // WARP // 2 // warps, 1)
