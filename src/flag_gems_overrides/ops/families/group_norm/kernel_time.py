# SPDX-License-Identifier: Apache-2.0
"""What a kernel of a group norm does, and the microseconds that it takes.

There are three times: of the memory for its bytes, of the multiprocessors for its instructions, and of its programs for
what they wait for, one wave of programs after the other. They hide each other in part. Constants are fitted to times on
an H100 and an H200, but for those of the hardware: bytes and instructions of a multiprocessor.
"""

from __future__ import annotations

from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import WARP, cdiv
from .launches import Problem, Vectors

# Exponent of the norm that adds the three times of a kernel up. With 1 nothing would be hidden, with more all.
HIDING = 1.5
# Number of programs of a multiprocessor that hide half as much as many programs do.
ALONE = 0.6
# Bytes that a multiprocessor moves from or to memory in a microsecond, if all are busy.
BYTES_PER_US = 25000.0
# The same if few are busy.
BYTES_PER_US_OF_FEW = 100000.0
# Bytes of L2 that a multiprocessor moves in a microsecond.
L2_BYTES_PER_US = 53000.0
# Instructions of a warp that a multiprocessor issues in a microsecond: four in a cycle.
ISSUED_PER_US = 7000.0
# Warps of a multiprocessor with which it issues half as many, since instructions of a warp wait for each other.
IDLE_WARPS = 6.3
# Microseconds of the latency of a load.
LOAD_US = 0.41
# Loads of a tile that a program waits for, where the next two tiles are loaded ahead.
PIPELINED = 0.57
# Microseconds of an exchange between the warps of a program, for each doubling of them.
BARRIER_US = 0.038
# Microseconds of each tile of a program that reads its group twice, beside its loads.
LOOP_US = 0.062
# Microseconds of a multiprocessor for the start of each program.
START_US = 0.022
# Waves of programs that are lost, on average, at the end.
TAIL = 0.69
# Maximum number of programs of a multiprocessor.
MAX_PROGRAMS = 32
# Registers of a thread beside its elements.
REGISTERS = 18
# Registers of each load for its address and mask, where a program has several groups.
ADDRESS = 5.1
# Instructions of a warp (of all threads at once), of which estimate_backward.py has some:
# of a program, its start too;
PROGRAM = 33.0
# of a load or store of a vector, with its address and mask;
LOAD = 13.0
# of an element of x forward,
ELEMENT = 1.9
# of a weight or bias;
PARAMETER = 3.9
# of a group of a thread;
ROW = 64.0
# of a step of a sum between the threads of a warp;
SHUFFLE = 0.62
# of a sum between warps.
EXCHANGE = 11.0
LINE_BYTES = 128


class Kernel(NamedTuple):
    """What a kernel does."""

    programs: int
    warps: int
    instructions: float
    """Of each warp of a program."""
    waits: float
    """Microseconds of a program that waits for loads and other warps, alone on a multiprocessor."""
    from_memory: float
    """Bytes that are read and written by all programs."""
    from_l2: float = 0.0
    registers: float = REGISTERS
    """Of a thread."""
    shared: int = 0
    """Bytes of shared memory of a program."""


class Held(NamedTuple):
    """How Triton spreads a tile over the threads of a program, and the numbers of a thread."""

    loads: int
    elements: int
    rows: int
    """Sums that a thread has a part of."""
    steps: float
    """Of all these sums, between the threads of a warp."""
    depth: int
    """Of one of them."""
    shared_by: int
    """Warps that have parts of a sum."""


def us_of(problem: Problem, kernel: Kernel, limits: Limits) -> float:
    programs, sms = kernel.programs, limits.sm_count
    on_one = cdiv(programs, sms)
    resident = limits.registers_per_sm // (int(min(kernel.registers, 255)) // 8 * 8 * WARP * kernel.warps)
    resident = min(resident, limits.threads_per_sm // (WARP * kernel.warps), MAX_PROGRAMS)
    resident = max(min(resident, limits.shared_bytes // max(kernel.shared, 1)), 1)
    # One multiprocessor has more programs than the others.
    of_one = on_one / programs
    memory = max(kernel.from_memory / (sms * BYTES_PER_US), kernel.from_memory * of_one / BYTES_PER_US_OF_FEW)
    memory += max(kernel.from_l2 / sms, kernel.from_l2 * of_one) / L2_BYTES_PER_US
    together = min(on_one, resident)
    active = together * kernel.warps
    issue = on_one * (kernel.warps * kernel.instructions / ISSUED_PER_US * (1 + IDLE_WARPS / active) + START_US)
    waves = programs / (resident * sms)
    wait = kernel.waits * (waves + TAIL if waves > 1 else 1.0)
    hiding = 1 + (HIDING - 1) * together / (together + ALONE)
    return float((memory**hiding + issue**hiding + wait**hiding) ** (1 / hiding))


def held_of(warps: int, vec: int, sizes: tuple[int, ...], summed: int) -> Held:
    """sizes: of a tile, in loads of ``vec``, fastest first. The first ``summed`` dimensions are added up."""
    threads, loads, depth, shared_by, steps = WARP, 1, 0, 1, 0.0
    spread = []
    for size in sizes:
        of_warp = min(size, threads)
        of_program = min(size // of_warp, warps)
        threads, warps = threads // of_warp, warps // max(of_program, 1)
        repeats = max(size // (of_warp * max(of_program, 1)), 1)
        loads *= repeats
        spread.append((of_warp, max(of_program, 1), repeats))
    rows = loads
    for of_warp, of_program, repeats in spread[:summed]:
        rows //= repeats
        steps += rows * (of_warp.bit_length() - 1)
        depth += of_warp.bit_length() - 1
        shared_by *= of_program
    return Held(loads, loads * vec, rows, steps, depth, shared_by)


def sum_instructions(held: Held, of_row: float) -> float:
    """Of the two sums of each row."""
    exchanged = held.rows * EXCHANGE if held.shared_by > 1 else 0.0
    return held.rows * of_row + 2 * held.steps * SHUFFLE + exchanged


def sum_us(held: Held) -> float:
    return BARRIER_US * (held.shared_by.bit_length() - 1)


def parameters_of(vectors: Vectors, N: int, loads: int, rows: int) -> float:
    """Instructions for weights, or biases."""
    if N == 1:
        return rows * PARAMETER
    each = {1: 1, 2: 2}.get(vectors.span, vectors.vec)
    return loads * (each + 1) * PARAMETER


def pipelined(tiles: float, stages: int) -> float:
    """Loads that a program waits for."""
    return 1 + (tiles - 1) * (PIPELINED if stages > 2 else 1.0)


def shared_of(problem: Problem, stages: int, elements: int) -> int:
    return (stages - 1) * elements * problem.itemsize * problem.inputs


def again_of(problem: Problem, live: float, limits: Limits) -> tuple[float, float]:
    """(Bytes from memory, bytes from L2) of inputs that are read again after ``live`` bytes."""
    numel = problem.M * problem.size * problem.itemsize * problem.inputs
    cached = min(limits.l2_bytes / 2 / live, 1.0)
    return numel * (1 - cached), numel * cached
