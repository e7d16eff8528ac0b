# SPDX-License-Identifier: Apache-2.0
"""Add the bias on the way

A program takes a block of one row's columns and the bias of the same columns. From memory the bias comes once, 64 KiB;
all other programs find it in the cache. 1 pass instead of 2.
"""

import torch
import triton
import triton.language as tl

from ladders.gelu.triton_block import gelu_of

BLOCK, WARPS = 1024, 4


@triton.jit
def bias_gelu(x_ptr, bias_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [M, N]; bias_ptr: [N]"""
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offsets = tl.program_id(0).to(tl.int64) * N + columns
    x = tl.load(x_ptr + offsets, mask=columns < N, other=0.0) + tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
    tl.store(y_ptr + offsets, gelu_of(x, False), mask=columns < N)


def run(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    bias_gelu[(M, triton.cdiv(N, BLOCK))](x, bias, y, N, BLOCK=BLOCK, num_warps=WARPS)
    return y
