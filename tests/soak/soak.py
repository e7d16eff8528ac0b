# SPDX-License-Identifier: Apache-2.0
"""All overrides, over and over, from several threads on streams of their own: right answers, no leak, no new kernels.
``tox run -e soak``.

Environment: SOAK_SECONDS, how long; SOAK_RECORD, a file for what came of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pynvml
import pytest
import torch
from kernels import KERNELS, PREPARED

import flag_gems_overrides
from flag_gems_overrides.perf import baselines, conditions
from flag_gems_overrides.perf.launches import captured
from flag_gems_overrides.registration import upstream
from soak.pool import ON_GPU, Call, draw

SECONDS = float(os.environ.get("SOAK_SECONDS", 1200 if ON_GPU else 20))
THREADS = 4
STREAMS_PER_THREAD = 2
# Calls before a thread switches to another of its streams. After so many switches it waits for a result and checks it.
BURST, BURSTS_PER_CHECK = 16, 16 if ON_GPU else 1
SAMPLES = 200
# More in the last quarter than in the second is a leak: of a byte for each call, in 10 million.
GROWTH_BYTES, GROWTH = 16 * 2**20, 0.01
MAX_MESSAGES = 20
pytestmark = [
    pytest.mark.timeout(SECONDS + 1800),
    pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0"),
]


@dataclass
class Count:
    """Of one thread."""

    calls: int = 0
    checked: int = 0
    wrong: int = 0
    messages: list[str] = field(default_factory=list)


@dataclass
class Sample:
    """At one moment. Bytes; of a device None where there is none."""

    rss: int
    allocated: int | None
    reserved: int | None
    used: int | None
    variants: int
    prepared: int


@dataclass
class Record:
    device: dict
    versions: dict
    commit: str | None
    seconds: float
    threads: int
    streams: int
    pool: int
    calls: int
    checked: int
    wrong: int
    messages: list[str]
    early: dict
    """Medians of the second quarter."""
    late: dict
    """Medians of the last one."""


@pytest.fixture(scope="module")
def record(device_of_module: str) -> Record:
    import flag_gems

    with flag_gems_overrides.use_overrides() as dispatched:
        pass
    calls = draw(random.Random(0), dispatched, device_of_module)
    # Once, here: the dispatcher is the same for all threads.
    with flag_gems_overrides.use_overrides(), upstream.use_gems(flag_gems, dispatched):
        with captured() as launches:
            for call in calls:
                before = len(launches)
                assert call.is_answered_right(), f"{call.name}: other bits than before"
                assert len(launches) > before, f"{call.name}: no kernel of ours"
        record = _soak(calls)
    if "SOAK_RECORD" in os.environ:
        baselines.write(Path(os.environ["SOAK_RECORD"]), json.dumps(asdict(record), indent=1) + "\n")
    print(json.dumps(asdict(record), indent=1))
    return record


@pytest.fixture(scope="module")
def device_of_module() -> str:
    return "cuda" if ON_GPU else "cpu"


def _soak(calls: list[Call]) -> Record:
    counts = [Count() for _ in range(THREADS)]
    samples: list[Sample] = []
    stop = threading.Event()
    start = time.monotonic()
    if ON_GPU:
        torch.cuda.synchronize()
    with ThreadPoolExecutor(THREADS) as threads:
        working = [threads.submit(_work, number, calls, count, stop) for number, count in enumerate(counts)]
        while not stop.is_set():
            failed, _ = wait(working, SECONDS / SAMPLES, FIRST_EXCEPTION)
            samples.append(_sample())
            if failed or time.monotonic() > start + SECONDS:
                stop.set()
    for each in working:
        each.result()
    quarter = len(samples) // 4
    head = conditions.head("soak", "")
    return Record(
        device=head["device"],
        versions=head["versions"],
        commit=head["commit"],
        seconds=round(time.monotonic() - start, 1),
        threads=THREADS,
        streams=THREADS * STREAMS_PER_THREAD if ON_GPU else 0,
        pool=len(calls),
        calls=sum(count.calls for count in counts),
        checked=sum(count.checked for count in counts),
        wrong=sum(count.wrong for count in counts),
        messages=[message for count in counts for message in count.messages][:MAX_MESSAGES],
        early=_medians(samples[quarter : 2 * quarter]),
        late=_medians(samples[-quarter:]),
    )


def _work(thread: int, calls: list[Call], count: Count, stop: threading.Event) -> None:
    chance = random.Random(thread)
    streams = [torch.cuda.Stream() if ON_GPU else None for _ in range(STREAMS_PER_THREAD)]
    burst = 0
    while not stop.is_set():
        burst += 1
        number = chance.randrange(STREAMS_PER_THREAD)
        with torch.cuda.stream(streams[number]) if ON_GPU else contextlib.nullcontext():
            *unseen, seen = chance.choices(calls, k=BURST)
            for call in unseen:
                call.run()
            if burst % BURSTS_PER_CHECK:
                seen.run()
            else:
                count.checked += 1
                if not seen.is_answered_right():
                    count.wrong += 1
                    where = f"thread {thread}, stream {number}, its call {count.calls + BURST}"
                    count.messages = [*count.messages, f"{seen.name}: {where}"][:MAX_MESSAGES]
        count.calls += BURST


def _sample() -> Sample:
    rss = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    compiled = (cache for kernel in KERNELS.values() for cache in kernel.jit_function.device_caches.values())
    variants = sum(len(kernels) + len(keys) for kernels, keys, *_ in compiled)
    prepared = sum(cache.cache_info().currsize for cache in PREPARED)
    if not ON_GPU:
        return Sample(rss, None, None, None, variants, prepared)
    return Sample(rss, torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), _used(), variants, prepared)


def _used() -> int:
    """By this process; by all on the device where NVML does not know it, for a container gives it another number."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(
        f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    )
    ours = [each for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if each.pid == os.getpid()]
    used: int | None = ours[0].usedGpuMemory if ours else None
    return used or pynvml.nvmlDeviceGetMemoryInfo(handle).used


def _medians(samples: list[Sample]) -> dict[str, float]:
    rows = [asdict(sample) for sample in samples]
    return {name: statistics.median(row[name] for row in rows) for name in rows[0] if rows[0][name] is not None}


def test_every_answer_was_right(record: Record):
    assert record.checked > 0
    assert record.wrong == 0, "\n".join(record.messages)


@pytest.mark.parametrize("kind", ["rss", "allocated", "reserved", "used"])
def test_memory_was_flat(kind: str, record: Record):
    if kind not in record.early:
        pytest.skip("no device memory")
    early, late = record.early[kind], record.late[kind]
    assert late - early <= max(GROWTH_BYTES, GROWTH * early), f"from {early / 2**20:.1f} to {late / 2**20:.1f} MiB"


@pytest.mark.parametrize("kind", ["variants", "prepared"])
def test_no_kernel_was_compiled_and_no_launch_prepared_after_the_first_pass(kind: str, record: Record):
    assert record.late[kind] == record.early[kind]
