# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from flag_gems_overrides.cli._plain import say, styled
from flag_gems_overrides.operators import OPERATORS


def list_overrides() -> None:
    """Show every override: the aten overload and upstream module it stands for, and what it fixes."""
    for override in OPERATORS.values():
        stands_for = f"aten::{override.overload}" if override.overload else override.native
        # A block, not a table: names stay whole whatever the width.
        say(styled(override.name, "bold"))
        say(f"  {stands_for}\n  {override.upstream_module}")
        for fix in override.fixes:
            say(f"  - {fix}")
