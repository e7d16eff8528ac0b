# SPDX-License-Identifier: Apache-2.0
"""The tuner on a family of our own and a clock of our own."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.launch.devices import Limits
from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf import beforehand, conditions, timing, tune
from flag_gems_overrides.perf.cases import Shapes, make
from flag_gems_overrides.perf.timing import Times

HERE = Path(__file__).parent
LIMITS = Limits(132, 60 << 20, 65536, 2048, 227 << 10, (9, 0))
FAKE = tune.Family("fake_family", ("softmax",))
CONTENT = {
    "schema": 1,
    "device": {"name": "H200", "capability": [9, 0], "sm_count": 132, "l2_bytes": 60 << 20, "copy_gbps": 4243.5},
    "versions": {"torch": "2.11.0"},
    "date": "2026-11-22",
    "command": "gems-overrides tune",
}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path]))


class Clock:
    """A configuration takes ``us[warps]`` microseconds."""

    def __init__(self, **us: float) -> None:
        self.device = torch.device("cpu")
        self.us = {int(name.removeprefix("w")): value for name, value in us.items()}
        self.looks: list[set[int]] = []

    def bandwidth(self):
        return 4000.0, 4500.0

    def group(self, call_bytes):
        return 1

    def device_times(self, calls, effort=1):
        self.looks.append({configuration.warps for configuration in calls})
        return Times({c: [self.us.get(c.warps, 10.0) / 1e3] * (5 * effort) for c in calls})


def point(size="64x32 dim=1"):
    case = make("softmax", size, "float32")
    return tune.Point(FAKE, case, FAKE.plan.Problem(*case.shape, 1, 4))


def test_the_default_and_what_the_model_thinks_best_are_measured():
    assert [c.warps for c in tune.candidates(point(), LIMITS)] == [4, 1, 2, 3, 5, 8, 16, 32]


def test_what_beats_the_default_is_looked_at_twice_and_kept():
    clock = Clock(w1=8.0, w2=7.0)
    tuner = tune.Tuner(clock, LIMITS)
    family, row, us = tuner.measure(point())
    assert dict(us) == {("rows", 1): 8.0, ("rows", 2): 7.0, **{("rows", warps): 10.0 for warps in (4, 8, 16, 32)}}
    assert family == "fake_family"
    assert row == table.Row((64, 32, 1, 4), ("rows", 2), 7.0, 10.0, 8.0, pytest.approx(16384 / 7.0 / 1e3 / 4000, 1e-2))
    assert clock.looks == [{4, 1, 2, 8, 16, 32}, {4, 1, 2}]


@pytest.mark.parametrize("us", [9.95, 10.0, 11.0])
def test_what_does_not_beat_it_by_enough_leaves_the_default(us):
    tuner = tune.Tuner(Clock(w1=us), LIMITS)
    row = tuner.measure(point()).row
    assert row.configuration is None
    assert (row.us, row.default_us) == (10.0, 10.0)


def test_wrong_answers_and_failures_are_said_and_never_chosen():
    tuner = tune.Tuner(Clock(w3=1.0, w5=1.0), LIMITS)
    assert tuner.measure(point()).row.configuration is None
    assert tuner.errors == [
        "softmax 64x32 dim=1 float32: ('rows', 3): its answer is not PyTorch's",
        "softmax 64x32 dim=1 float32: ('rows', 5): ValueError: 5 warps are none",
    ]


def test_the_grid_is_coarse_first_and_each_problem_once():
    shapes = Shapes(HERE.parents[1] / "benchmark" / "core_shapes.yaml")
    found = list(tune.points(FAKE, shapes, 0))
    assert 500 < len(found) < 3000
    problems = [each.problem for each in found]
    assert len(set(problems)) == len(problems)
    assert problems == [each.problem for each in tune.points(FAKE, shapes, 0)]
    other = {each.problem for each in tune.points(FAKE, shapes, 1)}
    assert len(other & set(problems)) < len(problems) / 2
    early, late = problems[: len(problems) // 4], problems
    for size in ("M", "N", "K"):
        spread = [max(math.log2(getattr(p, size)) for p in part) for part in (early, late)]
        assert spread[0] > 0.8 * spread[1]
    assert {p.N % 16 == 0 for p in problems} == {True, False}
    assert all(math.prod(p[:3]) <= 4 * tune.MAX_ELEMENTS for p in problems)


def test_no_two_grid_points_are_further_apart_than_the_lookup_reaches():
    assert max(tune.LEVELS[-1:]) <= table.MAX_DISTANCE


def test_workers_launch_every_candidate(monkeypatch):
    monkeypatch.setattr(tune, "processes", lambda: 1)
    monkeypatch.setenv("FAKE_ENDS", "2")
    died = tune.compile_all([point()], LIMITS, 300)
    assert list(died) == [("fake_family", "softmax 64x32 dim=1 float32", ("rows", 2))]
    tuner = tune.Tuner(Clock(), LIMITS)
    tuner.died = died
    tuner.measure(point())
    assert "its process ended with status 1" in tuner.errors[0]


def row(M, best=("rows", 2), us=7.0):
    return table.Row((M, 32, 1, 4), best, us, 10.0, 8.0, 0.5)


def test_an_interrupted_journal_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = tune.Journal(path, {"device": "a"})
    journal.add(tune.Measured("fake", row(64)))
    journal.add(tune.Measured("fake", row(128, None)))
    journal.close()
    with path.open("a") as file:
        file.write('{"family": "fa')
    again = tune.Journal(path, {"device": "a"})
    assert again.rows == {"fake": {row(64).problem: row(64), row(128).problem: row(128, None)}}
    again.add(tune.Measured("fake", row(256)))
    again.close()
    last = tune.Journal(path, {"device": "a"})
    last.close()
    assert len(last.rows["fake"]) == 3


def test_a_full_disk_leaves_a_journal_of_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    journal = tune.Journal(path, {"device": "a"})
    journal.add(tune.Measured("fake", row(64)))
    before, write, room = path.read_bytes(), os.write, [20]

    def until_full(file, text):
        """Writes what there is room for, as file systems do, and fails when asked for the rest."""
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, text[: room.pop()])

    monkeypatch.setattr(os, "write", until_full)
    message = r"journal\.jsonl: No space left on device; the lines before are whole: make room, and the same command"
    with pytest.raises(tune.TuneError, match=message):
        journal.add(tune.Measured("fake", row(128)))
    journal.close()
    assert path.read_bytes() == before
    monkeypatch.undo()
    again = tune.Journal(path, {"device": "a"})
    again.close()
    assert list(again.rows["fake"].values()) == [row(64)] == list(journal.rows["fake"].values())


def test_a_journal_of_other_conditions_or_none_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    tune.Journal(path, {"device": "a"}).close()
    with pytest.raises(tune.TuneError, match=r"journal\.jsonl: was measured under other conditions"):
        tune.Journal(path, {"device": "b"})
    path.write_text("what\n")
    with pytest.raises(tune.TuneError, match=r"journal\.jsonl line 1: not JSON"):
        tune.Journal(path, {"device": "a"})
    path.write_text('{"head": {"device": "a"}}\n{"family": "x"}\n')
    with pytest.raises(tune.TuneError, match=r"journal\.jsonl line 2: 'row'"):
        tune.Journal(path, {"device": "a"})


def test_a_table_is_written_sorted_and_others_stay(tmp_path):
    path = tmp_path / "h200.json"
    tune.save(path, CONTENT, {"other": [row(1)], "fake": [row(256), row(64)]})
    changes = tune.save(path, CONTENT, {"fake": [row(64, ("rows", 8), 5.0), row(128, None, 10.0), row(256)]})
    loaded = table.load(path)
    assert loaded.families["other"] == (row(1),)
    assert [each.problem[0] for each in loaded.families["fake"]] == [64, 128, 256]
    [change] = changes
    assert (change.family, change.rows, change.tuned) == ("fake", 3, 2)
    assert change.gain == pytest.approx(math.sqrt(10 / 5 * 10 / 7))
    assert [(old.us, new.us) for old, new in change.changed] == [(7.0, 5.0)]


def test_a_table_has_a_line_for_each_row(tmp_path):
    text = tune.text(CONTENT, {"fake": [row(64), row(128)]})
    assert json.loads(text)["families"]["fake"][1]["problem"] == [128, 32, 1, 4]
    assert sum('"problem"' in line for line in text.splitlines()) == 2


@pytest.fixture
def pretended_gpu(monkeypatch, tmp_path):
    """The command's own path, with a GPU of our own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(conditions, "device", lambda: {"name": "NVIDIA H200"})
    monkeypatch.setattr(devices, "limits", lambda index: LIMITS)
    monkeypatch.setattr(timing, "Timer", lambda *arguments: Clock(w2=7.0))
    monkeypatch.setattr(table, "FOLDER", tmp_path)
    monkeypatch.setattr(tune, "FAMILIES", {"fake": FAKE})
    monkeypatch.setattr(tune, "compile_all", lambda todo, limits, seconds: {})
    monkeypatch.setattr(beforehand, "synchronize", lambda: None)
    monkeypatch.setattr(tune, "free", lambda kept: None)
    monkeypatch.setattr(beforehand, "share_caches", lambda: None)
    (tmp_path / "shapes.yaml").write_text("softmax:\n  core:\n    - {shape: [64, 32], dim: 1}\n")
    monkeypatch.setattr(tune, "LEVELS", (28,))
    monkeypatch.setattr(tune, "MAX_ELEMENTS", 1 << 10)


def test_the_command_writes_a_table_and_goes_on(pretended_gpu, tmp_path):
    ran = CliRunner().invoke(app, ["tune", "fake", "--shapes", "shapes.yaml"])
    assert ran.exit_code == 0, ran.output
    assert "2 problems to measure" in ran.output
    assert "fake_family: 2 problems, 2 not best by the default: 1.429 times as fast there" in ran.output
    loaded = table.load(tmp_path / "nvidia-h200.json")
    assert [row.configuration for row in loaded.families["fake_family"]] == [("rows", 2)] * 2
    made = json.loads((tmp_path / "nvidia-h200.json").read_text())
    assert made["command"] == "gems-overrides tune fake --seconds 900 --seed 0"
    again = CliRunner().invoke(app, ["tune", "fake", "--shapes", "shapes.yaml"])
    assert "0 problems to measure" in again.output
    assert table.load(tmp_path / "nvidia-h200.json").families == loaded.families


def test_without_a_measurement_there_is_no_table(pretended_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(tune.Tuner, "measure", lambda self, point: None)
    ran = CliRunner().invoke(app, ["tune", "fake", "--shapes", "shapes.yaml"])
    assert ran.exit_code == 1
    assert "nothing was measured" in ran.output
    assert not (tmp_path / "nvidia-h200.json").exists()


def test_a_family_that_is_none_is_refused(pretended_gpu):
    ran = CliRunner().invoke(app, ["tune", "scan"])
    assert ran.exit_code == 2
    assert "family 'scan' is not known; known: fake" in " ".join(ran.output.split())


def test_without_a_gpu_the_command_says_so(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["tune", "softmax"])
    assert ran.exit_code == 2 or torch.cuda.is_available()
