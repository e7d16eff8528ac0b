# SPDX-License-Identifier: Apache-2.0
"""What a hunt's record says of a problem. Imports no kernels: a record is read where there is no GPU, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from flag_gems_overrides.perf.cases import OVERRIDE

# Behind a peer by less than both is not a loss: the first is what two runs of one kernel may differ by, the second what
# launches cost more on one H200 than on another.
TOLERANCE, TOLERANCE_US = 0.03, 0.25


class Result(NamedTuple):
    """What was measured of one problem."""

    key: str
    us: float | None
    """The override's microseconds; None if it did not answer."""
    best: str | None
    """The fastest provider beside it whose answer is right."""
    best_us: float
    error: str | None
    """What is wrong with the override's answer."""

    @property
    def ratio(self) -> float:
        """The best provider's time over the override's: below 1 the override is behind."""
        return self.best_us / self.us if self.us and self.best else 1.0

    @property
    def is_loss(self) -> bool:
        return self.ratio < 1 - TOLERANCE and self.best_us + TOLERANCE_US < (self.us or 0.0)


def result(row: Mapping[str, Any]) -> Result:
    """What a case line of a hunt's record says."""
    times = {
        name: median(found["samples_ms"]) * 1e3
        for name, found in row["providers"].items()
        if found.get("samples_ms") and found["agrees"]
    }
    ours = row["providers"].get(OVERRIDE, {"absent": "not called"})
    error = ours.get("absent") or (None if ours["agrees"] else "its answer is not PyTorch's")
    us = times.pop(OVERRIDE, None)
    best = min(times, key=lambda name: times[name], default=None)
    return Result(row["key"], us, best, times[best] if best else math.inf, error)
