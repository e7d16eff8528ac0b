# SPDX-License-Identifier: Apache-2.0
"""About how long a launch of a gradient takes: plain numbers. The configuration of the lowest estimate is chosen."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv
from .launches import Configuration, Fill, Flat, Gradient, Images, Problem, Scatter, Short, Tile, launch

# Fitted to 4300 launches of 444 problems on an H100 and an H200; the bandwidth of memory was set afterwards.

# Microseconds of a launch, with what is before and after its programs.
LAUNCH_US = 2.2
# More microseconds of a second launch.
SECOND_LAUNCH_US = 9.4
# Bytes that a multiprocessor moves in a microsecond, where L2 holds all, and where it does not.
# 3 x 7 x 6982888 float32: 754 MB in 269 us (H100).
BYTES_PER_US, BYTES_TO_MEMORY_PER_US = 34300, 22000
# The same of targets that each class of flat images loads again, from L2, if they are more than what is written.
# 4 x 55 x 422022 float32, a class to a program: 147 us, 5.1 TB/s of targets; 256 x 8 x 51345: 171 us, 4.9 (H200).
TARGETS_PER_US = 41000
# Instructions of warps that it issues in a microsecond.
INSTRUCTIONS_PER_US = 7000
# Microseconds of a program.
PROGRAM_US = 0.077
# Microseconds of an instruction of a program, all of which wait for each other.
WAIT_US = 0.0027
# Times that the last program moves its bytes while no other does.
TAIL = 0.2
# The same of images, whose last programs are few beside those that run at once.
# 74 x 516 x 2173 float32: 133 us by 1480 programs, by 2960 116 (H200).
IMAGES_TAIL = 0.4
# Bytes of a target.
TARGET_BYTES = 8
# Times that a sector counts which two warps write in parts.
PARTIAL_SECTOR = 4.1
# Microseconds of an element that is written once more, by a program that fills and by a second launch.
FILLED_US, SCATTERED_US = 1e-5, 4.8e-5
# Registers of a thread, and more for each of its targets: with more registers, fewer programs run at once.
REGISTERS, TARGET_REGISTERS = 24, 15
# Moving, issuing, waiting and loading overlap: their sum is that of a norm of this order.
OVERLAP = 3


class _Cost(NamedTuple):
    """Instructions of a thread, and the microseconds of a program that are not these."""

    begin: float
    store: float
    target: float
    element: float
    latency: float


COSTS = {
    Fill: _Cost(1.7, 1.2, 127, 0, 0.03),
    Short: _Cost(1.2, 3, 16, 13.6, 0.97),
    Tile: _Cost(1.4, 25, 25, 6, 0.056),
    Flat: _Cost(2.1, 5.5, 1, 7.2, 0.115),
    Images: _Cost(7.7, 91, 67, 1.8, 0.063),
    Scatter: _Cost(6.4, 7, 0, 0, 0.153),
}


class _Thread(NamedTuple):
    """What a thread has: ``stores`` of ``elements``, and ``targets``. ``shared`` is the share of all sectors that
    warps write in parts, ``reads`` the times that targets come from memory, ``loads`` those that flat images load
    them."""

    stores: float
    targets: float
    elements: float
    shared: float = 0
    reads: int = 1
    loads: int = 0


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: what all programs move and issue, and what one of them waits for."""
    N, C, D, size = problem
    found = launch(problem, configuration, limits)
    cost, thread = COSTS[type(found)], _thread(problem, found, limits)
    written, positions, threads = N * C * D * size, N * D, found.warps * WARP
    moved = written * (1 + PARTIAL_SECTOR * thread.shared) + TARGET_BYTES * positions * thread.reads
    loaded = TARGET_BYTES * positions * thread.loads
    in_l2 = written + TARGET_BYTES * positions * thread.reads <= limits.l2_bytes
    bandwidth = BYTES_PER_US if in_l2 else BYTES_TO_MEMORY_PER_US
    instructions = cost.begin + cost.store * thread.stores + cost.target * thread.targets
    instructions += cost.element * thread.elements
    programs = found.programs / limits.sm_count
    # The busiest multiprocessor has a whole number of programs.
    whole = math.ceil(programs) if programs < 8 else programs + 0.5
    registers = REGISTERS + TARGET_REGISTERS * thread.targets
    resident = min(limits.threads_per_sm, limits.registers_per_sm / registers) / threads
    waves = max(programs / max(min(resident, 32), 1), 1)
    parts = (
        moved / (limits.sm_count * bandwidth),
        whole * (found.warps * instructions / INSTRUCTIONS_PER_US + PROGRAM_US),
        waves * (cost.latency + WAIT_US * instructions),
        loaded / (limits.sm_count * TARGETS_PER_US) if loaded > written > limits.l2_bytes else 0,
    )
    tail = IMAGES_TAIL if isinstance(found, Images) else TAIL
    work = sum(part**OVERLAP for part in parts) ** (1 / OVERLAP) + tail * written / found.programs / BYTES_PER_US
    if isinstance(found, Scatter):
        return LAUNCH_US + SECOND_LAUNCH_US + work + positions * SCATTERED_US
    return LAUNCH_US + work + (positions * FILLED_US if isinstance(found, Fill) else 0)


def _thread(problem: Problem, found: Gradient, limits: Limits) -> _Thread:
    _, C, D, size = problem
    vec, threads = VECTOR_BYTES // size, found.warps * WARP
    match found:
        case Fill():
            return _Thread(found.block / vec / threads, cdiv(found.positions, threads), 0)
        case Scatter():
            return _Thread(found.block / vec / threads, 0, 0)
        case Short():
            vectors = found.vectors / threads
            # Two elements of 16 bits are compared at once.
            return _Thread(vectors, 2 * vectors, vectors * found.vec * (0.5 if size == 2 else 1))
        case Flat():
            vectors, stored = found.block / threads, found.classes * found.vec
            # Other classes of the same positions come so much later that L2 no longer holds their targets.
            again = D * (TARGET_BYTES + found.classes * size) > limits.l2_bytes / 2
            shared = _shared(WARP * found.vec * size, D * size) if found.classes > 1 else 0
            if WARP * found.vec > D:
                # Fewer warps share short rows. 17434 x 7 x 12 bfloat16: 4.3 us in pairs, filled 4.8 (H200).
                shared /= found.vec
            loads = cdiv(C, found.classes)
            reads = loads if again else 1
            return _Thread(vectors * found.classes, vectors * found.vec, vectors * stored, shared, reads, loads)
        case Images():
            vectors = found.vectors / threads
            stores = vectors * C / found.step
            # All warps of a class write whole sectors: 4 x 47 x 494931 float32, 3.38 TB/s (H200).
            return _Thread(stores, vectors * found.vec, stores * found.vec)
    return _tile(problem, found)


def _tile(problem: Problem, found: Tile) -> _Thread:
    _, C, D, size = problem
    vec, threads = VECTOR_BYTES // size, found.warps * WARP
    elements = found.block_n * found.block_c * found.block_d / threads
    if D > 1:
        stored = math.gcd(D, vec)
        targets = max(min(elements, stored), found.block_n * found.block_d / threads, 1)
        shared = _shared(min(WARP * stored, found.block_d) * size, D * size)
    else:
        whole = found.block_c == C
        stored = vec if C % 16 == 0 else min(vec, C) if whole else 1
        targets = max(elements / max(min(stored, found.block_c), 1), 1)
        shared = 0 if whole else _shared(WARP * stored * size, C * size)
    tiles = cdiv(C, found.block_c) / found.splits
    return _Thread(tiles * max(elements / stored, 1), targets, tiles * max(elements, 1), shared)


def _shared(piece: int, row: int) -> float:
    """Sectors that are written in parts, for each that exists, if warps write ``piece`` bytes of rows of ``row`` bytes.

    20057 x 9 x 3 float16, 6 bytes to a class: flat 4.0 us, filled 3.6 (H200).
    """
    return SECTOR_BYTES / min(piece, row) if row % SECTOR_BYTES else 0
