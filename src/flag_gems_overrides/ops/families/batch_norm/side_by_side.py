# SPDX-License-Identifier: Apache-2.0
"""Channels that a program has side by side."""

from __future__ import annotations

from ...launch.sizes import SECTOR_BYTES, cdiv, power_of_2
from .launches import LITTLE_BYTES, Problem

# Bytes that a program reads side by side. Columns: ROW_BYTES, of float64 twice as many (768 x 12661 84 us, 118 with
# 128 bytes). Neighbouring channels: at least NEIGHBOUR_BYTES, half of it if they are padded (50000 x 16 x 7 bf16 49.9
# us, 84.6 with all of it).
ROW_BYTES, NEIGHBOUR_BYTES = 128, 128


def neighbours(problem: Problem) -> int:
    """Channels that lie side by side: of little data a sector, because loading anything takes the time (9 x 120 x 5
    bf16 backward 3.10 us with 8 channels, 3.27 with 16; 43 x 2 x 15 3.5 with 1, 3.7 with 2, on an H100)."""
    row = problem.K * problem.itemsize
    little = problem.M * problem.N * row <= LITTLE_BYTES
    if little:
        return power_of_2(cdiv(SECTOR_BYTES, row)) if 2 * row <= SECTOR_BYTES else 1
    return power_of_2(cdiv(NEIGHBOUR_BYTES, row))
