# SPDX-License-Identifier: Apache-2.0
"""Several records as one page of Markdown: means, verdicts by provider, worst cases, and what was measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.cases import NATIVE, UPSTREAM
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report import summary
from flag_gems_overrides.perf.report.tables import MISSING, Column, Line, Table
from flag_gems_overrides.perf.report.templates import render
from flag_gems_overrides.perf.report.view import View, view
from flag_gems_overrides.perf.results import Timed
from flag_gems_overrides.perf.statistics import geomean

WORST = 20
Records = Mapping[Path, Sequence[Session]]


def page(records: Records, dtypes: Collection[str], command: str) -> str:
    """Everything.

    Args:
        dtypes: of the cases that are taken; all if none.
        command: that writes the page, for its reader.
    """
    shown = _together(records, dtypes)
    means, *_ = summary.summary(shown)
    return render(
        "performance.md.j2",
        device=shown.head["device"]["name"],
        cases=len(shown.results),
        command=command,
        best=_best(shown),
        means=means,
        by_provider=summary.by_provider(shown),
        worst=summary.worst(shown.results, WORST),
        sessions=_sessions(records, shown),
    )


def short(records: Records, dtypes: Collection[str]) -> str:
    """Means against PyTorch, FlagGems and torch.compile, for a README."""
    shown = _together(records, dtypes)
    found = list(dict.fromkeys(dtype for _, dtype in shown.groups()))
    only = found[0] if len(found) == 1 else ""
    columns = [Column("operator", text=True), *([] if only else [Column("dtype", text=True)]), Column("cases")]
    columns += [Column("vs PyTorch"), Column("vs FlagGems"), Column("vs torch.compile")]
    lines = []
    for (op, dtype), results in shown.groups().items():
        means = (summary.mean(results, name) for name in (NATIVE, UPSTREAM, "compile"))
        lines.append(Line([op, *([] if only else [dtype]), str(len(results)), *means]))
    versions = shown.head["versions"]
    where = f"{shown.head['device']['name']}, " + ", ".join(
        f"{n} {versions[n]}" for n in ("torch", "triton", "flag_gems")
    )
    codes = ", ".join(dict.fromkeys(s.head["digests"]["flag_gems_overrides"] for s in _sessions_of(records, shown)))
    return render("short.md.j2", table=Table("", columns, lines, []), where=where, codes=codes, only=only)


def _together(records: Records, dtypes: Collection[str]) -> View:
    """The timed cases of all sessions; one that is in several is taken from the last.

    Raises:
        UserError: nothing to show, or several devices.
    """
    sessions = [session for each in records.values() for session in each if session.head["measure"] == "kernel"]
    devices = {session.device for session in sessions}
    if len(devices) > 1:
        raise UserError(f"the records are of {', '.join(sorted(devices))}; give those of one device")
    results: dict[str, Timed] = {}
    for session in sessions:
        for result in view(session.head, session.rows.values()).results:
            if not dtypes or result.case.dtype in dtypes:
                results[result.case.key] = result
    if not results:
        raise UserError(f"no timed case in {', '.join(map(str, records))}; records of `bench --mode kernel` have them")
    ordered = sorted(results.values(), key=lambda result: (result.case.op, result.case.dtype))
    return View(sessions[-1].head, ordered)


def _best(shown: View) -> Table:
    """Operator by dtype: the geometric mean of the lowest ratio of each case."""
    dtypes = list(dict.fromkeys(dtype for _, dtype in shown.groups()))
    lines = []
    for op in dict.fromkeys(op for op, _ in shown.groups()):
        cells = []
        for dtype in dtypes:
            compared = [result.competitors() for result in shown.groups().get((op, dtype), ())]
            lowest = [min(each.comparison.ratio for each in competitors) for competitors in compared if competitors]
            cells.append(f"{geomean(lowest):.2f}x" if lowest else MISSING)
        lines.append(Line([op, *cells]))
    return Table("", [Column("Op", text=True), *(Column(dtype) for dtype in dtypes)], lines, [])


def _sessions_of(records: Records, shown: View) -> list[Session]:
    """Those that any of the shown cases is from."""
    keys = {result.case.key for result in shown.results}
    return [session for each in records.values() for session in each if keys & session.rows.keys()]


def _sessions(records: Records, shown: View) -> Table:
    columns = [Column("record", text=True), Column("level", text=True), Column("cases"), Column("started", text=True)]
    columns += [Column("code", text=True), Column("noise")]
    used = {id(session) for session in _sessions_of(records, shown)}
    lines = [
        Line([path.name, *_described(session)])
        for path, sessions in records.items()
        for session in sessions
        if id(session) in used
    ]
    setups = dict.fromkeys(_setup(session.head) for session in _sessions_of(records, shown))
    return Table("", columns, lines, [f"With {setup}." for setup in setups])


def _described(session: Session) -> list[str]:
    head = session.head
    started = head.get("started", MISSING)[:16].replace("T", " ")
    partial = f" of {head['total']}" if "total" in head and not session.ended else ""
    return [head["level"], f"{len(session.rows)}{partial}", started, summary.code(head), f"{head.get('noise', 0):.1%}"]


def _setup(head: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    return f"{versions}, driver {head['device'].get('driver', 'unknown')}"
