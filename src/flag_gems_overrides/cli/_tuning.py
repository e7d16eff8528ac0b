# SPDX-License-Identifier: Apache-2.0
"""What the commands share that time configurations: one session of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from flag_gems_overrides.cli import _device
from flag_gems_overrides.cli._options import say
from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf import beforehand
from flag_gems_overrides.perf.cases import check
from flag_gems_overrides.words import many

# Of the time that is left, what compiling may take at most: 444 problems of twelve configurations are compiled in 185 s
# on 16 cores and timed in 77 s (H100).
_COMPILING_SHARE = 2 / 3

Families = Annotated[list[str] | None, typer.Argument(help="Folders of ops/families; all if none.")]
Seconds = Annotated[float, typer.Option(min=1, help="Stop after so many; the same command goes on.")]


class Session:
    """Times configurations of problems on the current GPU, and keeps a journal of it.

    Args:
        families: by name; None for all.
        level: what the journal's head calls this.
        seconds: from now on.

    Raises:
        UserError: there is no GPU, or a family is not known.
    """

    def __init__(self, families: list[str] | None, level: str, seconds: float) -> None:
        self._start, self._seconds = time.monotonic(), seconds
        import torch

        if not torch.cuda.is_available():
            raise UserError("no GPU: there is nothing to time")
        beforehand.share_caches()
        _device.prepare()
        from flag_gems_overrides.ops.launch import devices
        from flag_gems_overrides.perf import conditions
        from flag_gems_overrides.perf.tune.families import FAMILIES

        for name in families or ():
            check("family", name, tuple(FAMILIES))
        self.families = [FAMILIES[name] for name in families or FAMILIES]
        self._index = torch.cuda.current_device()
        self.limits = devices.limits(self._index)
        self.head = conditions.head("kernel", level)
        self.device: str = self.head["device"]["name"]
        self.copy_gbps = 0.0

    def measure(self, lists: Sequence[Sequence[Any]], journal: Path, chosen: bool = False) -> dict[str, dict]:
        """What the journal has of each family and problem, when these points are measured or the time is over.

        Args:
            lists: points of the families, which take turns.
            chosen: compare with what the plans choose, not with the default.

        Raises:
            UserError: the journal is of other conditions.
            typer.Exit: with status 1, if nothing is measured.
        """
        import torch

        from flag_gems_overrides.perf.timing import Timer
        from flag_gems_overrides.perf.tune.candidates import candidates
        from flag_gems_overrides.perf.tune.grid import in_turn
        from flag_gems_overrides.perf.tune.journal import Journal
        from flag_gems_overrides.perf.tune.measuring import ROUNDS, WARM_UP_SECONDS, Tuner, compile_all

        # Writing a table makes the checkout another.
        kept = Journal(journal, {name: value for name, value in self.head.items() if name != "commit"})
        points = [p for p in in_turn(lists) if tuple(p.problem) not in kept.measured.get(p.family.name, {})]
        say(f"{many(len(points), 'problem')} to measure")
        until = self._start + self._seconds
        try:
            start = time.monotonic()
            todo = {point: candidates(point, self.limits, chosen) for point in points}
            tuner = Tuner(Timer(torch.device("cuda", self._index), ROUNDS, WARM_UP_SECONDS))
            self.copy_gbps = tuner.copy_gbps
            tuner.died = compile_all(todo, (until - start) * _COMPILING_SHARE)
            say(f"compiled for {time.monotonic() - start:.0f} s in {beforehand.processes()} processes")
            _measure(tuner, todo, kept, until)
        except beforehand.ContextLostError as error:
            say(str(error))
        except KeyboardInterrupt:
            say("Interrupted.")
        finally:
            kept.close()
        if not kept.measured:
            say(f"nothing was measured in {self._seconds:g} s, most of which go to compiling; --seconds gives it more")
            raise typer.Exit(1)
        return kept.measured


def _measure(tuner: Any, todo: dict[Any, list[Any]], kept: Any, until: float) -> None:
    """Measure problems until then."""
    import torch

    from flag_gems_overrides.perf.timing import ThrottledError

    start, count = time.monotonic(), 0
    for point, configurations in todo.items():
        if time.monotonic() > until:
            break
        try:
            measured = tuner.measure(point, configurations)
        except (ThrottledError, torch.OutOfMemoryError) as error:
            say(f"{point.case.key}: {beforehand.first_line(error)}")
            continue
        if measured:
            kept.add(measured)
            count += 1
    say(f"measured {count} of {many(len(todo), 'problem')} in {time.monotonic() - start:.0f} s")
    for message in tuner.errors:
        say(message)
