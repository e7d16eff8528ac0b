# SPDX-License-Identifier: Apache-2.0
"""Plant faults in what judges, reports, registers and sends upstream; its tests must notice: tox run -e mutation.

    python tests/faults/judges.py [--count N | --all] [--seed S] [--again] [PATTERN...]

mutmut makes the faults of the modules that pyproject.toml names and runs for each the tests that reach it. PATTERN is
of a fault as ``show`` writes it, as in "perf.gates.*"; of all that match, N are drawn. A function that nobody edits
keeps its lot, so that a change elsewhere draws no others.

What was tried is kept in the folder ``mutants`` until its function is edited: the same command goes on where it was
interrupted. --again tries once more what no test noticed, for example with a new test.

The exit status is 1 if a fault is not noticed for which unnoticed.py has no reason.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

COUNT, SEED = 300, 26
PACKAGE = "flag_gems_overrides."
MUTANTS = Path("mutants/src")


class Fault(NamedTuple):
    """One change of one function.

    Attributes:
        name: mutmut's.
        before: the lines that it changes, on one line.
        status: what became of it, in mutmut's words; "not checked" before it was tried.
    """

    name: str
    before: str
    after: str
    status: str

    @property
    def function(self) -> str:
        """As in ``perf.gates._times``, and ``perf.results.Result.ratio`` of a method."""
        module, _, function = self.name.partition("__mutmut_")[0].rpartition(".")
        return f"{module.removeprefix(PACKAGE)}.{re.sub('^x_?', '', function).replace('ǁ', '.').lstrip('.')}"

    @property
    def noticed(self) -> bool:
        return self.status not in ("survived", "no tests", "not checked", "skipped")

    def show(self) -> str:
        return f"{self.function}: {self.before} -> {self.after}"


def make() -> None:
    """Write the faults into the folder ``mutants``; what is known of those that are there stays known."""
    import mutmut.__main__ as mutmut

    mutmut.set_mutant_under_test("mutant_generation")
    Path("mutants").mkdir(exist_ok=True)
    with mutmut.CatchOutput(spinner_title="Generating mutants"):
        for step in (mutmut.copy_src_dir, mutmut.copy_also_copy_files, mutmut.setup_source_paths):
            step()
        mutmut.create_mutants(1)
    refresh()


def refresh() -> None:
    """Copy what is no Python, as templates are; mutmut does so once, and not again when it was edited."""
    for path in Path("src").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            target = "mutants" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def faults() -> Iterator[Fault]:
    """All that are in the folder ``mutants``."""
    from mutmut.stats import status_by_exit_code

    for path in sorted(MUTANTS.rglob("*.py.meta")):
        source = path.with_suffix("")
        lines = source.read_text().splitlines()
        spans = json.loads(source.with_suffix(".py.spans").read_text())["spans"]
        for name, code in json.loads(path.read_text())["exit_code_by_key"].items():
            function = name.rpartition(".")[2]
            right = f"{function.partition('__mutmut_')[0]}__mutmut_orig"
            texts = [[line.replace(each, "") for line in lines[slice(*spans[each])]] for each in (right, function)]
            yield Fault(name, *differing(*texts), status_by_exit_code[code])


def differing(before: list[str], after: list[str]) -> tuple[str, str]:
    """What two versions of some lines do not have in common, each on one line."""
    head = _alike(before, after)
    tail = _alike(before[head:][::-1], after[head:][::-1])
    one, other = (" ".join(line.strip() for line in lines[head : len(lines) - tail]) for lines in (before, after))
    return one, other


def _alike(one: list[str], other: list[str]) -> int:
    """How many lines are the same at the start of both."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def drawn(known: list[Fault], count: int, seed: int) -> list[Fault]:
    """So many of them, always the same ones."""
    return sorted(known, key=lambda fault: hashlib.sha256(f"{seed} {fault.name}".encode()).digest())[:count]


def try_out(names: list[str]) -> None:
    """Run the tests that reach each of these faults, the short ones first: most faults are noticed by any."""
    import mutmut.__main__ as mutmut
    from mutmut.runners.harness import PytestRunner
    from mutmut.state import state
    from mutmut.workers.isolation import ForkServerRunner

    submit, run_clean_tests = ForkServerRunner.submit, ForkServerRunner.run_clean_tests
    known = Path("mutants/mutmut-stats.json").exists()

    def shortest_first(runner: ForkServerRunner, name: str, tests: list[str], *limits: float) -> None:
        submit(runner, name, sorted(tests, key=state().duration_by_test.__getitem__), *limits)

    def once(runner: ForkServerRunner, tests: set[str]) -> int:
        """Without a fault all tests must pass. If they were not known before, all have passed a moment ago."""
        return run_clean_tests(runner, sorted(tests)) if known else 0

    def shown(operation: Callable[..., int]) -> Callable[..., int]:
        """pytest's own words, which mutmut keeps from a terminal: they name a test that fails without a fault."""

        def show(*args: object, **options: object) -> int:
            if os.environ["MUTANT_UNDER_TEST"] in ("", "stats"):
                sys.stdout = sys.__stdout__  # of this child process, until it ends
            return operation(*args, **options)

        return show

    ForkServerRunner.submit, ForkServerRunner.run_clean_tests = shortest_first, once
    PytestRunner.run_stats, PytestRunner.run_tests = map(shown, (PytestRunner.run_stats, PytestRunner.run_tests))
    mutmut._run(names, int(os.environ.get("MUTATION_CHILDREN") or os.cpu_count() or 1))


def report(tried: list[Fault]) -> int:
    """Print the count, and what no test notices and nothing explains; how many that are."""
    from faults.unnoticed import reason

    packages = sorted({fault.function.partition(".")[0] for fault in tried})
    rows = [(package, [fault for fault in tried if fault.function.startswith(f"{package}.")]) for package in packages]
    print(f"{'':12} {'tried':>6} {'noticed':>8} {'with a reason':>14} {'without':>8}")
    for title, chosen in [*rows, ("all", tried)]:
        left = [fault for fault in chosen if not fault.noticed]
        without = sum(reason(fault) is None for fault in left)
        print(f"{title:12} {len(chosen):6} {len(chosen) - len(left):8} {len(left) - without:14} {without:8}")
    left = [fault for fault in tried if not fault.noticed]
    for why, number in Counter(filter(None, map(reason, left))).most_common():
        print(f"{number:6}  {why}")
    unexplained = [fault for fault in left if reason(fault) is None]
    for fault in sorted(unexplained, key=Fault.show):
        print(f"{fault.status}: {fault.show()}    [{fault.name}]")
    return len(unexplained)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("patterns", nargs="*", default=["*"])
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from faults.unnoticed import matches

    make()
    every = [fault for fault in faults() if any(matches(fault.show(), pattern) for pattern in options.patterns)]
    chosen = every if options.all else drawn(every, options.count, options.seed)
    untried = [fault for fault in chosen if fault.status == "not checked" or (options.again and not fault.noticed)]
    print(f"{len(chosen)} of {len(every)} faults, {len(chosen) - len(untried)} of them tried before")
    if untried:
        try_out([fault.name for fault in untried])
    names = {fault.name for fault in chosen}
    sys.exit(report([fault for fault in faults() if fault.name in names]) > 0)


if __name__ == "__main__":
    main()
