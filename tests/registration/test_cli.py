# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from flag_gems_overrides import cli, environment
from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.cli.list import list_overrides
from flag_gems_overrides.errors import UserError
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.registration import upstream


def in_a_process_of_its_own(*arguments, before=()):
    """Run a command where modules and distributions of the folders ``before`` come first."""
    environ = {key: value for key, value in os.environ.items() if key not in ("TRITON_INTERPRET", "GEMS_VENDOR")}
    code = "from flag_gems_overrides.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environ | {"PYTHONPATH": os.pathsep.join([*map(str, before), *sys.path]), "COLUMNS": "150"},
    )


@pytest.fixture
def invoke(monkeypatch):
    """Run a command in this process, where flag_gems is loaded already."""
    monkeypatch.setenv("COLUMNS", "150")

    def run(*arguments):
        result = CliRunner().invoke(app, list(arguments))
        return result.exit_code, " ".join(result.output.split())

    return run


def test_doctor_works_on_a_fresh_process(names):
    done = in_a_process_of_its_own("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert torch.__version__.split("+")[0] in done.stdout
    assert f"{len(names)} of {len(OPERATORS)} overrides would be installed" in done.stdout
    assert ("Triton's interpreter" in done.stdout) is not torch.cuda.is_available()
    assert done.stdout.rstrip().endswith("usable")


def test_list_needs_neither_a_gpu_nor_flag_gems():
    done = in_a_process_of_its_own("list")
    assert done.returncode == 0, done.stderr
    for override in OPERATORS.values():
        for text in (override.name, override.overload or override.native, override.upstream_module):
            assert text in done.stdout


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_in_a_terminal_no_line_is_longer_and_no_word_is_cut(monkeypatch, capsys, columns):
    list_overrides()
    whole = capsys.readouterr().out
    assert max(map(len, whole.split("\n"))) > 80, "a pipe gets a line as it is"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    list_overrides()
    shown = capsys.readouterr().out
    assert max(map(len, shown.split("\n"))) <= columns
    assert shown.split() == whole.split()
    (first,) = [line for line in shown.split("\n") if "(input.shape[1],)" in line][:1]
    assert first.startswith("  - " if columns > 70 else "    "), "it hangs below the text"


def test_without_typer_three_commands_run_and_the_others_say_what_they_lack(monkeypatch, capsys):
    def ends():
        raise SystemExit(2)

    def fails():
        raise UserError("no flag_gems")

    monkeypatch.setattr(cli, "version", lambda: "flag-gems-overrides 7.8")
    monkeypatch.setattr("flag_gems_overrides.cli.doctor.doctor", ends)
    monkeypatch.setattr("flag_gems_overrides.cli.status.show_status", fails)
    lacks = "needs typer: pip install 'flag-gems-overrides[bench]'\n"
    usage = f"gems-overrides [doctor|list|status|--version]; every other command {lacks}"
    for words, status, out, said in (
        ([], 0, usage, ""),
        (["--help"], 0, usage, ""),
        (["--version"], 0, "flag-gems-overrides 7.8\n", ""),
        (["doctor"], 2, "", ""),
        (["status"], 2, "", "error: no flag_gems\n"),
        (["bench", "softmax"], 2, "", f"error: bench softmax {lacks}"),
        (["list", "--all"], 2, "", f"error: list --all {lacks}"),
    ):
        assert cli.run_light(words) == status
        assert capsys.readouterr() == (out, said)
    assert cli.run_light(["list"]) == 0
    assert "softmax" in capsys.readouterr().out


def test_list_shows_every_fix(invoke):
    code, output = invoke("list")
    assert code == 0
    for override in OPERATORS.values():
        assert override.fixes[0].split()[0] in output


def test_doctor_names_what_is_left_out_and_why(invoke, monkeypatch):
    reason = "flag_gems 9.9 has no function amax in ops/amax.py [sic]"
    monkeypatch.setattr(upstream, "left_out", lambda: {"amax": reason})
    code, output = invoke("doctor")
    assert code == 0
    assert reason in output
    assert f"{len(OPERATORS) - 1} of {len(OPERATORS)} overrides" in output


def test_doctor_fails_where_no_override_can_be_installed(invoke, monkeypatch):
    monkeypatch.setattr(upstream, "left_out", lambda: dict.fromkeys(OPERATORS, "gone"))
    code, output = invoke("doctor")
    assert code == 2
    assert output.endswith("not usable")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError(upstream.NO_DEVICE), "interpreter.activate()"),
        (ImportError("no [x]"), "ImportError: no [x]"),
    ],
)
def test_doctor_fails_with_the_reason_where_flag_gems_does_not_load(error, text, invoke, monkeypatch):
    def load():
        raise error

    monkeypatch.setattr(upstream, "load", load)
    code, output = invoke("doctor")
    assert code == 2
    assert text in output


def test_doctor_fails_with_the_reason_where_flag_gems_is_not_what_it_looks_into(invoke, monkeypatch):
    def left_out():
        raise AttributeError("no aten_patch_list")

    monkeypatch.setattr(upstream, "left_out", left_out)
    code, output = invoke("doctor")
    assert code == 2
    assert "problem AttributeError: no aten_patch_list" in output


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {
                "flag_gems_overrides-9.dist-info/METADATA": "Name: flag-gems-overrides\nRequires-Dist: triton>=3.6",
                "triton-3.5.0.dist-info/METADATA": "Name: triton\nVersion: 3.5.0",
            },
            "flag_gems_overrides needs triton>=3.6 and triton 3.5.0 is installed",
        ),
        ({"flag_gems/__init__.py": "raise OSError('no [libgems.so]')"}, "OSError: no [libgems.so]"),
        ({"torch.py": "raise ImportError('no libtorch.so')"}, "ImportError: no libtorch.so"),
    ],
    ids=["triton", "flag_gems", "torch"],
)
def test_doctor_has_the_facts_and_the_problem_of_a_broken_installation(files, problem, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = in_a_process_of_its_own("doctor", before=[tmp_path])
    assert done.returncode == 2, done.stderr
    assert f"problem {problem}" in done.stdout
    assert re.search(r"^triton +3\.\d", done.stdout, re.MULTILINE)
    assert done.stdout.rstrip().endswith("not usable")
    assert done.stderr == ""


def test_an_unknown_command_is_a_usage_error(invoke):
    code, output = invoke("cure")
    assert code == 2
    assert "No such command 'cure'" in output


def test_doctor_says_what_was_not_tried(monkeypatch):
    monkeypatch.setattr(environment, "_version", lambda package: "5.1.0")
    cautions = " ".join(environment.examine().cautions)
    assert "torch 5.1.0 + triton 5.1.0 have not been tried" in cautions
    assert "flag_gems 5.1.0 has not been tried" in cautions


def test_examine_reads_versions_of_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", (*environment.PACKAGES, "no-such-package"))
    assert environment.examine().versions["no-such-package"] == "not installed"
