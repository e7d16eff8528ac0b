# SPDX-License-Identifier: Apache-2.0
"""Tables as the tuner writes them."""

from __future__ import annotations

import json
import math

import pytest

from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf.tune import tables
from perf.tune.made import CONTENT, row


def test_a_table_is_written_sorted_and_others_stay(tmp_path):
    path = tmp_path / "h200.json"
    tables.save(path, CONTENT, {"other": [row(1)], "fake": [row(256), row(64)]})
    changes = tables.save(path, CONTENT, {"fake": [row(64, ("rows", 8), 5.0), row(128, None, 10.0), row(256)]})
    loaded = table.load(path)
    assert loaded.families["other"] == (row(1),)
    assert [each.problem[0] for each in loaded.families["fake"]] == [64, 128, 256]
    [change] = changes
    assert (change.family, change.rows, change.tuned) == ("fake", 3, 2)
    assert change.gain == pytest.approx(math.sqrt(10 / 5 * 10 / 7))
    assert [(old.us, new.us) for old, new in change.changed] == [(7.0, 5.0)]


def test_rows_of_other_problems_stay_where_some_are_added(tmp_path):
    path = tmp_path / "h200.json"
    tables.save(path, CONTENT, {"fake": [row(64), row(128)]})
    [change] = tables.save(path, CONTENT, {"fake": [row(64, ("rows", 8), 5.0), row(32)]}, others=True)
    assert table.load(path).families["fake"] == (row(32), row(64, ("rows", 8), 5.0), row(128))
    assert [(old.us, new.us) for old, new in change.changed] == [(7.0, 5.0)]


def test_a_table_has_a_line_for_each_row(tmp_path):
    text = tables.text(CONTENT, {"fake": [row(64), row(128)]})
    assert json.loads(text)["families"]["fake"][1]["problem"] == [128, 32, 1, 4]
    assert sum('"problem"' in line for line in text.splitlines()) == 2
