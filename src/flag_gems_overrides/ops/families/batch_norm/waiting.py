# SPDX-License-Identifier: Apache-2.0
"""How the programs of a group, which share a block of channels, wait until the last of them has merged their parts.

    last = arrives_last(workspace_ptr, block, part, GROUP, SHARES)
    if last: merge, store, and announce(workspace_ptr, block, blocks, SHARES)
    wait_for(workspace_ptr, block, blocks, part, SHARES)     then read what the last one has stored
    leave(workspace_ptr, block, blocks, part, GROUP, SHARES)     at the end

All programs must be running: a cooperative launch. A launch uses each counter once.

Where a program's threads have room for what all programs of its group publish, each program merges it by itself
(workspace.py says how). It waits for no flag and for no stores before it. 84365 x 1 float32, a group of 128:
6.9 us, by a flag 9.2 (H100).

    publish(words_at(workspace_ptr, blocks) + part * C + channels, word, mask)
    places, mask = words_of_block(words_ptr, block, C, GROUP, CHANNELS, PARTS)     for collect
    leave_words(workspace_ptr, block, blocks, C, GROUP, PLANES, CHANNELS, PARTS)     at the end

Programs that use one counter or one flag wait for each other's memory accesses. So a large group is divided into
SHARES, each with a counter and a flag in its own lines of memory; the last program of a share is counted once more.
SHARES is a power of two, 1 for small groups. 20 x 6 x 65536 bf16: 24.8 us, with one share 27.6 (H100).

    workspace_ptr: for SHARES of 1 [blocks] counters, then from the next multiple of LINE words on [blocks] flags, which
    are looked at all the time; else [blocks, SHARES + 1] lines of counters, the last one for the shares, and [blocks,
    SHARES] lines of flags. By words [blocks] counters, then [PLANES, GROUP, C] words. All zero before a launch and
    after it.
"""

import triton
import triton.language as tl

from ...launch.sizes import cdiv, power_of_2
from ...launch.workspace import COUNTED, clear, is_last
from .tile import merged_channels, merged_parts

# Words of a line of memory.
LINE = 32


def shares_of(group: int) -> int:
    """SHARES of COUNTED programs at most, of as many as are counted together."""
    return power_of_2(cdiv(group, COUNTED)) if group > 2 * COUNTED else 1


def words_of(blocks: int, shares: int) -> int:
    """Words of the workspace."""
    return blocks * (2 * shares + 1) * LINE if shares > 1 else 2 * blocks + LINE - 1


@triton.jit
def arrives_last(workspace_ptr, block, part, GROUP, SHARES: tl.constexpr):
    counter_ptr = counter_at(workspace_ptr, block, part % SHARES, SHARES)
    last = is_last(counter_ptr, members_of(part, GROUP, SHARES), "acq_rel")
    if SHARES > 1:
        counter_ptr = counter_at(workspace_ptr, block, SHARES, SHARES)
        if last:
            last = is_last(counter_ptr, SHARES, "acq_rel")
    return last


@triton.jit
def announce(workspace_ptr, block, blocks, SHARES: tl.constexpr):
    tl.debug_barrier()
    if SHARES > 1:
        tl.atomic_xchg(flag_at(workspace_ptr, block, blocks, tl.arange(0, SHARES), SHARES), 1, sem="release")
    else:
        tl.atomic_xchg(flag_at(workspace_ptr, block, blocks, 0, SHARES), 1, sem="release")


@triton.jit
def wait_for(workspace_ptr, block, blocks, part, SHARES: tl.constexpr):
    flag_ptr = flag_at(workspace_ptr, block, blocks, part % SHARES, SHARES)
    flag = tl.load(flag_ptr, volatile=True)
    while flag == 0:
        flag = tl.load(flag_ptr, volatile=True)
    # What was stored before the flag was set can be read after it was acquired. An atomic operation whose result nobody
    # uses would be dropped.
    acquired = tl.atomic_add(flag_ptr, 0, sem="acquire")
    while acquired == 0:
        acquired = tl.atomic_add(flag_ptr, 0, sem="acquire")
    tl.debug_barrier()


@triton.jit
def leave(workspace_ptr, block, blocks, part, GROUP, SHARES: tl.constexpr):
    """The counter is zero again since the last one has arrived, and counts once more."""
    counter_ptr = counter_at(workspace_ptr, block, part % SHARES, SHARES)
    if is_last(counter_ptr, members_of(part, GROUP, SHARES), "relaxed"):
        tl.store(flag_at(workspace_ptr, block, blocks, part % SHARES, SHARES), 0)


@triton.jit
def members_of(part, GROUP, SHARES: tl.constexpr):
    """Programs of this part's share."""
    return (GROUP - part % SHARES + SHARES - 1) // SHARES


@triton.jit
def counter_at(workspace_ptr, block, share, SHARES: tl.constexpr, LINE: tl.constexpr = LINE):
    if SHARES > 1:
        return workspace_ptr + (block * (SHARES + 1) + share) * LINE
    else:
        return workspace_ptr + block


@triton.jit
def flag_at(workspace_ptr, block, blocks, share, SHARES: tl.constexpr, LINE: tl.constexpr = LINE):
    if SHARES > 1:
        return workspace_ptr + (blocks * (SHARES + 1) + block * SHARES + share) * LINE
    else:
        return workspace_ptr + (blocks + LINE - 1) // LINE * LINE + block


@triton.jit
def words_at(workspace_ptr, blocks, LINE: tl.constexpr = LINE):
    """[planes, GROUP, C] words, after the counters of blocks."""
    return workspace_ptr + (blocks + LINE - 1) // LINE * LINE


@triton.jit
def words_of_block(words_ptr, block, C, GROUP, CHANNELS: tl.constexpr, PARTS: tl.constexpr):
    """(places, mask) of the words of all parts of a block in a plane."""
    channels = merged_channels(block, CHANNELS)
    parts = merged_parts(0, CHANNELS, PARTS)
    return words_ptr + parts * C + channels, (parts < GROUP) & (channels < C)


@triton.jit
def leave_words(
    workspace_ptr, block, blocks, C, GROUP, PLANES: tl.constexpr, CHANNELS: tl.constexpr, PARTS: tl.constexpr
):
    """All programs of a group have read its words when the last one gets here, which clears them."""
    if is_last(workspace_ptr + block, GROUP, "relaxed"):
        places, mask = words_of_block(words_at(workspace_ptr, blocks), block, C, GROUP, CHANNELS, PARTS)
        for plane in tl.static_range(PLANES):
            clear(places + plane * GROUP * C, mask)
