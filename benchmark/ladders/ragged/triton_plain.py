# SPDX-License-Identifier: Apache-2.0
"""Rows that begin where a table says

A pointer plus a number from memory may point anywhere, so every lane loads its 4 bytes by itself. That is a quarter of
what one instruction could move. The bytes are the same as with the hint; four times as many instructions ask for them.
"""

import torch
import triton
import triton.language as tl

BLOCK, WARPS = 1024, 4


@triton.jit
def scale_ragged(x_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [starts[-1]]; starts_ptr: [rows + 1]"""
    start = tl.load(starts_ptr + tl.program_id(0))
    end = tl.load(starts_ptr + tl.program_id(0) + 1)
    for first in range(start, end, BLOCK):
        i = first + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < end, other=0.0), mask=i < end)


def run(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    scale_ragged[(len(starts) - 1,)](x, starts, y, BLOCK=BLOCK, num_warps=WARPS)
    return y
