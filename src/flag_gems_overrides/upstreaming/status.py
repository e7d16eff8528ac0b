# SPDX-License-Identifier: Apache-2.0
"""Which of upstream's defects the installed flag_gems still has."""

from __future__ import annotations

from typing import NamedTuple

import torch

from flag_gems_overrides.upstreaming.defects import DEFECTS, FIXED, Backend, Defect
from flag_gems_overrides.upstreaming.observe import observe


class Standing(NamedTuple):
    """One defect, and what its reproduction did on the installed flag_gems without overrides."""

    defect: Defect
    outcome: str | None  # as observe() says it; None where the defect cannot show (see Defect.hidden)

    @property
    def verdict(self) -> str:
        """``"fixed"``, ``"present"`` or ``"not visible here"``."""
        if self.outcome is None:
            return "not visible here"
        return "fixed" if self.outcome == FIXED else "present"


def backend() -> Backend:
    """Where kernels run on this machine."""
    return "cuda" if torch.cuda.is_available() else "interpreter"


def visible(release: str, where: Backend) -> list[str]:
    """The ids of the defects that can show there."""
    return [row.id for row in DEFECTS.values() if row.recorded(release, where) is not None]


def status(release: str) -> list[Standing]:
    """Run the reproductions on the installed flag_gems, whose version is ``release``: 10 s in the interpreter."""
    outcomes = observe(visible(release, backend()))
    return [Standing(row, outcomes.get(row.id)) for row in DEFECTS.values()]


def droppable(standings: list[Standing]) -> list[str]:
    """The overrides, by function name, all of whose defects show as fixed."""
    verdicts: dict[str, set[str]] = {}
    for standing in standings:
        for name in standing.defect.functions:
            verdicts.setdefault(name, set()).add(standing.verdict)
    return [name for name, seen in verdicts.items() if seen == {"fixed"}]
