# SPDX-License-Identifier: Apache-2.0
"""The tuner on a family of our own and a clock of our own."""

from __future__ import annotations

import os
import sys

import pytest

from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf.tune import measuring
from flag_gems_overrides.perf.tune.candidates import candidates
from perf.tune.made import LIMITS, Clock, point


def test_what_beats_the_default_is_looked_at_twice_and_kept():
    clock = Clock(w1=8.0, w2=7.0)
    tuner = measuring.Tuner(clock)
    family, row, us = tuner.measure(point(), candidates(point(), LIMITS))
    assert dict(us) == {("rows", 1): 8.0, ("rows", 2): 7.0, **{("rows", warps): 10.0 for warps in (4, 8, 16, 32)}}
    assert family == "fake_family"
    assert row == table.Row((64, 32, 1, 4), ("rows", 2), 7.0, 10.0, 8.0, pytest.approx(16384 / 7.0 / 1e3 / 4000, 1e-2))
    assert clock.looks == [{4, 1, 2, 8, 16, 32}, {4, 1, 2}]


@pytest.mark.parametrize("us", [9.95, 10.0, 11.0])
def test_what_does_not_beat_it_by_enough_leaves_the_default(us):
    tuner = measuring.Tuner(Clock(w1=us))
    row = tuner.measure(point(), candidates(point(), LIMITS)).row
    assert row.configuration is None
    assert (row.us, row.default_us) == (10.0, 10.0)


def test_wrong_answers_and_failures_are_said_and_never_chosen():
    tuner = measuring.Tuner(Clock(w3=1.0, w5=1.0))
    assert tuner.measure(point(), candidates(point(), LIMITS)).row.configuration is None
    assert tuner.errors == [
        "softmax 64x32 dim=1 float32: ('rows', 3): its answer is not PyTorch's",
        "softmax 64x32 dim=1 float32: ('rows', 5): ValueError: 5 warps are none",
    ]


def test_workers_launch_every_candidate(monkeypatch):
    monkeypatch.setattr(measuring, "processes", lambda: 1)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("FAKE_ENDS", "2")
    died = measuring.compile_all({point(): candidates(point(), LIMITS)}, 300)
    assert list(died) == [("perf.tune.fake_family", "softmax 64x32 dim=1 float32", ("rows", 2))]
    tuner = measuring.Tuner(Clock())
    tuner.died = died
    tuner.measure(point(), candidates(point(), LIMITS))
    assert "its process ended with status 1" in tuner.errors[0]
