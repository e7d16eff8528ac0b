# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from flag_gems_overrides.cli._plain import styled
from flag_gems_overrides.operators import OPERATORS


def list_overrides() -> None:
    """Show every override: the aten overload and upstream module it stands for, and what it fixes."""
    for override in OPERATORS.values():
        # A block, not a table: names stay whole whatever the width.
        print(styled(override.name, "bold"))
        print(f"  aten::{override.overload}\n  flag_gems.ops.{override.module}")
        for fix in override.fixes:
            print(f"  - {fix}")
