# SPDX-License-Identifier: Apache-2.0
"""What a batch norm is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits

WARP = 32
VECTOR_BYTES = 16
# Of the bytes of a vector, the share that a thread loads where it loads one by one.
SINGLES = 4
# Elements of each input that a thread holds where a program has whole channels, by the number of inputs.
MAX_ELEMENTS = {1: 32, 2: 16}
MAX_WARPS = 16
# Share of the registers of a thread that may hold sums and loads; the others hold addresses and masks.
MAX_REGISTERS = 0.75
# ALONE tiles at least means that no program shares a block of channels. Such a program has at most MAX_ALONE
# elements, or twice the share of a multiprocessor.
ALONE, MAX_ALONE = 1 << 30, 32768
# Parts of other programs that a thread of the last program of a group loads at a time.
PARTS_PER_THREAD = 2
# Gradients read runs of so many bytes, which are no whole vectors, as a head, vectors and a tail (estimated, not
# timed: heads and tails are loaded one by one, 16 lanes of 256).
MIN_UNALIGNED_BYTES = 512
# Bytes that a program stores side by side where the elements of a channel are contiguous.
ROW_BYTES = 128
# flat: most vectors of a row in a thread; most vectors of a tile in a thread, by the number of inputs (more spill);
# registers of a thread (left to itself the compiler spills 8 bytes to fit a second program of 16 warps).
FLAT_VECTORS, FLAT_LOADS, FLAT_REGISTERS = 2, {1: 4, 2: 2}, 128
# flat: how many times the bytes of its sums a program reads at least, unless that leaves few programs. Gradients whose
# blocks are no whole rows: programs in so many waves if a block has few of them, so that the last wave is short.
FLAT_SHARE, FLAT_WAVES = 4, 4
# flat: channels of a program that merges the parts, and entries of a channel that it loads at a time.
MERGED_CHANNELS, MERGED_ELEMENTS, MERGE_WARPS = 8, 1024, 4
# For estimate(): bytes that a multiprocessor moves in a microsecond; microseconds of a launch, of an iteration, and
# of an exchange of sums between programs.
BYTES_PER_US, LAUNCH_US, ITERATION_US, EXCHANGE_US = 32000, 2.0, 0.7, 2.5
# So many programs that wait for each other add a microsecond, twice as many add four: 2966680 bf16 of one channel
# take 17.7 us with 527 programs, 19.1 with 714, 24.4 with 1054; 2048 x 7 x 12 8.2 with 192, 8.7 with 384, 11.6 with
# 768.
PROGRAMS_OF_US = 360
# groups: how many times as long loads take that are shorter than a vector, by their bytes; runs of SHORT_RUN_BYTES
# take twice as long. Problems of more than 4 MB move 3.6 TB/s with whole vectors, 2.7 with 8 bytes, 2.2 with 4, 1.5
# with 2; 55521 x 32 x 20 float32 half of it, 18435 x 24 x 24 and 43848 x 8 x 4 bfloat16 less.
OF_PARTS_OF_VECTORS, SHORT_RUN_BYTES, MAX_OF_SHORT_RUNS = {16: 1.0, 8: 1.3, 4: 1.6, 2: 2.4}, 64, 3.0
# flat: its three launches, and the time until all sums are there, by the number of inputs. Gradients of 5688 x 96 bf16
# take 14.1 us.
FLAT_US = {1: 12.0, 2: 10.0}
# Columns of whole vectors take so many times as long, by the bytes of an element: 156093 x 168 float16 92 us, the
# gradient of 780197 x 136 549, of 538608 x 128 float32 396, of 213671 x 128 float64 300.
OF_WIDE_COLUMNS = {2: 1.5, 4: 1.2, 8: 1.15}
# Runs that are read as a head, vectors and a tail (estimated, not timed).
OF_EDGES = 1.1
# What is read a second time, where the cache has room for all that programs go through at once: the gradients of
# 153491 x 5 x 7 float32 take 46 us, of 42972 x 1 x 232 bf16 37.
READS_OF_L2 = 1.5
# channels: programs read sectors of the cache whole, whatever they need of them: the gradient of 952 x 16384 x 2 bf16
# takes 370 us with 8 bytes at a time.
SECTOR_BYTES = 32
# groups: microseconds that columns and rows take besides.
COLUMNS_US, ROWS_US = 5.0, 2.5


class Problem(NamedTuple):
    """Batch norm of [M, N, K] over M and K: the kernels' A, C and B. inputs: tensors of that size that are read, 1
    forward and 2 backward."""

    M: int
    N: int
    K: int
    itemsize: int
    inputs: int


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: channels, which holds them, groups, and flat, which reads memory as it lies."""

    kernel: str
    channels: int  # of a program; flat: C or more for all
    warps: int
    loads: int = 0  # of 16 bytes of each input that a thread has in flight; groups: a quarter of it one by one
    warps_per_sm: int = 0  # groups: which leaves a thread 65536 / 32 / warps_per_sm registers
    tiles: int = 1  # of a program at least, which are worth the wait for others
    padded: bool = False  # groups: runs of B are read in pieces of a power of two
    stages: int = 1  # of the loads of a loop
    blocks: int = 0  # groups: of channels at once, no more; 0 for as many as there is room for


class Tiling(NamedTuple):
    """What a program has of [A, C, B]. Names as in tile.py."""

    channels: int
    block: int
    vec: int
    vectors: int
    total: int
    columns: bool
    run: int
    unaligned: bool  # vectors: elements of a run
    int64_offsets: bool
    warps: int
    blocks: int  # of channels

    @property
    def rows(self) -> int:
        """Rows, vectors, or pieces of a tile."""
        return self.block // (self.run or (1 if self.columns else self.vec))


class Channels(NamedTuple):
    """Programs that hold whole channels: the ``*_channels`` kernels."""

    tiling: Tiling


class Groups(NamedTuple):
    """``group`` programs to a block of channels, each with ``slice_size`` rows, vectors, or pieces of them."""

    tiling: Tiling
    group: int
    slice_size: int
    parts: int  # that the last program merges at a time
    programs: int
    registers: int  # most for one thread, which makes ``programs`` fit on the device
    stages: int


class Flat(NamedTuple):
    """``group`` programs to a block of channels, each with ``slice_size`` tiles. Names as in flat.py."""

    channels: int
    all_channels: bool
    rows_of_long: int  # rows of A
    width: int
    per_row: int
    rows: int
    lanes: int
    vec: int
    by_place: bool  # what programs store for each other, not by channel
    tiles: int
    rest: int
    blocks: int
    group: int
    slice_size: int
    block_c: int
    block_e: int
    warps: int
    stages: int

    @property
    def programs(self) -> int:
        return self.blocks * self.group

    def part(self) -> int:
        """Elements of a channel that a part has, but the last."""
        return self.slice_size * self.rows * self.per_row


Launch = Channels | Groups | Flat


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launch | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launch:
    """ValueError if the problem cannot be launched so."""
    kernel, channels, warps, *_ = configuration
    if not (0 < channels <= power_of_2(problem.N) and 0 < warps <= MAX_WARPS):
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "channels":
        block = power_of_2(problem.M * problem.K)
        if channels * block > held(problem) * warps * WARP:
            raise ValueError("a program does not hold a channel")
        return Channels(_tiling(problem, channels, block, warps))
    if kernel == "flat":
        return _flat(problem, configuration, limits)
    return _groups(problem, configuration, limits)


def held(problem: Problem) -> int:
    """Elements of each input that a thread may hold."""
    return MAX_ELEMENTS[problem.inputs] // (2 if problem.itemsize == 8 else 1)


def min_registers(problem: Problem, limits: Limits) -> int:
    """With fewer, batches with no whole vectors, of float64, or on sm_100 spill 8 to 24 bytes (Triton 3.6)."""
    if problem.itemsize == 8:
        return 80
    return 72 if limits.capability[0] > 9 else 56


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: the bytes that are moved, and the iterations of a program one after the other."""
    chosen = launch(problem, configuration, limits)
    numel = problem.M * problem.N * problem.K
    us, reads, slower, workspace, turns = LAUNCH_US, 2.0, 1.0, 0, 1
    if isinstance(chosen, Channels):
        programs, reads, warps = chosen.tiling.blocks, 1, chosen.tiling.warps
        at_once = limits.sm_count * max(limits.threads_per_sm // WARP // 2 // warps, 1)
        iterations = cdiv(programs, at_once)
        if problem.K > 1:
            slower = OF_PARTS_OF_VECTORS.get(chosen.tiling.vec * problem.itemsize, 1.0)
            slower *= max(SECTOR_BYTES / (chosen.tiling.channels * problem.K * problem.itemsize), 1.0)
    elif isinstance(chosen, Groups):
        tiling, programs = chosen.tiling, chosen.programs
        turns = cdiv(tiling.blocks * chosen.group, programs)
        iterations = 2 * turns * cdiv(chosen.slice_size, tiling.rows)
        if chosen.group > 1:
            merges = ITERATION_US * cdiv(chosen.group, chosen.parts)
            us += turns * (EXCHANGE_US + merges + (programs / PROGRAMS_OF_US) ** 2)
        iterations = iterations // 2 if chosen.stages > 2 else iterations
        slower = OF_PARTS_OF_VECTORS.get(tiling.vec * problem.itemsize, 1.0)
        if tiling.columns and chosen.group > 1:
            us += COLUMNS_US
            # Programs of the last block may have fewer channels, but take as long.
            slower *= tiling.blocks * tiling.channels / problem.N
            slower *= OF_WIDE_COLUMNS[problem.itemsize] if tiling.vec * problem.itemsize == VECTOR_BYTES else 1.0
        elif not tiling.columns:
            us += ROWS_US if chosen.group > 1 else 0
            slower *= min(1 + SHORT_RUN_BYTES / (problem.K * problem.itemsize), MAX_OF_SHORT_RUNS)
            slower *= cdiv(problem.K, tiling.run) * tiling.run / problem.K if tiling.run else 1.0
            slower *= OF_EDGES if tiling.unaligned else 1.0
    else:
        programs, us = chosen.programs, FLAT_US[problem.inputs]
        at_once = limits.sm_count * max(limits.threads_per_sm // WARP // 2 // chosen.warps, 1)
        # A pipeline hides half of what an iteration waits.
        iterations = cdiv(programs, at_once) * chosen.slice_size * (1 if chosen.stages > 1 else 2)
        if chosen.by_place:
            sums, parts = chosen.group * chosen.width, chosen.group * chosen.per_row
        else:
            # At the end a program adds up what its threads have.
            us += ITERATION_US * cdiv(chosen.channels, chosen.block_c) * cdiv(chosen.per_row, chosen.block_e)
            sums, parts = programs * chosen.lanes * chosen.vec, chosen.group
        us += ITERATION_US * (parts * MERGED_CHANNELS // MERGED_ELEMENTS)
        workspace = 2 * max(problem.itemsize, 4) * (3 if problem.inputs == 1 else 2) * sums
        mergers = min(cdiv(problem.N, MERGED_CHANNELS), limits.sm_count)
        us += workspace / 2 / (mergers * BYTES_PER_US) if chosen.by_place else 0
    if reads > 1 and numel * problem.itemsize * problem.inputs / turns <= limits.l2_bytes:
        reads = READS_OF_L2
    moved = numel * problem.itemsize * (problem.inputs * reads + 1) * slower + workspace
    busy = min(limits.sm_count, programs)
    return us + max(moved / (busy * BYTES_PER_US), iterations * ITERATION_US)


def _groups(problem: Problem, configuration: Configuration, limits: Limits) -> Groups:
    _, channels, warps, loads, warps_per_sm, least, padded, stages, most = configuration
    tiling = tiles(problem, channels, warps, loads, padded)
    if min(warps_per_sm, least, stages) < 1 or tiling.rows < 1 or tiling.vec > tiling.block:
        raise ValueError(f"no legal program: {configuration}")
    if tiling.columns and tiling.vec == 1 and stages > 1:
        # Triton stores one column after the other, so that the lanes of a warp have the same bank: 8800 x 39 float32
        # takes 47 us.
        raise ValueError("stages of single columns are in one bank of shared memory")
    at_once = places(tiling, warps_per_sm, limits)
    registers = min(limits.registers_per_sm * limits.sm_count // (at_once * warps * WARP) // 8 * 8, 255)
    if registers < min_registers(problem, limits):
        raise ValueError("a thread has too few registers to merge parts")
    words = max(problem.itemsize, 4) // 4
    elements = channels * tiling.block // (warps * WARP)
    if elements * (2 * words + problem.inputs * problem.itemsize / 4) > MAX_REGISTERS * registers:
        raise ValueError("a thread has more sums and loads than registers")
    shared = (stages - 1) * channels * tiling.block * problem.itemsize * problem.inputs + 1024
    if stages > 1 and shared * max(warps_per_sm // warps, 1) > limits.shared_bytes:
        raise ValueError("stages are in shared memory")
    # All channels at once if there are places, or in as few rounds as can be, evenly. With fewer at a time, so that L2
    # holds what is read a second time, groups are larger and wait longer: 65536 x 512 bf16 148 and 354 us.
    blocks = cdiv(tiling.blocks, cdiv(tiling.blocks, min(at_once, most or at_once)))
    group = max(1, min(at_once // blocks, tiling.total // (least * tiling.rows)))
    lanes = tiling.channels * cdiv(tiling.total, tiling.rows) * tiling.block
    if least >= ALONE and lanes > max(MAX_ALONE, 2 * problem.M * problem.N * problem.K // limits.sm_count):
        raise ValueError("a program alone has much more than its share")
    # Whole lines of memory.
    unit = 1 if tiling.columns or tiling.run else max(ROW_BYTES // problem.itemsize // tiling.vec, 1)
    slice_size = cdiv(cdiv(tiling.total, group), unit) * unit
    group = cdiv(tiling.total, slice_size)
    merged = int(PARTS_PER_THREAD * warps * WARP) // channels
    programs = min(at_once // group, tiling.blocks) * group
    if most:
        programs = min(programs, blocks * group)
    return Groups(tiling, group, slice_size, min(power_of_2(group), max(merged, 1)), programs, registers, stages)


def _flat(problem: Problem, configuration: Configuration, limits: Limits) -> Flat:
    _, channels, warps, loads, warps_per_sm, least, padded, stages, _ = configuration
    A, C, B, size, inputs = problem
    if min(loads, warps_per_sm, least, stages) < 1 or padded:
        raise ValueError(f"no legal program: {configuration}")
    vec, threads, all_channels = VECTOR_BYTES // size, warps * WARP, channels >= C
    if all_channels:
        rows_of_long = vec // math.gcd(C * B, vec)
        lanes = max(threads, power_of_2(rows_of_long * C * B // vec))
        # As many rows as the lanes have room for.
        rows_of_long *= lanes * vec // (rows_of_long * C * B)
    elif inputs == 2:
        rows_of_long, lanes = vec // math.gcd(C * B, vec), threads
    else:
        if channels * B % vec or C * B % vec:
            raise ValueError("a block is no whole vectors")
        rows_of_long, lanes = 1, max(threads, power_of_2(channels * B // vec))
    per_thread = lanes // threads
    if per_thread > FLAT_VECTORS or loads % per_thread or loads > FLAT_LOADS[inputs] * (2 if size == 8 else 1):
        raise ValueError("a thread has more vectors than registers")
    rows = loads // per_thread
    width = rows_of_long * C * B
    if 2 * (channels * B if inputs == 1 else width) < lanes * vec and not all_channels:
        raise ValueError("most lanes have no element")
    tiles, rest = A // (rows_of_long * rows), A % (rows_of_long * rows) * C * B
    if tiles < 1 or rest >= 2**31:
        raise ValueError("a program has a tile")
    if (stages - 1) * loads * threads * VECTOR_BYTES * inputs * max(warps_per_sm // warps, 1) > limits.shared_bytes:
        raise ValueError("stages are in shared memory")
    blocks, at_once = 1, limits.sm_count * max(warps_per_sm // warps, 1)
    by_place = inputs == 2 and not all_channels
    if by_place:
        blocks = cdiv(width, lanes * vec)
        if tiles < FLAT_SHARE:
            raise ValueError("sums of places are most of the work")
        if 4 * blocks > at_once:
            # Programs do not wait for each other.
            at_once *= FLAT_WAVES
    elif not all_channels:
        blocks = cdiv(C, channels)
    group = max(1, min(at_once // blocks, tiles // least))
    slice_size = cdiv(tiles, group)
    group = cdiv(tiles, slice_size)
    if by_place and 2 * group * width >= 2**31:
        raise ValueError("sums are counted in 32 bits")
    per_row = rows_of_long * B
    # As many sums to a thread as loads are worth while, and of few channels more places at a time.
    block_c = min(max(4 * threads // min(power_of_2(per_row), WARP), 1), power_of_2(min(channels, C)))
    block_e = min(power_of_2(per_row), max(4 * threads // block_c, 1))
    return Flat(
        power_of_2(min(channels, C)), all_channels, rows_of_long, width, per_row, rows, lanes, vec, by_place, tiles, rest,
        blocks, group, slice_size, block_c, block_e, warps, stages,
    )  # fmt: skip


def tiles(problem: Problem, channels: int, warps: int, loads: int, padded: bool) -> Tiling:
    """Of programs that go through channels tile by tile."""
    unaligned = has_edges(problem) and channels == 1 and not padded
    block = elements(problem, loads, unaligned or _divide_into_vectors(problem)) * warps * WARP // channels
    run = min(block, power_of_2(problem.K)) if padded and problem.K > 1 else 0
    return _tiling(problem, channels, block, warps, run, unaligned)


def elements(problem: Problem, loads: int, vectors: bool) -> int:
    """Those of so many loads. One by one they take an address and a mask each."""
    loaded = VECTOR_BYTES if vectors else VECTOR_BYTES // SINGLES
    return max(loads * loaded // problem.itemsize, 1)


def has_vectors(problem: Problem) -> bool:
    """Whether runs, or columns, are read in whole vectors, if need be with heads and tails."""
    return _divide_into_vectors(problem) or has_edges(problem)


def has_edges(problem: Problem) -> bool:
    """Whether runs that are no whole vectors are read as a head, vectors and a tail."""
    _, _, B, size, inputs = problem
    return inputs == 2 and B > 1 and B * size >= MIN_UNALIGNED_BYTES and not _divide_into_vectors(problem)


def _divide_into_vectors(problem: Problem) -> bool:
    _, C, B, size, _ = problem
    return math.gcd(C if B == 1 else B, VECTOR_BYTES // size) * size == VECTOR_BYTES


def places(tiling: Tiling, warps_per_sm: int, limits: Limits) -> int:
    """Programs that the device has at once."""
    return limits.sm_count * max(min(warps_per_sm, limits.threads_per_sm // WARP) // tiling.warps, 1)


def _tiling(
    problem: Problem, channels: int, block: int, warps: int, run: int = 0, unaligned: bool = False
) -> Tiling:
    A, C, B, size, _ = problem
    columns = B == 1
    width = C if columns else B
    vec = VECTOR_BYTES // size if unaligned else math.gcd(width, VECTOR_BYTES // size)
    total = A if columns else A * cdiv(B, run) if run else A * (B // vec)
    # Of the tile after the last too, whose elements are masked; of heads and tails it has many runs.
    after = (block // (2 * vec) + 1) * C * B if unaligned else channels * block * (C if columns else 1)
    far = max(A * C * B, total * run) + after >= 2**31
    vectors = width if unaligned else width // vec
    return Tiling(channels, block, vec, vectors, total, columns, run, unaligned, far, warps, cdiv(C, channels))


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The next."""
    return 1 << max(n - 1, 0).bit_length()
