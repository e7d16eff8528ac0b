# SPDX-License-Identifier: Apache-2.0
"""Channels that a program has side by side."""

from __future__ import annotations

from ...launch.sizes import SECTOR_BYTES, cdiv, power_of_2
from .launches import LITTLE_BYTES, Problem

# Bytes of a row of columns that a program reads side by side, twice as many for float64.
# 768 x 12661 float64: 84 us, with 128 bytes 118.
ROW_BYTES = 128
# Bytes of neighbouring channels that a program reads side by side at least, half of it if they are padded.
# 50000 x 16 x 7 bf16: 49.9 us, with all of it 84.6.
NEIGHBOUR_BYTES = 128


def neighbours(problem: Problem) -> int:
    """Channels that a program has side by side. Of little data they fill a sector, as each load takes the time.

    Gradient of 9 x 120 x 5 bf16: 3.10 us with 8 channels, 3.27 with 16 (H100).
    """
    row = problem.K * problem.itemsize
    little = problem.M * problem.N * row <= LITTLE_BYTES
    if little:
        return power_of_2(cdiv(SECTOR_BYTES, row)) if 2 * row <= SECTOR_BYTES else 1
    return power_of_2(cdiv(NEIGHBOUR_BYTES, row))
