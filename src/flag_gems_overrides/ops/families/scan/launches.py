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
MAX_WARPS, MAX_STAGES, PROGRAMS_PER_SM = 16, 4, 32
# Rows of so many elements are read one by one where they are no whole vectors: in a program of 4 warps and rows of 101
# float32 148 instructions, with edges 202; of 251 277 and 244.
MAX_SCALAR = 128
# Elements of a thread that spill nothing, by their bytes: alone, and shared, which has those of three steps. A tile
# of columns has sums and an address of its own, so shared ones are no more than so many.
MAX_ROW_ELEMENTS = {1: (32, 16), 2: (64, 32), 4: (32, 16), 8: (16, 8)}
MAX_COLUMN_ELEMENTS = {1: (32, 10), 2: (32, 16), 4: (32, 10), 8: (16, 4)}
MAX_SHARED_COLUMN_TILES = 10
# Triton loads a step ahead only if a thread has so many bytes side by side. With edges, or with 8 bytes an element, 8
# bytes are spilled.
MIN_ASYNC_BYTES = 4
# Sums of other programs that a thread reads at once; of 8 bytes half as many, which are two words each of an integer.
WORDS = 4

# For ``estimate``, in microseconds: a launch; what a program takes to begin, and to load from memory; sums exchanged by
# the warps of a program, and by programs, and for each of them; an element of a thread. What a multiprocessor moves and
# issues in one.
LAUNCH_US, START_US, LOAD_US, WARPS_US, PROGRAMS_US, WORD_US, ELEMENT_US = 1.5, 0.3, 0.8, 0.15, 1.5, 0.002, 0.012
BYTES_PER_US, INSTRUCTIONS_PER_US = 32000, 200000
# Instructions for an element, and for a vector of a row or of columns; for 8 bytes twice as many.
ELEMENT_INSTRUCTIONS, ROW_INSTRUCTIONS, COLUMN_INSTRUCTIONS = 4, 40, 10


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
    are shared by several programs.
    """

    kernel: str
    elements: int  # of a thread in a tile
    lanes: int
    depth: int
    warps: int
    stages: int = 1  # of the pipeline of steps; programs that share have their own
    registers: int = 0  # of a thread of programs that share, which says how many run at once

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
    stages: int
    segmented: bool
    steps: int
    programs: int


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


Launch = Alone | Shared


def vector(problem: Problem) -> tuple[int, bool]:
    """Elements that are loaded at once, and whether rows are split into an interior of such vectors and edges."""
    whole = max(VECTOR_BYTES // problem.size, 1)
    fitting = math.gcd(problem.N if problem.K == 1 else problem.K, whole)
    odd = fitting == 1 or fitting * problem.size < VECTOR_BYTES // 2
    unaligned = problem.K == 1 and problem.N > MAX_SCALAR and odd
    return (whole if unaligned else fitting), unaligned


def max_depth(problem: Problem, elements: int, shared: bool = False) -> int:
    """Tiles of a program in which a thread has so many elements. Edges need registers too: with 64 elements of bfloat16
    alone, or 8 of float64 shared, 8 bytes are spilled.
    """
    if problem.K > 1:
        most = MAX_COLUMN_ELEMENTS[problem.size][shared] // elements
        return min(most, MAX_SHARED_COLUMN_TILES) if shared else most
    most = MAX_ROW_ELEMENTS[problem.size][shared]
    if vector(problem)[1] and (not shared or problem.size == 8):
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
    kernel, elements, lanes, depth, warps, stages, registers = configuration
    units, threads, shared = configuration.units, warps * WARP, kernel == "shared"
    fits = elements > 0 and 0 < depth <= max_depth(problem, elements, shared)
    if not (fits and 0 < warps <= MAX_WARPS and 0 < stages <= MAX_STAGES):
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
    if stages > 1 and (unaligned or not MIN_ASYNC_BYTES <= elements * size < 8 * elements):
        raise ValueError("steps that are not loaded ahead, or spill")
    if not shared:
        blocks = cdiv(M, units) if kernel == "units" else M
        steps, programs = cdiv(N, step), _grid(blocks * blocks_k)
        stages = stages if steps > 1 else 1
        return Alone(units, lanes, depth, warps, stages, kernel == "segments", steps, programs)
    if not 0 < registers <= limits.registers_per_sm // threads:
        raise ValueError(f"no legal program: {configuration}")
    # 8192 x 4096 bfloat16 along 0 spills 8 bytes.
    if K > 1 and warps > MAX_WARPS // 2:
        raise ValueError("more warps share rows only")
    blocks, tiles, width = M * blocks_k, cdiv(N, step), 1 if K == 1 else lanes
    words = WORDS * threads // (width * (2 if size == 8 else 1))
    group = min(tiles, resident_programs(registers, warps, limits) // blocks, words)
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
    M, N, K, size, _ = problem
    found = launch(problem, configuration, limits)
    vec, unaligned = vector(problem)
    vec = vec if K == 1 else configuration.elements
    wide, tile = 2 if size == 8 else 1, configuration.elements * found.depth
    # Elements of a thread that are no neighbours are scanned across the warp each by themselves.
    step = tile * ELEMENT_US * wide * (max(4 // vec, 1) if K == 1 else 1)
    step += 0 if configuration.kernel == "units" else WARPS_US * wide
    serial = LOAD_US + found.steps * step + (WARPS_US if unaligned else 0)
    sms = min(limits.sm_count, found.programs)
    # Columns that lie in lines of 128 bytes are moved best, and worst if sectors have some of other programs.
    partly = 0 if found.lanes >= K else (8 if K * size % 32 == 0 else 32) / (found.lanes * size)
    moved = (1 + partly) * 2 * M * N * K * size / BYTES_PER_US
    instructions = ELEMENT_INSTRUCTIONS + (ROW_INSTRUCTIONS if K == 1 else COLUMN_INSTRUCTIONS) / vec
    lanes = found.programs * found.steps * tile * found.warps * WARP
    moved = max(moved, lanes * wide * instructions / INSTRUCTIONS_PER_US) / sms
    if isinstance(found, Shared):
        # Words are in the L2 cache: published, cleared, and read by each of the group.
        moved += found.words * wide * 8 * (3 + found.group) / (2 * BYTES_PER_US * limits.sm_count)
        exchange = PROGRAMS_US * wide + WORD_US * found.group
        return LAUNCH_US + START_US + exchange + LOAD_US + step + math.hypot(moved, (found.steps - 1) * step)
    serial += START_US + (found.steps - 1) * LOAD_US / found.stages
    waves = found.programs / resident_programs(28 + tile * size // 4, found.warps, limits)
    return LAUNCH_US + serial + math.hypot(moved, max(waves - 1, 0) * serial)


def resident_programs(registers: int, warps: int, limits: Limits) -> int:
    threads = warps * WARP
    of_sm = min(limits.registers_per_sm // (registers * threads), limits.threads_per_sm // threads, PROGRAMS_PER_SM)
    return limits.sm_count * max(of_sm, 1)


def _grid(programs: int) -> int:
    if programs >= 2**31:
        raise ValueError("more programs than a grid has")
    return programs
