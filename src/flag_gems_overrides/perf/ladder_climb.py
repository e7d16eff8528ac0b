# SPDX-License-Identifier: Apache-2.0
"""Measures the rungs of a ladder side by side: timed on a GPU, counted in Triton's interpreter elsewhere.

A case of a ladder is a line of a record like any other case; its providers are the rungs.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from flag_gems_overrides.perf import conditions, ladder_cuda, quality, records
from flag_gems_overrides.perf.ladder import COMPILED, NATIVE, TOLERANCE, Ladder, Shape
from flag_gems_overrides.perf.poison import poisoned
from flag_gems_overrides.perf.statistics import compare
from flag_gems_overrides.perf.timing import Timer
from flag_gems_overrides.perf.traffic import count
from flag_gems_overrides.perf.verdict import MIN_NOISE, Verdict, judge

Row = dict[str, Any]


class Climber:
    """Times on the current GPU, or counts.

    Args:
        level: what the session's head calls this choice of cases.
        hot: leave the inputs in the L2 cache from one call to the next, as far as they fit. Else it is flushed.
        like: another one that has measured what the device does, for the same device.
    """

    def __init__(self, level: str, hot: bool = False, like: Climber | None = None) -> None:
        self.hot = hot
        self.timer: Timer | None = None
        self.head: Row
        if like is not None:
            self.timer, self.head = like.timer, like.head | {"level": level}
            return
        if not torch.cuda.is_available():
            self.head = conditions.head("count", level)
            return
        self.timer = Timer(torch.device("cuda", torch.cuda.current_device()))
        copy, read = self.timer.bandwidth()
        self.head = conditions.head("kernel", level) | {
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "copy_gbps": round(copy, 1),
            "read_gbps": round(read, 1),
            "noise": round(quality.noise(self.timer), 4),
            "cold": self.timer.cold(),
        }
        self.head["versions"]["nvcc"] = ladder_cuda.version()

    def measure(self, ladder: Ladder, rungs: Iterable[str], shape: Shape, variant: int = 0) -> Row:
        """The case line of one shape. A rung that is wrong, or cannot run here, says so in its place."""
        device = "cpu" if self.timer is None else self.timer.device
        inputs = ladder.inputs(shape, device, variant)
        reference = ladder.reference(*inputs)
        read, written = ladder.compulsory(inputs, reference)
        row: Row = {
            "key": ladder.key(shape, variant),
            "l2": "hot" if self.hot else "cold",
            "compulsory": {"read": read, "written": written},
            "providers": {},
        }
        calls: dict[str, Callable[..., Any]] = {}
        agrees: dict[str, bool] = {}
        for rung in rungs:
            try:
                call = runnable(ladder, rung, shape)
                if isinstance(call, str):
                    row["providers"][rung] = {"absent": call}
                    continue
                measured = self._first(ladder, call, inputs, reference)
            except Exception as error:  # whatever a compiler may raise: the other rungs are measured
                row["providers"][rung] = {"absent": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
                continue
            calls[rung], agrees[rung] = call, measured["agrees"]
            row["providers"][rung] = measured
        del reference
        if self.timer is not None:
            row["providers"] |= self._timed(row, ladder, calls, agrees, shape, variant)
        return row

    def _first(
        self, ladder: Ladder, call: Callable[..., Any], inputs: tuple[Any, ...], reference: tuple[torch.Tensor, ...]
    ) -> Row:
        """Compile, then look at the answer of a second call, on memory that is full of NaN."""
        with torch.no_grad():
            if self.timer is not None:
                call(*inputs)
                with poisoned():
                    result = call(*inputs)
                return {"agrees": ladder.error(result, reference) < TOLERANCE}
            with poisoned():
                result, traffic = count(functools.partial(call, *inputs))
        return traffic._asdict() | {"agrees": ladder.error(result, reference) < TOLERANCE}

    def _timed(
        self,
        row: Row,
        ladder: Ladder,
        functions: Mapping[str, Callable[..., Any]],
        agrees: Mapping[str, bool],
        shape: Shape,
        variant: int,
    ) -> Row:
        assert self.timer is not None
        copies = self.timer.group(sum(row["compulsory"].values()))
        inputs = [ladder.inputs(shape, self.timer.device, variant) for _ in range(1 if self.hot else copies)]
        inputs *= copies // len(inputs)
        calls = {name: [functools.partial(call, *each) for each in inputs] for name, call in functions.items()}
        with torch.no_grad():
            times = self.timer.device_times(calls, cold=not self.hot)
        row["rounds"] = {
            "kept": max(map(len, times.samples_ms.values())),
            "dropped": times.dropped,
            "attempts": 1,
        }
        if times.clock_mhz:
            row["rounds"]["clock_mhz"] = list(times.clock_mhz)
        return {
            name: {"samples_ms": [round(ms, 6) for ms in samples], "agrees": agrees[name]}
            for name, samples in times.samples_ms.items()
        }


def climb(
    climber: Climber, chosen: Mapping[Ladder, list[str]], cases: Iterable[tuple[Ladder, Shape, int]], path: Path | None
) -> Iterator[tuple[Ladder, Row]]:
    """Measure cases (ladder, shape, variant) one after the other and record each as soon as it is measured. What the
    record's session holds already is not measured again."""
    keyed = {ladder.key(shape, variant): (ladder, shape, variant) for ladder, shape, variant in cases}
    recorder = records.Recorder(path, climber.head, keyed) if path and keyed else None
    try:
        for key, (ladder, shape, variant) in keyed.items():
            row = recorder.session.rows.get(key) if recorder else None
            if row is None:
                row = climber.measure(ladder, chosen[ladder], shape, variant)
                if recorder:
                    recorder.row(row)
                if climber.timer:
                    torch.cuda.empty_cache()
            yield ladder, row
    finally:
        if recorder:
            recorder.close()


def runnable(ladder: Ladder, rung: str, shape: Shape) -> Callable[..., Any] | str:
    """A rung as a function; why it does not run here in words."""
    described = ladder.rungs.get(rung) or ladder.traps[rung]
    if not described.supports(shape):
        return f"does not support N = {shape[-1]}"
    if ladder.source(rung).suffix == ".cu":
        if not torch.cuda.is_available():
            return "CUDA C++ needs a GPU" if ladder_cuda.nvcc() else ladder_cuda.NO_NVCC
        return ladder_cuda.function(ladder, rung)
    if rung == COMPILED and not torch.cuda.is_available():
        return "torch.compile is measured on a GPU"
    run: Callable[..., Any] = ladder.module(rung).run
    return run


class Step(NamedTuple):
    """One rung at one shape, as it is shown."""

    rung: str
    absent: str | None = None
    agrees: bool = True
    us: float | None = None
    gbps: float | None = None
    share: float | None = None
    """Of the bandwidth of a plain copy of 2 GiB."""
    passes: float | None = None
    launches: int | None = None
    after: tuple[str, float, Verdict] | None = None
    """The rung that it should beat, that rung's time over this one's, and the verdict."""
    of_native: float | None = None
    """Native's time over this rung's."""


def steps(ladder: Ladder, head: Mapping[str, Any], row: Mapping[str, Any]) -> list[Step]:
    """What a case line says of each rung, in the order of the climb."""
    measured = row["providers"]
    return [_step(ladder, head, row, rung) for rung in ladder.rungs if rung in measured]


def _step(ladder: Ladder, head: Mapping[str, Any], row: Mapping[str, Any], rung: str) -> Step:
    found = row["providers"][rung]
    if "absent" in found:
        return Step(rung, absent=found["absent"])
    compulsory = sum(row["compulsory"].values())
    if "samples_ms" not in found:
        passes = (found["loaded"] + found["stored"] + found["atomic"]) / compulsory
        return Step(rung, agrees=found["agrees"], passes=passes, launches=found["launches"])
    ms = median(found["samples_ms"])
    gbps = compulsory / ms / 1e6
    native = samples(row, NATIVE)
    after = ladder.rungs[rung].after
    before = samples(row, after) if after else None
    step = None
    if after and before:
        comparison = compare(found["samples_ms"], before, seed=f"{row['key']} {rung}")
        step = (after, comparison.ratio, judge(comparison, head.get("noise", MIN_NOISE)))
    return Step(
        rung,
        agrees=found["agrees"],
        us=ms * 1e3,
        gbps=gbps,
        share=gbps / head["copy_gbps"],
        after=step,
        of_native=median(native) / ms if native else None,
    )


def samples(row: Mapping[str, Any], rung: str) -> list[float] | None:
    """Milliseconds of a rung in each round; None if it was not timed."""
    times: list[float] | None = row["providers"].get(rung, {}).get("samples_ms")
    return times or None
