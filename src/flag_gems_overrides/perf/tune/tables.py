# SPDX-License-Identifier: Apache-2.0
"""Writes a device's table, and says how it differs from the one before."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf.baselines import slug
from flag_gems_overrides.perf.files import write
from flag_gems_overrides.perf.records import dumps
from flag_gems_overrides.perf.statistics import geomean


class Change(NamedTuple):
    """How a family's rows in a table differ from those before."""

    family: str
    rows: int
    tuned: int
    """Rows whose configuration is not the default."""
    gain: float
    """Geometric mean over these of the default's time over theirs."""
    changed: list[tuple[table.Row, table.Row]]
    """(Before, now) of the problems in both whose configuration is another, the largest change of time first."""


def table_path(device: str) -> Path:
    """Where the table of a device belongs."""
    return table.FOLDER / f"{slug(device)}.json"


def save(
    path: Path, content: Mapping[str, Any], rows: Mapping[str, Iterable[table.Row]], others: bool = False
) -> list[Change]:
    """Write a table; families that are not among ``rows`` stay as they are there.

    Args:
        content: all of the file but its families.
        others: whether rows of other problems stay too.

    Raises:
        TableError: the table that is there cannot be read.
    """
    before = table.load(path).families if path.exists() else {}
    now = dict(before)
    for family, new in rows.items():
        kept = before.get(family, ()) if others else ()
        of_problem = {row.problem: row for row in (*kept, *new)}
        now[family] = tuple(of_problem[problem] for problem in sorted(of_problem))
    write(path, text(content, now))
    table.load(path)
    return [_change(family, before.get(family, ()), now[family]) for family in sorted(rows)]


def text(content: Mapping[str, Any], families: Mapping[str, Sequence[table.Row]]) -> str:
    """A table as JSON, a row a line."""
    lines = [f"  {json.dumps(name)}: {dumps(value)}," for name, value in content.items()]
    blocks = []
    for name in sorted(families):
        rows = ",\n".join(f"      {json.dumps(row._asdict())}" for row in families[name])
        blocks.append(f"    {json.dumps(name)}: [\n{rows}\n    ]")
    return "{\n" + "\n".join(lines) + '\n  "families": {\n' + ",\n".join(blocks) + "\n  }\n}\n"


def _change(family: str, before: Sequence[table.Row], now: Sequence[table.Row]) -> Change:
    old = {row.problem: row for row in before}
    tuned = [row for row in now if row.configuration is not None]
    changed = [
        (old[row.problem], row)
        for row in now
        if row.problem in old and old[row.problem].configuration != row.configuration
    ]
    changed.sort(key=lambda pair: -abs(math.log(pair[0].us / pair[1].us)))
    gain = geomean(row.default_us / row.us for row in tuned) if tuned else 1.0
    return Change(family, len(now), len(tuned), gain, changed)
