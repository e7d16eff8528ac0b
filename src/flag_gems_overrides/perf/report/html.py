# SPDX-License-Identifier: Apache-2.0
"""Results as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence

from flag_gems_overrides.perf.devices import KNOWN
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report.figures import figures, history
from flag_gems_overrides.perf.report.summary import conditions, summary
from flag_gems_overrides.perf.report.tables import tables
from flag_gems_overrides.perf.report.templates import render
from flag_gems_overrides.perf.report.view import MORE, View, word_of
from flag_gems_overrides.perf.roofline import estimates, rank_correlation
from flag_gems_overrides.perf.verdict import SLOWER


def html(shown: View, sessions: Sequence[Session] = ()) -> str:
    """A page about what is shown; the record's sessions of the same device and measure make its history."""
    drawn = figures(shown)
    head = shown.head
    alike = [s for s in sessions if s.head["device"] == head["device"] and s.head["measure"] == head["measure"]]
    past = history(alike) if drawn else []
    known = next((gpu for gpu in KNOWN if gpu.name == head["device"]["name"]), None)
    kernels = known and head["measure"] == "kernel"
    estimated, measured = estimates(known, [r.row for r in shown.results]) if known and kernels else ([], [])
    return render(
        "report.html.j2",
        head=head,
        scope=shown.scope,
        conditions=conditions(head),
        notes=shown.notes,
        summary=summary(shown),
        tables=[(table, any(line.word in (SLOWER, MORE) for line in table.lines)) for table in tables(shown)],
        ops=list(dict.fromkeys(result.case.op for result in shown.results)),
        dtypes=list(dict.fromkeys(result.case.dtype for result in shown.results)),
        words=sorted({word_of(result) for result in shown.results} - {""}),
        correlation=rank_correlation(estimated, measured) if len(set(estimated)) > 2 else None,
        figures=[*drawn, *past],
    )
