# SPDX-License-Identifier: Apache-2.0
"""Results for other programs: JSON, or CSV with a row for each case. FlagGems' names for what it has as well."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, UPSTREAM
from flag_gems_overrides.perf.report.view import LABELS, View, ratio_of, word_of
from flag_gems_overrides.perf.results import Timed


def flat(shown: View) -> list[dict[str, Any]]:
    """One mapping for each case, all with the same keys; None where there is no figure."""
    rows = []
    for result in shown.results:
        case = result.case
        row: dict[str, Any] = {"Operator": case.op, "dtype": case.dtype, "Size Detail": case.size}
        if shown.counted:
            for name in (UPSTREAM, OVERRIDE):
                counts = result.of(name) or {}
                for quantity in ("loaded", "stored", "atomic", "launches", "allocations", "allocated"):
                    row[f"{LABELS[name]} {quantity.capitalize()}"] = counts.get(quantity)
        else:
            row |= _times(result, shown)
        rows.append(row | {"Verdict": word_of(result) or None, "Ratio": _rounded(ratio_of(result))})
    return rows


def _times(result: Timed, shown: View) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in (OVERRIDE, *shown.rivals):
        row[f"{LABELS[name]} Latency (ms)"] = result.ms(name)
        if shown.head["measure"] == "kernel":
            row[f"{LABELS[name]} GBPS"] = _rounded(result.gbps(name))
    native = result.ms(NATIVE)
    for name in (UPSTREAM, OVERRIDE):
        ms = result.ms(name)
        row[f"{LABELS[name]} Speedup"] = _rounded(native / ms if native and ms else None)
    for name in shown.rivals:
        against = result.against(name)
        row[f"vs {LABELS[name]}"] = _rounded(against.comparison.ratio if against else None)
    overall = result.overall()
    row["Against"] = LABELS[overall.name] if overall else None
    row["Low"] = _rounded(overall.comparison.low if overall else None)
    row["High"] = _rounded(overall.comparison.high if overall else None)
    return row


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def as_json(shown: View) -> str:
    made = {"session": dict(shown.head), "notes": list(shown.notes), "cases": flat(shown)}
    return json.dumps(made, indent=1, allow_nan=False) + "\n"


def as_csv(shown: View) -> str:
    rows = flat(shown)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
