# SPDX-License-Identifier: Apache-2.0
"""What programs of a multiprocessor share: registers, L1 and the wait for each other."""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import cdiv
from .launches import (
    Configuration,
    Shape,
    resident,
)

# Share of L2 that is found again when a row is read backwards.
FOUND_IN_L2 = 0.8
# Bytes that memory moves while the programs of a group wait for each other.
WAIT_BYTES = 18e6
# Share of L2 that holds more than two rows at a time, which are not in step. Beyond it twice the excess is read again.
# softmax 3 x 7045805 bf16 (42 MB): 48.1 us at once, one by one 56.1; 4 x 3051068 float32 (49 MB): 53.0 at once, two at
# a time 47.7 (H100).
SEVERAL_IN_L2 = 0.7
# Blocks in flight, at least, even if L2 holds little of them: with fewer, nothing hides the wait of a group.
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
    """Programs for one block of columns: as many as leave no block waiting, and what is read a second time in L2."""
    groups = min(blocks, resident(shape, limits))
    if blocks * block_bytes > 2 * limits.l2_bytes:
        # Half as many where L2 holds what they read.
        few = MIN_BLOCKS // 2 if MIN_BLOCKS // 2 * block_bytes <= 1.1 * limits.l2_bytes else MIN_BLOCKS
        groups = min(groups, max(few, limits.l2_bytes // 2 // block_bytes))
    return resident(shape, limits) // groups


def group_of_rows(M: int, read_bytes: int, write_bytes: int, shape: Shape, limits: Limits) -> int:
    """The same for rows of so many bytes: as many at a time as move the fewest bytes. Each group reads twice what L2
    does not hold, and waits.

    The gradient of log_softmax 6 x 8242427 float32: 260 us one by one, by six 303; of 16 x 2000003: 162 by two, by
    eight 181 (H100).
    """

    def moved(rows: int) -> float:
        read = rows * read_bytes
        again = max(read - FOUND_IN_L2 * limits.l2_bytes, 0)
        if rows > 2:
            again = min(max(2 * (read - SEVERAL_IN_L2 * limits.l2_bytes), 0), read)
        return cdiv(M, rows) * (rows * (read_bytes + write_bytes) + again + WAIT_BYTES)

    # More than these were not timed.
    most = M if M * read_bytes <= 2 * limits.l2_bytes else max(MIN_BLOCKS // 2, limits.l2_bytes // 2 // read_bytes)
    return resident(shape, limits) // min(range(1, min(M, most, resident(shape, limits)) + 1), key=moved)
