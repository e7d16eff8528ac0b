# SPDX-License-Identifier: Apache-2.0
"""where(x < 0, 0, x)

A comparison and a selection: two instructions for each element. A NaN is not below 0, so it is kept. With the
condition the other way round, where(x > 0, x, 0), it would become 0.
"""

import torch
import triton
import triton.language as tl

BLOCK, WARPS = 1024, 4


@triton.jit
def relu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [count]"""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < count, other=0.0)
    tl.store(y_ptr + i, tl.where(x < 0, 0.0, x), mask=i < count)


def run(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    relu[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return y
