# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flag_gems_overrides.cli import _device, _words
from flag_gems_overrides.perf import beforehand, records
from flag_gems_overrides.perf.cases import OPS, CaseError, check, parse
from flag_gems_overrides.perf.problems import Problem, problems
from flag_gems_overrides.perf.workers import WorkerError

HUNTED = Path("benchmark/hunted_shapes.yaml")
# Of --seconds, what compiling may take at most.
_COMPILING_SHARE = 0.5
_MOST_LOSSES_SHOWN = 60


def hunt(
    ops: Annotated[list[str] | None, typer.Argument(help="Ops by their flag_gems name; all if none.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random problems. [default: a new one]")] = None,
    count: Annotated[int, typer.Option(min=1, help="Problems for each family of ops.")] = 300,
    peers: Annotated[list[str] | None, typer.Option(help="Beside native and upstream: compile.")] = None,
    compile_share: Annotated[float, typer.Option(min=0, max=1, help="Of problems with --peers compile.")] = 1 / 7,
    seconds: Annotated[float, typer.Option(min=1, help="Stop after so many; the same command goes on.")] = 3600,
    output: Annotated[Path | None, typer.Option(help="Record to append to. [default: hunt-SEED.jsonl]")] = None,
    keep: Annotated[bool, typer.Option("--keep", help=f"Add the losses to {HUNTED}.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the problems and stop.")] = False,
) -> None:
    """Measure random problems beside PyTorch, upstream and torch.compile. Needs a GPU.

    Exit status 1 if an answer is wrong, if less than 95 % of the problems are within 3 % or 0.25 us of the best
    provider, or if one of them takes more than 1 / 0.7 of its time. Ctrl-C keeps what is done."""
    started = time.monotonic()
    console = Console(highlight=False, width=None if Console().is_terminal else 200)
    with _words.complaints(CaseError):
        for op in ops or ():
            check("op", op, tuple(OPS))
        for peer in peers or ():
            check("--peers", peer, ("compile",))
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    chosen = problems(ops or tuple(OPS), count, seed, compile_share if peers else 0)
    console.print(f"--seed {seed}: {len(chosen)} problems")
    if dry_run:
        for problem in chosen:
            console.print(f"{problem.case.key}{'  torch.compile' if problem.compiled else ''}")
        return
    import torch

    if not torch.cuda.is_available():
        console.print("No GPU: there is nothing to time. --dry-run lists the problems.")
        raise typer.Exit(2)
    beforehand.share_caches()
    _device.prepare(console)
    from flag_gems_overrides.perf import hunt as hunting

    output = output or Path(f"hunt-{seed}.jsonl")
    with _words.complaints(CaseError, records.RecordError, WorkerError, OSError):
        rows = _measure(chosen, seed, peers or [], output, started + seconds, console)
        passed = _show(rows, console)
        if keep:
            losses = [parse(each.key) for each in map(hunting.result, rows) if each.is_loss]
            console.print(f"{hunting.keep(HUNTED, losses)} new shapes in {HUNTED}")
    if len(rows) < len(chosen):
        console.print(f"{len(rows)} of {len(chosen)} problems are in {output}; --seed {seed} goes on.", soft_wrap=True)
    raise typer.Exit(0 if passed else 1)


def _measure(
    chosen: list[Problem], seed: int, peers: list[str], output: Path, until: float, console: Console
) -> list[Mapping[str, Any]]:
    """The rows of the problems that are measured until then."""
    from flag_gems_overrides.perf.hunt import Hunter
    from flag_gems_overrides.perf.timing import ThrottledError

    hunter = Hunter(seed, peers)
    recorder = records.Recorder(output, hunter.head, [problem.case.key for problem in chosen])
    rows = recorder.session.rows
    try:
        todo = [problem for problem in chosen if problem.case.key not in rows]
        start = time.monotonic()
        died = beforehand.compile_all(todo, (until - start) * _COMPILING_SHARE)
        console.print(
            f"compiled for {time.monotonic() - start:.0f} s in {beforehand.processes()} processes", soft_wrap=True
        )
        for (key, name), why in died.items():
            console.print(f"{key}: {name}: {why}", markup=False, soft_wrap=True)
        start, measured = time.monotonic(), 0
        for problem in todo:
            if time.monotonic() > until:
                break
            try:
                recorder.row(hunter.measure(problem, died))
                measured += 1
            except ThrottledError as error:
                console.print(f"{problem.case.key}: {error}", markup=False, soft_wrap=True)
        console.print(f"measured {measured} problems in {time.monotonic() - start:.0f} s")
    except beforehand.ContextLostError as error:
        console.print(str(error), markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("Interrupted.")
    finally:
        recorder.close()
    return [rows[problem.case.key] for problem in chosen if problem.case.key in rows]


def _show(rows: Iterable[Mapping[str, Any]], console: Console) -> bool:
    """Losses worst first, wrong answers, and counts by family; returns whether the gate is passed."""
    from flag_gems_overrides.perf.hunt import result, tallies

    results = sorted(map(result, rows), key=lambda each: each.ratio)
    losses = [each for each in results if each.is_loss]
    if losses:
        table = Table("problem", "us", "best", "us of best", "best / us")
        for each in losses[:_MOST_LOSSES_SHOWN]:
            table.add_row(each.key, f"{each.us:.2f}", each.best, f"{each.best_us:.2f}", f"{each.ratio:.3f}")
        console.print(table)
        if len(losses) > _MOST_LOSSES_SHOWN:
            console.print(f"and {len(losses) - _MOST_LOSSES_SHOWN} more")
    for each in results:
        if each.error:
            console.print(f"{each.key}: {each.error}", markup=False, soft_wrap=True)
    table = Table("family", "problems", "with compile", "losses", "within 3 % or 0.25 us", "worst ratio", "wrong")
    counted = tallies(row for row in rows)
    for tally in counted:
        numbers = (tally.problems, tally.compiled, tally.losses, f"{tally.share:.1%}", f"{tally.worst:.3f}")
        table.add_row(tally.name, *map(str, numbers), str(tally.wrong))
    console.print(table)
    return bool(counted) and all(tally.passes for tally in counted)
