# SPDX-License-Identifier: Apache-2.0
"""Trap: a second load where the row was in registers

The answer is right, so no accuracy test notices: the row is loaded once for the statistics and once more for the
result, with a barrier in between that keeps the compiler from merging the two. 1.5 passes instead of the 1 that this
form promises; the count of loaded bytes shows it.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_second_load(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [M, N]"""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=-float("inf"))
    row_max = tl.max(x)
    row_sum = tl.sum(tl.exp(x - row_max))
    tl.debug_barrier()
    x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=-float("inf"))  # x is still there
    tl.store(y_ptr + row * N + columns, tl.exp(x - row_max) / row_sum, mask=columns < N)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    softmax_second_load[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N), num_warps=4)
    return y
