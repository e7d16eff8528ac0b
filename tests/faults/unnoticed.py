# SPDX-License-Identifier: Apache-2.0
"""Faults that judges.py plants and no test has to notice; by the reason.

A pattern is of a fault as judges.py prints it, ``module.function: before -> after``, where ``*`` is any text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faults.judges import Fault

REASONS: dict[str, tuple[str, ...]] = {}


def reason(fault: Fault) -> str | None:
    """Why no test has to notice it; None if there is no reason."""
    return next((why for why, patterns in REASONS.items() if any(matches(fault.show(), p) for p in patterns)), None)


def matches(text: str, pattern: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))
