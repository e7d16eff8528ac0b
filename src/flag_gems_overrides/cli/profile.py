# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from flag_gems_overrides.cli import _device, _words
from flag_gems_overrides.perf import counters, devices, resources
from flag_gems_overrides.perf.cases import CaseError, make

FOLDER = Path("profile")


def profile(
    op: Annotated[str, typer.Argument(help="An op by its flag_gems name.", show_default=False)],
    shape: Annotated[str, typer.Argument(help="As in '64x512x512 dim=1'.", show_default=False)],
    dtype: Annotated[str, typer.Option()] = "bfloat16",
    output: Annotated[Path, typer.Option(help="Folder for trace, stacks, and kernels from TTIR to SASS.")] = FOLDER,
) -> None:
    """Show what one case plans, compiles, launches and moves; on a GPU also where its time goes, and where there is
    ncu what its kernels wait for."""
    console = _words.wide_console()
    _device.prepare(console)
    from flag_gems_overrides.perf import run
    from flag_gems_overrides.perf.report import terminal
    from flag_gems_overrides.perf.timing import ThrottledError

    with _words.complaints(CaseError, resources.ResourceError, ThrottledError):
        case = make(op, shape, dtype)
        meter = run.meter("kernel", case.size)
        terminal.show(meter.head, [meter.measure(case)], console)
        gpus = [devices.here()] if run.is_timed() else devices.KNOWN
        console.print(_kernels(resources.survey([case], gpus, folder=output / "kernels")))
    if run.is_timed():
        from flag_gems_overrides.perf.profile import trace

        console.print(trace(case, output), soft_wrap=True, highlight=False)
        if shutil.which("ncu"):
            with _words.complaints(counters.CountersError):
                console.print(_counters(counters.count(case)))
    console.print(f"In {output}: {', '.join(sorted(path.name for path in output.iterdir()))}", soft_wrap=True)


def _counters(rows: list[dict[str, Any]]) -> Table:
    table = Table("kernel", *counters.COLUMNS, "of the time warps wait, for")
    for row in rows:
        waits = ", ".join(f"{name} {percent:.0f} %" for name, percent in row["waits_percent"].items())
        numbers = ("" if row[name] is None else f"{row[name]:.4g}" for name in counters.COLUMNS)
        table.add_row(row["kernel"], *numbers, waits)
    return table


def _kernels(rows: list[dict[str, Any]]) -> Table:
    table = Table("kernel", "for", "registers", "spilled bytes", "shared bytes", "occupancy", "options")
    for row in rows:
        if "error" in row:
            table.add_row(row["kernel"], f"sm_{row['arch']}", row["error"])
            continue
        numbers = (row["registers"], row["spilled_bytes"], row["shared_bytes"], f"{row['occupancy']:.0%}")
        options = ", ".join(f"{name}={value}" for name, value in row["options"].items())
        table.add_row(f"{row['kernel']}-{row['digest']}", f"sm_{row['arch']}", *map(str, numbers), options)
    return table
