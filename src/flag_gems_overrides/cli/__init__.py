# SPDX-License-Identifier: Apache-2.0
"""``gems-overrides``: one module for each command.

``doctor``, ``list`` and ``status`` need no package beside the runtime's own. The others need those of the extra
``[bench]``, typer among them; without it this file runs the three.
"""

from __future__ import annotations

import errno
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence

from flag_gems_overrides.errors import UserError

LIGHT = {"doctor": "doctor", "list": "list_overrides", "status": "show_status"}


def main() -> None:
    try:
        _run()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EPIPE):
            raise
        # Python flushes stdout once more at the end, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            raise SystemExit(1) from None  # as typer ends where who reads a pipe, such as head, has gone
        print(f"error: {error.strerror}: what was written is not whole; make room, and run it again", file=sys.stderr)
        raise SystemExit(2) from None


def _run() -> None:
    try:
        from flag_gems_overrides.cli.commands import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "typer":
            raise
        status = run_light(sys.argv[1:])
        sys.stdout.flush()
        raise SystemExit(status) from None
    app()


def version() -> str:
    return f"flag-gems-overrides {importlib.metadata.version('flag-gems-overrides')}"


def missing(command: str, package: str | None) -> str:
    """What to do where a command lacks a package."""
    return f"{command} needs {package}: pip install 'flag-gems-overrides[bench]'"


def run_light(words: Sequence[str]) -> int:
    """Run a command without typer and return the exit status."""
    command = words[0] if words else "--help"
    if command == "--version":
        print(version())
    elif command == "--help":
        print(f"gems-overrides [{'|'.join(LIGHT)}|--version]; {missing('every other command', 'typer')}")
    elif command in LIGHT and len(words) == 1:
        try:
            getattr(importlib.import_module(f"{__name__}.{command}"), LIGHT[command])()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except SystemExit as ended:
            return int(ended.code or 0)
    else:
        print(f"error: {missing(' '.join(words), 'typer')}", file=sys.stderr)
        return 2
    return 0
