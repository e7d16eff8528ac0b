# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from flag_gems_overrides.perf import resources
from flag_gems_overrides.perf.problems import problems

ROW = {
    "digest": "a", "kernel": "rows_kernel", "arch": 90, "triton": "3.7.1", "options": {}, "registers": 99,
    "spilled_bytes": 0, "shared_bytes": 0, "occupancy": 0.5, "case": "softmax 8x8 dim=1 float32",
}  # fmt: skip


RESOURCES = ["resources", "--shapes", "shapes.yaml", "--output", "survey.jsonl"]


@pytest.fixture
def surveyed(monkeypatch, tmp_path):
    """A function that lets a survey have these rows, and be interrupted after them if told so."""
    (tmp_path / "shapes.yaml").write_text(
        "softmax: {core: [{shape: [8, 8], dim: 1}], comprehensive: [{shape: [4, 4], dim: 1}]}"
    )
    asked = []

    def answer(*found, interrupted=False):
        def survey(cases, gpus, known, compiled=lambda row: None):
            asked[:] = cases
            for row in found:
                compiled(row)
            if interrupted:
                raise KeyboardInterrupt
            return list(found)

        monkeypatch.setattr(resources, "survey", survey)
        return asked

    return answer


def test_resources_records_and_fails_on_a_spill(invoke, surveyed, tmp_path):
    surveyed(ROW)
    status, output = invoke(*RESOURCES)
    assert status == 0
    assert "rows_kernel" in output
    assert resources.load(tmp_path / "survey.jsonl") == [ROW]
    surveyed({**ROW, "spilled_bytes": 4})
    status, output = invoke(*RESOURCES)
    assert status == 1
    assert "spills 4 bytes per thread" in output


def test_resources_surveys_what_the_gate_asks_for(invoke, surveyed):
    asked = surveyed(ROW)
    invoke(*RESOURCES)
    assert {case.shape for case in asked} == {(8, 8)}
    invoke(*RESOURCES, "--level", "comprehensive")
    assert {case.shape for case in asked} == {(8, 8), (4, 4)}


def test_random_problems_are_those_of_a_hunt_and_nothing_is_recorded(invoke, surveyed, tmp_path):
    asked = surveyed(ROW)
    status, output = invoke(*RESOURCES, "softmax", "cumsum", "--seed", "7", "--count", "3")
    assert status == 0
    assert "rows_kernel" in output
    assert asked == [problem.case for problem in problems(["softmax", "cumsum"], 3, 7, 0)]
    surveyed({**ROW, "spilled_bytes": 4})
    status, output = invoke(*RESOURCES, "--seed", "7")
    assert status == 1
    assert "spills 4 bytes per thread" in output
    assert not (tmp_path / "survey.jsonl").exists()
    assert invoke(*RESOURCES, "nothing", "--seed", "7")[0] == 2


def test_an_interrupted_survey_keeps_what_is_done_and_what_was_known(invoke, surveyed, tmp_path):
    path, new = tmp_path / "survey.jsonl", {**ROW, "digest": "b"}
    resources.save(path, [ROW])
    surveyed(new, interrupted=True)
    status, output = invoke(*RESOURCES)
    assert status == 130
    assert "Interrupted: what is done is in survey.jsonl" in output
    assert resources.load(path) == [ROW, new]
    surveyed(new)
    assert invoke(*RESOURCES)[0] == 0
    assert resources.load(path) == [new], "a whole one replaces what its op had"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(ROW) + "\ngarbage", "survey.jsonl line 2: not JSON (Expecting value: line 1 column 1 (char 0))"),
        ('{"kind": "session"}', "survey.jsonl line 1: has no arch, case, digest, kernel,"),
        ("[]", "survey.jsonl line 1: has no arch,"),
        (b"\xff\x00", "survey.jsonl line 1: not JSON"),
    ],
)
def test_a_file_that_is_no_survey_is_named_and_stays(invoke, surveyed, tmp_path, text, message):
    surveyed(ROW)
    before = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "survey.jsonl").write_bytes(before)
    status, output = invoke(*RESOURCES)
    assert status == 2
    assert f"error: {message}" in output
    assert "name a survey, or a new file" in output
    assert (tmp_path / "survey.jsonl").read_bytes() == before


@pytest.mark.parametrize("output", [".", "shapes.yaml/survey.jsonl", "/proc/survey.jsonl"])
def test_a_survey_that_cannot_be_written_is_named_before_anything_is_compiled(invoke, surveyed, output):
    asked = surveyed(ROW)
    status, printed = invoke("resources", "--shapes", "shapes.yaml", "--output", output)
    assert (status, asked) == (2, [])
    assert f"error: {output}: " in printed
