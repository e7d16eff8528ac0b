# SPDX-License-Identifier: Apache-2.0
"""Sizes of the hardware that NVIDIA GPUs have had since sm_80, and the arithmetic of tiles."""

from __future__ import annotations

WARP = 32
# The widest load of a thread; what a memory access transfers at least; what L1 and L2 keep together.
VECTOR_BYTES, SECTOR_BYTES, LINE_BYTES = 16, 32, 128


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The smallest that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def power_of_2_within(n: int) -> int:
    """The largest that is not above ``n``; 1 for less than 1."""
    return 1 << max(n.bit_length() - 1, 0)
