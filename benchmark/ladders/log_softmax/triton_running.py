# SPDX-License-Identifier: Apache-2.0
"""A running accumulator, for rows that do not fit

Maximum and sum in one loop, the sum scaled down whenever the maximum grows: the row is read twice, 1.5 passes, where
three loops take 2. The accumulator is a block of lanes, combined once at the end, so that no iteration waits for a
reduction. For rows that fit into registers the block form is better; this is for the others.
"""

import torch
import triton
import triton.language as tl

BLOCK, WARPS = 4096, 8


@triton.jit
def log_softmax_running(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [M, N]"""
    row = tl.program_id(0).to(tl.int64)
    lane_max = tl.full([BLOCK], -3.4e38, tl.float32)
    lane_sum = tl.zeros([BLOCK], tl.float32)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=-float("inf"))
        new_max = tl.maximum(lane_max, x)
        lane_sum = lane_sum * tl.exp(lane_max - new_max) + tl.exp(x - new_max)
        lane_max = new_max
    row_max = tl.max(lane_max)
    shift = row_max + tl.log(tl.sum(lane_sum * tl.exp(lane_max - row_max)))
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)
        tl.store(y_ptr + row * N + columns, x - shift, mask=columns < N)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    log_softmax_running[(M,)](x, y, N, BLOCK=BLOCK, num_warps=WARPS)
    return y
