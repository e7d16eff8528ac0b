# SPDX-License-Identifier: Apache-2.0
"""A climb without a GPU: rungs are counted, and a rung that fails says so in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.ladder import load
from flag_gems_overrides.perf.ladder_climb import Climber, climb

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU rungs are timed")

SHAPE = (3, 200)
BYTES = 4 * 3 * 200


@pytest.fixture
def relu():
    return load("relu", Path(__file__).parents[2] / "benchmark" / "ladders")


def test_a_rung_is_counted_and_its_answer_looked_at(relu):
    climber = Climber("one shape")
    assert (climber.head["measure"], climber.head["level"]) == ("count", "one shape")
    row = climber.measure(relu, ["triton_where", "trap_maximum"], SHAPE)
    assert (row["key"], row["l2"]) == (relu.key(SHAPE, 0), "cold")
    assert row["compulsory"] == {"read": BYTES, "written": BYTES}
    right, wrong = row["providers"]["triton_where"], row["providers"]["trap_maximum"]
    assert (right["agrees"], wrong["agrees"]) == (True, False)
    assert (right["loaded"], right["stored"], right["launches"]) == (BYTES, BYTES, 1)


def test_a_climber_like_another_has_its_head_under_another_level(relu):
    hot = Climber("L2 not flushed", hot=True, like=Climber("cold"))
    assert hot.head == Climber("cold").head | {"level": "L2 not flushed"}
    assert hot.measure(relu, [], SHAPE)["l2"] == "hot"


def test_a_rung_that_raises_or_cannot_run_does_not_stop_the_others(relu, monkeypatch):
    def run(x):
        raise RuntimeError("no kernel image\nat line 1")

    monkeypatch.setattr(relu.module("native"), "run", run)
    providers = Climber("a").measure(relu, ["native", "triton_where"], SHAPE)["providers"]
    assert providers["native"] == {"absent": "RuntimeError: no kernel image"}
    assert providers["triton_where"]["agrees"]
    softmax = load("softmax", relu.folder.parent)
    assert "absent" in Climber("a").measure(softmax, ["cuda_naive"], softmax.small_shapes[0])["providers"]["cuda_naive"]


def test_a_climb_records_each_case_and_resumes(relu, monkeypatch, tmp_path):
    path, climber = tmp_path / "record.jsonl", Climber("relu")
    cases = [(relu, SHAPE, 0), (relu, (16, 512), 0)]
    chosen = {relu: ["triton_where"]}
    next(climb(climber, chosen, cases, path))
    assert not records.read(path)[-1].ended
    measured = []
    monkeypatch.setattr(climber, "measure", lambda *case: measured.append(case) or Climber.measure(climber, *case))
    rows = [row for _, row in climb(climber, chosen, cases, path)]
    assert measured == [(relu, ["triton_where"], (16, 512), 0)]
    [session] = records.read(path)
    assert session.ended
    assert [row["key"] for row in rows] == list(session.rows) == [relu.key(shape, 0) for _, shape, _ in cases]
