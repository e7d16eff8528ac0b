# SPDX-License-Identifier: Apache-2.0
"""Numbers, shapes and units stay whole whatever the width."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report import comparison, terminal
from flag_gems_overrides.perf.report.summary import summary
from flag_gems_overrides.perf.report.tables import Column, Line, Table, tables
from flag_gems_overrides.perf.report.view import view

from .. import rows
from .made import KEYS, counts, lines, shown


def printed(show, made, width=80, force=True) -> str:
    text = io.StringIO()
    show(made, Console(file=text, width=width, force_terminal=force, color_system=None, highlight=False))
    return text.getvalue()


def wide():
    """A session with every column there is, and long shapes."""
    made = lines()
    for row in made:
        row["providers"] |= rows.timed(compile=1.1, quack=12345.6, quack_rmsnorm=0.9)["providers"]
    made.append({**made[0], "key": "softmax 16x21x512x512 dim=3 bfloat16"})
    return shown(*made, cold=rows.COLD)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 240])
@pytest.mark.parametrize("made", [wide, lambda: counts(rows.counted(), rows.counted(loaded=10485760))])
def test_no_cell_is_broken_and_no_line_is_too_long(width, made):
    text = printed(terminal.show, made(), width)
    assert all(len(line) <= width for line in text.splitlines())
    rows_shown = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    for table in tables(made()):
        kept = terminal.fitting(table, width)
        assert kept, "columns are left out before rows are stacked"
        for row in table.lines:
            assert [row.cells[i] for i in kept] in rows_shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_cases_of_two_dtypes_are_told_apart(width):
    keys = [f"log_softmax_backward 1024x65536 dim=1 {dtype}" for dtype in ("float32", "bfloat16")]
    two = Session(rows.head(), {key: rows.timed(key, override=1.0, native=2.0) for key in keys}, ended=True)
    changes = comparison.tables(comparison.compare(two, two))
    for table in [*changes, *summary(view(two.head, two.rows.values()))]:
        kept = terminal.fitting(table, width)
        shown_cells = [tuple(line.cells[i] for i in kept if table.columns[i].text) for line in table.lines]
        assert len(set(shown_cells)) == len(shown_cells), table.title


@pytest.mark.parametrize("width", [60, 80])
def test_what_is_left_out_is_said(width):
    text = " ".join(printed(terminal.show, wide(), width).split())
    left_out = text.partition(f"Left out at {width} columns; a wider terminal or a pipe shows them: ")[2]
    # Each title is there once, with its own columns: the worst cases may lack a Verdict that the others have.
    titles = re.findall(r"Operator: |best of all: |Worst cases: ", left_out)
    assert sorted(titles) == sorted(set(titles))
    cases = left_out.partition("Operator: ")[2].partition(": ")[0]
    assert "QuACK rmsnorm Latency (ms)" in cases
    assert "Verdict" not in cases
    assert "Left out" not in printed(terminal.show, wide(), 400)


@pytest.mark.parametrize(("width", "columns"), [(40, {"Size Detail", "Verdict"}), (60, {"Override Latency (ms)"})])
def test_verdict_and_own_time_stay_longest(width, columns):
    table = tables(wide())[0]
    assert columns <= {table.columns[i].name for i in terminal.fitting(table, width)}


def test_where_not_even_those_fit_rows_are_stacked():
    columns = [Column("Size Detail", text=True), Column("Verdict", text=True), Column("Old (ms)", 1), Column("95 % of")]
    table = Table("t", columns, [Line(["1x2x3x4x5x6x7x8 dim=3", "SAME", "0.0029", "[-1.0 %, +2.0 %]"])], [])
    text = printed(lambda made, console: terminal.show_tables([made], console), table, 28)
    assert text.split("\n")[1:5] == [
        "t",
        "1x2x3x4x5x6x7x8 dim=3  SAME",
        "  Old (ms) 0.0029,",
        "  95 % of [-1.0 %, +2.0 %]",
    ]


def test_prose_keeps_a_number_and_its_unit_together():
    for width in range(40, 90):
        text = printed(lambda made, console: terminal.show_lines([made], console), "copies at 4243 GB/s " * 9, width)
        assert not re.search(r"^GB/s", text, re.MULTILINE)


def test_a_pipe_gets_plain_lines_one_for_each_case():
    text = printed(terminal.show, wide(), 80, force=False)
    assert "\x1b" not in text
    assert text.isascii()
    assert "Left out" not in text
    for shape in ("4096x4096 dim=1", "16x21x512x512 dim=3"):
        (row,) = [line for line in text.split("\n") if line.startswith(f"{shape} ")]
        assert len(re.split(r"\s{2,}", row)) == len(tables(wide())[0].columns)
    header = next(line for line in text.split("\n") if line.startswith("Size Detail"))
    assert "Torch Latency (ms)" in header


def test_everything_is_shown():
    text = printed(terminal.show, shown(), 240)
    assert "NVIDIA H200; python 3.12.3" in text
    for key in KEYS:
        assert key.partition(" ")[2].rpartition(" ")[0] in text
    for part in ("Verdicts by provider", "Worst cases", "SLOWER"):
        assert part in text


def test_colours_are_of_verdicts_alone():
    text = io.StringIO()
    console = Console(file=text, width=240, force_terminal=True, color_system="standard", highlight=False)
    terminal.show(shown(), console)
    assert "\x1b[1;31mSLOWER" in text.getvalue()
    assert "\x1b[32m" not in text.getvalue().partition("SLOWER")[0].partition("Size Detail")[2], "SAME has none"
