# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
import torch

from flag_gems_overrides.cli.profile import _counters
from flag_gems_overrides.perf import counters, op_inputs
from flag_gems_overrides.perf.cases import parse

CASE = parse("softmax 64x64 dim=1 bfloat16")
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
TIME, HITS = "gpu__time_duration.sum", "l1tex__t_sector_hit_rate.pct"
HEAD = ("ID", "Kernel Name", "Grid Size", TIME, HITS, STALL.format("barrier"), STALL.format("long_scoreboard"))
PRINTED = f"""==PROF== Connected to process 7
==PROF== Profiling "softmax_rows": 0%....100% - 9 passes
{",".join(f'"{name}"' for name in HEAD)}
"","","","nsecond","%","inst","inst"
"0","softmax_rows(*bf16, int)","(16, 1, 1)","12,345","50.25","1.5","4.4"
"1","other","(1, 1, 1)","1000","n/a","0","0"
"""


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that puts an ncu in PATH that prints this and ends with this status."""

    def put(printed: str, status: int) -> None:
        program = tmp_path / "ncu"
        (tmp_path / "printed").write_text(printed)
        program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/printed\nexit {status}\n')
        program.chmod(program.stat().st_mode | stat.S_IEXEC)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return put


def test_a_row_for_each_kernel(ncu):
    ncu(PRINTED, 0)
    first, second = counters.count(CASE)
    assert first["key"] == CASE.key
    assert (first["kernel"], first["grid"]) == ("softmax_rows", "(16, 1, 1)")
    assert first["us"] == 12.345
    assert first["l1_hit_percent"] == 50.25
    assert first["registers"] is None, "a column that this ncu has not"
    assert first["waits_percent"] == {"long_scoreboard": 74.6, "barrier": 25.4}
    assert second["l1_hit_percent"] is None
    assert second["waits_percent"] == {}


def test_ncu_leaves_the_clock_alone_and_looks_at_one_call(ncu, tmp_path):
    ncu(PRINTED, 0)
    counters.count(CASE)
    asked = (tmp_path / "asked").read_text().strip()
    options, child = asked.split(f" {sys.executable} ")
    sections = " ".join(f"--section {name}" for name in counters.SECTIONS)
    assert options == f"--csv --page raw --print-units base --clock-control none --profile-from-start off {sections}"
    assert child == f"-m flag_gems_overrides.perf.counters --once {CASE.key}"


def test_one_call_prepares_and_the_next_is_between_the_marks(monkeypatch):
    done = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("wait"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: done.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: done.append("stop"))
    monkeypatch.setattr(op_inputs, "arguments", lambda case, device: [(case, device)])
    monkeypatch.setattr(op_inputs, "override", lambda op: done.append)
    counters._once(CASE)
    call = (CASE, "cuda")
    assert done == [call, "wait", "start", call, "wait", "stop"]


def test_profile_has_a_line_for_each_kernel(ncu):
    ncu(PRINTED, 0)
    first, second = (line.cells for line in _counters(counters.count(CASE)).lines)
    assert first[:2] == ["softmax_rows", "12.35"]
    assert "50.25" in first
    assert first[-1] == "long_scoreboard 75 %, barrier 25 %"
    assert "n/a" not in second


@pytest.mark.parametrize(("printed", "status"), [("==ERROR== ERR_NVGPUCTRPERM", 1), ("==WARNING== No kernels", 0)])
def test_what_ncu_says_is_told_where_it_counts_nothing(printed, status, ncu):
    ncu(printed, status)
    with pytest.raises(counters.CountersError, match=f"{CASE.key}: ncu: {printed}"):
        counters.count(CASE)


def test_no_ncu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(counters.CountersError, match="not in PATH"):
        counters.count(CASE)
