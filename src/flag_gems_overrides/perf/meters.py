# SPDX-License-Identifier: Apache-2.0
"""Two ways to measure a case: time it on a GPU, or count what it does in Triton's interpreter."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from flag_gems_overrides.perf import conditions, op_inputs, providers, quality
from flag_gems_overrides.perf.answers import Reference
from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, UPSTREAM, Case
from flag_gems_overrides.perf.launches import captured
from flag_gems_overrides.perf.poison import poisoned
from flag_gems_overrides.perf.providers import AbsentError
from flag_gems_overrides.perf.statistics import compare
from flag_gems_overrides.perf.timing import Timer, Times
from flag_gems_overrides.perf.traffic import count
from flag_gems_overrides.perf.verdict import UNSURE, judge

Calls = dict[str, list[functools.partial]]


class Meter(Protocol):
    """Measures cases; ``head`` says under which conditions."""

    head: dict[str, Any]

    def measure(self, case: Case) -> dict[str, Any]:
        """The case line for ``case``, as :mod:`records` defines it."""
        ...


class DeviceMeter:
    """Times on the current GPU."""

    def __init__(self, mode: str, level: str, peers: Sequence[str] = ()) -> None:
        self._timer = Timer(torch.device("cuda", torch.cuda.current_device()))
        self._mode = mode
        self._peers = peers
        copy, read = self._timer.bandwidth()
        self.head = conditions.head(mode, level) | {
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "copy_gbps": round(copy, 1),
            "read_gbps": round(read, 1),
            "noise": round(quality.noise(self._timer), 4),
        }
        if peers:
            self.head["peers"] = sorted(set(peers))
        if mode == "kernel":
            self.head["cold"] = self._timer.cold()

    def measure(self, case: Case) -> dict[str, Any]:
        necessary = op_inputs.compulsory(case)
        copies = self._timer.group(necessary.total)
        inputs = [op_inputs.arguments(case, self._timer.device) for _ in range(copies)]
        row: dict[str, Any] = {
            "key": case.key,
            "l2": "cold" if self._mode == "kernel" else "hot",
            "compulsory": necessary._asdict(),
        }
        with providers.for_case(case, self._peers) as (functions, left_out), torch.no_grad():
            calls, agrees, absent = self._first_calls(case.op, functions, inputs)
            if OVERRIDE in calls:
                with captured() as launches:
                    calls[OVERRIDE][0]()
                row["launches"] = [launch.row() for launch in launches]
            row |= self._timed(case, calls, agrees)
            row["providers"] |= absent | left_out
        return row

    def _first_calls(
        self, op: str, functions: Mapping[str, Callable], inputs: list[op_inputs.Arguments]
    ) -> tuple[Calls, dict[str, bool], dict[str, dict[str, str]]]:
        """Compile, tune, and look whether the answers agree with native's."""
        calls, agrees, absent = {}, {}, {}
        reference = Reference(op, inputs[0], functions[NATIVE])
        for name, function in functions.items():
            answer = _agrees(op, function, inputs[0], reference, must_run=name == OVERRIDE)
            if isinstance(answer, str):
                absent[name] = {"absent": answer}
            else:
                agrees[name] = answer
                calls[name] = [functools.partial(function, *arguments) for arguments in inputs]
        return calls, agrees, absent

    def _timed(self, case: Case, calls: Calls, agrees: dict[str, bool]) -> dict[str, Any]:
        for attempt in (1, 2):
            times = self._times(case, calls, effort=attempt)
            if attempt == 2 or not self._unsure(case, times.samples_ms):
                break
        rounds: dict[str, Any] = {
            "kept": max(map(len, times.samples_ms.values())),
            "dropped": times.dropped,
            "attempts": attempt,
        }
        if times.clock_mhz:
            rounds["clock_mhz"] = list(times.clock_mhz)
        samples = {
            name: {"samples_ms": [round(ms, 6) for ms in values], "agrees": agrees[name]}
            for name, values in times.samples_ms.items()
        }
        return {"providers": samples, "rounds": rounds}

    def _times(self, case: Case, calls: Calls, effort: int) -> Times:
        if self._mode == "kernel":
            return self._timer.device_times(calls, effort=effort)
        dispatching = {name: pair for name, pair in providers.dispatching(case.op).items() if name in calls}
        arguments = calls[NATIVE][0].args
        return self._timer.host_times(
            {name: functools.partial(call, *arguments) for name, (call, _) in dispatching.items()},
            {name: context for name, (_, context) in dispatching.items()},
            wait=self._mode == "operator",
            effort=effort,
        )

    def _unsure(self, case: Case, samples: dict[str, list[float]]) -> bool:
        pairs = [name for name in (NATIVE, UPSTREAM) if name in samples and OVERRIDE in samples]
        comparisons = [compare(samples[OVERRIDE], samples[name], case.key + name) for name in pairs]
        return any(judge(comparison, self.head["noise"]).word == UNSURE for comparison in comparisons)


def _agrees(
    op: str, function: Callable, arguments: op_inputs.Arguments, reference: Reference, must_run: bool
) -> bool | str:
    """Whether the function's answer is PyTorch's; why not in words if it cannot run."""
    function = op_inputs.on_copies(op, function)
    try:
        # Compiles, and tunes: the configurations that are tried write to the same output, and what the one that is
        # chosen leaves out would be there already. The next call is like those that are timed.
        function(*arguments)
        with poisoned():
            result = function(*arguments)
        return reference.is_right(result)
    except AbsentError as error:
        return str(error)
    except Exception as error:
        if must_run:
            raise
        return _first_line(error)


class CountMeter:
    """Counts in Triton's interpreter: exact, the same every time, and independent of the machine."""

    def __init__(self, level: str) -> None:
        self.head = conditions.head("count", level)

    def measure(self, case: Case) -> dict[str, Any]:
        arguments = op_inputs.arguments(case, "cpu")
        row: dict[str, Any] = {
            "key": case.key,
            "l2": "cold",
            "compulsory": op_inputs.compulsory(case)._asdict(),
        }
        with providers.for_case(case) as (functions, left_out), torch.no_grad():
            reference = Reference(case.op, arguments, functions.pop(NATIVE))
            row["providers"] = dict(left_out)
            for name, function in functions.items():
                with captured() as launches:
                    row["providers"][name] = self._counted(case.op, name, function, arguments, reference)
            row["launches"] = [launch.row() for launch in launches]
        return row

    @staticmethod
    def _counted(
        op: str, name: str, function: Callable, arguments: op_inputs.Arguments, reference: Reference
    ) -> dict[str, Any]:
        call = functools.partial(function, *op_inputs.copied(op, arguments))
        try:
            with poisoned():
                result, traffic = count(call)
        except Exception as error:
            if name == OVERRIDE:
                raise
            return {"absent": _first_line(error)}
        return traffic._asdict() | {"agrees": reference.is_right(result)}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
