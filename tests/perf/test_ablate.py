# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import signal
import subprocess
import textwrap

import pytest
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.perf import ablate
from flag_gems_overrides.perf.ablate import Ablation, AblationError, Report, Row

STEP = """
import os
import time

import flag_gems
import torch

x = torch.linspace(-1, 1, 32).view(4, 8)
with open("imports", "a") as file:
    file.write("once ")


def enabled(overload):
    registrar = vars(flag_gems).get("current_work_registrar")
    return registrar is not None and any(e.startswith(f"aten/{overload}/") for e in registrar.lib._op_impls)


def step():
    if enabled("abs"):
        os.abort()
    if enabled("exp"):
        raise RuntimeError("exp is broken")
    if enabled("sin"):
        time.sleep(1000)
    x.abs().exp().sin().cos()
    return torch.softmax(x, 1).amax() + (0.5 if enabled("cos") else 0)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "tiny.py").write_text(STEP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, ["ablate", *arguments])
    return result.exit_code, result.output


class TestProcesses:
    def test_crashes_errors_hangs_and_losses(self, folder, monkeypatch):
        monkeypatch.setenv("COLUMNS", "250")
        only = [word for name in ("exp", "sin", "cos", "softmax") for word in ("--only", name)]
        code, text = run("tiny:step", "--steps", "2", "--rounds", "2", "--limit", "15", *only)
        assert code == 0, text
        report = ablate.load(folder / "ablate" / "ablate.json")
        errors = {name: row.error for name, row in report.rows.items()}
        assert errors["exp"] == "RuntimeError: exp is broken"
        assert errors["sin"] == "not through after 15 s"
        assert errors["all"].startswith("killed by SIGABRT")
        assert errors["softmax"] is errors["softmax (override)"] is errors["native"] is None
        assert report.rows["cos"].loss_difference(report.native) > 0.5
        assert len(report.rows["softmax (override)"].ms) == 2
        gems, _ = report.excluded()
        assert gems[:3] == sorted(gems[:2]) + ["cos"]
        assert f"flag_gems.enable({report.exclude_argument}={gems})" in " ".join(text.split())
        page = (folder / "ablate" / "ablate.md").read_text()
        assert "| exp |" in page
        assert "RuntimeError: exp is broken" in page

    def test_a_process_that_waits_has_not_imported_the_users_module_and_ends(self, folder):
        path = folder / "ablate.json"
        ablation = Ablation("tiny:step", path, 1, 1, 60, ("exp",))
        assert {"torch", "flag_gems"} <= set(ablation._modules)
        assert "tiny" not in ablation._modules
        rows = ablation.run()
        next(rows)
        waiting = ablation._waiting._process
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(3)
        rows.close()
        assert waiting.poll() == -signal.SIGKILL
        assert (folder / "imports").read_text() == "once once "
        assert list(ablate.load(path).rows) == ["native"]

    def test_bad_input_is_one_line(self, folder):
        code, text = run("tiny:missing", "--limit", "60")
        assert code == 2
        assert "AttributeError: module 'tiny' has no attribute 'missing'" in text


LOOK = {
    "reached": ["exp", "softmax"],
    "exclude_argument": "unused",
    "versions": {"torch": "9.9"},
    "device": "cpu",
    "modules": [],
}


class TestCommand:
    """With made-up measurements in the place of processes."""

    @pytest.fixture
    def asked(self, folder, monkeypatch):
        """The variants that were measured; None is the look for operators."""
        monkeypatch.setenv("COLUMNS", "250")
        found = {
            None: LOOK,
            "exp": {"error": "a|b"},
            "softmax": {"native_ms": [2.0] * 4, "ms": [3.0, 3.25, 3.5, 3.0], "losses": [1.0]},
        }
        plain = {"native_ms": [2.0] * 4, "ms": [1.0] * 4, "losses": [1.0]}
        measured = []

        def child(ablation, variant):
            measured.append(variant)
            if found.get(variant) == "interrupt":
                raise KeyboardInterrupt
            return found.get(variant, plain)

        monkeypatch.setattr(Ablation, "_child", child)
        return measured, found

    ALL = ("native", "all", "all with overrides", "enable() of overrides", "exp", "softmax", "softmax (override)")

    def test_every_variant_is_measured_once_and_the_page_has_the_worst_first(self, folder, asked):
        code, text = run("tiny:step", "--steps", "2", "--rounds", "4")
        assert code == 0, text
        assert asked[0] == [None, *self.ALL]
        page = (folder / "ablate/ablate.md").read_text()
        assert page.splitlines()[:7] == [
            "# tiny:step",
            "",
            "cpu; torch 9.9; 2 steps a sample, 4 samples.",
            "",
            "| operator | ms a step | native / with | interval | difference of the loss | verdict |",
            "|---|---|---|---|---|---|",
            "| exp |  |  |  |  | a/b |",
        ]
        name, ms, ratio, interval, difference, verdict = page.splitlines()[7].strip("| ").split(" | ")
        assert (name, ms, difference) == ("softmax", "3.250", "0.00%")
        assert 0.57 < float(ratio) < 0.67
        low, high = map(float, interval.split(" to "))
        assert low <= float(ratio) <= high
        assert verdict.endswith(" ms a step slower")
        # The override stands in softmax's place.
        lines = ["flag_gems_overrides.install(exclude=[])", "flag_gems.enable(unused=['exp'])"]
        lines += ["# or both in one call, without what is known to be harmful"]
        lines += ["flag_gems_overrides.enable(exclude=['exp'])"]
        assert page.splitlines()[-6:] == ["```python", *lines, "```"]
        assert all(line in text for line in lines)
        run("tiny:step", "--steps", "2", "--rounds", "4")
        assert asked[0][len(self.ALL) + 1 :] == [None], "all was known"
        run("tiny:step", "--steps", "3", "--rounds", "4")
        assert asked[0][-len(self.ALL) :] == list(self.ALL), "of another number of steps nothing was"

    def test_only_some(self, folder, asked):
        assert run("tiny:step", "--only", "exp")[0] == 0
        assert asked[0] == [None, *(name for name in self.ALL if "softmax" not in name)]
        code, text = run("tiny:step", "--only", "gelu", "--only", "exp")
        assert code == 2
        assert "--only: tiny:step does not reach gelu; it reaches ['exp', 'softmax']" in text

    def test_ctrl_c_keeps_what_is_done(self, folder, asked):
        asked[1]["softmax"] = "interrupt"
        code, text = run("tiny:step", "--output", "here")
        assert code == 130
        assert "the same command goes on" in text
        assert list(ablate.load(folder / "here/ablate.json").rows) == list(self.ALL[:5])
        assert "| exp |" in (folder / "here/ablate.md").read_text()

    def test_the_same_command_goes_on_with_what_is_missing(self, folder, asked):
        asked[1]["all"] = "interrupt"
        assert run("tiny:step")[0] == 130
        (kept,) = json.loads((folder / "ablate/ablate.json").read_text())["rows"]
        asked[1].pop("all")
        assert run("tiny:step")[0] == 0
        assert asked[0] == [None, "native", "all", None, *self.ALL[1:]]
        assert json.loads((folder / "ablate/ablate.json").read_text())["rows"][0] == kept

    def test_a_step_that_fails_at_the_first_look(self, folder, asked):
        asked[1][None] = {"error": "ValueError: no"}
        code, text = run("tiny:step")
        assert (code, "tiny:step: ValueError: no" in text) == (2, True)

    def test_a_step_without_a_function(self, folder, asked):
        code, text = run("tiny")
        assert (code, "not of the form MODULE:FUNCTION" in text) == (2, True)

    def test_a_broken_report(self, folder, asked):
        (folder / "ablate").mkdir()
        (folder / "ablate" / "ablate.json").write_text("{")
        code, text = run("tiny:step")
        assert (code, "no report of ablate" in text) == (2, True)


class TestReport:
    def report(self, *rows):
        native = Row("native", None, [1.0] * 4, [1.0] * 4, [2.0, 1.0])
        return Report({}, ["a", "b", "c", "softmax"], "unused", {row.name: row for row in (native, *rows)})

    def test_worst_first_and_what_is_left_out(self):
        report = self.report(
            Row("a", None, [1.0] * 4, [1.2] * 4, [2.0, 1.0]),
            Row("b", None, [1.0] * 4, [3.0] * 4, [2.0, 1.0]),
            Row("c", None, [1.0] * 4, [0.5] * 4, [2.0, 1.5]),
            Row("softmax", error="IndexError"),
            Row("softmax (override)", None, [1.0] * 4, [0.9] * 4, [2.0, 1.0]),
        )
        assert [row.name for row in report.ranked()] == ["softmax", "c", "b", "a", "native", "softmax (override)"]
        assert report.harm(report.rows["c"]) == "its loss differs by 50.00%"
        assert report.harm(report.rows["b"]) == "2.00 ms a step slower"
        assert report.harm(report.rows["softmax (override)"]) is None
        # The override stands where upstream's softmax fails.
        assert report.lines()[:2] == [
            "flag_gems_overrides.install(exclude=[])",
            "flag_gems.enable(unused=['c', 'b', 'a'])",
        ]

    def test_an_override_that_hurts_is_left_out_of_both(self):
        report = self.report(
            Row("softmax", None, [1.0] * 4, [2.0] * 4, [2.0, 1.0]),
            Row("softmax (override)", None, [1.0] * 4, [1.5] * 4, [2.0, 1.0]),
        )
        assert report.excluded() == (["softmax"], ["softmax"])
        assert report.lines()[-1] == "flag_gems_overrides.enable(exclude=['softmax'])"

    def test_losses_that_are_not_numbers(self):
        row = Row("a", None, [1.0], [1.0], [2.0, float("nan")])
        report = self.report(row)
        assert report.harm(row) == "its loss is no number"

    def test_nothing_is_written_in_part(self, tmp_path):
        report = self.report()
        report.save(tmp_path / "a.json")
        assert ablate.load(tmp_path / "a.json") == report
        assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

    def test_another_schema(self, tmp_path):
        (tmp_path / "a.json").write_text(textwrap.dedent('{"schema": 9}'))
        with pytest.raises(AblationError, match="schema: 9 is not known here"):
            ablate.load(tmp_path / "a.json")
