# SPDX-License-Identifier: Apache-2.0
"""What a program of a group holds of a row.

Figures that name no GPU are from an H200.
"""

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


# Forward slices, in the order to try, by bytes of an element and whether rows are unaligned. A misaligned weight and
# bias take a register for each element: 144 bytes spill with 4 chunks and 128 registers. 112 x 400000 float32: 171 us
# by 56 programs of 14 chunks, in a loop 233. 4 x 262117, 16 bits, by four warps: 12.0 us with 2 chunks, 10.1 with 4
# (H100).
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
# The same for gradients. sm_100 takes the slices of unaligned rows: 8 chunks by two warps spill 16 bytes there.
# 2048 x 50257 float32: 382 us with 8 chunks by one warp, by 25 programs of four warps with 4 chunks 579.
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
    """The slices to try, in this order."""
    if backward:
        # sm_100 takes more registers for the same code.
        found = list(BACKWARD[itemsize, unaligned or limits.capability >= (10, 0)])
        # With 4 chunks 320 bytes of 459 x 144449 bf16 spill on sm_80 where tensors are misaligned (Triton 3.6).
        few = itemsize == 2 and unaligned and limits.capability[0] < 9
        return [each._replace(chunks=min(each.chunks, 2)) for each in found] if few else found
    if limits.capability[0] == 9:
        return list(FORWARD[itemsize, unaligned])
    # The same code takes more registers on sm_80, and on sm_100 with Triton 3.7.
    more = 48 if unaligned else 24
    return [
        each._replace(
            chunks=each.chunks - (2 if each.chunks > 4 and (unaligned or each.registers == 255) else 0),
            registers=min(each.registers + more, 255),
        )
        for each in FORWARD[itemsize, unaligned]
    ]
