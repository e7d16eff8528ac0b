# SPDX-License-Identifier: Apache-2.0
"""What a program that holds whole rows has: warps, and stages of its pipeline. Measured on an H200."""

from __future__ import annotations

from ...launch.devices import Limits
from ...launch.sizes import cdiv, power_of_2

# Bytes that the programs of a multiprocessor load at a time, at each stage of their pipelines. They keep DRAM busy:
# fewer bytes lose bandwidth, more programs cost partial sums.
BYTES_IN_FLIGHT = 32768
MAX_WARPS = 16


def stages_within(stages: int, bytes_per_sm: int, limits: Limits) -> int:
    """As many as shared memory holds; with two, a load is waited for at once, which is slower than with one."""
    fit = 1 + (limits.shared_bytes - 8192) // bytes_per_sm
    return min(stages, fit) if fit >= 3 else 1


def warps_for(span: int, elements: int) -> int:
    """Warps of ``elements`` each that hold ``span``: a power of two up to MAX_WARPS."""
    return min(power_of_2(cdiv(span, elements)), MAX_WARPS)
