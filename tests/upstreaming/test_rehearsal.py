# SPDX-License-Identifier: Apache-2.0
"""Upstream's own tests, with and without patches; here, what is made of their outcomes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.upstreaming import exchange, rehearsal, series
from flag_gems_overrides.upstreaming.exchange import PatchesError
from flag_gems_overrides.upstreaming.git import git
from flag_gems_overrides.upstreaming.lines import LINES, Line
from flag_gems_overrides.upstreaming.rehearsal import Outcome, differences

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed", "AssertionError: no"), Outcome("skipped")
UNFINISHED = Outcome("unfinished")
LINE = LINES["v5.0.2"]._replace(differences=(("half", ("overrides",), "the test asks for half"),))


def found(bare: Outcome, overrides: Outcome, patched: Outcome, test: str = "test_max::test_max") -> dict:
    return {"bare": {test: bare}, "overrides": {test: overrides}, "fixes": {test: patched}, "patched": {test: patched}}


def test_what_passes_or_is_skipped_alike_is_no_difference() -> None:
    assert differences(LINE, found(PASSED, PASSED, PASSED)) == []
    assert differences(LINE, found(SKIPPED, SKIPPED, SKIPPED)) == []
    assert differences(LINE, found(PASSED, PASSED, UNFINISHED)) == []
    assert (
        differences(
            LINE, {"bare": {}, "overrides": {}, "fixes": {}, "patched": {"test_max_as_pytorch::test_x1": PASSED}}
        )
        == []
    )


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        (found(FAILED, PASSED, PASSED), "upstream's own defect"),
        (found(PASSED, FAILED, PASSED), None),
        (found(PASSED, FAILED, PASSED, "test_layer_norm::test_half"), "the test asks for half"),
        (found(PASSED, FAILED, FAILED, "test_layer_norm::test_half"), None),
        (found(FAILED, FAILED, FAILED), None),
        (found(PASSED, PASSED, SKIPPED), None),
        (found(UNFINISHED, PASSED, FAILED), None),
    ],
)
def test_a_difference_has_a_reason_or_none(outcomes: dict, reason: str | None) -> None:
    (row,) = differences(LINE, outcomes)
    assert row.reason == reason


# As upstream's of 5.0.2 does it.
CONFTEST = """
TEST_RESULTS = {}
def pytest_runtest_protocol(item):
    TEST_RESULTS[item.nodeid] = {}
def pytest_runtest_logreport(report):
    TEST_RESULTS[report.nodeid]["result"] = report.outcome
"""


def run(tree: Path, text: str, *words: str, seconds: float | None = None) -> rehearsal.Outcomes:
    (tree / "tests").mkdir()
    (tree / "tests/conftest.py").write_text(CONFTEST)
    (tree / "tests/test_max.py").write_text(text)
    return rehearsal.run_tests(tree, ["tests/test_max.py"], "bare", words, seconds)


def test_outcomes_are_what_pytest_says(tmp_path: Path) -> None:
    text = """
import pytest
@pytest.mark.parametrize("n", [1])
def test_a(n): pass
def test_b(): assert 1 == 2, "no"
def test_c(): pytest.skip("not today")
@pytest.fixture
def broken(): raise ValueError("two\\nlines")
def test_d(broken): pass
"""
    assert run(tmp_path, text) == {
        "test_max::test_a[1]": PASSED,
        "test_max::test_b": Outcome("failed", "AssertionError: no"),
        "test_max::test_c": Outcome("skipped", "not today"),
        "test_max::test_d": Outcome("failed", "ValueError: two"),
    }


def test_a_run_out_of_time_keeps_what_it_finished(tmp_path: Path) -> None:
    text = """
import time
def test_a(): pass
def test_b():
    time.sleep(600)
def test_c(): pass
"""
    assert run(tmp_path, text, "-n", "1", seconds=20) == {
        "test_max::test_a": PASSED,
        "test_max::test_b": Outcome("unfinished", "out of time"),
        "test_max::test_c": Outcome("unfinished", "out of time"),
    }


def test_a_run_whose_process_died_keeps_what_it_finished(tmp_path: Path) -> None:
    outcomes = run(tmp_path, "import os\ndef test_a(): pass\ndef test_b(): os._exit(3)\n")
    assert outcomes == {
        "test_max::test_a": PASSED,
        "test_max::test_b": Outcome("unfinished", "pytest ended with status 3"),
    }


def test_a_run_without_tests_says_why(tmp_path: Path) -> None:
    with pytest.raises(PatchesError, match=r"(?s)bare: upstream's tests did not run.*SyntaxError"):
        run(tmp_path, "def")


def test_a_failure_without_a_known_reason_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["patches", "rehearse", "--line=v5.0.2", "--checkout=.", "--seconds=50", "--", "-n", "4"]
    asked = []

    def rehearse(line, folder, checkout, words, seconds):
        asked.append((words, seconds))
        return outcomes

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    outcomes = found(FAILED, PASSED, PASSED)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "v5.0.2 bare: 1 failed" in result.output
    assert "test_max::test_max: upstream's own defect" in result.output
    assert asked == [(["-n", "4"], 50)]
    outcomes = found(PASSED, PASSED, FAILED)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "NO REASON KNOWN" in result.output
    assert "patched: failed AssertionError: no" in result.output
    outcomes = found(PASSED, PASSED, UNFINISHED)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "v5.0.2 patched: 1 unfinished" in result.output


@pytest.mark.usefixtures("unformatted")
def test_each_variant_has_the_patches_of_its_name_and_their_tests(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    own = "tests/test_max.py"  # upstream's; it has none of the other operators
    (checkout / "tests").mkdir()
    (checkout / own).write_text("")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=tests")
    line = line._replace(base=git(checkout, "rev-parse", "HEAD").strip())
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    runs = {}

    def run(tree, files, variant, words, seconds):
        fixed = "2" in (tree / "src/flag_gems/ops/max.py").read_text()
        kernels = (tree / series.FOLDER / "max.py").exists()
        assert all((tree / file).exists() for file in files)
        assert len(files) == len(set(files))
        assert (words, seconds) == (["-x"], 7)
        runs[variant] = (fixed, kernels, list(files))
        return {"test_a": PASSED}

    monkeypatch.setattr(rehearsal, "run_tests", run)
    found = rehearsal.rehearse(line, tmp_path / "patches", checkout, ["-x"], 7)
    assert found == {variant: {"test_a": PASSED} for variant in rehearsal.VARIANTS}
    fixes = [own, "tests/test_max_as_pytorch.py"]
    assert runs["bare"] == runs["overrides"] == (False, False, [own])
    assert runs["fixes"] == (True, False, fixes)
    fixed, kernels, files = runs["patched"]
    assert (fixed, kernels, files[:2]) == (True, True, fixes)
    assert {"tests/test_max_sizes.py", "tests/test_cumsum_sizes.py"} < set(files)


# Two of the four, for the others' trees are patched and their stage is that of "bare".
@pytest.mark.parametrize("variant", ["bare", "overrides"])
def test_the_stage_installs_the_overrides_if_it_is_told_to(tmp_path: Path, variant: str) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "import flag_gems, pytest\n"
        "def test_it():\n"
        f"    assert ('override' in flag_gems.max.__code__.co_filename) is {variant == 'overrides'}\n"
        "@pytest.mark.parametrize('shape', [(2, 3), (4000, 5000)])\n"
        "def test_size(shape): pass\n"
        "def test_fused_rms_norm_backward_sizes(): assert False, 'PyTorch has it for CUDA alone'\n"
        "def test_softmax_sizes(): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "flag_gems_overrides.upstreaming.stage", str(test)],
        cwd=tmp_path,
        env={**os.environ, "GEMS_STAGE": variant, "GEMS_STAGE_LIMIT": "1000"},
        capture_output=True,
        text=True,
    )
    assert "3 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
