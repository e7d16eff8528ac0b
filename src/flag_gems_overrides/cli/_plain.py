# SPDX-License-Identifier: Apache-2.0
"""Text in colours and lines of the terminal's width, for the commands that need no package."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

_CODES = {"bold": 1, "red": 31, "green": 32, "yellow": 33}


def styled(text: str, style: str) -> str:
    """``text`` in a colour or in bold where the output is a terminal."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def say(text: str) -> None:
    """Print ``text``. In a terminal a line that is too long goes on below, two spaces further in; no word is cut."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(_wrapped(line, width) for line in text.split("\n"))
    print(text, flush=True)


def _wrapped(line: str, width: int) -> str:
    below = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)
