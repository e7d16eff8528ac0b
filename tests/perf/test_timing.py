# SPDX-License-Identifier: Apache-2.0
"""The order and choice of rounds, on a clock of our own; tests/gpu times for real."""

from __future__ import annotations

import pytest
import torch

from flag_gems_overrides.perf import timing
from flag_gems_overrides.perf.clocks import Reading
from flag_gems_overrides.perf.timing import COLD_BYTES, SETTLED_ROUNDS, Timer, Times


class Clock:
    """Reads what it was told, then full speed."""

    def __init__(self, *readings: Reading | None) -> None:
        self._readings = list(readings)

    def read(self) -> Reading | None:
        return self._readings.pop(0) if self._readings else Reading(1980, throttled=False)


@pytest.fixture
def timer(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(timing, "COOLING_SECONDS", 0.0)
    made = Timer.__new__(Timer)
    made.device, made._clocks, made._l2_bytes = torch.device("cpu"), Clock(), 60 << 20
    return made


def rounds(timer, durations: dict[str, float], count: int = 20):
    order = []

    def sample(name):
        order.append(name)
        return lambda: durations[name]

    return timer._rounds(list(durations), sample, count), order


def test_a_round_is_a_palindrome_and_the_next_starts_with_another(timer):
    times, order = rounds(timer, {"a": 1.0, "b": 1.0, "c": 1.0}, count=3)
    assert order == [*"abccba", *"bcaacb", *"cabbac"]
    assert {name: len(samples) for name, samples in times.samples_ms.items()} == {"a": 3, "b": 3, "c": 3}


def test_even_drift_weighs_on_all_alike(timer):
    elapsed = iter(range(1000))
    times = timer._rounds(["a", "b"], lambda name: (lambda at: lambda: 1.0 + at)(next(elapsed)), 10)
    assert times.samples_ms["a"] == times.samples_ms["b"]


def test_throttled_rounds_are_dropped_counted_and_made_up_for(timer):
    timer._clocks = Clock(Reading(1200, throttled=True), Reading(1300, throttled=False), Reading(1980, throttled=True))
    times, _ = rounds(timer, {"a": 1.0, "b": 2.0})
    assert times.dropped == 2
    assert len(times.samples_ms["a"]) == len(times.samples_ms["b"]) == 20
    assert times.clock_mhz == (1200, 1980)


def test_a_device_that_stays_throttled_ends_with_what_there_is(timer):
    timer._clocks = Clock(Reading(1980, throttled=False), *[Reading(900, throttled=True)] * 100)
    times, _ = rounds(timer, {"a": 1.0})
    assert times.samples_ms == {"a": [1.0]}
    assert times.dropped == 39


def test_a_device_that_was_always_throttled_has_no_times(timer):
    timer._clocks = Clock(*[Reading(900, throttled=True)] * 100)
    with pytest.raises(timing.ThrottledError, match="each of 40 rounds, at 900 to 900 MHz"):
        rounds(timer, {"a": 1.0})


def test_a_throttled_device_is_given_time_to_cool_down(timer, monkeypatch):
    pauses = []
    monkeypatch.setattr(timing.time, "sleep", pauses.append)
    timer._clocks = Clock(*[Reading(1200, throttled=True)] * 3)
    rounds(timer, {"a": 1.0})
    assert pauses == [timing.COOLING_SECONDS] * 3


def test_without_a_clock_every_round_counts(timer):
    timer._clocks = Clock(*[None] * 100)
    times, _ = rounds(timer, {"a": 1.0})
    assert times.clock_mhz is None
    assert len(times.samples_ms["a"]) == 20


def test_who_is_far_behind_is_settled_early(timer):
    times, order = rounds(timer, {"fast": 1.0, "near": 3.9, "far": 4.1})
    assert len(times.samples_ms["far"]) == SETTLED_ROUNDS == order.count("far") // 2
    assert len(times.samples_ms["near"]) == len(times.samples_ms["fast"]) == 20


@pytest.mark.parametrize(("call_bytes", "calls"), [(0, 8), (1 << 20, 8), (10 << 20, 3), (31 << 20, 1), (1 << 30, 1)])
def test_short_calls_are_grouped_within_half_the_cache(timer, call_bytes, calls):
    assert timer.group(call_bytes) == calls


def test_cold_copies_and_reads_move_as_many_bytes_and_are_grouped_like_cases(timer, monkeypatch):
    class Memory:
        def __init__(self, size, device):
            assert device == timer.device
            self._size = size

        def copy(self):
            return self._size

        def read(self, tiles):
            return self._size // 2

    moved = []

    def device_times(providers):
        copies, *reads = providers.values()
        moved.append({call() for calls in providers.values() for call in calls})
        assert len(copies) == len(reads[0]) == len(reads[1]) == timer.group(copies[0]())
        return Times({name: [ms] for name, ms in zip(providers, (0.02, 0.012, 0.01), strict=True)})

    monkeypatch.setattr(timing, "Memory", Memory)
    monkeypatch.setattr(timer, "device_times", device_times)
    cold = timer.cold()
    assert moved == [{size} for size in COLD_BYTES]
    sizes = len(COLD_BYTES)
    assert cold == {"bytes": list(COLD_BYTES), "copy_us": [20.0] * sizes, "read_us": [10.0] * sizes}
