# SPDX-License-Identifier: Apache-2.0
"""Where a command runs flag_gems."""

from __future__ import annotations

from rich.console import Console

from flag_gems_overrides import environment
from flag_gems_overrides.cli import _words


def prepare(console: Console) -> None:
    """Load flag_gems, and say so if that is in the interpreter. Must come before triton and flag_gems."""
    with _words.complaints(RuntimeError, ImportError):
        gems = environment.load()
    if gems.device == "cpu":
        console.print("No GPU: flag_gems runs in Triton's interpreter, on the CPU.\n")
