# SPDX-License-Identifier: Apache-2.0
"""How long a launch of softmax takes: what memory moves, what multiprocessors do, and what programs wait for.

It is the sum of a launch and of each after it, of what one program waits for (loads one after the other, instructions,
exchanges of warps and of groups), and of what overlaps: bytes of memory with parts of sectors and what is read again,
instructions, lines that warps load and store, sectors that L2 takes in part, the waits of further waves, and the starts
of programs.

The constants are fitted to 4400 times of 1130 problems on H100 (torch 2.11, Triton 3.6). What they choose
among what was timed takes 2.2 % longer than the fastest, of problems that they are not fitted to. Those of rows, of
starts of programs, of parts of sectors and of classes of blocks are later and fitted to all problems, those of classes
to an H200 too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv
from .launches import (
    Blocks,
    Configuration,
    Interleaved,
    Launched,
    Problem,
    Rows,
    Short,
    Single,
    Split,
    Strided,
    launch,
)

# Programs of a multiprocessor at once, at most.
MAX_RESIDENT = 32
# Registers of a thread of programs that read an [N, K] as it lies, and of those of long columns (``strided``), which
# take 32 to 48 on sm_90. 24 x 2976 x 361 float32: 1080 of their programs run at once and take 93 us, a group's 112
# (H200).
LYING_REGISTERS, STRIDED_REGISTERS = 64, 56
# Registers of a thread next to its elements.
BASE_REGISTERS = 32
# The same for the edges of a row that starts anywhere, by bytes of an element.
EDGE_REGISTERS = {2: 8, 4: 8, 8: 40}
# Registers for an element, by its bytes. 16 bits are partly packed, but not where a group holds a row.
REGISTERS_OF_ELEMENT = {2: 0.8, 4: 1.0, 8: 2.0}
# The same of rows that a group of programs holds. softmax 594 x 67784 bf16: by 80 registers 40 bytes would spill;
# 7 x 131072 float64: by 64 registers 40.
REGISTERS_OF_SHARED = {2: 1.0, 4: 1.0, 8: 2.5}
# The same for the edges of a gradient of float64 that programs hold, whose elements take no more registers where a
# group does. 1017 x 46261 takes 126 registers with 16 elements of each input, and 393 us; in a loop with 4 461 (H100).
EDGE_REGISTERS_OF_HELD_GRADIENT = 16
# The same of gradients of 16 bits that one program reads twice. log_softmax 1000 x 9001 bf16 takes 56 registers with 16
# elements of each input, and 20.6 us by 8 warps; with 8 elements 21.7 (H200).
EDGE_REGISTERS_OF_LOOPED_GRADIENT = 6

# The same of gradients of 16 bits of which programs hold pairs, each of which takes 1.5.
BASE_REGISTERS_OF_PAIRS = 16

# Instructions of a warp for an element, by kernel.
INSTRUCTIONS = {
    "looped columns": 17.3,
    "single": 17.0,
    "blocks": 16.2,
    "columns": 16.2,
    "side": 15.2,
    "interleaved": 14.8,
    "rows of pairs": 9.8,
    "looped rows": 9.4,
    "rows": 9.2,
}
# The same of all other kernels.
OTHER_INSTRUCTIONS = 12.5
# The same for an element of a tile of classes (``blocks``) and each statistic of it.
OF_CLASS = 6.0
# Share of them that reading an element again adds.
AGAIN = 0.1
# Share of them that float64 adds.
OF_FLOAT64 = 3.8
# Share of them that a gradient takes.
OF_GRADIENT = 0.58
# Instructions of a load or a store.
OF_ACCESS = 4.1
# The same of rows of which programs hold pairs: where a tile lies is a constant, and only the last has a mask.
# The gradient of 20 x 7670 bf16, by loads of two: 3.85 us, with edges and loads of eight 4.40 (H200).
OF_ACCESS_OF_PAIRS = 1.0
# Instructions of a warp for its rows, however few elements they have: where they lie, and what its lanes exchange.
OF_ROWS = 70
# Instructions of warps that a multiprocessor issues in a microsecond: nearly four for each cycle.
ISSUED_PER_US = 6470
# Lines of memory that it loads or stores in a microsecond: nearly one for each cycle.
LINES_PER_US = 1430
# Bytes that memory moves in a microsecond, for each multiprocessor.
BYTES_PER_US = 27900
# The same that L2 takes of parts of sectors, over what is needed.
STORED_PER_US = 40000
# What a last wave that is not full takes of a full one.
LAST_WAVE = 0.38
# The same of rows of which programs hold pairs. The gradient of log_softmax 264 x 12672 float16, which is one wave,
# takes 8.45 us; 300 x 12672 9.47, in a loop 10.74 (H200).
LAST_WAVE_OF_PAIRS = 0.1
# Microseconds of a launch.
LAUNCH_US = 2.86
# The same of each launch after it.
LATER_LAUNCH_US = 4.76
# The same that a launch of programs that run at once takes longer.
AT_ONCE_US = 0.67
# The same of programs of tiles in several dimensions (``Split``), whose code is longer.
SPLIT_US = 0.15
# The same of rows of float64 forward, whose lanes and edges are merged by exponentials one after the other. log_softmax
# 1 x 3413: 5.35 us by 16 warps, of whole rows in one tile 4.34 (H200); 32 x 4096: 6.6 and 5.2 (H100).
FLOAT64_SPLIT_US = 0.75
# The same between the starts of two programs of a multiprocessor, at least.
PROGRAM_US = 0.09
# Microseconds that a program waits for loads after the first.
LOAD_US = 0.126
# Loads of whole rows that a thread has at once, where each keeps a mask of its own (``_keeps_masks``).
# softmax 31750 x 6 float16 computes the first of two rows before it loads all of the second: 4.0 us, of one row 3.4
# (H100).
MAX_MASKED_LOADS = 3
# Microseconds that a program waits for each further one.
MASKED_LOAD_US = 0.15
# The same for an instruction.
INSTRUCTION_US = 0.0007
# The same for its warps to exchange.
EXCHANGE_US = 0.094
# The same for each warp that exchanges.
EXCHANGE_WARP_US = 0.04
# The same for its group.
GROUP_US = 1.83
# The same for each program of the group.
GROUP_PROGRAM_US = 0.0101
# The same for each further round of what the others found.
GROUP_READ_US = 0.33
# The same for what each program of an earlier launch found of each column after the first.
CLASS_READ_US = 0.0016
# The share of a group's wait that remains where the next item is loaded meanwhile.
WAITED_AHEAD = 0.7
# Bytes that loops have on their way to a multiprocessor, and the part by which memory takes longer where they have half
# of that. log_softmax 8192 x 50304 bf16: 423 us by programs of 16 warps with 32 elements to a thread, with 16 457;
# softmax 16 x 4096 x 512 bf16: 55.5 by 49 KB, by 33 61.0 (H200).
IN_FLIGHT_BYTES, SHALLOW = 65536, 0.15
# What overlaps is added by this exponent: 1 is the sum, infinity the longest.
OVERLAP = 1.4
# The same of programs that hold columns of 16 bits, where a multiprocessor has one, two to three, or four to seven at a
# time: one alone loads, computes and stores in turns. The gradient of 1000 x 45 x 1000 bf16: 82 us by 8 programs of 32
# columns, by 4 of 64 88, by 2 of 128 124; softmax 128 x 1000 x 1000: 212 by 2, by one 225 (H200).
OVERLAP_OF_FEW = {"columns": (1.0, 1.2, 1.3), "short": (1.3,)}
# The same of that sum and the starts of programs.
OVERLAP_OF_STARTS = 4


class Work(NamedTuple):
    """What a launch does."""

    kernel: str
    items: int  # shares of programs
    programs: int
    warps: int
    at_once: int  # items that the device has at once
    elements: float  # of each input that a thread goes through, whether they exist or not, for an item
    loads: float  # of a thread for an item, of each input; as far as they exist
    rounds: int  # loads of an item one after the other
    passes: int  # how often the inputs are read
    exchanges: int  # between warps of a program, one after the other
    group: int
    reads: int  # rounds in which a program of a group reads what the others found
    merged: int  # statistics of an earlier launch that a program reads for columns after the first
    ahead: bool  # loads the next item while it waits
    lines: float  # of memory that a load of a warp touches
    excess: float  # sectors that are moved over what is needed
    stored: float  # sectors of a store of a warp over what is needed
    classes: float  # elements of the tile of classes that a thread gathers, of each statistic
    launches: int
    late: float  # loads that wait for others' masks
    shuffles: float  # of a warp for an item, each of which takes as long as a line


def registers_of(problem: Problem, launched: Launched, limits: Limits) -> float:
    """Registers by which a thread does not spill."""
    size, inputs = problem.itemsize, problem.inputs
    if isinstance(launched, (Rows, Split)) and _of_pairs(problem, launched):
        # The gradient of 4096 x 12671 bf16 spills 8 bytes by 64 registers on sm_100 (Triton 3.7), on sm_90 none.
        edges = EDGE_REGISTERS[size] if isinstance(launched, Split) and limits.capability[0] > 9 else 0
        return BASE_REGISTERS_OF_PAIRS + 1.5 * launched.depth * launched.vec + edges
    if isinstance(launched, (Short, Rows)):
        threads = launched.warps * WARP
        tile = launched.columns * launched.lanes if isinstance(launched, Short) else launched.block_m * launched.width
        words = tile * launched.depth // threads * inputs * max(size // 4, 1)
        return 18 + 1.1 * words * (1.3 if size == 8 else 1)
    assert isinstance(launched, Split)
    held = launched.depth * launched.vec
    if not launched.contiguous:
        held = max(launched.depth * launched.lanes * launched.block_k // (launched.warps * WARP), held)
    held *= inputs
    # Groups that hold a row hold it in float32.
    held_gradient = (size, inputs) == (8, 2) and launched.contiguous and not launched.looped
    shared = launched.contiguous and launched.group > 1 and not launched.looped and not held_gradient
    each = max(REGISTERS_OF_ELEMENT[size], REGISTERS_OF_SHARED[size] if shared else 0.0)
    edges = EDGE_REGISTERS_OF_HELD_GRADIENT if held_gradient else EDGE_REGISTERS[size]
    if (size, inputs) == (2, 2) and launched.contiguous and launched.looped and launched.group == 1:
        edges = EDGE_REGISTERS_OF_LOOPED_GRADIENT
    need = BASE_REGISTERS + held * each * (1 if limits.capability[0] == 9 else 1.3)
    if launched.prefetch:
        need += held * size * 3 / 16
    if launched.contiguous:
        return need + (edges if launched.unaligned else 0)
    # A load of less than 16 bytes has a mask of its own.
    return need + (launched.depth if launched.vec * size < VECTOR_BYTES else 0)


def _of_pairs(problem: Problem, p: Rows | Split) -> bool:
    """Whether programs hold pairs of 16 bits (``pack``)."""
    if isinstance(p, Rows):
        return p.registers > 0
    return problem.itemsize == problem.inputs == 2 and p.contiguous and p.group == 1 and not p.looped


def work(problem: Problem, p: Launched, limits: Limits) -> Work:
    M, N, K, size, inputs, *_ = problem
    threads = p.warps * WARP
    kernel, items, registers = type(p).__name__.lower(), 0, getattr(p, "registers", 0)
    rounds, passes, exchanges, group, reads, merged, ahead, launches = 1, 1, 1, 1, 0, 0, False, 1
    programs, lines, excess, stored, exist, late, classes, shuffles = 0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0
    if isinstance(p, Single):
        items, elements, vec, exchanges = (
            p.programs,
            p.block / threads,
            min(VECTOR_BYTES // size, p.block // threads),
            False,
        )
        registers = 24
    elif isinstance(p, Rows):
        items, vec, kernel = p.programs, p.vec, "rows of pairs" if p.registers else kernel
        elements, exchanges = p.block_m * p.depth * p.width / threads, p.width // vec > WARP
        access = p.width // vec, vec * size, N * size, N * size
        if not p.registers:  # what programs that hold pairs load and store is next to each other, and L1 has the lines
            lines = _lines(*access)
            stored = _sectors(*access) if vec > 1 else 1.0
        if N <= WARP:  # a longer row's shuffles are among its instructions
            # 8388608 x 15 bf16: 174 us with a row to a thread, in 4 lanes, with two rows, in 8 lanes, 199 (H200).
            shuffles = p.block_m * p.width / (vec * threads) * math.log2(p.width // vec) * (3 - inputs)
        exist = min(cdiv(N, p.width) / p.depth, 1)
        if _keeps_masks(problem, p):
            late = max(elements / vec * exist * inputs - MAX_MASKED_LOADS, 0.0)
    elif isinstance(p, Short):
        items, vec = p.programs, p.vec
        elements, exchanges = p.lanes * p.depth * p.columns / threads, p.lanes * p.columns // vec > WARP and p.lanes > 1
        if inputs == 1:  # no time of a gradient shows them
            # 82485 x 5 x 2 float32: 4.96 us in two lanes, in four 5.47 (H200).
            lanes = min(p.lanes, max(WARP * vec // (p.width or p.columns), 1))
            shuffles = p.lanes * p.columns / threads * math.log2(lanes) * (3 - inputs)
        if p.width:
            kernel, exchanges = "side", False
            access = p.lanes * p.width // vec, vec * size, N * K * size, p.lanes * K * size
            lines = _lines(*access)
            stored = _sectors(*access) if vec > 1 else 1.0
        elif p.columns == K:
            kernel = "whole"
        else:
            # Beyond a row come others of the column's lanes, or of other [N, K].
            beyond = K * size if p.columns <= K else N * K * size
            side = min(p.columns, WARP * vec)
            access = vec * size, beyond, K * size, side * size
            lines = _cut(*access, LINE_BYTES)
            stored = max(_cut(*access, SECTOR_BYTES) * SECTOR_BYTES / (vec * size * WARP), 1.0)
            excess = _excess(problem, p.columns, limits) if p.columns % K else 1.0
            if (size, inputs, K % 2) == (2, 1, 1) and items <= limits.sm_count:
                # A multiprocessor's only program moves no more than the rows it has columns of, however short.
                # softmax 24 x 3881 x 3 float16: 4.23 us by single columns, by two 5.35 (H200).
                excess = min(excess, (p.columns + K - math.gcd(K, p.columns)) / p.columns)
    elif isinstance(p, Split):
        items, programs, vec, group = p.blocks * p.group, p.programs, p.vec, p.group
        rounds = max(cdiv(cdiv(N // vec if p.contiguous else N, group), p.depth * p.lanes), 1)
        passes, exchanges = 1 + p.looped, p.warps > 1
        elements = rounds * p.depth * p.lanes * (vec if p.contiguous else p.block_k) / threads
        # A program that has one item only has none to load ahead.
        ahead = programs < items if p.prefetch else p.stages > 1
        if group > 1:
            reads = (3 - inputs) * cdiv(group, p.members)
        if p.contiguous:
            kernel = "looped rows" if p.looped else "shared rows" if group > 1 else "held rows"
        else:
            kernel = "singly" if vec == 1 and (p.looped or group > 1) else "looped columns" if p.looped else "columns"
            lines = _lines(p.block_k // vec, vec * size, K * size, K * size)
            exist = min(cdiv(cdiv(N, group), p.lanes) / (p.depth * rounds), 1)
            excess = _excess(problem, p.block_k, limits) if p.block_k < K else 1.0
    else:
        vec, passes = p.vec, 2
        registers = registers or (STRIDED_REGISTERS if isinstance(p, Strided) else LYING_REGISTERS)
        if isinstance(p, Blocks):
            items, tiles, passes = M, cdiv(N * K, p.step), 1 + p.looped
            classes = p.rows * p.columns / threads * (3 - inputs)
            # softmax 51 x 674 x 5 float16, whose classes are in two parts: 4.8 us by 4 warps, by 16 6.3 (H200).
            exchanges = 1 + (max(p.rows * p.columns // p.block, 1) - 1) * (3 - inputs)
        elif isinstance(p, Interleaved):
            items, tiles, launches = M * p.splits, cdiv(N * K, p.step * p.splits), 2
            exchanges, merged = K, (K - 1) * p.splits
        else:
            items, tiles, launches = M * p.splits * p.blocks, cdiv(N * K, p.step * p.splits), 3
        rounds = cdiv(tiles, p.depth)
        elements = rounds * p.depth * vec
    registers = math.ceil((registers or registers_of(problem, p, limits)) / 8) * 8
    resident = min(limits.registers_per_sm // (registers * threads), limits.threads_per_sm // threads, MAX_RESIDENT)
    # Programs that wait for each other, or load ahead, are as many as the device has.
    persistent = isinstance(p, Split) and (group > 1 or (p.stages > 1 and not p.looped))
    return Work(
        kernel,
        items,
        programs or items,
        p.warps,
        programs if persistent else max(resident, 1) * limits.sm_count,
        elements,
        elements / vec * exist,
        rounds,
        passes,
        exchanges,
        group,
        reads,
        merged,
        ahead,
        lines or max(vec * size * WARP / LINE_BYTES, 1.0),
        excess,
        stored,
        classes,
        launches,
        late,
        shuffles,
    )


def _keeps_masks(problem: Problem, p: Rows) -> bool:
    """Whether the masks of loads are kept for the stores: of float64, and of threads that have several whole rows."""
    if problem.itemsize == 8:
        return problem.inputs == 1
    return p.width == p.vec and p.block_m > p.warps * WARP


def _lines(threads: int, load_bytes: int, stride: int, row_bytes: int, line: int = LINE_BYTES) -> float:
    """Of memory that a load of a warp touches, of which so many threads are next to each other in a row."""
    threads = min(threads, WARP)
    rows, together = WARP / threads, threads * load_bytes
    if threads < WARP:
        together = min(together, row_bytes)
    each = (together + line - math.gcd(stride, line, together)) / line
    return max(rows * min(each, stride / line), 1.0)


def _cut(load_bytes: int, stride: int, row_bytes: int, side_bytes: int, line: int) -> float:
    """The same of threads next to each other as far as their side goes, which ends of rows cut into pieces."""
    sides = WARP * load_bytes / side_bytes
    pieces = sides * (side_bytes + row_bytes - math.gcd(side_bytes, row_bytes)) / row_bytes
    each = (WARP * load_bytes / pieces + line - math.gcd(row_bytes, side_bytes, line)) / line
    return max(pieces * min(each, stride / line), 1.0)


def _sectors(threads: int, load_bytes: int, stride: int, row_bytes: int) -> float:
    """Sectors of a store of a warp over what is needed, of threads as ``_lines`` has them, if they store vectors.

    Elements one by one show none: softmax 17292188 x 7 float32 takes 325 us with four to a thread, with two 363 (H100).
    """
    return max(_lines(threads, load_bytes, stride, row_bytes, SECTOR_BYTES) * SECTOR_BYTES / (load_bytes * WARP), 1.0)


def _excess(problem: Problem, columns: int, limits: Limits) -> float:
    """What is moved of a row of a program's columns over what they have; neighbours share the first sector and the
    last. Of what L2 does not hold, memory moves two at least; no time of 16 bits shows it.

    softmax 7032 x 36 x 30 float32: 31.1 us by 64 columns, by 32 37.0 (H100).
    """
    M, N, K, size, inputs, *_ = problem
    moved = SECTOR_BYTES * (2 if size > 2 and M * N * K * size * (inputs + 1) > limits.l2_bytes else 1)
    return (columns * size + moved - math.gcd(K * size, moved, columns * size)) / (columns * size)


def _overlap(w: Work, size: int, limits: Limits) -> float:
    of_few = OVERLAP_OF_FEW.get(w.kernel, ()) if size == 2 else ()
    doubled = int(math.log2(max(w.at_once / limits.sm_count, 1)))
    return of_few[doubled] if doubled < len(of_few) else OVERLAP


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds of the launch that a configuration means."""
    return microseconds(problem, launch(problem, configuration, limits), limits)


def microseconds(problem: Problem, launched: Launched, limits: Limits) -> float:
    M, N, K, size, inputs, *_ = problem
    w = work(problem, launched, limits)
    turns = cdiv(w.items, limits.sm_count)  # items of the multiprocessor that has most
    waves = cdiv(w.items, w.at_once)
    # Instructions of a warp for an item.
    computed = w.elements * INSTRUCTIONS.get(w.kernel, OTHER_INSTRUCTIONS) * (1 + (w.passes - 1) * AGAIN)
    computed *= (1 + OF_FLOAT64 if size == 8 else 1.0) * (OF_GRADIENT if inputs == 2 else 1.0)
    computed += w.classes * OF_CLASS
    accesses = w.loads * (inputs * w.passes + 1)
    of_access = OF_ACCESS_OF_PAIRS if w.kernel == "rows of pairs" else OF_ACCESS
    instructions = computed + accesses * of_access + (OF_ROWS if K == 1 < N else 0)
    # From an item's first load to its last store.
    waited = (w.rounds * w.passes - 1) * LOAD_US * (0.5 if w.ahead else 1)
    waited += instructions * INSTRUCTION_US * max(w.warps / 4, 1) ** 0.5
    waited += w.late * MASKED_LOAD_US
    waited += w.exchanges * (EXCHANGE_US + EXCHANGE_WARP_US * w.warps) + w.merged * CLASS_READ_US
    launches = LAUNCH_US + (w.launches - 1) * LATER_LAUNCH_US
    if isinstance(launched, Split):
        launches += FLOAT64_SPLIT_US if K == inputs == 1 and size == 8 else SPLIT_US
    serial = 0.0
    if w.group > 1:
        for_group = GROUP_US + GROUP_PROGRAM_US * w.group + GROUP_READ_US * (w.reads - 1)
        for_group *= WAITED_AHEAD if w.ahead else 1
        waited += for_group
        launches += AT_ONCE_US
        # A group that has the device to itself waits while nothing else is done, one of a few while little is. Rows
        # beyond L2 want few groups nevertheless.
        # By one group of 264 programs softmax 5 x 8388608 float16 takes 95.7 us, its gradient of 8 x 29826161 834, by
        # two groups of 132 83.5 and 860 (H100). The gradient of log_softmax 16 x 1048576 bf16: 44.8 us by four groups
        # of 66 programs, by eight 36.6 (H200).
        if N * size * inputs < limits.l2_bytes:
            serial = (waves - 1) * for_group * min(2 * w.group / w.at_once, 1) ** 0.5
    # What is read again, and L2 does not hold.
    read = M * N * K * size * inputs
    # Sums of log_softmax's gradient read one of its inputs. Blocks show no difference.
    twice = read / 2 if problem.log and not isinstance(launched, Blocks) else read
    between = twice if w.launches > 1 else twice * min(w.at_once / w.items, 1)
    again = (w.passes - 1) * min(between / limits.l2_bytes, 1) ** 2
    # Of the last wave fewer programs load.
    of_pairs = isinstance(launched, (Rows, Split)) and _of_pairs(problem, launched)
    last_wave = LAST_WAVE_OF_PAIRS if of_pairs else LAST_WAVE
    slower = w.excess * (1 + last_wave * (waves * w.at_once / w.items - 1 if waves > 1 else 0))
    if w.kernel.startswith("looped") and waves > 1:
        in_flight = w.at_once / limits.sm_count * w.warps * WARP * w.elements / w.rounds * size * inputs
        slower *= 1 + SHALLOW * max(math.log2(IN_FLIGHT_BYTES / in_flight), 0.0)
    parts = (
        (read + twice * again + M * N * K * size) * slower / (BYTES_PER_US * limits.sm_count),
        turns * w.warps * instructions / ISSUED_PER_US,
        turns * w.warps * (accesses * w.lines + w.shuffles) / LINES_PER_US,
        (waves - 1) * waited - serial,
        M * N * K * size * (w.stored - 1) / (STORED_PER_US * limits.sm_count),
    )
    overlap = _overlap(w, size, limits)
    overlapped = sum(part**overlap for part in parts) ** (1 / overlap)
    # What multiprocessors do meanwhile hides the starts of programs, unless these take about as long.
    started = w.programs / limits.sm_count * PROGRAM_US
    waited += serial
    return launches + waited + (overlapped**OVERLAP_OF_STARTS + started**OVERLAP_OF_STARTS) ** (1 / OVERLAP_OF_STARTS)
