# SPDX-License-Identifier: Apache-2.0
"""Python files as upstream's formatters leave them."""

from __future__ import annotations

import itertools
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Upstream's pins, after v5.0.2's black 23.7.0, which leaves these files as they are.
PINS = {"black": "26.5.1", "isort": "5.12.0"}

# What texts without their license were and became: lines of upstream share most of them, and those of one take 15 s.
_formatted: dict[str, str] = {}


def missing() -> str:
    """What has to be installed before files can be formatted; empty if nothing has to."""
    return " ".join(f"{name}=={pin}" for name, pin in PINS.items() if installed(name) != pin)


def installed(name: str) -> str | None:
    """The version of a distribution, None if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def format_files(root: Path, paths: list[str], *options: str) -> None:
    """Format files below ``root``, with options for black."""
    parts = {path: _parts((root / path).read_text()) for path in paths}
    new = {text: path for path, (_, text) in parts.items() if text not in _formatted}
    for text, path in new.items():
        (root / path).write_text(text)
    # flag_gems is named, for a tree without it is not seen to be its home.
    for command in (["isort", "--profile", "black", "--project", "flag_gems"], ["black", *options]):
        if new:  # black would complain
            words = [sys.executable, "-m", *command, "--quiet", *new.values()]
            subprocess.run(words, cwd=root, check=True, capture_output=True)
    _formatted.update((text, (root / path).read_text()) for text, path in new.items())
    for path, (license_, text) in parts.items():
        (root / path).write_text(license_ + _formatted[text])


def _parts(text: str) -> tuple[str, str]:
    """The comment that a file begins with, which no formatter changes, and what follows it, if anything does."""
    lines = text.splitlines(keepends=True)
    count = sum(1 for _ in itertools.takewhile(lambda line: line.startswith("#") or line.isspace(), lines))
    count %= max(len(lines), 1)
    return "".join(lines[:count]), "".join(lines[count:])
