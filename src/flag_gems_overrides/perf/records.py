# SPDX-License-Identifier: Apache-2.0
"""Records of measurements: JSON lines, checked on reading and writing, appended case by case.

A file holds sessions one after the other: a ``session`` line that says what was measured where, a ``case`` line per
case, an ``end`` line. A session without its end was interrupted, or a case of it could not be measured; the same
command under the same conditions resumes it: the head has a digest of the cases that are to be measured. Verdicts
are not recorded: they are made from the samples when read, by one rule for old and new records.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.files import append

SCHEMA = 2
# What may differ between the two halves of an interrupted session: the device is measured anew by each.
_VARYING = ("kind", "total", "started", "noise", "copy_gbps", "read_gbps", "cold")


class RecordError(UserError):
    """A record that cannot be used; the message names file, line and field."""


@dataclass
class Session:
    """One run of the benchmark."""

    head: dict[str, Any]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Case lines by their key."""
    ended: bool = False
    torn: bool = False
    """Whether the file ends in a part of a line, which is left out: its writer was stopped or its disk full."""

    @property
    def device(self) -> str:
        return self.head["device"]["name"]

    def resumes_with(self, head: Mapping[str, Any]) -> bool:
        """Whether a run under the conditions of ``head``, of the same cases, may add its rows to this session."""
        return not self.ended and _conditions(self.head) == _conditions(head)


def _conditions(head: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in head.items() if name not in _VARYING}


def read(path: Path) -> list[Session]:
    """The sessions of a record file, oldest first. A last line that was cut off while it was written is left out, and
    the last session says so.

    Raises:
        RecordError: the file is missing, empty, broken, or of another schema.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}; `gems-overrides bench` writes records") from None
    sessions: list[Session] = []
    *lines, part = text.split(b"\n")
    for number, line in enumerate(lines, 1):
        row = _checked(line, f"{path} line {number}")
        if row["kind"] == "session":
            sessions.append(Session(row))
        elif not sessions:
            raise RecordError(f"{path} line {number}: a {row['kind']} before any session; this is no whole record")
        elif row["kind"] == "end":
            sessions[-1].ended = True
        else:
            sessions[-1].rows[row["key"]] = row
    if not sessions:
        raise RecordError(f"{path}: holds no session; `gems-overrides bench` writes records")
    sessions[-1].torn = bool(part)
    return sessions


class Recorder:
    """Appends a session to a record file, or resumes an interrupted one of the same conditions and cases.

    Every line is written whole and synced: after a crash the file ends with whole lines and at most one part of a
    line, which the next recorder cuts off.

    Args:
        keys: of the cases that are to be measured. The session has ended when each of them has its row.

    Raises:
        RecordError: the file cannot be written, or is no record.
    """

    def __init__(self, path: Path, head: Mapping[str, Any], keys: Iterable[str]) -> None:
        self._keys = set(keys)
        head = {"kind": "session", "schema": SCHEMA, "cases": _digest(self._keys), "total": len(self._keys), **head}
        check(head, "session")
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            sessions = read(path) if path.exists() and path.stat().st_size else []
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            size = os.lseek(self._file, 0, os.SEEK_END)
            os.ftruncate(self._file, os.pread(self._file, size, 0).rfind(b"\n") + 1)
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}; give a path that can be written") from None
        if sessions and sessions[-1].resumes_with(head):
            self.session = sessions[-1]
        else:
            self.session = Session(head)
            self._append(head)

    def row(self, row: Mapping[str, Any]) -> None:
        """Append one case line."""
        row = {"kind": "case", **row}
        check(row, row["key"])
        self._append(row)
        self.session.rows[row["key"]] = row

    def close(self) -> None:
        """Let go of the file. The session ends if no case is missing from it."""
        try:
            if self._keys <= self.session.rows.keys():
                self._append({"kind": "end"})
                self.session.ended = True
        finally:
            os.close(self._file)

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            append(self._file, dumps(line))
        except OSError as error:
            raise RecordError(
                f"{self._path}: {error.strerror}; the lines before are whole: make room, and the same command resumes"
            ) from None


def _digest(keys: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()[:16]


def dumps(value: Any) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


def check(row: Mapping[str, Any], where: str) -> None:
    """Raise a RecordError that names the field in which ``row`` departs from the schema."""
    schema = row.get("schema", SCHEMA)
    if row.get("kind") == "session" and schema != SCHEMA:
        renamed = "; in schema 2 `contenders` became `providers`" if schema == 1 else ""
        raise RecordError(
            f"{where}: schema: {schema!r} cannot be read, {SCHEMA} can{renamed}; "
            f"read it with the version of flag_gems_overrides that wrote it, or measure again"
        )
    if _validator().is_valid(row):
        return
    error = best_match(_validator().iter_errors(row))
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path).lstrip(".")
    raise RecordError(f"{where}: {place or 'line'}: {error.message[:200]}")


def _checked(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise RecordError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise RecordError(f"{where}: expected an object, not {type(row).__name__}")
    check(row, where)
    return row


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    text = resources.files("flag_gems_overrides.perf").joinpath("record_schema.json").read_text()
    return Draft202012Validator(json.loads(text))
