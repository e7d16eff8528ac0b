# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import json

import pytest
from perf import rows
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.perf.records import Recorder

from .made import write_record


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


def test_markdown_goes_to_stdout(invoke, record):
    status, output = invoke("report", str(record), "--markdown", "-")
    assert status == 0
    assert output.startswith("NVIDIA H200; flag_gems")
    assert "| Op | dtype | Cases |" in output


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
