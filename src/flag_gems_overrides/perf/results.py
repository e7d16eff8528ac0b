# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a case line mean: ratios, verdicts, passes, bandwidth. Gates and reports both read them
here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple

from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, PEERS, UPSTREAM, Case, parse
from flag_gems_overrides.perf.statistics import Comparison, compare
from flag_gems_overrides.perf.verdict import FASTER, MIN_NOISE, SAME, SLOWER, UNSURE, Verdict, judge

Row = Mapping[str, Any]


class Against(NamedTuple):
    """The override beside another provider."""

    name: str
    comparison: Comparison
    verdict: Verdict


class Timed:
    """A case line with samples."""

    def __init__(self, row: Row, noise: float = MIN_NOISE) -> None:
        self.row = row
        self.case: Case = parse(row["key"])
        self._noise = noise
        self._against: dict[str, Against | None] = {}

    @property
    def samples(self) -> dict[str, list[float]]:
        providers = self.row["providers"]
        return {name: p["samples_ms"] for name, p in providers.items() if p.get("samples_ms")}

    def ms(self, name: str) -> float | None:
        """Median milliseconds of a provider, None if it was not measured."""
        samples = self.samples.get(name)
        return median(samples) if samples else None

    def gbps(self, name: str) -> float | None:
        """Compulsory bytes over time."""
        ms = self.ms(name)
        return None if ms is None else sum(self.row["compulsory"].values()) / ms / 1e6

    def against(self, name: str) -> Against | None:
        """How the override compares with ``name``; None if either was not measured."""
        if name not in self._against:
            self._against[name] = self._compared(name)
        return self._against[name]

    def _compared(self, name: str) -> Against | None:
        samples = self.samples
        if name not in samples or OVERRIDE not in samples:
            return None
        comparison = compare(samples[OVERRIDE], samples[name], seed=f"{self.row['key']} {name}")
        return Against(name, comparison, judge(comparison, self._noise))

    def competitors(self, names: Iterable[str] = (NATIVE, UPSTREAM, *PEERS)) -> list[Against]:
        """How the override compares with each of ``names`` that was measured. A wrong answer is no competitor."""
        compared = [self.against(name) for name in names]
        return [each for each in compared if each and self.row["providers"][each.name]["agrees"]]

    def against_best(self) -> Against | None:
        """How the override compares with the better of native and upstream, which the gate judges by."""
        return min(self.competitors((NATIVE, UPSTREAM)), key=_ratio, default=None)

    def overall(self) -> Against | None:
        """The comparison that decides between the override and all that were measured: FASTER only if it is faster
        than each of them, SLOWER if it is slower than any."""
        competitors = self.competitors()
        for word in (SLOWER, UNSURE, SAME, FASTER):
            same = [each for each in competitors if each.verdict.word == word]
            if same:
                return min(same, key=_ratio)
        return None


def _ratio(against: Against) -> float:
    return against.comparison.ratio


class Counted:
    """A case line with counts."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.case: Case = parse(row["key"])

    def of(self, name: str) -> dict[str, int] | None:
        """The counts of a provider, None if it is absent."""
        counts: dict[str, int] = self.row["providers"].get(name, {})
        return counts if "loaded" in counts else None

    @property
    def override(self) -> dict[str, int]:
        counts: dict[str, int] = self.row["providers"][OVERRIDE]
        return counts

    @property
    def necessary(self) -> int:
        return max(1, sum(self.row["compulsory"].values()))

    def passes(self, counts: Mapping[str, int]) -> float:
        """Bytes moved for each compulsory byte."""
        return moved(counts) / self.necessary


def moved(counts: Mapping[str, int]) -> int:
    """Bytes loaded, stored and updated by atomics."""
    return counts["loaded"] + counts["stored"] + counts["atomic"]


def is_counted(row: Row) -> bool:
    return "loaded" in row["providers"].get(OVERRIDE, {})
