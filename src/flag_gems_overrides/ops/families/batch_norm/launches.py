# SPDX-License-Identifier: Apache-2.0
"""The launch that a configuration of batch norm means for a problem, or why it is not legal."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .types import ALONE, TWO_TILES, Channels, Configuration, Flat, Groups, Launch, Problem, Tiling

# A thread that loads elements one by one loads a vector's bytes divided by this number.
SINGLES = 4
# Maximum elements of each input in a thread where a program holds whole channels, by the number of inputs.
MAX_ELEMENTS = {1: 32, 2: 16}
# Elements of a float64 gradient in two tiles of a thread. With 24, 72 bytes spill: 38 x 6 x 287.
MAX_OF_FLOAT64 = 20
# Registers of a thread that holds tiles: of each word, and how many more than words at most; beside them; with heads
# and tails; and of each load of a single element, by the number of inputs. With 8 fewer, 8 to 440 bytes spill (Triton
# 3.6; 60 launches were compiled).
REGISTERS_OF_HELD_WORD, MORE_REGISTERS_OF_WORDS = 1.1, 6
REGISTERS_BESIDE_HELD = 18
REGISTERS_OF_EDGES = 26
# More of them forward where a thread has more words. With 128 registers 48 to 56 bytes spill, 15 x 1536 x 627 float32.
WORDS_OF_EDGES, MORE_REGISTERS_OF_EDGES = 64, 16
# The same where loads are shorter than a vector. 64 x 1024 x 196 bf16: 22.7 us by 64 registers, 25.6 by 48 (H200).
REGISTERS_OF_SHORT_LOADS = 4
REGISTERS_OF_SINGLE = {1: 1.0, 2: 0.5}
# Maximum loads of single elements of each input of such a thread. With more the compiler takes a minute.
MAX_HELD_SINGLES = 16
# Maximum vectors of a program that holds tiles: products of two such numbers are less than 2**30 (tile.quotient).
MAX_HELD_VECTORS = (1 << 15) - 1
# Maximum warps of a program.
MAX_WARPS = 16
# Share of a thread's registers for sums and loads. Addresses and masks need the others.
MAX_REGISTERS = 0.75
# Maximum elements of a program that is alone (ALONE), or twice the share of a multiprocessor.
MAX_ALONE = 32768
# Parts of other programs that a thread of the last program of a group loads at a time.
PARTS_PER_THREAD = 2
# Minimum bytes of runs, no whole vectors, that are read as a head, vectors and a tail. The bound is estimated.
# Gradient of 5 x 7063 x 875 float32: 143 us, element by element 194.
MIN_UNALIGNED_BYTES = 512
# The same for gradients with loads of at most BYTES_OF_ODD_LOADS bytes.
# 2632 x 5 x 219 bf16: 21.6 us, element by element 30.3 (H100).
MIN_ODD_BYTES = 256
# Maximum bytes of an element-wise load for MIN_ODD_BYTES.
BYTES_OF_ODD_LOADS = 2
# Little data, in bytes: there are more programs then, and heads and tails forward cost one more wait.
# 2 x 18 x 11805 float32: 11.4 us, element by element 12.6; 5 x 1 x 20001 float32: 10.3, element by element 10.0 (H100).
LITTLE_BYTES = 1 << 20
# Bytes of 16 bits forward up to which runs have no heads and tails, instead of LITTLE_BYTES.
# 1263 x 1 x 409 bf16: 11.6 us, element by element 14.0; 3 x 3 x 8001 float16: 10.1, element by element 7.7 (H100).
LITTLE_EDGES = {2: 3 << 18}
# Maximum words of the other programs that a thread of a group collects, in each plane.
WORDS_OF_THREAD = 8
# Registers of a thread that exchanges words where loads are narrower than a vector: some, and by the number of inputs
# those of an element and of a word; of an element of runs. With fewer, 16 to 256 bytes spill (Triton 3.6; 46 launches
# were compiled): 256 for 231847 x 5 bf16 by 16 elements, 8 words and 128 registers.
REGISTERS_BESIDE_WORDS = 10
REGISTERS_OF_ELEMENT = {1: 5, 2: 5}
REGISTERS_OF_ELEMENT_OF_RUN = {1: 8, 2: 5}
REGISTERS_OF_WORD = {1: 10, 2: 5}
# Maximum programs that exchange words, if groups are larger than SMALL_GROUP.
# 20 x 6 x 65536 bf16, groups of 110: 27.6 us by 660 programs, with a flag 24.7 (H100).
MAX_PROGRAMS_BY_WORDS = 512
# Maximum programs of a group that exchanges words whatever the number of programs.
# 16 x 64 x 25000 bf16, groups of 12: 64.0 us by 768 programs, with a flag 69.8 (H100).
SMALL_GROUP = 33
# Maximum elements of a tile.
MAX_BLOCK = 1 << 16
# Maximum columns of a program that holds runs as columns.
MAX_COLUMNS_OF_RUNS = 256
# A tile of heads and tails has one of this number of parts of a tile of vectors. With as many, 112 bytes spill.
EDGES_OF_TILE = 4
# groups: below this number of tiles to a program, the number of programs is rounded up, so that none has one more tile.
# 533 x 17 x 39 float16: 10.7 us, rounded down 11.9; gradient of 8 x 56 x 10153 bf16, four tiles each: 27.6 rounded up,
# 26.8 rounded down (H100).
MANY_TILES = 4
# Bytes that a program stores side by side where the elements of a channel are contiguous.
ROW_BYTES = 128
# flat: maximum vectors of a row in a thread.
FLAT_VECTORS = 2
# flat: maximum vectors of a tile in a thread, by the number of inputs. More spill.
FLAT_LOADS = {1: 4, 2: 2}
# flat: registers of a thread. Without the limit, the compiler spills 8 bytes to fit another program.
FLAT_REGISTERS = 128
# flat: sums of a thread in flight when a program adds up its channels, by the number of inputs. Forward 16 spill.
# Gradient of 16384 x 25 bf16: 10.2 us with 16 sums, 11.0 with 4 (H100).
SUMS_OF_THREAD = {1: 8, 2: 16}
# flat: times the bytes of its sums that a program reads at least, unless that leaves few programs.
FLAT_SHARE = 4
# flat: waves of programs where blocks are no whole rows and have few programs, so that the last wave is short.
FLAT_WAVES = 4
# flat: maximum lanes of a gradient's programs whose number is rounded up if it is less than that of multiprocessors.
# 35110 x 5 bf16: 8.7 us, rounded down 9.8; forward 13489 x 112 float16: 16.7, rounded down 15.6 (H100).
LANES_OF_SMALL = 128
# flat: channels of a program that merges parts.
MERGED_CHANNELS = 8
# flat: entries of parts that such a program loads at a time.
MERGED_ELEMENTS = 1024
# flat: its warps.
MERGE_WARPS = 4
# flat: registers of its threads. With 128, float64 spills 96 bytes; without a limit, float32 on sm_100 spills 8.
MERGE_REGISTERS = 255
# flat: fewest and most channels of a program that merges.
MIN_MERGED_CHANNELS, MAX_MERGED_CHANNELS = 2, 128
# flat: programs that merge to a multiprocessor that must be left if their channels are doubled.
MERGE_WAVES = 2


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launch | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launch:
    """ValueError where the configuration is not legal for the problem."""
    kernel, channels, warps, *_ = configuration
    if not (0 < channels <= power_of_2(problem.N) and 0 < warps <= MAX_WARPS):
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "channels" and configuration.warps_per_sm:
        return _held(problem, configuration, limits)
    if kernel == "channels" and configuration.padded:
        return _runs_in_columns(problem, channels, warps, configuration.loads > 0, limits)
    if kernel == "channels" and configuration.loads == (1 if problem.K == 1 else TWO_TILES):
        return _two_tiles(problem, channels, warps)
    if kernel == "channels":
        unaligned = configuration.loads > 0
        if unaligned and (channels > 1 or not may_have_edges(problem)):
            raise ValueError("no runs of one channel that begin anywhere")
        block = block_of(problem, unaligned)
        per_thread = held_of_one(problem, unaligned, limits) if channels == 1 else held(problem)
        if channels * block > per_thread * warps * WARP:
            raise ValueError("a program does not hold a channel")
        if channels > 1 and problem.K > 1:
            # An element for each thread at least, as in rows of layer_norm.
            block = max(block, warps * WARP // channels)
        tiling = _tiling(problem, channels, block, warps, unaligned=unaligned)
        edges = power_of_2(problem.M) * 2 * tiling.vec if unaligned else 0
        if problem.inputs == 1 and edges > warps * WARP:
            raise ValueError("a thread has more elements of edges than registers")  # 8 bytes spill, 60 x 2000 x 261
        single = problem.inputs == 1 and problem.itemsize == 4 and limits.capability[0] > 9
        if single and edges and block > held(problem) * MAX_WARPS // 2 * WARP:
            raise ValueError("16 warps with heads and tails spill")  # 16 bytes on sm_100, 12 x 30 x 1301 float32
        return Channels(tiling._replace(edges=edges), _reads_again(problem, tiling, limits))
    if kernel == "flat":
        return _flat(problem, configuration, limits)
    return _groups(problem, configuration, limits)


def _held(problem: Problem, configuration: Configuration, limits: Limits) -> Channels:
    """Programs that hold one channel in tiles, as many of them as it needs."""
    _, channels, warps, loads, warps_per_sm, _, padded, *_ = configuration
    A, _, B, size, _ = problem
    unaligned = loads > 0
    if channels > 1 or padded or B == 1 or size == 8 or (unaligned and not may_have_edges(problem)):
        raise ValueError("no tiles of one channel")
    vec = VECTOR_BYTES // size if unaligned else math.gcd(B, VECTOR_BYTES // size)
    tiling = _tiling(problem, 1, vec * warps * WARP, warps, unaligned=unaligned)
    depth = cdiv(tiling.total * vec, tiling.block)
    if unaligned:
        tiling = tiling._replace(edges=power_of_2(A) * 2 * vec)
        if tiling.edges > warps * WARP:
            raise ValueError("a thread has more elements of edges than registers")
    if size == 2 and tiling.vec == 1:
        depth += depth % 2
    if tiling.vec == 1 and depth > MAX_HELD_SINGLES:
        raise ValueError("a thread has many single elements")
    if depth < 2 or depth * warps * WARP > MAX_HELD_VECTORS or tiling.int64_offsets:
        raise ValueError("no tiles of few vectors with offsets of 32 bits")
    registers = min(limits.registers_per_sm // (warps_per_sm * WARP) // 8 * 8, 255)
    if needed_registers(problem, warps, unaligned) > registers:
        raise ValueError("a thread has fewer registers")
    return Channels(tiling, False, depth, registers)


def needed_registers(problem: Problem, warps: int, unaligned: bool) -> int:
    """Registers of a thread of a program that holds a channel in tiles."""
    vec = VECTOR_BYTES // problem.itemsize if unaligned else math.gcd(problem.K, VECTOR_BYTES // problem.itemsize)
    loads = cdiv(problem.M * problem.K, vec * warps * WARP) * problem.inputs
    words = loads * vec * problem.itemsize / 4
    singles = REGISTERS_OF_SINGLE[problem.inputs] * loads if vec == 1 else 0
    beside = REGISTERS_BESIDE_HELD + (REGISTERS_OF_EDGES if unaligned else 0)
    beside += MORE_REGISTERS_OF_EDGES if unaligned and problem.inputs == 1 and words > WORDS_OF_EDGES else 0
    beside += REGISTERS_OF_SHORT_LOADS if vec * problem.itemsize < VECTOR_BYTES else 0
    of_words = min(REGISTERS_OF_HELD_WORD * words, words + MORE_REGISTERS_OF_WORDS)
    return cdiv(math.ceil(of_words + singles + beside), 8) * 8


def _two_tiles(problem: Problem, channels: int, warps: int) -> Channels:
    """Programs that hold channels as the greatest power of two of their elements, and the remaining ones."""
    count = problem.M * problem.K
    block = power_of_2_within(count)
    rest = max(power_of_2(count - block), block // 8)
    if not 0 < count - block <= rest <= block // 2:
        raise ValueError("channels that two tiles hold with few masked lanes")
    # Runs of one channel: a thread of a gradient, with 128 registers, holds as many elements of each input as forward.
    per_thread = held(problem) * (problem.inputs if channels == 1 and problem.K > 1 else 1)
    if channels * block > per_thread * warps * WARP or channels * rest < warps * WARP:
        raise ValueError("a program does not hold a channel")
    if problem.itemsize == 8 and problem.inputs == 2 and channels * (block + rest) > MAX_OF_FLOAT64 * warps * WARP:
        raise ValueError("a thread has more elements than registers")
    return Channels(_tiling(problem, channels, block, warps)._replace(rest=rest), False)


def _runs_in_columns(problem: Problem, channels: int, warps: int, two: bool, limits: Limits) -> Channels:
    """Programs that hold short runs of neighbouring channels as columns."""
    A, C, B, size, inputs = problem
    if B == 1 or power_of_2(B) != B or channels * B > MAX_COLUMNS_OF_RUNS:
        raise ValueError("no short runs of a power of two")
    columns = Configuration("channels", channels * B, warps, int(two))
    launched = launch(Problem(A, C * B, 1, size, inputs), columns, limits)
    assert isinstance(launched, Channels)
    return launched._replace(tiling=launched.tiling._replace(run=B))


def _reads_again(problem: Problem, tiling: Tiling, limits: Limits) -> bool:
    """Whether programs of a gradient read x and dy again, from L1, and do not keep them in registers.

    Only where a program would take all registers of a multiprocessor: two run at once this way, and one alone loads,
    computes and stores in turns. L1 cannot hold wider elements. Runs with heads and tails were not timed.
    99 x 21007 x 96 float16: 371 us, otherwise 445 (H200).
    """
    full = tiling.channels == 1 and tiling.block > held(problem) * MAX_WARPS * WARP
    narrow = problem.inputs == 2 and problem.itemsize == 2 and not tiling.edges
    return full and narrow and limits.sm_count < problem.N


def block_of(problem: Problem, unaligned: bool) -> int:
    """Lanes of a program for the elements of a channel; where runs begin anywhere, for their whole vectors."""
    vec = VECTOR_BYTES // problem.itemsize if unaligned else 1
    return power_of_2(problem.M * (problem.K // vec) * vec)


def held(problem: Problem) -> int:
    """Elements of each input that a thread may hold."""
    return MAX_ELEMENTS[problem.inputs] // (2 if problem.itemsize == 8 else 1)


def held_of_one(problem: Problem, unaligned: bool, limits: Limits) -> int:
    """Maximum elements of each input in a thread of a program that has one channel, and a multiprocessor to itself.

    They are twice as many, because other kernels read x twice. Forward 59 x 2358 x 496 float32: 205 us, otherwise 283;
    gradient of 128 x 8000 x 96 float32: 436, otherwise 632 (H100).

    Loads of one element and offsets of 64 bits spill 64 to 120 bytes; short loads on sm_100 spill 8 to 40. Gradients
    need whole vectors, or are float64 with at most one program to a multiprocessor.
    """
    A, C, B, size, inputs = problem
    if inputs == 2:
        few = size == 8 and limits.sm_count >= C and limits.capability[0] == 9
        wide = unaligned or (B > 1 and (few or _divide_into_vectors(problem)))
    else:
        wide = B % 2 == 0 and (B * size % VECTOR_BYTES == 0 or limits.capability[0] < 10)
    return held(problem) * (2 if wide and A * C * B + MAX_BLOCK < 2**31 else 1)


def min_registers(problem: Problem, limits: Limits) -> int:
    """Minimum registers of a thread. With fewer, 8 to 24 bytes spill (Triton 3.6).

    float64 and sm_100 need more than other problems.
    """
    if problem.itemsize == 8:
        return 80
    return 72 if limits.capability[0] > 9 else 56


def _groups(problem: Problem, configuration: Configuration, limits: Limits) -> Groups:
    _, channels, warps, loads, warps_per_sm, least, padded, stages, most = configuration
    tiling = tiles(problem, channels, warps, loads, padded)
    if min(warps_per_sm, least, stages) < 1 or tiling.rows < 1 or tiling.vec > tiling.block:
        raise ValueError(f"no legal program: {configuration}")
    if tiling.columns and tiling.vec == 1 and stages > 1:
        # Triton stores one column after the other, so the lanes of a warp have the same bank. 8800 x 39 float32: 47 us.
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
    # All channels at once if there are places, or even rounds. Fewer at a time, so that L2 holds what is read again,
    # makes larger groups, which wait longer: 65536 x 512 bf16, 148 and 354 us.
    blocks = cdiv(tiling.blocks, cdiv(tiling.blocks, min(at_once, most or at_once)))
    group = max(1, min(at_once // blocks, _shares(tiling, least, blocks, limits)))
    lanes = tiling.channels * cdiv(tiling.total, tiling.rows) * tiling.block
    if tiling.edges:
        lanes += cdiv(problem.M, tiling.edges // (2 * tiling.vec)) * tiling.edges
    if least >= ALONE and lanes > max(MAX_ALONE, 2 * problem.M * problem.N * problem.K // limits.sm_count):
        raise ValueError("a program alone has much more than its share")
    # Whole lines of memory.
    unit = 1 if tiling.columns or tiling.run else max(ROW_BYTES // problem.itemsize // tiling.vec, 1)
    slice_size = cdiv(cdiv(tiling.total, group), unit) * unit
    while tiling.edges and group > 1 and tiling.total % slice_size == 1:
        slice_size += unit  # or the only vector of the last part may be masked, and its first tile has no element
    group = cdiv(tiling.total, slice_size)
    merged = int(PARTS_PER_THREAD * warps * WARP) // channels
    programs = min(at_once // group, tiling.blocks) * group
    if most:
        programs = min(programs, blocks * group)
    return Groups(tiling, group, slice_size, min(power_of_2(group), max(merged, 1)), programs, registers, stages)


def by_words(problem: Problem, chosen: Groups) -> bool:
    """Whether programs that wait for each other exchange words of two float32 (waiting.py)."""
    tiling, inputs = chosen.tiling, problem.inputs
    words = power_of_2(chosen.group) * tiling.channels / (tiling.warps * WARP)
    few_programs = chosen.programs <= MAX_PROGRAMS_BY_WORDS or chosen.group <= SMALL_GROUP
    if words > WORDS_OF_THREAD or problem.itemsize == 8 or not few_programs:
        return False
    of_element = REGISTERS_OF_ELEMENT if tiling.columns else REGISTERS_OF_ELEMENT_OF_RUN
    elements = tiling.channels * tiling.block / (tiling.warps * WARP)
    needed = REGISTERS_BESIDE_WORDS + of_element[inputs] * elements + REGISTERS_OF_WORD[inputs] * words
    return tiling.vec * problem.itemsize >= VECTOR_BYTES or needed <= chosen.registers


def _shares(tiling: Tiling, least: int, blocks: int, limits: Limits) -> int:
    """Programs of at least this number of tiles for all elements of a block."""
    whole, rounded_up = tiling.total // (least * tiling.rows), cdiv(tiling.total, least * tiling.rows)
    many = least == 1 or rounded_up * blocks >= limits.sm_count
    return rounded_up if least < MANY_TILES and many else whole


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
    else:
        rows_of_long, lanes = vec // math.gcd(C * B, vec), threads
    per_thread = lanes // threads
    if per_thread > FLAT_VECTORS or loads % per_thread or loads > FLAT_LOADS[inputs] * (2 if size == 8 else 1):
        raise ValueError("a thread has more vectors than registers")
    rows = loads // per_thread
    width = rows_of_long * C * B
    if 2 * width < lanes * vec and not all_channels:
        raise ValueError("most lanes have no element")
    tiles, rest = A // (rows_of_long * rows), A % (rows_of_long * rows) * C * B
    if tiles < 1 or rest >= 2**31:
        raise ValueError("a program has a tile")
    if (stages - 1) * loads * threads * VECTOR_BYTES * inputs * max(warps_per_sm // warps, 1) > limits.shared_bytes:
        raise ValueError("stages are in shared memory")
    blocks, at_once = 1, limits.sm_count * max(warps_per_sm // warps, 1)
    if not all_channels:
        blocks = cdiv(width, lanes * vec)
        if tiles < FLAT_SHARE:
            raise ValueError("sums of places are most of the work")
        if 4 * blocks > at_once:
            # Programs do not wait for each other.
            at_once *= FLAT_WAVES
    group = max(1, min(at_once // blocks, tiles // least))
    if all_channels and inputs == 2 and lanes <= LANES_OF_SMALL and cdiv(tiles, least) <= limits.sm_count:
        group = cdiv(tiles, least)
    slice_size = cdiv(tiles, group)
    group = cdiv(tiles, slice_size)
    if not all_channels and 3 * group * width >= 2**31:
        raise ValueError("sums are counted in 32 bits")
    per_row, unit = rows_of_long * B, vec if B % vec == 0 else 1
    of_row = power_of_2(per_row // unit)
    # More places at a time if there are few channels.
    sums = SUMS_OF_THREAD[inputs] * threads
    block_c = min(max(sums // min(of_row, WARP), 1), power_of_2(min(channels, C)))
    block_e = min(of_row, max(sums // block_c, 1))
    return Flat(
        power_of_2(min(channels, C)), rows_of_long, width, per_row, rows, lanes, vec, not all_channels,
        tiles, rest, blocks, group, slice_size, block_c, block_e, warps, stages, unit,
    )  # fmt: skip


class Merge(NamedTuple):
    """The parts that a program merges: entries of some channels at a time."""

    channels: int
    entries: int
    warps: int


def merge_of(problem: Problem, chosen: Flat, limits: Limits) -> Merge:
    """Many channels of few entries side by side; few channels of many entries by more programs and warps."""
    count = chosen.group * (chosen.sums_per_row if chosen.by_place else 1)
    entries, channels, warps = power_of_2(count), MERGED_CHANNELS, MERGE_WARPS
    one_of_thread = chosen.by_place and problem.itemsize == 8 and problem.inputs == 1
    elements = MAX_WARPS * WARP if one_of_thread else MERGED_ELEMENTS
    while (
        channels < MAX_MERGED_CHANNELS
        and 2 * channels * entries <= elements
        and cdiv(problem.N, 2 * channels) >= MERGE_WAVES * limits.sm_count
    ):
        channels *= 2
    if chosen.by_place and channels * entries > elements:
        while channels > MIN_MERGED_CHANNELS and 2 * cdiv(problem.N, channels) <= limits.sm_count:
            channels //= 2
        if cdiv(problem.N, channels) <= limits.sm_count and not one_of_thread and channels * entries > elements:
            elements, warps = 2 * elements, 2 * warps
    entries = min(entries, elements // channels)
    return Merge(channels, entries, max(entries * channels // WARP, 1) if one_of_thread else warps)


def tiles(problem: Problem, channels: int, warps: int, loads: int, padded: bool) -> Tiling:
    """Of programs that go through channels tile by tile."""
    unaligned = has_edges(problem) and channels == 1 and not padded
    block = elements(problem, loads, unaligned or _divide_into_vectors(problem)) * warps * WARP // channels
    run = min(block, power_of_2(problem.K)) if padded and problem.K > 1 else 0
    return _tiling(problem, channels, block, warps, run, unaligned)


def elements(problem: Problem, loads: int, vectors: bool) -> int:
    """Elements of a thread's loads. Loads of one element take an address and a mask each."""
    loaded = VECTOR_BYTES if vectors else VECTOR_BYTES // SINGLES
    return max(loads * loaded // problem.itemsize, 1)


def has_vectors(problem: Problem) -> bool:
    """Whether runs, or columns, are read in whole vectors, if need be with heads and tails."""
    return _divide_into_vectors(problem) or has_edges(problem)


def has_edges(problem: Problem) -> bool:
    """Whether runs that are no whole vectors are read in tiles of heads, of vectors and of tails."""
    A, C, B, size, inputs = problem
    return may_have_edges(problem) and (inputs == 2 or A * C * B * size > LITTLE_EDGES.get(size, LITTLE_BYTES))


def may_have_edges(problem: Problem) -> bool:
    """Whether runs that are no whole vectors can be read as a head, vectors and a tail.

    With offsets of 64 bits, kernels of bf16 spill 128 bytes (sm_90).
    """
    A, C, B, size, inputs = problem
    possible = B > 1 and A * C * B + MAX_BLOCK < 2**31
    odd = inputs == 2 and math.gcd(B, VECTOR_BYTES // size) * size <= BYTES_OF_ODD_LOADS
    least = MIN_ODD_BYTES if odd else MIN_UNALIGNED_BYTES
    return possible and B * size >= least and not _divide_into_vectors(problem)


def _divide_into_vectors(problem: Problem) -> bool:
    _, C, B, size, _ = problem
    return math.gcd(C if B == 1 else B, VECTOR_BYTES // size) * size == VECTOR_BYTES


def places(tiling: Tiling, warps_per_sm: int, limits: Limits) -> int:
    """Programs that the device has at once."""
    return limits.sm_count * max(min(warps_per_sm, limits.threads_per_sm // WARP) // tiling.warps, 1)


def _tiling(problem: Problem, channels: int, block: int, warps: int, run: int = 0, unaligned: bool = False) -> Tiling:
    A, C, B, size, _ = problem
    columns = B == 1
    width = C if columns else B
    vec = VECTOR_BYTES // size if unaligned else math.gcd(width, VECTOR_BYTES // size)
    total = A if columns else A * cdiv(B, run) if run else A * (B // vec)
    # The tile after the last counts, too; its elements are masked.
    far = max(A * C * B, total * run) + block * (C if columns else channels) >= 2**31
    vectors = width if unaligned else width // vec
    edges = max(block // EDGES_OF_TILE, 2 * vec) if unaligned else 0
    return Tiling(channels, block, vec, vectors, total, columns, run, edges, far, warps, cdiv(C, channels))
