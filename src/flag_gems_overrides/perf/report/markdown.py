# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown: for the body of a pull request, or a job summary on GitHub."""

from __future__ import annotations

from flag_gems_overrides.perf.report.summary import conditions, summary
from flag_gems_overrides.perf.report.tables import tables
from flag_gems_overrides.perf.report.templates import render
from flag_gems_overrides.perf.report.view import View


def markdown(shown: View) -> str:
    """The summary, then a table per op and dtype, folded."""
    return render(
        "report.md.j2",
        conditions=conditions(shown.head),
        notes=shown.notes,
        summary=summary(shown),
        tables=tables(shown),
    )
