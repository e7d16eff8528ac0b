# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flag_gems_overrides.cli import _options
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import devices
from flag_gems_overrides.perf import resources as survey
from flag_gems_overrides.perf.cases import TIMED_DTYPES, Shapes, check
from flag_gems_overrides.perf.problems import problems
from flag_gems_overrides.perf.report import terminal
from flag_gems_overrides.perf.report.tables import Column, Line, Table


def resources(
    ops: Annotated[list[str] | None, typer.Argument(help="Ops by their flag_gems name; all if none.")] = None,
    level: Annotated[str, typer.Option(help="core or comprehensive.")] = "core",
    output: Annotated[Path, typer.Option(help="Survey to bring up to date.")] = _options.SURVEY,
    shapes: _options.ShapeFile = _options.SHAPES,
    seed: Annotated[int | None, typer.Option(help="Random problems as `hunt` has them, on an H200; no record.")] = None,
    count: Annotated[int, typer.Option(min=1, help="With --seed: problems for each family of ops.")] = 30,
) -> None:
    """Compile every kernel configuration of the shapes for A100, H200 and B200, and record what it takes of them.

    Exit status 1 if any spills or does not compile. Only what changed is compiled, about one second each.
    Ctrl-C keeps what is done."""
    known = survey.load(output)
    if seed is not None:
        for op in ops or ():
            check("op", op, tuple(OPERATORS))
        chosen = problems(ops or tuple(OPERATORS), count, seed, 0)
        failed = _show(survey.survey([problem.case for problem in chosen], (devices.H200,), known))
        raise typer.Exit(1 if failed else 0)
    rows: list[survey.Row] = []
    whole = False
    listed = Shapes(shapes)
    cases = survey.cases(listed, ops or listed.ops, level, TIMED_DTYPES)
    survey.save(output, known)  # rather now than after minutes, if it cannot be written
    try:
        survey.survey(cases, devices.KNOWN, known, compiled=rows.append)
        whole = True
    except KeyboardInterrupt:
        pass
    finally:
        survey.save(output, survey.merged(known, rows, (ops or listed.ops) if whole else ()))
    failed = _show(rows)
    if not whole:
        _options.say(f"Interrupted: what is done is in {output}; the same command resumes.")
        raise typer.Exit(130)
    _options.say(f"wrote {output}")
    raise typer.Exit(1 if failed else 0)


def _show(rows: list[survey.Row]) -> bool:
    """What was compiled, and what spills or does not compile; returns whether anything does."""
    terminal.show_tables([_table(rows)], _options.console())
    failures = list(survey.failures(rows))
    for failure in failures:
        _options.say(str(failure))
    return bool(failures)


def _table(rows: list[survey.Row]) -> Table:
    columns = [Column("kernel", text=True), Column("for", text=True), Column("configurations", 2)]
    columns += [Column("max registers"), Column("max spilled bytes"), Column("occupancy", 1, text=True)]
    compiled = [row for row in rows if "error" not in row]
    lines = []
    for kernel, arch in sorted({(row["kernel"], row["arch"]) for row in compiled}):
        same = [row for row in compiled if (row["kernel"], row["arch"]) == (kernel, arch)]
        occupancies = [row["occupancy"] for row in same]
        most = [str(max(row[name] for row in same)) for name in ("registers", "spilled_bytes")]
        spread = f"{min(occupancies):.0%} to {max(occupancies):.0%}"
        lines.append(Line([kernel, f"sm_{arch}", str(len(same)), *most, spread]))
    return Table("Compiled now", columns, lines, [])
