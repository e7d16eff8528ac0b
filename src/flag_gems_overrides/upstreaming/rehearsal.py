# SPDX-License-Identifier: Apache-2.0
"""Upstream's own tests of the operators: on its tree as it is, with the overrides, with the fixes, with all patches."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from flag_gems_overrides.upstreaming.exchange import PatchesError, paired, put
from flag_gems_overrides.upstreaming.git import apply_mail, git, worktree
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.series import Patch, series

VARIANTS = ("bare", "overrides", "fixes", "patched")

# Upstream's tests of a module where they have other names.
_FILES = {
    "_fused_rms_norm": ("fused_rms_norm",),
    "_is_all_true": ("is_all_true",),
    "layernorm": ("layer_norm",),
    "groupnorm": ("group_norm",),
    "skip_layernorm": ("skip_layer_norm",),
    "nllloss": ("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward", "nll_loss_nd"),
}


class Outcome(NamedTuple):
    """What became of one test: ``"passed"``, ``"failed"``, ``"skipped"`` or, where pytest ended early,
    ``"unfinished"``; and the first line of why."""

    verdict: str
    why: str = ""


Outcomes = Mapping[str, Outcome]


class Difference(NamedTuple):
    """A test that does not pass or skip alike everywhere.

    Attributes:
        outcomes: by variant.
        reason: why the difference is expected; None if no reason is recorded.
    """

    test: str
    outcomes: Mapping[str, Outcome]
    reason: str | None


def rehearse(
    line: Line, folder: Path, checkout: Path, words: Iterable[str], seconds: float | None = None
) -> dict[str, Outcomes]:
    """The outcomes of upstream's tests at the line's base by variant.

    Args:
        words: further arguments of pytest, such as ``["-n", "auto"]``.
        seconds: after which a variant ends, with the outcomes that are known by then.

    Raises:
        PatchesError: pytest did not get to the tests; the message has its last lines.
        GitError: a patch does not apply.
    """
    with built(line, checkout) as tree:
        files = [path for path in _test_files(line) if (tree / path).exists()]
        found: dict[str, Outcomes] = {}
        for variant in VARIANTS:
            for patch, path in paired(line, folder):
                if variant == ("patched" if patch.kind == "kernel" else "fixes"):
                    apply_mail(tree, path)
                    files += _tests(patch)
            found[variant] = run_tests(tree, files, variant, words, seconds)
        return found


# What runs with which of a line's patches, as in "kernel" alone, and on whose device.
_PROOFS = (
    (("tests", "fix"), "other vendor"),
    (("tests", "kernel"), "patched"),
    (("tests", "fix", "kernel"), "other vendor"),
    (("tests", "fix", "kernel"), "patched"),
)


def proofs(line: Line, folder: Path, checkout: Path) -> Iterator[str]:
    """Run the tests that the patches bring, and say what fails: with the fixes alone and with all patches as on a
    vendor that is not NVIDIA, with the kernels alone and with all patches as on NVIDIA.

    Raises:
        PatchesError: pytest did not get to the tests, flag_gems cannot be imported for example.
        GitError: a patch does not apply.
    """
    patches = paired(line, folder)
    for kinds, variant in _PROOFS:
        with built(line, checkout) as tree:
            files = []
            for patch, path in patches:
                if patch.kind in kinds:
                    put(tree, patch, path)
                elif patch.kind == "fix":  # the kernels answer its tests too
                    git(tree, "apply", "--include=tests/*", str(path.resolve()))
                if patch.kind == "fix" or (patch.kind in kinds and variant == "patched"):
                    files += _tests(patch)
            what = f"{' and '.join(kinds[1:])} patches, {'NVIDIA' if variant == 'patched' else variant}"
            try:
                outcomes = run_tests(tree, files, variant, [], None)
            except PatchesError as error:
                yield f"{what}: {str(error).strip().splitlines()[-1]}"
                continue
            yield from (f"{what}: {error}" for error in failures(outcomes))


def failures(outcomes: Outcomes) -> list[str]:
    """What failed or was not finished, a line for all cases of a test that did so for the same reason."""
    counts = Counter(
        (test.partition("[")[0], *outcome)
        for test, outcome in outcomes.items()
        if outcome.verdict not in ("passed", "skipped")
    )
    return [
        f"{test}{f' ({count} cases)' if count > 1 else ''}: {verdict} {why}"
        for (test, verdict, why), count in counts.items()
    ]


def _tests(patch: Patch) -> list[str]:
    return [path for path in patch.added if path.startswith("tests/")]


@contextlib.contextmanager
def built(line: Line, checkout: Path) -> Iterator[Path]:
    """A scratch work tree at the line's base that can be imported."""
    with worktree(checkout, line.base) as tree:
        # What a build writes there; without both names the installed package's version counts, and an override that
        # came later than that is left out.
        (tree / "src/flag_gems/_version.py").write_text(f'version = "{line.release}"\ncommit_id = None\n')
        yield tree


def _test_files(line: Line) -> list[str]:
    names = dict.fromkeys(patch.name for patch in series(line) if patch.functions)
    return [f"tests/test_{file}.py" for name in names for file in _FILES.get(name, (name,))]


def run_tests(tree: Path, files: list[str], variant: str, words: Iterable[str], seconds: float | None) -> Outcomes:
    search = os.pathsep.join(filter(None, [str(tree / "src"), os.environ.get("PYTHONPATH", "")]))
    # Not those by which a worker of xdist knows itself, if a test calls this.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    with tempfile.TemporaryDirectory() as scratch:
        report, log = Path(scratch, "outcomes.jsonl"), Path(scratch, "log")
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pytest", "-p", "flag_gems_overrides.upstreaming.stage"),
                    *("-p", "no:cacheprovider", "-q", *files, *words),
                ],
                cwd=tree,
                env={**kept, "PYTHONPATH": search, "GEMS_STAGE": variant, "GEMS_STAGE_OUTCOMES": str(report)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                ended = f"pytest ended with status {process.wait(seconds)}"
            except subprocess.TimeoutExpired:
                ended = "out of time"
            finally:
                # What is left of it, with xdist's workers.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        outcomes = {
            test: outcome._replace(why=ended) if outcome.verdict == "unfinished" else outcome
            for test, outcome in (_read(report) if report.exists() else {}).items()
        }
        if ended != "out of time" and all(outcome.verdict == "unfinished" for outcome in outcomes.values()):
            raise PatchesError(f"{variant}: upstream's tests did not run:\n{log.read_text()[-2000:]}")
        return outcomes


def _read(report: Path) -> Outcomes:
    """The last outcome of each test in a file of the stage's."""
    rows = [json.loads(row) for row in report.read_text().splitlines()]
    return {test: Outcome(verdict, why) for test, verdict, why in rows}


def differences(line: Line, found: Mapping[str, Outcomes]) -> list[Difference]:
    """The tests whose outcome is not the same in every variant that finished them, or that fail in all of them."""
    rows = []
    for test in dict.fromkeys(test for outcomes in found.values() for test in outcomes):
        outcomes = {variant: found[variant][test] for variant in VARIANTS if test in found[variant]}
        verdicts = {outcome.verdict for outcome in outcomes.values()} - {"unfinished"}
        if len(verdicts) > 1 or "failed" in verdicts:
            rows.append(Difference(test, outcomes, _reason(line, test, outcomes)))
    return rows


def _reason(line: Line, test: str, outcomes: Mapping[str, Outcome]) -> str | None:
    bad = [variant for variant, outcome in outcomes.items() if outcome.verdict == "failed"]
    if bad == ["bare"]:
        return "upstream's own defect"
    known = [why for pattern, variants, why in line.differences if re.search(pattern, test) and bad == list(variants)]
    return known[0] if known else None
