# SPDX-License-Identifier: Apache-2.0
"""What a cumsum is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits

WARP = 32
VECTOR_BYTES = 16
# Triton knows of a size whether it is a multiple of this, and loads whole vectors only if it is.
KNOWN_MULTIPLE = 16
MAX_WARPS, PROGRAMS_PER_SM = 16, 32
# Rows of so many elements are read one by one where they are no whole vectors: in a program of 4 warps and rows of 101
# float32 148 instructions, with edges 202; of 251 277 and 244.
MAX_SCALAR = 128
# Elements of a thread that spill nothing, by their bytes: alone, and in programs of one block, which have those of three
# steps, or few registers. A tile of columns has sums and an address of its own, so those are no more than so many.
MAX_ROW_ELEMENTS = {1: (32, 16), 2: (64, 32), 4: (32, 16), 8: (16, 8)}
MAX_COLUMN_ELEMENTS = {1: (32, 8), 2: (32, 16), 4: (32, 8), 8: (16, 4)}
MAX_TOGETHER_COLUMN_TILES = 8
# Sums of other programs that a thread reads at once; of 8 bytes half as many, which are two words each of an integer.
WORDS = 4

# For ``estimate``, in microseconds, fitted to 149 launches of 59 problems on an H200: the fastest of a problem's is at most
# 1.13 times faster than the one of the lowest estimate, 1.005 times on the average.
# A launch, and what is before and after its loop; a second launch, which waits for the first.
LAUNCH_US, SECOND_LAUNCH_US = 2.1, 2.0
# A step of a program waits for memory, and goes through the elements of a thread one after the other.
LOAD_US, ELEMENT_US = 0.4, 0.007
# Sums exchanged by the warps of a program, and for each of its warps, of rows and of columns.
SYNC_US, SYNC_ROW_WARP_US, SYNC_COLUMN_WARP_US = 0.1, 0.015, 0.06
# The same by programs that share: 2**28 float32 takes 2.63 us a step with 4 warps, 2.83 with 8, 3.15 with 16, of which
# 2.0 are the bytes. Each step, each warp, and of columns each word that a program reads. The first time more, and for
# each of the group: 196560 float32 take 5.6 us in 192 programs, 5.2 in 96 of twice as many warps.
EXCHANGE_US, EXCHANGE_WARP_US, EXCHANGE_WORD_US = 0.55, 0.05, 0.0015
FIRST_EXCHANGE_US, FIRST_MEMBER_US = 1.4, 0.003
# What a multiprocessor moves and issues in a microsecond, and what it takes for a program: 46 x 712 x 21 in 4094
# programs 5.4 us, in 2047 4.3.
BYTES_PER_US, INSTRUCTIONS_PER_US, PROGRAM_US = 32500, 200000, 0.1
# Instructions for an element, and for a vector of a row or of columns; for 8 bytes twice as many.
ELEMENT_INSTRUCTIONS, ROW_INSTRUCTIONS, COLUMN_INSTRUCTIONS = 4, 40, 10
# Memory is read in sectors. Of columns that are no whole lines it also takes so many bytes more for each piece:
# 8192 x 4096 float32 along 0 98 us with pieces of 32 bytes, 86 with 64.
SECTOR_BYTES, PIECE_BYTES = 32, 12
# Registers of a thread, and for each of its elements (of 4 bytes) in rows and in columns.
REGISTERS, ROW_REGISTERS, COLUMN_REGISTERS = 20, 1.25, 2.5
# So many programs of a multiprocessor hide all that they wait for.
MAX_OVERLAP = 8


class Problem(NamedTuple):
    """``size``: bytes of an element of the input or the result, whichever has more."""

    M: int
    N: int
    K: int
    size: int
    integer: bool = False


class Configuration(NamedTuple):
    """What the tuner chooses. A program has ``depth`` tiles of ``lanes`` and as many units as its threads fill.

    Kernels: units are rows (or blocks of columns) of their own; segments of a row or of columns; segments of them that
    are shared by several programs, or of their chunks.
    """

    kernel: str
    elements: int  # of a thread in a tile
    lanes: int
    depth: int
    warps: int
    registers: int = 0  # of a thread of programs of one block, which says how many run at once

    @property
    def units(self) -> int:
        return self.elements * self.warps * WARP // self.lanes

    def step(self, K: int) -> int:
        """Elements of a row, or of a column, that a program has at once."""
        return self.depth * (1 if K > 1 else self.lanes) * (1 if self.kernel == "units" else self.units)


class Alone(NamedTuple):
    """A program for each block: rows, or ``lanes`` columns."""

    units: int
    lanes: int
    depth: int
    warps: int
    segmented: bool
    steps: int
    programs: int


class Chunks(NamedTuple):
    """``chunks`` programs for each block, each with ``length`` elements along N; those but the last are added up before."""

    units: int
    lanes: int
    depth: int
    warps: int
    registers: int
    steps: int
    chunks: int
    length: int
    blocks: int

    @property
    def programs(self) -> int:
        return self.blocks * self.chunks


class Shared(NamedTuple):
    """``group`` programs for each block."""

    units: int
    lanes: int
    depth: int
    warps: int
    registers: int
    steps: int
    group: int
    members: int
    copies: int
    blocks: int
    words: int  # of the workspace, for sums of one word

    @property
    def programs(self) -> int:
        return self.blocks * self.group


Launch = Alone | Chunks | Shared


def vector(problem: Problem) -> tuple[int, bool]:
    """Elements that are loaded at once, and whether rows are split into an interior of such vectors and edges."""
    whole = max(VECTOR_BYTES // problem.size, 1)
    fitting = math.gcd(problem.N if problem.K == 1 else problem.K, whole)
    odd = fitting == 1 or fitting * problem.size < VECTOR_BYTES // 2
    unaligned = problem.K == 1 and problem.N > MAX_SCALAR and odd
    return (whole if unaligned else fitting), unaligned


def max_depth(problem: Problem, elements: int, together: bool = False) -> int:
    """Tiles of a program in which a thread has so many elements. Edges need registers too: with 64 elements of bfloat16
    alone, or 8 of float64 in programs of one block, 8 bytes are spilled.
    """
    if problem.K > 1:
        most = MAX_COLUMN_ELEMENTS[problem.size][together] // elements
        return min(most, MAX_TOGETHER_COLUMN_TILES) if together else most
    most = MAX_ROW_ELEMENTS[problem.size][together]
    if vector(problem)[1] and (not together or problem.size == 8):
        most = most * 3 // 4
    return most // elements


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launch | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launch:
    """ValueError if the problem cannot be launched so."""
    M, N, K, size, _ = problem
    kernel, elements, lanes, depth, warps, registers = configuration
    units, threads = configuration.units, warps * WARP
    fits = elements > 0 and 0 < depth <= max_depth(problem, elements, kernel in ("chunks", "shared"))
    if not (fits and 0 < warps <= MAX_WARPS):
        raise ValueError(f"no legal program: {configuration}")
    if not 0 < lanes <= next_power_of_2(N if K == 1 else K) or lanes & (lanes - 1):
        raise ValueError("more lanes than neighbours")
    vec, unaligned = vector(problem)
    if unaligned and lanes % vec:
        raise ValueError("an interior is of whole vectors")
    if units < (1 if kernel == "units" else 2) or units & (units - 1):
        raise ValueError("more lanes than threads have elements, or one segment")
    if kernel == "units" and warps > 1 and units >= 2 * M:
        raise ValueError("warps without rows")
    step, blocks_k = configuration.step(K), cdiv(K, lanes)
    if kernel in ("units", "segments"):
        blocks = cdiv(M, units) if kernel == "units" else M
        return Alone(units, lanes, depth, warps, kernel == "segments", cdiv(N, step), _grid(blocks * blocks_k))
    if not 0 < registers <= limits.registers_per_sm // threads:
        raise ValueError(f"no legal program: {configuration}")
    # 8192 x 4096 bfloat16 along 0 spills 8 bytes; 2**28 float32 takes 786 us with 16 warps, 674 with 4.
    if warps > MAX_WARPS // 2:
        raise ValueError("fewer warps only")
    blocks, tiles, width = M * blocks_k, cdiv(N, step), 1 if K == 1 else lanes
    resident = resident_programs(registers, warps, limits) // blocks
    if kernel == "chunks":
        if min(resident, tiles) < 2:
            raise ValueError("one chunk")
        steps = cdiv(tiles, resident)
        return Chunks(units, lanes, depth, warps, registers, steps, cdiv(tiles, steps), steps * step, blocks)
    words = WORDS * threads // (width * (2 if size == 8 else 1))
    group = min(tiles, resident, words)
    if group < 2:
        raise ValueError("a group of one")
    steps = cdiv(tiles, group)
    group = cdiv(tiles, steps)
    members = next_power_of_2(group)
    # As many as threads hold of a tile, so that both have one layout.
    copies = max(threads * (1 if K == 1 else elements) // (members * width), 1)
    words = blocks * steps * group * width
    return Shared(units, lanes, depth, warps, registers, steps, group, members, copies, blocks, words)


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: what all programs move and issue, and what one of them waits for."""
    M, N, K, size, integer = problem
    found = launch(problem, configuration, limits)
    wide, tile = 2 if size == 8 else 1, configuration.elements * found.depth
    vec = vector(problem)[0] if K == 1 else configuration.elements
    instructions = ELEMENT_INSTRUCTIONS + (ROW_INSTRUCTIONS if K == 1 else COLUMN_INSTRUCTIONS) / vec
    lanes = found.programs * found.steps * tile * found.warps * WARP
    # Of each multiprocessor.
    moved = _bytes(problem, configuration) / BYTES_PER_US
    issued = max(lanes * wide * instructions / INSTRUCTIONS_PER_US, found.programs * PROGRAM_US)
    moved, issued = (each / min(limits.sm_count, found.programs) for each in (moved, issued))
    # Elements of a thread that are no neighbours are scanned across the warp each by themselves.
    step = tile * ELEMENT_US * wide * (max(4 // vec, 1) if K == 1 else 1)
    if isinstance(found, Shared):
        exchange = EXCHANGE_US + EXCHANGE_WARP_US * found.warps
        exchange += 0 if K == 1 else EXCHANGE_WORD_US * found.group * found.lanes
        words = 2 if size == 8 and integer else 1
        first = (FIRST_EXCHANGE_US + FIRST_MEMBER_US * found.group) * words
        return LAUNCH_US + LOAD_US + first + max(moved, issued) + found.steps * (step + exchange * words)
    sync = SYNC_US + (SYNC_ROW_WARP_US if K == 1 else SYNC_COLUMN_WARP_US) * found.warps
    serial = found.steps * (LOAD_US + step + (0 if configuration.kernel == "units" else sync))
    per_element = ROW_REGISTERS if K == 1 else COLUMN_REGISTERS
    registers = REGISTERS + int(tile * wide * per_element / (2 if configuration.kernel == "units" else 1))
    resident = resident_programs(configuration.registers or registers, found.warps, limits) // limits.sm_count
    alone = LAUNCH_US + _overlapped(max(moved, issued), serial, found.programs / limits.sm_count, resident)
    if isinstance(found, Alone):
        return alone
    # The first launch reads, and adds up.
    return alone + SECOND_LAUNCH_US + max(moved, issued) / 2 + found.steps * (LOAD_US + step / 2) + LOAD_US


def _bytes(problem: Problem, configuration: Configuration) -> float:
    """That are moved. A warp of columns reads a piece of each row, or of neighbouring rows if those are all of K."""
    M, N, K, size, _ = problem
    kernel, elements, lanes, depth, *_ = configuration
    if K == 1:
        return 2 * M * N * size
    if lanes >= K and kernel != "units":
        return 2 * M * N * max(K * size, min(depth * K * size, SECTOR_BYTES))
    piece = min(lanes, elements * WARP, K) * size if kernel == "units" else lanes * size
    return 2 * M * N * K * size * (1 + (PIECE_BYTES if K * size % SECTOR_BYTES == 0 else SECTOR_BYTES) / piece)


def _overlapped(moved: float, serial: float, programs: float, resident: int) -> float:
    """Of a multiprocessor's ``programs``, of which ``resident`` run at once: a program from its begin to its end, and
    the others, which move while others wait. One by one they do not.
    """
    whole = math.ceil(programs) if programs < 4 else programs
    resident = min(resident, math.ceil(whole), MAX_OVERLAP)
    waited = max(whole / resident - 1, 0) * serial
    return serial + ((moved * whole / max(programs, 1)) ** resident + waited**resident) ** (1 / resident)


def resident_programs(registers: int, warps: int, limits: Limits) -> int:
    threads = warps * WARP
    of_sm = min(limits.registers_per_sm // (registers * threads), limits.threads_per_sm // threads, PROGRAMS_PER_SM)
    return limits.sm_count * max(of_sm, 1)


def _grid(programs: int) -> int:
    if programs >= 2**31:
        raise ValueError("more programs than a grid has")
    return programs
