# SPDX-License-Identifier: Apache-2.0
"""How the programs of a group, which share a block of channels, wait until the last of them has merged their parts.

    last = arrives_last(workspace_ptr, block, part, GROUP, SHARES)
    if last: merge, store, and announce(workspace_ptr, block, blocks, SHARES)
    wait_for(workspace_ptr, block, blocks, part, SHARES)     then read what the last one has stored
    leave(workspace_ptr, block, blocks, part, GROUP, SHARES)     at the end

All programs must be running: a cooperative launch. A launch uses each counter once.

Programs that count at one counter, or look at one flag, wait for each other's memory accesses. So a large group is
divided into SHARES, each with a counter and a flag in lines of memory of their own; the last of a share is counted once
more. SHARES is a power of two, 1 for small groups. 20 x 6 x 65536 bf16 takes 24.8 us so, 27.6 with one (H100).

    workspace_ptr: for SHARES of 1 [blocks] counters, then from the next multiple of LINE words on [blocks] flags, which
    are looked at all the time; else [blocks, SHARES + 1] lines of counters, the last one for the shares, and [blocks,
    SHARES] lines of flags. All zero before a launch and after it.
"""

import triton
import triton.language as tl

from ...launch.sizes import cdiv, power_of_2
from ...launch.workspace import COUNTED, is_last

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
