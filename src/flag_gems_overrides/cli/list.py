# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import typer

from flag_gems_overrides.operators import OPERATORS


def list_overrides() -> None:
    """Show every override: the aten overload and upstream module it stands for, and what it fixes."""
    for override in OPERATORS.values():
        # A block, not a table: names stay whole whatever the width.
        typer.secho(override.name, bold=True)
        typer.echo(f"  aten::{override.overload}\n  flag_gems.ops.{override.module}")
        for fix in override.fixes:
            typer.echo(f"  - {fix}")
