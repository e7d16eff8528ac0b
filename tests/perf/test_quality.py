# SPDX-License-Identifier: Apache-2.0
"""The quality of the harness, on a clock that takes 1 us for a row and errs as much as it is told to."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.perf import conditions, op_inputs, quality, timing
from flag_gems_overrides.perf.timing import Times
from flag_gems_overrides.perf.verdict import MIN_NOISE

ALIKE = (quality.Case("softmax", (400, 2), "float32", (("dim", 1),)), quality.Case("max", (100,), "float32"))


class Clock:
    """``between`` is the relative error of a whole measurement, ``within`` that of a round."""

    device = torch.device("cpu")

    def __init__(self, between: float = 0.0, within: float = 0.002) -> None:
        self._between, self._within = between, within
        self._random = np.random.default_rng(0)
        self.sizes: list[tuple[int, int]] = []

    def group(self, call_bytes: int) -> int:
        return 3 if call_bytes > 1000 else 1

    def device_times(self, providers) -> Times:
        assert list(providers) == ["plain", "slowed"]
        samples = {}
        for name, calls in providers.items():
            # Inputs of their own, and the native function.
            assert len({call.args[0].data_ptr() for call in calls}) == len(calls)
            assert {call.func for call in calls} <= {op_inputs.native("softmax"), op_inputs.native("max")}
            error = np.exp(self._random.normal(0, self._between)) * np.exp(self._random.normal(0, self._within, 20))
            samples[name] = list(len(calls[0].args[0]) * 1e-3 * error)
        self.sizes.append(tuple(len(calls) for calls in providers.values()))
        return Times(samples)


@pytest.fixture(autouse=True)
def few_and_small(monkeypatch):
    monkeypatch.setattr(conditions, "device", lambda: {"name": "NVIDIA H200"})
    for name, value in (
        ("ALIKE", ALIKE),
        ("SLOWED", ALIKE[:1]),
        ("SLOWDOWNS", (0.0075, 0.1)),
        ("CALIBRATION_RUNS", 8),
        ("ALIKE_RUNS", 5),
        ("SLOWED_RUNS", 4),
    ):
        monkeypatch.setattr(quality, name, value)


def test_noise_is_what_the_same_function_differs_by():
    clock = Clock()
    assert quality.noise(clock) == MIN_NOISE
    assert clock.sizes == [(3, 3)] * 8 + [(1, 1)] * 8
    assert 0.05 < quality.noise(Clock(between=0.05)) < 0.2


def test_what_is_slower_is_found_and_what_is_alike_raises_no_alarm():
    found = quality.assess(Clock())
    assert found["schema"] == 1
    assert found["conditions"]["device"] == {"name": "NVIDIA H200"}
    assert (found["conditions"]["measure"], found["conditions"]["level"]) == ("kernel", "quality")
    assert found["noise"] == MIN_NOISE
    assert found["false_alarms"] == {"comparisons": 10, "found": 0}
    assert found["detected"] == {"1%": {"comparisons": 4, "found": 0}, "10%": {"comparisons": 4, "found": 4}}
    trials = [(trial["case"], trial["planted"], trial["verdicts"]) for trial in found["trials"]]
    assert trials == [
        (ALIKE[0].key, 0.0, {"SAME": 5}),
        (ALIKE[1].key, 0.0, {"SAME": 5}),
        (ALIKE[0].key, 0.0075, {"SAME": 4}),
        (ALIKE[0].key, 0.1, {"SLOWER": 4}),
    ]
    for trial in found["trials"]:
        assert trial["ratios"] == pytest.approx([1 / (1 + trial["planted"])] * len(trial["ratios"]), rel=0.003)
        assert trial["ratios"] == [round(ratio, 5) for ratio in trial["ratios"]]


def test_a_measurement_that_errs_raises_alarms(monkeypatch):
    monkeypatch.setattr(quality, "noise", lambda timer: MIN_NOISE)
    alarms = quality.assess(Clock(between=0.1))["false_alarms"]
    assert alarms["comparisons"] == 10
    assert alarms["found"] > 5


def test_the_command_writes_what_was_found(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(timing, "Timer", lambda device: Clock())
    ran = CliRunner().invoke(app, ["quality", "--folder", str(tmp_path / "made")])
    assert ran.exit_code == 0, ran.output
    path = tmp_path / "made" / "nvidia-h200.json"
    assert json.loads(path.read_text())["false_alarms"]["comparisons"] == 10
    assert ran.output.splitlines() == [
        "0 false alarms in 10 comparisons, noise 1.0%",
        "1% slower: found 0 of 4",
        "10% slower: found 4 of 4",
        f"wrote {path}",
    ]
