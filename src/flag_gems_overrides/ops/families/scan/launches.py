# SPDX-License-Identifier: Apache-2.0
"""What a cumsum is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

from typing import NamedTuple

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits

WARP = 32
# Triton knows of a size whether it is a multiple of this, and loads whole vectors only if it is.
KNOWN_MULTIPLE = 16
MAX_WARPS = 16
# Elements of a thread that spill nothing, and of a tile with all of N: of rows, and where columns are side by side.
MAX_ELEMENTS, MAX_WHOLE, MAX_WHOLE_COLUMNS = 16, 8192, 4096
# Words of other programs that a thread reads at once.
WORDS = 4
# For ``estimate``: bytes a multiprocessor moves in a microsecond; microseconds of a launch, of a step, of a step of
# programs that wait for each other, and of each element of a thread, for a scan goes through them one after the other.
BYTES_PER_US, LAUNCH_US, STEP_US, EXCHANGE_US, ELEMENT_US = 32000, 2.0, 1.0, 4.0, 0.05


class Problem(NamedTuple):
    """``size``: bytes of an element of the input or the result, whichever has more."""

    M: int
    N: int
    K: int
    size: int
    integer: bool = False


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: whole, steps, chunks."""

    kernel: str
    elements: int  # of a thread
    warps: int
    block_k: int = 1
    registers: int = 0  # of a thread of steps, which says how many programs run at once
    shared: bool = False  # steps: several programs for the same columns
    per_sm: int = 0  # chunks: programs of a multiprocessor that are wanted; N is divided for them


class Whole(NamedTuple):
    """All of N in a tile of [block_m, block_n, block_k]."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    programs: int


class Steps(NamedTuple):
    """``group`` programs for ``block_k`` columns, tiles of [block_n, block_k]."""

    block_n: int
    block_k: int
    warps: int
    registers: int
    group: int
    members: int
    copies: int
    blocks: int
    programs: int
    words: int  # of the workspace, for sums of one word


class Chunks(NamedTuple):
    """``chunks`` programs for ``block_k`` columns, each with ``rows`` rows in tiles of [block_n, block_k]."""

    block_n: int
    block_k: int
    warps: int
    rows: int
    chunks: int
    adding: int  # programs of the first launch
    programs: int


Launch = Whole | Steps | Chunks


def rows_of_thread(launch: Steps | Chunks, divisor: int) -> int:
    """Rows that a thread of columns adds up one after the other: all that leave a warp one row of the tile, for fewer
    sums to exchange. 8192 x 4096 bf16 along 0: 16 shuffles and 22 loads of shared memory in place of 92 and 140.

    divisor: a power of two that divides K; neighbouring columns of other rows are not loaded as one vector.
    """
    if launch.block_k == 1:
        return 1
    elements = launch.block_n * launch.block_k // (launch.warps * WARP)
    columns = min(max(launch.block_k // WARP, 1), divisor)
    return max(min(elements // columns, launch.block_n), 1)


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launch | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launch:
    """ValueError if the problem cannot be launched so."""
    M, N, K, size, _ = problem
    kernel, elements, warps, block_k, registers, shared, per_sm = configuration
    tile = elements * warps * WARP
    if not (0 < elements <= MAX_ELEMENTS and 0 < warps <= MAX_WARPS and 0 < block_k <= next_power_of_2(K)):
        raise ValueError(f"no legal program: {configuration}")
    if (block_k == 1) != (K == 1):
        raise ValueError("columns are read side by side")
    if kernel == "whole":
        block_n = next_power_of_2(N)
        block_m = min(next_power_of_2(M), tile // (block_n * block_k))
        if not block_m or block_m * block_n * block_k > largest(problem):
            raise ValueError("all of N in one tile")
        return Whole(block_m, block_n, block_k, warps, _grid(cdiv(M, block_m) * cdiv(K, block_k)))
    if elements > steps_elements(problem):
        raise ValueError(f"no legal program: {configuration}")
    if kernel == "chunks":
        return _chunks(problem, tile // block_k, block_k, warps, per_sm, limits)
    threads = warps * WARP
    if not 0 < registers <= limits.registers_per_sm // threads:
        raise ValueError(f"no legal program: {configuration}")
    # 300 x 5001 int64 spills 56 bytes, 2 x 3 x 1463 x 8 float16 16.
    if warps > MAX_WARPS // 2 and (K > 1 or size == 8 or N % KNOWN_MULTIPLE):
        raise ValueError("more warps have whole vectors of rows only")
    block_n = tile // block_k
    if block_n < 2:
        raise ValueError("more columns than a tile has elements")
    blocks, tiles = M * cdiv(K, block_k), cdiv(N, block_n)
    resident = resident_programs(registers, warps, limits)
    group = max(min(tiles, resident // blocks, WORDS * threads // block_k), 1) if shared else 1
    members = next_power_of_2(group)
    return Steps(
        block_n=block_n,
        block_k=block_k,
        warps=warps,
        # Programs that wait for none need not run at once.
        registers=registers if group > 1 else min(limits.registers_per_sm // threads, 255),
        group=group,
        members=members,
        copies=max(threads // (members * block_k), 1),
        blocks=blocks,
        programs=min(resident // group, blocks) * group if group > 1 else _grid(blocks),
        words=blocks * cdiv(tiles, group) * group * block_k,
    )


def _chunks(problem: Problem, block_n: int, block_k: int, warps: int, per_sm: int, limits: Limits) -> Chunks:
    M, N, K, *_ = problem
    blocks, tiles = M * cdiv(K, block_k), cdiv(N, max(block_n, 1))
    wanted = per_sm * limits.sm_count // blocks
    if block_n < 2 or min(wanted, tiles) < 2:
        raise ValueError("several chunks only")
    rows = cdiv(tiles, wanted) * block_n
    chunks = cdiv(N, rows)
    return Chunks(block_n, block_k, warps, rows, chunks, _grid(blocks * (chunks - 1)), _grid(blocks * chunks))


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    """Microseconds: the bytes that are moved, and the steps of a program one after the other."""
    M, N, K, size, _ = problem
    found = launch(problem, configuration, limits)
    resident = limits.sm_count * max(limits.threads_per_sm // (found.warps * WARP), 1)
    steps, exchanges, launches = cdiv(found.programs, resident), 0, 1
    bytes_moved = 2 * M * N * K * size
    if isinstance(found, Steps):
        steps *= cdiv(found.blocks * found.group, found.programs) * cdiv(N, found.group * found.block_n)
        exchanges = steps if found.group > 1 else 0
    elif isinstance(found, Chunks):
        steps *= found.rows // found.block_n
        launches = 2
        bytes_moved += 0 if bytes_moved < limits.l2_bytes else bytes_moved // 2
    moved = bytes_moved / (min(limits.sm_count, found.programs) * BYTES_PER_US)
    exchange = EXCHANGE_US * (2 if size == 8 else 1)  # of two words, or of doubles, which spill
    alone = steps * (STEP_US + configuration.elements * ELEMENT_US) + exchanges * exchange
    return launches * LAUNCH_US + max(moved, alone)


def largest(problem: Problem) -> int:
    """Elements of a tile with all of N, at most."""
    return MAX_WHOLE // (2 if problem.size == 8 else 1) if problem.K == 1 else MAX_WHOLE_COLUMNS


def steps_elements(problem: Problem) -> int:
    """Of a thread, at most. Columns that are no whole vectors are read element by element, each with its address."""
    other = problem.K > 1 and (problem.size == 8 or problem.K % KNOWN_MULTIPLE)
    return MAX_ELEMENTS // 2 if other else MAX_ELEMENTS


def resident_programs(registers: int, warps: int, limits: Limits) -> int:
    threads = warps * WARP
    return limits.sm_count * min(limits.registers_per_sm // (registers * threads), limits.threads_per_sm // threads)


def _grid(programs: int) -> int:
    if programs >= 2**31:
        raise ValueError("more programs than a grid has")
    return programs
