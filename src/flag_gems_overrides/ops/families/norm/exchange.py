# SPDX-License-Identifier: Apache-2.0
"""How the programs of a group, which share rows, give each other two float32 per row through a workspace.

workspace_ptr: [M, GROUP] words of 64 bits, then a counter per group (launch/workspace.py has the protocol)
row_workspace_ptr: [GROUP], the words of one row
"""

import triton
import triton.language as tl

from ...launch.workspace import clear, collect, decode_pair, encode_pair, is_last, publish


@triton.jit
def publish_pair(row_workspace_ptr, rank, a, b):
    publish(row_workspace_ptr + rank, encode_pair(a, b))


@triton.jit
def collect_pairs(row_workspace_ptr, first, GROUP, BLOCK: tl.constexpr):
    """What the programs [first, first + BLOCK) of the group have published, as two [BLOCK], 0 beyond the group."""
    rank = first + tl.arange(0, BLOCK)
    a, b = decode_pair(collect(row_workspace_ptr + rank, rank < GROUP))
    return tl.where(rank < GROUP, a, 0.0), tl.where(rank < GROUP, b, 0.0)


@triton.jit
def clear_previous(row_workspace_ptr, row, GROUP):
    """Clear this program's word of the group's previous row: whoever published for this row has collected it."""
    groups = tl.num_programs(0) // GROUP
    # In 32 bits 8 bytes of the gradient of 8192 x 32768 float32 spill on sm_100 (Triton 3.7).
    previous_ptr = row_workspace_ptr - tl.cast(groups, tl.int64) * GROUP
    clear(previous_ptr + tl.program_id(0) % GROUP, row >= groups)


@triton.jit(noinline=True)
def clear_last(workspace_ptr, M, GROUP, BLOCK: tl.constexpr):
    """The last program of the group clears the words of the group's last row, and its counter.

    32 bits are enough for offsets: a program has 512 columns and more of a row, so 2**31 words belong to 2**40
    elements.
    """
    group = tl.program_id(0) // GROUP
    groups = tl.num_programs(0) // GROUP
    if is_last(workspace_ptr + M * GROUP + group, GROUP, "relaxed"):
        last_row = M - 1 - (M - 1 - group) % groups
        for first in tl.range(0, GROUP, BLOCK):
            rank = first + tl.arange(0, BLOCK)
            clear(workspace_ptr + last_row * GROUP + rank, rank < GROUP)
