# SPDX-License-Identifier: Apache-2.0
"""Coloured text for the commands that need no package."""

from __future__ import annotations

import os
import sys

_CODES = {"bold": 1, "red": 31, "green": 32, "yellow": 33}


def styled(text: str, style: str) -> str:
    """``text`` in a colour or in bold where the output is a terminal."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"
