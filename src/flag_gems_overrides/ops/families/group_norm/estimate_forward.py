# SPDX-License-Identifier: Apache-2.0
"""What the kernels of a group norm do, forward."""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import WARP, cdiv
from .kernel_time import (
    ADDRESS,
    ELEMENT,
    LINE_BYTES,
    LOAD,
    LOAD_US,
    LOOP_US,
    PARAMETER,
    PROGRAM,
    REGISTERS,
    ROW,
    Kernel,
    again_of,
    held_of,
    parameters_of,
    pipelined,
    shared_of,
    sum_instructions,
    sum_us,
)
from .launches import Loop, Problem, Rows, ShortRows, Split

# The part of a load that a program waits for weights and biases that it loads after x.
LATE = 2.2
# Instructions that take as long as a line of L1 of a load, where threads have whole groups,
LINE = 1.6
# and of a load of a chunk.
LINE_OF_CHUNK = 0.21


def of_short_rows(problem: Problem, chosen: ShortRows, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    elements = chosen.rows * problem.size
    loads = elements // chosen.vec
    # Neighbouring threads are this far from each other.
    lines = min(max(elements * problem.itemsize * WARP / LINE_BYTES, 1), WARP)
    parameters = problem.N * (chosen.rows if problem.groups > 1 else 1)
    instructions = PROGRAM + 2 * loads * (LOAD + lines * LINE) + elements * ELEMENT
    instructions += 2 * parameters * PARAMETER + chosen.rows * ROW
    return [Kernel(chosen.programs, chosen.warps, instructions, LOAD_US, 2 * numel, 0.0, REGISTERS + 2 * elements)]


def of_rows(problem: Problem, chosen: Rows, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    vectors = chosen.vectors
    held = held_of(chosen.warps, vectors.vec, (vectors.lanes, chosen.groups), 1)
    loads, elements = chosen.chunks * held.loads, chosen.chunks * held.elements
    parameters = 2 * parameters_of(vectors, problem.N, loads, held.rows)
    # Chunks of small groups are in the same lines.
    lines = max(WARP // vectors.lanes, 1) * problem.size * problem.itemsize / LINE_BYTES if chosen.chunks > 1 else 0.0
    of_load = LOAD + min(lines, WARP) * LINE_OF_CHUNK
    instructions = PROGRAM + 2 * loads * of_load + elements * ELEMENT + parameters + sum_instructions(held, ROW)
    if vectors.unaligned:
        instructions += 2 * held.loads // held.rows * (LOAD + PARAMETER)
    waits = LOAD_US * (1 if chosen.early or problem.N == 1 else 1 + LATE) + 2 * sum_us(held)
    of_parameters = 2 if chosen.early and vectors.span > 1 else 0
    registers: float = REGISTERS + elements * (1 + of_parameters) * max(problem.itemsize // 4, 1)
    registers += loads * ADDRESS if chosen.groups > 1 else 0.0
    if chosen.registers:
        registers = chosen.registers
    return [Kernel(chosen.programs, chosen.warps, instructions, waits, 2 * numel, 0.0, registers)]


def of_loop(problem: Problem, chosen: Loop, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    vectors = chosen.vectors
    held = held_of(chosen.warps, vectors.vec, (vectors.lanes,), 1)
    tiles, turns = cdiv(problem.size, vectors.lanes * vectors.vec), cdiv(problem.M, chosen.programs)
    each = 3 * held.loads * LOAD + 2 * held.elements * ELEMENT + 2 * parameters_of(vectors, problem.N, held.loads, 1)
    instructions = PROGRAM + turns * (tiles * each + sum_instructions(held, ROW))
    waits = turns * (LOAD_US * 2 * pipelined(tiles, chosen.stages) + 2 * tiles * LOOP_US + 2 * sum_us(held))
    again = again_of(problem, min(chosen.programs, problem.M) * problem.size * problem.itemsize, limits)
    registers = REGISTERS + 3 * held.elements
    shared = shared_of(problem, chosen.stages, vectors.lanes * vectors.vec)
    return [
        Kernel(chosen.programs, chosen.warps, instructions, waits, 2 * numel + again[0], again[1], registers, shared)
    ]


def of_split(problem: Problem, chosen: Split, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    vectors = chosen.vectors
    held = held_of(chosen.warps, vectors.vec, (vectors.lanes,), 1)
    tiles = cdiv(chosen.slice_size, vectors.lanes)
    instructions = PROGRAM + tiles * (held.loads * LOAD + held.elements * ELEMENT) + sum_instructions(held, ROW)
    waits = LOAD_US * pipelined(tiles, chosen.stages) + sum_us(held)
    registers = REGISTERS + 3 * held.elements
    shared = shared_of(problem, chosen.stages, vectors.lanes * vectors.vec)
    first = Kernel(problem.M * chosen.splits, chosen.warps, instructions, waits, numel, 0.0, registers, shared)
    instructions = PROGRAM + 2 * held.loads * LOAD + held.elements * ELEMENT
    instructions += 2 * parameters_of(vectors, problem.N, held.loads, 1) + sum_instructions(held, ROW)
    waits = 2 * LOAD_US + 2 * sum_us(held)
    again = again_of(problem, numel, limits)
    from_l2 = again[1] + 12 * problem.M * chosen.tiles * chosen.splits
    second = Kernel(problem.M * chosen.tiles, chosen.warps, instructions, waits, numel + again[0], from_l2, registers)
    return [first, second]
