# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from perf import rows
from typer.testing import CliRunner

from flag_gems_overrides.cli import commands
from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.perf import run
from flag_gems_overrides.perf.records import dumps, read
from flag_gems_overrides.perf.timing import ThrottledError
from flag_gems_overrides.registration import upstream

from .made import Meter


@pytest.mark.parametrize("command", ["report", "accept"])
def test_a_bad_record_is_named_with_status_2(invoke, tmp_path, command):
    (tmp_path / "bad.jsonl").write_text('{"kind": "session"}\n')
    status, output = invoke(command, "bad.jsonl")
    assert status == 2
    assert "error: bad.jsonl line 1: line: 'schema' is a required property" in output


@pytest.mark.parametrize("command", ["report", "accept"])
def test_a_record_of_a_case_that_cannot_be_is_refused_with_status_2(invoke, shapes, tmp_path, command):
    row = rows.timed("softmax 8x16 dims=0 float32", override=1.0, native=2.0)
    (tmp_path / "old.jsonl").write_text("".join(f"{dumps(each)}\n" for each in (rows.head(), row, {"kind": "end"})))
    status, output = invoke(command, "old.jsonl")
    assert status == 2
    assert output.endswith("error: softmax: argument 'dims' is not known; known: dim")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "--markdown", "folder"], "folder: Is a directory; name a file that can be written"),
        (["report", "--html", "folder"], "folder: Is a directory; name a file that can be written"),
        (["report", "--html", "record.jsonl/a.html"], "record.jsonl/a.html: File exists; name a file that can be"),
        (["report", "--figures", "record.jsonl"], "record.jsonl: File exists; name a folder that can be written"),
        (["report", "--figures", ""], "--figures: name a folder for the PNG files"),
        (["accept", "--folder", "record.jsonl"], "record.jsonl/nvidia-h200/softmax.json: Not a directory; name a file"),
    ],
)
def test_what_cannot_be_written_is_named_with_status_2(invoke, record, shapes, tmp_path, words, message):
    (tmp_path / "folder").mkdir()
    status, output = invoke(words[0], str(record), *words[1:])
    assert status == 2
    assert f"error: {message}" in output
    assert {path.name for path in tmp_path.iterdir()} == {"benchmark", "folder", "record.jsonl"}


def test_a_throttled_device_is_said_with_status_2(invoke, monkeypatch, tmp_path):
    def throttled(case):
        raise ThrottledError("the device was throttled in each of 40 rounds: let it cool down")

    meter = Meter()
    meter.measure = throttled
    monkeypatch.setattr(run, "meter", lambda *_: meter)
    for words in (["bench", "softmax", "--shape", "8x8 dim=1"], ["profile", "softmax", "8x8 dim=1"]):
        status, output = invoke(*words)
        assert status == 2
        assert output.endswith("error: the device was throttled in each of 40 rounds: let it cool down")
    assert not read(tmp_path / "benchmark_result.jsonl")[-1].ended


@pytest.mark.parametrize("words", [["bench", "softmax", "--shape", "8x8 dim=1"], ["profile", "softmax", "8x8 dim=1"]])
@pytest.mark.parametrize("error", [RuntimeError("triton 3.5.0 is installed"), ImportError("no libgems.so")])
def test_a_flag_gems_that_does_not_load_is_an_error_of_one_line(invoke, monkeypatch, words, error):
    def load():
        raise error

    monkeypatch.setattr(upstream, "load", load)
    assert invoke(*words) == (2, f"error: {error}")


@pytest.mark.parametrize("words", [["--help"], ["list"], ["report", "record.jsonl"]])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_behind_stdout_is_one_line_with_status_2(record, monkeypatch, tmp_path, words):
    """Of another process: Python flushes stdout once more when it ends."""
    monkeypatch.chdir(tmp_path)
    code = "from flag_gems_overrides.cli import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    message = "error: No space left on device: what was written is not whole; make room, and run it again\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.parametrize("without", ["", "import sys; sys.modules['typer'] = None; "])
def test_a_pipe_that_nobody_reads_any_more_is_no_error_to_look_at(without):
    read, write = os.pipe()
    os.close(read)
    code = f"{without}from flag_gems_overrides.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "list"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_pipe_gets_the_results_and_the_terminal_what_is_said_about_them(monkeypatch, tmp_path, record):
    monkeypatch.chdir(tmp_path)

    def call(*words):
        ran = CliRunner().invoke(app, list(words))
        return ran.exit_code, ran.stdout, ran.stderr.strip()

    nothing = "record.jsonl: no case of what was asked for"
    status, out, said = call("report", "record.jsonl", "--verdict", "slower", "--format", "json")
    assert (status, json.loads(out)["cases"], said) == (0, [], nothing)
    assert call("report", "record.jsonl", "--markdown", "a.md") == (0, "", "wrote a.md")
    assert call("report", "none.jsonl")[:2] == (2, "")
    assert call("report", "none.jsonl")[2].startswith("error: none.jsonl: No such file")
    monkeypatch.setattr(commands, "version", lambda: "flag-gems-overrides 7.8")
    assert call("--version") == (0, "flag-gems-overrides 7.8\n", "")


def test_every_command_explains_itself(invoke):
    status, output = invoke("--help")
    assert status == 0
    for command in (
        "doctor",
        "list",
        "status",
        "bench",
        "profile",
        "report",
        "compare",
        "summary",
        "accept",
        "patches",
    ):
        assert f" {command} " in output
        assert invoke(command, "--help")[0] == 0


def test_a_command_that_lacks_a_package_says_so_and_the_others_run():
    def without_jsonschema(*words):
        code = "import sys; sys.modules['jsonschema'] = None; from flag_gems_overrides.cli import main; main()"
        return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)

    done = without_jsonschema("compare", "a", "b")
    assert done.returncode == 2
    assert done.stderr == "error: compare needs jsonschema: pip install 'flag-gems-overrides[bench]'\n"
    assert without_jsonschema("list").returncode == 0
