# SPDX-License-Identifier: Apache-2.0
"""Each planted fault turns exactly its own gate red."""

from __future__ import annotations

import pytest

from flag_gems_overrides.perf import baselines, gates
from flag_gems_overrides.perf.records import Session

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
