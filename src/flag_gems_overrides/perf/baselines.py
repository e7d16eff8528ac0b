# SPDX-License-Identifier: Apache-2.0
"""What is accepted: one file per op under ``benchmark/baselines/<device>/``, written by `gems-overrides accept`
only."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.cases import LEVELS, OVERRIDE, UPSTREAM, Shapes, parse
from flag_gems_overrides.perf.files import write
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.results import Counted, Timed, is_counted, moved
from flag_gems_overrides.words import many

SCHEMA = 1
# What an op may lose against its accepted speed before the gate closes: twice the noise of a good run on one case,
# and half of that on the mean of all.
CASE_ALLOWANCE = 0.03
GEOMEAN_ALLOWANCE = 0.015
# Launches cost everyone up to 0.45 us more on one H200 than on another: the ratios of kernels of 3 to 5 us moved by up
# to 10 %, the mean of layer_norm's core shapes by 4.8 %, with the same code and versions.
SHORT_MS = 0.00025
# Partial results, counters and statistics are no pass over the data.
SCRATCH_PASSES = 0.05

_COUNT = {"type": "integer", "minimum": 0}
_RATIO = {"type": "number", "exclusiveMinimum": 0}
_COUNTED = {
    "type": "object",
    "required": ["moved", "launches"],
    "properties": {
        "moved": _COUNT,
        "launches": _COUNT,
        "more_than_upstream": {"type": "string", "minLength": 1},
    },
    "additionalProperties": False,
}
_TIMED = {
    "type": "object",
    "required": ["ratio", "floor", "ms"],
    "properties": {"ratio": _RATIO, "floor": _RATIO, "ms": _RATIO},
    "additionalProperties": False,
}
_SCHEMA = {
    "type": "object",
    "required": ["schema", "device", "measure", "accepted_from", "cases"],
    "properties": {
        "schema": {"const": SCHEMA},
        "device": {"type": "string"},
        "measure": {"enum": ["count", "kernel"]},
        "accepted_from": {"type": "object"},
        "cases": {"type": "object"},
    },
    "additionalProperties": False,
    "if": {"properties": {"measure": {"const": "count"}}},
    "then": {"properties": {"cases": {"additionalProperties": _COUNTED}}},
    "else": {"properties": {"cases": {"additionalProperties": _TIMED}}},
}


class BaselineError(UserError):
    """A baseline that cannot be used or made; the message names file, field and remedy."""


def slug(name: str) -> str:
    """A device's name as the name of its folder: "NVIDIA H200" is ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def path_of(folder: Path, device: str, op: str) -> Path:
    return folder / slug(device) / f"{op}.json"


def is_known(folder: Path, device: str) -> bool:
    """Whether anything was ever accepted for this device."""
    return (folder / slug(device)).is_dir()


def load(folder: Path, device: str, op: str) -> dict[str, Any] | None:
    """The accepted baseline of ``op`` on ``device``, None if there is none.

    Raises:
        BaselineError: the file is broken.
    """
    path = path_of(folder, device, op)
    if not path.exists():
        return None
    try:
        baseline = json.loads(path.read_text())
    except ValueError as error:
        raise BaselineError(f"{path}: not JSON ({error}); write it anew with `gems-overrides accept`") from None
    fault = best_match(Draft202012Validator(_SCHEMA).iter_errors(baseline))
    if fault is not None:
        place = ".".join(map(str, fault.absolute_path)) or "file"
        raise BaselineError(f"{path}: {place}: {fault.message[:200]}; write it anew with `gems-overrides accept`")
    loaded: dict[str, Any] = baseline
    return loaded


class Proposal(NamedTuple):
    """A baseline that would replace another."""

    path: Path
    old: dict[str, Any]
    """Accepted cases by their keys; none if there was no file."""
    new: dict[str, Any]
    """The cases that the session brings."""
    text: str
    """Of the whole file."""

    @property
    def changed(self) -> list[str]:
        """The cases that are new or differ, by their keys."""
        return [key for key, case in self.new.items() if self.old.get(key) != case]


def propose(
    folder: Path, session: Session, reason: str | None = None, keys: Collection[str] | None = None
) -> list[Proposal]:
    """What :func:`accept` would write, op by op; other cases of these ops keep their baseline.

    Args:
        reason: why an override may move more or launch more than upstream, where it does.
        keys: the cases to take; all of the session if None.

    Raises:
        BaselineError: the session is not one to accept.
    """
    _check_ended(session)
    measure = session.head["measure"]
    if measure not in ("count", "kernel"):
        raise BaselineError(f"measure: {measure!r} has no baseline; accept a record of mode kernel or of counts")
    by_op: dict[str, dict[str, dict[str, Any]]] = {}
    for key, row in session.rows.items():
        if keys is None or key in keys:
            entry = _counted(Counted(row), reason) if is_counted(row) else _timed(Timed(row))
            by_op.setdefault(key.split()[0], {})[key] = entry
    made = []
    for op, cases in by_op.items():
        old = load(folder, session.device, op)
        before = old["cases"] if old else {}
        baseline: dict[str, Any] = {
            "schema": SCHEMA,
            "device": session.device,
            "measure": measure,
            "accepted_from": _origin(session),
            "cases": dict(sorted({**before, **cases}.items())),
        }
        text = json.dumps(baseline, indent=1, sort_keys=True) + "\n"
        made.append(Proposal(path_of(folder, session.device, op), before, cases, text))
    return made


def accept(folder: Path, session: Session, reason: str | None = None) -> list[Path]:
    """Make the rows of a session the baseline of their device; returns the files written. A file of which no case
    changes stays as it is. See :func:`propose`."""
    proposals = [proposal for proposal in propose(folder, session, reason) if proposal.changed]
    for proposal in proposals:
        write(proposal.path, proposal.text)
    return [proposal.path for proposal in proposals]


def _check_ended(session: Session) -> None:
    if not session.ended:
        raise BaselineError("partial: the session did not end; run the same command again to end it")


def of_level(session: Session, shapes: Shapes, level: str | None) -> list[str]:
    """The cases of a session that its level lists.

    Args:
        level: that a record must be of; None for that of the baselines, core of times and interpreter of counts. A
            level that no shape file has, as of `bench --shape`, takes every case.

    Raises:
        BaselineError: the session is of another level, or lacks cases of it.
    """
    _check_ended(session)
    wanted = level or ("interpreter" if session.head["measure"] == "count" else "core")
    found = session.head["level"]
    if found != wanted:
        raise BaselineError(f"level: {found!r} is not {wanted!r}, the baselines' level; to take it: --level {found!r}")
    if wanted not in LEVELS:
        return list(session.rows)
    measured: dict[str, set[str]] = {}
    for key in session.rows:
        case = parse(key)
        measured.setdefault(case.op, set()).add(case.dtype)
    listed = [case.key for op, dtypes in measured.items() for case in shapes.cases(op, wanted, sorted(dtypes))]
    missing = [key for key in listed if key not in session.rows]
    if missing:
        lacking = many(len(missing), "case")
        raise BaselineError(f"partial: lacks {lacking} of level {wanted}, as {missing[0]}; measure all")
    return [key for key in session.rows if key in set(listed)]


def _origin(session: Session) -> Mapping[str, Any]:
    """Where the numbers come from. Counts are those of the code alone: naming versions would only make them
    differ."""
    if session.head["measure"] == "count":
        return {"digest": session.head["digests"]["flag_gems_overrides"]}
    return {name: session.head[name] for name in ("commit", "started", "versions", "level", "copy_gbps")}


def _counted(counted: Counted, reason: str | None) -> dict[str, Any]:
    entry = {"moved": moved(counted.override), "launches": counted.override["launches"]}
    more = more_than_upstream(counted)
    if more:
        if not reason:
            raise BaselineError(f"{counted.case.key}: {more}; say why that is right with --reason")
        return {**entry, "more_than_upstream": reason}
    return entry


def more_than_upstream(counted: Counted) -> str | None:
    """In what the override exceeds upstream, in words; None if in nothing."""
    ours, theirs = counted.override, counted.of(UPSTREAM)
    if theirs is None or not theirs["agrees"]:
        return None  # a wrong answer may be cheap
    passes, limit = (counted.passes(counts) for counts in (ours, theirs))
    if passes > limit + SCRATCH_PASSES:
        return f"{passes:.2f} passes, upstream makes {limit:.2f}"
    if ours["launches"] > theirs["launches"]:
        return f"{ours['launches']} launches, upstream makes {theirs['launches']}"
    return None


def _timed(timed: Timed) -> dict[str, Any]:
    best, ms = timed.against_best(), timed.ms(OVERRIDE)
    if best is None or ms is None:
        raise BaselineError(f"{timed.case.key}: has no samples of the override and a competitor; measure it again")
    ratio = best.comparison.ratio
    floor = min(1.0, ratio) * (1 - CASE_ALLOWANCE)
    return {"ratio": round(ratio, 4), "floor": round(floor, 4), "ms": round(ms, 6)}
