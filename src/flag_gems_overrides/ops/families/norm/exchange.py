# SPDX-License-Identifier: Apache-2.0
"""How the programs of a group, which share rows, give each other two numbers per row through a workspace.

Two float32 are one word of 64 bits, two numbers of any kind two words (launch/workspace.py has the protocol).

workspace_ptr: [M, WORDS, GROUP] words, then a counter per group
row_workspace_ptr: [WORDS, GROUP], the words of one row
"""

import triton
import triton.language as tl

from ...launch.workspace import (
    clear,
    collect,
    collect_two,
    decode,
    decode_pair,
    encode,
    encode_pair,
    is_last,
    publish,
)


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
def publish_one(row_workspace_ptr, rank, a):
    publish(row_workspace_ptr + rank, encode(a))


@triton.jit
def sum_of_group(row_workspace_ptr, GROUP, BLOCK: tl.constexpr, ACC: tl.constexpr):
    """The sum of what :func:`publish_one` published for a row, always in the same order."""
    total = tl.zeros([], ACC)
    for first in tl.range(0, GROUP, BLOCK):
        rank = first + tl.arange(0, BLOCK)
        mask = rank < GROUP
        total += tl.sum(tl.where(mask, decode(collect(row_workspace_ptr + rank, mask), ACC), 0.0), 0)
    return total


@triton.jit
def publish_two(row_workspace_ptr, rank, GROUP, a, b):
    publish(row_workspace_ptr + rank, encode(a))
    publish(row_workspace_ptr + GROUP + rank, encode(b))


@triton.jit
def collect_both(row_workspace_ptr, first, GROUP, BLOCK: tl.constexpr, ACC: tl.constexpr):
    """As :func:`collect_pairs`, of what :func:`publish_two` published: two [BLOCK] of ACC."""
    rank = first + tl.arange(0, BLOCK)
    mask = rank < GROUP
    a, b = collect_two(row_workspace_ptr + rank, row_workspace_ptr + GROUP + rank, mask)
    return tl.where(mask, decode(a, ACC), 0.0), tl.where(mask, decode(b, ACC), 0.0)


@triton.jit
def clear_previous(row_workspace_ptr, row, GROUP, WORDS: tl.constexpr):
    """Clear this program's words of the group's previous row: all that published for this row have collected them."""
    groups = tl.num_programs(0) // GROUP
    # In 32 bits 8 bytes of the gradient of 8192 x 32768 float32 spill on sm_100 (Triton 3.7).
    previous_ptr = row_workspace_ptr - tl.cast(groups, tl.int64) * GROUP * WORDS
    for word in tl.static_range(WORDS):
        clear(previous_ptr + word * GROUP + tl.program_id(0) % GROUP, row >= groups)


@triton.jit(noinline=True)
def clear_last(workspace_ptr, M, GROUP, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """The last program of the group clears the words of the group's last row, and its counter.

    32 bits are enough for offsets: a program has 512 columns and more of a row, so 2**31 words belong to 2**40
    elements.
    """
    group = tl.program_id(0) // GROUP
    groups = tl.num_programs(0) // GROUP
    if is_last(workspace_ptr + M * (GROUP * WORDS) + group, GROUP, "relaxed"):
        last_row = M - 1 - (M - 1 - group) % groups
        for first in tl.range(0, GROUP * WORDS, BLOCK):
            word = first + tl.arange(0, BLOCK)
            clear(workspace_ptr + last_row * (GROUP * WORDS) + word, word < GROUP * WORDS)
