# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flag_gems_overrides import environment


def doctor() -> None:
    """Say whether the overrides can be used here, and which. Exit status 0 if they can, 2 if not."""
    console = Console(highlight=False)
    found = environment.examine()

    facts = Table.grid(padding=(0, 2))
    for name, version in found.versions.items():
        facts.add_row(name, version)
    facts.add_row("device", found.device)
    facts.add_row("plans", found.plans)
    console.print(facts)
    for caution in found.cautions:
        console.print(f"\n[yellow]caution[/] {escape(caution)}", soft_wrap=True)

    if found.problem is None:
        can = [override for override in found.overrides if override.left_out is None]
        console.print(f"\n{len(can)} of {len(found.overrides)} overrides would be installed:")
        console.print(", ".join(override.name for override in can))
        for override in found.overrides:
            if override.left_out is not None:
                console.print(f"[yellow]left out[/] {escape(override.left_out)}", soft_wrap=True)
    else:
        console.print(f"\n[red]problem[/] {escape(found.problem)}", soft_wrap=True)
    console.print("\n[green]usable[/]" if found.usable else "\n[red]not usable[/]")
    raise typer.Exit(0 if found.usable else 2)
