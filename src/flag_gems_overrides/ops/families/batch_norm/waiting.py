# SPDX-License-Identifier: Apache-2.0
"""How the programs of a group, which share a block of channels, wait until the last of them has merged their parts.

    workspace_ptr: [blocks] counters, then from the next multiple of 32 words on [blocks] flags, which are looked at all
    the time; all zero before a launch and after it

    if arrives_last(workspace_ptr, block, GROUP): merge, store, and announce(workspace_ptr, block, blocks)
    wait_for(workspace_ptr, block, blocks)         then read what the last one has stored
    leave(workspace_ptr, block, blocks, GROUP)     at the end

All programs must be running: a cooperative launch. A launch uses each counter once.
"""

import triton
import triton.language as tl

from ...launch.workspace import is_last


@triton.jit
def arrives_last(workspace_ptr, block, GROUP):
    return is_last(workspace_ptr + block, GROUP, "acq_rel")


@triton.jit
def announce(workspace_ptr, block, blocks):
    tl.debug_barrier()
    tl.atomic_xchg(flag_of(workspace_ptr, block, blocks), 1, sem="release")


@triton.jit
def wait_for(workspace_ptr, block, blocks):
    flag_ptr = flag_of(workspace_ptr, block, blocks)
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
def leave(workspace_ptr, block, blocks, GROUP):
    """The counter is zero again since the last one has arrived, and counts once more."""
    if is_last(workspace_ptr + block, GROUP, "relaxed"):
        tl.store(flag_of(workspace_ptr, block, blocks), 0)


@triton.jit
def flag_of(workspace_ptr, block, blocks):
    return workspace_ptr + (blocks + 31) // 32 * 32 + block
