# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from perf import rows

from flag_gems_overrides.perf.records import Recorder

from .made import write_record


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
