# SPDX-License-Identifier: Apache-2.0
"""What the timer says of a device whose every call takes a known time; tests/gpu times for real."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest
import torch

from flag_gems_overrides.perf import timing
from flag_gems_overrides.perf.clocks import Clocks, Reading, pynvml
from flag_gems_overrides.perf.timing import HOST_CALLS, HOST_ROUNDS, Timer

DEVICE = torch.device("cuda", 3)
CYCLES_PER_MS, L2_BYTES, LOAD_MS, FILL_MS = 1.5e6, 1 << 20, 7.0, 0.25


class Gpu:
    """A host and a device on clocks of our own, in milliseconds. What is queued starts when the device is free."""

    def __init__(self) -> None:
        self.host = self.device = 0.0
        self.fills, self.loaded = 0, False

    def queue(self, ms: float) -> None:
        self.device = max(self.device, self.host) + ms

    def call(self, host: float, device: float):
        def call() -> None:
            self.host += host
            self.queue(device)

        return call

    def sleep(self, cycles: int) -> None:
        self.queue(cycles / CYCLES_PER_MS + (0 if self.loaded else LOAD_MS))
        self.loaded = True

    def synchronize(self, device: torch.device) -> None:
        assert device == DEVICE
        self.host = max(self.host, self.device)

    def event(self, enable_timing: bool):
        assert enable_timing
        return Event(self)

    def memory(self, size: int, device: torch.device):
        """Copies 2 GB/s, reads 4 GB/s."""
        assert device == DEVICE

        def fill() -> None:
            assert size == 4 * L2_BYTES
            self.fills += 1
            self.queue(FILL_MS)

        def moved(gbps: float, part: int):
            self.queue(size / part / gbps / 1e6)
            return size // part

        return SimpleNamespace(fill=fill, copy=lambda: moved(2.0, 1), read=lambda: moved(4.0, 2))


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def record(self) -> None:
        self.at = max(self.gpu.host, self.gpu.device)

    def query(self) -> bool:
        return self.at <= self.gpu.host

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "_sleep", gpu.sleep)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=L2_BYTES))
    monkeypatch.setattr(timing, "Memory", gpu.memory)
    monkeypatch.setattr(timing, "Clocks", lambda index: SimpleNamespace(index=index, read=lambda: None))
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: gpu.host / 1e3))
    return gpu


@pytest.fixture
def timer(gpu):
    return Timer(DEVICE)


def test_the_clock_rises_before_a_pause_is_measured_and_its_first_run_does_not_count(gpu, timer):
    assert timer._cycles_per_ms == pytest.approx(CYCLES_PER_MS)
    assert gpu.fills == pytest.approx(300 / FILL_MS, abs=1)
    assert timer._clocks.index == DEVICE.index
    assert timer.device == DEVICE


@pytest.mark.parametrize("host", [0.001, 0.04])
def test_gaps_of_the_host_are_not_in_a_time_of_the_device(gpu, timer, host):
    times = timer.device_times({"a": [gpu.call(host, 0.01)] * 8, "b": [gpu.call(host, 0.03)]})
    assert times.samples_ms["a"] == pytest.approx([0.01] * timing.ROUNDS)
    assert times.samples_ms["b"] == pytest.approx([0.03] * timing.ROUNDS)


def test_a_host_that_becomes_slower_is_noticed(gpu, timer):
    calls = iter(range(10**6))

    def call() -> None:
        gpu.host += 0.001 if next(calls) < 2000 else 0.1
        gpu.queue(0.01)

    times = timer.device_times({"a": [call] * 4}, effort=50)
    assert next(calls) > 3000, "the host did become slower"
    assert times.samples_ms["a"] == pytest.approx([0.01] * 50 * timing.ROUNDS)


def test_a_call_that_waits_for_the_device_is_timed_all_the_same(gpu, timer):
    def call() -> None:
        gpu.queue(0.2)
        gpu.synchronize(DEVICE)
        gpu.host += 0.1

    start = gpu.host
    times = timer.device_times({"a": [call] * 2, "b": [gpu.call(0.01, 0.3)]})
    # The gaps of the host are a part of what it costs.
    assert times.samples_ms["a"] == pytest.approx([0.3] * timing.ROUNDS)
    assert times.samples_ms["b"] == pytest.approx([0.3] * timing.ROUNDS)
    assert gpu.host - start < 5000


def test_the_cache_is_flushed_before_each_sample_unless_it_is_to_be_warm(gpu, timer):
    for cold in (True, False):
        gpu.fills = 0
        timer.device_times({"a": [gpu.call(0.001, 0.5)]}, cold=cold)
        assert gpu.fills == (2 * timing.ROUNDS if cold else 0)


@pytest.mark.parametrize(("host", "calls"), [(20.0, 3), (0.4, 75), (0.01, 100)])
def test_warm_up_lasts_its_time_but_no_less_than_three_and_no_more_than_a_hundred_rounds(gpu, timer, host, calls):
    ran = []

    def call() -> None:
        ran.append(1)
        gpu.host += host

    assert timer._warm_up([call]) == pytest.approx(host)
    assert len(ran) == pytest.approx(calls, abs=1 if calls == 75 else 0)


# Of 50 calls of 0.1 ms the first is queued after 0.02 ms.
@pytest.mark.parametrize(("wait", "ms"), [(False, 0.02), (True, 0.1 + 0.02 / HOST_CALLS)])
def test_a_time_of_the_host_is_of_one_call_with_or_without_the_devices(gpu, timer, wait, ms):
    times = timer.host_times({"a": gpu.call(0.02, 0.1)}, {}, wait)
    assert times.samples_ms["a"] == pytest.approx([ms] * HOST_ROUNDS)
    assert len(timer.host_times({"a": gpu.call(0.02, 0.1)}, {}, wait, effort=3).samples_ms["a"]) == 3 * HOST_ROUNDS


def test_a_call_of_the_host_runs_in_its_context(gpu, timer):
    class Context:
        inside = False

        def __enter__(self):
            self.inside = True

        def __exit__(self, *_):
            self.inside = False

    context, seen = Context(), {"in": set(), "out": set()}

    def call(name: str) -> None:
        gpu.host += 0.01
        seen[name].add(context.inside)

    providers = {name: functools.partial(call, name) for name in seen}
    timer.host_times(providers, {"in": lambda: context}, wait=False)
    assert seen == {"in": {True}, "out": {False}}


def test_bandwidth_is_of_all_bytes_that_move_and_of_a_warm_cache(gpu, timer):
    gpu.fills = 0
    assert timer.bandwidth(1 << 24) == pytest.approx((2.0, 4.0))
    assert gpu.fills == 0


class TestClocks:
    @pytest.fixture
    def nvml(self, monkeypatch):
        """A GPU of one name at 1755 of 1980 MHz; ``reasons`` says why it is slow."""
        nvml = SimpleNamespace(reasons=0)
        answers = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByUUID": {"GPU-abc": "handle"}.__getitem__,
            "nvmlDeviceGetClockInfo": lambda handle, which: {("handle", pynvml.NVML_CLOCK_SM): 1755}[handle, which],
            "nvmlDeviceGetMaxClockInfo": lambda handle, which: {("handle", pynvml.NVML_CLOCK_SM): 1980}[handle, which],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: {"handle": nvml.reasons}[handle],
            "nvmlSystemGetDriverVersion": lambda: "580.1",
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)
        uuids = {3: SimpleNamespace(uuid="abc")}
        monkeypatch.setattr(torch.cuda, "get_device_properties", uuids.__getitem__)
        return nvml

    def test_the_clock_of_the_device_that_was_asked_for(self, nvml):
        assert Clocks(3).read() == Reading(1755, False)
        assert Clocks(3).describe() == {"driver": "580.1", "max_clock_mhz": 1980}

    @pytest.mark.parametrize(
        ("reason", "throttled"),
        [
            ("SwThermalSlowdown", True),
            ("HwThermalSlowdown", True),
            ("HwPowerBrakeSlowdown", True),
            ("HwSlowdown", True),
            ("SwPowerCap", True),
            ("GpuIdle", False),
            ("ApplicationsClocksSetting", False),
        ],
    )
    def test_heat_and_power_throttle_and_a_limit_that_someone_set_does_not(self, nvml, reason, throttled):
        nvml.reasons = getattr(pynvml, f"nvmlClocksEventReason{reason}")
        assert Clocks(3).read() == Reading(1755, throttled)

    @pytest.mark.parametrize("silent", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
    def test_where_nvml_does_not_answer_there_is_no_reading(self, nvml, monkeypatch, silent):
        def refuse(*_):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

        monkeypatch.setattr(pynvml, silent, refuse)
        assert Clocks(3).read() is None
        assert Clocks(3).describe() == {}

    def test_a_clock_that_cannot_be_read_is_no_reading(self, nvml, monkeypatch):
        clocks = Clocks(3)

        def refuse(*_):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

        monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", refuse)
        assert clocks.read() is None
