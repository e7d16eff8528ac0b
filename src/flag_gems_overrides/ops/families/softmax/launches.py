# SPDX-License-Identifier: Apache-2.0
"""What a softmax is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2

# Words of other programs that a thread reads at a time. All words of 256 programs and 64 columns spilled 2 KB.
WORDS = 2
# 32-bit words of all inputs that a thread may hold.
MAX_WORDS = 64
# Loads of a thread side by side.
MAX_DEPTH = 16
# Columns that are read as they lie (``interleaved``), at most.
MAX_INTERLEAVED = 8
# Programs of a row, at most.
MAX_SPLITS = 1024
# Bytes to each of them, at least.
MIN_SPLIT_BYTES = 16384
# Longer columns as they lie (``strided``): share of the tiles that a step fills from which no other width is tried.
FILLED = 0.85
# Steps of a vector and K in one, at most.
MAX_UNITS = 8
# Iterations of programs that write statistics of each element of a tile, at least.
MIN_ITERATIONS = 8
# Elements of a program that merges the statistics.
MERGED_ELEMENTS = 4096
# Share of the lanes' rows that half as many lanes, or a quarter, must save, for [N, K] side by side.
# softmax 400000 x 10 x 3 bf16: 33 us in 4 lanes, in 8, of which 6 are empty the second time, 58 (H100).
MIN_SAVED = 0.15
# Rows of a thread then, at most: neighbours in fewer lanes read less side by side.
# 400000 x 29 x 3 bf16: 127 us with 15 rows, in 8 lanes 67 (H100).
MAX_ROWS_OF_FEWER_LANES = 5


class Problem(NamedTuple):
    """Softmax of [M, N, K] over N. inputs: tensors that are read, 1 forward and 2 backward; log: whether a gradient is
    log_softmax's, whose sums need one of them only."""

    M: int
    N: int
    K: int
    itemsize: int
    inputs: int
    log: bool = False


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: single, short, interleaved, strided, blocks, rows, split. ``launch`` decides on
    loops.

    short with vec > 1: a program for each [N, K], which loads so many columns together. With block_k > 1, the power of
    two that holds K: several [N, K] side by side.
    """

    kernel: str
    elements: int  # of each input that a thread holds
    warps: int
    registers: int = 0
    vec: int = 1
    block_k: int = 1
    group: int = 1
    stages: int = 1
    prefetch: bool = False


class Single(NamedTuple):
    """Rows of one element: the ``*_single`` kernels. Names as there."""

    block: int
    warps: int
    programs: int


class Short(NamedTuple):
    """Whole columns side by side (K > 1): the ``*_short_columns`` kernels. Names as there."""

    lanes: int
    depth: int
    columns: int
    vec: int
    warps: int
    programs: int
    width: int = 0  # of all columns of an [N, K], where they are side by side


class Interleaved(NamedTuple):
    """Few long columns, or one, as they lie (K <= 8): the ``*_interleaved`` kernels. Names as there."""

    unaligned: bool
    vec: int
    block: int
    step: int
    depth: int
    splits: int
    warps: int


class Strided(NamedTuple):
    """Long columns as they lie (K > 8): the ``*_strided`` kernels. Names as there."""

    unaligned: bool
    vec: int
    block: int
    step: int
    depth: int
    blocks: int
    splits: int
    rows: int
    columns: int
    warps: int


class Blocks(NamedTuple):
    """An [N, K] of one program, as it lies (K > 1): the ``*_blocks`` kernels. Names as there."""

    unaligned: bool
    vec: int
    block: int
    step: int
    depth: int
    looped: bool
    rows: int
    columns: int
    warps: int
    registers: int
    programs: int


class Rows(NamedTuple):
    """Whole rows in one tile (K = 1): the ``*_rows`` kernels. Names as there."""

    vec: int
    block_m: int
    depth: int
    width: int
    warps: int
    programs: int
    registers: int = 0  # most for one thread that holds pairs of 16 bits; 0: no limit, and no pairs


class Split(NamedTuple):
    """Rows or columns in tiles, by ``group`` programs for each block: all other kernels. Names as there."""

    contiguous: bool  # K = 1: rows, not columns
    vec: int
    unaligned: bool
    even: bool
    even_k: bool
    int64_offsets: bool
    group: int
    members: int
    looped: bool
    depth: int
    lanes: int
    block_k: int
    stages: int
    prefetch: bool
    warps: int
    registers: int  # most for one thread, which makes ``programs`` of a cooperative launch fit on the device
    programs: int
    blocks: int


Launched = Single | Short | Interleaved | Strided | Blocks | Rows | Split


class Shape(NamedTuple):
    """Of one program."""

    elements: int  # of each input that a thread holds
    warps: int
    registers: int
    stages: int = 1
    vec_bytes: int = VECTOR_BYTES
    prefetch: bool = False


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launched | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launched:
    """ValueError if the problem cannot be launched so."""
    M, N, K, size, inputs, *_ = problem
    kernel, elements, warps, *_ = configuration
    # Blocks are held in the precision of memory, and so are rows of pairs, which have a limit of registers.
    packed = kernel == "blocks" or (kernel == "rows" and configuration.registers > 0)
    words = elements * inputs * (size if packed else max(size, 4)) // 4
    if not (elements > 0 and words <= MAX_WORDS and 1 <= warps <= 32):
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "single":
        block = elements * warps * WARP
        if N > 1 or cdiv(M * K, block) >= 2**31:
            raise ValueError("rows of one element only")
        return Single(block, warps, cdiv(M * K, block))
    if kernel == "short" and configuration.vec > 1:
        return _whole(problem, configuration)
    if kernel == "short" and configuration.block_k > 1:
        return _side_by_side(problem, configuration)
    if kernel == "short":
        columns = elements * warps * WARP // power_of_2(N)
        if K == 1 or not columns or K >= 2**30 or M * K + columns >= 2**31:
            raise ValueError("columns of no more elements than a program only")
        lanes = power_of_2(cdiv(N, elements))
        # As many neighbours as a thread has.
        vec = math.gcd(K, VECTOR_BYTES // size, max(columns * lanes // (warps * WARP), 1))
        return Short(lanes, cdiv(N, lanes), columns, vec, warps, cdiv(M * K, columns))
    if kernel == "interleaved":
        vec = VECTOR_BYTES // size
        block = warps * WARP * vec
        step, depth = block // math.lcm(vec, K) * math.lcm(vec, K), elements // vec
        if not (K <= MAX_INTERLEAVED and step and depth and 4 * vec <= N * K and M < 2**31):
            raise ValueError("few long columns only")
        tiles = min(cdiv(N * K, step * depth), cdiv(N * K * size, MIN_SPLIT_BYTES))
        splits = min(cdiv(max(configuration.group, 1) * limits.sm_count, M), tiles, MAX_SPLITS)
        return Interleaved(N * K % vec != 0, vec, block, step, depth, splits, warps)
    if kernel == "strided":
        return _strided(problem, configuration, limits)
    if kernel == "blocks":
        return _blocks(problem, configuration)
    if kernel == "rows":
        if K > 1 or elements * warps * WARP < N:
            raise ValueError("rows of no more elements than one tile only")
        vec = math.gcd(N, VECTOR_BYTES // size)
        block_n = max(power_of_2(N), vec)
        rows = max(configuration.group, elements // block_n, 1)
        depth = max(min(elements // rows, block_n) // vec, 1)
        width = block_n // depth
        threads = width // vec
        if threads > warps * WARP or elements < vec * rows:
            raise ValueError("a row is of one program")
        block_m = warps * WARP // threads * rows
        if packed:
            if not (size == inputs == 2 and vec > 1 and block_m == 1 and configuration.registers <= 2048 // warps):
                raise ValueError("rows of pairs are of gradients of 16 bits, one to a program")
            return Rows(vec, 1, cdiv(N, width), width, warps, M, configuration.registers)
        if size == 8 and inputs == 1 and width >= WARP:
            # Computing in float64 costs more than another tile's mask.
            # softmax 32768 x 153: 33.5 us, by 256 columns 35.7 (H100).
            depth = cdiv(N, width)
        return Rows(vec, block_m, depth, width, warps, cdiv(M, block_m))
    return _split(problem, configuration, limits)


def resident(shape: Shape, limits: Limits) -> int:
    """Programs that are on the device at once."""
    threads = WARP * shape.warps
    return limits.sm_count * min(
        limits.registers_per_sm // (shape.registers * threads), limits.threads_per_sm // threads
    )


def _whole(problem: Problem, configuration: Configuration) -> Short:
    """A program for each [N, K]. Its threads go along N only as far as there are elements: 16 warps have 9 vectors each
    of 4479 x 2 float32, where a tile of a power of two has 16.
    """
    M, N, K, size, *_ = problem
    vec, warps = configuration.vec, configuration.warps
    if power_of_2(K) != K or K % vec or vec * size > VECTOR_BYTES:
        raise ValueError("an [N, K] of one program has a power of two of columns, which are whole vectors")
    lanes = warps * WARP * vec // K
    if not lanes or cdiv(N, lanes) * vec > configuration.elements:
        raise ValueError("an [N, K] of no more elements than a program only")
    if K >= 2**30 or M * K + K >= 2**31:
        raise ValueError("columns are counted in 32 bits")
    return Short(lanes, cdiv(N, lanes), K, vec, warps, M)


def lanes_side_by_side(problem: Problem) -> int:
    """Lanes of each of several [N, K] side by side: as many as a warp has for all columns, or fewer. A thread has two
    rows at least.

    softmax 625000 x 4 x 5 bf16: 29.8 us, with one row 38.6 (H100).
    """
    _, N, K, size, *_ = problem
    most = max(min(WARP * math.gcd(K, VECTOR_BYTES // size) // power_of_2(K), power_of_2(N) // 2), 1)
    for lanes in (max(most // 2, 1), max(most // 4, 1)):
        rows = cdiv(N, lanes)
        if rows <= MAX_ROWS_OF_FEWER_LANES and lanes * rows <= (1 - MIN_SAVED) * most * cdiv(N, most):
            return lanes
    return most


def _side_by_side(problem: Problem, configuration: Configuration) -> Short:
    """Several [N, K] to a program. Lanes of a warp exchange by shuffles. There are more lanes if a thread would have
    more than its elements.
    """
    M, N, K, size, *_ = problem
    elements, threads, width = configuration.elements, configuration.warps * WARP, configuration.block_k
    vec = math.gcd(K, VECTOR_BYTES // size)
    if width != power_of_2(K) or K == 1:
        raise ValueError("all columns")
    lanes = max(lanes_side_by_side(problem), power_of_2(cdiv(N, max(elements // vec, 1))))
    depth = cdiv(N, lanes)
    blocks = threads * elements // depth // (lanes * width)
    if elements < vec or not blocks:
        raise ValueError("an [N, K] of no more elements than a program only")
    blocks = 1 << (blocks.bit_length() - 1)
    if N * K >= 2**30 or M + blocks >= 2**31:
        raise ValueError("offsets within an [N, K] are of 32 bits")
    return Short(lanes, depth, blocks * width, vec, configuration.warps, cdiv(M, blocks), width)


def _strided(problem: Problem, configuration: Configuration, limits: Limits) -> Strided:
    """Tiles of the step with the fewest elements of which enough is filled; in one tile if it can have a step."""
    M, N, K, size, *_ = problem
    elements, group = configuration.elements, max(configuration.group, 1)
    vec = VECTOR_BYTES // size
    unit, depth = math.lcm(vec, K), elements // vec
    found: tuple[float, int, int, int] | None = None
    for warps in (configuration.warps, 2 * configuration.warps, 4 * configuration.warps):
        block = warps * WARP * vec
        units = [block // unit] if unit <= block else list(range(1, MAX_UNITS + 1))
        for count in units:
            step = count * unit
            filled = step / (cdiv(step, block) * block)
            if found is None or (found[0] < FILLED and filled > found[0]):
                found = filled, warps, block, step
    assert found is not None
    _, warps, block, step = found
    blocks = cdiv(step, block)
    if not (
        vec < K and depth and 4 * vec <= N * K and M < 65536 and step * depth < 2**31 and K < 2**30 and warps <= 32
    ):
        raise ValueError("long columns only")
    tiles = cdiv(N * K, step * depth)
    if blocks > 1:
        tiles = max(tiles // MIN_ITERATIONS, 1)
    programs = group * limits.sm_count * configuration.warps // warps
    splits = min(cdiv(programs, M * blocks), tiles, MAX_SPLITS)
    columns = power_of_2(K) if blocks == 1 else 0
    return Strided(
        unaligned=N * K % vec != 0,
        vec=vec,
        block=block,
        step=step,
        depth=depth,
        blocks=blocks,
        splits=splits,
        rows=power_of_2(step // K) if columns else 0,
        columns=columns,
        warps=warps,
    )


def _blocks(problem: Problem, configuration: Configuration) -> Blocks:
    M, N, K, size, *_ = problem
    vec, warps, registers = VECTOR_BYTES // size, configuration.warps, configuration.registers
    block, unit = warps * WARP * vec, math.lcm(vec, K)
    step, depth = block // unit * unit, configuration.elements // vec
    if not (K > 1 and step and depth and 0 < registers <= 65536 // (warps * WARP)):
        raise ValueError("rows of no more elements than a tile only")
    if 4 * vec > N * K or N * K + step * depth >= 2**31 or M >= 2**31:
        raise ValueError("an [N, K] is too short for an interior and edges, or too long")
    tiles = cdiv(N * K, step)
    rounds = cdiv(tiles, depth)
    return Blocks(
        unaligned=N * K % vec != 0,
        vec=vec,
        block=block,
        step=step,
        depth=cdiv(tiles, rounds),
        looped=rounds > 1,
        rows=power_of_2(step // K),
        columns=power_of_2(K),
        warps=warps,
        registers=registers,
        programs=M,
    )


def _split(problem: Problem, configuration: Configuration, limits: Limits) -> Split:
    M, N, K, size, *_ = problem
    _, elements, warps, registers, vec, block_k, group, stages, prefetch = configuration
    shape = Shape(elements, warps, registers, stages, prefetch=prefetch)
    if not (0 < vec <= elements and min(block_k, group) > 0 and 0 < registers <= 65536 // (warps * WARP)):
        raise ValueError(f"no legal program: {configuration}")
    unaligned = K == 1 and N % vec != 0
    if unaligned and (2 * vec > N or vec * size != VECTOR_BYTES):
        raise ValueError("a row is too short for an interior and edges")
    if K == 1:
        if block_k != vec:
            raise ValueError("rows are read in vectors")
        blocks, length = M, N // vec
    else:
        if block_k < 2 or block_k > power_of_2(K) or K % vec or block_k % vec:
            raise ValueError("columns are read in vectors")
        blocks, length = M * cdiv(K, block_k), N
    if group > max(resident(shape, limits), 1):
        raise ValueError("programs of a group run at once")
    lanes = max(warps * WARP * vec // block_k, 1)
    depth = min(elements // vec, MAX_DEPTH)
    while depth > 1 and lanes * depth // 2 >= length:
        depth //= 2
    tile = lanes * depth
    group = min(group, cdiv(length, tile), _to_be_added_to(length))
    looped = cdiv(length, group) > tile
    even_k = K == 1 or K % block_k == 0
    pipelined = group == 1 and not looped and shape.stages > 1
    if group > 1 or pipelined:
        programs = min(resident(shape, limits) // group, blocks) * group
    else:
        programs = min(blocks, _to_be_added_to(blocks))
    return Split(
        contiguous=K == 1,
        vec=vec,
        unaligned=unaligned,
        even=even_k and not unaligned and not looped and length % (group * tile) == 0,
        even_k=even_k,
        int64_offsets=K > 1 and tile * K >= 2**31,
        group=group,
        members=min(power_of_2(group), max(WORDS * WARP * shape.warps // (1 if K == 1 else block_k), 2)),
        looped=looped,
        depth=depth,
        lanes=lanes,
        block_k=block_k,
        stages=shape.stages if looped or pipelined else 1,
        prefetch=shape.prefetch and group > 1 and not looped,
        warps=shape.warps,
        registers=shape.registers,
        programs=programs,
        blocks=blocks,
    )


def _to_be_added_to(count: int) -> int:
    """The most that keeps a sum within 32 bits, in which kernels count below 2**31; beyond, what a grid may have."""
    return 2**31 - count if count < 2**31 else 2**31 - 1
