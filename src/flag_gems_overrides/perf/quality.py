# SPDX-License-Identifier: Apache-2.0
"""The quality of the harness itself: how often it raises a false alarm, and how small a slowdown it finds."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from flag_gems_overrides.perf import conditions, op_inputs
from flag_gems_overrides.perf.cases import Case
from flag_gems_overrides.perf.statistics import compare
from flag_gems_overrides.perf.timing import Calls, Timer
from flag_gems_overrides.perf.verdict import FASTER, SLOWER, judge, noise_floor

_DIM1 = (("dim", 1),)
# From a call of a few microseconds to one of half a millisecond.
ALIKE = (
    Case("softmax", (1024, 256), "bfloat16", _DIM1),
    Case("max_dim", (2048, 2048), "bfloat16", _DIM1),
    Case("softmax", (4096, 4096), "bfloat16", _DIM1),
    Case("max", (1 << 26,), "float32"),
    Case("softmax", (32768, 4096), "bfloat16", _DIM1),
)
# One program for each row, and many of them: time is in proportion to the rows.
SLOWED = (
    Case("softmax", (4096, 4096), "bfloat16", _DIM1),
    Case("softmax", (8192, 4096), "bfloat16", _DIM1),
    Case("log_softmax", (32768, 4096), "bfloat16", _DIM1),
)
SLOWDOWNS = (0.02, 0.05, 0.10)
CALIBRATION_RUNS, ALIKE_RUNS, SLOWED_RUNS = 8, 50, 25


def _calls(function: Any, case: Case, timer: Timer) -> Calls:
    """The calls of one sample."""
    copies = timer.group(op_inputs.compulsory(case).total)
    return [functools.partial(function, *op_inputs.arguments(case, timer.device)) for _ in range(copies)]


def noise(timer: Timer) -> float:
    """What comparisons of native functions with themselves differ by on this device now."""
    ratios = [ratio for case in ALIKE for ratio, _ in _trial(timer, case, 0.0, CALIBRATION_RUNS, 0.0)]
    return noise_floor(ratios)


def assess(timer: Timer) -> dict[str, Any]:
    """Compare native functions with themselves, and with themselves on a few percent more rows.

    Returns:
        JSON: the conditions, and for each case and planted slowdown the verdicts and the ratios that were
        measured.
    """
    floor = noise(timer)
    trials = []
    for planted, cases, runs in ((0.0, ALIKE, ALIKE_RUNS), *((p, SLOWED, SLOWED_RUNS) for p in SLOWDOWNS)):
        for case in cases:
            results = _trial(timer, case, planted, runs, floor)
            words = [word for _, word in results]
            trials.append(
                {
                    "case": case.key,
                    "planted": planted,
                    "verdicts": {word: words.count(word) for word in sorted(set(words))},
                    "ratios": [round(ratio, 5) for ratio, _ in results],
                }
            )
    return {
        "schema": 1,
        "conditions": conditions.head("kernel", "quality"),
        "noise": round(floor, 4),
        "false_alarms": _tally(trials, 0.0, (FASTER, SLOWER)),
        "detected": {f"{planted:.0%}": _tally(trials, planted, (SLOWER,)) for planted in SLOWDOWNS},
        "trials": trials,
    }


def _trial(timer: Timer, case: Case, planted: float, runs: int, floor: float) -> list[tuple[float, str]]:
    """Ratio and verdict of each run."""
    function = op_inputs.native(case.op)
    plain = slowed = _calls(function, case, timer)
    if planted:
        rows, *rest = case.shape
        slowed = _calls(function, replace(case, shape=(round(rows * (1 + planted)), *rest)), timer)
    results = []
    for run in range(runs):
        samples = timer.device_times({"plain": plain, "slowed": slowed}).samples_ms
        comparison = compare(samples["slowed"], samples["plain"], f"{case.key} {planted} {run}")
        results.append((comparison.ratio, judge(comparison, floor).word))
    return results


def _tally(trials: list[dict[str, Any]], planted: float, words: tuple[str, ...]) -> dict[str, int]:
    verdicts = [trial["verdicts"] for trial in trials if trial["planted"] == planted]
    return {
        "comparisons": sum(sum(each.values()) for each in verdicts),
        "found": sum(each.get(word, 0) for each in verdicts for word in words),
    }
