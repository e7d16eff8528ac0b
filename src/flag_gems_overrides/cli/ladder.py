# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flag_gems_overrides.cli import _device, _options
from flag_gems_overrides.perf.files import make_folder
from flag_gems_overrides.perf.ladder import FOLDER, Ladder, LadderError, Shape, load, names
from flag_gems_overrides.perf.report.tables import Column, Line, Table

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
    size = None if shape is None else _shape(shape)
    if page is not None and open_ is None:
        raise LadderError("--page needs --open FOLDER: what a climb wrote, with record.jsonl in it")
    _device.prepare()
    if page is not None and open_ is not None:
        from flag_gems_overrides.perf import ladder_page

        ladder_page.write(page, open_, ladders)
        return
    chosen = [load(each, ladders) for each in (names(ladders) if name == ALL else [name])]
    if open_ is not None:
        make_folder(open_)
    _climb({each: each.check(rung or []) for each in chosen}, bool(rung), size, open_)


def _climb(chosen: dict[Ladder, list[str]], partly: bool, shape: Shape | None, folder: Path | None) -> None:
    import torch

    from flag_gems_overrides.perf import ladder_cuda, ladder_open
    from flag_gems_overrides.perf.ladder_climb import Climber, climb, steps
    from flag_gems_overrides.perf.report import terminal

    console = _options.console()
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
        terminal.show_tables([_table(row["key"], steps(each, climber.head, row), timed)], console)
    if record and timed and shape is None:
        cases = [(each, size, 0) for each in chosen for size in each.hot]
        climber = Climber(f"{level}, L2 not flushed", hot=True, like=climber)
        for each, row in climb(climber, chosen, cases, record):
            title = f"{row['key']}, L2 not flushed"
            terminal.show_tables([_table(title, steps(each, climber.head, row), timed)], console)


def _cases(each: Ladder, shape: Shape | None, timed: bool) -> list[tuple[Shape, int]]:
    variants = [v for values in each.variants.values() for v in values] or [0]
    if shape is not None:
        return [(shape, variant) for variant in variants]
    return each.cases() if timed else [(size, variant) for size in each.small_shapes for variant in variants]


def _table(title: str, climb: list[Step], timed: bool) -> Table:
    names = ("us", "GB/s", "of copy", "of native") if timed else ("passes", "launches")
    columns = [Column("rung", text=True), *map(Column, names)]
    if timed:
        columns.append(Column("against the rung before", 1, text=True))
    lines = []
    absent: dict[str, list[str]] = {}
    for step in climb:
        if step.absent:
            absent.setdefault(step.absent, []).append(step.rung)
            continue
        cells = (
            ((step.us, "{:.1f}"), (step.gbps, "{:.0f}"), (step.share, "{:.0%}"), (step.of_native, "{:.0%}"))
            if timed
            else ((step.passes, "{:.3f}"), (step.launches, "{}"))
        )
        numbers = ["-" if value is None else form.format(value) for value, form in cells]
        before = f"{step.after[0]}: {step.after[2].word} {step.after[2].reason}" if step.after else "-"
        rung = step.rung if step.agrees else f"{step.rung} (WRONG)"
        lines.append(Line([rung, *numbers, *([before] if timed else [])]))
    return Table(title, columns, lines, [f"{', '.join(rungs)}: {why}" for why, rungs in absent.items()])


def _shape(text: str) -> Shape:
    try:
        shape = tuple(int(n) for n in text.split("x"))
    except ValueError:
        shape = ()
    if len(shape) < 2 or min(shape) < 1:
        raise LadderError(f"--shape {text!r} is not of the form 4096x8192: at least two sizes, each at least 1")
    return shape
