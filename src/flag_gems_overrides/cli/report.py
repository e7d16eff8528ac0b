# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flag_gems_overrides.cli import _words
from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.baselines import write
from flag_gems_overrides.perf.cases import CaseError


def report(
    record: _words.Record,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown, for a pull request or job summary.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one page with figures; earlier sessions are history.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Write the figures as PNG files into this folder.")] = None,
) -> None:
    """Show the last session of a record, in the terminal unless a file is asked for."""
    from flag_gems_overrides.perf.report import terminal
    from flag_gems_overrides.perf.report.figures import figures as draw
    from flag_gems_overrides.perf.report.html import html as page
    from flag_gems_overrides.perf.report.markdown import markdown as text

    with _words.complaints(records.RecordError, CaseError):
        sessions = records.read(record)
        session = sessions[-1]
        rows = list(session.rows.values())
        with _words.complaints(OSError):
            if markdown:
                write(markdown, text(session.head, rows))
            if html:
                write(html, page(sessions))
            if figures:
                figures.mkdir(parents=True, exist_ok=True)
                for figure in draw(session.head, rows):
                    figure.save(figures)
        if not (markdown or html or figures):
            terminal.show(session.head, rows, _words.wide_console())
