# SPDX-License-Identifier: Apache-2.0
"""Tables of results, one for each op and dtype, in upstream's familiar columns. Plain text cells for any medium."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, PEERS, UPSTREAM, parse
from flag_gems_overrides.perf.report.summary import LABELS
from flag_gems_overrides.perf.results import Against, Counted, Row, Timed, is_counted
from flag_gems_overrides.perf.roofline import cold_ms
from flag_gems_overrides.perf.statistics import geomean
from flag_gems_overrides.perf.verdict import LEAST_NOISE

_MISSING = "-"


class Table(NamedTuple):
    title: str
    columns: list[str]
    rows: list[list[str]]
    summary: str


def tables(head: Mapping[str, Any], rows: Iterable[Row]) -> list[Table]:
    """One table per op and dtype, in the order in which they were measured."""

    def op_and_dtype(row: Row) -> tuple[str, str]:
        case = parse(row["key"])
        return case.op, case.dtype

    made = []
    for (op, dtype), group in groupby(rows, op_and_dtype):
        same = list(group)
        title = f"Operator: {op}  Performance Test (dtype={dtype}, mode={head['measure']}, level={head['level']})"
        made.append(_counts(title, same) if is_counted(same[0]) else _times(title, head, same))
    return made


def _counts(title: str, rows: list[Row]) -> Table:
    columns = ["Size Detail"]
    for quantity in ("Loaded", "Stored", "Passes", "Launches", "Allocations"):
        columns += [f"Gems {quantity}", f"Override {quantity}"]
    lines = []
    for row in rows:
        counted = Counted(row)
        pair = [counted.of(name) for name in (UPSTREAM, OVERRIDE)]
        line = [counted.case.size + ("" if pair[0] and pair[0]["agrees"] else " *")]
        for cells in zip(*(_cells(counted, counts) for counts in pair), strict=True):
            line += cells
        lines.append(line)
    wrong = "; * upstream has no answer here, or a wrong one" if any(line[0].endswith("*") for line in lines) else ""
    return Table(title, columns, lines, f"loaded, stored and passes per compulsory byte{wrong}")


def _cells(counted: Counted, counts: Mapping[str, int] | None) -> list[str]:
    """Loaded, stored, passes, launches, allocations."""
    if counts is None:
        return [_MISSING] * 5
    return [
        f"{counts['loaded'] / counted.necessary:.2f}",
        f"{counts['stored'] / counted.necessary:.2f}",
        f"{counted.passes(counts):.2f}",
        str(counts["launches"]),
        f"{counts['allocations']} ({size(counts['allocated'])})",
    ]


def _times(title: str, head: Mapping[str, Any], rows: list[Row]) -> Table:
    noise = head.get("noise", LEAST_NOISE)
    results = [Timed(row, noise) for row in rows]
    peers = [peer for peer in PEERS if any(result.ms(peer) for result in results)]
    names = [NATIVE, UPSTREAM, OVERRIDE, *peers]
    bandwidth = head["measure"] == "kernel" and "copy_gbps" in head
    columns = ["Size Detail", *(f"{LABELS[name]} Latency (ms)" for name in names)]
    columns += ["vs Torch", "vs Gems"]
    columns += ["Override GBPS", "of copy", "of read"] if bandwidth else []
    columns += ["of cold copy"] if "cold" in head else []
    columns += ["Verdict"]
    lines = []
    for result in results:
        wrong = {name for name in names if not result.row["contenders"].get(name, {}).get("agrees", True)}
        line = [result.case.size, *(_ms(result.ms(name)) + (" *" if name in wrong else "") for name in names)]
        line += [_speedup(result.against(NATIVE)), _speedup(result.against(UPSTREAM))]
        if bandwidth:
            gbps = result.gbps(OVERRIDE) or 0.0
            line += [f"{gbps:.0f}", f"{gbps / head['copy_gbps']:.0%}", f"{gbps / head['read_gbps']:.0%}"]
        if "cold" in head:
            line.append(_share(cold_ms(head["cold"], result.row["compulsory"]), result.ms(OVERRIDE)))
        best = result.against_best()
        line.append(f"{best.verdict.word}: {best.verdict.reason}" if best else _MISSING)
        lines.append(line)
    return Table(title, columns, lines, _summary(results))


def _summary(results: list[Timed]) -> str:
    parts = []
    for name in (NATIVE, UPSTREAM):
        ratios = [against.comparison.ratio for result in results if (against := result.against(name))]
        if ratios:
            parts.append(f"{geomean(ratios):.2f}x {LABELS[name]}")
    words = [best.verdict.word for result in results if (best := result.against_best())]
    tally = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    dropped = sum(result.row.get("rounds", {}).get("dropped", 0) for result in results)
    parts = [
        f"geomean {', '.join(parts)}" if parts else "",
        f"against the better of both: {tally}" if tally else "",
    ]
    if dropped:
        parts.append(f"{dropped} rounds dropped, the device was throttled")
    if any(not c.get("agrees", True) for result in results for c in result.row["contenders"].values()):
        parts.append("* another answer than PyTorch's")
    return "; ".join(filter(None, parts))


def _ms(ms: float | None) -> str:
    return _MISSING if ms is None else f"{ms:.4f}" if ms < 1 else f"{ms:.3f}"


def _share(least: float | None, ms: float | None) -> str:
    return f"{least / ms:.0%}" if least and ms else _MISSING


def _speedup(against: Against | None) -> str:
    return _MISSING if against is None else f"{against.comparison.ratio:.2f}x"


def size(count: int) -> str:
    """Bytes as people say them."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"
