# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from flag_gems_overrides.cli import _device, _options
from flag_gems_overrides.perf import counters, devices, resources
from flag_gems_overrides.perf.cases import make
from flag_gems_overrides.perf.files import make_folder
from flag_gems_overrides.perf.report.tables import Column, Line, Table

FOLDER = Path("profile")


def profile(
    op: Annotated[str, typer.Argument(help="An op by its flag_gems name.", show_default=False)],
    shape: Annotated[str, typer.Argument(help="As in '64x512x512 dim=1'.", show_default=False)],
    dtype: Annotated[str, typer.Option()] = "bfloat16",
    output: Annotated[Path, typer.Option(help="Folder for trace, stacks, and kernels from TTIR to SASS.")] = FOLDER,
) -> None:
    """Show what one case plans, compiles, launches and moves; on a GPU also where its time goes, and where there is
    ncu what its kernels wait for."""
    case = make(op, shape, dtype)
    make_folder(output)
    _device.prepare()
    from flag_gems_overrides.perf import run
    from flag_gems_overrides.perf.report import terminal, view

    console = _options.console()
    meter = run.meter("kernel", case.size)
    terminal.show(view.view(meter.head, [meter.measure(case)]), console)
    gpus = [devices.here()] if run.is_timed() else devices.KNOWN
    made = [_kernels(resources.survey([case], gpus, folder=output / "kernels"))]
    if run.is_timed():
        from flag_gems_overrides.perf.profile import trace

        _options.say(trace(case, output))
        if shutil.which("ncu"):
            made.append(_counters(counters.count(case)))
    terminal.show_tables(made, console)
    _options.say(f"\nwrote {', '.join(sorted(path.name for path in output.iterdir()))} into {output}")


def _counters(rows: list[dict[str, Any]]) -> Table:
    columns = [Column("kernel", text=True), *(Column(name, rank) for rank, name in enumerate(counters.COLUMNS))]
    columns.append(Column("of the time warps wait, for", 9, text=True))
    lines = []
    for row in rows:
        waits = ", ".join(f"{name} {percent:.0f} %" for name, percent in row["waits_percent"].items())
        numbers = ("-" if row[name] is None else f"{row[name]:.4g}" for name in counters.COLUMNS)
        lines.append(Line([row["kernel"], *numbers, waits]))
    return Table("Counters", columns, lines, [])


def _kernels(rows: list[dict[str, Any]]) -> Table:
    columns = [Column("kernel", text=True), Column("for", text=True), Column("registers"), Column("spilled bytes")]
    columns += [Column("shared bytes", 1), Column("occupancy", 1), Column("options", 2, text=True)]
    lines, notes = [], []
    for row in rows:
        if "error" in row:
            notes.append(f"{row['kernel']} for sm_{row['arch']}: {row['error']}")
            continue
        numbers = (row["registers"], row["spilled_bytes"], row["shared_bytes"], f"{row['occupancy']:.0%}")
        options = ", ".join(f"{name}={value}" for name, value in row["options"].items())
        lines.append(Line([f"{row['kernel']}-{row['digest']}", f"sm_{row['arch']}", *map(str, numbers), options]))
    return Table("Compiled kernels", columns, lines, notes)
