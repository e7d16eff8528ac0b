# SPDX-License-Identifier: Apache-2.0
"""A promise: the beginning is a multiple of 16

`tl.multiple_of(start, 16)` is a promise of the programmer, not a check. With it the compiler sees that the lanes of a
thread lie in aligned groups of four, and loads 16 bytes at a time. A wrong promise is a misaligned address, and the
end of the process.
"""

import torch
import triton
import triton.language as tl

BLOCK, WARPS = 1024, 4


@triton.jit
def scale_ragged_hinted(x_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [starts[-1]]; starts_ptr: [rows + 1]"""
    start = tl.load(starts_ptr + tl.program_id(0))
    end = tl.load(starts_ptr + tl.program_id(0) + 1)
    start = tl.multiple_of(start, 16)
    end = tl.multiple_of(end, 16)
    for first in range(start, end, BLOCK):
        i = first + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < end, other=0.0), mask=i < end)


def run(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    scale_ragged_hinted[(len(starts) - 1,)](x, starts, y, BLOCK=BLOCK, num_warps=WARPS)
    return y
