# SPDX-License-Identifier: Apache-2.0
"""Gradients of rows that no programs hold, in two launches (two_passes.py): plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2

# Elements of a thread. layer_norm of 49 x 2097152 float32: 710 us with 8, with 16 725 (H100).
ELEMENTS = 8
# Elements of a thread of one row, or of 16 bits. layer_norm of 8388608 bf16: 61.3 us with 16, with 8 67.2 (H100).
MORE_ELEMENTS = 16
# Neighbouring elements of a thread that are loaded one by one. 21 x 2329289 bf16: 237 us with 4, with 8 265.
SINGLES = 4
# Single elements of up to this many bytes go to neighbouring threads: 21 x 2329289 bf16: 221 us, otherwise 237.
SPREAD_BYTES = 2
# Warps of a program.
WARPS = 4
# Most blocks of a program of the sums.
MAX_BLOCKS = 16
# Most programs of a grid's second axis.
MAX_SLICES = 65535
# Fewest programs of a multiprocessor, of the sums and of the columns.
SUMS_PER_SM, COLUMNS_PER_SM = 4, 2
# Rows are split among this many warps of a multiprocessor, because each waits for what it loads of a row.
# 4000 x 12001 float64: 688 us, by 188 warps in the device 1758 (H100).
COLUMN_WARPS_PER_SM = 16
# Shortest row of ``moves_less`` with two gradients of columns, in elements.
MIN_MOVED = 32768
# Partial sums that each thread of a program adds at a time. With 4, 8 bytes of float16 spill on sm_100.
WORDS = 2


class Pass(NamedTuple):
    programs: tuple[int, int]
    block_m: int
    block_n: int
    warps: int


class TwoPasses(NamedTuple):
    """Slices of ``blocks`` blocks for the sums of a row; then splits of ``rows`` rows of each block."""

    sums: Pass
    blocks: int
    columns: Pass
    rows: int
    vec: int
    spread: bool

    @property
    def slices(self) -> int:
        return self.sums.programs[1]

    @property
    def splits(self) -> int:
        return self.columns.programs[1]

    @property
    def words(self) -> int:
        return max(WORDS * WARP * self.sums.warps // self.sums.block_m, WARP)


def plan_two_passes(M: int, N: int, itemsize: int, limits: Limits) -> TwoPasses:
    # A single row begins with a whole vector, whatever its length.
    vec = VECTOR_BYTES // itemsize if M == 1 else math.gcd(N, VECTOR_BYTES // itemsize)
    more = itemsize == 2 or (M == 1 and itemsize < 8)  # with more float64, 8 bytes of one row spill on sm_90
    elements = (MORE_ELEMENTS if more else ELEMENTS) // (2 if itemsize == 8 else 1)
    width = vec if vec * itemsize == VECTOR_BYTES else max(vec, min(SINGLES, elements))
    block_m = min(max(elements // width, 1), power_of_2(M))
    width = max(width, elements // block_m)  # a thread of fewer rows has more columns
    block_n = width * WARP * WARPS
    parts, tiles = cdiv(M, block_m), cdiv(N, block_n)
    blocks = min(max(parts * tiles // (SUMS_PER_SM * limits.sm_count), 1), MAX_BLOCKS)
    blocks = max(blocks, cdiv(tiles, MAX_SLICES))
    sums = Pass((parts, cdiv(tiles, blocks)), block_m, block_n, WARPS)
    warps = WARPS
    while warps > 1 and cdiv(N, width * WARP * warps) < COLUMNS_PER_SM * limits.sm_count:
        warps //= 2
    column_blocks = cdiv(N, width * WARP * warps)
    splits = max(1, min(COLUMN_WARPS_PER_SM * limits.sm_count // (column_blocks * warps), M // (4 * block_m)))
    rows = cdiv(M, splits * block_m) * block_m
    columns = Pass((column_blocks, cdiv(M, rows)), block_m, width * WARP * warps, warps)
    spread = vec == 1 and itemsize <= SPREAD_BYTES
    return TwoPasses(sums, blocks, columns, rows, vec, spread)


def moves_less(M: int, N: int, itemsize: int, partials: int, outputs: int) -> bool:
    """Whether reading dy and x twice moves fewer bytes than partial sums, which are stored and loaded. Shorter rows of
    layer_norm's two gradients have no such gain: 30 x 11168 float16: 11.1 us, by programs that share rows 9.6 (H100).

    11 x 93841 float16: 13.7 us, by programs that share rows 17.4; 64 x 100000: 62.9 and 37.6 (H100).
    """
    if outputs > 1 and N < MIN_MOVED:
        return False
    return partials > 1 and 8 * outputs * partials > 2 * M * itemsize
