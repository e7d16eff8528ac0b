# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Annotated, Any

import typer

from flag_gems_overrides.cli import _options
from flag_gems_overrides.perf import baselines, records
from flag_gems_overrides.perf.cases import Shapes
from flag_gems_overrides.perf.files import write
from flag_gems_overrides.words import many


def accept(
    record: _options.Record,
    folder: _options.Baselines = _options.BASELINES,
    shapes: _options.ShapeFile = _options.SHAPES,
    level: Annotated[
        str | None, typer.Option(help="What the record is of. [default: core; of counts: interpreter]")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why an override may move or launch more than upstream, where it does.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
) -> None:
    """Make the last session of a record the baseline that the perf gate compares with, and show what changes."""
    from flag_gems_overrides.perf.report import terminal

    session = records.read(record)[-1]
    try:
        keys = baselines.of_level(session, Shapes(shapes), level)
        proposals = baselines.propose(folder, session, reason, keys)
    except baselines.BaselineError as error:
        raise baselines.BaselineError(f"{record}: {error}") from None
    left_out = len(session.rows) - len(keys)
    if left_out:
        _options.say(f"left out: {many(left_out, 'case')} not of the level")
    changing = [proposal for proposal in proposals if proposal.changed]
    if not changing:
        _options.say(f"nothing changes: {many(len(keys), 'case')} as accepted")
        return
    terminal.show_tables([_changes(proposal) for proposal in changing], _options.console())
    changed = sum(len(proposal.changed) for proposal in changing)
    _options.say(f"{changed} of {len(keys)} cases change; cases that were not measured keep their baseline")
    for proposal in changing:
        if not dry_run:
            write(proposal.path, proposal.text)
        _options.say(f"{'would write' if dry_run else 'accepted'} {proposal.path}")


def _changes(proposal: baselines.Proposal) -> Any:
    """Old and new side by side, for each case that is new or differs."""
    from flag_gems_overrides.perf.report.tables import MISSING, Column, Line, Table

    entries = [(key, proposal.old.get(key, {}), proposal.new[key]) for key in proposal.changed]
    names = list(dict.fromkeys(name for _, old, new in entries for name in (*new, *old)))
    columns = [Column("Case", text=True)]
    for name in names:
        columns += [Column(f"old {name}"), Column(f"new {name}")]
    lines = []
    for key, old, new in entries:
        pairs = [(old.get(name, MISSING), new.get(name, MISSING)) for name in names]
        lines.append(Line([key, *(str(value) for pair in pairs for value in pair)], key))
    return Table(proposal.path.stem, columns, lines, [])
