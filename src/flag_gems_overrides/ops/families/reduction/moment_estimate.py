# SPDX-License-Identifier: Apache-2.0
"""How long a launch of moments takes, from what its programs do, as :mod:`.estimate` says of values.

The constants are fitted to the times of 16784 launches of 1574 problems (H200). What it chooses of them takes 2.3 %
more than the fastest; by constants that are fitted to the other half of the problems 2.6 %. By rules it was 7.5 %, of
the 985 problems that were random 6.7 %.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, WARP, cdiv
from .estimate import MAX_PROGRAMS, MAX_THREADS, Thread, of_thread, sectors
from .launches import Plan, Problem

# Microseconds of a launch, of programs that share a result, and of each partial result of a thread that they merge.
LAUNCH_US, EXCHANGE_US, PARTIAL_US = 2.86, 2.68, 0.068
# Bytes that a multiprocessor reads in a microsecond: from memory and from the L2 cache where all read, and where it has
# the memory for itself; the part by which that takes longer for each halving of a line that programs read alone.
BYTES_PER_US, L2_BYTES_PER_US, ALONE_BYTES_PER_US = 62400, 109000, 392000
PART_OF_A_LINE = 0.151
# Microseconds for a multiprocessor to start a program.
START_US = 0.0245
# Nanoseconds of a multiprocessor for a warp: of an element, of a load, of each line that it touches, of an iteration.
ELEMENT_NS, LOAD_NS, LINE_NS, ITERATION_NS = 0.571, 0.536, 0.134, 8.01
# The same of a load whose mean and squares are merged with those of others, where lanes do not keep them.
MERGE_NS = 6.47
# The same of a word that has no register, of a result that several warps have a part of, of one that lanes exchange, of
# a class, and of each row that has edges.
WORD_NS, RESULT_NS, SHUFFLE_NS, CLASS_NS, EDGE_ROW_NS = 0.79, 7.41, 0.87, 21.2, 8.55
# The part of the registers that hold elements, means, squares and addresses.
HELD = 0.719
# The parts by which elements of 64 bits take longer, loads that are pipelined, and those of columns of several
# matrices; and all for each doubling of a thread's bytes beyond 32.
WIDE, PIPELINED, SEVERAL, THICK = 1.24, 4.54, 0.8, 0.164
# What a thread waits: microseconds for an iteration, in stages for the part of that, for a loop, and for doublings of
# the warps that have a part of a result.
ITERATION_US, STAGED, LOOP_US, WARPS_US = 0.195, 0.635, 0.803, 0.122
# The parts of what a thread waits and computes that nothing hides where a multiprocessor has one program.
SERIAL_WAIT, SERIAL_COMPUTE = 0.177, 0.129
# Times of what is done at the same time are added up as numbers to this power.
POWER = 1.47


def estimate(problem: Problem, p: Plan, limits: Limits) -> float:
    """Microseconds: what programs read, start and compute, and what a program waits for."""
    M, N, K, size, _ = problem
    threads, programs = p.warps * WARP, p.blocks * p.splits
    of_sm = cdiv(programs, limits.sm_count)
    resident = max(min(limits.registers_per_sm // (p.registers * threads), MAX_THREADS // threads, MAX_PROGRAMS), 1)
    length = N if p.kernel == "columns" else N * K
    iterations = max(cdiv(length, p.splits * p.step), 1)
    thread = of_thread(problem, p)
    loads = thread.elements / thread.vector
    wide = 1 + WIDE * (size == 8)

    several = p.kernel == "columns" and p.matrices >= 2
    load_ns = LOAD_NS * (1 + PIPELINED * (p.stages > 1) + SEVERAL * several)
    load_ns += LINE_NS * _lines(problem, p, thread.vector)
    body = thread.elements * ELEMENT_NS * wide + loads * load_ns
    thick = 1 + THICK * _doublings(thread.elements * size / 32)
    words = thread.elements * max(size / 4, 1) + 2 * _accumulators(p, thread) * (1 + (size == 8))
    words += loads * ((thread.vector < 2) + several)
    ns = iterations * (body * thick + ITERATION_NS + max(words - p.registers * HELD, 0.0) * WORD_NS)
    ns += MERGE_NS * wide * iterations * thread.elements / p.vector * (p.lanes == 0)
    ns += RESULT_NS * thread.results * (thread.warps > 1) + CLASS_NS * K * (p.kernel == "classes")
    ns += SHUFFLE_NS * thread.results * _doublings(thread.lanes) * (1 + (size == 8))
    ns += EDGE_ROW_NS * (p.edge_lanes > 0) * p.block_m / p.warps
    wait = iterations * ITERATION_US * (1 - STAGED * (p.stages > 1)) + WARPS_US * _doublings(thread.warps)
    wait += LOOP_US * (p.splits * p.step < length)

    read = M * N * K * size + 2 * M * K * size
    parts = PART_OF_A_LINE * _doublings(LINE_BYTES / (p.block_k * size)) * (p.kernel == "columns" and p.block_k < K)
    compute, wait = of_sm * p.warps * ns / 1000, max(of_sm / resident, 1.0) * wait
    at_once = (
        compute,
        wait,
        (read * (1 + parts) / BYTES_PER_US + _sectors(problem, p) / L2_BYTES_PER_US) / limits.sm_count,
        read / (min(programs, limits.sm_count) * ALONE_BYTES_PER_US),
        programs / limits.sm_count * START_US,
    )
    exchange = (SERIAL_WAIT * wait + SERIAL_COMPUTE * compute) / min(resident, of_sm)
    if p.splits > 1:
        partials = p.splits * (p.block_k if p.kernel in ("columns", "classes") else p.block_m)
        exchange += EXCHANGE_US + PARTIAL_US * partials / threads
    return LAUNCH_US + sum(us**POWER for us in at_once) ** (1 / POWER) + exchange


def _doublings(times: float) -> float:
    return math.log2(max(times, 1.0))


def _accumulators(p: Plan, thread: Thread) -> float:
    """Means that a thread keeps, and sums of squares."""
    threads = p.warps * WARP
    if p.kernel == "columns":
        return max((p.lanes or p.block_n) * p.block_k / threads, 1.0)
    if p.kernel == "rows":
        return max(p.block_m * (p.lanes or p.block_n / p.vector) / threads, 1.0)
    return thread.elements if p.kernel == "classes" else 1.0


def _lines(problem: Problem, p: Plan, vector: int) -> float:
    """Lines that a load of a warp touches, about: half of one more where runs of neighbours are not aligned to them."""
    _, N, K, size, _ = problem
    together, row, aligned = WARP * vector * size, N * size, True
    runs = 1.0
    if p.kernel == "columns":
        row = K * size
        columns = max(min(WARP, p.block_k // vector), 1)
        runs = max(columns * vector / K, 1.0) if p.block_k >= K else WARP // columns
        aligned = together / runs % LINE_BYTES == 0
    elif p.kernel == "rows":
        runs = WARP // max(min(WARP, (p.lanes or p.block_n) // vector), 1)
    else:
        row = LINE_BYTES
    run = together / runs
    return runs * (max(run / LINE_BYTES, 1.0) + 0.5 * (not aligned or row % LINE_BYTES > 0))


def _sectors(problem: Problem, p: Plan) -> float:
    """As ``estimate.sectors``; programs of several [N, K] share the rows of those on their borders, too."""
    M, N, K, size, _ = problem
    if p.kernel != "columns" or p.block_k <= K or p.block_k % K == 0:
        return sectors(problem, p)
    return M * N * K * size * (1 + min(K * size, SECTOR_BYTES) / (p.block_k * size))
