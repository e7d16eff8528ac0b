# SPDX-License-Identifier: Apache-2.0
"""How the programs of a group, which share a row, give each other two float32 per program and row.

``workspace_ptr: [M, GROUP]`` words of 64 bits that are zero before and after the launch, then a counter per group.
All programs must be running (cooperative launch).
"""

import triton
import triton.language as tl

from ...launch.workspace import is_last


@triton.jit
def publish(word_ptr, a, b):
    """Give two float32 to the other programs of the group, as one 64-bit word that is never 0: no flag, no fence."""
    low = a.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    high = b.to(tl.int32, bitcast=True)
    high = tl.where(high == 0, -2147483648, high)  # 0.0 is sent as -0.0
    tl.atomic_xchg(word_ptr, low | (high.to(tl.int64) << 32), sem="relaxed")


@triton.jit
def collect(workspace_ptr, first, GROUP, BLOCK: tl.constexpr):
    """What the programs [first, first + BLOCK) of the group have published, as two [BLOCK]; waits until they have.

    workspace_ptr: [GROUP] words of this row. Lanes beyond the group are 0.

    Each warp of a program waits for itself; that takes a BLOCK of at most 32 lanes, or a program of one warp. To be
    called from functions that are not inlined: Triton does not pipeline a loop that contains another one.
    """
    rank = first + tl.arange(0, BLOCK)
    words = tl.load(workspace_ptr + rank, mask=rank < GROUP, other=1, volatile=True)
    while tl.min((words != 0).to(tl.int32), 0) == 0:
        words = tl.load(workspace_ptr + rank, mask=rank < GROUP, other=1, volatile=True)
    a = words.to(tl.int32).to(tl.float32, bitcast=True)
    b = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return tl.where(rank < GROUP, a, 0.0), tl.where(rank < GROUP, b, 0.0)


@triton.jit
def clear_previous(workspace_ptr, row, GROUP):
    """Zero what this program published for the group's previous row: whoever published for this row has read it.

    workspace_ptr: [GROUP] words of this row.
    """
    groups = tl.num_programs(0) // GROUP
    # In 32 bits 8 bytes of the gradient of 8192 x 32768 float32 spill on sm_100 (Triton 3.7).
    previous_ptr = workspace_ptr - tl.cast(groups, tl.int64) * GROUP
    tl.store(previous_ptr + tl.program_id(0) % GROUP, 0, mask=row >= groups)


@triton.jit(noinline=True)
def clear_last(workspace_ptr, M, GROUP, BLOCK: tl.constexpr):
    """Zero what was published for the group's last row, and the group's counter. The group's last program does it.

    workspace_ptr: [M, GROUP] words, then a counter per group. 32 bits are enough for offsets: a program has 512
    columns and more of a row, so 2**31 words belong to 2**40 elements.
    """
    group = tl.program_id(0) // GROUP
    groups = tl.num_programs(0) // GROUP
    if is_last(workspace_ptr + M * GROUP + group, GROUP, "relaxed"):
        last_row = M - 1 - (M - 1 - group) % groups
        for first in tl.range(0, GROUP, BLOCK):
            rank = first + tl.arange(0, BLOCK)
            tl.store(workspace_ptr + last_row * GROUP + rank, 0, mask=rank < GROUP)
