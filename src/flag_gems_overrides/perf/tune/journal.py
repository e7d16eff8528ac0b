# SPDX-License-Identifier: Apache-2.0
"""What a tuner has measured, line by line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf.files import append
from flag_gems_overrides.perf.records import dumps


class JournalError(UserError):
    """A journal that cannot be used; the message names the file and the remedy."""


class Measured(NamedTuple):
    """What a point's configurations took; as a row of the table."""

    family: str
    row: table.Row
    us: tuple[tuple[tuple, float], ...] = ()
    """Of each configuration. The journal keeps them: what a rule of lookup would have chosen can be computed."""


class Journal:
    """With it an interrupted tuner goes on.

    Args:
        head: the conditions; a journal of others is not gone on with.

    Raises:
        JournalError: it is of other conditions, is no journal, or cannot be written.
    """

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self._path = path
        self.measured: dict[str, dict[tuple, Measured]] = {}
        """By family and problem."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_bytes() if path.exists() else b""
            whole = text[: text.rfind(b"\n") + 1]
            lines = whole.splitlines()
            if lines and self._parsed(lines[0], 1).get("head") != json.loads(json.dumps(head)):
                raise JournalError(f"{path}: was measured under other conditions; remove it, or name another --journal")
            for number, line in enumerate(lines[1:], 2):
                self._read(line, number)
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
            self._file.truncate(len(whole))
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}; give a path that can be written") from None
        if not lines:
            self._append({"head": head})

    def add(self, measured: Measured) -> None:
        self._append({"family": measured.family, "row": measured.row._asdict(), "us": measured.us})
        self.measured.setdefault(measured.family, {})[measured.row.problem] = measured

    def close(self) -> None:
        self._file.close()

    def _read(self, line: bytes, number: int) -> None:
        parsed = self._parsed(line, number)
        try:
            row = table.Row(**parsed["row"])
            configuration = None if row.configuration is None else tuple(row.configuration)
            row = row._replace(problem=tuple(row.problem), configuration=configuration)
            us = tuple((tuple(values), us) for values, us in parsed["us"])
            self.measured.setdefault(parsed["family"], {})[row.problem] = Measured(parsed["family"], row, us)
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(f"{self._path} line {number}: {error}; remove it, or name another --journal") from None

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            parsed: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise JournalError(f"{self._path} line {number}: not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise JournalError(f"{self._path} line {number}: {parsed!r} is no object")
        return parsed

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            append(self._file.fileno(), dumps(line))
        except OSError as error:
            raise JournalError(
                f"{self._path}: {error.strerror}; the lines before are whole: make room, and the same command goes on"
            ) from None
