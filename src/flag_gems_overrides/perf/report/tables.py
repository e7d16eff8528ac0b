# SPDX-License-Identifier: Apache-2.0
"""Tables of results, one for each op and dtype, in upstream's familiar columns. Plain text cells for any medium."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, PEERS, UPSTREAM
from flag_gems_overrides.perf.report.view import LABELS, View, ratio_of, word_of
from flag_gems_overrides.perf.results import Against, Counted, Timed
from flag_gems_overrides.perf.roofline import cold_ms
from flag_gems_overrides.perf.verdict import percents
from flag_gems_overrides.words import many

MISSING = "-"


class Column(NamedTuple):
    name: str
    rank: int = 0
    """Where there is no room, columns of the highest rank go first; those of rank 0 stay."""
    text: bool = False
    """Not numbers: aligned left."""


class Line(NamedTuple):
    cells: list[str]
    key: str = ""
    """Of the case that the line is about."""
    word: str = ""
    """Its verdict."""


class Table(NamedTuple):
    title: str
    columns: list[Column]
    lines: list[Line]
    notes: list[str]


def tables(shown: View) -> list[Table]:
    """One table per op and dtype."""
    made = []
    for (op, dtype), results in shown.groups().items():
        mode = shown.head["measure"]
        title = f"Operator: {op}  Performance Test (dtype={dtype}, mode={mode}, {shown.scope})"
        made.append(_counts(title, results) if shown.counted else _times(title, shown.head, results))
    return made


def _counts(title: str, results: Sequence[Counted]) -> Table:
    columns = [Column("Size Detail", text=True), Column("Verdict", text=True), Column("Bytes Ratio", 1)]
    for quantity, rank in (("Loaded", 4), ("Stored", 5), ("Passes", 2), ("Launches", 1), ("Allocations", 6)):
        columns += [Column(f"Gems {quantity}", rank + 1), Column(f"Override {quantity}", rank)]
    lines = []
    for counted in results:
        theirs, ratio, word = counted.of(UPSTREAM), ratio_of(counted), word_of(counted)
        wrong = " *" if theirs and not theirs["agrees"] else ""
        cells = [counted.case.size + wrong, word or MISSING, _ratio(ratio)]
        pairs = zip(_cells(counted, theirs), _cells(counted, counted.override), strict=True)
        lines.append(Line([*cells, *(cell for pair in pairs for cell in pair)], counted.case.key, word))
    return Table(title, columns, lines, _absences([counted.row for counted in results]))


def _cells(counted: Counted, counts: Mapping[str, int] | None) -> list[str]:
    """Loaded, stored, passes, launches, allocations."""
    if counts is None:
        return [MISSING] * 5
    return [
        f"{counts['loaded'] / counted.necessary:.2f}",
        f"{counts['stored'] / counted.necessary:.2f}",
        f"{counted.passes(counts):.2f}",
        str(counts["launches"]),
        f"{counts['allocations']} ({size(counts['allocated'])})",
    ]


def _times(title: str, head: Mapping[str, Any], results: Sequence[Timed]) -> Table:
    peers = [peer for peer in PEERS if any(result.ms(peer) for result in results)]
    bandwidth = head["measure"] == "kernel" and "copy_gbps" in head
    columns = [Column("Size Detail", text=True), Column("Verdict", text=True)]
    columns += [Column("Against", 2, text=True), Column("Change", 8, text=True)]
    columns += [Column("Override Latency (ms)", 1), Column("Override Speedup", 1)]
    columns += [Column("Torch Latency (ms)", 4), Column("Gems Latency (ms)", 5), Column("Gems Speedup", 7)]
    columns += [Column("vs Gems", 2)]
    for peer in peers:
        columns += [Column(f"{LABELS[peer]} Latency (ms)", 6), Column(f"vs {LABELS[peer]}", 3)]
    columns += [Column("Override GBPS", 11), Column("of copy", 10), Column("of read", 12)] if bandwidth else []
    columns += [Column("of cold copy", 9)] if "cold" in head else []
    lines = []
    for result in results:
        overall = result.overall()
        cells = [result.case.size, overall.verdict.word if overall else MISSING]
        cells += [LABELS[overall.name], change(overall)] if overall else [MISSING, MISSING]
        cells += [_latency(result, OVERRIDE), _speedup(result, NATIVE)]
        native, upstream = result.ms(NATIVE), result.ms(UPSTREAM)
        cells += [_latency(result, NATIVE), _latency(result, UPSTREAM)]
        cells += [_ratio(native / upstream if native and upstream else None), _speedup(result, UPSTREAM)]
        for peer in peers:
            cells += [_latency(result, peer), _speedup(result, peer)]
        if bandwidth:
            gbps = result.gbps(OVERRIDE) or 0.0
            cells += [f"{gbps:.0f}", f"{gbps / head['copy_gbps']:.0%}", f"{gbps / head['read_gbps']:.0%}"]
        if "cold" in head:
            cells.append(_share(cold_ms(head["cold"], result.row["compulsory"]), result.ms(OVERRIDE)))
        lines.append(Line(cells, result.case.key, overall.verdict.word if overall else ""))
    rows = [result.row for result in results]
    notes = _absences(rows)
    dropped = sum(row.get("rounds", {}).get("dropped", 0) for row in rows)
    if dropped:
        notes.append(f"{many(dropped, 'round')} dropped: the device was throttled.")
    return Table(title, columns, lines, notes)


def _absences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why providers have no figure, or one that does not count: each kind of reason once, with the number of cases."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, entry in row["providers"].items():
            reason = _absence(entry)
            if reason:
                # Messages that differ in numbers alone are of one kind.
                found.setdefault((LABELS.get(name, name), re.sub(r"\d+", "#", reason)), []).append(reason)
    return [
        f"{name}: {reasons[0].rstrip('.: ')} ({many(len(reasons), 'case')})." for (name, _), reasons in found.items()
    ]


def _absence(entry: Mapping[str, Any]) -> str | None:
    if "absent" not in entry:
        return None if entry["agrees"] else "* another answer than PyTorch's"
    failed = re.match(r"\w*(Error|Exception)\b", entry["absent"])
    return f"failed with {entry['absent']}" if failed else f"not called: {entry['absent']}"


def change(against: Against) -> str:
    """The ratio with its interval."""
    ratio, low, high = percents(*against.comparison[:3])
    return f"{ratio} [{low}, {high}]"


def _latency(result: Timed, name: str) -> str:
    return milliseconds(result.ms(name)) + _mark(result, name)


def _mark(result: Timed, name: str) -> str:
    """Of a wrong answer."""
    return "" if result.row["providers"].get(name, {}).get("agrees", True) else " *"


def milliseconds(ms: float | None) -> str:
    return MISSING if ms is None else f"{ms:.4f}" if ms < 1 else f"{ms:.3f}"


def _share(least: float | None, ms: float | None) -> str:
    return f"{least / ms:.0%}" if least and ms else MISSING


def _speedup(result: Timed, name: str) -> str:
    against = result.against(name)
    return _ratio(against.comparison.ratio) + _mark(result, name) if against else MISSING


def _ratio(ratio: float | None) -> str:
    return MISSING if ratio is None else f"{ratio:.2f}x"


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
