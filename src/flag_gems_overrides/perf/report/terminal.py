# SPDX-License-Identifier: Apache-2.0
"""Results for a terminal, and as plain lines where there is none. A number is never broken over two lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from flag_gems_overrides.perf.report.summary import conditions, summary
from flag_gems_overrides.perf.report.tables import Column, Line, Table, tables
from flag_gems_overrides.perf.report.view import LESS, MORE, View
from flag_gems_overrides.perf.verdict import FASTER, SLOWER, UNSURE

_STYLES = {FASTER: "green", LESS: "green", SLOWER: "bold red", MORE: "bold red", UNSURE: "yellow"}
_GAP = 2
_BEFORE_A_UNIT = re.compile(r"(?<=\d) (?=%|[GM]B/s|ms|cases?|rounds)")


def show(shown: View, console: Console) -> None:
    """Print where a session was measured, its cases, and its summary."""
    show_lines([conditions(shown.head), *shown.notes], console)
    show_tables([*tables(shown), *summary(shown)], console)


def show_lines(lines: Iterable[str], console: Console) -> None:
    """Print prose."""
    for line in lines:
        _line(line, console)


def show_tables(made: Sequence[Table], console: Console) -> None:
    """Print tables as wide as the terminal allows, and say at the end which columns were left out, and of which."""
    left_out: dict[str, dict[str, None]] = {}
    for table in made:
        _line("", console)
        if console.is_terminal:
            # The tables of an op and dtype each have one title until the colon.
            left_out.setdefault(table.title.partition(":")[0], {}).update(dict.fromkeys(_show(table, console)))
        else:
            _show_plain(table, console)
    if any(left_out.values()):
        _line("", console)
        _line(f"Left out at {console.width} columns; a wider terminal or a pipe shows them:", console)
    for title, names in left_out.items():
        if names:
            _line(f"{title}: {', '.join(names)}", console)


def _show(table: Table, console: Console) -> list[str]:
    """Print what fits; the names of the columns that do not."""
    kept = fitting(table, console.width)
    _line(table.title, console, "bold")
    if kept is None:
        _stack(table, console)
    else:
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for i in kept:
            column = table.columns[i]
            # As wide as its longest cell or longest word: headings wrap between words, cells never.
            grid.add_column(column.name, justify="left" if column.text else "right", width=_width(table, i))
        for line in table.lines:
            grid.add_row(*(Text(line.cells[i], style=_STYLES.get(line.cells[i], "")) for i in kept))
        console.print(grid)
    for note in table.notes:
        _line(note, console)
    return [] if kept is None else [column.name for i, column in enumerate(table.columns) if i not in kept]


def fitting(table: Table, width: int) -> list[int] | None:
    """The columns that fit side by side; None if those that must stay do not."""
    kept = list(range(len(table.columns)))
    while sum(_width(table, i) + _GAP for i in kept) - _GAP > width:
        highest = max(table.columns[i].rank for i in kept)
        if highest == 0:
            return None
        kept = [i for i in kept if table.columns[i].rank < highest]
    return kept


def _width(table: Table, i: int) -> int:
    words = table.columns[i].name.split()
    return max([len(word) for word in words] + [len(line.cells[i]) for line in table.lines])


def _stack(table: Table, console: Console) -> None:
    """For each case its text on a line, and its figures below, each whole."""
    for line in table.lines:
        cells = list(zip(table.columns, line.cells, strict=True))
        _line("  ".join(cell for column, cell in cells if column.text), console)
        figures = [f"{column.name} {cell}" for column, cell in cells if not column.text]
        _line(", ".join(text.replace(" ", "\N{NO-BREAK SPACE}") for text in figures), console, indent="  ")


def _show_plain(table: Table, console: Console) -> None:
    """One line for each row, however long."""
    rows = [Line([column.name for column in table.columns]), *table.lines]
    widths = [max(len(row.cells[i]) for row in rows) for i in range(len(table.columns))]
    _line(table.title, console)
    for row in rows:
        _line((" " * _GAP).join(map(_aligned, table.columns, row.cells, widths)).rstrip(), console)
    for note in table.notes:
        _line(note, console)


def _aligned(column: Column, cell: str, width: int) -> str:
    return cell.ljust(width) if column.text else cell.rjust(width)


def _line(text: str, console: Console, style: str = "", indent: str = "") -> None:
    """Prose wraps at the terminal's width, between words and never before a unit; plain text never wraps."""
    if console.is_terminal:
        text = textwrap.fill(
            _BEFORE_A_UNIT.sub("\N{NO-BREAK SPACE}", text),
            console.width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ).replace("\N{NO-BREAK SPACE}", " ")
    console.print(Text(text, style=style), soft_wrap=True)
