# SPDX-License-Identifier: Apache-2.0
"""Results for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flag_gems_overrides.perf.report.summary import conditions
from flag_gems_overrides.perf.report.tables import tables
from flag_gems_overrides.perf.results import Row
from flag_gems_overrides.perf.verdict import FASTER, SAME, SLOWER, UNSURE

_STYLES = {FASTER: "green", SAME: "", SLOWER: "bold red", UNSURE: "yellow"}


def show(head: Mapping[str, Any], rows: Iterable[Row], console: Console) -> None:
    """Print where a session was measured, and its tables."""
    console.print(conditions(head), highlight=False)
    for table in tables(head, rows):
        grid = Table(title=table.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        grid.caption, grid.caption_justify = table.summary, "left"
        for column in table.columns:
            left = column in ("Size Detail", "Verdict")
            grid.add_column(column, justify="left" if left else "right", overflow="fold")
        for line in table.rows:
            grid.add_row(*(Text(cell, style=_style(cell)) for cell in line))
        console.print(grid)


def _style(cell: str) -> str:
    return _STYLES.get(cell.partition(":")[0], "")
