# SPDX-License-Identifier: Apache-2.0
"""Python files as upstream's formatters leave them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Upstream's pins, after v5.0.2's black 23.7.0, which leaves these files as they are.
PINS = {"black": "26.5.1", "isort": "5.12.0"}

# What texts were and became: lines of upstream share most of their files, and those of one take 50 s.
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


def format_files(root: Path, paths: list[str]) -> None:
    """Format files below ``root``. flag_gems is named, for a tree without it is not seen to be its home."""
    texts = {path: (root / path).read_text() for path in paths}
    new = [path for path, text in texts.items() if text not in _formatted]
    if new:  # black would complain
        for command in (["isort", "--profile", "black", "--project", "flag_gems"], ["black"]):
            subprocess.run([sys.executable, "-m", *command, "--quiet", *new], cwd=root, check=True, capture_output=True)
        _formatted.update((texts[path], (root / path).read_text()) for path in new)
    for path in texts.keys() - set(new):
        (root / path).write_text(_formatted[texts[path]])
