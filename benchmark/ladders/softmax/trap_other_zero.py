# SPDX-License-Identifier: Apache-2.0
"""Trap: masked lanes that load 0

0 is the right `other` for a sum, and wrong for a maximum: in a row of negative numbers a masked lane becomes the
largest, and each one adds exp(0 - max) to the denominator. Rows whose length is a power of 2 have no masked lanes, and
rows with a large positive value hide it: the tests use neither.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_other_zero(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [M, N]"""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)  # should be -inf
    numerator = tl.exp(x - tl.max(x))
    tl.store(y_ptr + row * N + columns, numerator / tl.sum(numerator), mask=columns < N)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    softmax_other_zero[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N), num_warps=4)
    return y
