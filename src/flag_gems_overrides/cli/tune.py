# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from flag_gems_overrides.cli import _options, _tuning
from flag_gems_overrides.cli._options import say
from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.cases import Shapes
from flag_gems_overrides.perf.steps import check_name
from flag_gems_overrides.words import many

_MAX_CHANGES_SHOWN = 10


def tune(
    families: _tuning.Families = None,
    seconds: _tuning.Seconds = 900,
    step: Annotated[
        str | None, typer.Option(help="MODULE:FUNCTION: the problems of one step of yours, not a grid.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Where in the cells of the grid the problems lie.")] = 0,
    journal: Annotated[
        Path | None, typer.Option(help="What was measured. [default: tune-DEVICE.jsonl, with a step tune-STEP-DEVICE]")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Table to write. [default: DEVICE's in ops/plans]")] = None,
    shapes: _options.ShapeFile = _options.SHAPES,
) -> None:
    """Measure configurations of the kernels over a grid of problems, and write this GPU's table of the fastest.

    The coarse grid comes first. With --step only what that function calls is measured, and joins the rows that the
    table has. Ctrl-C writes what is done; the same command goes on from the journal."""
    if step is not None:
        check_name(step)
    what = f"--seed {seed}" if step is None else f"--step {step}"
    session = _tuning.Session(families, f"tune {what}", seconds)
    from flag_gems_overrides.ops.plans.table import TableError
    from flag_gems_overrides.perf.baselines import slug
    from flag_gems_overrides.perf.tune.grid import cases, points
    from flag_gems_overrides.perf.tune.tables import save, table_path

    if step is None:
        listed = Shapes(shapes)
        lists = [list(points(family, cases(family, listed, seed))) for family in session.families]
    else:
        lists = _points_of_step(step, session.families)
    name = "-".join(["tune", *([] if step is None else [slug(step)]), slug(session.device)])
    kept = session.measure(lists, journal or Path(f"{name}.jsonl"))
    limits = session.limits
    content = {
        "schema": 1,
        "device": {
            "name": session.device,
            "capability": list(limits.capability),
            "sm_count": limits.sm_count,
            "l2_bytes": limits.l2_bytes,
            "copy_gbps": session.copy_gbps,
        },
        "versions": session.head["versions"],
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["gems-overrides tune", *(families or []), f"--seconds {seconds:g} {what}"]),
    }
    path = output or table_path(session.device)
    try:
        rows = {name: [each.row for each in found.values()] for name, found in kept.items()}
        changes = save(path, content, rows, others=step is not None)
    except TableError as error:
        raise UserError(str(error)) from None
    _show(changes, path)


def _points_of_step(name: str, families: list[Any]) -> list[list[Any]]:
    """Points of the families.

    Raises:
        UserError: the step does not run.
    """
    from flag_gems_overrides.perf import steps
    from flag_gems_overrides.perf.tune.called import points, problems_of

    try:
        found = problems_of(steps.load(name))
    except Exception as error:
        raise UserError(f"{name}: {type(error).__name__}: {error}") from error
    lists = [points(family, found.get(family.name, ())) for family in families]
    say(f"{name}: {many(sum(map(len, found.values())), 'problem')}, {sum(map(len, lists))} of them can be tuned here")
    return lists


def _show(changes: list[Any], path: Path) -> None:
    """What a family's rows are, and how they differ from those before."""
    for change in changes:
        say(
            f"{change.family}: {many(change.rows, 'problem')}, {change.tuned} not best by the default: "
            f"{change.gain:.3f} times as fast there; {len(change.changed)} of those before changed",
        )
        for before, now in change.changed[:_MAX_CHANGES_SHOWN]:
            say(f"  {list(now.problem)}: {_describe(before)} -> {_describe(now)}")
    say(f"written to {path}")


def _describe(row: Any) -> str:
    configuration = "default" if row.configuration is None else " ".join(map(str, row.configuration))
    return f"{configuration} {row.us:.2f} us"
