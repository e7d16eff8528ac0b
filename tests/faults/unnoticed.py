# SPDX-License-Identifier: Apache-2.0
"""Faults that judges.py plants and no test has to notice; by the reason.

A pattern is of a fault as judges.py prints it, ``module.function: before -> after``, where ``*`` is any text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faults.judges import Fault

WORDS = "other words in a message or a heading; tests look for the part that a reader acts on"

REASONS: dict[str, tuple[str, ...]] = {
    "runs on a GPU alone, where these tests do not": (
        "cli.profile._kernels: *",
        "cli.tune._describe: *",
        "*torch.cuda.is_available()* -> *None*",
        "perf.ladder_climb.Climber.measure: *self._timed(*",
        "perf.beforehand.*",
        "perf.ladder_climb.Climber._timed: *",
        "perf.ladder_cuda.*",
        "perf.ladder_open._*",
        "perf.ladder_open.write: *",
        "perf.memory.Memory.*",
        "perf.meters.DeviceMeter.*",
        "perf.profile.trace: *",
        "perf.providers.*",
        "perf.run.meter: *",
        "perf.tune.measuring.compile_all: *",
        "perf.tune.measuring.compiler: *",
        "registration.installation._Installation._add_host_paths: *",
    ),
    "runs in a process of its own, which tests of the suite start and this run leaves out": (
        "cli.ablate.ablate: *",
        "cli.commands._missing: *",
        "cli.main: *",
        "cli.version: *",
        "perf.ablate.Ablation._child: *",
        "perf.ablate._end: *",
        "perf.ablate.child.*",
        "perf.compile_only.*",
        "perf.ladder_compile.main: *",
        "perf.worker.main: *",
        "upstreaming.observe._*",
        "upstreaming.observe.observe: *",
        "upstreaming.other_vendor.*",
        "upstreaming.stage.*",
    ),
    "runs while modules are imported, before a fault is planted": ("upstreaming.defects._defect.*",),
    "says the same: None is false, and both are as long": (
        "*allow_nan=False* -> *allow_nan=None*",
        "*strict=True* -> *strict=*",
        "*strict=True* -> *)",
        "*strict=False* -> *strict=None*",
    ),
    "times that are equal to the last bit do not occur": (
        "perf.tune.measuring.Tuner._us: * < * -> * <= *",
        "perf.tune.measuring.Tuner.measure: if us[best] > us[default] * -> *",
    ),
    "a thread that is joined before the process ends": ("perf.workers.run: *daemon=True* -> *",),
    "text that is flushed at the end of the process too": ("cli._plain.say: *flush=*",),
    "the device is the CPU here, with None as without": ("perf.op_inputs.*device) -> *None)",),
    "os.cpu_count() is near the default": ("*os.cpu_count()* -> *None*",),
    "in what a compiling process is told, which tests of the suite start and this run leaves out": (
        "perf.resources.survey: task = *",
    ),
    "looks for a profiler that this machine does not have": ('cli.profile.profile: *which("ncu")*',),
    "typer reads a command's signature, which has no fault": ("cli.*: Annotated[* -> *: Annotated[*",),
    "there is nothing to apply or to choose in it": (
        'upstreaming.exchange.apply: if patch.kind != "tests"* -> *',
        "perf.tune.grid.points: if not 0 < * -> if not 1 < *",
        "perf.ladder.Ladder.cases: * or [0] -> * or [1]",
    ),
    "looks of a figure, which people judge": (
        "perf.ladder_page.Tour._roofline: *alpha=* -> *",
        "perf.ladder_page.Tour._roofline: *fontsize=* -> *",
        "perf.report.figures.heatmap: bar = canvas.colorbar(* -> bar = canvas.colorbar(*",
        "perf.report.figures.*, frameon=False* -> *",
        "perf.report.figures.roofline: *, lw=1, * -> *, lw=None, *",
        "perf.report.figures.*rotation=* -> *",
    ),
    "blank lines of a page, which Markdown shows as one": ("perf.ladder_page.write: *_blocks=* -> *",),
    "which column a narrow terminal leaves out first": ("cli.profile._counters: *rank*",),
    "a text in the place of none": ("* -> *'XXXX'*",),
    "a value that is replaced before it is read": (
        "cli.commands._Commands.get_command: app.command(cmd_name)(found) -> *",
        "perf.timing.Timer.__init__: self._cycles_per_ms = *",
        'perf.ladder.Ladder.__init__: *__file__ or "* -> *',
    ),
}


def reason(fault: Fault) -> str | None:
    """Why no test has to notice it; None if there is no reason."""
    found = next((why for why, patterns in REASONS.items() if any(matches(fault.show(), p) for p in patterns)), None)
    return found or (WORDS if in_words(fault) else None)


def in_words(fault: Fault) -> bool:
    """Whether it changes prose alone: a text of several words, in which nothing is looked for."""
    if re.search(r"startswith|endswith|split|partition|prefix|suffix|\bre\.|\bin \w+", fault.before):
        return False
    marked = re.search("XX(.*?)XX", fault.after)
    if marked and fault.after.replace("XX", "") == fault.before:
        return _is_prose(marked[1])
    if fault.after.lower() != fault.before.lower():
        return False
    place = next(i for i, (one, other) in enumerate(zip(fault.before, fault.after, strict=True)) if one != other)
    start, end = fault.before.rfind('"', 0, place), fault.before.find('"', place)
    return start >= 0 and _is_prose(fault.before[start + 1 : end])


def _is_prose(text: str) -> bool:
    return re.search(r"\w\S* +\S*\w", text) is not None


def matches(text: str, pattern: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))
