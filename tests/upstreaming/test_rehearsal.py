# SPDX-License-Identifier: Apache-2.0
"""Upstream's own tests, three times; here, what is made of their outcomes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from flag_gems_overrides.cli import app
from flag_gems_overrides.upstreaming import rehearsal
from flag_gems_overrides.upstreaming.lines import LINES
from flag_gems_overrides.upstreaming.rehearsal import Outcome, differences

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed", "AssertionError: no"), Outcome("skipped")
LINE = LINES["v5.0.2"]._replace(differences=(("half", ("overrides",), "the test asks for half"),))


def found(bare: Outcome, overrides: Outcome, patched: Outcome, test: str = "test_max::test_max") -> dict:
    return {"bare": {test: bare}, "overrides": {test: overrides}, "patched": {test: patched}}


def test_what_passes_or_is_skipped_alike_is_no_difference() -> None:
    assert differences(LINE, found(PASSED, PASSED, PASSED)) == []
    assert differences(LINE, found(SKIPPED, SKIPPED, SKIPPED)) == []
    assert differences(LINE, {"bare": {}, "overrides": {}, "patched": {"test_max_as_pytorch::test_x1": PASSED}}) == []


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        (found(FAILED, PASSED, PASSED), "upstream's own defect"),
        (found(PASSED, FAILED, PASSED), None),
        (found(PASSED, FAILED, PASSED, "test_layer_norm::test_half"), "the test asks for half"),
        (found(PASSED, FAILED, FAILED, "test_layer_norm::test_half"), None),
        (found(FAILED, FAILED, FAILED), None),
        (found(PASSED, PASSED, SKIPPED), None),
    ],
)
def test_a_difference_has_a_reason_or_none(outcomes: dict, reason: str | None) -> None:
    (row,) = differences(LINE, outcomes)
    assert row.reason == reason


def test_outcomes_are_read_from_pytests_report() -> None:
    report = ElementTree.fromstring(
        '<testsuites><testsuite><testcase classname="tests.test_max" name="test_a[1]"/>'
        '<testcase classname="tests.test_max" name="test_b"><failure message="AssertionError: 1&#10;more"/></testcase>'
        '<testcase classname="tests.test_max" name="test_c"><skipped message="no"/></testcase></testsuite></testsuites>'
    )
    assert dict(rehearsal._outcomes(report)) == {
        "test_max::test_a[1]": PASSED,
        "test_max::test_b": Outcome("failed", "AssertionError: 1"),
        "test_max::test_c": Outcome("skipped", "no"),
    }


def test_a_failure_without_a_known_reason_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["patches", "rehearse", "--line=v5.0.2", "--checkout=.", "--", "-n", "4"]
    asked = []

    def rehearse(line, folder, checkout, words):
        asked.append(words)
        return outcomes

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    outcomes = found(FAILED, PASSED, PASSED)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "v5.0.2 bare: 1 failed" in result.output
    assert "test_max::test_max: upstream's own defect" in result.output
    assert asked == [["-n", "4"]]
    outcomes = found(PASSED, PASSED, FAILED)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "NO REASON KNOWN" in result.output
    assert "patched: failed AssertionError: no" in result.output


@pytest.mark.parametrize("variant", rehearsal.VARIANTS)
def test_the_stage_installs_the_overrides_if_it_is_told_to(tmp_path: Path, variant: str) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "import flag_gems, pytest\n"
        "def test_it():\n"
        f"    assert ('override' in flag_gems.max.__code__.co_filename) is {variant == 'overrides'}\n"
        "@pytest.mark.parametrize('shape', [(2, 3), (4000, 5000)])\n"
        "def test_size(shape): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "flag_gems_overrides.upstreaming.stage", str(test)],
        cwd=tmp_path,
        env={**os.environ, "GEMS_STAGE": variant, "GEMS_STAGE_LIMIT": "1000"},
        capture_output=True,
        text=True,
    )
    assert "2 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
