# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flag_gems_overrides.cli import _options
from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.cases import check

FORMATS = ("table", "markdown", "json")


def compare(
    old: Annotated[Path, typer.Argument(help="A record; its last session is compared.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="Another, of the same device.", show_default=False)],
    format: Annotated[str, typer.Option(help=f"Print as {', '.join(FORMATS)}.")] = "table",
) -> None:
    """Compare the overrides of two records case by case, worst first.

    Exit status 1 if a case became slower, moves more bytes, or is newly wrong."""
    check("--format", format, FORMATS)
    from flag_gems_overrides.perf.report import comparison, terminal

    difference = comparison.compare(records.read(old)[-1], records.read(new)[-1])
    if format == "markdown":
        typer.echo(comparison.markdown(difference), nl=False)
    elif format == "json":
        typer.echo(json.dumps(comparison.as_json(difference), indent=1))
    else:
        console = _options.console()
        terminal.show_tables(comparison.tables(difference), console)
        terminal.show_lines(["", *comparison.notes(difference), comparison.headline(difference)], console)
    raise typer.Exit(1 if difference.worse else 0)
