# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flag_gems_overrides.cli import _device, _options
from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.cases import (
    COUNTED_DTYPES,
    LEVELS,
    MODES,
    PEERS,
    Case,
    CaseError,
    Shapes,
    check,
    make,
    taken,
)
from flag_gems_overrides.words import many


def bench(
    ops: Annotated[list[str] | None, typer.Argument(help="Ops by their flag_gems name; all if none.")] = None,
    shape: Annotated[str | None, typer.Option(help="One shape instead of a level, as in '64x512x512 dim=1'.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Repeat for several. [default: those of upstream]")] = None,
    level: Annotated[
        str | None, typer.Option(help="core, comprehensive or interpreter. [default: core; without a GPU: interpreter]")
    ] = None,
    mode: Annotated[str | None, typer.Option(help="kernel, operator or wrapper; with a GPU. [default: kernel]")] = None,
    peer: Annotated[list[str] | None, typer.Option(help=f"Also time {', '.join(PEERS)} where installed.")] = None,
    output: _options.Output = _options.RECORD,
    shapes: _options.ShapeFile = _options.SHAPES,
) -> None:
    """Measure overrides beside upstream and PyTorch: time on a GPU, count elsewhere. Ctrl-C keeps what is done."""
    check("--level", level or "core", LEVELS)
    check("--mode", mode or "kernel", MODES)
    for each in peer or ():
        check("--peer", each, PEERS)
    _no_shapes_among(ops or (), shape)
    if shape is not None and level is not None:
        raise CaseError("--level and --shape exclude each other: leave one out")
    if shape is not None:
        _cases(ops, shape, dtype or COUNTED_DTYPES, "", shapes)  # says what is wrong before flag_gems is loaded
    _device.prepare()
    from flag_gems_overrides.perf import run
    from flag_gems_overrides.perf.report import terminal, view

    if not run.is_timed():
        _say_what_has_no_effect(level, mode, peer)
        level = "interpreter"
    level = level or "core"
    cases = _cases(ops, shape, dtype or run.dtypes(), level, shapes)
    meter = run.meter(mode or "kernel", level if shape is None else shape, peer or ())
    recorder = records.Recorder(output, meter.head, [case.key for case in cases])
    done = len(recorder.session.rows)
    if done:
        _options.say(f"{output}: resuming after {done} of {many(len(cases), 'case')}", err=True)
    rows, interrupted = [], False
    console = _options.console()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("", total=len(cases))
            for case in cases:
                progress.update(task, description=case.key)
                rows += run.measure([case], meter, recorder)
                progress.advance(task)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        recorder.close()
    terminal.show(view.view(meter.head, rows), console)
    if interrupted:
        part = f"{len(rows)} of {many(len(cases), 'case')}"
        _options.say(f"\nInterrupted with {part} in {output}; the same command resumes.")
        raise typer.Exit(130)
    _options.say(f"\n{many(len(rows), 'case')} in {output}")


def _no_shapes_among(ops: list[str] | tuple[str, ...], shape: str | None) -> None:
    """`bench softmax 8x512`, as `profile` takes it, means --shape."""
    for i, word in enumerate(ops):
        if shape is None and re.match(r"\d+(x\d+)*\b", word):
            words = " ".join(ops[i:])
            op = " ".join(ops[:i])
            raise CaseError(f"{word!r} is no op; give a shape by --shape: gems-overrides bench {op} --shape '{words}'")


def _say_what_has_no_effect(level: str | None, mode: str | None, peer: list[str] | None) -> None:
    ignored = [name for name, value in (("--mode", mode), ("--peer", peer)) if value]
    if level not in (None, "interpreter"):
        ignored.append("--level")
    if ignored:
        _options.say(f"no effect without a GPU: {', '.join(ignored)}; the interpreter shapes are counted", err=True)


def _cases(
    ops: list[str] | None, shape: str | None, dtypes: list[str] | tuple[str, ...], level: str, path: Path
) -> list[Case]:
    if shape is not None:
        if not ops:
            raise CaseError("--shape needs an op: gems-overrides bench softmax --shape '64x512 dim=1'")
        return [make(op, shape, each) for op in ops for each in taken(op, dtypes)]
    shapes = Shapes(path)
    return [case for op in ops or shapes.ops for case in shapes.cases(op, level, dtypes)]
