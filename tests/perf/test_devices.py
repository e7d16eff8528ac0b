# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flag_gems_overrides.perf.devices import A100, H200, KNOWN, here, occupancy


@pytest.mark.parametrize(
    ("gpu", "warps", "registers", "shared", "expected"),
    [
        (H200, 4, 32, 0, 1.0),
        (H200, 4, 128, 0, 0.25),  # 65536 / (128 * 128) = 4 programs of 128 threads
        (H200, 16, 64, 0, 0.5),
        (H200, 8, 255, 0, 0.125),  # rounded up to 256 registers
        (H200, 4, 32, 100 << 10, 0.125),  # 2 programs by shared memory
        (A100, 4, 32, 100 << 10, 0.0625),
        (H200, 1, 152, 0, 0.1875),  # 3 in each quarter, of which 16384 / (152 * 32) = 3.4 would fit
        (H200, 1, 102, 0, 0.25),  # 3264 registers of a warp become 3328: 4 in each quarter, not 5
        (H200, 12, 0, 0, 0.9375),  # 5 programs of 384 threads, and 128 threads are left over
        (H200, 12, 64, 0, 0.375),  # registers for 32 warps: 2 programs, and 8 warps are left over
        (H200, 1, 16, 0, 0.5),  # 32 programs at most
    ],
)
def test_occupancy_by_hand(gpu, warps, registers, shared, expected):
    assert occupancy(gpu, warps, registers, shared) == expected


@given(st.sampled_from(KNOWN), st.sampled_from([1, 2, 4, 8, 16]), st.integers(16, 128), st.integers(0, 160 << 10))
def test_occupancy_never_rises_with_what_a_program_takes(gpu, warps, registers, shared):
    at = occupancy(gpu, warps, registers, shared)
    assert 0 <= at <= 1
    assert occupancy(gpu, warps, registers + 8, shared) <= at
    assert occupancy(gpu, warps, registers, shared + 1024) <= at


def test_an_h100_is_planned_for_as_it_is_and_not_as_an_h200_of_as_many_multiprocessors(monkeypatch):
    h100 = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        major=9,
        minor=0,
        multi_processor_count=132,
        L2_cache_size=50 << 20,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block_optin=227 << 10,
        shared_memory_per_multiprocessor=228 << 10,
        regs_per_multiprocessor=65536,
    )
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {3: h100}.get)
    *sizes, copy_gbps, read_gbps = here()
    assert tuple(sizes) == H200._replace(name=h100.name, l2_bytes=50 << 20)[:-2]
    assert math.isnan(copy_gbps)
    assert math.isnan(read_gbps)
