# SPDX-License-Identifier: Apache-2.0
"""What programs of a multiprocessor share: registers, L1 and the wait for each other."""

from __future__ import annotations

from ...launch.devices import Limits
from .launches import (
    Configuration,
    Shape,
    resident,
)

# Blocks in flight at least, however little of them L2 holds: with fewer, nothing hides the wait of a group.
MIN_BLOCKS = 8


def configuration_of(vec: int, block_k: int, shape: Shape, group: int) -> Configuration:
    return Configuration(
        "split", shape.elements, shape.warps, shape.registers, vec, block_k, group, shape.stages, shape.prefetch
    )


def without_spills(shape: Shape, limits: Limits) -> Shape:
    """What just fits the registers on sm_90 is up to 100 bytes too much on sm_80 and sm_100."""
    return shape if limits.capability[0] == 9 else shape._replace(elements=shape.elements // 2)


def l1_share(shape: Shape, limits: Limits) -> int:
    """Bytes of L1, which is what shared memory leaves, for each program on a multiprocessor."""
    return limits.shared_bytes * limits.sm_count // resident(shape, limits)


def group_of(blocks: int, block_bytes: int, shape: Shape, limits: Limits) -> int:
    """Programs for one block: as many as leave no block waiting, and what is read a second time in L2."""
    groups = min(blocks, resident(shape, limits))
    if blocks * block_bytes > 2 * limits.l2_bytes:
        # Half as many where L2 holds what they read: 8 x 6620032 bf16 on an H100 113 us by fours, 121 by eights.
        few = MIN_BLOCKS // 2 if MIN_BLOCKS // 2 * block_bytes <= 1.1 * limits.l2_bytes else MIN_BLOCKS
        groups = min(groups, max(few, limits.l2_bytes // 2 // block_bytes))
    return resident(shape, limits) // groups
