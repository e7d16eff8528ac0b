# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Columns that are loaded one by one in a loop (VEC = 1). A thread has one offset, to which it adds what is the same
for all threads. 8 bfloat16 of both inputs take 64 registers this way; with an address for each element of a tile 4 take
118 (sm_90).
"""

import triton
import triton.language as tl


@triton.jit
def load_depths(
    x_ptr, step, mask, n, length, other: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr, EVICT: tl.constexpr
):
    """DEPTH tiles of LANES elements of each column. ``length``: of n, or None where all exist."""
    tiles = ()
    for i in tl.static_range(DEPTH):
        each = mask if length is None else mask & (n + i * LANES < length)
        tiles = tiles + (tl.load(x_ptr + i * step, mask=each, other=other, eviction_policy=EVICT),)
    return tiles
