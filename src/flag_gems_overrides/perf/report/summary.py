# SPDX-License-Identifier: Apache-2.0
"""A session in three tables: means for each op and dtype, verdicts for each provider, and the worst cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flag_gems_overrides.perf.cases import OVERRIDE, PEERS, UPSTREAM
from flag_gems_overrides.perf.report.tables import MISSING, Column, Line, Table, change, milliseconds
from flag_gems_overrides.perf.report.view import LABELS, LESS, MORE, View, word_of
from flag_gems_overrides.perf.results import Counted, Timed
from flag_gems_overrides.perf.statistics import geomean
from flag_gems_overrides.perf.verdict import FASTER, SAME, SLOWER, UNSURE

WORST = 10
_TIMED_WORDS, _COUNTED_WORDS = (FASTER, SAME, SLOWER, UNSURE), (LESS, SAME, MORE)


def conditions(head: Mapping[str, Any]) -> str:
    """Where and with what a session was measured."""
    device = head["device"]
    parts = [device["name"] + (f", driver {device['driver']}" if "driver" in device else "")]
    parts.append(", ".join(f"{name} {version}" for name, version in head["versions"].items()))
    if head["measure"] == "kernel" and "copy_gbps" in head:
        parts.append(f"copies at {head['copy_gbps']:.0f} GB/s, reads at {head['read_gbps']:.0f} GB/s")
    if "noise" in head:
        parts.append(f"noise {head['noise']:.1%}")
    parts.append(code(head))
    return "; ".join(parts)


def code(head: Mapping[str, Any]) -> str:
    """Which code was measured: the digest of its files, and the commit that was checked out."""
    commit = head["commit"] or "unknown"
    dirty = "-dirty" if commit.endswith("-dirty") else ""
    return f"code {head['digests']['flag_gems_overrides']}, commit {commit[:12]}{dirty}"


def summary(shown: View) -> list[Table]:
    """Means, verdicts by provider and worst cases; of counts the means alone."""
    made = [_counted_means(shown)] if shown.counted else [_means(shown), by_provider(shown), worst(shown.results)]
    return [table for table in made if table.lines]


def _means(shown: View) -> Table:
    """Geometric means over the cases, and how the cases were judged."""
    columns = [Column("Op", text=True), Column("dtype", text=True), Column("Cases", 5)]
    names = [name for name in shown.rivals if any(result.competitors([name]) for result in shown.results)]
    columns += [Column(f"vs {LABELS[name]}", 4 if name in PEERS else 1) for name in names]
    columns += [Column("worst", 2), *(Column(word, 3) for word in _TIMED_WORDS)]
    lines = []
    for (op, dtype), results in shown.groups().items():
        cells = [op, dtype, str(len(results))]
        cells += [mean(results, name) for name in names]
        ratios = [against.comparison.ratio for result in results for against in result.competitors()]
        cells.append(f"{min(ratios):.2f}x" if ratios else MISSING)
        lines.append(Line(cells + _tally(map(word_of, results), _TIMED_WORDS)))
    return Table("Geometric means, and verdicts against the best of all", columns, lines, [])


def by_provider(shown: View) -> Table:
    """How often the override is faster than each, wherever both were measured and the answers are right."""
    columns = [Column("Against", text=True), Column("Cases"), Column("geomean"), *map(Column, _TIMED_WORDS)]
    lines = []
    for name in shown.rivals:
        compared = [each for result in shown.results for each in result.competitors([name])]
        if compared:
            words = [each.verdict.word for each in compared]
            lines.append(
                Line([LABELS[name], str(len(compared)), mean(shown.results, name), *_tally(words, _TIMED_WORDS)])
            )
    return Table("Verdicts by provider", columns, lines, ["Wrong answers are no competitors."] if lines else [])


def worst(results: Iterable[Timed], count: int = WORST) -> Table:
    """The cases with the lowest ratio to any provider."""
    columns = [Column("Op", text=True), Column("Size Detail", text=True), Column("dtype", text=True)]
    columns += [Column("Against", 1, text=True), Column("Verdict", 2, text=True), Column("Ratio")]
    columns += [Column("Change", 4, text=True), Column("Override Latency (ms)", 3), Column("Their Latency (ms)", 3)]
    pairs = [(result, against) for result in results for against in result.competitors()]
    pairs.sort(key=lambda pair: pair[1].comparison.ratio)
    lines = []
    for result, against in pairs[:count]:
        case, word = result.case, against.verdict.word
        cells = [case.op, case.size, case.dtype, LABELS[against.name], word]
        cells += [f"{against.comparison.ratio:.2f}x", change(against)]
        cells += [milliseconds(result.ms(name)) for name in (OVERRIDE, against.name)]
        lines.append(Line(cells, case.key, word))
    return Table("Worst cases", columns, lines, [])


def _counted_means(shown: View) -> Table:
    """Over the cases that upstream has as well; the means without those that move nothing, as of empty tensors."""
    columns = [Column("Op", text=True), Column("dtype", text=True), Column("Cases", 1)]
    columns += [Column("Gems passes", 2), Column("Override passes"), Column("Gems launches", 2)]
    columns += [Column("Override launches"), *(Column(word, 1) for word in _COUNTED_WORDS)]
    lines = []
    for (op, dtype), results in shown.groups().items():
        both = [(counted, theirs) for counted in results if (theirs := counted.of(UPSTREAM))]
        cells = [op, dtype, str(len(results)), *_counted_cells(both)]
        lines.append(Line(cells + _tally(map(word_of, results), _COUNTED_WORDS)))
    note = "Loaded, stored and passes are per compulsory byte; the ratio is Gems' bytes over the override's."
    return Table("Means of passes, sums of launches", columns, lines, [note])


def _counted_cells(both: Sequence[tuple[Counted, Mapping[str, int]]]) -> list[str]:
    if not both:
        return [MISSING] * 4
    passes = [(counted.passes(theirs), counted.passes(counted.override)) for counted, theirs in both]
    moving = [pair for pair in passes if all(pair)]
    theirs, ours = ([f"{geomean(pair[i] for pair in moving):.2f}" if moving else MISSING] for i in (0, 1))
    launches = [str(sum(counts["launches"] for counts in side)) for side in _sides(both)]
    return [*theirs, *ours, *launches]


def _sides(
    both: Sequence[tuple[Counted, Mapping[str, int]]],
) -> tuple[list[Mapping[str, int]], list[Mapping[str, int]]]:
    return [theirs for _, theirs in both], [counted.override for counted, _ in both]


def _tally(words: Iterable[str], known: Sequence[str]) -> list[str]:
    words = list(words)
    return [str(words.count(word)) for word in known]


def mean(results: Iterable[Timed], name: str) -> str:
    """Geometric mean of the ratios to a provider, where its answer is right; of none "-"."""
    ratios = [against.comparison.ratio for result in results for against in result.competitors([name])]
    return f"{geomean(ratios):.2f}x" if ratios else MISSING
