# SPDX-License-Identifier: Apache-2.0
"""From paired samples to one ratio with an interval."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95


class Comparison(NamedTuple):
    """The baseline's time over ours, so that above 1 is faster; ``low`` and ``high`` bound it with 95 %
    confidence."""

    ratio: float
    low: float
    high: float
    rounds: int


def compare(times: Sequence[float], baseline: Sequence[float], seed: str) -> Comparison:
    """Median of the paired log ratios of ``baseline`` over ``times``, with a bootstrap interval.

    Pairs, because the two samples of a round saw the same clock and temperature. Logarithms, because then A over B
    and B over A are judged alike. The median, because a round that something else disturbed is no evidence.

    Args:
        times, baseline: one number per round, in the same unit; round i of one belongs to round i of the
        other. seed: the same samples under the same seed give the same interval.
    """
    count = min(len(times), len(baseline))
    if not count:
        raise ValueError("no rounds to compare")
    ratios = np.log(np.asarray(baseline[:count], float) / np.asarray(times[:count], float))
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    medians = np.median(ratios[rng.integers(0, count, (RESAMPLES, count))], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Comparison(math.exp(np.median(ratios)), math.exp(low), math.exp(high), count)


def geomean(ratios: Iterable[float]) -> float:
    """Geometric mean: the mean for ratios, the same whichever of the two is called the baseline."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))
