# SPDX-License-Identifier: Apache-2.0
"""Compiles the candidates of problems in worker processes, and times them beside each other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf import workers
from flag_gems_overrides.perf.beforehand import (
    call_or_end,
    check_context,
    first_line,
    free,
    inputs_or_none,
    processes,
)
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.perf.tune.families import Family, Point
from flag_gems_overrides.perf.tune.journal import Measured

# A configuration that is faster than the default by less than both has not been shown to be faster.
MIN_GAIN, MIN_GAIN_US = 0.02, 0.1
ROUNDS, WARM_UP_SECONDS, SECOND_LOOK = 5, 0.004, 4
_KEPT_BYTES = 8 << 30


def compile_all(todo: Mapping[Point, list[Any]], seconds: float) -> dict[tuple[str, str, tuple], str]:
    """Launch the configurations of each point once, on all cores, for ``seconds`` at most. Returns which ended their
    process."""
    tasks = [
        (point.family.package, point.case.key, tuple(configuration))
        for point, configurations in todo.items()
        for configuration in configurations
    ]
    answers = workers.run(f"{__name__}:compiler", tasks, processes(), seconds, {"OMP_NUM_THREADS": "1"})
    return {answer.task: answer.died for answer in answers if answer.died}


def compiler() -> Callable[[list], None]:
    """In a worker: what launches a case in a configuration."""
    from flag_gems_overrides import environment

    environment.load()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def call(task: list) -> None:
        package, key, values = task
        family = Family(package, ())
        case = parse(key)
        configuration = family.plan.Configuration(*values)
        inputs = inputs_or_none(case, device)
        if inputs is not None:
            call_or_end(family.call.launch_with, (configuration, case.op, *inputs))
        free(_KEPT_BYTES // 8)

    return call


class Tuner:
    """Times the candidates of points beside each other on the current GPU.

    Args:
        timer: a :class:`timing.Timer`.
    """

    def __init__(self, timer: Any) -> None:
        self._timer = timer
        self.died: Mapping[tuple[str, str, tuple], str] = {}
        """What :func:`compile_all` returned: not to be launched here."""
        self.copy_gbps = round(timer.bandwidth()[0], 1)
        self.errors: list[str] = []
        """Configurations that failed or answered wrongly."""

    def measure(self, point: Point, candidates: Sequence[Any]) -> Measured | None:
        """The row of a point; None if its default configuration, the first of the candidates, does not work."""
        from flag_gems_overrides.perf import op_inputs
        from flag_gems_overrides.perf.answers import Reference

        necessary = op_inputs.compulsory(point.case).total
        inputs = [op_inputs.arguments(point.case, self._timer.device) for _ in range(self._timer.group(necessary))]
        reference = Reference(point.case.op, inputs[0])
        calls = {
            configuration: [
                functools.partial(point.family.call.launch_with, configuration, point.case.op, *arguments)
                for arguments in inputs
            ]
            for configuration in candidates
            if self._works(point, configuration, inputs[0], reference)
        }
        default = candidates[0]
        if default not in calls:
            return None
        us = self._us(calls, default)
        free(_KEPT_BYTES)
        best = min(us, key=lambda configuration: us[configuration])
        if us[best] > us[default] * (1 - MIN_GAIN) or us[best] > us[default] - MIN_GAIN_US:
            best = default
        row = table.Row(
            tuple(point.problem),
            None if best == default else tuple(best),
            round(us[best], 3),
            round(us[default], 3),
            min((round(t, 3) for configuration, t in us.items() if configuration != best), default=None),
            float(f"{necessary / us[best] / 1e3 / self.copy_gbps:.3g}"),
        )
        return Measured(point.family.name, row, tuple((tuple(each), round(us[each], 3)) for each in calls))

    def _works(self, point: Point, configuration: Any, inputs: Any, reference: Any) -> bool:
        from flag_gems_overrides.perf.poison import poisoned

        where = f"{point.case.key}: {tuple(configuration)}"
        reason = self.died.get((point.family.package, point.case.key, tuple(configuration)))
        if reason is None:
            try:
                with poisoned():
                    answer = point.family.call.launch_with(configuration, point.case.op, *inputs)
                if reference.is_right(answer):
                    return True
                reason = "its answer is not PyTorch's"
            except Exception as error:
                check_context(where)
                reason = first_line(error)
        self.errors.append(f"{where}: {reason}")
        return False

    def _us(self, calls: Mapping[Any, Any], default: Any) -> dict[Any, float]:
        """Microseconds of each configuration: a brief look at all, and a longer one at the default and the fastest."""
        us = _medians(self._timer.device_times(calls))
        fastest = sorted(us, key=lambda configuration: us[configuration])[:2]
        if us[fastest[0]] < us[default] * (1 - MIN_GAIN):
            again = {configuration: calls[configuration] for configuration in {*fastest, default}}
            us |= _medians(self._timer.device_times(again, effort=SECOND_LOOK))
        return us


def _medians(times: Any) -> dict[Any, float]:
    return {name: median(samples) * 1e3 for name, samples in times.samples_ms.items()}
