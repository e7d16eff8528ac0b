# SPDX-License-Identifier: Apache-2.0
"""Groups of programs that share a row or a block of columns, and what they exchange through the workspace.

The workspace is [blocks, group, NUMBERS, STATISTICS] words and a counter for each group. A block here is a row, or
BLOCK_K columns; its STATISTICS are one, or BLOCK_K. Each group takes every ``groups``-th block.

``collect`` reads the words of MEMBERS programs at a time. A kernel whose MEMBERS are 1 has no groups.
"""

import triton
import triton.language as tl

from ...launch.workspace import clear, is_last
from .tile import lanes_and_depths


@triton.jit
def group_position(group, MEMBERS: tl.constexpr):
    """(group, member, groups): programs of a group again, this program's number within its group, number of groups."""
    if MEMBERS == 1:
        group = 1  # known when compiling
    return group, tl.program_id(0) % group, tl.num_programs(0) // group


@triton.jit
def group_words(member, MEMBERS: tl.constexpr, NUMBERS: tl.constexpr, STATISTICS: tl.constexpr, THREADS: tl.constexpr):
    """Where the words of the first MEMBERS programs of a group are, of a block's NUMBERS the first: (offsets of MEMBERS
    times copies times STATISTICS, number of the program, which of them count, offsets of this program's own).

    There are at least as many elements as threads, as ``collect`` wants; only one of the copies counts.
    """
    COPIES: tl.constexpr = max(THREADS // (MEMBERS * STATISTICS), 1)
    statistic = tl.arange(0, STATISTICS)[None, None, :]
    # Programs along the axis of a tile's lanes: Triton 3.7 computes what words and tile meet in as the words lie. With
    # programs along the depth a thread had all lanes of a column there: softmax 30000 x 40 bf16 spilled 408 bytes
    # (sm_90), 8192 x 64 float16 440 (sm_100).
    programs, copy = lanes_and_depths(MEMBERS, COPIES)
    other = programs + 0 * (copy + statistic)
    own = member * (NUMBERS * STATISTICS)
    if STATISTICS > 1:
        own += statistic
    return other * (NUMBERS * STATISTICS) + statistic, other, copy == 0, own


@triton.jit
def group_workspace(
    workspace_ptr,
    first,
    blocks,
    member,
    group,
    groups,
    MEMBERS: tl.constexpr,
    NUMBERS: tl.constexpr,
    STATISTICS: tl.constexpr,
    THREADS: tl.constexpr,
):
    """What a program needs to know of the workspace, where ``first`` is its group's first block.

    Returns:
        words_ptr: the words of the group's first block, and
        step: words from one of its blocks to the next;
        counter_ptr: the group's counter;
        words, other, counted, own: see ``group_words``.
    """
    block_words = group * NUMBERS * STATISTICS
    words, other, counted, own = group_words(member, MEMBERS, NUMBERS, STATISTICS, THREADS)
    counter_ptr = workspace_ptr + tl.cast(blocks, tl.int64) * block_words + first
    words_ptr = workspace_ptr + tl.cast(first, tl.int64) * block_words
    return words_ptr, tl.cast(groups, tl.int64) * block_words, counter_ptr, words, other, counted, own


@triton.jit
def clear_own(own_ptr, NUMBERS: tl.constexpr, STATISTICS: tl.constexpr, mask):
    """Clear what this program published for the group's block before. Who published for this block has read it."""
    for number in tl.static_range(NUMBERS):
        clear(own_ptr + number * STATISTICS, mask)


@triton.jit
def clear_last(
    words_ptr,
    step,
    counter_ptr,
    words,
    other,
    group,
    MEMBERS: tl.constexpr,
    NUMBERS: tl.constexpr,
    STATISTICS: tl.constexpr,
):
    """Clear what the group published for its last block, once all of its programs have read it.

    ``words_ptr`` is one step after that block.
    """
    last = is_last(counter_ptr, group, "relaxed")
    for first in range(0, group, MEMBERS):
        block_ptr = words_ptr - step + first * (NUMBERS * STATISTICS) + words
        for number in tl.static_range(NUMBERS):
            clear(block_ptr + number * STATISTICS, mask=(other + first < group) & last)
