# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flag_gems_overrides.perf import roofline
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.perf.devices import H200

from . import rows


@pytest.mark.parametrize(
    ("key", "rows_and_size"),
    [
        ("softmax 64x512x512 dim=1 float32", (64 * 512, 512)),
        ("softmax 8x16 dim=-1 float32", (8, 16)),
        ("prod 1024 float32", (1, 1024)),
        ("layer_norm 4x16x64x4 float32", (4, 16 * 64 * 4)),
        ("layer_norm_backward 2x3x8 normalized=1 float32", (6, 8)),
        ("batch_norm 4x16x9x12 float32", (16, 4 * 9 * 12)),
        ("group_norm 2x6x4 groups=3 float32", (6, 8)),
        ("nll_loss_forward 8192x50257 float32", (8192, 50257)),
        ("nll_loss2d_backward 16x21x4x8 float32", (16 * 4 * 8, 21)),
        ("cross_entropy_loss 64x1000 gradient=1 float32", (64, 1000)),
    ],
)
def test_extent(key, rows_and_size):
    assert repr(roofline.extent(parse(key))) == repr(rows_and_size), "of integers"


def test_softmax_makes_five_operations_of_eight_bytes():
    case = parse("softmax 4096x4096 dim=1 float32")
    necessary = {"read": 4 * 4096**2, "written": 4 * 4096**2}
    assert roofline.intensity(case, necessary) == 5 / 8


@pytest.mark.parametrize(
    ("l2", "size", "expected"), [("cold", 1 << 20, 2 << 20), ("hot", 1 << 20, 0), ("hot", 1 << 26, 2 << 26)]
)
def test_only_a_hot_cache_that_holds_the_tensors_saves_memory_traffic(l2, size, expected):
    assert roofline.dram_bytes({"read": size, "written": size}, H200.l2_bytes, l2) == expected


def launch(programs: int, warps: int = 8, registers: int = 32) -> dict:
    options = {"num_warps": warps}
    return {"grid": [programs, 1, 1], "options": options, "registers": registers, "shared_bytes": 0}


def test_estimates_order_as_devices_do():
    necessary = {"read": 1 << 28, "written": 1 << 28}
    estimate = lambda *launches: roofline.estimate_ms(necessary, launches, H200)  # noqa: E731
    full = estimate(launch(132 * 8 * 4))
    copy = (1 << 29) / H200.copy_gbps / 1e6
    assert copy < full < 1.1 * copy
    assert estimate(launch(16)) > 5 * full, "a few programs cannot draw the bandwidth"
    assert estimate(launch(132 * 8 + 1)) > 1.5 * full, "nor an almost empty second wave"
    assert estimate(launch(132 * 8 * 4), launch(1)) > full, "a second launch costs"


def test_cold_times_are_interpolated_by_logarithms_and_extrapolated_by_bandwidth():
    def cold(read: int, written: int) -> float | None:
        return roofline.cold_ms(rows.COLD, {"read": read, "written": written})

    mib = 1 << 20
    assert cold(2 * mib, 2 * mib) == pytest.approx(5e-3)
    assert cold(8 * mib, 8 * mib) == pytest.approx(17e-3)
    assert cold(round(4 * 2**0.5 * mib), round(4 * 2**0.5 * mib)) == pytest.approx((9 * 17) ** 0.5 * 1e-3, rel=1e-6)
    assert cold(512 * mib, 512 * mib) == pytest.approx(64 * 17e-3)
    assert cold(4 * mib, 1) == pytest.approx(2.5e-3, rel=1e-6), "a reduction is like a read"
    assert cold(2 * mib, mib) is None, "less than was measured"


def test_estimates_are_of_cases_that_say_what_they_launch():
    with_launches = {**rows.timed(override=2.0), "launches": [launch(132 * 8)]}
    estimated, measured = roofline.estimates(H200, [rows.timed(override=1.0), with_launches, rows.timed(native=1.0)])
    assert measured == [pytest.approx(2.0, rel=0.01)]
    assert len(estimated) == 1


def test_rank_correlation_is_of_order_alone():
    assert roofline.rank_correlation([1, 2, 3, 4], [10, 100, 1000, 1e6]) == pytest.approx(1)
    assert roofline.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
