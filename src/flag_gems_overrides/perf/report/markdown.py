# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown: for the body of a pull request, or a job summary on GitHub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flag_gems_overrides.perf.report.summary import conditions, summaries
from flag_gems_overrides.perf.report.tables import tables
from flag_gems_overrides.perf.report.templates import render
from flag_gems_overrides.perf.results import Row


def markdown(head: Mapping[str, Any], rows: Iterable[Row]) -> str:
    """A table per op and dtype, folded, under one of geometric means."""
    rows = list(rows)
    return render(
        "report.md.j2",
        conditions=conditions(head),
        commit=head["commit"],
        summaries=summaries(head, rows),
        tables=tables(head, rows),
    )
