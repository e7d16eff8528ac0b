# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flag_gems_overrides.cli import _options
from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.cases import check
from flag_gems_overrides.perf.files import make_folder, write
from flag_gems_overrides.words import many

FORMATS = ("table", "markdown", "json", "csv")


def report(
    record: _options.Record,
    op: Annotated[list[str] | None, typer.Option(help="Only this op (repeat for several).")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype (repeat).")] = None,
    verdict: Annotated[list[str] | None, typer.Option(help="Only these verdicts, as in SLOWER (repeat).")] = None,
    sort: Annotated[str, typer.Option(help="measured, worst or slowest first.")] = "measured",
    session: Annotated[int | None, typer.Option(help="Which of the record, from 1. [default: the last]")] = None,
    format: Annotated[str, typer.Option(help=f"Print as {', '.join(FORMATS)}.")] = "table",
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown to this file; - is stdout.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write one page with figures and history.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write the figures as PNG files into this folder.")] = None,
) -> None:
    """Show a session of a record, in the terminal unless a file is asked for."""
    check("--format", format, FORMATS)
    if figures is not None and str(figures) in ("", "."):
        raise UserError("--figures: name a folder for the PNG files, as in --figures png")
    from flag_gems_overrides.perf.report import data, terminal, view
    from flag_gems_overrides.perf.report.markdown import markdown as text

    sessions = records.read(record)
    shown = view.select(view.of(sessions, session, str(record)), op or (), dtype or (), verdict or (), sort)
    if not shown.results:
        _options.say(f"{record}: no case of what was asked for", err=True)
    if markdown or html or figures:
        _write(shown, sessions, markdown, html, figures)
    elif format == "table":
        terminal.show(shown, _options.console())
    else:
        made = {"markdown": text, "json": data.as_json, "csv": data.as_csv}[format](shown)
        typer.echo(made, nl=False)


def _write(shown: Any, sessions: Any, markdown: Path | None, html: Path | None, figures: Path | None) -> None:
    if figures is not None:
        make_folder(figures)
    if markdown is not None:
        from flag_gems_overrides.perf.report.markdown import markdown as text

        if str(markdown) == "-":
            typer.echo(text(shown), nl=False)
        else:
            write(markdown, text(shown))
            _options.say(f"wrote {markdown}", err=True)
    if html is not None:
        from flag_gems_overrides.perf.report.html import html as page

        write(html, page(shown, sessions))
        _options.say(f"wrote {html}", err=True)
    if figures is not None:
        from flag_gems_overrides.perf.report.figures import figures as draw

        drawn = draw(shown)
        if not drawn:
            raise UserError(f"--figures {figures}: there is nothing to draw: counts and empty tensors have no figures")
        for figure in drawn:
            figure.save(figures)
        _options.say(f"wrote {many(len(drawn), 'figure')} into {figures}", err=True)
