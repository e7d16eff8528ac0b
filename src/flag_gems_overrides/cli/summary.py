# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from flag_gems_overrides.cli import _options
from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.files import write


def summary(
    record: Annotated[list[Path], typer.Argument(help="Records of one device.", show_default=False)],
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype (repeat for several).")] = None,
    short: Annotated[bool, typer.Option("--short", help="The table of a README alone.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write to this file. [default: stdout]")] = None,
) -> None:
    """Write a page of Markdown about several records, as docs/performance.md is."""
    from flag_gems_overrides.perf.report import performance

    found = {path: records.read(path) for path in record}
    words = ["gems-overrides", "summary", *map(str, record)]
    words += [word for each in dtype or () for word in ("--dtype", each)] + (
        ["--output", str(output)] if output else []
    )
    text = performance.short(found, dtype or ()) if short else performance.page(found, dtype or (), shlex.join(words))
    if output is None:
        typer.echo(text, nl=False)
    else:
        write(output, text)
        _options.say(f"wrote {output}", err=True)
