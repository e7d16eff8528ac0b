# SPDX-License-Identifier: Apache-2.0
"""Files, and lines of them, that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from flag_gems_overrides.errors import UserError


class WriteError(UserError):
    """A file could not be written; the message names it."""


def write(path: Path, content: str | bytes) -> None:
    """Replace a file in one step: a reader sees the old text or the new.

    Raises:
        WriteError: it cannot be written; nothing is left beside it.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError(f"{path}: {error.strerror}; name a file that can be written") from None


def append(file: int, line: str) -> None:
    """Add a line to the end of an open file, and sync it. If that fails, the file ends where it did before.

    Raises:
        OSError: nothing was added.
    """
    end = os.lseek(file, 0, os.SEEK_END)
    rest = line.encode() + b"\n"
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise


def make_folder(path: Path) -> None:
    """Make a folder, or find out before the work starts that nothing can be written into it.

    Raises:
        WriteError: it cannot be made, is no folder, or is read-only.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{path}: {error.strerror}; name a folder that can be written") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise WriteError(f"{path}: Permission denied; name a folder that can be written")
