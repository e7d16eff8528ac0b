# SPDX-License-Identifier: Apache-2.0
"""How far a choice is from the fastest configuration."""

from __future__ import annotations

import pytest

from flag_gems_overrides.perf.tune.journal import Measured
from flag_gems_overrides.perf.tune.regret import regrets, tally
from perf.tune.made import FAKE, LIMITS, row


def measured(M, *us):
    """Of 2, 1 and 4 warps, the first chosen; the fake estimate thinks 1 warp best."""
    return Measured("fake", row(M), tuple((("rows", warps), t) for warps, t in zip((2, 1, 4), us, strict=False)))


def test_the_largest_comes_first():
    found = regrets(FAKE, [measured(1, 8.0, 8.0, 9.0), measured(2, 12.0, 9.0, 8.0)], LIMITS)
    assert [(each.problem[0], each.ratio) for each in found] == [(2, 1.5), (1, 1.0)]
    assert found[0].chosen == ("rows", 2)
    assert found[0].best == ("rows", 4)
    assert found[0].by_estimate_us == 9.0


@pytest.mark.parametrize(
    ("us", "best", "behind"), [(4.2, 4.0, False), (4.3, 4.0, True), (100.0, 98.0, False), (100.0, 96.0, True)]
)
def test_behind_is_as_in_a_hunt(us, best, behind):
    (found,) = regrets(FAKE, [measured(1, us, best)], LIMITS)
    assert found.is_behind is behind


def test_a_family_is_counted():
    found = regrets(FAKE, [measured(1, 8.0, 8.0), measured(2, 16.0, 16.0, 4.0)], LIMITS)
    counted = tally("fake", found)
    assert counted == ("fake", 2, 1, pytest.approx(2.0), pytest.approx(2.0), pytest.approx(4.0))
