# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flag_gems_overrides.cli import _words
from flag_gems_overrides.perf import devices
from flag_gems_overrides.perf import resources as survey
from flag_gems_overrides.perf.cases import TIMED_DTYPES, CaseError, Shapes


def resources(
    ops: Annotated[list[str] | None, typer.Argument(help="Ops by their flag_gems name; all if none.")] = None,
    level: Annotated[str, typer.Option(help="core or comprehensive.")] = "core",
    output: Annotated[Path, typer.Option(help="Survey to bring up to date.")] = _words.SURVEY,
    shapes: _words.ShapeFile = _words.SHAPES,
) -> None:
    """Compile every kernel configuration of the shapes for A100, H200 and B200, and record what it takes of them.

    Exit status 1 if any spills or does not compile. Only what changed is compiled, about one second each.
    Ctrl-C keeps what is done."""
    console = Console(highlight=False)
    rows: list[survey.Row] = []
    whole = False
    with _words.complaints(CaseError, survey.ResourceError):
        listed = Shapes(shapes)
        cases = survey.cases(listed, ops or listed.ops, level, TIMED_DTYPES)
        known = survey.load(output)
        survey.save(output, known)  # rather now than after minutes, if it cannot be written
        try:
            survey.survey(cases, devices.KNOWN, known, compiled=rows.append)
            whole = True
        except KeyboardInterrupt:
            console.print(f"Interrupted: what is done is in {output}; the same command goes on.", soft_wrap=True)
        finally:
            survey.save(output, survey.merged(known, rows, (ops or listed.ops) if whole else ()))

    table = Table("kernel", "for", "configurations", "most registers", "most spilled bytes", "occupancy")
    compiled = [row for row in rows if "error" not in row]
    for kernel, arch in sorted({(row["kernel"], row["arch"]) for row in compiled}):
        same = [row for row in compiled if (row["kernel"], row["arch"]) == (kernel, arch)]
        occupancies = [row["occupancy"] for row in same]
        most = [str(max(row[name] for row in same)) for name in ("registers", "spilled_bytes")]
        spread = f"{min(occupancies):.0%} to {max(occupancies):.0%}"
        table.add_row(kernel, f"sm_{arch}", str(len(same)), *most, spread)
    console.print(table)
    failures = list(survey.failures(rows))
    for failure in failures:
        console.print(str(failure), markup=False, soft_wrap=True)
    raise typer.Exit((1 if failures else 0) if whole else 130)
