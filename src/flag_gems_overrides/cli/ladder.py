# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from flag_gems_overrides import environment
from flag_gems_overrides.perf.ladder import FOLDER, Ladder, LadderError, Shape, load, names

if TYPE_CHECKING:
    from flag_gems_overrides.perf.ladder_climb import Climber

ALL = "all"


def ladder(
    name: Annotated[str, typer.Argument(help="A ladder, as in benchmark/ladders; 'all' for every one.")] = "softmax",
    rung: Annotated[list[str] | None, typer.Option(help="Only this rung (repeat for several).")] = None,
    shape: Annotated[str | None, typer.Option(help="Only this shape, as in '4096x8192'; else those of the ladder.")] = None,
    open_: Annotated[
        Path | None, typer.Option("--open", help="Also write record, profiler tables, PTX and SASS to this folder.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Measure nothing: write this page from the folder given with --open.")
    ] = None,
    ladders: Annotated[Path, typer.Option(help="Folder of ladders.")] = FOLDER,
) -> None:
    """Climb from the naive version of an operator to the fastest: time every rung, or count where there is no GPU."""
    _load_flag_gems()
    with _one_line():
        if page is not None:
            from flag_gems_overrides.perf import ladder_page

            if open_ is None:
                raise LadderError("--page needs --open FOLDER: what a climb wrote, with record.jsonl in it")
            ladder_page.write(page, open_, ladders)
            return
        chosen = [load(each, ladders) for each in (names(ladders) if name == ALL else [name])]
        _climb(chosen, rung or [], _shape(shape), open_)


def _climb(chosen: list[Ladder], rungs: list[str], shape: Shape | None, folder: Path | None) -> None:
    import torch

    from flag_gems_overrides.perf import ladder_cuda, ladder_open, records
    from flag_gems_overrides.perf.ladder_climb import Climber, steps

    console = Console() if Console().is_terminal else Console(width=160)
    picked = {each.name: each.check(rungs) for each in chosen}
    timed = torch.cuda.is_available()
    if timed:
        sources = [each.source(rung) for each in chosen for rung in picked[each.name]]
        ladder_cuda.build(source for source in sources if source.suffix == ".cu")
    cases = [(each, *case) for each in chosen for case in _cases(each, shape, timed)]
    climber = Climber("ladder")
    recorder = records.Recorder(
        folder / "record.jsonl", climber.head, [each.key(*case) for each, *case in cases]
    ) if folder else None
    for each, size, variant in cases:
        row = climber.measure(each, picked[each.name], size, variant)
        if recorder:
            recorder.row(row)
        console.print(_table(row, steps(each, climber.head, row)))
        if timed:
            torch.cuda.empty_cache()
    if recorder:
        recorder.close()
    if folder and timed:
        _climb_hot(folder, chosen, picked, climber)
        ladder_open.write(folder, chosen, picked)


def _climb_hot(folder: Path, chosen: list[Ladder], picked: dict[str, list[str]], cold: Climber) -> None:
    """A second session without flushing the cache: what fits L2 is faster than memory allows, what does not is not."""
    from flag_gems_overrides.perf import records
    from flag_gems_overrides.perf.ladder_climb import Climber

    cases = [(each, shape) for each in chosen for shape in each.hot]
    if not cases:
        return
    climber = Climber("ladder, L2 not flushed", hot=True, like=cold)
    recorder = records.Recorder(folder / "record.jsonl", climber.head, [each.key(shape) for each, shape in cases])
    for each, shape in cases:
        recorder.row(climber.measure(each, picked[each.name], shape))
    recorder.close()


def _cases(each: Ladder, shape: Shape | None, timed: bool) -> list[tuple[Shape, int]]:
    variants = [v for values in each.variants.values() for v in values] or [0]
    if shape is not None:
        return [(shape, variant) for variant in variants]
    return each.cases() if timed else [(size, variant) for size in each.small_shapes for variant in variants]


def _table(row: dict, climb: list) -> Table:
    table = Table(title=row["key"], title_justify="left")
    for column in ("rung", "us", "GB/s", "of copy", "of native", "passes", "launches", "against the rung before"):
        table.add_column(column, justify="left" if column in ("rung", "against the rung before") else "right")
    for step in climb:
        if step.absent:
            table.add_row(step.rung, "-", "-", "-", "-", "-", "-", step.absent)
            continue
        before = "" if step.after is None else "{} {}: {}".format(step.after[2].word, step.after[0], step.after[2].reason)
        table.add_row(
            step.rung if step.agrees else f"{step.rung} (WRONG)",
            *(_number(value, form) for value, form in ((step.us, "{:.1f}"), (step.gbps, "{:.0f}"), (step.share, "{:.0%}"))),
            _number(step.of_native, "{:.0%}"),
            _number(step.passes, "{:.3f}"),
            _number(step.launches, "{}"),
            before,
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _shape(text: str | None) -> Shape | None:
    if text is None:
        return None
    try:
        shape = tuple(int(n) for n in text.split("x"))
    except ValueError:
        raise LadderError(f"--shape {text!r} is not of the form 4096x8192") from None
    if len(shape) < 2 or min(shape) < 1:
        raise LadderError(f"--shape {text!r}: give at least two sizes, each at least 1, as in 4096x8192")
    return shape


def _load_flag_gems() -> None:
    try:
        gems = environment.load()
    except (RuntimeError, ImportError) as error:
        _end(error)
    if gems.device == "cpu":
        typer.echo("No GPU: rungs run in Triton's interpreter, on the CPU, and are counted.", err=True)


@contextmanager
def _one_line() -> Iterator[None]:
    """What is wrong with the input is one line, with exit status 2."""
    from flag_gems_overrides.perf.records import RecordError
    from flag_gems_overrides.perf.timing import ThrottledError

    try:
        yield
    except (LadderError, RecordError, ThrottledError) as error:
        _end(error)


def _end(error: Exception) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(2) from None
