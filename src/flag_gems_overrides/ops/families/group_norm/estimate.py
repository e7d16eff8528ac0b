# SPDX-License-Identifier: Apache-2.0
"""An estimate of a launch of a group norm, in microseconds.

A launch is one kernel or several, in turn. Of each kernel there are three times: of the memory for its bytes, of the
multiprocessors for its instructions, and of its programs for what they wait for, one wave of programs after the other.
They hide each other in part. Constants are fitted to times on an H100 and an H200, but for those of the hardware: bytes
and instructions of a multiprocessor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from ..norm.backward_plan import plan_partial_sums
from .launches import (
    BackwardChannels,
    BackwardFew,
    BackwardLoop,
    BackwardRows,
    BackwardSplit,
    Configuration,
    Launch,
    Loop,
    Problem,
    Rows,
    ShortRows,
    Split,
    Sums,
    Tile,
    Vectors,
)
from .legal import launch, tiles_and_lanes

# Microseconds of the first launch.
LAUNCH_US = 2.5
# Microseconds of each other launch.
SECOND_US = 1.3
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
# The part of a load that a program waits for weights and biases that it loads after x.
LATE = 2.2
# Microseconds of an exchange between the warps of a program, for each doubling of them.
BARRIER_US = 0.038
# Microseconds of each tile of a program that reads its group twice, beside its loads.
LOOP_US = 0.062
# Microseconds of a launch with two kinds of programs, beside its work.
FEW_US = 0.2
# The part of what the slower of these programs has more to do than the mean that is waited for. 208 x 64 x 5 bf16 in 8
# groups: 5.6 us with two channels to a program, 4.7 with one (H100).
SLOWEST = 0.3
# Lines of L1 that a program of channels looks up in a microsecond. 3608 x 32 bf16 in 32 groups: 8.1 us, as tiles 6.4
# (H100).
LINES_PER_US = 1400.0
# Microseconds of a multiprocessor for the start of each program.
START_US = 0.022
# Waves of programs that are lost, on average, at the end.
TAIL = 0.69
# Maximum number of programs of a multiprocessor.
MAX_PROGRAMS = 32
# Registers of a thread beside its elements.
REGISTERS = 18
# Registers of a thread that adds up whole unaligned channels: 53 to 64 as compiled (sm_90).
UNALIGNED_REGISTERS = 64
# Registers of each load for its address and mask, where a program has several groups.
ADDRESS = 5.1

# Instructions of a warp (of all threads at once):
# of a program, its start too;
PROGRAM = 33.0
# of a load or store of a vector, with its address and mask;
LOAD = 13.0
# of an element of x forward,
ELEMENT = 1.9
# and of both inputs backward;
ELEMENT_BACKWARD = 8.7
# of a weight or bias;
PARAMETER = 3.9
# of a group of a thread;
ROW = 64.0
# of a row backward;
ROW_BACKWARD = 32.0
# of a step of a sum between the threads of a warp;
SHUFFLE = 0.62
# of a sum between warps.
EXCHANGE = 11.0
# Factor of a tile's instructions where channels have one element of at most 32 bits. 1338920 x 67 bf16: 287 us as
# tiles, as it lies 315 (H100).
SINGLES = 0.5
# Instructions that take as long as a line of L1 of a load, where threads have whole groups,
LINE = 1.6
# and of a load of a chunk.
LINE_OF_CHUNK = 0.21
# Sums of parts that a thread loads before it waits for the first: as compiled.
MERGED_AT_ONCE = 8
LINE_BYTES = 128


class _Kernel(NamedTuple):
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


class _Held(NamedTuple):
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


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    kernels = _kernels(problem, launch(problem, configuration, limits), limits)
    return LAUNCH_US + SECOND_US * (len(kernels) - 1) + sum(_us(problem, each, limits) for each in kernels)


def _us(problem: Problem, kernel: _Kernel, limits: Limits) -> float:
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


def _held(warps: int, vec: int, sizes: tuple[int, ...], summed: int) -> _Held:
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
    return _Held(loads, loads * vec, rows, steps, depth, shared_by)


def _sum_instructions(held: _Held, of_row: float) -> float:
    """Of the two sums of each row."""
    exchanged = held.rows * EXCHANGE if held.shared_by > 1 else 0.0
    return held.rows * of_row + 2 * held.steps * SHUFFLE + exchanged


def _sum_us(held: _Held) -> float:
    return BARRIER_US * (held.shared_by.bit_length() - 1)


def _parameters(vectors: Vectors, N: int, loads: int, rows: int) -> float:
    """Instructions for weights, or biases."""
    if N == 1:
        return rows * PARAMETER
    each = {1: 1, 2: 2}.get(vectors.span, vectors.vec)
    return loads * (each + 1) * PARAMETER


def _pipelined(tiles: float, stages: int) -> float:
    """Loads that a program waits for."""
    return 1 + (tiles - 1) * (PIPELINED if stages > 2 else 1.0)


def _shared(problem: Problem, stages: int, elements: int) -> int:
    return (stages - 1) * elements * problem.itemsize * problem.inputs


def _again(problem: Problem, live: float, limits: Limits) -> tuple[float, float]:
    """(Bytes from memory, bytes from L2) of inputs that are read again after ``live`` bytes."""
    numel = problem.M * problem.size * problem.itemsize * problem.inputs
    cached = min(limits.l2_bytes / 2 / live, 1.0)
    return numel * (1 - cached), numel * cached


def _kernels(problem: Problem, chosen: Launch, limits: Limits) -> list[_Kernel]:
    makers: dict[type[Launch], Callable[..., list[_Kernel]]] = {
        ShortRows: _of_short_rows,
        Rows: _of_rows,
        Loop: _of_loop,
        Split: _of_split,
        Tile: _of_tile,
        BackwardFew: _of_few,
        BackwardRows: _of_backward_rows,
        BackwardLoop: _of_backward_loop,
        BackwardSplit: _of_backward_split,
        BackwardChannels: _of_backward_channels,
    }
    return makers[type(chosen)](problem, chosen, limits)


def _of_short_rows(problem: Problem, chosen: ShortRows, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    elements = chosen.rows * problem.size
    loads = elements // chosen.vec
    # Neighbouring threads are this far from each other.
    lines = min(max(elements * problem.itemsize * WARP / LINE_BYTES, 1), WARP)
    parameters = problem.N * (chosen.rows if problem.groups > 1 else 1)
    instructions = PROGRAM + 2 * loads * (LOAD + lines * LINE) + elements * ELEMENT
    instructions += 2 * parameters * PARAMETER + chosen.rows * ROW
    return [_Kernel(chosen.programs, chosen.warps, instructions, LOAD_US, 2 * numel, 0.0, REGISTERS + 2 * elements)]


def _of_rows(problem: Problem, chosen: Rows, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    vectors = chosen.vectors
    held = _held(chosen.warps, vectors.vec, (vectors.lanes, chosen.groups), 1)
    loads, elements = chosen.chunks * held.loads, chosen.chunks * held.elements
    parameters = 2 * _parameters(vectors, problem.N, loads, held.rows)
    # Chunks of small groups are in the same lines.
    lines = max(WARP // vectors.lanes, 1) * problem.size * problem.itemsize / LINE_BYTES if chosen.chunks > 1 else 0.0
    of_load = LOAD + min(lines, WARP) * LINE_OF_CHUNK
    instructions = PROGRAM + 2 * loads * of_load + elements * ELEMENT + parameters + _sum_instructions(held, ROW)
    if vectors.unaligned:
        instructions += 2 * held.loads // held.rows * (LOAD + PARAMETER)
    waits = LOAD_US * (1 if chosen.early or problem.N == 1 else 1 + LATE) + 2 * _sum_us(held)
    of_parameters = 2 if chosen.early and vectors.span > 1 else 0
    registers: float = REGISTERS + elements * (1 + of_parameters) * max(problem.itemsize // 4, 1)
    registers += loads * ADDRESS if chosen.groups > 1 else 0.0
    return [_Kernel(chosen.programs, chosen.warps, instructions, waits, 2 * numel, 0.0, registers)]


def _of_loop(problem: Problem, chosen: Loop, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    vectors = chosen.vectors
    held = _held(chosen.warps, vectors.vec, (vectors.lanes,), 1)
    tiles, turns = cdiv(problem.size, vectors.lanes * vectors.vec), cdiv(problem.M, chosen.programs)
    each = 3 * held.loads * LOAD + 2 * held.elements * ELEMENT + 2 * _parameters(vectors, problem.N, held.loads, 1)
    instructions = PROGRAM + turns * (tiles * each + _sum_instructions(held, ROW))
    waits = turns * (LOAD_US * 2 * _pipelined(tiles, chosen.stages) + 2 * tiles * LOOP_US + 2 * _sum_us(held))
    again = _again(problem, min(chosen.programs, problem.M) * problem.size * problem.itemsize, limits)
    registers = REGISTERS + 3 * held.elements
    shared = _shared(problem, chosen.stages, vectors.lanes * vectors.vec)
    return [
        _Kernel(chosen.programs, chosen.warps, instructions, waits, 2 * numel + again[0], again[1], registers, shared)
    ]


def _of_split(problem: Problem, chosen: Split, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    vectors = chosen.vectors
    held = _held(chosen.warps, vectors.vec, (vectors.lanes,), 1)
    tiles = cdiv(chosen.slice_size, vectors.lanes)
    instructions = PROGRAM + tiles * (held.loads * LOAD + held.elements * ELEMENT) + _sum_instructions(held, ROW)
    waits = LOAD_US * _pipelined(tiles, chosen.stages) + _sum_us(held)
    registers = REGISTERS + 3 * held.elements
    shared = _shared(problem, chosen.stages, vectors.lanes * vectors.vec)
    first = _Kernel(problem.M * chosen.splits, chosen.warps, instructions, waits, numel, 0.0, registers, shared)
    instructions = PROGRAM + 2 * held.loads * LOAD + held.elements * ELEMENT
    instructions += 2 * _parameters(vectors, problem.N, held.loads, 1) + _sum_instructions(held, ROW)
    waits = 2 * LOAD_US + 2 * _sum_us(held)
    again = _again(problem, numel, limits)
    from_l2 = again[1] + 12 * problem.M * chosen.tiles * chosen.splits
    second = _Kernel(problem.M * chosen.tiles, chosen.warps, instructions, waits, numel + again[0], from_l2, registers)
    return [first, second]


def _of_tile(problem: Problem, chosen: Tile, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    rows = chosen.samples * chosen.groups
    tiles = cdiv(problem.M, chosen.programs * rows)
    width = max(chosen.block_hw // chosen.chunks // chosen.vec, 1)
    held = _held(chosen.warps, chosen.vec, (width, chosen.block_d, rows), 2)
    loads, elements = chosen.chunks * held.loads, chosen.chunks * held.elements
    each = (2 + problem.dx) * loads * LOAD + elements * ELEMENT_BACKWARD + _sum_instructions(held, ROW_BACKWARD)
    if problem.K == 1 and problem.itemsize < 8:
        each *= SINGLES
    end = 2 * held.elements * ELEMENT + _sum_instructions(held, ROW_BACKWARD)
    instructions = PROGRAM + tiles * each + end
    waits = LOAD_US * _pipelined(tiles, chosen.stages) + tiles * _sum_us(held) + 2 * BARRIER_US
    registers = REGISTERS + 4 * elements * max(problem.itemsize // 4, 1) + (loads * ADDRESS if problem.K > 1 else 0.0)
    shared = _shared(problem, chosen.stages, rows * chosen.block_d * chosen.block_hw)
    first = _Kernel(
        chosen.programs, chosen.warps, instructions, waits, (2 + problem.dx) * numel, 0.0, registers, shared
    )
    of_groups = cdiv(problem.groups, chosen.groups)
    return [first, *_added(problem, chosen.programs // of_groups, limits)]


def _added(problem: Problem, parts: int, limits: Limits) -> list[_Kernel]:
    """The kernel that adds up the sums that ``parts`` programs have of each channel."""
    if parts == 1:
        return []
    channels = problem.groups * problem.N
    adding = plan_partial_sums(parts, channels, 2, limits)
    turns = cdiv(parts, adding.block_p)
    each = adding.block_p * adding.block_n / (adding.warps * WARP) * (LOAD + ELEMENT)
    workspace = 4.0 * max(4, problem.itemsize) * channels * parts
    waits = LOAD_US * _pipelined(turns, 1)
    return [_Kernel(2 * adding.programs, adding.warps, PROGRAM + turns * each, waits, 0.0, workspace)]


def _of_few(problem: Problem, chosen: BackwardFew, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    of_groups = _held(chosen.warps, chosen.vec, (chosen.block // chosen.vec or 1, chosen.groups), 1)
    groups = 3 * of_groups.loads * LOAD + of_groups.elements * (ELEMENT_BACKWARD + PARAMETER)
    groups += _sum_instructions(of_groups, ROW_BACKWARD)
    vec = chosen.channels_vec if chosen.block_hw > 1 else 1
    sizes = chosen.block_hw // vec or 1, chosen.block_c, chosen.samples
    of_channels = _held(chosen.warps, vec, sizes, 1)
    iterations = cdiv(problem.samples, chosen.samples)
    channels = iterations * (2 * of_channels.loads * (LOAD + PARAMETER) + of_channels.elements * ELEMENT_BACKWARD)
    channels += 2 * _sum_instructions(of_channels, ROW_BACKWARD)
    programs = chosen.group_programs + chosen.channel_programs
    waits = max(LOAD_US + _sum_us(of_groups), LOAD_US * iterations + 2 * BARRIER_US) + FEW_US
    mean = (chosen.group_programs * groups + chosen.channel_programs * channels) / programs
    waits += SLOWEST * (max(groups, channels) - mean) * (chosen.warps + IDLE_WARPS) / ISSUED_PER_US
    registers = REGISTERS + 4 * max(of_groups.elements, of_channels.elements)
    # Each sample of a channel is in a line of its own, of each input.
    lines = problem.samples * problem.inputs * min(problem.groups * problem.size * problem.itemsize / LINE_BYTES, 1)
    waits += lines / LINES_PER_US
    return [_Kernel(programs, chosen.warps, PROGRAM + mean, waits, 3 * numel, 2 * numel, registers)]


def _of_backward_rows(problem: Problem, chosen: BackwardRows, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    vectors, turns = chosen.vectors, cdiv(problem.M, chosen.programs)
    held = _held(chosen.warps, vectors.vec, (vectors.lanes,), 1)
    loads, elements = chosen.chunks * held.loads, chosen.chunks * held.elements
    parameters = _parameters(vectors, problem.N, loads, 1)
    each = (2 + problem.dx) * loads * LOAD + elements * ELEMENT_BACKWARD + _sum_instructions(held, ROW_BACKWARD)
    each += parameters if vectors.span > 1 else 0.0
    if vectors.unaligned:
        each += 3 * held.loads * LOAD
    instructions = PROGRAM + turns * each + parameters
    waits = LOAD_US * _pipelined(turns, chosen.stages) + turns * _sum_us(held)
    if chosen.columns:
        folded = cdiv(problem.N, chosen.block_d) * cdiv(chosen.columns // problem.N, chosen.block_k)
        instructions += 2 * cdiv(chosen.columns, chosen.warps * WARP) * LOAD + folded * ROW
        waits += LOAD_US * (1 + folded * PIPELINED)
    several = vectors.span > 1
    registers = REGISTERS + elements * (8 if several else 5) * max(problem.itemsize // 4, 1)
    shared = _shared(problem, chosen.stages, chosen.chunks * vectors.lanes * vectors.vec)
    first = _Kernel(
        chosen.programs, chosen.warps, instructions, waits, (2 + problem.dx) * numel, 0.0, registers, shared
    )
    return [first, *_added(problem, chosen.programs // problem.groups, limits)]


def _of_sums(problem: Problem, chosen: Sums, warps: int) -> tuple[float, float, int]:
    """(Instructions of a warp and microseconds of waits of a tile, number of tiles of a group)."""
    tiles, _ = tiles_and_lanes(problem, chosen)
    vec = VECTOR_BYTES // problem.itemsize if chosen.unaligned else chosen.vec
    held = _held(warps, vec, (max(chosen.block_hw // vec, 1), chosen.block_d), 1)
    rest = _held(warps, vec, (max(chosen.rest_hw // vec, 1), chosen.block_d), 1)
    loads, elements = held.loads, held.elements
    sums = _sum_instructions(held, ROW_BACKWARD)
    if chosen.rest_hw:
        loads, elements = loads + rest.loads, elements + rest.elements
        sums += _sum_instructions(rest, ROW_BACKWARD)
    each = 2 * loads * LOAD + elements * ELEMENT + chosen.unaligned * 2 * held.loads * LOAD
    waits = _sum_us(held)
    if not chosen.whole:
        blocks = cdiv(problem.N, chosen.block_d)
        sums, waits = sums * blocks / tiles, waits * blocks / tiles
    return each + sums, waits, tiles


def _of_gradient(problem: Problem, vectors: Vectors, warps: int) -> tuple[float, int]:
    """(Instructions of a tile, elements of a thread)."""
    held = _held(warps, vectors.vec, (vectors.lanes,), 1)
    each = 3 * held.loads * LOAD + held.elements * ELEMENT_BACKWARD + _parameters(vectors, problem.N, held.loads, 1)
    return each, held.elements


def _of_backward_loop(problem: Problem, chosen: BackwardLoop, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    of_sum, wait, tiles = _of_sums(problem, chosen.sums, chosen.warps)
    of_gradient, elements = _of_gradient(problem, chosen.vectors, chosen.warps)
    in_group, turns = cdiv(problem.size, chosen.vectors.lanes * chosen.vectors.vec), cdiv(problem.M, chosen.programs)
    instructions = PROGRAM + turns * (tiles * of_sum + in_group * of_gradient)
    waits = LOAD_US * (_pipelined(tiles, chosen.sums.stages) + _pipelined(in_group, chosen.stages))
    waits = turns * (waits + tiles * wait + (tiles + in_group) * LOOP_US)
    live = min(problem.M, chosen.programs) * problem.size * problem.itemsize * problem.inputs
    again = _again(problem, live, limits)
    shared = _shared(problem, chosen.stages, chosen.vectors.lanes * chosen.vectors.vec)
    registers = REGISTERS + 6 * elements
    first = _Kernel(
        chosen.programs, chosen.warps, instructions, waits, 3 * numel + again[0], again[1], registers, shared
    )
    return [first, *_added(problem, problem.samples, limits)]


def _of_backward_split(problem: Problem, chosen: BackwardSplit, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    of_sum, wait, tiles = _of_sums(problem, chosen.sums, chosen.sums_warps)
    of_gradient, elements = _of_gradient(problem, chosen.vectors, chosen.warps)
    in_part = cdiv(tiles, chosen.parts)
    instructions = PROGRAM + in_part * of_sum
    waits = LOAD_US * _pipelined(in_part, chosen.sums.stages) + in_part * wait
    registers = REGISTERS + 6 * elements * max(problem.itemsize // 4, 1)
    if chosen.sums.unaligned and chosen.sums.whole:
        registers = UNALIGNED_REGISTERS
    block = chosen.sums.block_d * (chosen.sums.block_hw + chosen.sums.rest_hw)
    shared = _shared(problem, chosen.sums.stages, block)
    kernels = [
        _Kernel(problem.M * chosen.parts, chosen.sums_warps, instructions, waits, 2 * numel, 0.0, registers, shared)
    ]
    if problem.dx:
        merged = cdiv(chosen.parts, chosen.warps * WARP)
        instructions = PROGRAM + of_gradient
        again = _again(problem, 2 * numel, limits)
        waits = LOAD_US * (2 + (merged - 1) / MERGED_AT_ONCE) + BARRIER_US
        kernels.append(
            _Kernel(problem.M * chosen.tiles, chosen.warps, instructions, waits, numel + again[0], again[1], registers)
        )
    return [*kernels, *_added(problem, problem.samples * chosen.splits, limits)]


def _of_backward_channels(problem: Problem, chosen: BackwardChannels, limits: Limits) -> list[_Kernel]:
    numel = problem.M * problem.size * problem.itemsize
    kernels = []
    if problem.dx:
        vectors, tiles = chosen.vectors, cdiv(chosen.slice_size, chosen.vectors.lanes)
        held = _held(chosen.warps, vectors.vec, (vectors.lanes,), 1)
        each = 2 * held.loads * LOAD + held.elements * ELEMENT + _parameters(vectors, problem.N, held.loads, 1)
        waits = LOAD_US * _pipelined(tiles, chosen.stages) + _sum_us(held)
        instructions = PROGRAM + tiles * each + _sum_instructions(held, ROW_BACKWARD)
        shared = _shared(problem, chosen.stages, vectors.lanes * vectors.vec)
        registers = REGISTERS + 5 * held.elements
        kernels.append(
            _Kernel(problem.M * chosen.parts, chosen.warps, instructions, waits, 2 * numel, 0.0, registers, shared)
        )
    turns = cdiv(problem.samples, chosen.shares)
    held = _held(chosen.warps, chosen.vec, (max(chosen.block_hw // chosen.vec, 1), chosen.block_d), 1)
    each = (2 + problem.dx) * held.loads * LOAD + held.elements * ELEMENT_BACKWARD
    each += ROW if problem.dx else 0.0
    instructions = PROGRAM + turns * each + _sum_instructions(held, ROW_BACKWARD)
    waits = LOAD_US * _pipelined(turns, 1)
    again = _again(problem, 2 * numel, limits) if problem.dx else (2 * numel, 0.0)
    from_l2 = again[1] + 8 * chosen.parts * chosen.programs * turns * problem.dx
    registers = REGISTERS + 6 * held.elements * max(problem.itemsize // 4, 1)
    kernels.append(
        _Kernel(chosen.programs, chosen.warps, instructions, waits, again[0] + numel * problem.dx, from_l2, registers)
    )
    return [*kernels, *_added(problem, chosen.shares, limits)]
