# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flag_gems_overrides.cli import _device, _words
from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.cases import LEVELS, MODES, PEERS, Case, CaseError, Shapes, check, make


def bench(
    ops: Annotated[list[str] | None, typer.Argument(help="Ops by their flag_gems name; all if none.")] = None,
    shape: Annotated[str | None, typer.Option(help="One shape instead of a level, as in '64x512x512 dim=1'.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Repeat for several. [default: those of upstream]")] = None,
    level: Annotated[str, typer.Option(help="core or comprehensive; without a GPU: interpreter.")] = "core",
    mode: Annotated[str, typer.Option(help="kernel, operator or wrapper.")] = "kernel",
    peer: Annotated[list[str] | None, typer.Option(help=f"Also time {', '.join(PEERS)} where installed.")] = None,
    output: _words.Output = _words.RECORD,
    shapes: _words.ShapeFile = _words.SHAPES,
) -> None:
    """Measure overrides beside upstream and PyTorch: time on a GPU, count elsewhere. Ctrl-C keeps what is done."""
    console = _words.wide_console()
    _device.prepare(console)
    from flag_gems_overrides.perf import run
    from flag_gems_overrides.perf.report import terminal
    from flag_gems_overrides.perf.timing import ThrottledError

    with _words.complaints(CaseError, records.RecordError, ThrottledError):
        check("--level", level, LEVELS)
        check("--mode", mode, MODES)
        for each in peer or ():
            check("--peer", each, PEERS)
        level = level if run.is_timed() else "interpreter"
        cases = _cases(ops, shape, dtype or run.dtypes(), level, shapes)
        meter = run.meter(mode, level if shape is None else shape, peer or ())
        recorder = records.Recorder(output, meter.head, [case.key for case in cases])
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        rows = []
        try:
            with Progress(*columns, console=console, transient=True) as progress:
                task = progress.add_task("", total=len(cases))
                for case in cases:
                    progress.update(task, description=case.key)
                    rows += run.measure([case], meter, recorder)
                    progress.advance(task)
        except KeyboardInterrupt:
            console.print(f"Interrupted: {len(rows)} of {len(cases)} cases are in {output}; the same command goes on.")
        finally:
            recorder.close()
    terminal.show(meter.head, rows, console)
    raise typer.Exit(0 if len(rows) == len(cases) else 130)


def _cases(
    ops: list[str] | None, shape: str | None, dtypes: list[str] | tuple[str, ...], level: str, path: Path
) -> list[Case]:
    if shape is not None:
        if not ops:
            raise CaseError("--shape needs an op: gems-overrides bench softmax --shape '64x512 dim=1'")
        return [make(op, shape, dtype) for op in ops for dtype in dtypes]
    shapes = Shapes(path)
    return [case for op in ops or shapes.ops for case in shapes.cases(op, level, dtypes)]
