# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from flag_gems_overrides.upstreaming import checks, exchange, rehearsal, series
from flag_gems_overrides.upstreaming.git import git
from flag_gems_overrides.upstreaming.lines import LINES, Line
from flag_gems_overrides.upstreaming.message import RECORDS

patches = typer.Typer(help="The overrides as patches for FlagGems.", no_args_is_help=True)

Folder = Annotated[Path, typer.Option(help="Folder of the patches.")]
Checkout = Annotated[Path, typer.Option(envvar="FLAGGEMS_CHECKOUT", help="A clone of FlagGems.")]
Name = Annotated[str | None, typer.Option("--line", help=f"{', '.join(LINES)}. [default: all]")]

Kind = Annotated[
    Literal["fix", "kernel", "tests"] | None, typer.Option(help="Portable fixes, or kernels for NVIDIA. [default: all]")
]

FOLDER = Path("patches")


def _lines(name: str | None) -> list[Line]:
    if name is None:
        return list(LINES.values())
    if name not in LINES:
        raise exchange.PatchesError(f"--line: {name!r} is none of {', '.join(LINES)}")
    return [LINES[name]]


@patches.command()
def export(
    checkout: Checkout,
    line: Name = None,
    folder: Folder = FOLDER,
    records: Annotated[Path, typer.Option(help="Records for the tables of performance.")] = RECORDS,
) -> None:
    """Write the patches anew from this package's operators and fixes."""
    for chosen in _lines(line):
        for path in exchange.export(chosen, checkout, folder, records):
            Console(highlight=False).print(f"wrote {path}", soft_wrap=True)


@patches.command()
def check(
    checkout: Annotated[
        Path | None, typer.Option(envvar="FLAGGEMS_CHECKOUT", help="A clone of FlagGems to apply the patches to.")
    ] = None,
    line: Name = None,
    folder: Folder = FOLDER,
) -> None:
    """Say whether the patches are what export would write and, if so, whether they apply, all and each by itself, and
    pass the tests that they bring on NVIDIA and, the fixes, on another vendor. Exit status 1 if not."""
    console = Console(highlight=False)
    wrong = False
    if checkout is not None:
        git(checkout, "rev-parse", "--git-dir")  # rather now than after the comparison
    for chosen in _lines(line):
        found = [f"{path} is not what export would write" for path in exchange.drift(chosen, folder)]
        if checkout is not None and not found:
            found += exchange.check(chosen, folder, checkout)
            found += rehearsal.proofs(chosen, folder, checkout)
        for error in found:
            console.print(f"{chosen.name}: {error}", markup=False, soft_wrap=True)
        if not found:
            applied = "" if checkout is None else f", applies at {chosen.base[:9]}, and passes its tests"
            console.print(f"{chosen.name}: as export would write it{applied}", soft_wrap=True)
        wrong |= bool(found)
    raise typer.Exit(wrong)


@patches.command()
def apply(
    target: Annotated[Path, typer.Argument(help="A new folder; the copy is below it, in src.")],
    folder: Folder = FOLDER,
    kind: Kind = None,
) -> None:
    """Copy the installed flag_gems, and apply the patches to the copy."""
    print(exchange.apply(folder, target, kind))


@patches.command()
def rehearse(
    checkout: Checkout,
    line: Name = None,
    folder: Folder = FOLDER,
    seconds: Annotated[
        float | None, typer.Option(help="For each of the four runs; what is not finished then counts as such.")
    ] = None,
    words: Annotated[list[str] | None, typer.Argument(help="For pytest, behind --, as in `-- -n auto`.")] = None,
) -> None:
    """Run upstream's own tests at the base: as they are, with the overrides, with the fixes, with all patches.

    Exit status 1 if a test fails for which no reason is known, or is not finished.
    """
    console = Console(highlight=False)
    wrong = False
    for chosen in _lines(line):
        found = rehearsal.rehearse(chosen, folder, checkout, words or [], seconds)
        for variant, outcomes in found.items():
            counts = Counter(outcome.verdict for outcome in outcomes.values())
            console.print(f"{chosen.name} {variant}: " + ", ".join(f"{n} {v}" for v, n in sorted(counts.items())))
            wrong |= "unfinished" in counts
        for row in rehearsal.differences(chosen, found):
            console.print(f"{chosen.name} {row.test}: {row.reason or 'NO REASON KNOWN'}", markup=False, soft_wrap=True)
            for variant, outcome in row.outcomes.items():
                console.print(f"    {variant}: {outcome.verdict} {outcome.why}", markup=False, soft_wrap=True)
            wrong |= row.reason is None
    raise typer.Exit(wrong)


@patches.command()
def branch(
    checkout: Checkout,
    line: Annotated[str, typer.Option(help=f"{', '.join(LINES)}.")] = "main",
    op: Annotated[str | None, typer.Option(help="Upstream's ops module, as in layernorm. [default: all]")] = None,
    kind: Kind = None,
    onto: Annotated[str | None, typer.Option(help="Commit of the clone. [default: the line's base]")] = None,
    folder: Folder = FOLDER,
) -> None:
    """Make a branch per pull request in a clone of FlagGems, each with what it stands on, and print the bodies."""
    for name, body in exchange.branch(_lines(line)[0], folder, checkout, op, kind, onto):
        Console(highlight=False).print(f"branch {name}\n\n{body}", markup=False, soft_wrap=True)


@patches.command()
def status(
    checkout: Checkout,
    line: Name = None,
    on: Annotated[
        list[str] | None, typer.Option(help="Commits or branches of the clone. [default: the line's base, and HEAD]")
    ] = None,
    folder: Folder = FOLDER,
) -> None:
    """Say of each patch its size, what it stands on, whether it applies or is merged already, and upstream's issues."""
    from flag_gems_overrides.upstreaming import standing

    for chosen in _lines(line):
        for row in standing.standings(chosen, folder, checkout, on or [chosen.base, "HEAD"]):
            where = ", ".join(f"{verdict} at {commit[:12]}" for commit, verdict in row.verdicts.items())
            print(f"{chosen.name} {row.patch.id}: {row.size.code} lines, {row.size.tests} of tests; {where}")
            for what, names in (
                ("stands on", row.patch.stands_on),
                ("resolves", row.resolves),
                ("overlaps", row.associated),
            ):
                if names:
                    print(f"    {what} {', '.join(names)}")
        for module, why in series.without_fix(chosen).items():
            print(f"{chosen.name} {module}-fix: only NVIDIA's kernel answers its defects; {why}")


@patches.command()
def upstream(
    checkout: Checkout,
    line: Name = None,
    folder: Folder = FOLDER,
    kind: Kind = None,
    words: Annotated[list[str] | None, typer.Argument(help="For pytest, behind --, as in `-- -n 2`.")] = None,
) -> None:
    """Run upstream's own checks on a patched tree: its pre-commit hooks, its list of operators, and the tests that
    change, as its CI runs them: all, and in quick mode beside the CPU. Exit status 1 if one fails."""
    wrong = False
    for chosen in _lines(line):
        passes = True
        for error in checks.run(chosen, folder, checkout, kind, words or []):
            Console(highlight=False).print(f"{chosen.name}: {error}", markup=False, soft_wrap=True)
            passes = False
        if passes:
            print(f"{chosen.name}: passes upstream's checks")
        wrong |= not passes
    raise typer.Exit(wrong)
