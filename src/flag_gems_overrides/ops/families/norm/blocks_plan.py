# SPDX-License-Identifier: Apache-2.0
"""Gradients of a few long rows in one launch, whose programs have columns of all rows (blocks.py): plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2

# Most rows, by bytes of an element. Before -> after: layer_norm's of 8 x 722496 float16 84.5 -> 31.8 us, 5 x 587232
# 64.1 -> 23.3, 16 x 150001 26.4 -> 22.6, 2 x 1500000 bf16 26.2 -> 21.5, 3 x 200000 float32 18.0 -> 12.0, rms_norm's of
# 7 x 52501 bf16 14.7 -> 9.4, 4 x 65536 float16 10.6 -> 7.1, 16 x 15000 10.9 -> 8.9, but layer_norm's of 12 x 40000
# float32 13.4 -> 16.3, rms_norm's of 8 x 300000 24.8 -> 26.1, and of one row, 1 x 116109 bf16, 6.5 -> 7.0 (H100).
MAX_ROWS = {2: 16, 4: 4}
# Columns are counted in 32 bits.
MAX_N = 1 << 30
# Elements of a tile, half as many that are loaded in parts of vectors, and most words of a workspace that a program
# collects together, half as many if tiles are read again: of 4096 8 bytes of 16 odd rows of 16 bits spill.
TILE, WORDS = 4096, 4096
PROGRAMS_PER_SM, WARPS, REGISTERS = 2, 8, 128
# Tiles of parts of vectors that a program holds, one of 16 rows of single elements: of two 80 bytes spill. layer_norm's
# of 3 x 200001 bf16 12.0 -> 11.3 us, 8 x 100001 float16 12.2 -> 11.6 (H100).
MAX_HELD = 2
# Of so many tiles of 16 rows to a program and fewer, which are loaded in parts of vectors and not held, layer_norm's
# are by programs that share rows: 12 x 66002 float16 15.2 us, by two tiles to a program 17.1, but 16 x 150001, of five,
# 26.4 and 22.6, 3 x 300001 float32 23.6 and 18.1 (H100).
MAX_SHARED_INSTEAD = 3


class Blocks(NamedTuple):
    """``programs`` with ``blocks`` tiles each, one after the other, of ``block_m`` x ``block_n``, all or none ``held``
    in registers; ``words`` of each row are collected together."""

    programs: int
    blocks: int
    block_m: int
    block_n: int
    vec: int
    words: int
    stages: int
    held: int


def plan_blocks(M: int, N: int, itemsize: int, mean: bool, limits: Limits) -> Blocks | None:
    """None where that is no faster, or two passes read what L2 does not hold."""
    block_m, vec = power_of_2(M), math.gcd(N, VECTOR_BYTES // itemsize)
    whole = vec * itemsize == VECTOR_BYTES
    if limits.capability[0] != 9 or N > MAX_N or not 1 < M <= MAX_ROWS.get(itemsize, 0):
        return None
    block_n = (TILE if whole else TILE // 2) // block_m
    tiles, most = cdiv(N, block_n), PROGRAMS_PER_SM * limits.sm_count
    # Beside tiles that are held a program has all words at once.
    blocks = cdiv(tiles, min(most, WORDS // block_m))
    held = blocks if blocks <= (1 if whole or (block_m == 16 and vec == 1) else MAX_HELD) else 0
    if not held:
        if 2 * M * N * itemsize > limits.l2_bytes:
            return None
        if mean and not whole and block_m == 16 and blocks <= MAX_SHARED_INSTEAD:
            return None
        blocks = max(cdiv(tiles, most), 2)
    programs = cdiv(N, block_n * blocks)
    # A thread has a word at least: of one that two have, one thread may see it before the other.
    words = max(min(power_of_2(programs), WORDS // (1 if held == 1 else 2) // block_m), WARPS * WARP // block_m)
    stages = 3 if itemsize == 2 else 2
    return Blocks(programs, blocks, block_m, block_n, vec, words, stages, held)
