# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flag_gems_overrides.perf.statistics import compare, compare_unpaired, geomean

times = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=30)


@given(times, times)
def test_a_over_b_is_the_inverse_of_b_over_a(a, b):
    there, back = compare(a, b, "seed"), compare(b, a, "seed")
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.low == pytest.approx(1 / back.high)
    assert there.rounds == min(len(a), len(b))
    assert there.low <= there.ratio * (1 + 1e-9)
    assert there.ratio <= there.high * (1 + 1e-9)


def test_same_seed_same_interval():
    rng = np.random.default_rng(1)
    a, b = rng.lognormal(0, 0.1, (2, 20))
    assert compare(a, b, "softmax") == compare(a, b, "softmax")
    assert compare(a, b, "softmax") != compare(a, b, "max")


def test_pairs_cancel_what_both_saw():
    """The clock halves half way: unpaired medians could not tell 2 % apart, pairs do."""
    clock = np.array([1.0] * 10 + [2.0] * 10)
    comparison = compare(clock, clock * 1.02, "seed")
    assert comparison.ratio == pytest.approx(1.02)
    assert comparison.high - comparison.low < 1e-9


def test_one_disturbed_round_does_not_matter():
    a = [1.0] * 20
    assert compare(a, [1.0] * 19 + [50.0], "seed").ratio == 1.0


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for run in range(400):
        a, b = rng.lognormal(0, 0.02, (2, 20))
        comparison = compare(a, b * 1.05, str(run))
        covered += comparison.low <= 1.05 <= comparison.high
    assert 0.92 <= covered / 400 <= 0.99


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ValueError, match=r"^no rounds to compare$"):
        compare([], [1.0], "seed")


def test_geomean_of_a_ratio_and_its_inverse_is_one():
    assert geomean([4.0, 0.25]) == pytest.approx(1)
    assert geomean([2.0, 8.0]) == pytest.approx(math.sqrt(16))


def test_samples_of_two_sessions_are_compared_by_their_medians():
    old, new = [1.0] * 10 + [9.0], [2.0] * 7 + [0.1]
    comparison = compare_unpaired(new, old, "seed")
    assert comparison == (0.5, 0.5, 0.5, 8), "above 1 is faster, and one disturbed round of each does not matter"
    assert compare_unpaired(old, new, "seed").ratio == 2.0


def test_the_interval_of_unpaired_samples_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for run in range(400):
        comparison = compare_unpaired(rng.lognormal(0, 0.02, 20), rng.lognormal(0, 0.02, 24) * 1.05, str(run))
        assert comparison.low <= comparison.ratio <= comparison.high
        covered += comparison.low <= 1.05 <= comparison.high
    assert 0.92 <= covered / 400 <= 0.99


def test_unpaired_samples_have_an_interval_of_their_seed():
    a, b = np.random.default_rng(1).lognormal(0, 0.1, (2, 20))
    assert compare_unpaired(a, b, "softmax") == compare_unpaired(a, b, "softmax")
    assert compare_unpaired(a, b, "softmax") != compare_unpaired(a, b, "max")
    # Rounds that are permuted are the same evidence: nothing is paired.
    assert compare_unpaired(a[::-1], b, "softmax").ratio == compare_unpaired(a, b, "softmax").ratio


@pytest.mark.parametrize(("times", "baseline"), [([], [1.0]), ([1.0], []), ([], [])])
def test_no_samples_on_one_side_are_an_error(times, baseline):
    with pytest.raises(ValueError, match=r"^no rounds to compare$"):
        compare_unpaired(times, baseline, "seed")


def test_a_seed_gives_the_same_interval_on_every_machine():
    times, baseline = [1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 5.0, 9.0]
    assert compare(times, baseline, "x") == pytest.approx((1.8257418583505536, 1.5, 2.25, 4))
    unpaired = (1.5811388300841893, 0.7060664823938839, 5.0, 4)
    assert compare_unpaired(times, baseline, "x") == pytest.approx(unpaired)
    # Of the longer one, what has no partner is left out.
    assert compare([*times, 100.0], baseline, "x") == compare(times, baseline, "x")
    assert compare(times, [*baseline, 100.0], "x") == compare(times, baseline, "x")
