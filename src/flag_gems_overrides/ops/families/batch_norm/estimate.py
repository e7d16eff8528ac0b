# SPDX-License-Identifier: Apache-2.0
"""How long a launch of batch norm takes, in microseconds of an H100: enough to choose among all configurations.

Three things go on at once: memory moves bytes, multiprocessors work off the requests of their warps, and each program
waits for its loads and its other warps, one after the other. They overlap in part (OVERLAP). What precedes and follows
them adds to that: launches, and exchanges between programs. Constants are fitted at once, to 10831 launches of
1112 problems (H100), so that those near the fastest are told apart. 280 launches that were not timed, and two gradients
of columns that L2 does not hold, have assumed times in the fit, so that it does not choose what nobody timed. Those of
registers, SHARE_OF_L2, BYTES_OF_L2_PER_US and SECOND_TILE_US forward are set, not fitted, and so are STARTS_PER_US and
EDGES_RUN_US, by times of an H200. With 187 problems left out of the fit, what is chosen for them takes 1.035 times as
long as the fastest (geometric mean).
"""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .launches import SMALL_GROUP, by_words, launch, merge_of
from .types import Channels, Configuration, Flat, Groups, Launch, Problem, Tiling

# Bytes of memory, and of L2 where it holds what is read again, in a microsecond, as a share of a multiprocessor.
BYTES_PER_US = 24000.0
BYTES_OF_L2_PER_US = 54000.0
# Microseconds in which memory is not busy at the start and at the end, and microseconds of memory that make half of it.
TAIL_US = 8.89
BEFORE_TAIL_US = 18.0
# Share of L2 that surely holds what is read again. Of twice as much nothing is left.
# Set, not fitted: by the fit's 0.7 the gradient of 2713 x 8000 float32 would be by flat.
SHARE_OF_L2 = 0.9
# Exponent of the sum of times that overlap: 1 if they do not, more if the longest hides the others. channels: of one
# wave, whose programs all load before they store, and more with many waves.
OVERLAP = 1.45
OVERLAP_OF_WAVE = 2.17
OVERLAP_OF_WAVES = 2.78
# The same of groups.
OVERLAP_OF_GROUPS = 1.35
# groups: the same of gradients of up to so many rows of which programs have columns, and of more than this share of L2.
# 150 x 40000 bf16: 24.5 us by groups, by channels 31.8 (H200); 611 x 3448: 15.4 and 19.4; but 128 x 2256: 5.7 and 4.6;
# 15379 x 2048: 136, flat 118 (H100). Set, not fitted.
OVERLAP_OF_COLUMN_GRADIENTS = 2.0
MAX_ROWS_OF_COLUMN_GRADIENTS, MIN_SHARE_OF_COLUMN_GRADIENTS = 640, 1 / 8
# channels: share of memory's time for each line that short rows of programs touch beside the lines that they fill.
SHORT_ROW = 0.205
# groups: the same.
SHORT_ROW_OF_GROUPS = 0.107
# channels: microseconds of a program for each load of a thread.
LOAD_WAIT_US = 0.0136
# channels, columns: microseconds for each column of a load and each doubling of warps that add up together.
VEC_WAIT_US = 0.053
# Bytes of a cache line.
LINE_BYTES = 128
# Microseconds of a multiprocessor for a warp's load or store, and more where it computes in which run an element lies.
REQUEST_US = 0.00117
RUN_US = 0.000106
# The same for a line that a request touches, a line and a sector that come from L2.
LINE_US = 0.000631
# channels: the same for an element that a store has alone in its sector, because lanes lie across channels.
# Gradient of 1 x 893183 x 25 bf16: 271 us by 32 channels, whose stores are of single elements, 76 by 8.
STORE_US = 0.000228
MISS_US = 5.08e-05
SECTOR_US = 8.7e-06
# The same for an element of each thread of a warp, and how many times as long it takes in float64.
ELEMENT_US = 4.35e-05
OF_FLOAT64 = 2.5
# The same for the sums of a channel that a warp leaves to others in shared memory, in columns times the elements of a
# load, because neighbouring lanes have the same banks. 27 x 262144 bf16: 21.3 us by 2 warps, 30.7 by 4 with twice as
# many columns.
COLUMN_SUMS_US = 0.000385
RUN_SUMS_US = 0.00823
# channels: microseconds of the launch, of a start of a program, of an element of a thread.
CHANNELS_US = {1: 2.95, 2: 2.7}
PROGRAM_US = 0.0177
THREAD_ELEMENT_US = 0.0132
# channels: programs that the device starts in a microsecond, about one a clock.
# Gradient of 1 x 10016064 x 9 float32: 1512 us by 2504016 programs, 759 by half of them, 385 by a quarter (H200).
# 1 x 65572 x 13 bf16, gradient: 8.35 us by 8197 programs, 6.46 by half of them (H200).
STARTS_PER_US = 1450.0
# channels: microseconds of a program until its loads are there, by the number of inputs.
LOADS_US = {1: 1.85, 2: 1.11}
# channels: microseconds of each doubling of warps that add up together, of each doubling of warps, of a second tile.
SUMS_US = 0.135
WARPS_US = 0.0647
SECOND_TILE_US = {1: 0.01, 2: 0.203}
# channels: registers of a thread: some, and of each word of its elements, by the number of inputs.
REGISTERS = {1: 24.5, 2: 18.4}
REGISTERS_OF_WORD = {1: 1.0, 2: 1.73}
# channels: registers of a thread for the address of a load, for a column, for a second tile. Fitted to 377 compiled
# kernels, error 14 %.
REGISTERS_OF_LOAD = 1.75
REGISTERS_OF_COLUMN = 2.5
REGISTERS_OF_SECOND_TILE = 8
# channels: waves of programs up to which the last one counts as a whole one, not half of it.
FEW_WAVES = 4
# channels: microseconds of programs that hold a channel in tiles, as a share of those of other programs.
# Set, not fitted, so that those near the fastest of 143 launches are told apart (H200).
OF_TILES = 0.97
# groups: microseconds of the launch, of a turn, of a start of a program.
GROUPS_US = {1: 2.05, 2: 1.87}
TURN_US = 0.0628
GROUP_PROGRAM_US = 0.0169
# groups: microseconds of each doubling of the warps of a program, of rows and of columns.
GROUP_WARPS_US = {0: 0.256, 1: 0.0566}
# groups: the same of each warp of a multiprocessor.
GROUP_START_US = {0: 0.00404, 1: 0.0765}
# groups: microseconds of both passes over a tile, without and with a pipeline, of its start, of a tile of heads and
# tails.
TILE_US = 1.65
STAGED_TILE_US = 0.413
STAGED_US = 0.766
EDGES_US = 1.32
# groups, gradients of 16 and 32 bits: microseconds of a multiprocessor for each tensor of a run with head and tail.
# 7969 x 18 x 139 float32: 153.7 us, flat 121.8 (H200).
EDGES_RUN_US = 0.003
# groups: minimum bytes of a load that cp.async copies, so that a pipeline has it in flight.
MIN_STAGED_BYTES = 4
# groups: microseconds of an exchange of sums, less of it by words, more with columns, of each load of parts, of a part.
EXCHANGE_US = 2.12
WORDS_US = 0.512
COLUMNS_US = {1: 0.0582, 2: 1.28}
MERGE_US = 0.873
PART_US = 0.00156
# groups: the same for each word of a thread.
WORD_US = 0.0915
# groups: number of programs whose wait for each other adds a microsecond; the time grows with the square of the number.
PROGRAMS_OF_US = 293.0
# flat: microseconds of its three launches, by the number of inputs.
FLAT_US = {1: 5.47, 2: 3.14}
# flat: microseconds of the quickest that were timed; of the gradient of 1869 x 25 bf16 5.6 were estimated, 8.7 timed.
MIN_FLAT_US = {1: 7.1, 2: 6.6}
# flat: microseconds of both passes over a tile, without and with a pipeline, of a start of a program.
FLAT_TILE_US = 0.711
FLAT_STAGED_US = 0.468
FLAT_PROGRAM_US = 0.286
# flat: microseconds of each load of parts by what merges them, of each load of sums at the end of a program, of each
# doubling of warps.
FLAT_MERGE_US = 0.685
FLAT_SUMS_US = 0.959
FLAT_WARPS_US = 0.753
# flat: microseconds more to merge sums of places, by the number of inputs.
PLACES_US = {1: 1.85, 2: 4.05}
# flat: share of the requests' time that each doubling of warps adds.
OF_FLAT_WARPS = 0.061
# flat: warps of a multiprocessor that run at once; sums that a thread loads at once; programs that merge at once.
FLAT_WARPS = 16
FLAT_SUMS = 4
MERGERS_AT_ONCE = 8


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    return estimate_launch(problem, launch(problem, configuration, limits), limits)


def estimate_launch(problem: Problem, chosen: Launch, limits: Limits) -> float:
    if isinstance(chosen, Channels):
        return _of_channels(problem, chosen, limits)
    if isinstance(chosen, Groups):
        return _of_groups(problem, chosen, limits)
    return _of_flat(problem, chosen, limits)


def _of_channels(problem: Problem, chosen: Channels, limits: Limits) -> float:
    tiling, size, inputs = chosen.tiling, problem.itemsize, problem.inputs
    lanes = tiling.channels * (tiling.block * max(chosen.depth, 1) + tiling.rest) + tiling.edges
    threads = tiling.warps * WARP
    per_thread, words = max(lanes / threads, 1), max(size // 4, 1)
    vec = _elements_of_load(tiling)
    channels, across = min(tiling.channels // max(tiling.run, 1), problem.N), _across(tiling)
    row, pitch = channels * problem.K * size, problem.N * problem.K * size
    if tiling.columns:
        lines = _units(problem.M, row, problem, LINE_BYTES)
    else:
        # A request has elements of several channels if those of one are few.
        at_once = max(min(WARP * vec // tiling.block, channels), 1)
        run = problem.K * size
        lines = _units(problem.M * channels / at_once, at_once * run, problem, LINE_BYTES, run)
        if across > 1:
            lines = problem.M * problem.K * channels / WARP * min(across, across * run / LINE_BYTES + 0.5)
    misses, sectors = (_units(problem.M, row, problem, unit) for unit in (LINE_BYTES, SECTOR_BYTES))
    if row >= pitch or problem.M == 1:
        misses, sectors = problem.M * row / LINE_BYTES, problem.M * row / SECTOR_BYTES
    tiles = 2 if tiling.rest or tiling.edges else 1
    sharing = _sharing(tiling, vec)
    us = PROGRAM_US + tiles * _sums_us(problem, tiling, vec)
    us += _requests_us(problem, lanes, tiling, vec, lines, misses, sectors, inputs + 1)
    if across > 1:
        us += STORE_US * problem.M * problem.K * channels * max(across / WARP, size / SECTOR_BYTES)
    each = tiling.blocks / limits.sm_count
    if chosen.depth:
        at_once = max(limits.registers_per_sm // (chosen.registers * threads), 1)
    else:
        at_once = _programs_at_once(tiling, inputs, per_thread, vec, words, limits)
    waves = each / at_once
    wait = tiles * SUMS_US * math.log2(sharing) + WARPS_US * math.log2(tiling.warps)
    wait += THREAD_ELEMENT_US * per_thread * inputs * words + (SECOND_TILE_US[inputs] if tiles > 1 else 0)
    wait += LOAD_WAIT_US * inputs * per_thread / vec
    if tiling.columns:
        wait += VEC_WAIT_US * vec * math.log2(sharing)
    waves = math.ceil(waves) if waves < FEW_WAVES else waves + 0.5
    moved = pitch * problem.M * (inputs + 1) + _bytes_of_channels(problem)
    overlap = OVERLAP_OF_WAVE + OVERLAP_OF_WAVES * (1 - 1 / max(waves, 1)) * (1 - 1 / at_once)
    overlapped = _overlap(
        overlap,
        moved * (1 + SHORT_ROW * max(misses * LINE_BYTES / (problem.M * row) - 1, 0)) / limits.sm_count / BYTES_PER_US,
        us * (math.ceil(each) if each < 2 * FEW_WAVES else each + 0.5),
        wait + (waves - 1) * (wait + LOADS_US[inputs]),
    )
    us = CHANNELS_US[inputs] + max(overlapped, tiling.blocks / STARTS_PER_US)
    return us * (OF_TILES if chosen.depth else 1)


def _programs_at_once(tiling: Tiling, inputs: int, per_thread: float, vec: int, words: int, limits: Limits) -> int:
    """Programs of whole channels that run at once on a multiprocessor: as many as there are registers for."""
    registers = REGISTERS[inputs] + (REGISTERS_OF_WORD[inputs] * words + REGISTERS_OF_LOAD / vec) * per_thread
    registers += REGISTERS_OF_COLUMN * vec * words if tiling.columns else 0
    registers += REGISTERS_OF_SECOND_TILE if tiling.rest else 0
    warps = min(limits.threads_per_sm // WARP, limits.registers_per_sm // (cdiv(int(registers), 8) * 8 * WARP))
    return max(min(warps // tiling.warps, limits.threads_per_sm // WARP // 2), 1)


def _of_groups(problem: Problem, chosen: Groups, limits: Limits) -> float:
    tiling, size = chosen.tiling, problem.itemsize
    vec = min(_elements_of_load(tiling), tiling.run or VECTOR_BYTES)
    channels, pitch = min(tiling.channels, problem.N), problem.N * problem.K * size
    rows: float
    segments: float
    if tiling.columns:
        rows, row, segments = tiling.rows, channels * size, tiling.rows
    else:
        row = min(tiling.run or tiling.block, problem.K) * size
        rows = tiling.rows if tiling.run else max(tiling.block / problem.K, 1)
        segments = rows * channels
    side_by_side = row if tiling.columns else row * channels
    lines = _units(segments, row, problem, LINE_BYTES, 0 if tiling.columns else problem.K * size)
    misses, sectors = (_units(rows, side_by_side, problem, unit) for unit in (LINE_BYTES, SECTOR_BYTES))
    if channels == problem.N:
        misses, sectors = rows * side_by_side / LINE_BYTES, rows * side_by_side / SECTOR_BYTES
        lines = misses if tiling.columns else lines
    loads = 2 * problem.inputs + 1
    tiles = cdiv(chosen.slice_size, tiling.rows)
    fill = chosen.slice_size / (tiles * tiling.rows)
    lines, misses, sectors = lines * fill, misses * fill, sectors * fill
    us = tiles * _requests_us(problem, tiling.channels * tiling.block, tiling, vec, lines, misses, sectors, loads)
    staged = chosen.stages > 1 and vec * size >= MIN_STAGED_BYTES
    wait = TILE_US + (tiles - 1) * STAGED_TILE_US + STAGED_US if staged else tiles * TILE_US
    if tiling.edges:
        units = tiling.edges / tiling.vec
        of_edges = cdiv(cdiv(problem.M, chosen.group), max(tiling.edges // (2 * tiling.vec), 1))
        us += of_edges * _requests_us(problem, tiling.edges, tiling, 1, units, units, units, loads)
        wait += of_edges * EDGES_US
        if problem.inputs == 2 and problem.itemsize < 8:
            us += loads * EDGES_RUN_US * problem.M / chosen.group
    us += GROUP_PROGRAM_US + 2 * _sums_us(problem, tiling, vec)
    turns = cdiv(tiling.blocks * chosen.group, chosen.programs)
    in_parts = (
        tiling.columns
        and problem.inputs == 2
        and tiling.channels < problem.N
        and problem.M <= MAX_ROWS_OF_COLUMN_GRADIENTS
        and problem.inputs * problem.M * pitch > MIN_SHARE_OF_COLUMN_GRADIENTS * limits.l2_bytes
    )
    alone = GROUP_WARPS_US[int(tiling.columns)] * math.log2(tiling.warps)
    alone += GROUP_START_US[int(tiling.columns)] * tiling.warps * cdiv(chosen.programs, limits.sm_count)
    if chosen.group > 1:
        alone += EXCHANGE_US + PART_US * chosen.group + (COLUMNS_US[problem.inputs] if tiling.columns else 0)
        if by_words(problem, chosen):
            alone += WORD_US * max(power_of_2(chosen.group) * tiling.channels / (tiling.warps * WARP), 1) - WORDS_US
        else:
            alone += MERGE_US * cdiv(chosen.group, chosen.parts)
        waits = 1.0 if tiling.columns else min(chosen.group / SMALL_GROUP, 1.0)
        alone += waits * (chosen.programs / PROGRAMS_OF_US) ** 2
    return (
        GROUPS_US[problem.inputs]
        + turns * alone
        + _overlap(
            OVERLAP_OF_COLUMN_GRADIENTS if in_parts else OVERLAP_OF_GROUPS,
            _bytes_us(problem, problem.M * pitch * problem.inputs / turns, 0, limits)
            * (1 + SHORT_ROW_OF_GROUPS * max(misses * LINE_BYTES / (rows * side_by_side) - 1, 0)),
            turns * cdiv(chosen.programs, limits.sm_count) * us,
            turns * (TURN_US + wait),
        )
    )


def _of_flat(problem: Problem, chosen: Flat, limits: Limits) -> float:
    size, inputs = problem.itemsize, problem.inputs
    us = FLAT_US[inputs] + FLAT_WARPS_US * math.log2(chosen.warps)
    sums = 2 * max(size, 4) * (3 if inputs == 1 else 2)
    merge = merge_of(problem, chosen, limits)
    mergers = cdiv(problem.N, merge.channels)
    if chosen.by_place:
        workspace, parts = sums * chosen.group * chosen.width // chosen.unit, chosen.group * chosen.sums_per_row
        # What merges them reads half of it.
        us += workspace / 2 / (min(mergers, limits.sm_count) * BYTES_OF_L2_PER_US)
        us += PLACES_US[inputs]
    else:
        # At the end a program adds up what its threads have.
        at_a_time = max(chosen.block_c * chosen.block_e / (chosen.warps * WARP * FLAT_SUMS), 1)
        us += (
            FLAT_SUMS_US * at_a_time * cdiv(chosen.channels, chosen.block_c) * cdiv(chosen.sums_per_row, chosen.block_e)
        )
        workspace, parts = sums * chosen.programs * chosen.lanes * chosen.vec // chosen.unit, chosen.group
    us += FLAT_MERGE_US * (cdiv(mergers, MERGERS_AT_ONCE * limits.sm_count) * cdiv(parts, merge.entries) - 1)
    moved = chosen.rows * min(chosen.width, chosen.lanes * chosen.vec) * size
    lanes, lines = chosen.rows * chosen.lanes * chosen.vec, moved / LINE_BYTES
    of_tile = _requests_us(problem, lanes, chosen, chosen.vec, lines, lines, moved / SECTOR_BYTES, 2 * inputs + 1)
    each = chosen.programs / limits.sm_count
    each = cdiv(chosen.programs, limits.sm_count) if each < 2 * FEW_WAVES else each + 0.5
    of_tile *= 1 + OF_FLAT_WARPS * math.log2(chosen.warps)
    waves = cdiv(chosen.programs, limits.sm_count * max(FLAT_WARPS // chosen.warps, 1))
    us += _overlap(
        OVERLAP,
        _bytes_us(problem, problem.M * problem.N * problem.K * size * inputs, workspace // 2, limits),
        each * (chosen.slice_size * of_tile + FLAT_PROGRAM_US),
        waves * chosen.slice_size * (FLAT_STAGED_US if chosen.stages > 1 else FLAT_TILE_US),
    )
    return max(us, MIN_FLAT_US[inputs])


def _overlap(exponent: float, memory: float, *us: float) -> float:
    whole = memory**exponent + sum(each**exponent for each in us)
    return whole ** (1 / exponent) + TAIL_US * memory / (memory + BEFORE_TAIL_US)


def _requests_us(
    problem: Problem,
    lanes: int,
    of: Tiling | Flat,
    vec: int,
    lines: float,
    misses: float,
    sectors: float,
    tensors: int,
) -> float:
    """Microseconds of a multiprocessor for what a program loads and stores of its lanes, once of each tensor."""
    per_thread, rest = max(lanes / (of.warps * WARP), 1), 0.0
    if isinstance(of, Tiling) and of.rest:
        # A second tile takes a load of each thread at least.
        rest = max(1 - of.channels * of.rest / (of.warps * WARP) / vec, 0)
    divides = isinstance(of, Tiling) and not of.columns and not of.run
    request = REQUEST_US + (RUN_US if divides else 0)
    us = of.warps * (max(per_thread / vec, 1) + rest) * request
    us += lines * LINE_US + misses * MISS_US + sectors * SECTOR_US
    element = ELEMENT_US * (OF_FLOAT64 if problem.itemsize == 8 else 1)
    return tensors * us + (problem.inputs + 1) * of.warps * per_thread * element


def _units(rows: float, row: float, problem: Problem, unit: int, apart: int = 0) -> float:
    """Lines or sectors of rows of these bytes. Those that begin within a unit have half of one more on average."""
    pitch = problem.N * problem.K * problem.itemsize
    apart = apart or pitch
    of_row = max(row / unit, 1) + (0.5 if apart % unit and row > unit / 4 else 0)
    return rows * min(of_row, pitch / unit + 1 / 8)


def _elements_of_load(tiling: Tiling) -> int:
    contiguous = tiling.channels if tiling.columns else tiling.block
    return max(min(tiling.vec, contiguous, tiling.channels * tiling.block // (tiling.warps * WARP)), 1)


def _across(tiling: Tiling) -> int:
    """Neighbouring channels that the lanes of a warp lie across, 1 if they lie along the elements of one.

    The compiler orders lanes by what it knows to be contiguous. Of runs that are loaded by single elements it knows
    nothing, and channels come first.
    """
    return 1 if tiling.columns or tiling.vec > 1 or tiling.run else min(tiling.channels, WARP)


def _sharing(tiling: Tiling, vec: int) -> int:
    """Warps of a program that have elements of the same channel."""
    across = _across(tiling)
    if across > 1:
        return max(min(tiling.warps // max(tiling.channels // WARP, 1), tiling.block * across // WARP), 1)
    contiguous = tiling.channels if tiling.columns else tiling.block
    ahead = min(tiling.warps, max(contiguous // (vec * WARP), 1))
    if not tiling.columns:
        return ahead
    rows = max(WARP * vec // min(tiling.channels, vec * WARP), 1)
    return max(min(tiling.warps // ahead, tiling.block // rows), 1)


def _sums_us(problem: Problem, tiling: Tiling, vec: int) -> float:
    """Microseconds of a multiprocessor to add up what the warps of a program have."""
    sharing, words = _sharing(tiling, vec), max(problem.itemsize // 4, 1)
    each = tiling.channels * vec * COLUMN_SUMS_US if tiling.columns else RUN_SUMS_US
    return sharing * words * each if sharing > 1 else 0.0


def _bytes_of_channels(problem: Problem) -> int:
    """Bytes of parameters, of statistics, and of their gradients."""
    size, wide = problem.itemsize, max(problem.itemsize, 4)
    return problem.N * (6 * size + 2 * wide if problem.inputs == 1 else 3 * size + 2 * wide)


def _bytes_us(problem: Problem, at_once: float, workspace: int, limits: Limits) -> float:
    """Microseconds of memory, where all inputs are read twice, of so many bytes at a time."""
    size = problem.M * problem.N * problem.K * problem.itemsize
    held = min(max(2 - at_once / (SHARE_OF_L2 * limits.l2_bytes), 0), 1)
    again = held * BYTES_OF_L2_PER_US + (1 - held) * BYTES_PER_US
    moved = size * (problem.inputs + 1) + workspace + _bytes_of_channels(problem)
    return (moved / BYTES_PER_US + size * problem.inputs / again) / limits.sm_count
