# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from flag_gems_overrides.cli import _device
from flag_gems_overrides.cli._options import console, say
from flag_gems_overrides.errors import UserError
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import beforehand, records
from flag_gems_overrides.perf.cases import check, parse
from flag_gems_overrides.perf.losses import result
from flag_gems_overrides.perf.problems import Problem, problems
from flag_gems_overrides.words import many

HUNTED = Path("benchmark/hunted_shapes.yaml")
_MAX_LOSSES_SHOWN, _MAX_DISTANCES_SHOWN = 60, 20


def hunt(
    ops: Annotated[list[str] | None, typer.Argument(help="Ops by their flag_gems name; all if none.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random problems. [default: a new one]")] = None,
    count: Annotated[int, typer.Option(min=1, help="Problems for each family of ops.")] = 300,
    peers: Annotated[list[str] | None, typer.Option(help="Beside native and upstream: compile.")] = None,
    # Most losses are to torch.compile: hunt 5801 had it beside all of 1143 problems and lost 31. Beside a third of them
    # a hunt takes 15 % longer than beside a seventh.
    compile_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of problems with --peers compile.", show_default="1/3")
    ] = 1 / 3,
    seconds: Annotated[float, typer.Option(min=1, help="Stop after so many; the same command resumes.")] = 3600,
    output: Annotated[Path | None, typer.Option(help="Record to append to. [default: hunt-SEED.jsonl]")] = None,
    again: Annotated[list[Path] | None, typer.Option(help="Measure what is a loss in this record instead.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help=f"Add the losses to {HUNTED}.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the problems and stop.")] = False,
) -> None:
    """Measure random problems beside PyTorch, upstream and torch.compile. Needs a GPU.

    Exit status 1 if an answer is wrong, if less than 95 % of the problems are within 3 % or 0.25 us of the best
    provider, or if one of them takes more than 1 / 0.7 of its time. Ctrl-C keeps what is done."""
    started = time.monotonic()
    for op in ops or ():
        check("op", op, tuple(OPERATORS))
    for peer in peers or ():
        check("--peers", peer, (beforehand.COMPILE,))
    ops = ops or list(OPERATORS)
    if again:
        chosen, command = _losses(again, ops, bool(peers)), "hunt --again"
        say(f"{many(len(chosen), 'problem')} to measure again")
        if not chosen:
            return
    else:
        seed = random.SystemRandom().randrange(10**6) if seed is None else seed
        chosen, command = problems(ops, count, seed, compile_share if peers else 0), f"hunt --seed {seed}"
        families = list(dict.fromkeys(problem.family for problem in chosen))
        say(f"--seed {seed}: {many(len(chosen), 'problem')}, {count} for each family: {', '.join(families)}")
    if dry_run:
        for problem in chosen:
            say(f"{problem.case.key}{'  torch.compile' if problem.compiled else ''}")
        return
    import torch

    if not torch.cuda.is_available():
        raise UserError("no GPU: there is nothing to time; --dry-run lists the problems")
    beforehand.share_caches()
    _device.prepare()
    from flag_gems_overrides.perf import hunt as hunting

    output = output or Path("hunt-again.jsonl" if again else f"hunt-{seed}.jsonl")
    rows, copy_gbps = _measure(chosen, command, peers or [], output, started + seconds)
    passed = _show(rows, copy_gbps)
    if keep:
        losses = [parse(each.key) for each in map(result, rows) if each.is_loss]
        say(f"{many(hunting.keep(HUNTED, losses), 'new shape')} in {HUNTED}")
    if len(rows) < len(chosen):
        same = "the same command" if again else f"the same command with --seed {seed}"
        say(f"{len(rows)} of {many(len(chosen), 'problem')} in {output}; {same} resumes")
    raise typer.Exit(0 if passed else 1)


def _losses(paths: Iterable[Path], ops: Collection[str], compiled: bool) -> list[Problem]:
    """The problems of ``ops`` that are losses. Of a problem that is there several times the last row counts."""
    rows = {key: row for path in paths for session in records.read(path) for key, row in session.rows.items()}
    cases = [parse(row["key"]) for row in rows.values() if result(row).is_loss]
    return [Problem(OPERATORS[case.op].family, case, compiled) for case in cases if case.op in ops]


def _measure(
    chosen: list[Problem], command: str, peers: list[str], output: Path, until: float
) -> tuple[list[Mapping[str, Any]], float]:
    """The rows of the problems that are measured until then, and the GB/s of a copy."""
    from flag_gems_overrides.perf.hunt import Hunter
    from flag_gems_overrides.perf.timing import ThrottledError

    hunter = Hunter(command, peers)
    recorder = records.Recorder(output, hunter.head, [problem.case.key for problem in chosen])
    rows = recorder.session.rows
    try:
        todo = [problem for problem in chosen if problem.case.key not in rows]
        start, measured = time.monotonic(), 0
        compiled = beforehand.compiled(todo, until - start)
        while True:
            with hunter.timed_as("waiting for compilers"):
                following = next(compiled, None)
            # What comes late may not be compiled: upstream's tuners can take minutes for it.
            if following is None or time.monotonic() >= until:
                break
            problem, prepared = following
            for name, why in prepared.died.items():
                say(f"{problem.case.key}: {name}: {why}")
            try:
                recorder.row(hunter.measure(problem, prepared))
                measured += 1
            except ThrottledError as error:
                say(f"{problem.case.key}: {error}")
        steps = ", ".join(f"{step} {seconds:.0f}" for step, seconds in hunter.seconds.items())
        say(f"measured {many(measured, 'problem')} in {time.monotonic() - start:.0f} s: {steps}")
    except beforehand.ContextLostError as error:
        say(str(error))
    except KeyboardInterrupt:
        say("Interrupted.")
    finally:
        recorder.close()
    found: list[Mapping[str, Any]] = [rows[problem.case.key] for problem in chosen if problem.case.key in rows]
    return found, recorder.session.head["copy_gbps"]


def _show(rows: Iterable[Mapping[str, Any]], copy_gbps: float) -> bool:
    """Losses worst first, what is farthest from the time of its bytes, wrong answers, and counts by family; returns
    whether the gate is passed."""
    from flag_gems_overrides.perf.hunt import distances, tallies
    from flag_gems_overrides.perf.report import terminal
    from flag_gems_overrides.perf.report.tables import Column, Line, Table

    rows = list(rows)
    results = sorted(map(result, rows), key=lambda each: each.ratio)
    losses = [each for each in results if each.is_loss]
    shown = losses[:_MAX_LOSSES_SHOWN]
    columns = [Column("problem", text=True), Column("us"), Column("best", text=True), Column("its us"), Column("ratio")]
    lines = [
        Line([each.key, f"{each.us:.2f}", each.best or "", f"{each.best_us:.2f}", f"{each.ratio:.3f}"])
        for each in shown
    ]
    notes = [f"and {len(losses) - len(shown)} more"] if len(shown) < len(losses) else []
    made = [Table("1 loss" if len(losses) == 1 else f"{len(losses)} losses", columns, lines, notes)] if losses else []
    columns = [Column("problem", text=True), Column("us"), Column("a launch and a copy"), Column("ratio")]
    lines = [
        Line([each.key, f"{each.us:.2f}", f"{each.floor_us:.2f}", f"{each.ratio:.1f}"])
        for each in distances(rows, copy_gbps)[:_MAX_DISTANCES_SHOWN]
    ]
    made.append(Table("farthest from what their bytes take", columns, lines, []))
    for each in results:
        if each.error:
            say(f"{each.key}: {each.error}")
    counted = tallies(rows)
    names = ("problems", "with compile", "losses", "within 3 % or 0.25 us", "worst ratio", "wrong")
    lines = []
    for tally in counted:
        numbers = (
            tally.problems,
            tally.compiled,
            tally.losses,
            f"{tally.share:.1%}",
            f"{tally.worst:.3f}",
            tally.wrong,
        )
        lines.append(Line([tally.name, *map(str, numbers)]))
    made.append(Table("families", [Column("family", text=True), *map(Column, names)], lines, []))
    terminal.show_tables(made, console())
    return bool(counted) and all(tally.passes for tally in counted)
