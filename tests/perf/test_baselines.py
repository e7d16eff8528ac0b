# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from flag_gems_overrides.perf.baselines import BaselineError, accept, load, of_level, path_of, propose
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


@pytest.fixture
def shapes(tmp_path):
    path = tmp_path / "shapes.yaml"
    path.write_text(
        "softmax: {core: [{shape: [8, 8], dim: 1}, {shape: [9, 9], dim: 1}], interpreter: [{shape: [2, 2], dim: 1}]}\n"
        "max: {core: [[8]]}\n"
    )
    return Shapes(path)


def of(*keys, measure="kernel", ended=True, **changes) -> Session:
    row = rows.counted if measure == "count" else rows.timed
    return session(rows.head(measure, **changes), *(row(key) for key in keys), ended=ended)


EIGHT, NINE = "softmax 8x8 dim=1 float32", "softmax 9x9 dim=1 float32"


def test_the_cases_of_a_level_are_taken_and_others_left(shapes):
    other = "softmax 5x5 dim=1 float32"
    assert of_level(of(NINE, other, EIGHT), shapes, None) == [NINE, EIGHT]
    assert of_level(of(EIGHT, NINE, "max 8 int8"), shapes, "core") == [EIGHT, NINE, "max 8 int8"]
    two = "softmax 2x2 dim=1 bfloat16"
    assert of_level(of(two, measure="count", level="interpreter"), shapes, None) == [two]


@pytest.mark.parametrize(
    ("level", "told", "measure", "wanted"),
    [
        ("comprehensive", None, "kernel", "core"),
        ("core", None, "count", "interpreter"),
        ("core", "comprehensive", "kernel", "comprehensive"),
    ],
)
def test_another_level_is_refused_by_name(shapes, level, told, measure, wanted):
    message = f"^level: '{level}' is not '{wanted}', the baselines' level; to take it: --level '{level}'$"
    with pytest.raises(BaselineError, match=message):
        of_level(of(EIGHT, NINE, measure=measure, level=level), shapes, told)


def test_a_level_that_no_shape_file_has_takes_every_case_if_told(shapes):
    assert of_level(of(NINE, level="9x9 dim=1"), shapes, "9x9 dim=1") == [NINE]


def test_a_partial_record_is_refused(shapes):
    message = f"^partial: lacks 2 cases of level core, as {EIGHT.replace('float32', 'float16')}; measure all$"
    with pytest.raises(BaselineError, match=message):
        of_level(of(EIGHT, NINE, "softmax 5x5 dim=1 float16"), shapes, None)
    with pytest.raises(BaselineError, match=r"^partial: the session did not end; run the same command again"):
        of_level(of(EIGHT, NINE, ended=False), shapes, None)


def test_a_proposal_has_the_old_and_the_new_and_writes_nothing(tmp_path):
    accept(tmp_path, session(rows.head("count"), rows.counted()))
    other = rows.counted("softmax 5x5 dim=1 float32")
    changed = session(rows.head("count"), rows.counted(loaded=0), other)
    (proposal,) = propose(tmp_path, changed, keys=[rows.counted()["key"]])
    key = rows.counted()["key"]
    assert proposal.old == {key: {"launches": 1, "moved": 131072}}
    assert proposal.new == {key: {"launches": 1, "moved": 65536}}
    assert load(tmp_path, "interpreter", "softmax")["cases"] == proposal.old
    proposal.path.write_text(proposal.text)
    assert load(tmp_path, "interpreter", "softmax")["cases"] == proposal.new
