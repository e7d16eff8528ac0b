# SPDX-License-Identifier: Apache-2.0
"""Trap: maximum(x, 0) as it comes

max.f32 returns the operand that is a number: a NaN becomes 0. The loss that should have told you is finite again, and
the mistake that made the NaN goes on. A test without NaN passes.
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
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < count)


def run(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    relu[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return y
