# SPDX-License-Identifier: Apache-2.0
"""How reductions are divided among programs: plain numbers in, a plan out.

Constants were chosen on an H200 (132 SMs, triton 3.6.0) with the L2 cache full of clean lines; times are of amax.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...plans import table

WARP = 32
VECTOR_BYTES = 16
# 32-bit words of elements that a thread may hold, and registers.
MAX_WORDS, MAX_REGISTERS = 64, 248
MAX_CONFIGURATIONS = 24
# Partial results that a warp of the last program of a block can have in registers, of up to 4 and of 8 bytes.
MAX_PARTIALS, MAX_WIDE_PARTIALS = 1024, 512
# A single warp has fewer, for it combines its classes one after the other.
MAX_SPLITS_OF_A_WARP = 256
# K up to which a row is read as it lies, its K classes combined one after the other.
MAX_CLASSES = 8

# For ``estimate``: bytes a multiprocessor reads in a microsecond, lanes of the device; microseconds of a launch, of an
# iteration, of the programs that share a result, and of the ends of rows.
BYTES_PER_US, LANES_PER_US, LAUNCH_US, ITERATION_US, EXCHANGE_US, EDGES_US = 32000, 4e6, 2.0, 0.7, 1.0, 0.3

# Warps that a multiprocessor has to work on. More programs than fit at once leave a part of the last round idle:
# 64 x 16384 x 64 bf16 along 1 took 47 us with 4 programs of 8 warps, 57 us with 6. With 80 registers and more a
# thread, as an index reduction has that keeps every element apart, fewer fit.
OCCUPANCY, COLUMNS_OCCUPANCY = 32, {1: 32, 2: 24, 3: 16}
# A program of 8 warps has 16 KB in flight: 2**29 bf16 at 4283 GB/s; half of that or 4 warps cost 1 to 4 %.
TILE_BYTES, LONG_WARPS, MAX_TILE = 16384, 8, 8192
# Where row ends need care, fewer, and of 16-bit elements several tiles in flight: 8192 x 50257 bf16 202 us, without
# the second 210, without the first 241.
TILE_WITH_EDGES, STAGES = 4096, 3
# Rows up to 4 KB, several to a program, with 4 warps: less to fold across warps. Twice as many for a warp where a row
# needs more than reading: 65536 x 1023 bf16 36 us, not 42, max.dim 65536 x 768 bf16 30 us by 2 warps, not 38 by 4,
# 65536 x 1023 41 us, not 50, 200000 x 130 float32 57, not 72; not if rows are very short (1048576 x 16). Where row ends
# need care too, a single warp: max.dim 1436552 x 147 bf16 198 us, by 2 warps 227, 999 x 1001 4.0, not 4.7; and half of
# the warps in longer rows: 31032 x 2729 bf16 54 us, by 8 warps 72, 60000 x 2049 float32 121, with 16 elements 131.
SHORT_BYTES, SHORT_WARPS, MIN_BYTES_OF_LONG, BYTES_WITH_ALL_WARPS = 4096, 4, 512, 64
# Where there is not enough for all multiprocessors, 8 elements to a thread. bf16 with 16: 33 x 100 2.5 us, not 2.4,
# max.dim 128 x 32 2.5, not 2.4, 1000 x 50 3.5, not 2.8; argmin 64 x 64 uint8 with 32 2.8, not 2.4.
LITTLE_TILE = 1024
# What that is: elements for each multiprocessor, and bytes of a row. One program reads a row, if it is not aligned
# element by element: amax 7 x 405 bf16 2.8 us, not 3.2, 1 x 605 float16 2.6, not 3.0; 1 x 11264 bf16 3.0, by two 3.8.
LITTLE, MAX_LITTLE_BYTES = {False: 8192, True: 2048}, 32768
# K classes in a row: a warp for each tile of 512, where that leaves few enough partial results. bf16 by programs of
# four warps, and so: max.dim 20000 x 1000 x 3 158 and 54 us, 200 x 40999 x 3 32 and 28, amax of the first 73 and 42.
# Columns where that is little: max.dim 4 x 512 x 7 bf16 4.3 us, so 6.2.
MIN_BYTES_OF_CLASSES = 4 << 20
CLASSES_TILE, CLASSES_OCCUPANCY = 512, {1: 24, 2: 16, 3: 16}
# Neighbours are combined before they are compared in rows longer than this, of 16-bit and of larger elements: max.dim
# 2**20 x 16 bf16 25 us, without 15; 2**20 x 64 bf16 40 us, without 49; 262144 x 128 float32 38 us, without 37.
MAX_LENGTH_WITHOUT_NEIGHBOURS = {True: 32, False: 128}
# Tiles of 64 x 32 by 4 warps were best or within 5 % for every split shape, 32 x 64 where there are outputs enough
# (256 x 1024 x 1024 bf16 along 1 129 us, not 157). Of 16-bit elements several tiles are in flight (64 x 512 x 512
# bf16 along 1 14.3 us, without 16.3), of larger ones that costs more than it brings. 64 columns also where a program
# has a dozen tiles or more: 64 x 16384 x 64 bf16 along 1 43 us, not 49, x 128 78, not 95; with 8 it is 5 % slower.
# Where partial results are too few for all programs, programs are twice as large: amax of 1000000 x 64 along 0 bf16
# 43 us, not 74.
TILED_ELEMENTS, TILED_WARPS, BLOCK_K, WIDE_BLOCK_K = 2048, 4, 32, 64
TILES_TO_WIDEN = 12
# Results of few elements each. Up to 8 are one tile of 512 bytes by two warps (amax 680 x 1 x 6730 bf16 in tiles of
# 2048 results 17.3 us, of 256 15.1), up to 32 one of 64 results, 16 elements to a thread (424501 x 10 x 4 bf16 20.3,
# by warps that loop 26.6, 300000 x 21 x 7 float32 51.7 and 72), up to 128 one of 32 where that is little (100 x 100 x
# 100 bf16 4.4, in a loop 5.3).
MAX_IN_ONE_TILE, IN_ONE_TILE_BLOCK_K, MAX_IN_ONE_TILE_OF_LITTLE = 32, 64, 128
# More of them, of many results: a warp for each tile of 8 x 64. It takes 24 warps on a multiprocessor, fewer if they
# are soon done: 1024 of them (8 x 300 x 8192) take 1.4 times as long. 1000 elements (16 x 1000 x 4096) take up to 7 %
# longer.
BY_WARPS_BLOCK_K, BY_WARPS_MAX_N, BY_WARPS_PER_SM, FEW_ROUNDS = 64, 512, 24, 4


class Problem(NamedTuple):
    """A reduction of a contiguous [M, N, K] over N, none of them 0."""

    M: int
    N: int
    K: int
    itemsize: int  # of the input
    accumulators: int  # 1 a value; 2 a value and its position; 3 mean, sum of squares and count


class Configuration(NamedTuple):
    """What the tuner chooses."""

    kernel: str  # rows (K = 1), classes (K = 2 to 8, read as it lies) or columns (K > 1)
    elements: int  # of a tile that a thread has
    warps: int
    occupancy: int  # warps for which a multiprocessor has registers
    vector: int = 1  # elements that a load takes together, along a row
    block_k: int = 1  # results of a tile, of columns
    split: bool = True  # whether programs share a result where there are too few for the device
    stages: int = 1  # tiles in flight
    neighbours: bool = False  # whether the elements of a vector are combined before they are compared


class Plan(NamedTuple):
    """What one program does and how many there are. Names as in the kernels."""

    kernel: str
    blocks: int  # programs along the results
    block_m: int
    block_n: int
    block_k: int
    step: int  # how much of block_n is used
    vector: int
    edge_lanes: int  # for the elements of a row that are in no whole vector, 0 if there are none
    neighbours: int
    splits: int  # programs that share a result
    warps: int
    stages: int
    registers: int  # that a thread may have
    evict: str  # the policy of the L2 cache for the input
    int64_offsets: bool


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, size, accumulators = problem
    inner = 1 if K == 1 else 2 if K <= MAX_CLASSES else 3
    return accumulators, size, inner, N == 1, math.gcd(N * K if inner < 3 else K, VECTOR_BYTES // size)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup(
        "reduction",
        problem,
        class_of,
        Configuration,
        lambda each: _launch_or_none(problem, each, limits) is not None,
        limits,
    )
    return found or _default(problem, limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: other kernels, and neighbours of all that are legal."""
    size = problem.itemsize
    kinds = [_default(problem, limits), *_kinds(problem, limits)]
    candidates = list(kinds)
    for each in kinds:
        for field in ("elements", "warps", "block_k"):
            value = getattr(each, field)
            candidates += [each._replace(**{field: value * 2}), each._replace(**{field: value // 2})]
        candidates += [
            each._replace(split=not each.split),
            each._replace(stages=1 if each.stages > 1 else 3),
            each._replace(neighbours=not each.neighbours),
            each._replace(vector=1 if each.vector > 1 else VECTOR_BYTES // size, neighbours=False),
        ]
    found: dict[Plan, Configuration] = {}
    for candidate in candidates:
        planned = _launch_or_none(problem, candidate, limits)
        if planned is not None:
            found.setdefault(planned, candidate)
    return list(found.values())[:MAX_CONFIGURATIONS]


def _launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Plan | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


class _Tile(NamedTuple):
    """Names as in :class:`Plan`."""

    length: int  # of what a result is made, in the order in which it is read
    blocks: int
    block_m: int
    block_n: int
    block_k: int
    step: int
    vector: int
    edges: bool
    rows: int = 1  # that a program of columns reaches into


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Plan:
    """ValueError if the problem cannot be launched so."""
    M, N, K, size, accumulators = problem
    kernel, elements, warps, occupancy, vector, block_k, split, stages, neighbours = configuration
    registers = _registers(problem, occupancy, limits)
    if (
        min(elements, warps, block_k, stages) < 1
        or registers < 32
        or elements * _words(problem) > MAX_WORDS
        or warps > WARP
    ):
        raise ValueError(f"no legal program: {configuration}")
    if registers < 32 or warps > WARP or registers * warps * WARP > limits.registers_per_sm:
        raise ValueError("a program has the registers of one multiprocessor at most")
    if neighbours and (accumulators != 2 or kernel != "rows" or vector == 1):
        raise ValueError("neighbours are combined for a position, and in vectors")
    tile = _TILES[kernel](problem, configuration)
    # What a block leaves idle other blocks cannot use.
    if warps > 1 and tile.block_m * tile.block_n * (tile.block_k if kernel == "columns" else 1) < warps * WARP:
        raise ValueError("more threads than elements")
    programs = limits.sm_count * occupancy // warps if split else 1
    splits = min(
        cdiv(tile.length, tile.step),
        programs // tile.blocks,
        _max_partials(problem, configuration) // tile.block_m // tile.block_k,
    )
    splits = max(splits, 1)
    looped = splits * tile.step < tile.length
    if kernel == "classes" and tile.step % K and (looped or splits > 1):
        raise ValueError("an accumulator meets elements of one class")
    if _held(problem, configuration, tile, looped) > registers // 2:
        raise ValueError("too many elements for the registers")
    # One for each thread: a smaller tensor Triton loads in the tile's layout, each element by many threads.
    edge_lanes = max(2 * tile.vector, warps * WARP // tile.block_m) if tile.edges else 0
    furthest = tile.rows * tile.length + splits * tile.step + edge_lanes
    if kernel == "columns":
        furthest = max(furthest * K, tile.blocks * tile.block_k) + tile.block_k
    # An input that passes through the L2 cache need not displace what others left there and what must be written back
    # first: amax of 65536 x 768 bf16 29 us, not 34; 64 x 512 x 512 along 1 15.5 us, not 18.5, though not pipelined, for
    # asynchronous copies take no policy. Smaller inputs may be wanted again; with larger ones it costs: 2**30 float32
    # 1003 us, not 958.
    through = limits.l2_bytes // 2 < M * N * K * size <= 4 * limits.l2_bytes
    return Plan(
        kernel=kernel,
        blocks=tile.blocks,
        block_m=tile.block_m,
        block_n=tile.block_n,
        block_k=tile.block_k,
        step=tile.step,
        vector=tile.vector,
        edge_lanes=edge_lanes,
        neighbours=vector if neighbours else 1,
        splits=splits,
        warps=warps,
        stages=stages if looped and not (through and kernel == "columns") else 1,
        registers=registers,
        evict="evict_first" if through else "",
        int64_offsets=furthest >= 2**31,
    )


def _row_tile(problem: Problem, configuration: Configuration) -> _Tile:
    M, N, K, _, _ = problem
    if K > 1:
        raise ValueError("rows have K = 1")
    elements = configuration.elements * configuration.warps * WARP
    block_n = min(power_of_2(N), elements)
    block_m = min(power_of_2(M), elements // block_n)
    vector, edges = _vector(problem, configuration)
    return _Tile(N, cdiv(M, block_m), block_m, block_n, 1, block_n, vector, edges)


def _class_tile(problem: Problem, configuration: Configuration) -> _Tile:
    M, N, K, _, _ = problem
    if not 1 < K <= MAX_CLASSES:
        raise ValueError(f"a row has 2 to {MAX_CLASSES} classes")
    block_n = min(power_of_2(N * K), configuration.elements * configuration.warps * WARP)
    vector, edges = _vector(problem, configuration)
    period = math.lcm(K, vector)
    step = block_n // period * period
    if not step:
        raise ValueError("a tile has all classes")
    return _Tile(N * K, M, 1, block_n, power_of_2(K), step, vector, edges)


def _column_tile(problem: Problem, configuration: Configuration) -> _Tile:
    M, N, K, _, _ = problem
    if K == 1 or configuration.vector != 1:
        raise ValueError("columns have K > 1, which decides how they are loaded")
    elements = configuration.elements * configuration.warps * WARP
    block_k = min(configuration.block_k, power_of_2(M * K), elements)
    block_n = min(power_of_2(N), elements // block_k)
    if block_k > 16 * configuration.warps * WARP:
        raise ValueError("a thread has 16 results at most")
    rows = 1 if M == 1 or K % block_k == 0 else cdiv(block_k, K) + 1
    return _Tile(N, cdiv(M * K, block_k), 1, block_n, block_k, block_n, math.gcd(K, 16), False, rows)


_TILES = {"rows": _row_tile, "classes": _class_tile, "columns": _column_tile}


def _vector(problem: Problem, configuration: Configuration) -> tuple[int, bool]:
    """(Elements that a load takes together, whether a row has others.)"""
    length, vector = problem.N * problem.K, configuration.vector
    edges = length % vector != 0
    if vector * problem.itemsize > VECTOR_BYTES or configuration.block_k > 1 or (edges and length < 2 * vector):
        raise ValueError("a row is too short for vectors and edges")
    return vector, edges


def _held(problem: Problem, configuration: Configuration, tile: _Tile, looped: bool) -> float:
    """32-bit words that a thread holds of its elements."""
    size = problem.itemsize
    columns = tile.block_k if configuration.kernel == "columns" else 1
    lanes = tile.block_m * tile.block_n * columns / (configuration.warps * WARP)
    if problem.accumulators == 3:
        return lanes * max(size / 4, 1) * 3
    # A load takes a register at least.
    loaded = max(size / 4, 1 / tile.vector)
    if not looped:
        return lanes * loaded
    kept = max(size / 4, 1) + (problem.accumulators == 2)
    return lanes * (loaded + kept / tile.vector if configuration.neighbours else kept)


def _words(problem: Problem) -> int:
    """Of an element in registers."""
    return max(problem.itemsize // 4, 1) * (3 if problem.accumulators == 3 else 1)


def _registers(problem: Problem, occupancy: int, limits: Limits) -> int:
    """As many as let so many warps be resident.

    Without a limit ptxas takes fewer, for more warps than there are, and lets the loads of a tile wait for each other:
    2**30 float32 1077 us in 30 registers, at 88 % of the bandwidth at which bfloat16, in 64, is read.
    """
    registers = min(limits.registers_per_sm // (WARP * occupancy) // 8 * 8, MAX_REGISTERS)
    # Left to itself, ptxas spills a register or two of 64-bit values to have one more program resident.
    return max(registers, 128) if problem.itemsize == 8 else registers


def _max_partials(problem: Problem, configuration: Configuration) -> int:
    """Partial results that the last program of a block can have in registers."""
    if configuration.kernel == "classes" and configuration.warps == 1:
        return MAX_SPLITS_OF_A_WARP * power_of_2(problem.K)
    wide = problem.itemsize > 4 or problem.accumulators == 3
    return max(configuration.warps, 4) * (MAX_WIDE_PARTIALS if wide else MAX_PARTIALS)


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: the bytes that are read, and the iterations of a program one after the other."""
    M, N, K, size, _ = problem
    p = launch(problem, configuration, limits)
    programs = p.blocks * p.splits
    resident = limits.sm_count * max(limits.registers_per_sm // (p.registers * p.warps * WARP), 1)
    reduced = N if p.kernel == "columns" else N * K
    iterations = cdiv(programs, resident) * max(cdiv(reduced, p.splits * p.step), 1)
    lanes = programs * max(cdiv(reduced, p.splits * p.step), 1) * configuration.elements * p.warps * WARP
    # A load of less than four bytes does not keep the memory busy.
    busy = min(limits.sm_count, programs) * BYTES_PER_US / (1.5 if p.vector * size < 4 else 1.0)
    exchange = EXCHANGE_US if p.splits > 1 else EDGES_US if p.edge_lanes else 0.0
    return LAUNCH_US + max(M * N * K * size / busy, lanes / LANES_PER_US, iterations * ITERATION_US) + exchange


def plan(M: int, N: int, K: int, itemsize: int, accumulators: int, limits: Limits) -> Plan:
    """The launch that is chosen for these sizes, none of them 0."""
    problem = Problem(M, N, K, itemsize, accumulators)
    return launch(problem, choose(problem, limits), limits)


# The defaults.


def _default(problem: Problem, limits: Limits) -> Configuration:
    return _kinds(problem, limits)[0]


def _kinds(problem: Problem, limits: Limits) -> list[Configuration]:
    """A configuration of each kernel that can be, the best first."""
    M, N, K, size, _ = problem
    if K == 1:
        return [_rows(problem, limits)]
    kinds = [_columns(problem, limits)]
    if K <= MAX_CLASSES:
        worth = N * K * size > SHORT_BYTES and M * N * K * size > MIN_BYTES_OF_CLASSES
        kinds.insert(0 if worth else 1, _classes(problem, limits))
    return kinds


def _rows(problem: Problem, limits: Limits) -> Configuration:
    """Several rows to a program, one, or several programs for a row."""
    M, N, _, size, accumulators = problem
    positions = accumulators == 2
    vector, block_n = _row_vector(N, size), power_of_2(N)
    edges = N % vector != 0
    # Of bytes 8 spill in 64 registers.
    occupancy = OCCUPANCY // 2 if (size == 1 and not positions) or accumulators == 3 else OCCUPANCY
    stages = 1
    if M * block_n <= limits.sm_count * LITTLE[positions] and max(N * size, 2 * block_n) <= MAX_LITTLE_BYTES:
        vector = math.gcd(N, vector)
        tile = min(max(LITTLE_TILE, block_n), power_of_2(M) * block_n)
        warps = max(1, min(tile // (8 * WARP), max(4, tile // (32 * WARP)), 16))
    elif N * size <= SHORT_BYTES:
        several = positions and N * size >= MIN_BYTES_OF_LONG
        tile, warps = SHORT_BYTES * (2 if edges or (several and size > 2) else 1) // size, SHORT_WARPS
        if positions and N * size > BYTES_WITH_ALL_WARPS and limits.capability < (10, 0):
            # On sm_100 8 bytes of 300000 x 50 bf16 spill.
            warps = 1 if edges else 2
            tile = min(tile, warps * WARP * min(128 // size, 32 * vector, MAX_WORDS))
    else:
        tile, warps = min(TILE_BYTES // size, TILE_WITH_EDGES if edges else MAX_TILE, block_n), LONG_WARPS
        if edges and positions:
            tile, warps = SHORT_BYTES // size, SHORT_WARPS
        elif edges and size <= 2:
            stages = STAGES
        elif size == 1 and not positions:
            # amax 16384 x 16384 uint8 75 us, not 83, bool 91, not 104, prod 136, not 177.
            tile, warps = tile // 2, warps // 2
    alone = MAX_LENGTH_WITHOUT_NEIGHBOURS[size <= 2]
    neighbours = positions and vector > 1 and alone < N
    return _fitting(
        problem,
        Configuration("rows", max(tile // (warps * WARP), 1), warps, occupancy, vector, 1, True, stages, neighbours),
    )


def _row_vector(length: int, size: int) -> int:
    vector = VECTOR_BYTES // size
    # Shorter rows are not worth reading their ends apart from the rest.
    return vector if length >= 16 * vector else math.gcd(length, vector)


def _classes(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, accumulators = problem
    positions = accumulators == 2
    occupancy, stages = CLASSES_OCCUPANCY[accumulators], 1
    tile, warps = CLASSES_TILE // (1 if K <= 4 and size > 1 else 2), 1
    if limits.sm_count * occupancy > MAX_SPLITS_OF_A_WARP * M:
        tile, warps = SHORT_BYTES // size, SHORT_WARPS
        if positions:
            stages = STAGES
        elif accumulators == 1:
            occupancy = OCCUPANCY
    tile = min(tile, power_of_2(N * K))
    vector = _row_vector(N * K, size)
    return _fitting(
        problem,
        Configuration("classes", max(tile // (warps * WARP), 1), warps, occupancy, vector, stages=stages),
    )


def _columns(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, size, accumulators = problem
    found = _few_elements(problem, limits)
    if found is not None:
        return found
    positions = accumulators == 2
    tile = min(TILE_BYTES // 2 // size, TILED_ELEMENTS)
    occupancy = COLUMNS_OCCUPANCY[accumulators]
    # With 4 vectors to a thread ptxas may make two of them wait: min.dim of 64 x 512 x 512 int64 41 us, not 55; max.dim
    # 42, not 40.
    warps = TILED_WARPS * (2 if positions and size == 8 else 1)
    programs = limits.sm_count * occupancy // warps
    max_partials = max(warps, 4) * (MAX_PARTIALS if size <= 4 and accumulators < 3 else MAX_WIDE_PARTIALS)
    tiles = M * N * K // (programs * tile)  # of a program, if all had as many
    block_k, blocks = WIDE_BLOCK_K, cdiv(M * K, WIDE_BLOCK_K)
    if blocks < programs and (tiles < TILES_TO_WIDEN or 8 * blocks * (max_partials // block_k) < 7 * programs):
        block_k = BLOCK_K
    block_k = min(block_k, power_of_2(M * K))
    if tiles >= 2 and 4 * cdiv(M * K, block_k) * (max_partials // block_k) < 3 * programs:
        tile, warps = 2 * tile, 2 * warps
    block_k = min(max(block_k, tile // power_of_2(N)), power_of_2(M * K))
    tile = min(tile, power_of_2(N) * block_k)
    warps = max(1, min(warps, tile // WARP))
    stages = STAGES if size <= 2 else 1
    return _fitting(
        problem, Configuration("columns", tile // (warps * WARP) or 1, warps, occupancy, 1, block_k, True, stages)
    )


def _few_elements(problem: Problem, limits: Limits) -> Configuration | None:
    """Results of few elements each: in one tile, or in one warp's where there are many. Little is folded across."""
    M, N, K, size, accumulators = problem
    results, block_n = M * K, power_of_2(N)
    occupancy = OCCUPANCY if accumulators == 1 and N > 8 else OCCUPANCY // 2
    stages = STAGES if size <= 2 else 1
    if N <= 8:
        block_k, warps = max(512 // max(size, 2), 256 // block_n), 2
    elif N <= MAX_IN_ONE_TILE:
        block_k, warps = IN_ONE_TILE_BLOCK_K, block_n // 8
    elif N <= MAX_IN_ONE_TILE_OF_LITTLE and results <= limits.sm_count * 4 * BLOCK_K:
        block_k, warps = BLOCK_K, block_n // 16
    else:
        block_n, block_k, warps = 8, BY_WARPS_BLOCK_K, 1
        enough = min(cdiv(N, block_n), BY_WARPS_PER_SM) if FEW_ROUNDS * block_n < N else 0
        if N > BY_WARPS_MAX_N or block_k >= 2 * results or cdiv(results, block_k) < enough * limits.sm_count:
            return None
    block_k = min(block_k, power_of_2(results))
    warps = max(1, min(warps, block_n * block_k // (2 * WARP)))
    elements = max(block_n * block_k // (warps * WARP), 1)
    return _fitting(problem, Configuration("columns", elements, warps, occupancy, 1, block_k, False, stages))


def _fitting(problem: Problem, configuration: Configuration) -> Configuration:
    """With no more elements than a thread can hold."""
    elements = configuration.elements
    while elements * _words(problem) > MAX_WORDS:
        elements //= 2
    return configuration._replace(elements=elements)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The smallest that is not below ``n``."""
    return 1 << (n - 1).bit_length()
