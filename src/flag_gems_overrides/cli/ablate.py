# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from flag_gems_overrides.cli._options import console, say
from flag_gems_overrides.perf.ablate import Ablation, Report
from flag_gems_overrides.perf.files import write


def ablate(
    step: Annotated[str, typer.Argument(help="MODULE:FUNCTION, one step; returns a loss or None.", show_default=False)],
    steps: Annotated[int, typer.Option(help="Steps whose losses are compared, and that make a sample.")] = 5,
    rounds: Annotated[int, typer.Option(help="Samples of native and of each operator.")] = 10,
    limit: Annotated[float, typer.Option(help="Seconds that one measurement may take.")] = 180,
    only: Annotated[list[str] | None, typer.Option(help="Only this operator alone; repeat for several.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for ablate.json and ablate.md.")] = Path("ablate"),
) -> None:
    """Find the operators of flag_gems that slow a model down, change its loss or crash. Ctrl-C keeps what is done."""
    say(f"Looking which operators {step} reaches ...")
    ablation = Ablation(step, output / "ablate.json", steps, rounds, limit, tuple(only or ()))
    variants = ablation.variants()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    interrupted = False
    try:
        with Progress(*columns, console=console(), transient=True) as progress:
            task = progress.add_task(variants[0], total=len(variants))
            for done, _ in enumerate(ablation.run(), 1):
                following = variants[done] if done < len(variants) else ""
                progress.update(task, advance=1, description=escape(following))
    except KeyboardInterrupt:
        interrupted = True
        say(f"Interrupted: what is done is in {output}; the same command goes on.")
    report = ablation.report
    write(output / "ablate.md", markdown(report))
    _show(report)
    raise typer.Exit(130 if interrupted else 0)


COLUMNS = ("operator", "ms a step", "native / with", "interval", "difference of the loss", "verdict")


def cells(report: Report) -> list[tuple[str, ...]]:
    """One row for each variant, worst first."""
    made: list[tuple[str, ...]] = []
    for row in report.ranked():
        found, difference = row.comparison, row.loss_difference(report.native)
        made.append(
            (
                row.name,
                "" if found is None else f"{sorted(row.ms)[len(row.ms) // 2]:.3f}",
                "" if found is None else f"{found.ratio:.3f}",
                "" if found is None else f"{found.low:.3f} to {found.high:.3f}",
                "" if difference is None else f"{difference:.2%}",
                report.harm(row) or "",
            )
        )
    return made


def markdown(report: Report) -> str:
    """The report as a page."""
    conditions = report.conditions
    versions = ", ".join(f"{name} {version}" for name, version in conditions["versions"].items())
    lines = [
        f"# {conditions['step']}",
        "",
        f"{conditions['device']}; {versions}; {conditions['steps']} steps a sample, {conditions['rounds']} samples.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
        *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in cells(report)),
        "",
        "```python",
        *report.lines(),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _show(report: Report) -> None:
    screen = console()
    if not screen.is_terminal:
        say(markdown(report))
        return
    table = Table(*COLUMNS)
    for row in cells(report):
        table.add_row(*map(escape, row), style="red" if row[-1] else None)
    screen.print(table)
    say("\nWithout what hurts:")
    for line in report.lines():
        say(line)
