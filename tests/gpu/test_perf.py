# SPDX-License-Identifier: Apache-2.0
"""The timer on a real device: facts that hold on any GPU, no figures."""

from __future__ import annotations

import os

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="times, and other workers are on the same device"),
]


@pytest.fixture(scope="module")
def timer():
    from flag_gems_overrides.perf.timing import Timer

    return Timer(torch.device("cuda", torch.cuda.current_device()))


def median(samples):
    return sorted(samples)[len(samples) // 2]


def test_twice_the_bytes_take_about_twice_the_time(timer):
    small, large = (torch.zeros(n, device="cuda") for n in (1 << 26, 1 << 27))
    times = timer.device_times({"small": [small.clone], "large": [large.clone]}).samples_ms
    assert 1.8 < median(times["large"]) / median(times["small"]) < 2.2


def test_a_slow_host_does_not_show_in_device_time(timer):
    x = torch.zeros(1 << 20, device="cuda")

    def dawdling():
        for _ in range(20000):
            pass
        return x.clone()

    times = timer.device_times({"prompt": [x.clone] * 2, "dawdling": [dawdling] * 2}).samples_ms
    assert median(times["dawdling"]) < 1.5 * median(times["prompt"])
    host = timer.host_times({"prompt": x.clone, "dawdling": dawdling}, {}, wait=False).samples_ms
    assert median(host["dawdling"]) > 1.5 * median(host["prompt"])


def test_a_flushed_cache_costs(timer):
    x = torch.zeros(1 << 22, device="cuda")  # 16 MiB in, 16 MiB out: fits the cache
    cold, hot = (median(timer.device_times({"x": [x.clone]}, cold=cold).samples_ms["x"]) for cold in (True, False))
    assert cold > 1.1 * hot


def test_roofs_are_plausible(timer):
    copy, read = timer.bandwidth()
    assert 100 < copy < 10000
    assert 0.9 * copy < read < 2 * copy


def test_cold_copies_grow_and_are_no_faster_than_large_ones(timer):
    cold = timer.cold()
    copy, _ = timer.bandwidth()
    for name in ("copy_us", "read_us"):
        assert cold[name][-1] > 4 * cold[name][0]
    assert all(size / us / 1e3 < 1.1 * copy for size, us in zip(cold["bytes"], cold["copy_us"], strict=True))


def test_a_case_is_measured_into_a_valid_row(timer):
    from flag_gems_overrides.perf import records
    from flag_gems_overrides.perf.cases import parse
    from flag_gems_overrides.perf.meters import DeviceMeter

    row = DeviceMeter("kernel", "core").measure(parse("softmax 512x1024 dim=1 bfloat16"))
    records.check({"kind": "case", **row}, "row")
    assert all(provider["agrees"] for provider in row["providers"].values())
    assert {"native", "upstream", "override"} <= row["providers"].keys()
    assert all(launch["spilled_bytes"] == 0 for launch in row["launches"])


def test_a_trace_names_the_kernel_and_where_it_was_called(tmp_path):
    from flag_gems_overrides.perf.cases import parse
    from flag_gems_overrides.perf.profile import trace

    table = trace(parse("softmax 512x1024 dim=1 bfloat16"), tmp_path)
    assert "launch softmax" in table
    assert "softmax" in (tmp_path / "trace.json").read_text()
    assert "softmax" in (tmp_path / "stacks.txt").read_text()
