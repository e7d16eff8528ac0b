# SPDX-License-Identifier: Apache-2.0
"""The command and the page, on a record that is made up here: a machine without a GPU cannot measure one."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flag_gems_overrides.cli import ladder as command
from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.perf import conditions, ladder_page, records
from flag_gems_overrides.perf.ladder import LadderError, load, names
from flag_gems_overrides.perf.ladder_climb import Step, steps
from flag_gems_overrides.perf.verdict import Verdict

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmark" / "ladders"
LADDERS = [load(name, FOLDER) for name in names(FOLDER)]
COPY_GBPS = 4000.0


def _head(level: str) -> dict:
    return conditions.head("kernel", level) | {
        "device": {"name": "NVIDIA H200", "driver": "580", "l2_bytes": 60 << 20},
        "versions": {"python": "3.12", "torch": "2.11", "triton": "3.6", "flag_gems": "5.0.2", "nvcc": "13.0.88"},
        "started": "2026-11-22T00:00:00+00:00",
        "copy_gbps": COPY_GBPS,
        "read_gbps": COPY_GBPS,
        "noise": 0.01,
    }


def _row(ladder, shape, variant, hot) -> dict:
    """Every rung takes what its passes would at the copy's bandwidth, and less than the one before on its target."""
    half = 4 * math.prod(shape)
    providers = {}
    for rung, described in ladder.rungs.items():
        ms = 2 * half * (described.passes or 2) / COPY_GBPS / 1e6
        before = providers.get(described.after, {}).get("samples_ms") if shape == described.target else None
        ms = min(ms, 0.9 * before[0]) if before else ms
        timed = {"samples_ms": [ms] * 20, "agrees": True}
        providers[rung] = timed if described.supports(shape) else {"absent": "does not support it"}
    key, l2 = ladder.key(shape, variant), "hot" if hot else "cold"
    return {"key": key, "l2": l2, "compulsory": {"read": half, "written": half}, "providers": providers}


@pytest.fixture
def climb(tmp_path):
    """A folder as --open writes it."""
    for level, hot in (("ladder", False), ("ladder, L2 not flushed", True)):
        cases = [(each, *case) for each in LADDERS for case in ([(s, 0) for s in each.hot] if hot else each.cases())]
        recorder = records.Recorder(tmp_path / "record.jsonl", _head(level), [each.key(s, v) for each, s, v in cases])
        for each, shape, variant in cases:
            recorder.row(_row(each, shape, variant, hot))
        recorder.close()
    kernel = {"kernel": "k", "grid": [1, 1, 1], "threads": 128, "registers": 77, "shared_bytes": 0, "us": 3.0}
    lines = [
        {"ladder": each.name, "rung": rung, "shape": described.target or each.target}
        | {"kernels": [kernel | {"occupancy": 0.5}], "accesses": {"ld.v4.b32": 6}}
        for each in LADDERS
        for rung, described in each.rungs.items()
    ]
    (tmp_path / "rungs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def _invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["ladder", *arguments, "--ladders", str(FOLDER)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_page_shows_what_was_recorded(climb, tmp_path):
    page = tmp_path / "docs" / "ladders.md"
    status, output = _invoke("--page", str(page), "--open", str(climb))
    assert status == 0, output
    text = page.read_text()
    pictures = {path.name for path in page.with_suffix("").iterdir()}
    assert pictures == {"softmax-n.png", "softmax-m.png", "roofline.png", "gelu.png"}
    assert all(f"(ladders/{picture})" in text for picture in pictures)
    # 256 MiB at 4000 GB/s are 67.1 us: native takes one pass, cuda_online one and a half, at half the occupancy.
    assert "| `native` | 1 | 67.1 us | 100 % | 100 % |" in text
    assert "| `cuda_online` | 1.5 | 100.7 us | 67 % | 67 % |" in text
    assert "77 registers, occupancy 50 %" in text
    assert "1.33 times the speed of `cuda_coalesced`" in text
    for each in LADDERS:
        for trap in each.traps:
            assert each.describe(trap)[1].replace("\n", " ") in text


def test_a_step_is_judged_against_the_rung_that_it_must_beat():
    softmax = next(each for each in LADDERS if each.name == "softmax")
    found = {step.rung: step for step in steps(softmax, _head("ladder"), _row(softmax, softmax.target, 0, False))}
    before, ratio, verdict = found["cuda_registers"].after
    assert (before, verdict.word) == ("cuda_vectorised", "FASTER")
    assert ratio == pytest.approx(1.5)
    assert found["cuda_registers"].of_native == pytest.approx(1)
    assert found["cuda_registers"].share == pytest.approx(1)


def test_without_a_record_there_is_no_page(tmp_path):
    status, output = _invoke("--page", str(tmp_path / "page.md"), "--open", str(tmp_path))
    assert status == 2
    assert "record.jsonl" in output


def test_without_a_gpu_rungs_are_counted_and_that_is_no_record_for_the_page(climb):
    """In a process of its own that sees no GPU: Triton decides between GPU and interpreter once."""
    (climb / "record.jsonl").unlink()
    code = "from flag_gems_overrides.cli import main; main()"
    rung = ["relu", "--shape", "4x64", "--rung", "triton_where"]
    result = subprocess.run(
        [sys.executable, "-c", code, "ladder", *rung, "--open", str(climb), "--ladders", str(FOLDER)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"^triton_where +1\.000 ", result.stdout, re.MULTILINE), result.stdout
    with pytest.raises(LadderError, match="no session that timed"):
        ladder_page.Tour(climb, FOLDER)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sofmax"], "no ladder 'sofmax'"),
        (["relu", "--rung", "naive"], "relu has no rung 'naive'; it has native"),
        (["relu", "--shape", "4096"], "--shape '4096' is not of the form"),
        (["relu", "--page", "page.md"], "--page needs --open"),
    ],
)
def test_bad_input_is_one_line(arguments, words):
    status, output = _invoke(*arguments)
    assert status == 2
    assert words in output.splitlines()[-1]


def test_the_page_of_this_project_is_made_from_its_record(tmp_path):
    """After a change of a rung's docstring, the templates or the record: gems-overrides ladder --page."""
    page = tmp_path / "ladders.md"
    ladder_page.write(page, ROOT / "benchmark/records/nvidia-h200/ladders", FOLDER)
    assert (ROOT / "docs/ladders.md").read_text() == page.read_text()


def test_a_step_that_does_not_help_needs_its_reason(climb, tmp_path):
    text = (climb / "record.jsonl").read_text()
    row = next(line for line in text.splitlines() if "softmax 4096x8192" in line)
    slower = json.loads(row)
    slower["providers"]["cuda_registers"]["samples_ms"] = [1.0] * 20
    (climb / "record.jsonl").write_text(text.replace(row, records.dumps(slower)))
    with pytest.raises(LadderError, match="softmax/cuda_registers"):
        ladder_page.write(tmp_path / "page.md", climb, FOLDER)


def test_a_climb_without_a_gpu_is_passes_and_launches_and_with_one_times():
    counted = [
        Step("naive", passes=2.5, launches=3),
        Step("wrong", agrees=False),
        Step("gone", absent="needs a GPU"),
        Step("away", absent="needs a GPU"),
    ]
    table = command._table("softmax", counted, timed=False)
    assert [(column.name, column.text) for column in table.columns] == [
        ("rung", True),
        ("passes", False),
        ("launches", False),
    ]
    assert [line.cells for line in table.lines] == [["naive", "2.500", "3"], ["wrong (WRONG)", "-", "-"]]
    assert table.notes == ["gone, away: needs a GPU"]
    verdict = Verdict("FASTER", "1.5 times")
    timed = Step("fast", us=12.34, gbps=4000.4, share=0.914, of_native=1.5, after=("naive", 1.5, verdict))
    table = command._table("softmax", [Step("naive", us=20.0), timed], timed=True)
    assert [column.name for column in table.columns] == [
        *("rung", "us", "GB/s", "of copy", "of native", "against the rung before")
    ]
    assert table.lines[0].cells == ["naive", "20.0", "-", "-", "-", "-"]
    assert table.lines[1].cells == ["fast", "12.3", "4000", "91%", "150%", "naive: FASTER 1.5 times"]
