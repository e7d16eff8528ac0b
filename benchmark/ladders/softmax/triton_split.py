# SPDX-License-Identifier: Apache-2.0
"""Several programs for each row, in two launches

Four rows on 132 multiprocessors leave 128 of them idle, however good the loop is. The first launch cuts every row into
parts and writes maximum and sum of each; the second combines these few numbers and writes its own part of the result.
The bytes are those of the online loop (1.5 passes, and what fits the L2 cache comes from there the second time); what
changes is that all of the device asks for them. A second launch costs a few microseconds: for many rows this is no
gain.
"""

import torch
import triton
import triton.language as tl

from flag_gems_overrides.ops.launch import devices

BLOCK, WARPS = 4096, 8
PROGRAMS_PER_SM = 4


@triton.jit
def part_statistics(x_ptr, max_ptr, sum_ptr, N, part_size, BLOCK: tl.constexpr):
    """x_ptr: [M, N]; max_ptr, sum_ptr: [M, parts]"""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin = part * part_size
    end = tl.minimum(begin + part_size, N)
    lane_max = tl.full([BLOCK], -3.4e38, tl.float32)
    lane_sum = tl.zeros([BLOCK], tl.float32)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + columns, mask=columns < end, other=-float("inf"))
        new_max = tl.maximum(lane_max, x)
        lane_sum = lane_sum * tl.exp(lane_max - new_max) + tl.exp(x - new_max)
        lane_max = new_max
    part_max = tl.max(lane_max)
    place = row * tl.num_programs(1) + part
    tl.store(max_ptr + place, part_max)
    tl.store(sum_ptr + place, tl.sum(lane_sum * tl.exp(lane_max - part_max)))


@triton.jit
def normalise_part(x_ptr, max_ptr, sum_ptr, y_ptr, N, part_size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """x_ptr, y_ptr: [M, N]; max_ptr, sum_ptr: [M, parts], parts <= PARTS"""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.num_programs(1)
    others = tl.arange(0, PARTS)
    maxima = tl.load(max_ptr + row * parts + others, mask=others < parts, other=-float("inf"))
    sums = tl.load(sum_ptr + row * parts + others, mask=others < parts, other=0.0)
    row_max = tl.max(maxima)
    row_sum = tl.sum(sums * tl.exp(maxima - row_max))
    begin = part * part_size
    end = tl.minimum(begin + part_size, N)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + columns, mask=columns < end, other=0.0)
        tl.store(y_ptr + row * N + columns, tl.exp(x - row_max) / row_sum, mask=columns < end)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    programs = PROGRAMS_PER_SM * devices.limits(x.get_device()).sm_count
    blocks = triton.cdiv(N, BLOCK)
    part_size = triton.cdiv(blocks, max(1, min(blocks, programs // M))) * BLOCK
    parts = triton.cdiv(N, part_size)
    maxima, sums = torch.empty(2, M, parts, device=x.device)
    part_statistics[(M, parts)](x, maxima, sums, N, part_size, BLOCK=BLOCK, num_warps=WARPS)
    normalise_part[(M, parts)](
        x, maxima, sums, y, N, part_size, PARTS=triton.next_power_of_2(parts), BLOCK=BLOCK, num_warps=WARPS
    )
    return y
