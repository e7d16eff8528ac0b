# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os

import pytest

from flag_gems_overrides.cli import _device
from flag_gems_overrides.perf import run
from flag_gems_overrides.perf.records import read

from .made import Meter


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
