# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import json

import pytest

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


def test_every_figure_of_a_case_is_under_its_name():
    gb = 2**26 / 1e6
    first, *_, last = data.flat(shown())
    words = {"Operator": "softmax", "dtype": "bfloat16", "Size Detail": "4096x4096 dim=1"}
    words |= {"Against": "Gems", "Verdict": "SAME"}
    numbers = {"Override Latency (ms)": 1.0, "Torch Latency (ms)": 1.5, "Gems Latency (ms)": 1.0}
    numbers |= {"Liger Latency (ms)": 3.0, "Override GBPS": gb, "Torch GBPS": gb / 1.5, "Gems GBPS": gb}
    numbers |= {"Liger GBPS": gb / 3.0, "Override Speedup": 1.5, "Gems Speedup": 1.5}
    numbers |= {"vs Torch": 1.5, "vs Gems": 1.0, "vs Liger": 3.0, "Low": 1.0, "High": 1.0, "Ratio": 1.0}
    assert {name: first[name] for name in words} == words
    assert {name: value for name, value in first.items() if name not in words} == pytest.approx(numbers, rel=0.005)
    assert first.keys() == last.keys()
    assert [last[name] for name in ("Liger GBPS", "vs Liger", "Against")] == [None, None, "Torch"]


def test_a_case_without_anything_beside_it_has_no_ratio():
    (row,) = data.flat(shown(rows.timed(override=1.0)))
    assert [row[name] for name in ("Override Speedup", "Against", "Low", "High", "Verdict", "Ratio")] == [None] * 6


def test_csv_has_a_row_for_each_case_with_the_same_columns():
    table = list(csv.reader(data.as_csv(shown()).splitlines()))
    assert len(table) == 5
    assert {len(row) for row in table} == {len(table[0])}
    assert "Torch GBPS" in table[0]
    assert "Torch GBPS" not in data.as_csv(shown(measure="wrapper"))


def test_counts_have_bytes_and_launches():
    made = {"loaded": 70000, "stored": 65537, "atomic": 3, "launches": 2, "allocations": 4, "allocated": 5}
    (row,) = data.flat(counts(rows.counted(**made)))
    assert {name: row[f"Override {name.capitalize()}"] for name in made} == made
    assert [row[f"Gems {name.capitalize()}"] for name in made] == [65536, 65536, 0, 1, 1, 65536]
    assert (row["Verdict"], row["Ratio"]) == ("MORE", 0.967)


def test_nothing_is_a_header_without_columns():
    assert data.as_csv(counts()) == "\n"
