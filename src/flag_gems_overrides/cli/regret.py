# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any

import typer

from flag_gems_overrides.cli import _tuning
from flag_gems_overrides.cli._options import console, say

_MAX_SHOWN = 20


def regret(
    families: _tuning.Families = None,
    seed: Annotated[int | None, typer.Option(help="Of the random problems. [default: a new one]")] = None,
    count: Annotated[int, typer.Option(min=1, help="Problems for each family.")] = 100,
    seconds: _tuning.Seconds = 900,
    journal: Annotated[Path | None, typer.Option(help="What was measured. [default: regret-SEED.jsonl]")] = None,
) -> None:
    """Time what the plans choose for random problems beside other configurations of the same kernels. Needs a GPU.

    Says how far each family is from its own fastest, and how far it would be if its estimate alone chose. A hunt shows
    what peers are faster at; this shows what is slow whether or not a peer has noticed. Ctrl-C keeps what is done."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    session = _tuning.Session(families, f"regret --seed {seed}", seconds)
    from flag_gems_overrides.perf.report import terminal
    from flag_gems_overrides.perf.report.tables import Column, Line, Table
    from flag_gems_overrides.perf.tune.grid import points, random_cases
    from flag_gems_overrides.perf.tune.regret import regrets, tally

    say(f"--seed {seed}")
    lists = [list(points(family, random_cases(family, count, seed))) for family in session.families]
    kept = session.measure(lists, journal or Path(f"regret-{seed}.jsonl"), chosen=True)
    columns = [Column("problem", text=True), Column("chosen", text=True), Column("us")]
    columns += [Column("fastest", text=True), Column("its us")]
    made, lines = [], []
    for family in session.families:
        found = regrets(family, kept.get(family.name, {}).values(), session.limits)
        if not found:
            continue
        behind = [Line(_cells(each)) for each in found[:_MAX_SHOWN] if each.is_behind]
        if behind:
            made.append(Table(f"{family.name}: behind its own fastest", columns, behind, []))
        counted = tally(family.name, found)
        means = (f"{counted.ratio:.3f}", f"{counted.by_estimate:.3f}", f"{counted.worst:.2f}")
        lines.append(Line([family.name, str(counted.problems), str(counted.behind), *means]))
    names = ("problems", "behind", "time over the fastest's", "by the estimate", "worst")
    made.append(Table("families", [Column("family", text=True), *map(Column, names)], lines, []))
    terminal.show_tables(made, console())


def _cells(each: Any) -> list[str]:
    problem, chosen, best = (" ".join(map(str, values)) for values in (each.problem, each.chosen, each.best))
    return [problem, chosen, f"{each.us:.2f}", best, f"{each.best_us:.2f}"]
