# SPDX-License-Identifier: Apache-2.0
"""Times of several functions on a GPU, interleaved so that they can be compared.

A round runs every function twice, in the order A B C C B A, and counts the mean of the two: what drifts evenly
over a round (clock, temperature) weighs on all alike. The next round starts with another function.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.clocks import Clocks
from flag_gems_overrides.perf.memory import READ_TILES, Memory

ROUNDS = 20
# A provider that takes this many times as long as the fastest is settled after this many rounds.
SETTLED_RATIO, SETTLED_ROUNDS = 4.0, 6
WARM_UP_SECONDS = 0.03
# NVML calls a device throttled for some tenths of a second longer: 40 rounds of a short kernel are over sooner.
COOLING_SECONDS = 0.1
# What the host may need to queue the flush and the events of a sample; too little is noticed and doubled.
_QUEUEING_MS = 0.05
_ATTEMPTS = 4
# No pause is long enough for a call that itself waits for the device, as FlagGems' gradient of cross entropy does.
_MAX_PAUSE_MS = 50.0
_MAX_GROUP = 8
# Host time is taken over this many calls: few enough that the launch queue (1024 entries) never makes them wait.
HOST_CALLS, HOST_ROUNDS = 50, 10
# From little more than a launch takes to several times the cache of an H200: from there on bandwidth says enough.
COLD_BYTES = tuple(1 << exponent for exponent in range(22, 29))

Calls = Sequence[Callable[[], Any]]
Contexts = Mapping[str, Callable[[], AbstractContextManager]]


@dataclass
class Times:
    """Milliseconds per call and round of each provider; round i of one belongs to round i of the others."""

    samples_ms: dict[str, list[float]] = field(default_factory=dict)
    dropped: int = 0
    """Rounds that are not counted because the device was throttled."""
    clock_mhz: tuple[int, int] | None = None
    """Lowest and highest SM clock beside the rounds."""


class ThrottledError(UserError):
    """Not one round went by at full speed."""


class Timer:
    """Measures on one GPU. Its times raise ThrottledError if the device never runs at full speed."""

    def __init__(self, device: torch.device, rounds: int = ROUNDS, warm_up_seconds: float = WARM_UP_SECONDS) -> None:
        properties = torch.cuda.get_device_properties(device)
        self.device = device
        self._rounds_at_least = rounds
        self._warm_up_seconds = warm_up_seconds
        self._l2_bytes = properties.L2_cache_size
        self._clocks = Clocks(device.index or 0)
        # Half of it is what a flush writes: twice the cache.
        self._memory = Memory(4 * self._l2_bytes, device)
        self._cycles_per_ms = 0.0
        self._calibrate()

    def group(self, call_bytes: int) -> int:
        """How many calls that move so many bytes make one sample, each on inputs of its own: as many as fit half the
        cache, so that every call is cold and the resolution of an event (0.5 us) a small part of the sample."""
        return max(1, min(_MAX_GROUP, self._l2_bytes // 2 // max(1, call_bytes)))

    def device_times(self, providers: Mapping[str, Calls], cold: bool = True, effort: int = 1) -> Times:
        """Time on the device. Launches are queued behind a pause on the device, so that no gap of the host's is in
        it.

        Args:
            providers: for each name the calls that one sample times together, on different inputs; the
                sample is the time of one.
            cold: flush the L2 cache before each sample.
        """
        pauses = {name: min(self._warm_up(calls) + _QUEUEING_MS, _MAX_PAUSE_MS) for name, calls in providers.items()}

        def sample(name: str) -> Callable[[], float]:
            calls = providers[name]
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(_ATTEMPTS):
                torch.cuda._sleep(int(pauses[name] * self._cycles_per_ms))
                if cold:
                    self._memory.fill()
                start.record()
                for call in calls:
                    call()
                end.record()
                if not start.query() or pauses[name] == _MAX_PAUSE_MS:
                    break
                # The device was there before the last call was queued: it may have waited in between.
                pauses[name] = min(2 * pauses[name], _MAX_PAUSE_MS)
            return lambda: start.elapsed_time(end) / len(calls)

        return self._rounds(list(providers), sample, effort * self._rounds_at_least)

    def host_times(
        self, providers: Mapping[str, Callable[[], Any]], contexts: Contexts, wait: bool, effort: int = 1
    ) -> Times:
        """Time on the host for each call, with (``wait``) or without that of the device when it ends last."""

        def sample(name: str) -> Callable[[], float]:
            call = providers[name]
            with contexts.get(name, nullcontext)():
                call()
                torch.cuda.synchronize(self.device)
                start = time.perf_counter()
                for _ in range(HOST_CALLS):
                    call()
                if wait:
                    torch.cuda.synchronize(self.device)
                elapsed = time.perf_counter() - start
                torch.cuda.synchronize(self.device)
            return lambda: elapsed * 1e3 / HOST_CALLS

        for name in providers:
            sample(name)
        return self._rounds(list(providers), sample, effort * HOST_ROUNDS)

    def bandwidth(self, size: int = 1 << 31) -> tuple[float, float]:
        """GB/s of copying (read and written) and of reading, over a buffer far larger than the cache."""
        memory = Memory(size, self.device)
        times = self.device_times({"copy": [memory.copy], "read": [memory.read]}, cold=False)
        copy, read = (_median(times, name) for name in ("copy", "read"))
        return memory.copy() / copy / 1e6, memory.read() / read / 1e6

    def cold(self) -> dict[str, list[Any]]:
        """Microseconds of a plain copy and of a plain read of so many bytes, each sample as cold as one of a case."""
        made: dict[str, list[Any]] = {"bytes": list(COLD_BYTES), "copy_us": [], "read_us": []}
        for size in COLD_BYTES:
            copies, reads = ([Memory(n, self.device) for _ in range(self.group(size))] for n in (size, 2 * size))
            providers: dict[str, Calls] = {"copy": [memory.copy for memory in copies]}
            # With fewer tiles per program, small reads fill the device.
            for tiles in (1, READ_TILES):
                providers[f"read {tiles}"] = [functools.partial(memory.read, tiles) for memory in reads]
            times = self.device_times(providers)
            copy, *read = (round(_median(times, name) * 1e3, 2) for name in providers)
            made["copy_us"].append(copy)
            made["read_us"].append(min(read))
        return made

    def _rounds(self, names: list[str], sample: Callable[[str], Callable[[], float]], rounds: int) -> Times:
        times = Times({name: [] for name in names})
        running, clocks = list(names), []
        for attempt in range(2 * rounds):
            first = attempt % len(running)
            order = running[first:] + running[:first]
            pending = [(name, sample(name)) for name in order + order[::-1]]
            torch.cuda.synchronize(self.device)
            reading = self._clocks.read()
            if reading is not None:
                clocks.append(reading.mhz)
                if reading.throttled:
                    times.dropped += 1
                    time.sleep(COOLING_SECONDS)
                    continue
            for name in running:
                pair = [result() for other, result in pending if other == name]
                times.samples_ms[name].append(sum(pair) / 2)
            done = max(map(len, times.samples_ms.values()))
            if done == rounds:
                break
            if done == SETTLED_ROUNDS:
                running = self._unsettled(times, running)
        times.clock_mhz = (min(clocks), max(clocks)) if clocks else None
        if not any(times.samples_ms.values()):
            raise ThrottledError(
                f"the device was throttled in each of {times.dropped} rounds, at {min(clocks)} to {max(clocks)} MHz: "
                "nvidia-smi -q -d PERFORMANCE says why; let it cool down, or free it of other work"
            )
        return times

    @staticmethod
    def _unsettled(times: Times, names: list[str]) -> list[str]:
        best = min(min(times.samples_ms[name]) for name in names)
        return [name for name in names if min(times.samples_ms[name]) < SETTLED_RATIO * best]

    def _warm_up(self, calls: Calls) -> float:
        """Run for a while; returns the host's milliseconds for one round of calls."""
        until = time.perf_counter() + self._warm_up_seconds
        host: list[float] = []
        while len(host) < 3 or (time.perf_counter() < until and len(host) < 100):
            torch.cuda.synchronize(self.device)
            start = time.perf_counter()
            for call in calls:
                call()
            host.append(time.perf_counter() - start)
        torch.cuda.synchronize(self.device)
        return sorted(host)[len(host) // 2] * 1e3

    def _calibrate(self) -> None:
        """Let the clock rise, then measure how long a pause takes."""
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:
            self._memory.fill()
            torch.cuda.synchronize(self.device)
        cycles = 200_000
        self._cycles_per_ms = cycles / self._elapsed(lambda: torch.cuda._sleep(cycles))

    def _elapsed(self, call: Callable[[], Any]) -> float:
        """The shortest of a few runs: the first one loads the kernel."""
        elapsed = []
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize(self.device)
            elapsed.append(start.elapsed_time(end))
        return min(elapsed)


def _median(times: Times, name: str) -> float:
    return float(torch.tensor(times.samples_ms[name]).median())
