# SPDX-License-Identifier: Apache-2.0
"""How a cumsum over N of [M, N, K] is launched: plain numbers in, a plan out."""

from __future__ import annotations

from typing import NamedTuple

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits

WARP = 32
# Triton knows of a size whether it is a multiple of this, and loads whole vectors only if it is.
KNOWN_MULTIPLE = 16
# Elements of a thread, and most warps, where N is in one tile.
WHOLE_ELEMENTS, MAX_WHOLE_WARPS, MIN_TILE = 16, 16, 1024
# The same where that is little, in elements for each multiprocessor: a scan goes through the elements of a thread one
# after the other. With 16 elements 79 x 140 bool took 6.9 us, upstream 2.8, 856 x 80 int64 7.2, upstream 3.2.
LITTLE, LITTLE_ELEMENTS = 2048, 4
# Bytes of the columns that a tile has side by side; fewer where that leaves multiprocessors idle, for an exchange
# costs more: with 128, 22 steps of groups of 6 took 168 us (8192 x 4096 bf16 along 0); the 8 steps of programs that
# are alone took 26 us (256 x 65536 bf16 along 1).
COLUMN_BYTES, SECTOR_BYTES = 128, 32
# (elements, warps, registers of a thread) of a tile where N takes several: as many registers as spill nothing. They say
# how many programs run at once. Rows that are no whole vectors are read element by element, each with its address.
ROW_TILE, OTHER_ROW_TILE = (8192, 16, 64), (4096, 8, 128)
COLUMN_TILE, OTHER_COLUMN_TILE = (4096, 8, 96), (2048, 8, 128)
# A step of a group takes as long as so many of a program alone: 7.6 and 1.6 us.
EXCHANGES = 4
# Longer rows that leave much of one tile empty take several.
MAX_WASTEFUL = 4096
# Words of other programs that a thread reads at once.
WORDS = 4


class Problem(NamedTuple):
    """``size``: bytes of an element of the input or the result, whichever has more."""

    M: int
    N: int
    K: int
    size: int


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


def plan(problem: Problem, limits: Limits) -> Whole | Steps:
    """For a problem of at least one element."""
    M, N, K, size = problem
    block_n = next_power_of_2(N)
    block_k = min(next_power_of_2(K), max(COLUMN_BYTES // size, MIN_TILE // block_n))
    while block_k * size > SECTOR_BYTES and M * cdiv(K, block_k) < 2 * limits.sm_count:
        block_k //= 2
    largest = MAX_WHOLE_WARPS * WARP * WHOLE_ELEMENTS // (2 if size == 8 else 1)
    # 3632 x 5496 bf16 in one tile of 8192: 119 us, upstream 59.
    wasteful = K == 1 and MAX_WASTEFUL < block_n <= largest and 7 * block_n > 8 * N
    if block_n * block_k <= (largest if K == 1 else COLUMN_TILE[0]) and not wasteful:
        little = M * block_n * cdiv(K, block_k) * block_k <= LITTLE * limits.sm_count
        min_tile, elements = (MIN_TILE // 4, LITTLE_ELEMENTS) if little else (MIN_TILE, WHOLE_ELEMENTS)
        block_m = min(next_power_of_2(M), max(min_tile // (block_n * block_k), 1))
        tile = block_m * block_n * block_k
        warps = max(1, min(MAX_WHOLE_WARPS, tile // (WARP * elements)))
        return Whole(block_m, block_n, block_k, warps, cdiv(M, block_m) * cdiv(K, block_k))
    if K > 1:
        tile, warps, registers = COLUMN_TILE if size < 8 and K % KNOWN_MULTIPLE == 0 else OTHER_COLUMN_TILE
    else:
        # Where there are so many rows that each has one program, smaller ones leave no multiprocessor idle.
        few = limits.sm_count >= M and size < 8 and N % KNOWN_MULTIPLE == 0
        tile, warps, registers = ROW_TILE if few else OTHER_ROW_TILE
    if wasteful and limits.sm_count < M:
        tile, warps = tile // 2, warps // 2
    block_n = tile // block_k
    blocks, tiles = M * cdiv(K, block_k), cdiv(N, block_n)
    threads = warps * WARP
    resident = limits.sm_count * min(limits.registers_per_sm // (registers * threads), limits.threads_per_sm // threads)
    group = max(min(tiles, resident // blocks, WORDS * threads // block_k), 1)
    if cdiv(tiles, group) * EXCHANGES >= tiles:
        group = 1
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
        programs=min(resident // group, blocks) * group if group > 1 else blocks,
        words=blocks * cdiv(tiles, group) * group * block_k,
    )
