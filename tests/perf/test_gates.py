# SPDX-License-Identifier: Apache-2.0
"""Each planted fault turns exactly its own gate red."""

from __future__ import annotations

import numpy as np
import pytest

from flag_gems_overrides.perf import baselines, gates
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.results import Timed
from flag_gems_overrides.perf.statistics import geomean

from . import rows

KEYS = (
    "softmax 4096x4096 dim=1 bfloat16",
    "softmax 8192x8192 dim=1 bfloat16",
    "softmax 64x64 dim=1 bfloat16",
)


def accepted(tmp_path, head, *lines, reason=None):
    baselines.accept(tmp_path, Session(head, {line["key"]: line for line in lines}, ended=True), reason)
    return baselines.load(tmp_path, head["device"]["name"], lines[0]["key"].split()[0])


@pytest.fixture
def timed_baseline(tmp_path):
    return accepted(tmp_path, rows.head(), *(rows.timed(key, override=1.0, native=1.3, upstream=1.2) for key in KEYS))


@pytest.fixture
def counted_baseline(tmp_path):
    return accepted(tmp_path, rows.head("count"), rows.counted())


def rules(failures) -> list[str]:
    return [failure.rule for failure in failures]


def test_what_was_accepted_passes(timed_baseline, counted_baseline):
    again = [rows.timed(key, override=1.0, native=1.3, upstream=1.2) for key in KEYS]
    assert gates.judge(again, timed_baseline) == []
    assert gates.judge([rows.counted()], counted_baseline) == []


def test_one_case_slower_than_a_competitor(timed_baseline):
    lines = [rows.timed(key, override=0.8, native=1.3, upstream=1.2) for key in KEYS[1:]]
    lines.append(rows.timed(KEYS[0], override=1.3, native=1.5, upstream=1.2))
    (failure,) = gates.judge(lines, timed_baseline)
    assert failure.rule == "slower"
    assert failure.where == KEYS[0]
    for part in ("override 1.2993 ms", "upstream 1.1993 ms", "-7.", "interval", "floor -3.0 %"):
        assert part in failure.found
    assert "gems-overrides accept" in str(failure)


def test_all_cases_a_little_slower_than_they_were(timed_baseline):
    """Still faster than the competitors, each alone would pass."""
    lines = [rows.timed(key, override=1.05, native=1.3, upstream=1.2) for key in KEYS]
    (failure,) = gates.judge(lines, timed_baseline)
    assert failure.rule == "geomean"
    assert failure.where == "softmax"
    assert "1.14" in failure.found
    assert "floor 1.18" in failure.found


def test_another_device_of_the_kind_may_take_longer_to_launch(tmp_path):
    short = rows.timed(KEYS[2], override=0.004, native=0.006, upstream=0.005)
    baseline = accepted(tmp_path, rows.head(), short)
    assert gates.judge([rows.timed(KEYS[2], override=0.0042, native=0.006, upstream=0.005)], baseline) == []
    (failure,) = gates.judge([rows.timed(KEYS[2], override=0.0045, native=0.006, upstream=0.005)], baseline)
    assert failure.rule == "geomean"


def test_a_slowdown_that_is_not_significant_does_not_fail(timed_baseline):
    noisy = rows.timed(KEYS[0], override=1.25, native=1.5, upstream=1.2, rounds=4)
    assert "slower" not in rules(gates.judge([noisy], timed_baseline))


def between(low: float, high: float) -> dict:
    """A case whose ratios to native lie evenly between two."""
    line = rows.timed(override=1.0, native=1.0)
    ratios = np.linspace(low, high, 20)
    line["providers"]["native"]["samples_ms"] = [1.0] * 20
    line["providers"]["override"]["samples_ms"] = list(1 / ratios)
    return line


def test_the_upper_end_of_the_interval_decides_not_the_ratio(tmp_path):
    baseline = accepted(tmp_path, rows.head(), rows.timed(override=1.0, native=1.0))
    key = rows.timed()["key"]
    baseline["cases"][key] |= {"floor": 0.97, "ratio": 0.5}
    reaching = between(0.95, 0.98)
    against = Timed(reaching).against_best()
    assert against.comparison.ratio < 0.97 < against.comparison.high < 1
    assert against.verdict.word == "SLOWER"
    assert gates.judge([reaching], baseline) == []
    below = between(0.93, 0.96)
    assert Timed(below).against_best().comparison.high < 0.97
    assert rules(gates.judge([below], baseline)) == ["slower"]
    baseline["cases"][key]["floor"] = Timed(below).against_best().comparison.high
    assert gates.judge([below], baseline) == [], "at the floor is not below it"


def test_a_known_loss_may_not_grow(tmp_path):
    baseline = accepted(tmp_path, rows.head(), rows.timed(override=1.0, native=0.8))
    assert gates.judge([rows.timed(override=1.0, native=0.8)], baseline) == []
    assert "slower" in rules(gates.judge([rows.timed(override=1.1, native=0.8)], baseline))


def test_a_wrong_answer_is_no_competitor(tmp_path):
    line = rows.timed(KEYS[0], override=1.0, native=1.3, upstream=0.1)
    line["providers"]["upstream"]["agrees"] = False
    baseline = accepted(tmp_path, rows.head(), line)
    assert baseline["cases"][KEYS[0]]["ratio"] == pytest.approx(1.3, rel=0.01)
    assert gates.judge([line], baseline) == []


def test_one_more_pass(counted_baseline):
    (failure,) = gates.judge(
        [rows.counted(loaded=2 * 65536)], {**counted_baseline, "cases": _forgiving(counted_baseline)}
    )
    assert failure.rule == "passes"
    assert "1.500 passes (196608 bytes), accepted are 1.000 (131072 bytes)" in failure.found


def _forgiving(baseline):
    """Without the comparison with upstream, which a pass more would fail as well."""
    return {key: {**case, "more_than_upstream": "planted"} for key, case in baseline["cases"].items()}


def test_one_byte_more(counted_baseline):
    assert rules(gates.judge([rows.counted(stored=65537)], counted_baseline)) == ["passes"]


def test_one_launch_more(counted_baseline):
    failures = gates.judge([rows.counted(launches=2)], {**counted_baseline, "cases": _forgiving(counted_baseline)})
    assert rules(failures) == ["launches"]


def test_more_than_upstream(tmp_path):
    line = rows.counted(loaded=2 * 65536)
    with pytest.raises(baselines.BaselineError, match=r"softmax 64x256.*1\.50 passes, upstream makes 1\.00.*--reason"):
        accepted(tmp_path, rows.head("count"), line)
    baseline = accepted(tmp_path, rows.head("count"), line, reason="planted")
    assert gates.judge([line], baseline) == []
    for case in baseline["cases"].values():
        del case["more_than_upstream"]
    assert rules(gates.judge([line], baseline)) == ["upstream"]


def test_one_spill(timed_baseline):
    line = rows.timed(KEYS[0], override=1.0, native=1.3, upstream=1.2)
    launch = {
        "kernel": "rows",
        "grid": [132],
        "options": {"num_warps": 4},
        "registers": 255,
        "shared_bytes": 0,
    }
    line["launches"] = [{**launch, "spilled_bytes": 0}]
    assert gates.judge([line], timed_baseline) == []
    line["launches"] = [{**launch, "spilled_bytes": 4}]
    for baseline in (timed_baseline, None):
        (failure,) = gates.judge([line], baseline)
        assert failure.rule == "spills"
        assert "rows spills 4 bytes" in failure.found


def test_a_wrong_answer_fails_even_without_a_baseline():
    line = rows.timed(override=1.0, native=1.3)
    line["providers"]["override"]["agrees"] = False
    assert rules(gates.judge([line], None)) == ["answer"]


def test_an_unknown_device_is_not_judged_for_speed(tmp_path):
    assert not baselines.is_known(tmp_path, "NVIDIA L4")
    assert baselines.load(tmp_path, "NVIDIA L4", "softmax") is None
    assert gates.judge([rows.timed(override=9.0, native=1.0)], None) == []


def test_every_row_that_is_wrong_has_its_failure():
    lines = [rows.timed(key, override=1.0, native=1.3) for key in KEYS]
    lines[0]["providers"]["override"]["agrees"] = False
    lines[2]["providers"]["override"] = {"absent": "OutOfMemoryError"}
    assert gates.judge(lines, None) == [
        gates.Failure("answer", key, "the override's result is not PyTorch's", "see tests/accuracy")
        for key in (KEYS[0], KEYS[2])
    ]


def test_a_spill_is_named_with_kernel_and_options():
    line = rows.timed(KEYS[0], override=1.0, native=1.3)
    launch = {"kernel": "rows", "options": {"num_warps": 4}, "registers": 255, "spilled_bytes": 4}
    line["launches"] = [launch, launch]
    assert gates.judge([line], None) == 2 * [
        gates.Failure(
            "spills",
            KEYS[0],
            "rows spills 4 bytes at 255 registers, 0 are allowed",
            "plan a smaller tile or more warps than {'num_warps': 4}",
        )
    ]


def test_counts_that_grew_are_named_with_both_figures(counted_baseline):
    key = rows.counted()["key"]
    made = [gates.Failure("passes", key, "1.500 passes (196608 bytes), accepted are 1.000 (131072 bytes)")]
    made += [gates.Failure("launches", key, "3 launches, accepted are 1")]
    made += [gates.Failure("upstream", key, "1.50 passes, upstream makes 1.00")]
    assert gates.judge([rows.counted(loaded=2 * 65536, launches=3)], counted_baseline) == made
    assert str(made[1]) == f"{key}: launches: 3 launches, accepted are 1\n    {gates.ACCEPT}"


def test_noise_of_the_session_is_no_slowdown(timed_baseline):
    line = rows.timed(KEYS[0], override=1.25, native=1.5, upstream=1.2)
    timed_baseline["cases"][KEYS[0]] |= {"floor": 0.99, "ratio": 0.9}
    assert rules(gates.judge([line], timed_baseline)) == ["slower"]
    assert gates.judge([line], timed_baseline, noise=0.05) == []


def test_a_mean_at_the_floor_is_not_below_it(timed_baseline):
    line = rows.timed(KEYS[0], override=1.0, native=1.3, upstream=1.2)
    allowed = 1 - baselines.GEOMEAN_ALLOWANCE
    for i in range(1000):  # until a float is found whose product with the allowance is the ratio, to the last bit
        line["providers"]["upstream"]["samples_ms"][0] = 1.2 + i / 1e6
        ratio = Timed(line).against_best().comparison.ratio
        floor = geomean([ratio / allowed * allowed])
        if geomean([ratio]) == floor:
            break
    assert geomean([ratio]) == floor
    timed_baseline["cases"] = {KEYS[0]: {"ratio": ratio / allowed, "floor": 0.9, "ms": 1.0}}
    assert gates.judge([line], timed_baseline) == []
    timed_baseline["cases"][KEYS[0]]["ratio"] *= 1.000001
    assert rules(gates.judge([line], timed_baseline)) == ["geomean"]


def test_a_case_that_was_never_accepted_is_in_no_mean(timed_baseline):
    other = rows.timed("softmax 7x7 dim=1 bfloat16", override=9.0, native=1.0)
    again = [rows.timed(key, override=1.0, native=1.3, upstream=1.2) for key in KEYS]
    assert gates.judge([other, *again], timed_baseline) == []
    assert gates.judge([other], timed_baseline) == []


def test_a_case_without_a_competitor_is_in_no_mean(timed_baseline):
    alone = rows.timed(KEYS[1], override=1.0)
    assert gates.judge([alone], timed_baseline) == []
    slower = [rows.timed(key, override=1.1, native=1.3, upstream=1.2) for key in (KEYS[0], KEYS[2])]
    (failure,) = gates.judge([alone, *slower], timed_baseline)
    assert failure.found.startswith("geomean over 2 cases against the better of native and upstream 1.09")
    assert failure.where == "softmax"
    assert failure.remedy == gates.ACCEPT
