# SPDX-License-Identifier: Apache-2.0
"""FASTER, SAME, SLOWER or UNSURE, with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from flag_gems_overrides.perf.statistics import Comparison

FASTER, SAME, SLOWER, UNSURE = "FASTER", "SAME", "SLOWER", "UNSURE"

# A difference below 1 % is not worth a word, however sure it is. An A/A run on the device can only raise this.
MIN_NOISE = 0.01
# A bootstrap of fewer than 5 medians has too few distinct values for a 95 % interval.
MIN_ROUNDS = 5


class Verdict(NamedTuple):
    word: str
    reason: str


def judge(comparison: Comparison, noise: float = MIN_NOISE) -> Verdict:
    """Effect size and significance together.

    FASTER and SLOWER: the ratio is beyond the noise and its interval excludes 1. SAME: the ratio is within the noise,
    and the interval within twice of it. Everything else is UNSURE, and worth another measurement.

    Args:
        noise: relative difference that two runs of the same code may show (:func:`noise_floor`).
    """
    ratio, low, high, rounds = comparison
    band = math.log1p(noise)
    effect = math.log(ratio)
    change, *ends = percents(ratio, low, high)
    interval = f"[{', '.join(ends)}]"
    if rounds < MIN_ROUNDS:
        return Verdict(UNSURE, f"{rounds} rounds left, {MIN_ROUNDS} needed")
    if abs(effect) > band:
        if low <= 1 <= high:
            return Verdict(UNSURE, f"{change}, but {interval} includes no difference")
        return Verdict(FASTER if effect > 0 else SLOWER, f"{change} {interval}")
    if math.log(high) > 2 * band or math.log(low) < -2 * band:
        return Verdict(UNSURE, f"{change}, but {interval} is wide for a noise of {noise:.1%}")
    return Verdict(SAME, f"{percent(ratio)}, within the noise of {noise:.1%}")


def noise_floor(ratios: Sequence[float]) -> float:
    """The noise that an A/A run shows: what 95 % of its comparisons stay below, at least :data:`MIN_NOISE`.

    Args:
        ratios: one per comparison of a function with itself.
    """
    sizes = sorted(abs(math.log(ratio)) for ratio in ratios)
    if not sizes:
        return MIN_NOISE
    return max(MIN_NOISE, math.expm1(sizes[math.ceil(0.95 * len(sizes)) - 1]))


def percent(ratio: float) -> str:
    """A ratio as people say it: 1.05 is ``"+5.0 %"``, twice as fast ``"2.00x"``."""
    return percents(ratio)[0]


def percents(*ratios: float) -> list[str]:
    """Ratios that are read together, all in one form."""
    if all(0.5 < ratio < 2 for ratio in ratios):
        return [f"{(ratio - 1) * 100:+.1f} %" for ratio in ratios]
    return [f"{ratio:.2f}x" for ratio in ratios]
