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
    from flag_gems_overrides.perf.ladder_climb import Step

ALL = "all"


def ladder(
    name: Annotated[str, typer.Argument(help="A ladder, as in benchmark/ladders; 'all' for every one.")] = "softmax",
    rung: Annotated[list[str] | None, typer.Option(help="Only this rung (repeat for several).")] = None,
    shape: Annotated[str | None, typer.Option(help="One shape, as in '4096x8192', not those of the ladder.")] = None,
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
        _climb({each: each.check(rung or []) for each in chosen}, bool(rung), _shape(shape), open_)


def _climb(chosen: dict[Ladder, list[str]], partly: bool, shape: Shape | None, folder: Path | None) -> None:
    import torch

    from flag_gems_overrides.perf import ladder_cuda, ladder_open
    from flag_gems_overrides.perf.ladder_climb import Climber, climb, steps

    console = Console() if Console().is_terminal else Console(width=160)
    timed = torch.cuda.is_available()
    if timed:
        sources = [each.source(rung) for each, rungs in chosen.items() for rung in rungs]
        ladder_cuda.build(source for source in sources if source.suffix == ".cu")
        if folder:
            ladder_open.write(folder, chosen)
    record = folder and folder / "record.jsonl"
    level = "ladder" if not partly else "ladder " + " ".join(rung for rungs in chosen.values() for rung in rungs)
    climber = Climber(level)
    cases = [(each, *case) for each in chosen for case in _cases(each, shape, timed)]
    for each, row in climb(climber, chosen, cases, record):
        console.print(_table(row["key"], steps(each, climber.head, row), timed))
    if record and timed and shape is None:
        cases = [(each, size, 0) for each in chosen for size in each.hot]
        climber = Climber(f"{level}, L2 not flushed", hot=True, like=climber)
        for each, row in climb(climber, chosen, cases, record):
            console.print(_table(f"{row['key']}, L2 not flushed", steps(each, climber.head, row), timed))


def _cases(each: Ladder, shape: Shape | None, timed: bool) -> list[tuple[Shape, int]]:
    variants = [v for values in each.variants.values() for v in values] or [0]
    if shape is not None:
        return [(shape, variant) for variant in variants]
    return each.cases() if timed else [(size, variant) for size in each.small_shapes for variant in variants]


def _table(title: str, climb: list[Step], timed: bool) -> Table:
    columns = ("us", "GB/s", "of copy", "of native") if timed else ("passes", "launches")
    table = Table("rung", title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("against the rung before" if timed else "")
    for step in climb:
        if step.absent:
            table.add_row(step.rung, *("-" for _ in columns), step.absent)
            continue
        cells = (
            ((step.us, "{:.1f}"), (step.gbps, "{:.0f}"), (step.share, "{:.0%}"), (step.of_native, "{:.0%}"))
            if timed
            else ((step.passes, "{:.3f}"), (step.launches, "{}"))
        )
        numbers = ("-" if value is None else form.format(value) for value, form in cells)
        before = f"{step.after[2].word} than {step.after[0]}: {step.after[2].reason}" if step.after else ""
        table.add_row(step.rung if step.agrees else f"{step.rung} (WRONG)", *numbers, before)
    return table


def _shape(text: str | None) -> Shape | None:
    if text is None:
        return None
    try:
        shape = tuple(int(n) for n in text.split("x"))
    except ValueError:
        shape = ()
    if len(shape) < 2 or min(shape) < 1:
        raise LadderError(f"--shape {text!r} is not of the form 4096x8192: at least two sizes, each at least 1")
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
    except (LadderError, RecordError, ThrottledError, OSError) as error:
        _end(error)


def _end(error: Exception) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(2) from None
