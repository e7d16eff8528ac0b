# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flag_gems_overrides.perf.results import Counted, Timed, is_counted
from flag_gems_overrides.perf.verdict import FASTER, SAME, SLOWER

from . import rows


def test_ratios_are_of_the_competitor_over_the_override():
    timed = Timed(rows.timed(override=1.0, native=2.0, upstream=0.5))
    assert timed.against("native").comparison.ratio == pytest.approx(2, rel=0.01)
    assert timed.against("native").verdict.word == FASTER
    assert timed.against("upstream").verdict.word == SLOWER
    assert timed.against_best().name == "upstream"
    assert timed.ms("native") == pytest.approx(2, rel=0.01)
    assert timed.gbps("override") == pytest.approx(2**26 / 1e-3 / 1e9, rel=0.01)


def test_what_was_not_measured_is_none():
    row = rows.timed(override=1.0)
    row["providers"]["upstream"] = {"absent": "OutOfMemoryError"}
    timed = Timed(row)
    assert timed.ms("native") is timed.gbps("upstream") is timed.against("upstream") is timed.against_best() is None


def test_a_settled_provider_is_compared_over_the_rounds_it_has():
    row = rows.timed(override=1.0, native=8.0)
    del row["providers"]["native"]["samples_ms"][6:]
    assert Timed(row).against("native").comparison.rounds == 6


def test_a_difference_within_the_noise_of_the_session_is_none():
    row = rows.timed(override=1.0, native=1.05)
    assert Timed(row).against("native").verdict.word == FASTER
    assert Timed(row, noise=0.1).against("native").verdict.word == SAME


@pytest.mark.parametrize(
    ("providers", "word", "name"),
    [
        ({"native": 2.0, "upstream": 1.5, "liger": 3.0}, FASTER, "upstream"),
        ({"native": 2.0, "upstream": 1.0, "liger": 3.0}, SAME, "upstream"),
        ({"native": 0.9, "upstream": 1.0, "liger": 0.7}, SLOWER, "liger"),
    ],
)
def test_overall_is_the_worst_verdict_against_the_strongest_of_it(providers, word, name):
    overall = Timed(rows.timed(override=1.0, **providers)).overall()
    assert (overall.verdict.word, overall.name) == (word, name)


def test_a_wrong_answer_decides_nothing():
    row = rows.timed(override=1.0, native=2.0, upstream=0.5)
    row["providers"]["upstream"]["agrees"] = False
    timed = Timed(row)
    assert timed.overall().name == timed.against_best().name == "native"
    assert Timed(rows.timed(override=1.0)).overall() is None


def test_passes_are_bytes_moved_for_each_compulsory_byte():
    counted = Counted(rows.counted(loaded=3 * 65536, stored=65536 // 2, atomic=65536 // 2))
    assert counted.passes(counted.of("upstream")) == 1
    assert counted.passes(counted.override) == 2
    assert counted.of("liger") is None
    assert is_counted(counted.row)
    assert not is_counted(rows.timed(override=1.0))
    assert not is_counted(rows.timed(native=1.0))
