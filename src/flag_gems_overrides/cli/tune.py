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
from flag_gems_overrides.words import many

_MAX_CHANGES_SHOWN = 10


def tune(
    families: _tuning.Families = None,
    seconds: _tuning.Seconds = 900,
    seed: Annotated[int, typer.Option(help="Where in the cells of the grid the problems lie.")] = 0,
    journal: Annotated[Path | None, typer.Option(help="What was measured. [default: tune-DEVICE.jsonl]")] = None,
    output: Annotated[Path | None, typer.Option(help="Table to write. [default: DEVICE's in ops/plans]")] = None,
    shapes: _options.ShapeFile = _options.SHAPES,
) -> None:
    """Measure configurations of the kernels over a grid of problems, and write this GPU's table of the fastest.

    The coarse grid comes first. Ctrl-C writes what is done; the same command goes on from the journal."""
    session = _tuning.Session(families, f"tune --seed {seed}", seconds)
    from flag_gems_overrides.ops.plans.table import TableError
    from flag_gems_overrides.perf.baselines import slug
    from flag_gems_overrides.perf.tune.grid import cases, points
    from flag_gems_overrides.perf.tune.tables import save, table_path

    listed = Shapes(shapes)
    lists = [list(points(family, cases(family, listed, seed))) for family in session.families]
    kept = session.measure(lists, journal or Path(f"tune-{slug(session.device)}.jsonl"))
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
        "command": " ".join(["gems-overrides tune", *(families or []), f"--seconds {seconds:g} --seed {seed}"]),
    }
    path = output or table_path(session.device)
    try:
        changes = save(path, content, {name: [each.row for each in found.values()] for name, found in kept.items()})
    except TableError as error:
        raise UserError(str(error)) from None
    _show(changes, path)


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
