# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from flag_gems_overrides.cli._plain import say, styled
from flag_gems_overrides.errors import UserError
from flag_gems_overrides.requirements import FLAG_GEMS

_COLOURS = {"fixed": "green", "present": "red", "not visible here": "yellow"}


def show_status() -> None:
    """Run upstream's known defects on the installed flag_gems, without overrides, and say which are still there."""
    try:
        from flag_gems_overrides.upstreaming import status
    except ImportError as error:
        raise UserError(str(error)) from None
    release = _release()
    where = {"cuda": "the GPU", "interpreter": "Triton's interpreter"}[status.backend()]
    say(f"flag_gems {release} alone, on {where}\n")
    try:
        standings = status.status(release)
    except RuntimeError as error:
        raise UserError(str(error)) from None

    for standing in standings:
        row, verdict = standing.defect, standing.verdict
        # A block, not a table: names stay whole whatever the width.
        say(f"{styled(row.id, 'bold')} {styled(verdict, _COLOURS[verdict])}: {', '.join(row.functions)}")
        say(f"   {row.title}{' (' + ', '.join(row.references) + ')' if row.references else ''}")
        if standing.outcome is None:
            say(f"   not visible here: {row.hidden}")
    droppable = status.droppable(standings)
    if droppable:
        say(f"\nNo known defect needs these overrides any more: {', '.join(droppable)}")


def _release() -> str:
    try:
        return version("flag_gems")
    except PackageNotFoundError:
        known = ", ".join(FLAG_GEMS)
        raise UserError(f"flag_gems is not installed: pip install flag_gems; {known} are supported") from None
