# SPDX-License-Identifier: Apache-2.0
"""Results as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence

from flag_gems_overrides.perf.devices import KNOWN
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report.figures import figures, history
from flag_gems_overrides.perf.report.summary import conditions, summaries
from flag_gems_overrides.perf.report.tables import tables
from flag_gems_overrides.perf.report.templates import render
from flag_gems_overrides.perf.roofline import estimates, rank_correlation


def html(sessions: Sequence[Session]) -> str:
    """A page about the last session; the earlier ones of the same device and measure make its history."""
    session = sessions[-1]
    rows = list(session.rows.values())
    drawn = figures(session.head, rows)
    alike = [s for s in sessions if s.device == session.device and s.head["measure"] == session.head["measure"]]
    past = history(alike) if drawn else None
    known = next((gpu for gpu in KNOWN if gpu.name == session.device), None)
    estimated, measured = estimates(known, rows) if known else ([], [])
    return render(
        "report.html.j2",
        head=session.head,
        conditions=conditions(session.head),
        summaries=summaries(session.head, rows),
        tables=tables(session.head, rows),
        correlation=rank_correlation(estimated, measured) if len(set(estimated)) > 2 else None,
        figures=[*drawn, past] if past else drawn,
    )
