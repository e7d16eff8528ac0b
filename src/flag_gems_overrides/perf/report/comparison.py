# SPDX-License-Identifier: Apache-2.0
"""Two records of the same cases: what became faster, slower or wrong. What benchstat does for Go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, parse
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report.summary import code
from flag_gems_overrides.perf.report.tables import Column, Line, Table, milliseconds
from flag_gems_overrides.perf.report.templates import render
from flag_gems_overrides.perf.report.view import LESS, MORE
from flag_gems_overrides.perf.results import Counted, Row, Timed, is_counted, moved
from flag_gems_overrides.perf.statistics import compare_unpaired, geomean
from flag_gems_overrides.perf.verdict import (
    FASTER,
    MIN_NOISE,
    SAME,
    SLOWER,
    UNSURE,
    judge,
    noise_floor,
    percent,
    percents,
)
from flag_gems_overrides.words import many

WORST = 3
# In the place of an interval.
_EXACT = "exact"
_WORDS = (MORE, SLOWER, UNSURE, SAME, LESS, FASTER)


class Change(NamedTuple):
    """One case of both records. Above a ratio of 1 the new one is better: less time, or fewer bytes."""

    key: str
    old: str
    new: str
    ratio: float
    interval: str
    word: str


@dataclass(frozen=True)
class Difference:
    heads: tuple[Mapping[str, Any], Mapping[str, Any]]
    changes: Sequence[Change]
    """Worst first."""
    noise: float
    """Relative difference that counts as none."""
    only: tuple[int, int]
    """Cases that one record alone has, the old and the new."""
    wrong: tuple[Sequence[str], Sequence[str]]
    """Shared cases that the override answers wrongly, by their keys."""
    missing: Sequence[str]
    """Shared cases that cannot be compared: one record has no samples."""

    @property
    def worse(self) -> bool:
        """Whether a case became slower, moves more, or is newly wrong."""
        return any(change.word in (SLOWER, MORE) for change in self.changes) or bool(self.newly_wrong)

    @property
    def newly_wrong(self) -> list[str]:
        return [key for key in self.wrong[1] if key not in self.wrong[0]]


def compare(old: Session, new: Session) -> Difference:
    """The override of two sessions.

    PyTorch's own times are the same code in both: what they differ by is noise, of the device and of the day.

    Raises:
        UserError: the sessions are of different devices or measures, or share no case.
    """
    for field in ("device", "measure"):
        values = [session.device if field == "device" else session.head[field] for session in (old, new)]
        if values[0] != values[1]:
            raise UserError(f"{field}: {values[0]!r} and {values[1]!r} differ; compare records of one {field}")
    shared = [key for key in new.rows if key in old.rows]
    if not shared:
        raise UserError("the records share no case; measure the same ops, shapes and dtypes for both")
    pairs = [(old.rows[key], new.rows[key]) for key in shared]
    noise = _noise(old, new, pairs)
    changes = [change for pair in pairs if (change := _change(*pair, noise))]
    changes.sort(key=lambda change: (_WORDS.index(change.word), change.ratio))
    compared = {change.key for change in changes}
    return Difference(
        (old.head, new.head),
        changes,
        noise,
        (len(old.rows) - len(shared), len(new.rows) - len(shared)),
        (_wrong(pair[0] for pair in pairs), _wrong(pair[1] for pair in pairs)),
        [key for key in shared if key not in compared],
    )


def _noise(old: Session, new: Session, pairs: Iterable[tuple[Row, Row]]) -> float:
    noise = max(session.head.get("noise", MIN_NOISE) for session in (old, new))
    if old.head["versions"].get("torch") != new.head["versions"].get("torch"):
        return float(noise)
    natives = [(Timed(before).ms(NATIVE), Timed(after).ms(NATIVE)) for before, after in pairs]
    return max(noise, noise_floor([before / after for before, after in natives if before and after]))


def _change(before: Row, after: Row, noise: float) -> Change | None:
    key = after["key"]
    if is_counted(before) and is_counted(after):
        return _counted(Counted(before), Counted(after))
    old, new = (Timed(row).samples.get(OVERRIDE) for row in (before, after))
    if not old or not new:
        return None
    comparison = compare_unpaired(new, old, key)
    verdict = judge(comparison, noise)
    old_ms, new_ms = (milliseconds(Timed(row).ms(OVERRIDE)) for row in (before, after))
    _, *ends = percents(*comparison[:3])
    return Change(key, old_ms, new_ms, comparison.ratio, f"[{', '.join(ends)}]", verdict.word)


def _counted(before: Counted, after: Counted) -> Change:
    bytes_, launches = ([count(each.override) for each in (before, after)] for count in (moved, _launches))
    word = SAME
    if bytes_[1] < bytes_[0] or launches[1] < launches[0]:
        word = LESS
    if bytes_[1] > bytes_[0] or launches[1] > launches[0]:
        word = MORE
    old, new = (f"{size} B in {count}" for size, count in zip(bytes_, launches, strict=True))
    return Change(after.case.key, old, new, max(1, bytes_[0]) / max(1, bytes_[1]), _EXACT, word)


def _launches(counts: Mapping[str, int]) -> int:
    return counts["launches"]


def _wrong(rows: Iterable[Row]) -> list[str]:
    return [row["key"] for row in rows if not row["providers"][OVERRIDE].get("agrees", False)]


def headline(difference: Difference) -> str:
    """The whole in one sentence."""
    words = Counter(change.word for change in difference.changes)
    tally = ", ".join(f"{words[word]} {word}" for word in _WORDS if words[word])
    mean = percent(geomean(change.ratio for change in difference.changes)) if difference.changes else "nothing"
    what = "bytes" if difference.heads[1]["measure"] == "count" else "speed"
    compared = many(len(difference.changes), "case")
    return f"{compared}: {tally or 'none compared'}; geomean of {what} {mean}; {_answers(difference)}"


def _answers(difference: Difference) -> str:
    before, after = map(len, difference.wrong)
    if difference.newly_wrong:
        return f"{many(len(difference.newly_wrong), 'answer')} newly WRONG: {', '.join(difference.newly_wrong[:WORST])}"
    return "all answers right" if not after else f"{many(after, 'wrong answer')}, {before} before"


def notes(difference: Difference) -> list[str]:
    """Which code was compared, what was not, and how."""
    old, new = difference.heads
    made = [f"Old: {code(old)}. New: {code(new)}. {new['device']['name']}."]
    if new["measure"] == "count":
        made.append("Counts are exact. Change: of old bytes over new.")
    else:
        made.append(
            f"Change: of speed, old time over new. SAME: within {difference.noise:.1%}, which is the noise of the "
            "sessions and of PyTorch's own times between them."
        )
    for count, which in zip(difference.only, ("old", "new"), strict=True):
        if count:
            made.append(f"Not compared: {many(count, 'case')} of the {which} record alone.")
    if difference.missing:
        absent = many(len(difference.missing), "case")
        made.append(f"Not compared: {absent} without samples in one record, as {difference.missing[0]}.")
    changed = [name for name in old["versions"] if old["versions"][name] != new["versions"].get(name)]
    if changed:
        made.append(
            "Other versions: " + ", ".join(f"{n} {old['versions'][n]} -> {new['versions'].get(n)}" for n in changed)
        )
    return made


def cases(changes: Sequence[Change], title: str) -> Table:
    """A line for each change."""
    columns = [Column("Op", text=True), Column("Size Detail", text=True), Column("dtype", text=True)]
    unit = "" if any(change.interval == _EXACT for change in changes) else " (ms)"
    columns += [Column("Verdict", text=True), Column("Change", 1), Column(f"Old{unit}", 3), Column(f"New{unit}", 3)]
    columns += [Column("95 % interval", 2)]
    lines = []
    for change in changes:
        case = parse(change.key)
        cells = [case.op, case.size, case.dtype, change.word, percent(change.ratio)]
        lines.append(Line([*cells, change.old, change.new, change.interval], change.key, change.word))
    return Table(title, columns, lines, [])


def means(changes: Iterable[Change], moved_only: bool = False) -> Table:
    """Geometric means by op and dtype, worst first.

    Args:
        moved_only: leave out those of which no case became better or worse.
    """
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        case = parse(change.key)
        groups.setdefault((case.op, case.dtype), []).append(change)
    if moved_only:
        groups = {key: same for key, same in groups.items() if any(each.word not in (SAME, UNSURE) for each in same)}
    columns = [Column("Op", text=True), Column("dtype", text=True), Column("Cases", 1), Column("geomean")]
    columns += [Column("worse"), Column("unsure", 1), Column("same", 1), Column("better")]
    by_mean = sorted((geomean(change.ratio for change in same), *key, same) for key, same in groups.items())
    lines = []
    for mean, op, dtype, same in by_mean:
        words = [change.word for change in same]
        tally = [
            str(sum(words.count(word) for word in kind))
            for kind in ((SLOWER, MORE), (UNSURE,), (SAME,), (FASTER, LESS))
        ]
        lines.append(Line([op, dtype, str(len(same)), percent(mean), *tally]))
    title = "Operators of which a case became better or worse" if moved_only else "Geometric means of every operator"
    return Table(title, columns, lines, [])


def tables(difference: Difference) -> list[Table]:
    return [cases(difference.changes, "Cases, worst first"), means(difference.changes)]


def markdown(difference: Difference) -> str:
    """For a job summary or a comment: the sentence, the worst cases, the ops that changed, and everything folded."""
    worst = [change for change in difference.changes if change.word not in (SAME, FASTER, LESS)][:WORST]
    return render(
        "compare.md.j2",
        headline=headline(difference),
        notes=notes(difference),
        worst=cases(worst, "The worst cases"),
        moved=means(difference.changes, moved_only=True),
        means=means(difference.changes),
        all=cases(difference.changes, "Every case, worst first"),
    )


def as_json(difference: Difference) -> dict[str, Any]:
    return {
        "old": dict(difference.heads[0]),
        "new": dict(difference.heads[1]),
        "noise": difference.noise,
        "newly_wrong": difference.newly_wrong,
        "cases": [change._asdict() | {"ratio": round(change.ratio, 4)} for change in difference.changes],
    }
