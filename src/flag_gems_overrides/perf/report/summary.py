# SPDX-License-Identifier: Apache-2.0
"""One line for each op and dtype of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, PEERS, UPSTREAM, parse
from flag_gems_overrides.perf.results import Counted, Row, Timed, is_counted
from flag_gems_overrides.perf.statistics import geomean
from flag_gems_overrides.perf.verdict import FASTER, LEAST_NOISE, SAME, SLOWER, UNSURE

# What people who know upstream's tables call the contenders.
LABELS = {NATIVE: "Torch", UPSTREAM: "Gems", OVERRIDE: "Override"} | {peer: peer for peer in PEERS}


class Line(NamedTuple):
    op: str
    dtype: str
    cases: int
    cells: list[str]


class Summary(NamedTuple):
    columns: list[str]
    rows: list[Line]


def conditions(head: Mapping[str, Any]) -> str:
    """Where and with what a session was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    roofs = ""
    if "copy_gbps" in head:
        roofs = f"; copies at {head['copy_gbps']:.0f} GB/s, reads at {head['read_gbps']:.0f} GB/s"
        roofs += f", noise {head['noise']:.1%}"
    return f"{head['device']['name']}; {versions}{roofs}"


def summaries(head: Mapping[str, Any], rows: Iterable[Row]) -> Summary:
    """Geometric means over the cases, and how the cases were judged."""
    groups = [(key, list(group)) for key, group in groupby(rows, _op_and_dtype)]
    counted = bool(groups) and is_counted(groups[0][1][0])
    columns = _COUNT_COLUMNS if counted else _TIME_COLUMNS
    lines = []
    for (op, dtype), group in groups:
        cells = _counts(group) if counted else _times(group, head.get("noise", LEAST_NOISE))
        lines.append(Line(op, dtype, len(group), cells))
    return Summary(columns, lines)


_COUNT_COLUMNS = ["Gems passes", "Override passes", "Gems launches", "Override launches"]
_TIME_COLUMNS = ["vs Torch", "vs Gems", "vs better", "worst", FASTER, SAME, SLOWER, UNSURE]


def _op_and_dtype(row: Row) -> tuple[str, str]:
    case = parse(row["key"])
    return case.op, case.dtype


def _counts(rows: list[Row]) -> list[str]:
    """Over the cases that upstream has as well; the means without those that move nothing, as of empty tensors."""
    pairs = [(counted, counted.of(UPSTREAM)) for counted in map(Counted, rows)]
    both = [(counted, theirs, counted.override) for counted, theirs in pairs if theirs]
    if not both:
        return ["-"] * len(_COUNT_COLUMNS)
    passes = [[counted.passes(counts) for counts in pair] for counted, *pair in both]
    means = [f"{geomean(each):.2f}" for each in zip(*filter(all, passes), strict=True)] or ["-", "-"]
    return means + [str(sum(pair[i]["launches"] for _, *pair in both)) for i in (0, 1)]


def _times(rows: list[Row], noise: float) -> list[str]:
    results = [Timed(row, noise) for row in rows]
    cells = []
    for name in (NATIVE, UPSTREAM):
        ratios = [against.comparison.ratio for result in results if (against := result.against(name))]
        cells.append(f"{geomean(ratios):.2f}x" if ratios else "-")
    best = [against for result in results if (against := result.against_best())]
    ratios = [against.comparison.ratio for against in best]
    cells += [f"{geomean(ratios):.2f}x", f"{min(ratios):.2f}x"] if ratios else ["-", "-"]
    words = [against.verdict.word for against in best]
    return cells + [str(words.count(word)) for word in (FASTER, SAME, SLOWER, UNSURE)]
