# SPDX-License-Identifier: Apache-2.0
"""How long a launch of a reduction takes, from what its programs do. The plan chooses by it.

The constants are fitted to the times of 8001 launches of 1088 problems of amax and max.dim (H100 and H200): those of a
problem are to be in the right order, which counts more than that their times are right. Half of the 234 random problems
among them were held out: what the estimate likes best takes 2.7 % more than the fastest there, and 2.2 % in the others.
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from .launches import KNOWN_MULTIPLE, Configuration, Plan, Problem, launch

# Microseconds of a launch, and of programs that share a result.
LAUNCH_US, EXCHANGE_US = 2.58, 1.68
# Bytes that a multiprocessor reads in a microsecond, where all read and where it has the memory for itself; the part by
# which that takes longer in loads of less than four bytes.
BYTES_PER_US, ALONE_BYTES_PER_US, NARROW = 34500, 422000, 5.0
# Microseconds for a multiprocessor to start a program.
START_US = 0.044
# Threads of a multiprocessor, and programs, at most.
MAX_THREADS, MAX_PROGRAMS = 2048, 32
# Nanoseconds of a multiprocessor for a warp: of an element, of a load, of an iteration.
ELEMENT_NS, LOAD_NS, ITERATION_NS = 0.62, 0.60, 12.3
# The same of a word that has no register, and of a result that several warps have a part of.
WORD_NS, RESULT_NS = 0.53, 5.3
# The same of edges, and of each row that has them.
EDGES_NS, EDGE_ROW_NS = 28.0, 7.7
# The part that neighbours save of an element's time, and the part by which pipelined loads take longer.
NEIGHBOURS_SAVE, PIPELINED = 0.43, 1.9
# The part by which all takes longer for each doubling of a thread's bytes beyond 32, and of its elements of classes
# beyond 16.
THICK, THICK_CLASSES = 0.33, 1.5
# What a thread waits: microseconds for each nanosecond above.
WAIT_US = 0.0184
# The same for doublings of the warps that have a part of a result, for edges, neighbours and a loop.
WARPS_US, EDGES_US, NEIGHBOURS_US, LOOP_US = 0.164, 0.58, 0.32, 0.61
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
    elements, vector, results, sharing = _of_thread(problem, p)
    loads = elements / vector

    saved = NEIGHBOURS_SAVE if p.neighbours > 1 else 0.0
    body = elements * ELEMENT_NS * (1 - saved) + loads * LOAD_NS * (1 + PIPELINED * (p.stages > 1 and looped))
    thick = 1 + THICK * max(math.log2(elements * size / 32), 0.0)
    if p.kernel == "classes":
        thick += THICK_CLASSES * max(math.log2(elements / 16), 0.0)
    # A position and, where neighbours in memory are not in one row, an address for each load.
    words = elements * (max(size / 4, 1) + (accumulators == 2) * (looped or vector == 1) / p.neighbours)
    if p.kernel == "columns":
        words += loads * (2 if p.matrices >= 2 else vector < 2)
    ns = iterations * (body * thick + ITERATION_NS + max(words - p.registers / 2, 0.0) * WORD_NS)
    ns += RESULT_NS * results * (sharing > 1)
    if p.edge_lanes:
        ns += EDGES_NS + EDGE_ROW_NS * p.block_m / p.warps
    wait = iterations * body * WAIT_US + WARPS_US * math.log2(sharing) + LOOP_US * looped
    wait += NEIGHBOURS_US * (p.neighbours > 1) + EDGES_US * (p.edge_lanes > 0)

    read = M * N * K * size + M * K * (size + 8 * (accumulators == 2))
    alone = min(programs, limits.sm_count) * ALONE_BYTES_PER_US / (1 + NARROW * (vector * size < 4))
    at_once = (
        of_sm * p.warps * ns / 1000,
        max(of_sm / max(resident, 1), 1.0) * wait,
        read / (limits.sm_count * BYTES_PER_US),
        read / alone,
        programs / limits.sm_count * START_US,
    )
    exchange = EXCHANGE_US if p.splits > 1 else 0.0
    return LAUNCH_US + sum(us**POWER for us in at_once) ** (1 / POWER) + exchange


def _of_thread(problem: Problem, p: Plan) -> tuple[float, int, float, int]:
    """(Elements of a tile, those of a load, results that it has a part of, warps that share a result.)"""
    _, N, K, size, _ = problem
    threads, vector = p.warps * WARP, p.vector
    if p.kernel == "columns":
        one_tile = p.block_n >= N and p.lanes > 0
        lanes = p.lanes * (p.depth + (N % p.lanes > 0)) if one_tile else p.block_n
        tile = lanes * p.block_k
        vector = min(math.gcd(K, VECTOR_BYTES // size), p.block_k, max(tile // threads, 1))
        along = max(threads * vector // p.block_k, 1)  # threads, along N
        of_warp = min(max(WARP * vector // p.block_k, 1), along)
        return tile / threads, vector, max(p.block_k * along / threads, 1.0), max(along // of_warp, 1)
    if p.kernel == "short":
        return p.block_m * N / threads, vector, 1.0, 1
    if p.kernel == "classes":
        return p.block_n / threads, vector, float(p.block_k), p.warps
    if p.kernel == "short_classes":
        along = max(p.lanes // vector, 1)
        return p.block_m * p.lanes * (p.depth + 1) / threads, vector, max(p.block_m * K * along / threads, 1.0), 1
    if vector == 1 and N % KNOWN_MULTIPLE == 0:
        vector = min(VECTOR_BYTES // size, max(p.block_m * p.block_n // threads, 1))
    along = min(threads, max(p.block_n // vector, 1))
    return p.block_m * p.block_n / threads, vector, max(p.block_m * along / threads, 1.0), max(along // WARP, 1)
