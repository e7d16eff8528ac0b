# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.requirements import FLAG_GEMS

_COLOURS = {"fixed": "green", "present": "red", "not visible here": "yellow"}


def show_status() -> None:
    """Run upstream's known defects on the installed flag_gems, without overrides, and say which are still there."""
    console = Console(highlight=False)
    try:
        from flag_gems_overrides.upstreaming import status
    except ImportError as error:
        raise UserError(str(error)) from None
    release = _release()
    where = {"cuda": "the GPU", "interpreter": "Triton's interpreter"}[status.backend()]
    console.print(f"flag_gems {release} alone, on {where}\n")
    try:
        with console.status("running the reproductions"):
            standings = status.status(release)
    except RuntimeError as error:
        raise UserError(str(error)) from None

    names = ("", "now", "function", "what it does wrong", "upstream")
    table = Table(*(Column(name, overflow="fold") for name in names))  # a narrow terminal truncates nothing
    for standing in standings:
        row, verdict = standing.defect, standing.verdict
        verdict = f"[{_COLOURS[verdict]}]{verdict}[/]"
        table.add_row(row.id, verdict, "\n".join(row.functions), escape(row.title), "\n".join(row.references))
    console.print(table)
    for standing in standings:
        if standing.outcome is None:
            console.print(f"{standing.defect.id} is not visible here: {escape(standing.defect.hidden)}", soft_wrap=True)
    droppable = status.droppable(standings)
    if droppable:
        console.print(f"\nNo known defect needs these overrides any more: {', '.join(droppable)}")


def _release() -> str:
    try:
        return version("flag_gems")
    except PackageNotFoundError:
        known = ", ".join(FLAG_GEMS)
        raise UserError(f"flag_gems is not installed: pip install flag_gems; {known} are supported") from None
