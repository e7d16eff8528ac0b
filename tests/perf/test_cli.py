# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from flag_gems_overrides.cli import _device, commands
from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.perf import resources, run
from flag_gems_overrides.perf.records import Recorder, dumps, read
from flag_gems_overrides.perf.timing import ThrottledError
from flag_gems_overrides.registration import upstream

from . import rows


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Run a command in an empty folder, in this process, where flag_gems is loaded already."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        # Wide enough for the usage of a wrong option.
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "240"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, " ".join(result.output.split())

    return call


def write_record(path, *made, **changes):
    recorder = Recorder(path, rows.head(**changes), [row["key"] for row in made])
    for row in made:
        recorder.row(row)
    recorder.close()
    return path


@pytest.fixture
def record(tmp_path):
    return write_record(tmp_path / "record.jsonl", rows.timed(override=1.0, native=2.0))


@pytest.fixture
def shapes(tmp_path):
    """A shape file where the commands look for one."""
    path = tmp_path / "benchmark" / "core_shapes.yaml"
    path.parent.mkdir()
    path.write_text(
        "softmax: {core: [{shape: [4096, 4096], dim: 1}], comprehensive: [{shape: [8, 8], dim: 1}], "
        "interpreter: [{shape: [64, 256], dim: 1}]}"
    )
    return path


def test_report_shows_a_record(invoke, record):
    status, output = invoke("report", str(record))
    assert status == 0
    assert "Operator: softmax" in output
    assert "FASTER" in output


def test_report_writes_what_is_asked_for(invoke, record, tmp_path):
    status, output = invoke("report", str(record), "--markdown", "a.md", "--html", "a.html", "--figures", "png")
    assert (status, output) == (0, "wrote a.md wrote a.html wrote 1 figure into png")
    assert "| softmax |" in (tmp_path / "a.md").read_text()
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in (tmp_path / "png").iterdir()] == ["roofline.png"]


def test_accept_shows_what_changes_and_writes_it(invoke, record, shapes, tmp_path):
    status, output = invoke("accept", str(record), "--folder", "base", "--dry-run")
    assert status == 0
    assert "1 of 1 cases change" in output
    assert output.endswith("would write base/nvidia-h200/softmax.json")
    assert not (tmp_path / "base").exists()
    status, output = invoke("accept", str(record), "--folder", "base")
    assert status == 0
    assert output.endswith("accepted base/nvidia-h200/softmax.json")
    write_record(tmp_path / "slower.jsonl", rows.timed(override=1.25, native=2.0))
    status, output = invoke("accept", "slower.jsonl", "--folder", "base")
    columns = "Case old ratio new ratio old floor new floor old ms new ms"
    assert f"softmax {columns} softmax 4096x4096 dim=1 bfloat16 2.0" in output
    assert "1.60" in output
    assert json.loads((tmp_path / "base/nvidia-h200/softmax.json").read_text())["cases"]


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_accept_says_that_nothing_changes_and_leaves_such_files(invoke, record, shapes, tmp_path, options):
    assert invoke("accept", str(record), "--folder", "base")[0] == 0
    path = tmp_path / "base/nvidia-h200/softmax.json"
    path.write_text(path.read_text().replace('"commit": ', '"commit":  '))
    before = path.read_text()
    assert invoke("accept", str(record), "--folder", "base", *options) == (0, "nothing changes: 1 case as accepted")
    assert path.read_text() == before


def test_accept_writes_the_files_of_the_ops_that_change_alone(invoke, shapes, tmp_path):
    shapes.write_text(shapes.read_text() + "\nmax: {core: [{shape: [8]}]}")
    alike = rows.timed("max 8 bfloat16", override=1.0, native=2.0)
    write_record(tmp_path / "old.jsonl", rows.timed(override=1.0, native=2.0), alike)
    write_record(tmp_path / "new.jsonl", rows.timed(override=1.25, native=2.0), alike)
    assert invoke("accept", "old.jsonl", "--folder", "base")[1].count("accepted base") == 2
    status, output = invoke("accept", "new.jsonl", "--folder", "base")
    assert status == 0
    assert "1 of 2 cases change" in output
    assert output.endswith("keep their baseline accepted base/nvidia-h200/softmax.json")


def test_accept_shows_that_a_reason_goes(invoke, shapes, tmp_path):
    shapes.write_text("softmax: {interpreter: [{shape: [64, 256], dim: 1}]}")
    key = "softmax 64x256 dim=1 float32"
    write_record(tmp_path / "more.jsonl", rows.counted(key, launches=3), measure="count", level="interpreter")
    assert invoke("accept", "more.jsonl", "--folder", "base", "--reason", "partials")[0] == 0
    write_record(tmp_path / "less.jsonl", rows.counted(key), measure="count", level="interpreter")
    status, output = invoke("accept", "less.jsonl", "--folder", "base")
    assert status == 0
    assert "old more_than_upstream" in output
    assert "partials -" in output


def test_accept_refuses_another_level_unless_told(invoke, shapes, tmp_path):
    write_record(tmp_path / "one.jsonl", rows.timed("softmax 7x9 dim=1 float32", override=1.0, native=2.0), level="7x9")
    status, output = invoke("accept", "one.jsonl")
    assert status == 2
    assert output == "error: one.jsonl: level: '7x9' is not 'core', the baselines' level; to take it: --level '7x9'"
    assert not (tmp_path / "benchmark" / "baselines").exists()
    assert invoke("accept", "one.jsonl", "--level", "7x9")[0] == 0
    assert (tmp_path / "benchmark" / "baselines" / "nvidia-h200" / "softmax.json").exists()


def test_accept_refuses_a_record_that_lacks_cases_of_the_level(invoke, record, shapes):
    shapes.write_text("softmax: {core: [{shape: [4096, 4096], dim: 1}, {shape: [8, 8], dim: 1}]}")
    status, output = invoke("accept", str(record))
    assert status == 2
    assert "partial: lacks 1 case of level core, as softmax 8x8 dim=1 bfloat16; measure all" in output


def test_accept_leaves_out_what_is_not_of_the_level(invoke, shapes, tmp_path):
    other = rows.timed("softmax 5x5 dim=1 bfloat16", override=1.0, native=2.0)
    write_record(tmp_path / "more.jsonl", rows.timed(override=1.0, native=2.0), other)
    status, output = invoke("accept", "more.jsonl", "--folder", "base")
    assert status == 0
    assert "left out: 1 case not of the level" in output
    cases = json.loads((tmp_path / "base/nvidia-h200/softmax.json").read_text())["cases"]
    assert list(cases) == ["softmax 4096x4096 dim=1 bfloat16"]


def test_accept_asks_for_a_reason(invoke, shapes, tmp_path):
    row = rows.counted(launches=2)
    recorder = Recorder(tmp_path / "count.jsonl", rows.head("count", level="interpreter"), [row["key"]])
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
        (["softmax", "--shape", "64x64 dim=1", "--level", "core"], "--level and --shape exclude each other"),
        (
            ["softmax", "8x512", "dim=1"],
            "'8x512' is no op; give a shape by --shape: gems-overrides bench softmax --shape '8x512",
        ),
        (["softmax", "--shapes", "missing.yaml"], "missing.yaml: No such file or directory"),
    ],
)
def test_bench_names_what_is_wrong(invoke, words, message):
    status, output = invoke("bench", *words)
    assert status == 2
    assert message in output


def test_bench_names_what_is_wrong_before_flag_gems_is_loaded(invoke, monkeypatch):
    monkeypatch.setattr(_device, "prepare", lambda: pytest.fail("was loaded"))
    status, output = invoke("bench", "softmax", "--shape", "8192x4096")
    assert (status, output) == (2, "error: softmax: argument 'dim' is missing; give it, as in '64x512 dim=1'")
    status, output = invoke("bench", "softmaxx", "--shape", "8x8 dim=1")
    assert status == 2
    assert output.startswith("error: op 'softmaxx' is not known; known: ")


def test_profile_names_what_is_wrong(invoke):
    status, output = invoke("profile", "softmax", "")
    assert status == 2
    assert output.endswith("error: shape '' is not of the form 64x512x512")


@pytest.mark.parametrize("words", [["bench", "softmax", "--shape", "8x8 dim=1"], ["profile", "softmax", "8x8 dim=1"]])
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


def test_ctrl_c_keeps_what_is_done_and_the_same_command_resumes(invoke, monkeypatch, shapes, tmp_path):
    command = ["bench", "softmax", "--shape", "8x8 dim=1", "--dtype", "float32", "--dtype", "float16"]
    monkeypatch.setattr(run, "meter", lambda *_: Meter(stop_at="float16"))
    status, output = invoke(*command)
    assert status == 130
    assert "Interrupted with 1 of 2 cases in benchmark_result.jsonl" in output
    assert "8x8 dim=1" in output
    assert output.endswith("the same command resumes."), "what comes last is read"

    status, output = invoke("accept", "benchmark_result.jsonl")
    assert status == 2
    assert "benchmark_result.jsonl: partial: the session did not end; run the same command again to end it" in output

    second = Meter()
    monkeypatch.setattr(run, "meter", lambda *_: second)
    status, output = invoke(*command)
    assert status == 0
    assert "benchmark_result.jsonl: resuming after 1 of 2 cases" in output
    assert output.endswith("2 cases in benchmark_result.jsonl")
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


def test_a_full_disk_ends_bench_with_status_2(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "meter", lambda *_: Meter())
    write, lines = os.write, []

    def until_full(file, text):
        if len(lines) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        lines.append(text)
        return write(file, text)

    monkeypatch.setattr(os, "write", until_full)
    status, output = invoke("bench", "softmax", "--shape", "8x8 dim=1")
    assert status == 2
    assert "error: benchmark_result.jsonl: No space left on device; the lines before are whole: make room" in output
    (session,) = read(tmp_path / "benchmark_result.jsonl")
    assert (len(session.rows), session.ended, session.torn) == (1, False, False)


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


def test_bench_measures_an_op_of_one_dtype_in_that(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "meter", lambda *_: Meter())
    assert invoke("bench", "_is_all_true", "--shape", "8x8")[0] == 0
    assert list(read(tmp_path / "benchmark_result.jsonl")[-1].rows) == ["_is_all_true 8x8 bool"]


def test_bench_measures_what_was_asked_for(invoke, monkeypatch, shapes):
    asked = []
    monkeypatch.setattr(run, "meter", lambda *arguments: asked.append(arguments) or Meter())
    monkeypatch.setattr(run, "is_timed", lambda: True)
    monkeypatch.setattr(_device, "prepare", lambda: None)
    invoke("bench", "softmax", "--shape", "8x8 dim=1", "--mode", "operator", "--peer", "quack", "--peer", "compile")
    invoke("bench", "softmax", "--level", "comprehensive")
    invoke("bench", "softmax")
    assert asked == [
        ("operator", "8x8 dim=1", ["quack", "compile"]),
        ("kernel", "comprehensive", ()),
        ("kernel", "core", ()),
    ]


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


def test_what_has_no_effect_without_a_gpu_is_said(invoke, monkeypatch):
    monkeypatch.setattr(run, "meter", lambda *_: Meter())
    monkeypatch.setattr(run, "is_timed", lambda: False)
    words = ["bench", "softmax", "--shape", "8x8 dim=1"]
    assert "no effect" not in invoke(*words)[1]
    _, output = invoke(*words, "--mode", "operator", "--peer", "quack")
    assert "no effect without a GPU: --mode, --peer; the interpreter shapes are counted" in output


def test_a_level_that_has_no_effect_is_said(invoke, monkeypatch, shapes):
    monkeypatch.setattr(run, "meter", lambda *_: Meter())
    monkeypatch.setattr(run, "is_timed", lambda: False)
    _, output = invoke("bench", "softmax", "--level", "comprehensive")
    assert "no effect without a GPU: --level; the interpreter shapes are counted" in output
    assert "64x256 dim=1" in output


def test_profile_looks_at_its_folder_before_it_compiles(invoke, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(resources, "survey", lambda *_, **__: pytest.fail("compiled first"))
    status, output = invoke("profile", "softmax", "8x8 dim=1", "--output", "file/deep")
    assert (status, output) == (2, "error: file/deep: Not a directory; name a folder that can be written")


def test_markdown_goes_to_stdout(invoke, record):
    status, output = invoke("report", str(record), "--markdown", "-")
    assert status == 0
    assert output.startswith("NVIDIA H200; flag_gems")
    assert "| Op | dtype | Cases |" in output


def test_report_prints_data(record, monkeypatch, tmp_path):
    printed = CliRunner().invoke(app, ["report", str(record), "--format", "csv"]).stdout
    (row,) = csv.DictReader(printed.splitlines())
    assert (row["Operator"], row["Size Detail"], row["Verdict"]) == ("softmax", "4096x4096 dim=1", "FASTER")
    printed = CliRunner().invoke(app, ["report", str(record), "--format", "json"]).stdout
    assert json.loads(printed)["cases"][0]["Torch Latency (ms)"] == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "xml"], "--format 'xml' is not known; known: table, markdown, json, csv"),
        (["--sort", "size"], "--sort 'size' is not known; known: measured, worst, slowest"),
        (["--verdict", "FAST"], "--verdict 'FAST' is not known; known: FASTER, SAME, SLOWER"),
        (["--op", "prod"], "--op 'prod' is not known; known: softmax"),
        (["--dtype", "int8"], "--dtype 'int8' is not known; known: bfloat16"),
        (["--session", "2"], "record.jsonl: --session 2: the record has 1, counted from 1"),
    ],
)
def test_report_names_what_is_wrong(invoke, record, words, message):
    status, output = invoke("report", "record.jsonl", *words)
    assert status == 2
    assert f"error: {message}" in output


def test_report_says_when_nothing_is_left(invoke, record):
    status, output = invoke("report", "record.jsonl", "--verdict", "slower")
    assert status == 0
    assert "record.jsonl: no case of what was asked for" in output


def test_a_record_of_several_sessions_lets_one_choose(invoke, record):
    write_record(record, rows.timed("max 64 float32", override=1.0, native=2.0), commit="def")
    assert (
        "Session 2 of 2 in this record (2026-11-20T12:00:00); --session chooses" in invoke("report", "record.jsonl")[1]
    )
    _, output = invoke("report", "record.jsonl", "--session", "1")
    assert "Session 1 of 2" in output
    assert "Operator: softmax" in output
    assert "Operator: max" not in output


def test_counts_have_no_figures_and_report_says_so(invoke, tmp_path):
    recorder = Recorder(tmp_path / "count.jsonl", rows.head("count"), [rows.counted()["key"]])
    recorder.row(rows.counted())
    recorder.close()
    status, output = invoke("report", "count.jsonl", "--figures", "png")
    assert status == 2
    assert "--figures png: there is nothing to draw" in output


def test_compare_ends_with_1_if_a_case_became_slower(invoke, record, tmp_path):
    write_record(tmp_path / "slower.jsonl", rows.timed(override=1.2, native=2.0))
    status, output = invoke("compare", "record.jsonl", "slower.jsonl")
    assert status == 1
    assert "1 case: 1 SLOWER; geomean of speed -16." in output
    assert invoke("compare", "slower.jsonl", "record.jsonl")[0] == 0
    assert "1 case: 1 SAME" in invoke("compare", "record.jsonl", "record.jsonl")[1]
    status, output = invoke("compare", "record.jsonl", "slower.jsonl", "--format", "markdown")
    assert status == 1
    assert output.startswith("**1 case: 1 SLOWER;")
    status, output = invoke("compare", "record.jsonl", "slower.jsonl", "--format", "json")
    assert json.loads(output)["cases"][0]["word"] == "SLOWER"


def test_summary_writes_a_page(invoke, record, tmp_path):
    status, output = invoke("summary", "record.jsonl", "--output", "page.md")
    assert (status, output) == (0, "wrote page.md")
    text = (tmp_path / "page.md").read_text()
    assert "    gems-overrides summary record.jsonl --output page.md\n" in text
    assert "| record.jsonl | core | 1 | 2026-11-20 12:00 | code 1111111111111111, commit abc | 1.0% |" in text
    status, output = invoke("summary", "record.jsonl", "--short", "--dtype", "bfloat16")
    assert "| softmax | 1 | 2.00x | - | - |" in output
    assert invoke("summary", "record.jsonl", "--dtype", "int8")[0] == 2


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
