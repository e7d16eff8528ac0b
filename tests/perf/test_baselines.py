# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from flag_gems_overrides.perf.baselines import BaselineError, accept, load, path_of
from flag_gems_overrides.perf.cases import COUNTED_DTYPES, Shapes
from flag_gems_overrides.perf.records import Session

from . import rows


def session(head, *lines, ended=True) -> Session:
    return Session(head, {line["key"]: line for line in lines}, ended)


def test_one_file_per_op_under_the_devices_name(tmp_path):
    softmax, top = (rows.timed(f"{op} 64x64 dim=1 float32", override=1.0, native=2.0) for op in ("softmax", "max_dim"))
    written = accept(tmp_path, session(rows.head(), softmax, top))
    assert [str(path.relative_to(tmp_path)) for path in written] == [
        "nvidia-h200/softmax.json",
        "nvidia-h200/max_dim.json",
    ]
    baseline = load(tmp_path, "NVIDIA H200", "softmax")
    assert baseline["cases"][softmax["key"]] == {
        "ratio": pytest.approx(2, rel=0.01),
        "floor": 0.97,
        "ms": pytest.approx(1, rel=0.01),
    }
    assert baseline["accepted_from"]["versions"]["triton"] == "3.6.0"


def test_accepting_twice_changes_no_byte(tmp_path):
    (path,) = accept(tmp_path, session(rows.head("count"), rows.counted()))
    before = path.read_bytes()
    accept(tmp_path, session(rows.head("count"), rows.counted()))
    assert path.read_bytes() == before


def test_cases_that_were_not_measured_keep_their_baseline(tmp_path):
    other = "softmax 5x33 dim=1 float32"
    accept(tmp_path, session(rows.head("count"), rows.counted(), rows.counted(other)))
    accept(tmp_path, session(rows.head("count"), rows.counted(loaded=1000)))
    cases = load(tmp_path, "interpreter", "softmax")["cases"]
    assert cases[other]["moved"] == 2 * 65536
    assert cases[rows.counted()["key"]]["moved"] == 65536 + 1000


def test_nothing_is_left_behind_beside_the_file(tmp_path):
    (path,) = accept(tmp_path, session(rows.head("count"), rows.counted()))
    assert list(path.parent.iterdir()) == [path]


def test_an_interrupted_session_is_not_accepted(tmp_path):
    with pytest.raises(BaselineError, match="partial: the session did not end"):
        accept(tmp_path, session(rows.head(), rows.timed(override=1.0, native=1.0), ended=False))


def test_host_times_have_no_baseline(tmp_path):
    with pytest.raises(BaselineError, match="'wrapper' has no baseline"):
        accept(tmp_path, session(rows.head("wrapper"), rows.timed(override=1.0, native=1.0)))


def test_a_case_without_samples_is_not_accepted(tmp_path):
    with pytest.raises(BaselineError, match="softmax 4096x4096 dim=1 bfloat16: has no samples"):
        accept(tmp_path, session(rows.head(), rows.timed(override=1.0)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda b: b["cases"]["softmax 64x256 dim=1 float32"].pop("moved"),
            r"cases\.softmax 64x256.*'moved'",
        ),
        (lambda b: b.__setitem__("schema", 9), "schema: 1 was expected"),
        (lambda b: b.__setitem__("measure", "guess"), "measure"),
    ],
)
def test_a_baseline_edited_by_hand_is_named_with_the_field(tmp_path, change, message):
    (path,) = accept(tmp_path, session(rows.head("count"), rows.counted()))
    baseline = json.loads(path.read_text())
    change(baseline)
    path.write_text(json.dumps(baseline))
    with pytest.raises(BaselineError, match=f"softmax.json: {message}.*gems-overrides accept"):
        load(tmp_path, "interpreter", "softmax")


def test_a_baseline_that_is_no_json_is_named(tmp_path):
    path = path_of(tmp_path, "interpreter", "softmax")
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(BaselineError, match=r"softmax\.json: not JSON"):
        load(tmp_path, "interpreter", "softmax")


def test_every_counted_case_has_an_accepted_count():
    benchmark = Path(__file__).parents[2] / "benchmark"
    shapes = Shapes(benchmark / "core_shapes.yaml")
    for op in shapes.ops:
        accepted = load(benchmark / "baselines", "interpreter", op)
        assert accepted is not None, op
        cases = shapes.cases(op, "interpreter", COUNTED_DTYPES)
        assert {case.key for case in cases} <= accepted["cases"].keys()
