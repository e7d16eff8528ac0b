# SPDX-License-Identifier: Apache-2.0
"""`gems-overrides tune` with a GPU of our own."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from perf.tune.made import FAKE, LIMITS, Clock
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf import beforehand, conditions, timing
from flag_gems_overrides.perf.tune import families, grid, measuring


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
    monkeypatch.setattr(families, "FAMILIES", {"fake": FAKE})
    monkeypatch.setattr(measuring, "compile_all", lambda todo, seconds: {})
    monkeypatch.setattr(beforehand, "synchronize", lambda: None)
    monkeypatch.setattr(measuring, "free", lambda kept: None)
    monkeypatch.setattr(beforehand, "share_caches", lambda: None)
    (tmp_path / "shapes.yaml").write_text("softmax:\n  core:\n    - {shape: [64, 32], dim: 1}\n")
    monkeypatch.syspath_prepend("")
    monkeypatch.setattr(grid, "LEVELS", (28,))
    monkeypatch.setattr(grid, "MAX_ELEMENTS", 1 << 10)


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


def test_a_step_is_tuned_beside_what_the_table_has(pretended_gpu, monkeypatch, tmp_path):
    (tmp_path / "training.py").write_text(
        "from flag_gems_overrides.ops.plans import table\n"
        "from perf.tune.made import FAKE, LIMITS, point\n"
        "def step():\n"
        "    for family, size in ('fake_family', '48x40'), ('fake_family', '64x32'), ('another', '64x32'):\n"
        "        problem = point(f'{size} dim=1').problem\n"
        "        table.lookup(family, problem, len, FAKE.plan.Configuration, FAKE.plan.launch_or_none, LIMITS)\n"
    )
    assert CliRunner().invoke(app, ["tune", "fake", "--shapes", "shapes.yaml"]).exit_code == 0
    before = table.load(tmp_path / "nvidia-h200.json").families["fake_family"]
    ran = CliRunner().invoke(app, ["tune", "fake", "--step", "training:step"])
    assert ran.exit_code == 0, ran.output
    assert "training:step: 3 problems, 2 of them can be tuned here" in " ".join(ran.output.split())
    after = table.load(tmp_path / "nvidia-h200.json").families["fake_family"]
    assert {row.problem for row in after} == {row.problem for row in before} | {(48, 40, 1, 4), (64, 32, 1, 4)}
    assert (tmp_path / "tune-training-step-nvidia-h200.jsonl").exists()
    assert json.loads((tmp_path / "nvidia-h200.json").read_text())["command"].endswith("--step training:step")
    del sys.modules["training"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("training", "training: not of the form MODULE:FUNCTION, such as train:step"),
        ("no_module_is_this:step", "no_module_is_this:step: ModuleNotFoundError: No module named 'no_module_is_this'"),
        ("json:no_step", "json:no_step: AttributeError: module 'json' has no attribute 'no_step'"),
        ("json:loads", "json:loads: TypeError: loads() missing 1 required positional argument: 's'"),
    ],
)
def test_a_step_that_does_not_run_is_refused(pretended_gpu, tmp_path, step, message):
    ran = CliRunner().invoke(app, ["tune", "--step", step])
    assert (ran.exit_code, message in " ".join(ran.output.split())) == (2, True), ran.output
    assert list(tmp_path.glob("*.jsonl")) == []


def test_without_a_measurement_there_is_no_table(pretended_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(measuring.Tuner, "measure", lambda self, point, candidates: None)
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


def test_regret_says_how_far_what_is_chosen_is_from_the_fastest(pretended_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(timing, "Timer", lambda *arguments: Clock(w8=7.0))
    command = ["regret", "fake", "--seed", "3", "--count", "4"]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.output
    assert "fake_family: behind its own fastest" in ran.output
    (counts,) = [line.split() for line in ran.output.splitlines() if line.startswith("fake_family ")]
    # Two of the four are larger than MAX_ELEMENTS. By the estimate 1 warp is best, which takes as long as the chosen 2;
    # 8 take 0.7 of it.
    assert counts == ["fake_family", "2", "2", "1.429", "1.429", "1.43"]
    assert (tmp_path / "regret-3.jsonl").exists()
    assert not (tmp_path / "nvidia-h200.json").exists()
    assert "0 problems to measure" in CliRunner().invoke(app, command).output
