# SPDX-License-Identifier: Apache-2.0
"""What the kernels of a gradient of a group norm do."""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv
from ..norm.backward_plan import plan_partial_sums
from .kernel_time import (
    BARRIER_US,
    ELEMENT,
    IDLE_WARPS,
    ISSUED_PER_US,
    LINE_BYTES,
    LOAD,
    LOAD_US,
    LOOP_US,
    PARAMETER,
    PIPELINED,
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
from .launches import (
    BackwardChannels,
    BackwardFew,
    BackwardLoop,
    BackwardRows,
    BackwardSplit,
    Problem,
    Sums,
    Tile,
    Vectors,
)
from .legal_parts import tiles_and_lanes
from .programs import STAGES, WARPS

# Microseconds of a launch with two kinds of programs, beside its work.
FEW_US = 0.2
# The part of what the slower of these programs has more to do than the mean that is waited for. 208 x 64 x 5 bf16 in 8
# groups: 5.6 us with two channels to a program, 4.7 with one (H100).
SLOWEST = 0.3
# Lines of L1 that a program of channels looks up in a microsecond. 3608 x 32 bf16 in 32 groups: 8.1 us, as tiles 6.4
# (H100).
LINES_PER_US = 1400.0
# Registers of a thread that adds up whole unaligned channels: 53 to 64 as compiled (sm_90).
UNALIGNED_REGISTERS = 64
# Instructions of a warp: of an element of both inputs,
ELEMENT_BACKWARD = 8.7
# and of a row.
ROW_BACKWARD = 32.0
# More loads of each single element of tiles of sums, as it seems, where channels have several. 16 x 5695 x 5 bf16 in 1
# group: 13.0 us in such tiles, by programs that hold channels 10.9 (H100).
SINGLES_OF_SUMS = 1
# Factor of a tile's instructions where channels have one element of at most 32 bits. 1338920 x 67 bf16: 287 us as
# tiles, as it lies 315 (H100).
SINGLES = 0.5
# The same where channels are in two chunks. 60000 x 16 x 17 bf16 in 8 groups: 75 us, as it lies 130 (H100).
CHUNKED = 0.8
# The same where elements are float64.
FLOAT64 = 1.6
# Microseconds of each further tile of a program of tiles, beside its loads. 143990 x 16 x 6 bf16: with tiles of 64
# groups 69 us, of 256 53 (H100).
TURN_US = 0.18
# The same of a loop: a program with one tile has none. 3000 x 11 x 15 float32 in 11 groups: 10.0 us with three tiles
# each, 8.8 with one (H100).
TILE_LOOP_US = 0.4
# The part of what tiles read of sectors beside their own bytes that takes time. 432 x 2048 float16 in 2048 groups: 14.3
# us with 8 bytes of a sample to a program, 11.1 with 16 (H100).
OVERFETCH = 0.8
# Registers of a thread of tiles: beside its elements, of each 32 bits of an element of both inputs, and of each load,
# where a program has one tile, and in a loop, which keeps addresses and the sums of each element: as in 190 compiled
# launches (sm_90, Triton 3.6). 16384 x 128 x 15 bf16 in 16 groups, 18 programs to a multiprocessor have registers: 157
# us with 24 of them, with half the elements to a thread 105 (H100).
REGISTERS_OF_ONE, REGISTERS_OF_LOOP = (30, 2.5, 1.8), (25, 4.4, 6.6)
# Sums of parts that a thread loads before it waits for the first: as compiled.
MERGED_AT_ONCE = 8


def of_tile(problem: Problem, chosen: Tile, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    rows = chosen.samples * chosen.groups
    of_groups = cdiv(problem.groups, chosen.groups)
    tiles = cdiv(problem.samples, chosen.programs // of_groups * chosen.samples)
    width = max(chosen.block_hw // chosen.chunks // chosen.vec, 1)
    held = held_of(chosen.warps, chosen.vec, (width, chosen.block_d, rows), 2)
    loads, elements = chosen.chunks * held.loads, chosen.chunks * held.elements
    each = (2 + problem.dx) * loads * LOAD + elements * ELEMENT_BACKWARD + sum_instructions(held, ROW_BACKWARD)
    if problem.itemsize == 8:
        each *= FLOAT64
    elif problem.K == 1:
        each *= SINGLES
    elif chosen.chunks > 1:
        each *= CHUNKED
    end = 2 * held.elements * ELEMENT + sum_instructions(held, ROW_BACKWARD)
    instructions = PROGRAM + tiles * each + end
    waits = LOAD_US * pipelined(tiles, chosen.stages) + tiles * sum_us(held) + 2 * BARRIER_US
    if tiles > 1:
        waits += TILE_LOOP_US + (tiles - 1) * TURN_US
    lanes = rows * chosen.block_d * chosen.block_hw // chosen.chunks
    of_thread = min(held.elements, max(lanes // (chosen.warps * WARP), 1))
    least, of_element, of_load = REGISTERS_OF_LOOP if tiles > 1 else REGISTERS_OF_ONE
    registers = least + of_thread * of_element * max(problem.itemsize // 4, 1)
    if problem.K > 1 or problem.N == 1:  # else its channels lie at one address
        registers += max(of_thread / chosen.vec, 1) * of_load
    shared = shared_of(problem, chosen.stages, rows * chosen.block_d * chosen.block_hw)
    # Each program reads whole sectors of its groups of each sample.
    run = min(chosen.groups, problem.groups) * problem.size * problem.itemsize
    from_l2 = OVERFETCH * (2 + problem.dx) * numel * max(SECTOR_BYTES / run - 1, 0.0)
    first = Kernel(
        chosen.programs, chosen.warps, instructions, waits, (2 + problem.dx) * numel, from_l2, registers, shared
    )
    return [first, *_added(problem, chosen.programs // of_groups, limits)]


def _added(problem: Problem, parts: int, limits: Limits) -> list[Kernel]:
    """The kernel that adds up the sums that ``parts`` programs have of each channel."""
    if parts == 1:
        return []
    channels = problem.groups * problem.N
    adding = plan_partial_sums(parts, channels, 2, limits)
    turns = cdiv(parts, adding.block_p)
    each = adding.block_p * adding.block_n / (adding.warps * WARP) * (LOAD + ELEMENT)
    workspace = 4.0 * max(4, problem.itemsize) * channels * parts
    waits = LOAD_US * pipelined(turns, 1)
    return [Kernel(2 * adding.programs, adding.warps, PROGRAM + turns * each, waits, 0.0, workspace)]


def of_few(problem: Problem, chosen: BackwardFew, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    of_groups = held_of(chosen.warps, chosen.vec, (chosen.block // chosen.vec or 1, chosen.groups), 1)
    groups = 3 * of_groups.loads * LOAD + of_groups.elements * (ELEMENT_BACKWARD + PARAMETER)
    groups += sum_instructions(of_groups, ROW_BACKWARD)
    vec = chosen.channels_vec if chosen.block_hw > 1 else 1
    sizes = chosen.block_hw // vec or 1, chosen.block_c, chosen.samples
    of_channels = held_of(chosen.warps, vec, sizes, 1)
    iterations = cdiv(problem.samples, chosen.samples)
    channels = iterations * (2 * of_channels.loads * (LOAD + PARAMETER) + of_channels.elements * ELEMENT_BACKWARD)
    channels += 2 * sum_instructions(of_channels, ROW_BACKWARD)
    programs = chosen.group_programs + chosen.channel_programs
    waits = max(LOAD_US + sum_us(of_groups), LOAD_US * iterations + 2 * BARRIER_US) + FEW_US
    mean = (chosen.group_programs * groups + chosen.channel_programs * channels) / programs
    waits += SLOWEST * (max(groups, channels) - mean) * (chosen.warps + IDLE_WARPS) / ISSUED_PER_US
    registers = REGISTERS + 4 * max(of_groups.elements, of_channels.elements)
    # Each sample of a channel is in a line of its own, of each input.
    lines = problem.samples * problem.inputs * min(problem.groups * problem.size * problem.itemsize / LINE_BYTES, 1)
    waits += lines / LINES_PER_US
    return [Kernel(programs, chosen.warps, PROGRAM + mean, waits, 3 * numel, 2 * numel, registers)]


def of_backward_rows(problem: Problem, chosen: BackwardRows, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    vectors, turns = chosen.vectors, cdiv(problem.M, chosen.programs)
    held = held_of(chosen.warps, vectors.vec, (vectors.lanes,), 1)
    loads, elements = chosen.chunks * held.loads, chosen.chunks * held.elements
    parameters = parameters_of(vectors, problem.N, loads, 1)
    each = (2 + problem.dx) * loads * LOAD + elements * ELEMENT_BACKWARD + sum_instructions(held, ROW_BACKWARD)
    each += parameters if vectors.span > 1 else 0.0
    if vectors.unaligned:
        each += 3 * held.loads * LOAD
    instructions = PROGRAM + turns * each + parameters
    waits = LOAD_US * pipelined(turns, chosen.stages) + turns * sum_us(held)
    if chosen.columns:
        folded = cdiv(problem.N, chosen.block_d) * cdiv(chosen.columns // problem.N, chosen.block_k)
        instructions += 2 * cdiv(chosen.columns, chosen.warps * WARP) * LOAD + folded * ROW
        waits += LOAD_US * (1 + folded * PIPELINED)
    several = vectors.span > 1
    registers = REGISTERS + elements * (8 if several else 5) * max(problem.itemsize // 4, 1)
    shared = shared_of(problem, chosen.stages, chosen.chunks * vectors.lanes * vectors.vec)
    first = Kernel(chosen.programs, chosen.warps, instructions, waits, (2 + problem.dx) * numel, 0.0, registers, shared)
    return [first, *_added(problem, chosen.programs // problem.groups, limits)]


def _of_sums(problem: Problem, chosen: Sums, warps: int) -> tuple[float, float, int]:
    """(Instructions of a warp and microseconds of waits of a tile, number of tiles of a group)."""
    tiles, _ = tiles_and_lanes(problem, chosen)
    vec = VECTOR_BYTES // problem.itemsize if chosen.unaligned else chosen.vec
    held = held_of(warps, vec, (max(chosen.block_hw // vec, 1), chosen.block_d), 1)
    rest = held_of(warps, vec, (max(chosen.rest_hw // vec, 1), chosen.block_d), 1)
    loads, elements = held.loads, held.elements
    sums = sum_instructions(held, ROW_BACKWARD)
    if chosen.rest_hw:
        loads, elements = loads + rest.loads, elements + rest.elements
        sums += sum_instructions(rest, ROW_BACKWARD)
    each = 2 * loads * LOAD + elements * ELEMENT + chosen.unaligned * 2 * held.loads * LOAD
    if vec == 1 < chosen.block_hw:
        each += SINGLES_OF_SUMS * loads * LOAD
    waits = sum_us(held)
    if not chosen.whole:
        blocks = cdiv(problem.N, chosen.block_d)
        sums, waits = sums * blocks / tiles, waits * blocks / tiles
    return each + sums, waits, tiles


def _of_gradient(problem: Problem, vectors: Vectors, warps: int) -> tuple[float, int]:
    """(Instructions of a tile, elements of a thread)."""
    held = held_of(warps, vectors.vec, (vectors.lanes,), 1)
    each = 3 * held.loads * LOAD + held.elements * ELEMENT_BACKWARD + parameters_of(vectors, problem.N, held.loads, 1)
    return each, held.elements


def of_backward_loop(problem: Problem, chosen: BackwardLoop, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    of_sum, wait, tiles = _of_sums(problem, chosen.sums, chosen.warps)
    of_gradient, elements = _of_gradient(problem, chosen.vectors, chosen.warps)
    in_group, turns = cdiv(problem.size, chosen.vectors.lanes * chosen.vectors.vec), cdiv(problem.M, chosen.programs)
    instructions = PROGRAM + turns * (tiles * of_sum + in_group * of_gradient)
    # Many warps hide loads as well as a pipeline does.
    many = STAGES if chosen.warps > WARPS else 1
    ahead = pipelined(tiles, max(chosen.sums.stages, many)) + pipelined(in_group, max(chosen.stages, many))
    waits = LOAD_US * ahead
    waits = turns * (waits + tiles * wait + (tiles + in_group) * LOOP_US)
    live = min(problem.M, chosen.programs) * problem.size * problem.itemsize * problem.inputs
    again = again_of(problem, live, limits)
    shared = shared_of(problem, chosen.stages, chosen.vectors.lanes * chosen.vectors.vec)
    registers = REGISTERS + 6 * elements
    first = Kernel(
        chosen.programs, chosen.warps, instructions, waits, 3 * numel + again[0], again[1], registers, shared
    )
    return [first, *_added(problem, problem.samples, limits)]


def of_backward_split(problem: Problem, chosen: BackwardSplit, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    of_sum, wait, tiles = _of_sums(problem, chosen.sums, chosen.sums_warps)
    of_gradient, elements = _of_gradient(problem, chosen.vectors, chosen.warps)
    in_part = cdiv(tiles, chosen.parts)
    instructions = PROGRAM + in_part * of_sum
    waits = LOAD_US * pipelined(in_part, chosen.sums.stages) + in_part * wait
    registers = REGISTERS + 6 * elements * max(problem.itemsize // 4, 1)
    if chosen.sums.unaligned and chosen.sums.whole:
        registers = UNALIGNED_REGISTERS
    block = chosen.sums.block_d * (chosen.sums.block_hw + chosen.sums.rest_hw)
    shared = shared_of(problem, chosen.sums.stages, block)
    kernels = [
        Kernel(problem.M * chosen.parts, chosen.sums_warps, instructions, waits, 2 * numel, 0.0, registers, shared)
    ]
    if problem.dx:
        merged = cdiv(chosen.parts, chosen.warps * WARP)
        instructions = PROGRAM + of_gradient
        again = again_of(problem, 2 * numel, limits)
        waits = LOAD_US * (2 + (merged - 1) / MERGED_AT_ONCE) + BARRIER_US
        kernels.append(
            Kernel(problem.M * chosen.tiles, chosen.warps, instructions, waits, numel + again[0], again[1], registers)
        )
    return [*kernels, *_added(problem, problem.samples * chosen.splits, limits)]


def of_backward_channels(problem: Problem, chosen: BackwardChannels, limits: Limits) -> list[Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    kernels = []
    if problem.dx:
        vectors, tiles = chosen.vectors, cdiv(chosen.slice_size, chosen.vectors.lanes)
        held = held_of(chosen.warps, vectors.vec, (vectors.lanes,), 1)
        each = 2 * held.loads * LOAD + held.elements * ELEMENT + parameters_of(vectors, problem.N, held.loads, 1)
        waits = LOAD_US * pipelined(tiles, chosen.stages) + sum_us(held)
        instructions = PROGRAM + tiles * each + sum_instructions(held, ROW_BACKWARD)
        shared = shared_of(problem, chosen.stages, vectors.lanes * vectors.vec)
        registers = REGISTERS + 5 * held.elements
        kernels.append(
            Kernel(problem.M * chosen.parts, chosen.warps, instructions, waits, 2 * numel, 0.0, registers, shared)
        )
    turns = cdiv(problem.samples, chosen.shares)
    held = held_of(chosen.warps, chosen.vec, (max(chosen.block_hw // chosen.vec, 1), chosen.block_d), 1)
    each = (2 + problem.dx) * held.loads * LOAD + held.elements * ELEMENT_BACKWARD
    each += ROW if problem.dx else 0.0
    instructions = PROGRAM + turns * each + sum_instructions(held, ROW_BACKWARD)
    # The sums of the first group's parts are waited for too.
    waits = LOAD_US * (pipelined(turns, 1) + problem.dx)
    again = again_of(problem, 2 * numel, limits) if problem.dx else (2 * numel, 0.0)
    from_l2 = again[1] + 8 * chosen.parts * chosen.programs * turns * problem.dx
    registers = REGISTERS + 6 * held.elements * max(problem.itemsize // 4, 1)
    kernels.append(
        Kernel(chosen.programs, chosen.warps, instructions, waits, again[0] + numel * problem.dx, from_l2, registers)
    )
    return [*kernels, *_added(problem, chosen.shares, limits)]
