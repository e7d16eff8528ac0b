# SPDX-License-Identifier: Apache-2.0
"""What a cumsum is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2

# Triton knows of a size only whether it is a multiple of this. It loads whole vectors only if it is.
KNOWN_MULTIPLE = 16
# Warps of a program at most.
MAX_WARPS = 16
# Programs of a multiprocessor at most.
PROGRAMS_PER_SM = 32
# Elements at most of a row that is no whole vectors and is read one by one, without edges.
# Rows of 101 float32 in a program of 4 warps: 148 instructions, with edges 202; of 251: 277, with edges 244.
MAX_SCALAR = 128
# The same for an odd number of elements of 8 bytes: each is half a vector.
MAX_WIDE_SCALAR = 512
# The same of few rows: one scan across all warps is sooner done than the edges.
# 1 x 855 int64: 3.24 us with edges, by torch.compile, which scans so, 2.95 (H200).
MAX_LONE_SCALAR, LONE_ROWS = 1024, 8
# Elements of a thread of rows that spill nothing, by the size of an element: in a program alone, and in programs of one
# block, which hold the elements of three steps or have few registers.
MAX_ROW_ELEMENTS = {1: (32, 16), 2: (64, 32), 4: (32, 16), 8: (16, 8)}
# The same for columns.
MAX_COLUMN_ELEMENTS = {1: (32, 6), 2: (32, 12), 4: (32, 6), 8: (16, 4)}
# Tiles of columns at most, in programs of one block: each tile has sums and an address of its own.
MAX_TOGETHER_COLUMN_TILES = 8
# Elements at most of a thread of columns, in fewer than 8 warps.
# 8192 x 4096 bfloat16 along 0: 72 us with 4 warps, 54 with 8.
MAX_FEW_WARPS_ELEMENTS = 16
# Elements of 16 bits at most of a thread of rows with edges, in fewer than 8 warps, on sm_100: 48 spill 8 bytes.
MAX_EDGES_ELEMENTS = 40
# Columns K at most of which a thread may have whole rows.
MAX_INTERLEAVED = 8
# Elements of up to 4 bytes of such a thread, at most.
MAX_INTERLEAVED_ELEMENTS = 32
# Registers of a thread of programs that share a block, at least.
MIN_SHARED_REGISTERS = 96
# Sums of other programs that a thread reads at once; half as many of 8 bytes, for an integer then has two words.
WORDS = 4
# Rows of 8 bytes that are few, at most. For more rows, chunks were not timed against shared programs.
FEW_ROWS = 16


class Problem(NamedTuple):
    """``size``: bytes of an element of the input or the result, whichever has more."""

    M: int
    N: int
    K: int
    size: int
    integer: bool = False
    narrower: int = 1  # times that an element of the input has fewer bytes

    @property
    def input_size(self) -> int:
        return self.size // self.narrower


class Configuration(NamedTuple):
    """What the tuner chooses. A program has ``depth`` tiles of ``lanes``, with as many units as its threads fill.

    flat               short rows as they lie in memory, ``lanes`` elements to a program
    interleaved        rows of a few columns as they lie in memory
    stacked            several short [N, K] of a few columns
    units              rows, or blocks of columns, of their own
    segments           segments of a row, or of columns
    shared, chunks     the same, by several programs that share a block, or have a chunk of it each
    """

    kernel: str
    elements: int  # of a thread in a tile
    lanes: int
    depth: int
    warps: int
    registers: int = 0  # of a thread, for shared and chunks: it decides how many programs run at once

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


class Flat(NamedTuple):
    """A program for each ``rows`` rows, which have at most ``lanes`` elements."""

    rows: int
    lanes: int
    warps: int
    programs: int
    depth: int = 1
    steps: int = 1
    units: int = 1


class Interleaved(NamedTuple):
    """A program for each of M, with ``lanes`` elements at once. A thread has ``vec`` rows of all columns."""

    vec: int
    lanes: int
    warps: int
    steps: int
    programs: int
    depth: int = 1
    units: int = 1


class Stacked(NamedTuple):
    """A program for each ``rows`` rows of K elements, which are all rows of one [N, K] or several: at most ``lanes``
    elements. A thread has ``vec`` rows, in vectors of ``width`` elements."""

    vec: int
    width: int
    rows: int
    lanes: int
    warps: int
    programs: int
    depth: int = 1
    steps: int = 1
    units: int = 1


class Chunks(NamedTuple):
    """``chunks`` programs for each block, each with ``length`` of N. A first launch adds up all but the last."""

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


Launch = Alone | Flat | Interleaved | Stacked | Chunks | Shared


def merged(M: int, N: int, K: int) -> tuple[int, int, int]:
    """(M, N, K), where sums of one element each are planned as columns."""
    return (1, 1, M * K) if N == 1 else (M, N, K)


def vector(problem: Problem) -> tuple[int, bool]:
    """Elements that are loaded at once, and whether rows are split into edges and an interior of such vectors."""
    whole = max(VECTOR_BYTES // problem.size, 1)
    fitting = math.gcd(problem.N if problem.K == 1 else problem.K, whole)
    odd = fitting == 1 or fitting * problem.size < VECTOR_BYTES // 2
    unaligned = problem.K == 1 and max_scalar(problem) < problem.N and odd
    return (whole if unaligned else fitting), unaligned


def interior(problem: Problem) -> int:
    """Elements along N that tiles have at most. Edges have the other elements of unaligned rows: 6933 x 262 float16 has
    one tile of 256 elements to a row, not two."""
    vec, unaligned = vector(problem)
    return problem.N // vec * vec if unaligned else problem.N


def max_scalar(problem: Problem) -> int:
    """Elements at most of a row of no whole vectors that is read one by one, without edges."""
    if problem.size < 8 or problem.N % 2 == 0:
        return MAX_SCALAR
    return MAX_LONE_SCALAR if problem.M <= LONE_ROWS else MAX_WIDE_SCALAR


def at_once(problem: Problem, chosen: Alone) -> bool:
    """Whether a program scans its only tile of a row across its warps."""
    one = chosen.depth * chosen.steps == 1
    return one and chosen.segmented and problem.K == 1 and not vector(problem)[1]


def few_from_memory(problem: Problem, limits: Limits) -> bool:
    """Whether these are a few rows of 8 bytes, also in the input, that L2 does not hold."""
    M, N, K, size, _, narrower = problem
    return K == 1 and M <= FEW_ROWS and size == 8 and narrower == 1 and M * N * size > limits.l2_bytes


def is_in_l2(problem: Problem, limits: Limits) -> bool:
    """Whether L2 holds all. With three quarters of it filled, sectors that programs share are lost already.
    3 x 149 x 23821 float16, 43 MB: 25.8 us in wide pieces, 31.3 by 32 columns (H100)."""
    M, N, K, size, *_ = problem
    return limits.l2_bytes * 3 // 4 >= M * N * K * (problem.input_size + size)


def max_depth(problem: Problem, elements: int, kernel: str) -> int:
    """Tiles of a program at most, where a thread has ``elements`` of each.

    Edges need registers: with 64 elements of bfloat16 alone, 8 bytes spill. The next tiles of a chunk need registers
    too: with 32 elements of bfloat16, 48 bytes spill. Shared programs of 8 bytes read the last edge again instead:
    40000003 float64: 280 us with 8 elements to a thread, 310 with 6 (H100).
    """
    together = kernel in ("chunks", "shared")
    if kernel in ("interleaved", "stacked"):
        return 1
    if problem.K > 1:
        most = MAX_COLUMN_ELEMENTS[problem.size][together] // elements
        return min(most, MAX_TOGETHER_COLUMN_TILES) if together else most
    most = MAX_ROW_ELEMENTS[problem.size][together]
    edges = vector(problem)[1] and (not together or (problem.size == 8 and kernel == "chunks"))
    if edges or (kernel == "chunks" and not problem.integer):
        most = most * 3 // 4
    return most // elements


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launch | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launch:
    """The launch that a configuration means; ValueError where it is not legal."""
    M, N, K, size, *_ = problem
    kernel, elements, lanes, depth, warps, registers = configuration
    units, threads = configuration.units, warps * WARP
    fits = elements > 0 and 0 < depth <= max_depth(problem, elements, kernel)
    if not (fits and 0 < warps <= MAX_WARPS):
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "flat":
        return _flat(problem, configuration)
    if kernel == "interleaved":
        return _interleaved(problem, configuration)
    if kernel == "stacked":
        return _stacked(problem, configuration)
    if not 0 < lanes <= power_of_2(N if K == 1 else K) or lanes & (lanes - 1):
        raise ValueError("more lanes than neighbours")
    vec, unaligned = vector(problem)
    if unaligned and (lanes % vec or (kernel == "units" and lanes < vec * vec)):
        raise ValueError("an interior is of whole vectors, and a row's threads are as many as its edges have elements")
    if units < (1 if kernel == "units" else 2) or units & (units - 1):
        raise ValueError("more lanes than threads have elements, or one segment")
    if kernel == "units" and warps > 1 and units >= 2 * M:
        raise ValueError("warps without rows")
    # For sm_80, 64 x 512 x 512 along 1 spills 8 bytes.
    if kernel == "segments" and K > 1 and warps < MAX_WARPS // 2 and elements * depth > MAX_FEW_WARPS_ELEMENTS:
        raise ValueError("more warps")
    # 8192 x 50257 bfloat16 in 4 warps spills 8 bytes with 48 elements on sm_100.
    edges = kernel == "segments" and size == 2 and vector(problem)[1] and limits.capability[0] > 9
    if edges and warps < MAX_WARPS // 2 and elements * depth > MAX_EDGES_ELEMENTS:
        raise ValueError("edges take registers")
    step, blocks_k = configuration.step(K), cdiv(K, lanes)
    if kernel in ("units", "segments"):
        blocks = cdiv(M, units) if kernel == "units" else M
        if kernel == "units" and K > 1:
            depth = min(depth, N)
        steps = cdiv(interior(problem), step)
        # TritonGPUOptimizeThreadLocality fails (5143 x 38 float64, one tile of 32 elements to a step, Triton 3.6).
        if kernel == "units" and K == depth == 1 < steps and size >= 4 and not problem.integer:
            raise ValueError("several tiles to a step, or all in one")
        return Alone(units, lanes, depth, warps, kernel == "segments", steps, _grid(blocks * blocks_k))
    if not 0 < registers <= limits.registers_per_sm // threads:
        raise ValueError(f"no legal program: {configuration}")
    # 8192 x 4096 bfloat16 along 0 spills 8 bytes. 2**28 float32: 786 us with 16 warps, 674 with 4.
    if warps > MAX_WARPS // 2:
        raise ValueError("fewer warps only")
    blocks, tiles, width = M * blocks_k, cdiv(interior(problem), step), 1 if K == 1 else lanes
    resident = resident_programs(registers, warps, limits) // blocks
    if kernel == "chunks":
        if min(resident, tiles) < 2:
            raise ValueError("one chunk")
        steps = cdiv(tiles, resident)
        return Chunks(units, lanes, depth, warps, registers, steps, cdiv(tiles, steps), steps * step, blocks)
    # With 64 registers, 7 x 14333392 float16 spills: 186 us, with 128 registers 156.
    if registers < MIN_SHARED_REGISTERS:
        raise ValueError("more registers")
    words = WORDS * threads // (width * (2 if size == 8 else 1))
    group = min(tiles, resident, words)
    if group < 2:
        raise ValueError("a group of one")
    steps = cdiv(tiles, group)
    group = cdiv(tiles, steps)
    members = power_of_2(group)
    # As many copies as threads hold of a tile, so that both have one layout.
    copies = max(threads * (1 if K == 1 else elements) // (members * width), 1)
    words = blocks * steps * group * width
    return Shared(units, lanes, depth, warps, registers, steps, group, members, copies, blocks, words)


def _flat(problem: Problem, configuration: Configuration) -> Flat:
    M, N, *_ = problem
    if not is_short(problem) or configuration.depth != 1 or configuration.units != 1:
        raise ValueError("one tile of short rows only")
    # The fewest rows that are whole vectors.
    whole = VECTOR_BYTES // problem.size
    whole //= math.gcd(N, whole)
    rows = configuration.lanes // N // whole * whole
    if not rows or configuration.elements * problem.size % VECTOR_BYTES:
        raise ValueError("whole rows, and whole vectors of a thread")
    return Flat(rows, configuration.lanes, configuration.warps, _grid(cdiv(M, rows)))


def _rows_of_a_thread(problem: Problem, configuration: Configuration) -> int:
    K, size = problem.K, problem.size
    vec, odd = divmod(configuration.elements, K)
    most = min(VECTOR_BYTES, MAX_INTERLEAVED_ELEMENTS * 4 // K) // size
    if not 1 < K <= MAX_INTERLEAVED or odd or configuration.depth != 1 or not 0 < vec <= most or vec & (vec - 1):
        raise ValueError("vectors of whole rows of a few columns")
    return vec


def _interleaved(problem: Problem, configuration: Configuration) -> Interleaved:
    M, N, K, *_ = problem
    vec = _rows_of_a_thread(problem, configuration)
    # The first element may be within a vector, which then begins before it.
    before = vec - 1 if N * K % vec else 0
    lanes = vec * K * configuration.warps * WARP
    return Interleaved(vec, lanes, configuration.warps, cdiv(before + N * K, lanes), _grid(M))


def _stacked(problem: Problem, configuration: Configuration) -> Stacked:
    M, N, K, *_ = problem
    vec = _rows_of_a_thread(problem, configuration)
    lanes = vec * configuration.warps * WARP
    width = math.gcd(vec * K, VECTOR_BYTES // problem.size)
    whole = width // math.gcd(N * K, width)
    stacked = lanes // N // whole * whole
    if not stacked:
        raise ValueError("all rows of some, and whole vectors")
    return Stacked(vec, width, stacked * N, lanes * K, configuration.warps, _grid(cdiv(M, stacked)))


def is_short(problem: Problem) -> bool:
    """Whether rows are no whole vectors, nor long enough to be split into an interior of vectors and edges."""
    fitting, unaligned = vector(problem)
    return problem.K == 1 and not unaligned and fitting * problem.size < VECTOR_BYTES // 2


def resident_programs(registers: int, warps: int, limits: Limits) -> int:
    threads = warps * WARP
    of_sm = min(limits.registers_per_sm // (registers * threads), limits.threads_per_sm // threads, PROGRAMS_PER_SM)
    return limits.sm_count * max(of_sm, 1)


def _grid(programs: int) -> int:
    if programs >= 2**31:
        raise ValueError("more programs than a grid has")
    return programs
