# SPDX-License-Identifier: Apache-2.0
"""What of a session is shown: some or all of its cases, in an order, and what has to be said of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.baselines import SCRATCH_PASSES, more_than_upstream
from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, PEERS, UPSTREAM, check
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.results import Counted, Row, Timed, moved
from flag_gems_overrides.perf.verdict import FASTER, MIN_NOISE, SAME, SLOWER, UNSURE
from flag_gems_overrides.words import many

# What people who know upstream's tables call the providers.
LABELS = {
    NATIVE: "Torch",
    UPSTREAM: "Gems",
    OVERRIDE: "Override",
    "compile": "torch.compile",
    "liger": "Liger",
    "quack": "QuACK",
    "quack_rmsnorm": "QuACK rmsnorm",
}
# Of counts: bytes and launches beside upstream's.
LESS, MORE = "LESS", "MORE"
VERDICTS = (FASTER, SAME, SLOWER, UNSURE, LESS, MORE)
ORDERS = ("measured", "worst", "slowest")

Result = Timed | Counted


@dataclass(frozen=True)
class View:
    head: Mapping[str, Any]
    results: Sequence[Any]
    """All Timed or all Counted."""
    notes: tuple[str, ...] = ()
    """What a reader must know of the session, one sentence each."""

    @property
    def counted(self) -> bool:
        return bool(self.head["measure"] == "count")

    @property
    def scope(self) -> str:
        """Which cases were measured: ``level=core``, or ``shape=8x64 dim=1`` of `bench --shape`."""
        level = self.head["level"]
        return f"shape={level}" if re.match(r"\d", level) else f"level={level}"

    @property
    def rivals(self) -> list[str]:
        """Who was timed beside the override in any of the cases."""
        names = [NATIVE, UPSTREAM, *PEERS]
        return [name for name in names if any(result.ms(name) for result in self.results)]

    def groups(self) -> dict[tuple[str, str], list[Any]]:
        """The results by op and dtype, in the order in which they were measured."""
        made: dict[tuple[str, str], list[Any]] = {}
        for result in self.results:
            made.setdefault((result.case.op, result.case.dtype), []).append(result)
        return made


def view(head: Mapping[str, Any], rows: Iterable[Row], notes: Iterable[str] = ()) -> View:
    """All of these rows."""
    noise = head.get("noise", MIN_NOISE)
    make: Callable[[Row], Result] = Counted if head["measure"] == "count" else lambda row: Timed(row, noise)
    return View(head, [make(row) for row in rows], tuple(notes))


def of(sessions: Sequence[Session], chosen: int | None, where: str) -> View:
    """The chosen session of a record, counted from 1; the last if none is chosen.

    Raises:
        UserError: there is no such session.
    """
    number = len(sessions) if chosen is None else chosen
    if not 1 <= number <= len(sessions):
        raise UserError(f"{where}: --session {number}: the record has {len(sessions)}, counted from 1")
    session = sessions[number - 1]
    notes = []
    if len(sessions) > 1:
        started = session.head.get("started", session.head["commit"] or "")[:19]
        notes.append(f"Session {number} of {len(sessions)} in this record ({started}); --session chooses another.")
    if not session.ended:
        done = len(session.rows)
        cases = f"{done} of {session.head['total']} cases" if "total" in session.head else many(done, "case")
        notes.append(f"Partial: the session was not ended; it has {cases}.")
    if session.torn:
        notes.append("The last line of the record was cut off while it was written, and is left out.")
    return view(session.head, session.rows.values(), notes)


def select(
    shown: View,
    ops: Collection[str] = (),
    dtypes: Collection[str] = (),
    verdicts: Collection[str] = (),
    order: str = "measured",
) -> View:
    """The results of these ops, dtypes and verdicts, each of all if none is named.

    Raises:
        UserError: a name is unknown, or no case is left.
    """
    check("--sort", order, ORDERS)
    for word in verdicts:
        check("--verdict", word.upper(), VERDICTS)
    for option, words, known in (
        ("--op", ops, {result.case.op: 0 for result in shown.results}),
        ("--dtype", dtypes, {result.case.dtype: 0 for result in shown.results}),
    ):
        for word in words:
            check(option, word, tuple(known))
    wanted = {word.upper() for word in verdicts}
    results = [
        result
        for result in shown.results
        if (not ops or result.case.op in ops)
        and (not dtypes or result.case.dtype in dtypes)
        and (not wanted or word_of(result) in wanted)
    ]
    notes = shown.notes
    if len(results) < len(shown.results):
        notes += (f"{len(results)} of {len(shown.results)} cases, as chosen.",)
    if order == "worst":
        results.sort(key=lambda result: ratio_of(result) or 0)
    elif order == "slowest":
        results.sort(key=lambda result: -(_cost(result) or 0))
    return View(shown.head, results, notes)


def word_of(result: Result) -> str:
    """The verdict in one word; "" without anything to compare with."""
    if isinstance(result, Counted):
        return _counted_word(result)
    against = result.overall()
    return against.verdict.word if against else ""


def ratio_of(result: Result) -> float | None:
    """What decides the verdict: the lowest ratio of times, or upstream's bytes over ours."""
    if isinstance(result, Counted):
        theirs = result.of(UPSTREAM)
        return moved(theirs) / max(1, moved(result.override)) if theirs else None
    against = result.overall()
    return against.comparison.ratio if against else None


def _cost(result: Result) -> float | None:
    return moved(result.override) if isinstance(result, Counted) else result.ms(OVERRIDE)


def _counted_word(counted: Counted) -> str:
    theirs = counted.of(UPSTREAM)
    if theirs is None or not theirs["agrees"]:
        return ""
    if more_than_upstream(counted):
        return MORE
    saved = counted.passes(theirs) - counted.passes(counted.override) > SCRATCH_PASSES
    return LESS if saved or counted.override["launches"] < theirs["launches"] else SAME
