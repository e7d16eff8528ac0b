# SPDX-License-Identifier: Apache-2.0
"""What may land: measurements held to accepted baselines. Pure functions from rows to failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flag_gems_overrides.perf.baselines import GEOMEAN_ALLOWANCE, SHORT_MS, more_than_upstream
from flag_gems_overrides.perf.cases import OVERRIDE
from flag_gems_overrides.perf.results import Counted, Row, Timed, is_counted, moved
from flag_gems_overrides.perf.statistics import geomean
from flag_gems_overrides.perf.verdict import MIN_NOISE, SLOWER, percents
from flag_gems_overrides.words import many

Baseline = Mapping[str, Any]

ACCEPT = "if this is meant, measure with --record json and accept the record: gems-overrides accept RECORD"


class Failure(NamedTuple):
    """One rule broken by one case (or, for the mean, one op)."""

    rule: str
    where: str
    found: str
    """Both figures, and the interval where there is one."""
    remedy: str = ACCEPT

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}: {self.found}\n    {self.remedy}"


def judge(rows: Iterable[Row], baseline: Baseline | None, noise: float = MIN_NOISE) -> list[Failure]:
    """All failures of one op's rows; without a baseline only wrong answers and spills are failures."""
    failures: list[Failure] = []
    rows = list(rows)
    for row in rows:
        failures += _wrong(row) + _spills(row)
    if baseline is None:
        return failures
    for row in rows:
        accepted = baseline["cases"].get(row["key"])
        if accepted is not None:
            failures += _counts(Counted(row), accepted) if is_counted(row) else _times(Timed(row, noise), accepted)
    if baseline["measure"] == "kernel":
        failures += _mean([Timed(row) for row in rows], baseline)
    return failures


def _wrong(row: Row) -> list[Failure]:
    if row["providers"][OVERRIDE].get("agrees"):
        return []
    return [Failure("answer", row["key"], "the override's result is not PyTorch's", "see tests/accuracy")]


def _spills(row: Row) -> list[Failure]:
    return [
        Failure(
            "spills",
            row["key"],
            f"{launch['kernel']} spills {launch['spilled_bytes']} bytes at {launch['registers']} registers, "
            f"0 are allowed",
            f"plan a smaller tile or more warps than {launch['options']}",
        )
        for launch in row.get("launches", ())
        if launch.get("spilled_bytes")
    ]


def _counts(counted: Counted, accepted: Mapping[str, Any]) -> list[Failure]:
    failures = []
    key, total, launches = counted.case.key, moved(counted.override), counted.override["launches"]
    if total > accepted["moved"]:
        necessary = counted.necessary
        failures.append(
            Failure(
                "passes",
                key,
                f"{total / necessary:.3f} passes ({total} bytes), accepted are "
                f"{accepted['moved'] / necessary:.3f} ({accepted['moved']} bytes)",
            )
        )
    if launches > accepted["launches"]:
        failures.append(Failure("launches", key, f"{launches} launches, accepted are {accepted['launches']}"))
    more = more_than_upstream(counted)
    if more and "more_than_upstream" not in accepted:
        failures.append(Failure("upstream", key, more))
    return failures


def _times(timed: Timed, accepted: Mapping[str, Any]) -> list[Failure]:
    best = timed.against_best()
    if best is None or best.verdict.word != SLOWER or best.comparison.high >= accepted["floor"]:
        return []
    ratio, low, high, floor = percents(*best.comparison[:3], accepted["floor"])
    times = f"override {timed.ms(OVERRIDE):.4f} ms, {best.name} {timed.ms(best.name):.4f} ms"
    return [Failure("slower", timed.case.key, f"{times}: {ratio}, interval {low} to {high}, floor {floor}")]


def _mean(rows: list[Timed], baseline: Baseline) -> list[Failure]:
    """Over the accepted cases among those measured."""
    accepted = {
        key: case["ratio"] * (1 - max(GEOMEAN_ALLOWANCE, SHORT_MS / case["ms"]))
        for key, case in baseline["cases"].items()
    }
    ratios = {}
    for timed in rows:
        best = timed.against_best()
        if best and timed.case.key in accepted:
            ratios[timed.case.key] = best.comparison.ratio
    if not ratios:
        return []
    mean = geomean(ratios.values())
    floor = geomean(accepted[key] for key in ratios)
    if mean >= floor:
        return []
    op = rows[0].case.op
    against = f"geomean over {many(len(ratios), 'case')} against the better of native and upstream"
    return [Failure("geomean", op, f"{against} {mean:.3f}, floor {floor:.3f}")]
