# SPDX-License-Identifier: Apache-2.0
"""How long a launch of a reduction takes, from what its programs do. The plan chooses by it.

The constants are fitted to the times of 8667 launches of 1211 problems of amax and max.dim (H100 and H200): those of a
problem are to be in the right order, which counts more than that their times are right. By constants that are fitted
without it, half of 211 random problems along a dimension that is not the last takes 1.6 % more than the fastest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv
from .launches import KNOWN_MULTIPLE, Configuration, Plan, Problem, column_vector, launch

# Microseconds of a launch, of programs that share a result, and of each partial result of a thread that they merge.
LAUNCH_US, EXCHANGE_US, PARTIAL_US = 2.74, 1.71, 0.019
# Bytes that a multiprocessor reads in a microsecond: from memory and from the L2 cache where all read, and where it has
# the memory for itself; the part by which that takes longer in loads of less than four bytes.
BYTES_PER_US, L2_BYTES_PER_US, ALONE_BYTES_PER_US, NARROW = 38200, 185000, 376000, 4.0
# Microseconds for a multiprocessor to start a program.
START_US = 0.042
# Threads of a multiprocessor, and programs, at most.
MAX_THREADS, MAX_PROGRAMS = 2048, 32
# Nanoseconds of a multiprocessor for a warp: of an element, of a load, of an iteration.
ELEMENT_NS, LOAD_NS, ITERATION_NS = 0.62, 0.43, 11.0
# The same of a word that has no register, of a result that several warps have a part of, and of a class.
WORD_NS, RESULT_NS, CLASS_NS = 0.55, 5.4, 18.0
# The same of edges, and of each row that has them.
EDGES_NS, EDGE_ROW_NS = 33.9, 3.7
# The part that neighbours save of an element's time, and the parts by which loads take longer that are pipelined and
# that are of columns of several matrices.
NEIGHBOURS_SAVE, PIPELINED, SEVERAL_MATRICES = 0.48, 2.5, 1.35
# The part by which all takes longer for each doubling of a thread's bytes beyond 32, and of its elements of classes
# beyond 16.
THICK, THICK_CLASSES = 0.38, 1.66
# What a thread waits: microseconds for each nanosecond above, and for an iteration; in stages for the part of that.
WAIT_US, ITERATION_US, STAGED = 0.0124, 0.078, 0.75
# The same for doublings of the warps that have a part of a result, for edges, neighbours, a loop and a class.
WARPS_US, EDGES_US, NEIGHBOURS_US, LOOP_US, CLASS_US = 0.209, 0.64, 0.26, 0.59, 0.065
# Times of what is done at the same time are added up as numbers to this power.
POWER = 1.5


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: what programs read, start and compute, and what a program waits for."""
    M, N, K, size, accumulators = problem
    p = launch(problem, configuration, limits)
    threads, programs = p.warps * WARP, p.blocks * p.splits
    of_sm = cdiv(programs, limits.sm_count)
    resident = min(limits.registers_per_sm // (p.registers * threads), MAX_THREADS // threads, MAX_PROGRAMS)
    length = N if p.kernel == "columns" else N * K
    iterations = max(cdiv(length, p.splits * p.step), 1)
    looped = p.splits * p.step < length
    elements, vector, results, _, sharing = of_thread(problem, p)
    loads = elements / vector
    classes = K if p.kernel == "classes" else 0

    saved = NEIGHBOURS_SAVE if p.neighbours > 1 else 0.0
    load_ns = LOAD_NS * (1 + PIPELINED * (p.stages > 1) + SEVERAL_MATRICES * (p.matrices >= 2))
    body = elements * ELEMENT_NS * (1 - saved) + loads * load_ns
    thick = 1 + THICK * max(math.log2(elements * size / 32), 0.0)
    if classes:
        thick += THICK_CLASSES * max(math.log2(elements / 16), 0.0)
    # A position and, where neighbours in memory are not in one row, an address for each load.
    words = elements * (max(size / 4, 1) + (accumulators == 2) * (looped or vector == 1) / p.neighbours)
    if p.kernel == "columns":
        words += loads * (2 if p.matrices >= 2 else vector < 2)
    ns = iterations * (body * thick + ITERATION_NS + max(words - p.registers / 2, 0.0) * WORD_NS)
    ns += RESULT_NS * results * (sharing > 1) + CLASS_NS * classes
    if p.edge_lanes:
        ns += EDGES_NS + EDGE_ROW_NS * p.block_m / p.warps
    wait = iterations * (body * WAIT_US + ITERATION_US * (1 - STAGED * (p.stages > 1)))
    wait += WARPS_US * math.log2(sharing) + LOOP_US * looped + CLASS_US * classes
    wait += NEIGHBOURS_US * (p.neighbours > 1) + EDGES_US * (p.edge_lanes > 0)

    read = M * N * K * size + M * K * (size + 8 * (accumulators == 2))
    alone = min(programs, limits.sm_count) * ALONE_BYTES_PER_US / (1 + NARROW * (vector * size < 4))
    at_once = (
        of_sm * p.warps * ns / 1000,
        max(of_sm / max(resident, 1), 1.0) * wait,
        (read / BYTES_PER_US + sectors(problem, p) / L2_BYTES_PER_US) / limits.sm_count,
        read / alone,
        programs / limits.sm_count * START_US,
    )
    exchange = 0.0
    if p.splits > 1:
        partials = p.splits * (p.block_k if p.kernel in ("columns", "classes") else p.block_m)
        exchange = EXCHANGE_US + PARTIAL_US * partials / threads
    return LAUNCH_US + sum(us**POWER for us in at_once) ** (1 / POWER) + exchange


def sectors(problem: Problem, p: Plan) -> float:
    """Bytes of the sectors that programs read: two programs read those on the border of their columns."""
    M, N, K, size, _ = problem
    width = p.block_k * size
    if p.kernel != "columns" or p.block_k >= K:
        return M * N * K * size
    return M * N * K * size * (1 + (SECTOR_BYTES - math.gcd(K * size, width, SECTOR_BYTES)) / width)


class Thread(NamedTuple):
    elements: float  # of a tile
    vector: int  # elements of a load
    results: float  # that it has a part of
    lanes: int  # of its warp that have parts of the same results
    warps: int  # that have


def of_thread(problem: Problem, p: Plan) -> Thread:
    """What a thread has of a tile."""
    _, N, K, size, _ = problem
    threads, vector = p.warps * WARP, p.vector
    if p.kernel == "columns":
        one_tile = p.block_n >= N and p.lanes > 0
        lanes = p.lanes * (p.depth + (N % p.lanes > 0)) if one_tile else p.block_n
        tile = lanes * p.block_k
        # Single columns are loaded together only where lanes side by side have several to a thread.
        together = p.lanes * p.block_k if column_vector(problem) == 1 else tile
        vector = min(math.gcd(K, VECTOR_BYTES // size), p.block_k, max(together // threads, 1))
        along = max(threads * vector // p.block_k, 1)  # threads, along N
        of_warp = min(max(WARP * vector // p.block_k, 1), along)
        results = max(p.block_k * along / threads, 1.0)
        return Thread(tile / threads, vector, results, min(along, WARP), max(along // of_warp, 1))
    if p.kernel == "short":
        return Thread(p.block_m * N / threads, vector, 1.0, 1, 1)
    if p.kernel == "classes":
        return Thread(p.block_n / threads, vector, float(p.block_k), 1, p.warps)
    if p.kernel == "short_classes":
        along = max(p.lanes // vector, 1)
        elements = p.block_m * p.lanes * (p.depth + 1) / threads
        return Thread(elements, vector, max(p.block_m * K * along / threads, 1.0), 1, 1)
    side_by_side = p.lanes or p.block_n
    if vector == 1 and N % KNOWN_MULTIPLE == 0:
        vector = min(VECTOR_BYTES // size, max(p.block_m * side_by_side // threads, 1))
    along = min(threads, max(side_by_side // vector, 1))
    rest = N % side_by_side > 0 or p.edge_lanes > 0
    row = p.lanes * (p.depth + rest) if p.lanes else p.block_n
    results = max(p.block_m * along / threads, 1.0)
    return Thread(p.block_m * row / threads, vector, results, min(along, WARP), max(along // WARP, 1))
