# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import json

from flag_gems_overrides.perf.report import data

from .. import rows
from .made import counts, shown


def test_json_has_flaggems_names_and_numbers():
    made = json.loads(data.as_json(shown()))
    assert made["session"]["device"] == {"name": "NVIDIA H200"}
    slow = made["cases"][1]
    assert (slow["Operator"], slow["dtype"], slow["Size Detail"]) == ("softmax", "bfloat16", "64x64 dim=1")
    assert (slow["Verdict"], slow["Against"]) == ("SLOWER", "Gems")
    assert round(slow["Gems Speedup"], 1) == 1.5
    assert round(slow["Override Speedup"], 2) == 0.75
    assert slow["Low"] <= slow["Ratio"] <= slow["High"] < 0.52
    assert made["cases"][3]["Liger Latency (ms)"] is None


def test_csv_has_a_row_for_each_case_with_the_same_columns():
    table = list(csv.reader(data.as_csv(shown()).splitlines()))
    assert len(table) == 5
    assert {len(row) for row in table} == {len(table[0])}
    assert "Torch GBPS" in table[0]
    assert "Torch GBPS" not in data.as_csv(shown(measure="wrapper"))


def test_counts_have_bytes_and_launches():
    (row,) = data.flat(counts(rows.counted(launches=2)))
    assert (row["Gems Launches"], row["Override Launches"], row["Verdict"], row["Ratio"]) == (1, 2, "MORE", 1.0)


def test_nothing_is_a_header_without_columns():
    assert data.as_csv(counts()) == "\n"
