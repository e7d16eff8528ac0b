# SPDX-License-Identifier: Apache-2.0
"""A promise: groups of four stay together

`tl.max_contiguous(tl.multiple_of(columns, 4), 4)` promises that columns come in aligned groups of four neighbours,
which holds because N is a multiple of 4. The bias is then loaded 16 bytes at a time as well. Where N is a multiple of
16 Triton finds out by itself: it looks at integer arguments before it compiles.
"""

import torch
import triton
import triton.language as tl

BLOCK, WARPS = 1024, 4


@triton.jit
def add_bias_hinted(x_ptr, bias_ptr, y_ptr, count, N, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [count]; bias_ptr: [N], N a multiple of 4"""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.max_contiguous(tl.multiple_of(i % N, 4), 4)
    x = tl.load(x_ptr + i, mask=i < count, other=0.0)
    tl.store(y_ptr + i, x + tl.load(bias_ptr + columns), mask=i < count)


def run(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    add_bias_hinted[(triton.cdiv(x.numel(), BLOCK),)](x, bias, y, x.numel(), x.shape[-1], BLOCK=BLOCK, num_warps=WARPS)
    return y
