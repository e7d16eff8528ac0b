# SPDX-License-Identifier: Apache-2.0
"""What a reduction is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2

# What Triton knows of a size: whether it is a multiple of this.
KNOWN_MULTIPLE = 16
# 32-bit words of elements that a thread may hold.
MAX_WORDS = 64
# Registers that a thread may have.
MAX_REGISTERS = 248
# Elements of a thread that are loaded one by one for a position, of rows: each has a register and its position another,
# and a thread has 64. With 32, 16 to 184 bytes spill. argmax 3 x 6801 bf16: 3.89 us, with 32 5.40 (H100).
MAX_SINGLE_POSITIONS = 16
# Partial results that a warp of the last program of a block can have in registers: numbers of up to 4 bytes; of 8, or a
# mean, a sum of squares and a count; these three of 8 bytes.
MAX_PARTIALS = (1024, 512, 256)
# Warps of a multiprocessor up to which moments of columns, by at least four warps, may have the partial results of
# ROOMY_WARPS: a thread has 96 of its 128 registers for them.
ROOMY_OCCUPANCY, ROOMY_WARPS = 16, 8
# Programs that share a row of classes, at most, if they are single warps: they combine one class after the other.
MAX_SPLITS_OF_A_WARP = 256
# Tiles of a result from which programs share it.
# mean 13 x 191 x 616 bf16: 5.74 us, by three programs for each result 7.27 (H100).
MIN_SHARED_TILES = 4
# Programs along the third axis of a grid, at most.
MAX_AXIS = 65535
# K up to which a row is read as it lies, its K classes combined one after the other.
MAX_CLASSES = 8

# N up to which a thread has whole rows.
MAX_SHORT = 7
# Elements of a lane that moments load together: of rows and columns, and of classes.
MAX_DEPTH, CLASSES_DEPTH = 8, 4
# Elements of a lane of classes, at most: as many as leave fewest to the last group.
# var_mean 20000 x 1000 x 3 bf16: 57.0 us by 6, 57.7 by 4 (H100).
MAX_CLASSES_DEPTH = 6
# Bytes of the input up to which a thread of moments has single columns, not vectors of them.
# std 2 x 4 x 8261 float32: 2.99 us, 2 x 4 x 8192 in vectors 3.66 (H200).
MAX_SINGLE_COLUMNS_BYTES = 2 << 20
# Lanes side by side, at least, in a row that is loaded as a column, element by element.
ROW_LANES = 8
# Bytes of a row of whole vectors (at least, at most) whose moments have several vectors to a thread.
GROUPED_BYTES = 768, 3072
# Elements of a shorter row, more than this, that has them too because a quarter of the lanes would be idle.
MIN_IDLE_N = 128
# Elements of all such rows, at least.
MIN_GROUPED_ELEMENTS = 4 << 20
# Groups of moments of a row that has a program of its own, at most.
MAX_WIDE_DEPTH = 16
# Elements of a row of 16 bits, at most, whose moments are loaded element by element, MAX_DEPTH to a lane.
# std 228 x 505 bf16: 3.44 us, with a lane for each element 3.8 (H100).
MAX_HALF_ROW = 1024
# Elements of a thread of a short [N, K] of few columns, at most.
# var_mean 262144 x 60 x 2 bf16: 27.4 us with 30, 30.5 with 60; 1048576 x 17 x 2: 33.1 us with 17, 38.5 with 8 (H100).
SHORT_CLASS_ELEMENTS = 32
# The same for values of K that is no power of two. A thread has more, for lanes beyond the last multiple of K and a
# vector are idle. sum 139122 x 64 x 5 bf16: 39.0 us, with half as many elements 43.5 (H100).
ODD_CLASS_ELEMENTS = 64
# By whether elements have 16 bits or less, and by K, elements of such a column, at least. With K of 6 and 7
# programs of columns are a loop then. sum 100000 x 200 x 3 bf16: 48 us, as columns 126;
# amax 200000 x 32 x 5 float16: 33.7 us, as columns 32.6 (H100).
MIN_ODD_CLASS_N = {True: {3: 24, 5: 33, 6: 129, 7: 129}, False: {3: 24, 5: 24}}
# Elements of a lane of such a column, at most, where a whole warp's lanes with fewer do not do.
# sum 60000 x 131 x 3 float16: 23.8 us, as columns 34.4 (H100).
ODD_CLASS_DEPTH = 16
# Elements of a column, at least, of three columns of 16 bits or less whose [N, K] is whole vectors.
MIN_THREE_CLASSES_N = 16
# Bytes of such a vector.
THREE_CLASSES_BYTES = 8
# By accumulators, elements of a column of 4 or 8 bytes, at least: lanes of columns read whole lines too.
# sum 1773768 x 64 x 2 float32: 326 us, as columns 491; 600000 x 20 x 2: 45.4 us, as columns 45.3 (H100).
MIN_WIDE_CLASS_N = {1: 24, 3: 20}


class Problem(NamedTuple):
    """A reduction of a contiguous [M, N, K] over N, none of them 0."""

    M: int
    N: int
    K: int
    itemsize: int  # of the input
    accumulators: int  # 1 a value; 2 a value and its position; 3 mean, sum of squares and count


class Configuration(NamedTuple):
    """What the tuner chooses."""

    # rows (K = 1), short (N = 1 to 7 too), classes (K = 2 to 8, read as it lies), short_classes (several [N, K] to
    # a program) or columns (K > 1, or short rows of a few lanes each)
    kernel: str
    elements: int  # of a tile that a thread has
    warps: int
    occupancy: int  # warps for which a multiprocessor has registers
    vector: int = 1  # elements that a load takes together, along a row
    block_k: int = 1  # results of a tile, of columns; of rows at least
    split: bool = True  # whether programs share a result where there are too few for the device
    stages: int = 1  # tiles in flight
    neighbours: bool = False  # whether the elements of a vector are combined before they are compared
    within: bool = False  # whether programs of columns have results of one [N, K] each


class Plan(NamedTuple):
    """What one program does and how many there are. Names as in the kernels."""

    kernel: str
    blocks: int  # programs along the results
    block_m: int
    block_n: int
    block_k: int
    matrices: int  # [N, K] that a program of columns reaches into, 3 for more, 0 for one whose results begin there
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
    lanes: int  # of moments and columns: elements side by side in a tile, 0 if those of rows are all,
    depth: int  # and elements of a lane that are loaded together


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Plan | None:
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
    rows: int = 1  # as ``matrices``, but of more how many
    lanes: int = 0
    depth: int = 1


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Plan:
    """ValueError if the problem cannot be launched so."""
    M, N, K, size, accumulators = problem
    kernel, elements, warps, occupancy, vector, block_k, split, stages, neighbours, _ = configuration
    registers = _registers(problem, occupancy, limits)
    if (
        min(elements, warps, block_k, stages) < 1
        or registers < 32
        or elements * words(problem) > MAX_WORDS
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
    tiles = cdiv(tile.length, tile.step)
    shared = min(tiles, programs // tile.blocks, _max_partials(problem, configuration) // tile.block_m // tile.block_k)
    splits = max(shared, 1) if tiles >= MIN_SHARED_TILES else 1
    if accumulators == 3 and kernel == "columns" and splits > 1:
        # No more programs than need as many tiles each, so that about all have as many.
        # var_mean 100000 x 200 bf16 along 0: 26.3 us, otherwise 27.0 (H100).
        splits = cdiv(tiles, cdiv(tiles, splits))
    if accumulators == 3 and kernel == "classes" and splits == 1 and not tile.edges:
        tile = _with_full_groups(tile)
    looped = splits * tile.step < tile.length
    if kernel == "classes" and tile.step % K and (looped or splits > 1):
        raise ValueError("an accumulator meets elements of one class")
    if _held(problem, configuration, tile, looped) > registers // 2:
        raise ValueError("too many elements for the registers")
    # One for each thread: a smaller tensor Triton loads in the tile's layout, each element by many threads.
    edge_lanes = max(2 * tile.vector, warps * WARP // tile.block_m) if tile.edges else 0
    furthest = max(tile.rows, 1) * tile.length + splits * tile.step + edge_lanes
    if kernel == "columns":
        furthest = max(furthest * K, tile.blocks * tile.block_k) + tile.block_k
    # An input that passes through the L2 cache need not displace what others left there and what must be written back
    # first. It is not pipelined then, for asynchronous copies take no policy. amax 65536 x 768 bf16: 29 us, otherwise
    # 34. Smaller inputs may be wanted again. Of larger ones it is slower: 2**30 float32: 1003 us, otherwise 958.
    through = limits.l2_bytes // 2 < M * N * K * size <= 4 * limits.l2_bytes
    return Plan(
        kernel=kernel,
        blocks=tile.blocks,
        block_m=tile.block_m,
        block_n=tile.block_n,
        block_k=tile.block_k,
        matrices=min(tile.rows, 3),
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
        lanes=tile.lanes,
        depth=tile.depth,
    )


def _row_tile(problem: Problem, configuration: Configuration) -> _Tile:
    M, N, K, _, _ = problem
    if K > 1:
        raise ValueError("rows have K = 1")
    elements = configuration.elements * configuration.warps * WARP
    block_n = min(power_of_2(N), elements // configuration.block_k)
    vector, edges = _vector(problem, configuration)
    if block_n < vector:
        raise ValueError("more rows than vectors")
    lanes = _wide_row_lanes(problem, configuration, vector)
    if lanes:
        # Whole vectors. A row with a head of vector - 1 has the fewest, one less than a row without a head at most.
        depth = (N - (vector - 1) if edges else N) // lanes
        return _Tile(N, M, 1, power_of_2(N), 1, power_of_2(N), vector, edges, lanes=lanes, depth=depth)
    lanes = _short_row_lanes(problem, configuration, vector)
    if lanes:
        each = max(configuration.elements // power_of_2(N // lanes * vector), 1)  # rows of a thread
        block_m = min(power_of_2(M), max(configuration.warps * WARP * vector // lanes, 1) * each)
        block_n = power_of_2(N)  # a lane has its elements of the whole row
    else:
        block_m = min(power_of_2(M), elements // block_n)
    depth = N // lanes if lanes else 0
    return _Tile(N, cdiv(M, block_m), block_m, block_n, 1, block_n, vector, edges, lanes=lanes, depth=depth)


def _short_tile(problem: Problem, configuration: Configuration) -> _Tile:
    M, N, _, size, _ = problem
    if not is_short(problem) or configuration.elements != N * configuration.vector:
        raise ValueError("whole short rows of a thread")
    if configuration.vector * size > VECTOR_BYTES:
        raise ValueError("more than a vector")
    block_m = configuration.vector * configuration.warps * WARP
    return _Tile(N, cdiv(M, block_m), block_m, N, 1, N, configuration.vector, False)


def is_short(problem: Problem) -> bool:
    """Whether a thread may have whole rows.

    Values of a power of two only where that is less than a vector. Longer ones were not timed.
    sum 3387879 x 2 bf16: 12.9 us, in vectors of a row 23.5 (H100).
    """
    _, N, K, size, accumulators = problem
    in_vectors = accumulators == 1 and 1 < N == power_of_2(N) and N * size >= VECTOR_BYTES
    return K == 1 and N <= MAX_SHORT and not in_vectors


def grouped_rows(problem: Problem, vector: int) -> bool:
    """Whether moments of short rows of whole vectors have several of them to a thread, loaded together.

    std 19095 x 536 float32: 21.3 us, in a loop or with a lane for each vector 24.6 (H100). Many shorter rows too, if
    they leave a quarter of a tile's lanes idle: var_correction 145861 x 272 bf16: 34.8 us, in one tile 61.8 (H100).
    """
    M, N, _, size, accumulators = problem
    whole = accumulators == 3 and size < 8 and vector * size == VECTOR_BYTES and N % vector == 0
    idle = MIN_IDLE_N < N and 3 * power_of_2(N) >= 4 * N and M * N >= MIN_GROUPED_ELEMENTS
    return whole and (idle or GROUPED_BYTES[0] <= N * size) and N * size <= GROUPED_BYTES[1]


def _short_row_lanes(problem: Problem, configuration: Configuration, vector: int) -> int:
    """For moments of short rows how many elements are side by side, if not all; 0 for all other rows.

    Few, for lanes exchange two sums: with a lane for every element 2718103 x 53 bfloat16 takes 77 instructions for each
    of 64 elements, most of them for the exchange. Of whole vectors where the configuration has the rows for it.
    """
    _, N, _, size, accumulators = problem
    grouped = configuration.block_k > 1 and grouped_rows(problem, vector)
    longest = MAX_HALF_ROW if size == 2 else MAX_DEPTH * WARP * vector
    short = accumulators == 3 and size < 8 and vector * size < VECTOR_BYTES and N % vector == 0 and longest >= N
    if not grouped and not short:
        return 0
    lanes = vector
    # The last, shorter group of float32 in less than vectors counts too.
    # var_mean 300000 x 33: 22.0 us by 8 lanes, 23.0 by 4 (H100).
    while (N if size == 2 or grouped else N + lanes - 1) // lanes > MAX_DEPTH:
        lanes *= 2
    return lanes


def _wide_row_lanes(problem: Problem, configuration: Configuration, vector: int) -> int:
    """As ``_short_row_lanes``, by a program for each row, whose threads have a vector of each group.

    Edges of float64 were not timed.
    """
    _, N, _, size, accumulators = problem
    lanes = configuration.warps * WARP * vector
    grouped = accumulators == 3 and configuration.elements == vector and configuration.block_k == 1
    timed = N % vector == 0 or size < 8
    return lanes if grouped and timed and lanes + 2 * vector <= N <= MAX_WIDE_DEPTH * lanes else 0


def _class_tile(problem: Problem, configuration: Configuration) -> _Tile:
    M, N, K, _, _ = problem
    if not 1 < K <= MAX_CLASSES or configuration.block_k > 1:
        raise ValueError(f"a row has 2 to {MAX_CLASSES} classes, all of which are in a tile")
    block_n = min(power_of_2(N * K), configuration.elements * configuration.warps * WARP)
    vector, edges = _vector(problem, configuration)
    period = math.lcm(K, vector)
    step = block_n // period * period
    if not step:
        raise ValueError("a tile has all classes")
    depth = min(CLASSES_DEPTH, cdiv(N * K, step)) if problem.accumulators == 3 else CLASSES_DEPTH
    return _Tile(N * K, M, 1, block_n, power_of_2(K), step, vector, edges, lanes=block_n, depth=depth)


def short_class_lanes(problem: Problem, vector: int) -> int:
    """Lanes side by side in an [N, K], so that a thread loads all its elements together; 0 where there are none."""
    _, N, K, size, accumulators = problem
    odd, fewest = has_odd_classes(problem), MIN_WIDE_CLASS_N.get(accumulators, 0) if size > 2 else 3
    if not odd and (accumulators == 2 or K not in (2, 4, 8) or fewest > N):
        return 0
    lanes, most = max(vector, power_of_2(K)), (ODD_CLASS_ELEMENTS if odd else SHORT_CLASS_ELEMENTS) // vector
    while lanes < WARP * vector and class_step(lanes, K, vector) * (min(MAX_DEPTH, most) + 1) <= N * K:
        lanes *= 2
    step, longest = class_step(lanes, K, vector), min(ODD_CLASS_DEPTH if odd else MAX_DEPTH, most)
    return lanes if step <= N * K < step * (longest + 1) else 0


def has_odd_classes(problem: Problem) -> bool:
    """Whether lanes side by side in an [N, K] are worth it though some of them are idle."""
    _, N, K, size, accumulators = problem
    narrow = size <= 2
    fewest = MIN_ODD_CLASS_N[narrow].get(K)
    if K == 3 and narrow and N * K * size % THREE_CLASSES_BYTES == 0:
        fewest = MIN_THREE_CLASSES_N
    return accumulators == 1 and fewest is not None and fewest <= N


def class_step(lanes: int, K: int, vector: int) -> int:
    """How many of ``lanes`` lanes side by side in an [N, K] are whole vectors, as many of each class."""
    period = math.lcm(K, vector)
    return lanes // period * period


def _short_class_tile(problem: Problem, configuration: Configuration) -> _Tile:
    M, N, K, size, _ = problem
    vector = configuration.vector
    lanes = short_class_lanes(problem, vector)
    if not lanes or N * K % vector or vector * size > VECTOR_BYTES or class_step(lanes, K, vector) > N * K:
        raise ValueError("few classes, of whole vectors")
    block_m = min(power_of_2(M), max(configuration.elements * configuration.warps * WARP // lanes, 1))
    length = N * K
    depth = length // class_step(lanes, K, vector)
    return _Tile(length, cdiv(M, block_m), block_m, lanes, K, length, vector, False, lanes=lanes, depth=depth)


def _column_tile(problem: Problem, configuration: Configuration) -> _Tile:
    M, N, K, _, accumulators = problem
    if configuration.vector != 1:
        raise ValueError("K decides how columns are loaded")
    elements = configuration.elements * configuration.warps * WARP
    block_k = min(configuration.block_k, power_of_2(M * K), elements)
    block_n = min(power_of_2(N), elements // block_k)
    if K == 1 and (accumulators == 3 or block_n < N):
        raise ValueError("rows that are loaded as columns are one tile, and no moments")
    if block_k > 16 * configuration.warps * WARP:
        raise ValueError("a thread has 16 results at most")
    rows = 1 if M == 1 or K % block_k == 0 else 0 if configuration.within else cdiv(block_k, K) + 1
    blocks = cdiv(M * K, block_k) if rows else M * cdiv(K, block_k)
    step, lanes, depth = _groups(problem, configuration, block_n, block_k)
    vector = math.gcd(K, 16)
    return _Tile(N, blocks, 1, block_n, block_k, step, vector, False, rows, lanes, depth)


def _groups(problem: Problem, configuration: Configuration, block_n: int, block_k: int) -> tuple[int, int, int]:
    """(Elements of a column in a tile, those side by side, those of a lane): a vector to a thread.

    Of rows (K = 1) those side by side are neighbours in memory.
    """
    N, K = problem.N, problem.K
    if problem.accumulators < 3 and (block_n < N or block_n == power_of_2(N) == N):
        return block_n, block_n, 1
    threads = configuration.warps * WARP
    least = ROW_LANES if K == 1 else threads * column_vector(problem) // block_k
    lanes = max(least, block_n // MAX_DEPTH, 1)
    lanes = min(lanes, power_of_2(N + 1) // 2, block_n)
    if block_n >= N:  # one tile, the last elements apart
        return block_n, lanes, N // lanes
    if lanes > 1:
        return block_n, lanes, block_n // lanes
    # As many as leave no group in part.
    depth = next((each for each in range(block_n, block_n // 2, -1) if N % each == 0), block_n)
    return depth, 1, depth


def column_grid(M: int, K: int, chosen: Plan) -> tuple[tuple[int, ...], str]:
    """The grid of a launch of columns, and how its programs find where they start (``columns.results_of``)."""
    if M == 1 or chosen.blocks == 1:
        return (chosen.blocks, chosen.splits), "first"
    if chosen.matrices == 1 and chosen.splits == 1 and M <= MAX_AXIS:
        return (K // chosen.block_k, 1, M), "axis"
    return (chosen.blocks, chosen.splits), "divided"


def column_vector(problem: Problem) -> int:
    """Columns that a thread loads together. Lanes of single columns have less to exchange, and no results to move."""
    M, N, K, size, accumulators = problem
    single = accumulators == 3 and M * N * K * size <= MAX_SINGLE_COLUMNS_BYTES
    return 1 if single else math.gcd(K, VECTOR_BYTES // size)


_TILES = {
    "rows": _row_tile,
    "short": _short_tile,
    "classes": _class_tile,
    "short_classes": _short_class_tile,
    "columns": _column_tile,
}


def _vector(problem: Problem, configuration: Configuration) -> tuple[int, bool]:
    """(Elements that a load takes together, whether a row has others.)"""
    length, vector = problem.N * problem.K, configuration.vector
    if vector == 1 and length % KNOWN_MULTIPLE and length % (VECTOR_BYTES // problem.itemsize) == 0:
        # As Triton does of its own accord where the compiler knows the multiple: 2 bytes at a time otherwise.
        vector = VECTOR_BYTES // problem.itemsize
    edges = length % vector != 0
    if vector * problem.itemsize > VECTOR_BYTES or (edges and length < 2 * vector):
        raise ValueError("a row is too short for vectors and edges")
    return vector, edges


def _with_full_groups(tile: _Tile) -> _Tile:
    """``tile``, of classes that programs do not share, with as few elements as possible in the last group."""
    whole = tile.length // tile.step
    if whole < CLASSES_DEPTH:
        return tile
    depths = range(CLASSES_DEPTH, MAX_CLASSES_DEPTH + 1)
    return tile._replace(depth=min(depths, key=lambda each: (whole % each, -each)))


def _held(problem: Problem, configuration: Configuration, tile: _Tile, looped: bool) -> float:
    """32-bit words of elements that a thread holds."""
    size = problem.itemsize
    columns = tile.block_k if configuration.kernel == "columns" else 1
    lanes = tile.block_m * tile.block_n * columns / (configuration.warps * WARP)
    if problem.accumulators == 3:
        if configuration.kernel == "short":
            return lanes * max(size / 4, 1)
        loaded, kept = max(size / 4, 1 / tile.vector), 2 * max(size / 4, 1)
        if tile.lanes:
            lanes = tile.block_m * tile.lanes * columns / (configuration.warps * WARP)
            rest = not looped and configuration.kernel != "classes"
            return lanes * ((tile.depth + rest) * loaded + kept)
        # The elements of a vector share a mean and a sum of squares; of 64 bits more is in registers.
        return lanes * (3 * size / 4 if size == 8 else size / 4 + kept / tile.vector)
    # A load takes a register at least.
    loaded = max(size / 4, 1 / tile.vector)
    if not looped:
        return lanes * (loaded + are_single_positions(problem, configuration.kernel, tile.vector, tile.block_m))
    kept = max(size / 4, 1) + (problem.accumulators == 2)
    return lanes * (loaded + kept / tile.vector if configuration.neighbours else kept)


def are_single_positions(problem: Problem, kernel: str, vector: int, block_m: int) -> bool:
    """Whether a thread of rows has a register for the position of each element. Those of 8 bytes have 128 registers."""
    narrow = problem.itemsize <= 2 or (problem.itemsize == 4 and block_m == 1)
    return problem.accumulators == 2 and kernel == "rows" and vector == 1 and narrow


def words(problem: Problem) -> int:
    """32-bit words of an element in registers."""
    wide = max(problem.itemsize // 4, 1)
    if problem.accumulators < 3:
        return wide
    if problem.itemsize == 2 and problem.K > 1:
        return 1  # a group of them shares a mean and a sum of squares
    return wide * (3 if problem.itemsize == 8 else 2)


def _registers(problem: Problem, occupancy: int, limits: Limits) -> int:
    """Registers of a thread: as many as let ``occupancy`` warps be resident.

    Without a limit ptxas takes fewer, for more warps than there are, and lets the loads of a tile wait for each other:
    2**30 float32: 1077 us in 30 registers.
    """
    registers = min(limits.registers_per_sm // (WARP * occupancy) // 8 * 8, MAX_REGISTERS)
    # Left to itself, ptxas spills a register or two of 64-bit values to have one more program resident.
    return max(registers, 128) if problem.itemsize == 8 else registers


def _max_partials(problem: Problem, configuration: Configuration) -> int:
    """Partial results that the last program of a block can have in registers."""
    if configuration.kernel == "classes" and configuration.warps == 1:
        return MAX_SPLITS_OF_A_WARP * power_of_2(problem.K) // (4 if problem.accumulators == 3 else 1)
    moments = problem.accumulators == 3
    roomy = moments and configuration.kernel == "columns" and configuration.occupancy <= ROOMY_OCCUPANCY
    least = ROOMY_WARPS if roomy and configuration.warps >= 4 else 4
    return max(configuration.warps, least) * MAX_PARTIALS[(problem.itemsize > 4) + moments]
