# SPDX-License-Identifier: Apache-2.0
"""What a program of a group holds of a row. Measured on an H200."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits
from .launches import MAX_GROUP_OF_ONE_WARP


class Slice(NamedTuple):
    """What a program of a group of up to ``max_group`` programs holds, and its registers."""

    max_group: float
    warps: int
    chunks: int
    registers: int


# By bytes of an element and whether rows are unaligned. 1024 x 65536 bf16 91 us by 32 programs of 8 chunks, 97 by 64 of
# 4; 2048 x 50257 161 us with 8 chunks, 185 with 3 and 128 registers; float32 270 us by 50 programs of 8 chunks, 332 by
# 17 of four warps with 6. A misaligned weight and bias take a register for each element, half ones too: 144 bytes spill
# with 4 chunks and 128. 112 x 400000 float32 171 us by 56 programs of 14 chunks, 233 in a loop, 600 x 80001 bf16 102 by
# 40 programs of one warp, 122 by 20 of four, 300 x 120001 80.9 and 111. By four warps with 2 chunks unaligned rows of
# 16 bits take longer than with 4: 4 x 80001 7.13 and 6.89, 4 x 262117 12.0 and 10.1 (H100).
FORWARD = {
    (2, False): (Slice(32, 1, 8, 255), Slice(math.inf, 4, 4, 128)),
    (2, True): (Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 255), Slice(math.inf, 4, 4, 168)),
    (4, False): (
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 168),
        Slice(math.inf, 4, 8, 168),
        Slice(math.inf, 4, 14, 255),
    ),
    (4, True): (
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 168),
        Slice(math.inf, 4, 6, 168),
        Slice(math.inf, 4, 8, 168),
        Slice(math.inf, 4, 14, 255),
    ),
}
# 2048 x 50257 bf16 275 us by 50 programs of one warp, 292 by 25 of two; 4096 x 32768 263 us with 4 chunks, 269 with 2;
# float32 2048 x 50257 382 us with 8 chunks, 579 by 25 programs of four warps with 4; 1024 x 65536 227, not 239.
# 8 chunks by two warps spill 16 bytes on sm_100, which takes the plans of unaligned rows.
BACKWARD = {
    (2, False): (
        Slice(MAX_GROUP_OF_ONE_WARP * 3 // 4, 1, 2, 128),
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 4, 255),
        Slice(MAX_GROUP_OF_ONE_WARP, 2, 4, 255),
        Slice(math.inf, 4, 4, 255),
    ),
    (2, True): (
        Slice(MAX_GROUP_OF_ONE_WARP * 3 // 4, 1, 2, 128),
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 4, 255),
        Slice(MAX_GROUP_OF_ONE_WARP * 3 // 2, 2, 4, 255),
        Slice(math.inf, 4, 2, 255),
        Slice(math.inf, 4, 4, 255),
    ),
    (4, False): (
        Slice(MAX_GROUP_OF_ONE_WARP // 2, 1, 4, 128),
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 255),
        Slice(MAX_GROUP_OF_ONE_WARP, 2, 8, 255),
        Slice(math.inf, 4, 8, 255),
    ),
    (4, True): (
        Slice(MAX_GROUP_OF_ONE_WARP // 2, 1, 4, 128),
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 255),
        Slice(MAX_GROUP_OF_ONE_WARP, 2, 7, 255),
        Slice(math.inf, 4, 4, 255),
        Slice(math.inf, 4, 5, 255),
        Slice(math.inf, 4, 7, 255),
    ),
}


def slices(itemsize: int, unaligned: bool, backward: bool, limits: Limits) -> list[Slice]:
    """Those to try, in this order."""
    if backward:
        # sm_100 takes more registers for the same code.
        found = list(BACKWARD[itemsize, unaligned or limits.capability >= (10, 0)])
        # With 4 chunks 320 bytes of misaligned 459 x 144449 bf16 spill there (Triton 3.6).
        few = itemsize == 2 and unaligned and limits.capability[0] < 9
        return [each._replace(chunks=min(each.chunks, 2)) for each in found] if few else found
    if limits.capability[0] == 9:
        return list(FORWARD[itemsize, unaligned])
    # The same code takes more registers on sm_80, and with Triton 3.7 on sm_100.
    more = 48 if unaligned else 24
    return [
        each._replace(
            chunks=each.chunks - (2 if each.chunks > 4 and (unaligned or each.registers == 255) else 0),
            registers=min(each.registers + more, 255),
        )
        for each in FORWARD[itemsize, unaligned]
    ]
