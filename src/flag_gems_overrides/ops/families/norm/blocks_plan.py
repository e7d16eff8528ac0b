# SPDX-License-Identifier: Apache-2.0
"""Gradients of a few long rows in one launch, whose programs have columns of all rows (blocks.py): plain numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2

# Most rows, by bytes of an element. layer_norm of 8 x 722496 float16: 31.8 us, otherwise 84.5; 12 x 40000 float32: 16.3
# and 13.4 (H100).
MAX_ROWS = {2: 16, 4: 4}
# Columns are counted in 32 bits.
MAX_N = 1 << 30
# Elements of a tile, or half of this where they are loaded in parts of vectors.
TILE = 4096
# Most words of a workspace that a program collects together, or half of this if tiles are read again: of 4096 8 bytes
# of 16 odd rows of 16 bits spill.
WORDS = 4096
# Programs of a multiprocessor, and the warps of each and the registers of a thread that let them fit.
PROGRAMS_PER_SM, WARPS, REGISTERS = 2, 8, 128
# Most tiles of parts of vectors that a program holds, but one of 16 rows of single elements: of two 80 bytes spill.
# layer_norm of 3 x 200001 bf16: 11.3 us, with one tile 12.0 (H100).
MAX_HELD = 2
# Programs share rows instead (layer_norm) where a program has up to this many tiles of 16 rows, in parts of vectors and
# not held. 12 x 66002 float16: 15.2 us, by two tiles to a program 17.1; 16 x 150001, of five: 26.4 and 22.6 (H100).
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
    """None where it is no faster, or where two passes would read what L2 does not hold."""
    block_m, vec = power_of_2(M), math.gcd(N, VECTOR_BYTES // itemsize)
    whole = vec * itemsize == VECTOR_BYTES
    if limits.capability[0] != 9 or N > MAX_N or not 1 < M <= MAX_ROWS.get(itemsize, 0):
        return None
    block_n = (TILE if whole else TILE // 2) // block_m
    tiles, most = cdiv(N, block_n), PROGRAMS_PER_SM * limits.sm_count
    # A program that holds tiles collects all words at once.
    blocks = cdiv(tiles, min(most, WORDS // block_m))
    held = blocks if blocks <= (1 if whole or (block_m == 16 and vec == 1) else MAX_HELD) else 0
    if not held and (3 * block_m > 4 * M or (mean and 3 * block_m == 4 * M)):
        # Many lanes would have no element. 5 x 1240252 bf16: 52.3 us, in two passes 40.3; layer_norm of
        # 12 x 190507 float16: 25.3 and 19.5; 3 x 853927 float32: 35.6 and 33.6 (H100).
        return None
    if not held:
        if 2 * M * N * itemsize > limits.l2_bytes:
            return None
        if mean and not whole and block_m == 16 and blocks <= MAX_SHARED_INSTEAD:
            return None
        blocks = max(cdiv(tiles, most), 2)
    programs = cdiv(N, block_n * blocks)
    # A thread has at least one word: of one that two threads share, one may see it before the other.
    words = max(min(power_of_2(programs), WORDS // (1 if held == 1 else 2) // block_m), WARPS * WARP // block_m)
    stages = 3 if itemsize == 2 else 2
    return Blocks(programs, blocks, block_m, block_n, vec, words, stages, held)
