# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a case line mean: ratios, verdicts, passes, bandwidth. Gates and reports both read them
here."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, UPSTREAM, Case, parse
from flag_gems_overrides.perf.statistics import Comparison, compare
from flag_gems_overrides.perf.verdict import LEAST_NOISE, Verdict, judge

Row = Mapping[str, Any]


class Against(NamedTuple):
    """The override beside another contender."""

    name: str
    comparison: Comparison
    verdict: Verdict


class Timed:
    """A case line with samples."""

    def __init__(self, row: Row, noise: float = LEAST_NOISE) -> None:
        self.row = row
        self.case: Case = parse(row["key"])
        self._noise = noise

    @property
    def samples(self) -> dict[str, list[float]]:
        contenders = self.row["contenders"]
        return {name: c["samples_ms"] for name, c in contenders.items() if c.get("samples_ms")}

    def ms(self, name: str) -> float | None:
        """Median milliseconds of a contender, None if it was not measured."""
        samples = self.samples.get(name)
        return median(samples) if samples else None

    def gbps(self, name: str) -> float | None:
        """Compulsory bytes over time."""
        ms = self.ms(name)
        return None if ms is None else sum(self.row["compulsory"].values()) / ms / 1e6

    def against(self, name: str) -> Against | None:
        """How the override compares with ``name``; None if either was not measured."""
        samples = self.samples
        if name not in samples or OVERRIDE not in samples:
            return None
        comparison = compare(samples[OVERRIDE], samples[name], seed=f"{self.row['key']} {name}")
        return Against(name, comparison, judge(comparison, self._noise))

    def against_best(self) -> Against | None:
        """How the override compares with the better of native and upstream. A wrong answer is no competitor."""
        rivals = [
            against
            for name in (NATIVE, UPSTREAM)
            if (against := self.against(name)) and self.row["contenders"][name]["agrees"]
        ]
        return min(rivals, key=lambda against: against.comparison.ratio, default=None)


class Counted:
    """A case line with counts."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.case: Case = parse(row["key"])

    def of(self, name: str) -> dict[str, int] | None:
        """The counts of a contender, None if it is absent."""
        counts: dict[str, int] = self.row["contenders"].get(name, {})
        return counts if "loaded" in counts else None

    @property
    def override(self) -> dict[str, int]:
        counts: dict[str, int] = self.row["contenders"][OVERRIDE]
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
    return "loaded" in row["contenders"].get(OVERRIDE, {})
