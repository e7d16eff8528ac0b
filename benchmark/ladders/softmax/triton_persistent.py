# SPDX-License-Identifier: Apache-2.0
"""As many programs as the device holds, each in a loop over rows

Starting a program takes time in which its part of the multiprocessor asks for nothing, and a program with one short row
is over before that is paid back. Here each program takes every P-th row, and the loop is pipelined:
the next row's load is under way while this row is reduced. The bytes stay the same; what should shrink is the time in
which memory waits. It is the form of Triton's own softmax tutorial.
"""

import torch
import triton
import triton.language as tl

from flag_gems_overrides.ops.launch import devices

from .triton_row import warps


@triton.jit
def softmax_persistent(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """x_ptr, y_ptr: [M, N]"""
    columns = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=STAGES):
        offsets = row.to(tl.int64) * N + columns
        x = tl.load(x_ptr + offsets, mask=columns < N, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x))
        tl.store(y_ptr + offsets, numerator / tl.sum(numerator), mask=columns < N)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(N)
    limits = devices.limits(x.get_device())
    programs = min(M, limits.sm_count * min(32, limits.threads_per_sm // (32 * warps(block))))
    softmax_persistent[(programs,)](x, y, M, N, BLOCK=block, STAGES=2, num_warps=warps(block))
    return y
