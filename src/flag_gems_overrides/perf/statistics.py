# SPDX-License-Identifier: Apache-2.0
"""From samples to one ratio with an interval."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
_TAILS = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2


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
    ratios = np.log(np.asarray(baseline[:count]) / np.asarray(times[:count]))
    medians = np.median(_resampled(ratios, _rng(seed)), axis=1)
    low, high = np.quantile(medians, _TAILS)
    return Comparison(math.exp(np.median(ratios)), math.exp(low), math.exp(high), count)


def compare_unpaired(times: Sequence[float], baseline: Sequence[float], seed: str) -> Comparison:
    """Ratio of the medians of ``baseline`` and ``times``, with a bootstrap interval, for samples of two sessions: their
    rounds have nothing to do with each other.

    Args:
        times, baseline, seed: as for :func:`compare`.
    """
    if not len(times) or not len(baseline):
        raise ValueError("no rounds to compare")
    rng = _rng(seed)
    ours, theirs = (np.log(np.asarray(samples)) for samples in (times, baseline))
    differences = np.median(_resampled(theirs, rng), axis=1) - np.median(_resampled(ours, rng), axis=1)
    low, high = np.quantile(differences, _TAILS)
    ratio = math.exp(np.median(theirs) - np.median(ours))
    return Comparison(ratio, math.exp(low), math.exp(high), min(len(times), len(baseline)))


def _rng(seed: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(seed.encode()))


def _resampled(samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return samples[rng.integers(0, len(samples), (RESAMPLES, len(samples)))]


def geomean(ratios: Iterable[float]) -> float:
    """Geometric mean: the mean for ratios, the same whichever of the two is called the baseline."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))
