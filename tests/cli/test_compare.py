# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from perf import rows

from .made import write_record


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
