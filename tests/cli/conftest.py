# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from perf import rows
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app

from .made import write_record


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Run a command in an empty folder, in this process, where flag_gems is loaded already."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        # Wide enough for the usage of a wrong option.
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "240"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, " ".join(result.output.split())

    return call


@pytest.fixture
def record(tmp_path):
    return write_record(tmp_path / "record.jsonl", rows.timed(override=1.0, native=2.0))


@pytest.fixture
def shapes(tmp_path):
    """A shape file where the commands look for one."""
    path = tmp_path / "benchmark" / "core_shapes.yaml"
    path.parent.mkdir()
    path.write_text(
        "softmax: {core: [{shape: [4096, 4096], dim: 1}], comprehensive: [{shape: [8, 8], dim: 1}], "
        "interpreter: [{shape: [64, 256], dim: 1}]}"
    )
    return path
