# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from flag_gems_overrides.perf.baselines import (
    BaselineError,
    accept,
    is_known,
    load,
    more_than_upstream,
    of_level,
    path_of,
    propose,
)
from flag_gems_overrides.perf.cases import COUNTED_DTYPES, Shapes, parse
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.results import Counted

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


@pytest.mark.parametrize(("device", "level"), [("NVIDIA H200", "core"), ("interpreter", "interpreter")])
def test_baselines_have_the_shapes_of_their_level_alone(device, level):
    benchmark = Path(__file__).parents[2] / "benchmark"
    shapes = Shapes(benchmark / "core_shapes.yaml")
    for path in path_of(benchmark / "baselines", device, "softmax").parent.glob("*.json"):
        accepted = load(benchmark / "baselines", device, path.stem)
        sizes = {case.size for case in shapes.cases(path.stem, level, ["float32"])}
        assert {parse(key).size for key in accepted["cases"]} <= sizes, path


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


def test_upstream_is_a_limit_only_where_it_has_a_right_answer():
    more = rows.counted(loaded=9 * 65536, launches=2)
    assert more_than_upstream(Counted(more)) == "5.00 passes, upstream makes 1.00"
    more["providers"]["upstream"]["agrees"] = False
    assert more_than_upstream(Counted(more)) is None
    more["providers"]["upstream"] = {"absent": "RuntimeError"}
    assert more_than_upstream(Counted(more)) is None


@pytest.mark.parametrize(("loaded", "more"), [(11000, None), (11001, "1.05 passes, upstream makes 1.00"), (0, None)])
def test_partial_results_are_no_pass(loaded, more):
    row = rows.counted()
    row["compulsory"] = {"read": 10000, "written": 10000}
    row["providers"]["upstream"] |= {"loaded": 10000, "stored": 10000}
    row["providers"]["override"] |= {"loaded": loaded, "stored": 10000}
    assert more_than_upstream(Counted(row)) == more


def test_one_launch_more_than_upstream_is_more():
    assert more_than_upstream(Counted(rows.counted(launches=2))) == "2 launches, upstream makes 1"
    assert more_than_upstream(Counted(rows.counted(launches=0))) is None


@pytest.mark.parametrize(("native", "floor"), [(2.00004, 0.97), (1.0, 0.97), (0.80004, 0.776)])
def test_the_floor_is_3_percent_below_the_ratio_or_below_1(tmp_path, native, floor):
    line = rows.timed(override=1.0, native=1.0)
    line["providers"]["override"]["samples_ms"] = [1.23456789] * 20
    line["providers"]["native"]["samples_ms"] = [native * 1.23456789] * 20
    accept(tmp_path, session(rows.head(), line))
    assert load(tmp_path, "NVIDIA H200", "softmax")["cases"][line["key"]] == {
        "ratio": round(native, 3),
        "floor": floor,
        "ms": 1.234568,
    }


def test_a_case_is_accepted_with_its_reason_and_without_says_so(tmp_path):
    more = session(rows.head("count"), rows.counted(launches=2))
    message = f"^{rows.counted()['key']}: 2 launches, upstream makes 1; say why that is right with --reason$"
    with pytest.raises(BaselineError, match=message):
        accept(tmp_path, more)
    accept(tmp_path, more, "partials")
    assert load(tmp_path, "interpreter", "softmax") == {
        "schema": 1,
        "device": "interpreter",
        "measure": "count",
        "accepted_from": {"digest": "1" * 16},
        "cases": {rows.counted()["key"]: {"launches": 2, "moved": 131072, "more_than_upstream": "partials"}},
    }


def test_a_baseline_has_a_line_for_each_field_so_that_a_diff_is_read(tmp_path):
    (path,) = accept(tmp_path, session(rows.head("count"), rows.counted()))
    assert path.read_text().startswith('{\n "accepted_from": {\n  "digest": "1111111111111111"\n },\n "cases": {\n')
    assert path.read_text().endswith('\n "schema": 1\n}\n')


def test_a_timed_baseline_says_where_it_is_from(tmp_path):
    accept(tmp_path, session(rows.head(), rows.timed(override=1.0, native=2.0)))
    origin = load(tmp_path, "NVIDIA H200", "softmax")["accepted_from"]
    assert origin == {name: rows.head()[name] for name in ("commit", "started", "versions", "level", "copy_gbps")}


def test_a_case_lacking_either_side_is_not_accepted(tmp_path):
    for providers in ({"native": 1.0}, {"override": 1.0}):
        with pytest.raises(BaselineError, match=r"has no samples of the override and a competitor; measure it again$"):
            accept(tmp_path, session(rows.head(), rows.timed(**providers)))


@pytest.mark.parametrize(("name", "folder"), [("NVIDIA H200", "nvidia-h200"), ("(A) 100-40GB ", "a-100-40gb")])
def test_a_folder_is_named_after_the_device(tmp_path, name, folder):
    assert not is_known(tmp_path, name)
    (tmp_path / folder).mkdir()
    assert is_known(tmp_path, name)
    assert path_of(tmp_path, name, "max") == tmp_path / folder / "max.json"


def test_a_broken_baseline_says_how_to_write_it_anew(tmp_path):
    path = path_of(tmp_path, "interpreter", "softmax")
    path.parent.mkdir()
    for text, message in (("{", r"not JSON \(.*\)"), ("[]", r"file: \[\] is not of type 'object'")):
        path.write_text(text)
        with pytest.raises(
            BaselineError, match=rf"softmax\.json: {message}; write it anew with `gems-overrides accept`$"
        ):
            load(tmp_path, "interpreter", "softmax")
