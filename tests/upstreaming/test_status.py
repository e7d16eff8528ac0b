# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError

import pytest
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.upstreaming import status
from flag_gems_overrides.upstreaming.defects import DEFECTS, FIXED


def observed(outcomes: dict[str, str]):
    """A stand-in for the process that runs the reproductions; all others fail."""
    return lambda ids: {id: outcomes.get(id, "AssertionError: wrong") for id in ids}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(status, "backend", lambda: "interpreter")
    monkeypatch.setenv("COLUMNS", "150")

    def run(observe) -> tuple[int, str]:
        monkeypatch.setattr(status, "observe", observe)
        result = CliRunner().invoke(app, ["status"])
        return result.exit_code, result.output

    return run


def test_each_defect_has_a_line_with_its_verdict(command) -> None:
    code, output = command(observed({"P6": FIXED}))
    assert code == 0
    found = re.findall(r"^(\w+) (fixed|present|not visible here): ", output, re.MULTILINE)
    assert {id for id, _ in found} == set(DEFECTS)
    verdicts = dict(found)
    assert verdicts["P6"] == "fixed"
    assert verdicts["P5"] == "present"
    assert verdicts["L6"] == "not visible here"
    assert f"not visible here: {DEFECTS['L6'].hidden}" in output
    assert "#5392" in output


def test_overrides_that_nothing_needs_any_more_are_named(command) -> None:
    assert "needs these overrides" not in command(observed({}))[1]
    fixed = {row.id: FIXED for row in DEFECTS.values() if "prod_dim" in row.functions}
    assert command(observed(fixed))[1].rstrip().endswith("any more: prod_dim")


def test_a_flag_gems_that_cannot_be_tried_is_an_error_with_its_reason(command) -> None:
    def cannot_start(ids):
        raise RuntimeError("the reproductions did not start:\nImportError: no")

    code, output = command(cannot_start)
    assert code == 2
    assert "ImportError: no" in output


def test_without_flag_gems_it_says_how_to_come_by_one(command, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("flag_gems_overrides.cli.status.version", version)
    code, output = command(observed({}))
    assert code == 2
    assert output.startswith("error: flag_gems is not installed: pip install flag_gems; 4.2.0, ")
