# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from flag_gems_overrides.perf.statistics import Comparison, compare
from flag_gems_overrides.perf.verdict import (
    FASTER,
    MIN_NOISE,
    SAME,
    SLOWER,
    UNSURE,
    judge,
    noise_floor,
    percent,
    percents,
)


@pytest.mark.parametrize(
    ("comparison", "word"),
    [
        (Comparison(1.10, 1.08, 1.12, 20), FASTER),
        (Comparison(0.90, 0.88, 0.92, 20), SLOWER),
        (Comparison(1.00, 0.995, 1.005, 20), SAME),
        (Comparison(1.005, 1.004, 1.006, 20), SAME),  # significant, but too small to matter
        (Comparison(1.10, 0.95, 1.20, 20), UNSURE),  # large, but not significant
        (Comparison(1.00, 0.95, 1.05, 20), UNSURE),  # could be anything
        (Comparison(2.00, 1.99, 2.01, 4), UNSURE),  # too few rounds
    ],
)
def test_effect_and_significance_decide_together(comparison, word):
    verdict = judge(comparison)
    assert verdict.word == word
    assert verdict.reason


def test_noise_of_the_device_widens_the_band():
    comparison = Comparison(0.97, 0.965, 0.975, 20)
    assert judge(comparison).word == SLOWER
    assert judge(comparison, noise=0.05).word == SAME


def verdicts(slowdown: float, count: int = 100, spread: float = 0.006) -> list[str]:
    rng = np.random.default_rng(7)
    return [
        judge(compare(*(rng.lognormal(0, spread, (2, 20)) * [[1 + slowdown], [1]]), seed=str(i))).word
        for i in range(count)
    ]


@pytest.mark.parametrize("slowdown", [0.02, 0.05, 0.10])
def test_planted_slowdowns_are_found(slowdown):
    found = verdicts(slowdown).count(SLOWER)
    assert found >= (95 if slowdown == 0.02 else 100)


def test_equal_code_raises_no_alarm():
    words = verdicts(0.0, count=200)
    assert words.count(SLOWER) + words.count(FASTER) <= 2
    assert words.count(SAME) >= 190


def test_noise_floor_is_what_nearly_all_comparisons_stay_below():
    assert noise_floor([]) == MIN_NOISE
    assert noise_floor([1.001] * 100) == MIN_NOISE
    assert noise_floor([1.0] * 96 + [3.0] * 4) == MIN_NOISE
    assert noise_floor([1.0] * 90 + [1.04] * 5 + [1 / 1.04] * 5) == pytest.approx(0.04)


def test_ratios_that_are_read_together_are_of_one_form():
    assert percents(1.99, 1.9, 1.999) == ["+99.0 %", "+90.0 %", "+99.9 %"]
    assert percents(1.99, 1.9, 2.0) == ["1.99x", "1.90x", "2.00x"]
    assert percents(0.55, 0.5, 0.6) == ["0.55x", "0.50x", "0.60x"]


def test_percent_reads_well():
    assert (percent(1.05), percent(0.9), percent(3.2)) == ("+5.0 %", "-10.0 %", "3.20x")


@pytest.mark.parametrize(
    ("comparison", "noise", "verdict"),
    [
        (Comparison(1.10, 1.08, 1.12, 4), 0.01, (UNSURE, "4 rounds left, 5 needed")),
        (Comparison(1.10, 1.08, 1.12, 5), 0.01, (FASTER, "+10.0 % [+8.0 %, +12.0 %]")),
        (Comparison(0.40, 0.38, 0.42, 20), 0.01, (SLOWER, "0.40x [0.38x, 0.42x]")),
        # An interval that touches 1 does not exclude it.
        (Comparison(1.10, 1.00, 1.20, 20), 0.01, (UNSURE, "+10.0 %, but [+0.0 %, +20.0 %] includes no difference")),
        (Comparison(0.90, 0.80, 1.00, 20), 0.01, (UNSURE, "-10.0 %, but [-20.0 %, +0.0 %] includes no difference")),
        # A ratio at the noise is within it.
        (Comparison(1.0625, 1.05, 1.07, 20), 0.0625, (SAME, "+6.2 %, within the noise of 6.2%")),
        (Comparison(1.00, 0.99, 1.03, 20), 0.01, (UNSURE, "+0.0 %, but [-1.0 %, +3.0 %] is wide for a noise of 1.0%")),
        (Comparison(1.00, 0.97, 1.01, 20), 0.01, (UNSURE, "+0.0 %, but [-3.0 %, +1.0 %] is wide for a noise of 1.0%")),
        (Comparison(1.00, 0.975, 1.01, 20), 0.01, (UNSURE, "+0.0 %, but [-2.5 %, +1.0 %] is wide for a noise of 1.0%")),
        (Comparison(1.00, 0.982, 1.019, 20), 0.01, (SAME, "+0.0 %, within the noise of 1.0%")),
        # An interval that reaches twice the noise is within it: 1.0625 squared.
        (Comparison(1.00, 0.99, 1.12890625, 20), 0.0625, (SAME, "+0.0 %, within the noise of 6.2%")),
        (Comparison(1.00, 0.25, 1.01, 20), 1.0, (SAME, "+0.0 %, within the noise of 100.0%")),
        (Comparison(1.03, 1.02, 1.04, 20), 0.02, (FASTER, "+3.0 % [+2.0 %, +4.0 %]")),
    ],
)
def test_each_verdict_says_why(comparison, noise, verdict):
    assert judge(comparison, noise) == verdict


def test_noise_floor_takes_the_95th_of_100():
    assert noise_floor([1 + i / 100 for i in range(1, 101)]) == pytest.approx(0.95)
    assert noise_floor([1.5]) == pytest.approx(0.5)
    assert noise_floor([1.02, 1 / 1.03]) == pytest.approx(0.03)


def test_halves_and_doubles_are_said_as_factors():
    assert (percent(0.5), percent(2), percent(0.51), percent(1.99)) == ("0.50x", "2.00x", "-49.0 %", "+99.0 %")
