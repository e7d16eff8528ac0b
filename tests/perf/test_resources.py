# SPDX-License-Identifier: Apache-2.0
"""Compiling itself is shown by the perf gate; one kernel is compiled here."""

from __future__ import annotations

import json
import signal
import sys
import threading

import pytest

from flag_gems_overrides.perf import resources
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.perf.devices import H200


def row(digest: str, op: str = "softmax", triton: str = "3.7.1", spilled: int = 0) -> resources.Row:
    return {
        "digest": digest,
        "kernel": "rows",
        "arch": 90,
        "triton": triton,
        "options": {"num_warps": 4},
        "registers": 255,
        "spilled_bytes": spilled,
        "shared_bytes": 0,
        "occupancy": 0.125,
        "case": f"{op} 64x64 dim=1 float32",
    }


def test_one_spill_fails_by_name():
    (failure,) = resources.failures([row("a"), row("b", spilled=8)])
    assert failure.rule == "spills"
    assert failure.where == "softmax 64x64 dim=1 float32"
    assert "rows for sm_90 spills 8 bytes per thread at 255 registers" in failure.found
    assert "num_warps" in failure.remedy


def test_what_does_not_compile_fails_by_name_and_is_not_kept(tmp_path):
    bad = {name: value for name, value in row("b").items() if name in ("kernel", "arch", "options", "case")}
    bad["error"] = "CompilationError: loop-carried"
    (failure,) = resources.failures([row("a"), bad])
    assert failure.rule == "compiles"
    assert "rows for sm_90: CompilationError: loop-carried" in failure.found
    resources.save(tmp_path / "survey.jsonl", [row("a"), bad])
    assert resources.load(tmp_path / "survey.jsonl") == [row("a")]


def test_a_survey_keeps_other_ops_and_other_tritons(tmp_path):
    known = [row("old"), row("other-op", op="max"), row("other-triton", triton="3.6.0")]
    merged = resources.merged(known, [row("new")], ["softmax"])
    assert {each["digest"] for each in merged} == {"new", "other-op", "other-triton"}
    path = tmp_path / "survey.jsonl"
    resources.save(path, merged)
    before = path.read_bytes()
    assert all(list(json.loads(line)) == sorted(json.loads(line)) for line in before.splitlines())
    resources.save(path, reversed(resources.load(path)))
    assert path.read_bytes() == before
    assert resources.load(tmp_path / "none") == []


def test_a_case_is_planned_compiled_and_known_again(tmp_path):
    case = parse("max 4096 float32")
    rows = resources.survey([case], [H200], folder=tmp_path)
    for each in rows:
        assert each["arch"] == 90
        assert 0 < each["registers"] <= 255
        assert 0 < each["occupancy"] <= 1
        stages = {path.suffix for path in tmp_path.glob(f"{each['kernel']}-{each['digest']}*")}
        assert stages >= {".ttir", ".ttgir", ".ptx", ".sass"}
    planted = [{**each, "registers": 77} for each in rows]
    assert resources.survey([case], [H200], known=planted) == planted, "what is known is not compiled"


def test_cases_are_shared_by_processes_and_a_kernel_that_two_have_compiled_is_one(monkeypatch):
    asked = []

    def compiled(task, told, started):
        asked.append(task["cases"])
        return [row(key.split()[1]) for key in task["cases"]] + [row("same")]

    monkeypatch.setattr(resources, "processes", lambda: 2)
    monkeypatch.setattr(resources, "_compile", compiled)
    rows = resources.survey([parse(f"max {n} float32") for n in (1, 2, 3)], [H200])
    assert sorted(asked) == [["max 1 float32", "max 3 float32"], ["max 2 float32"]]
    assert sorted(each["digest"] for each in rows) == ["1", "2", "3", "same"]


def test_what_cannot_be_compiled_is_said_with_the_reason():
    with pytest.raises(resources.ResourceError, match=r"NVIDIA H200 failed(.|\n)*dim=7 is out of range"):
        resources.survey([parse("softmax 64x64 dim=7 float32")], [H200])


@pytest.mark.timeout(60)
def test_what_is_compiled_is_told_at_once_and_an_interrupt_ends_the_rest(tmp_path, monkeypatch):
    endless = tmp_path / "python"
    endless.write_text('#!/bin/sh\ncat > /dev/null\necho \'{"digest": "a"}\'\nexec sleep 3600\n')
    endless.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(endless))
    told = []

    def compiled(row):
        told.append(row)
        # Not at once: between Python's look for signals and the lock that the main thread then waits for, one is lost.
        threading.Timer(1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()

    # Ignored where pytest was started in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            resources.survey([], [H200], compiled=compiled)
    finally:
        signal.signal(signal.SIGINT, before)
    assert told == [{"digest": "a"}]


def test_norms_without_weight_and_bias_compile(monkeypatch):
    """The interpreter lets pass what the compiler refuses: a function of a kernel that returns None."""
    monkeypatch.setattr(resources, "processes", lambda: 1)  # importing takes longer than compiling these
    cases = [parse(f"{op} 5x1001 normalized=1 bfloat16") for op in ("layer_norm", "layer_norm_backward")]
    rows = resources.survey(cases, [H200], parameters=False)
    assert len(rows) >= 2
    assert not [row for row in rows if "error" in row]
