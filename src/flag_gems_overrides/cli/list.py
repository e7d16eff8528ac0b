# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from rich.console import Console
from rich.table import Table

from flag_gems_overrides.operators import OPERATORS


def list_overrides() -> None:
    """Show every override: the aten overload and upstream module it stands for, and what it fixes."""
    table = Table("name", "aten overload", "upstream module", "fixes")
    for override in OPERATORS.values():
        table.add_row(
            override.name,
            override.overload,
            f"flag_gems.ops.{override.module}",
            "\n".join(override.fixes),
            end_section=True,
        )
    Console(highlight=False).print(table)
