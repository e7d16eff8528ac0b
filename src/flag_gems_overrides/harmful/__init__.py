# SPDX-License-Identifier: Apache-2.0
"""Operators of flag_gems that are known to answer wrongly or to crash, by version and device.

``enable()`` leaves them out unless an override stands in their place; ``doctor`` and docs/harmful.md list them. Imports
neither torch nor flag_gems.
"""

from __future__ import annotations

from collections.abc import Collection

from flag_gems_overrides.harmful.row import Harmful
from flag_gems_overrides.harmful.rows import HARMFUL

__all__ = ["HARMFUL", "Harmful", "known", "table"]

ISSUES = "https://github.com/flagos-ai/FlagGems/issues/"


def known(version: str, capability: tuple[int, int] | None, overridden: Collection[str] = ()) -> tuple[Harmful, ...]:
    """Those of this flag_gems on this device, without the ones that an override replaces."""
    return tuple(each for each in HARMFUL if each.name not in overridden and each.holds(version, capability))


def table() -> str:
    """The table of docs/harmful.md, and the reproductions, which are too long for a cell."""
    rows = ["| operator | flag_gems | devices | what goes wrong | upstream |", "|---|---|---|---|---|"]
    for each in HARMFUL:
        devices = "all"
        if each.capabilities is not None:
            devices = " to ".join(f"sm_{major}{minor}" for major, minor in each.capabilities)
        issue = f"[#{each.issue}]({ISSUES}{each.issue})" if each.issue else "none known"
        rows.append(f"| `{each.name}` | {each.versions} | {devices} | {each.reason} | {issue} |")
    reproductions = [f"# {each.name}\n{each.reproduction}" for each in HARMFUL]
    return "\n".join([*rows, "", "```", *reproductions, "```"]) + "\n"
