# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flag_gems_overrides.cli import _device, _options
from flag_gems_overrides.cli._options import say
from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf import beforehand
from flag_gems_overrides.perf.cases import Shapes, check
from flag_gems_overrides.words import many

# Of the time that is left, what compiling may take at most.
_COMPILING_SHARE = 0.5
_MOST_CHANGES_SHOWN = 10


def tune(
    families: Annotated[list[str] | None, typer.Argument(help="Folders of ops/families; all if none.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Stop after so many; the same command goes on.")] = 900,
    seed: Annotated[int, typer.Option(help="Where in the cells of the grid the problems lie.")] = 0,
    journal: Annotated[Path | None, typer.Option(help="What was measured. [default: tune-DEVICE.jsonl]")] = None,
    output: Annotated[Path | None, typer.Option(help="Table to write. [default: DEVICE's in ops/plans]")] = None,
    shapes: _options.ShapeFile = _options.SHAPES,
) -> None:
    """Measure configurations of the kernels over a grid of problems, and write this GPU's table of the fastest.

    The coarse grid comes first. Ctrl-C writes what is done; the same command goes on from the journal."""
    started = time.monotonic()
    import torch

    if not torch.cuda.is_available():
        raise UserError("no GPU: there is nothing to time")
    beforehand.share_caches()
    _device.prepare()
    from flag_gems_overrides.ops.launch import devices
    from flag_gems_overrides.ops.plans.table import TableError
    from flag_gems_overrides.perf import conditions
    from flag_gems_overrides.perf.baselines import slug
    from flag_gems_overrides.perf.timing import Timer
    from flag_gems_overrides.perf.tune.families import FAMILIES
    from flag_gems_overrides.perf.tune.grid import in_turn, points
    from flag_gems_overrides.perf.tune.journal import Journal
    from flag_gems_overrides.perf.tune.measuring import ROUNDS, WARM_UP_SECONDS, Tuner, compile_all
    from flag_gems_overrides.perf.tune.tables import save, table_path

    for name in families or ():
        check("family", name, tuple(FAMILIES))
    chosen = [FAMILIES[name] for name in families or FAMILIES]
    index = torch.cuda.current_device()
    limits = devices.limits(index)
    head = conditions.head("kernel", f"tune --seed {seed}")
    device = head["device"]["name"]
    # Writing the table makes the checkout another.
    conditions_of_journal = {name: value for name, value in head.items() if name != "commit"}
    listed = Shapes(shapes)
    kept = Journal(journal or Path(f"tune-{slug(device)}.jsonl"), conditions_of_journal)
    todo = in_turn([list(points(family, listed, seed)) for family in chosen])
    todo = [point for point in todo if tuple(point.problem) not in kept.rows.get(point.family.name, {})]
    say(f"{many(len(todo), 'problem')} to measure")
    tuner = Tuner(Timer(torch.device("cuda", index), ROUNDS, WARM_UP_SECONDS), limits)
    until = started + seconds
    try:
        start = time.monotonic()
        tuner.died = compile_all(todo, limits, (until - start) * _COMPILING_SHARE)
        say(f"compiled for {time.monotonic() - start:.0f} s in {beforehand.processes()} processes")
        _measure(tuner, todo, kept, until)
    except beforehand.ContextLostError as error:
        say(str(error))
    except KeyboardInterrupt:
        say("Interrupted.")
    finally:
        kept.close()
    rows = {name: list(found.values()) for name, found in kept.rows.items()}
    if not rows:
        say(f"nothing was measured in {seconds:g} s, half of which go to compiling; --seconds gives it more")
        raise typer.Exit(1)
    content = {
        "schema": 1,
        "device": {
            "name": device,
            "capability": list(limits.capability),
            "sm_count": limits.sm_count,
            "l2_bytes": limits.l2_bytes,
            "copy_gbps": tuner.copy_gbps,
        },
        "versions": head["versions"],
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["gems-overrides tune", *(families or []), f"--seconds {seconds:g} --seed {seed}"]),
    }
    path = output or table_path(device)
    try:
        changes = save(path, content, rows)
    except TableError as error:
        raise UserError(str(error)) from None
    _show(changes, path)


def _measure(tuner: Any, todo: list[Any], kept: Any, until: float) -> None:
    """Measure problems until then."""
    from flag_gems_overrides.perf.timing import ThrottledError

    start, count = time.monotonic(), 0
    for point in todo:
        if time.monotonic() > until:
            break
        try:
            measured = tuner.measure(point)
        except ThrottledError as error:
            say(f"{point.case.key}: {error}")
            continue
        if measured:
            kept.add(measured)
            count += 1
    say(f"measured {count} of {many(len(todo), 'problem')} in {time.monotonic() - start:.0f} s")
    for message in tuner.errors:
        say(message)


def _show(changes: list[Any], path: Path) -> None:
    """What a family's rows are, and how they differ from those before."""
    for change in changes:
        say(
            f"{change.family}: {many(change.rows, 'problem')}, {change.tuned} not best by the default: "
            f"{change.gain:.3f} times as fast there; {len(change.changed)} of those before changed",
        )
        for before, now in change.changed[:_MOST_CHANGES_SHOWN]:
            say(f"  {list(now.problem)}: {_describe(before)} -> {_describe(now)}")
    say(f"written to {path}")


def _describe(row: Any) -> str:
    configuration = "default" if row.configuration is None else " ".join(map(str, row.configuration))
    return f"{configuration} {row.us:.2f} us"
