# SPDX-License-Identifier: Apache-2.0
"""Trap: a divisor, and a variance, that count masked lanes

The mean is taken over BLOCK lanes where only L of them hold data, and the variance adds (0 - mean)**2 for each masked
lane. With L a power of 2 there are none and every test passes: the tests use 2001, and data with a mean of 5.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def batch_norm_masked_lanes(x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, B, C, L, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [B, C, L]; weight_ptr, bias_ptr, mean_ptr, rstd_ptr: [C]"""
    channel = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    stride = tl.cast(C, tl.int64) * L
    x_ptr += tl.cast(channel, tl.int64) * L
    y_ptr += tl.cast(channel, tl.int64) * L
    total = tl.zeros([BLOCK], tl.float32)
    for b in range(B):
        total += tl.load(x_ptr + b * stride + lanes, mask=lanes < L, other=0.0)
    mean = tl.sum(total) / (B * BLOCK)  # should be B * L
    squares = tl.zeros([BLOCK], tl.float32)
    for b in range(B):
        centered = tl.load(x_ptr + b * stride + lanes, mask=lanes < L, other=0.0) - mean  # should be 0 where masked
        squares += centered * centered
    rstd = tl.rsqrt(tl.sum(squares) / (B * BLOCK) + 1e-5)
    tl.store(mean_ptr + channel, mean)
    tl.store(rstd_ptr + channel, rstd)
    scale = tl.load(weight_ptr + channel) * rstd
    shift = tl.load(bias_ptr + channel) - mean * scale
    for b in range(B):
        x = tl.load(x_ptr + b * stride + lanes, mask=lanes < L, other=0.0)
        tl.store(y_ptr + b * stride + lanes, x * scale + shift, mask=lanes < L)


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    B, C, L = x.shape
    y, mean, rstd = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    block = triton.next_power_of_2(L)
    batch_norm_masked_lanes[(C,)](x, weight, bias, y, mean, rstd, B, C, L, BLOCK=block, num_warps=8)
    return y, mean, rstd
