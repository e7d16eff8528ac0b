# SPDX-License-Identifier: Apache-2.0
"""Measures random problems and says on which an override is behind a peer."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import conditions, op_inputs, providers
from flag_gems_overrides.perf.answers import Reference
from flag_gems_overrides.perf.beforehand import COMPILE, Prepared, check_context, first_line, free, synchronize, tuning
from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, Case, Shapes, parse
from flag_gems_overrides.perf.files import write
from flag_gems_overrides.perf.launches import captured
from flag_gems_overrides.perf.losses import result
from flag_gems_overrides.perf.poison import poisoned
from flag_gems_overrides.perf.problems import FAMILIES, Problem
from flag_gems_overrides.perf.timing import Timer, Times

# What the gate asks for.
MIN_SHARE, MIN_RATIO = 0.95, 0.7
# A first look at each problem, and four times as many rounds for what looks like a loss.
ROUNDS, WARM_UP_SECONDS, SECOND_LOOK = 5, 0.004, 4
# Of a launch, as the estimates of the plans have it.
LAUNCH_US = 2.0
# Beyond both a provider is no rival: 700 ms that PyTorch takes for a softmax along a short first dimension, 20 times.
_SLOW_MS, _SLOW_RATIO = 2.0, 4.0
# Memory that is left to PyTorch's allocator between problems.
_KEPT_BYTES = 8 << 30


class Distance(NamedTuple):
    """How far an override is from what its data takes, whatever others need for it."""

    key: str
    us: float
    floor_us: float
    """Of a launch, and of a copy of as many bytes as must be read and written."""

    @property
    def ratio(self) -> float:
        return self.us / self.floor_us


def distances(rows: Iterable[Mapping[str, Any]], copy_gbps: float) -> list[Distance]:
    """Of each problem that an override answers, the farthest first."""
    found = []
    for row in rows:
        us = result(row).us
        if us is not None:
            moved = row["compulsory"]["read"] + row["compulsory"]["written"]
            found.append(Distance(row["key"], us, LAUNCH_US + moved / copy_gbps / 1e3))
    return sorted(found, key=lambda each: each.ratio, reverse=True)


class Tally(NamedTuple):
    """The results of one family, or of all."""

    name: str
    problems: int
    compiled: int
    """How many of them were compared with torch.compile."""
    losses: int
    wrong: int
    worst: float

    @property
    def share(self) -> float:
        """Of problems that are no loss."""
        return 1 - self.losses / self.problems if self.problems else 1.0

    @property
    def passes(self) -> bool:
        return self.share >= MIN_SHARE and self.worst >= MIN_RATIO and not self.wrong


def tallies(rows: Iterable[Mapping[str, Any]]) -> list[Tally]:
    """One for each family that was measured, and one for all."""
    rows = list(rows)
    families = {name: [row for row in rows if OPERATORS[parse(row["key"]).op].family == name] for name in FAMILIES}
    return [_tally(name, group) for name, group in (families | {"all": rows}).items() if group]


def _tally(name: str, rows: Sequence[Mapping[str, Any]]) -> Tally:
    results = [result(row) for row in rows]
    return Tally(
        name,
        len(rows),
        sum("samples_ms" in row["providers"].get(COMPILE, {}) for row in rows),
        sum(each.is_loss for each in results),
        sum(each.error is not None for each in results),
        min((each.ratio for each in results), default=1.0),
    )


class Hunter:
    """Measures problems on the current GPU, each in a fraction of a second."""

    def __init__(self, command: str, peers: Sequence[str], timer: Timer | None = None) -> None:
        device = torch.device("cuda", torch.cuda.current_device()) if timer is None else timer.device
        self._timer = timer or Timer(device, ROUNDS, WARM_UP_SECONDS)
        copy, read = self._timer.bandwidth()
        self.head = conditions.head("kernel", command) | {
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "copy_gbps": round(copy, 1),
            "read_gbps": round(read, 1),
        }
        if peers:
            self.head["peers"] = sorted(peers)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """Where the time went: by provider, for first calls, and by step."""

    @contextlib.contextmanager
    def timed_as(self, step: str) -> Iterator[None]:
        """Add what happens inside to the time of a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] += time.perf_counter() - start

    def measure(self, problem: Problem, prepared: Prepared) -> dict[str, Any]:
        """The case line of a problem."""
        case = problem.case
        with self.timed_as("inputs"):
            necessary = op_inputs.compulsory(case)
            inputs = [op_inputs.arguments(case, self._timer.device) for _ in range(self._timer.group(necessary.total))]
        row: dict[str, Any] = {"key": case.key, "l2": "cold", "compulsory": necessary._asdict()}
        peers = [COMPILE] if problem.compiled else []
        with providers.for_case(case, peers) as (functions, absent), torch.no_grad(), tuning(prepared.timings):
            for name in functions.keys() & prepared.died.keys():
                del functions[name]
                absent[name] = {"absent": prepared.died[name]}
            trials = self._tried(case.op, functions, inputs[0])
            agrees = {name: trial.agrees for name, trial in trials.items() if trial.ms is not None}
            if OVERRIDE in agrees:
                with captured() as launches:
                    functions[OVERRIDE](*inputs[0])
                row["launches"] = [launch.row() for launch in launches]
            slow = _slow(trials)
            calls = {
                name: [functools.partial(functions[name], *arguments) for arguments in inputs]
                for name in agrees
                if name not in slow
            }
            try:
                with self.timed_as("samples"):
                    row |= self._sampled(case.key, calls, agrees) if calls else {"providers": {}}
            except Exception as error:
                check_context(f"{case.key} by one of {', '.join(calls)}: {first_line(error)}")
                raise
        row["providers"] |= {name: {"samples_ms": [trials[name].ms], "agrees": agrees[name]} for name in slow}
        row["providers"] |= absent | {n: {"absent": t.failure} for n, t in trials.items() if t.ms is None}
        del inputs, calls
        free(_KEPT_BYTES)
        return row

    def _tried(self, op: str, functions: Mapping[str, Callable], inputs: op_inputs.Arguments) -> dict[str, Trial]:
        with self.timed_as(NATIVE):
            reference = Reference(op, inputs, functions[NATIVE])
            if reference.failure is None:
                trials = {NATIVE: Trial(_ms(functions[NATIVE], inputs)[0], True)}
            else:
                trials = {NATIVE: Trial(None, failure=reference.failure)}
        for name, function in functions.items():
            if name != NATIVE:
                with self.timed_as(name):
                    trials[name] = _tried(op, name, function, inputs, reference)
        with self.timed_as("slow"):
            for name in _slow(trials):
                # Once may be an allocation, or the host.
                again = min(_ms(functions[name], inputs)[0] for _ in range(2))
                trials[name] = trials[name]._replace(ms=min(trials[name].ms or again, again))
        return trials

    def _sampled(self, key: str, calls: Mapping[str, Sequence[Callable]], agrees: Mapping[str, bool]) -> dict[str, Any]:
        """A second, longer look at what looks like a loss: of many problems, noise makes some look like one."""
        attempts = 1
        times = self._timer.device_times(calls)
        if result({"key": key, "providers": _found(times, agrees)}).is_loss:
            attempts = 2
            times = self._timer.device_times(calls, effort=SECOND_LOOK)
        rounds: dict[str, Any] = {
            "kept": max(map(len, times.samples_ms.values())),
            "dropped": times.dropped,
            "attempts": attempts,
        }
        if times.clock_mhz:
            rounds["clock_mhz"] = list(times.clock_mhz)
        return {"providers": _found(times, agrees), "rounds": rounds}


def _found(times: Times, agrees: Mapping[str, bool]) -> dict[str, Any]:
    return {
        name: {"samples_ms": [round(ms, 6) for ms in samples], "agrees": agrees[name]}
        for name, samples in times.samples_ms.items()
    }


class Trial(NamedTuple):
    """What the first calls of a provider showed."""

    ms: float | None
    """Of one call with its host time; None if it failed."""
    agrees: bool = False
    failure: str = ""


def _tried(op: str, name: str, function: Callable, inputs: op_inputs.Arguments, reference: Reference) -> Trial:
    function = op_inputs.on_copies(op, function)
    try:
        function(*inputs)  # compiles and tunes: configurations that are tried write to the same output
        with poisoned():
            ms, answer = _ms(function, inputs)
        return Trial(ms, reference.is_right(answer))
    except Exception as error:
        check_context(f"{op}: {name}: {first_line(error)}")
        return Trial(None, failure=first_line(error))


def _ms(function: Callable, inputs: op_inputs.Arguments) -> tuple[float, Any]:
    synchronize()
    start = time.perf_counter()
    answer = function(*inputs)
    synchronize()
    return (time.perf_counter() - start) * 1e3, answer


def _slow(trials: Mapping[str, Trial]) -> list[str]:
    """Providers whose one call says enough: samples of them would take most of a hunt's time."""
    fastest = min((trial.ms for trial in trials.values() if trial.ms is not None and trial.agrees), default=math.inf)
    return [
        name
        for name, trial in trials.items()
        if name != OVERRIDE and trial.ms is not None and trial.ms > max(_SLOW_MS, _SLOW_RATIO * fastest)
    ]


# Losses as shapes of the gate.

_HEAD = """\
# Shapes on which an override was behind a peer. `gems-overrides hunt --keep` adds to them, the perf gate measures them.
"""


def keep(path: Path, losses: Iterable[Case]) -> int:
    """Add the shapes of ``losses`` to a file of shapes; returns how many are new.

    Raises:
        CaseError: the file is no file of shapes.
        WriteError: it cannot be written.
    """
    known = Shapes(path) if path.exists() else None
    shapes = {op: [case.size for case in known.cases(op, "core", ["float32"])] for op in known.ops} if known else {}
    before = sum(map(len, shapes.values()))
    for case in losses:
        sizes = shapes.setdefault(case.op, [])
        if case.size not in sizes:
            sizes.append(case.size)
    lines = [_HEAD]
    for op in sorted(shapes):
        lines += [f"\n{op}:\n  core:\n", *(f"    - {_in_yaml(size)}\n" for size in sorted(shapes[op]))]
    write(path, "".join(lines))
    return sum(map(len, shapes.values())) - before


def _in_yaml(size: str) -> str:
    """``"64x512 dim=1"`` as ``{shape: [64, 512], dim: 1}``."""
    shape, *arguments = size.split()
    sizes = f"[{shape.replace('x', ', ')}]"
    if not arguments:
        return sizes
    return "{" + ", ".join([f"shape: {sizes}", *(argument.replace("=", ": ") for argument in arguments)]) + "}"
