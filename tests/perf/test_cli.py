# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from flag_gems_overrides.cli import app
from flag_gems_overrides.perf import resources, run
from flag_gems_overrides.perf.records import Recorder, dumps, read
from flag_gems_overrides.perf.timing import ThrottledError
from flag_gems_overrides.registration import upstream

from . import rows


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Run a command in an empty folder, in this process, where flag_gems is loaded already."""
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, " ".join(result.output.split())

    return call


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "record.jsonl"
    row = rows.timed(override=1.0, native=2.0)
    recorder = Recorder(path, rows.head(), [row["key"]])
    recorder.row(row)
    recorder.close()
    return path


def test_report_shows_a_record(invoke, record):
    status, output = invoke("report", str(record))
    assert status == 0
    assert "Operator: softmax" in output
    assert "FASTER" in output


def test_report_writes_what_is_asked_for(invoke, record, tmp_path):
    status, output = invoke("report", str(record), "--markdown", "a.md", "--html", "a.html", "--figures", "png")
    assert (status, output) == (0, "")
    assert "| softmax |" in (tmp_path / "a.md").read_text()
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert {path.name for path in (tmp_path / "png").iterdir()} >= {"roofline.png", "heatmap-softmax.png"}


def test_accept_writes_baselines(invoke, record, tmp_path):
    status, output = invoke("accept", str(record), "--folder", "base")
    assert (status, output) == (0, "accepted base/nvidia-h200/softmax.json")
    assert json.loads((tmp_path / "base/nvidia-h200/softmax.json").read_text())["cases"]


def test_accept_asks_for_a_reason(invoke, tmp_path):
    row = rows.counted(launches=2)
    recorder = Recorder(tmp_path / "count.jsonl", rows.head("count"), [row["key"]])
    recorder.row(row)
    recorder.close()
    status, output = invoke("accept", "count.jsonl", "--folder", "base")
    assert status == 2
    assert "2 launches, upstream makes 1; say why that is right with --reason" in output
    assert invoke("accept", "count.jsonl", "--folder", "base", "--reason", "partials")[0] == 0


@pytest.mark.parametrize("command", ["report", "accept"])
def test_a_bad_record_is_named_with_status_2(invoke, tmp_path, command):
    (tmp_path / "bad.jsonl").write_text('{"kind": "session"}\n')
    status, output = invoke(command, "bad.jsonl")
    assert status == 2
    assert "error: bad.jsonl line 1: line: 'schema' is a required property" in output


@pytest.mark.parametrize("command", ["report", "accept"])
def test_a_record_of_a_case_that_cannot_be_is_refused_with_status_2(invoke, tmp_path, command):
    row = rows.timed("softmax 8x16 dims=0 float32", override=1.0, native=2.0)
    (tmp_path / "old.jsonl").write_text("".join(f"{dumps(each)}\n" for each in (rows.head(), row, {"kind": "end"})))
    status, output = invoke(command, "old.jsonl")
    assert status == 2
    assert output.endswith("error: softmax: argument 'dims' is not known; known: dim")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "--markdown", "folder"], "Is a directory: 'folder'"),
        (["report", "--html", "folder"], "Is a directory: 'folder'"),
        (["report", "--html", "record.jsonl/deep/a.html"], "Not a directory: 'record.jsonl/deep/a.html'"),
        (["report", "--figures", "record.jsonl"], "File exists: 'record.jsonl'"),
        (["accept", "--folder", "record.jsonl"], "Not a directory: 'record.jsonl/nvidia-h200/softmax.json'"),
    ],
)
def test_what_cannot_be_written_is_named_with_status_2(invoke, record, tmp_path, words, message):
    (tmp_path / "folder").mkdir()
    status, output = invoke(words[0], str(record), *words[1:])
    assert status == 2
    assert output.startswith("error: ")
    assert output.endswith(message)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "record.jsonl"}


@pytest.mark.parametrize(
    ("output", "reason"), [("folder", "Is a directory"), ("file/deep/record.jsonl", "Not a directory")]
)
def test_a_record_that_cannot_be_written_is_named_with_status_2(invoke, monkeypatch, tmp_path, output, reason):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr(run, "meter", lambda *_: Meter())
    status, said = invoke("bench", "softmax", "--shape", "8x8 dim=1", "--output", output)
    assert status == 2
    assert f"error: {output}: {reason}; " in said


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["softmax", "--shape", "64,64"], "shape '64,64' is not of the form 64x512x512"),
        (["softmax", "--shape", ""], "shape '' is not of the form 64x512x512"),
        (["softmax", "--shape", "8x8 [/x]"], "argument '[/x]' is not of the form dim=1"),
        (["softmax", "--shape", "8x8 [red]"], "argument '[red]' is not of the form dim=1"),
        (["softmax", "--shape", "64x64", "--dtype", "half"], "dtype 'half' is not known"),
        (["softmax", "--shape", "64x64", "--dtype", "int32"], "softmax: dtype 'int32' is not known; known: float16"),
        (["softmax", "--shape", "64x64 dims=0"], "softmax: argument 'dims' is not known; known: dim"),
        (["softmax", "--shape", "64x64", "--level", "all"], "--level 'all' is not known; known: core, comprehensive"),
        (["softmax", "--shape", "64x64", "--mode", "host"], "--mode 'host' is not known; known: kernel, operator"),
        (["softmax", "--shape", "64x64", "--peer", "apex"], "--peer 'apex' is not known; known: compile, liger"),
        (["--shape", "64x64"], "--shape needs an op"),
        (["softmax"], "benchmark/core_shapes.yaml: No such file or directory"),
    ],
)
def test_bench_names_what_is_wrong(invoke, words, message):
    status, output = invoke("bench", *words)
    assert status == 2
    assert message in output


def test_profile_names_what_is_wrong(invoke):
    status, output = invoke("profile", "softmax", "")
    assert status == 2
    assert output.endswith("error: shape '' is not of the form 64x512x512")


@pytest.mark.parametrize("words", [["bench", "softmax", "--shape", "8x8"], ["profile", "softmax", "8x8"]])
@pytest.mark.parametrize("error", [RuntimeError("triton 3.5.0 is installed"), ImportError("no libgems.so")])
def test_a_flag_gems_that_does_not_load_is_an_error_of_one_line(invoke, monkeypatch, words, error):
    def load():
        raise error

    monkeypatch.setattr(upstream, "load", load)
    assert invoke(*words) == (2, f"error: {error}")


class Meter:
    """Answers at once; interrupted at a case if told so."""

    def __init__(self, stop_at: str = "") -> None:
        self.head = {key: value for key, value in rows.head("count").items() if key not in ("kind", "schema")}
        self.measured: list[str] = []
        self._stop_at = stop_at

    def measure(self, case):
        if case.dtype == self._stop_at:
            raise KeyboardInterrupt
        self.measured.append(case.key)
        return {name: value for name, value in rows.counted(case.key).items() if name != "kind"}


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(invoke, monkeypatch, tmp_path):
    command = ["bench", "softmax", "--shape", "8x8 dim=1", "--dtype", "float32", "--dtype", "float16"]
    monkeypatch.setattr(run, "meter", lambda *_: Meter(stop_at="float16"))
    status, output = invoke(*command)
    assert status == 130
    assert "Interrupted: 1 of 2 cases are in benchmark_result.jsonl" in output
    assert "8x8 dim=1" in output

    status, output = invoke("accept", "benchmark_result.jsonl")
    assert status == 2
    assert "run the same command again to end it" in output

    second = Meter()
    monkeypatch.setattr(run, "meter", lambda *_: second)
    assert invoke(*command)[0] == 0
    assert second.measured == ["softmax 8x8 dim=1 float16"]
    (session,) = read(tmp_path / "benchmark_result.jsonl")
    assert session.ended
    assert len(session.rows) == 2


def test_another_command_does_not_go_on(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "meter", lambda *_: Meter(stop_at="float16"))
    words = ["--shape", "8x8 dim=1", "--dtype", "float32", "--dtype", "float16"]
    assert invoke("bench", "softmax", *words)[0] == 130
    monkeypatch.setattr(run, "meter", lambda *_: Meter())
    assert invoke("bench", "max_dim", *words)[0] == 0
    first, second = read(tmp_path / "benchmark_result.jsonl")
    assert not first.ended
    assert second.ended
    assert {key.split()[0] for key in second.rows} == {"max_dim"}


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
        def survey(cases, gpus, known, compiled):
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
