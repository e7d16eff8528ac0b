# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.upstreaming import formatting, series
from flag_gems_overrides.upstreaming.git import git
from flag_gems_overrides.upstreaming.imports import PATH
from flag_gems_overrides.upstreaming.lines import LINES, Line

LINE = LINES["v5.0.2"]
# Enough for each kind of patch: a fix, a kernel alone, a family that two operators share, one that a line has not.
MODULES = ("amax", "amin", "cumsum", "max", "softmax", "log_softmax")


@pytest.fixture
def unformatted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches of files as they are, made and checked without formatters."""
    monkeypatch.setattr(formatting, "missing", lambda: "")
    monkeypatch.setattr(formatting, "installed", lambda name: None)
    monkeypatch.setattr(formatting, "format_files", lambda root, paths, *options: None)


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Line]:
    """A repository with as much of FlagGems as the patches change, and the line that it is the base of.

    Patches of few operators, and one fix: of a file of three lines.
    """
    checkout, fixes = tmp_path / "FlagGems", tmp_path / "fixes"
    files = {PATH: "", "src/flag_gems/ops/max.py": "one\ntwo\nthree\n"}
    for edit in LINE.edits["shared-kernel"]:
        files[edit.path] = files.get(edit.path, "") + edit.old
    for path, text in files.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text)
    git(checkout, "init", "--quiet", "--initial-branch=master")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=base")
    fixes.mkdir()
    name = "src/flag_gems/ops/max.py"
    (fixes / "max.patch").write_text(f"--- a/{name}\n+++ b/{name}\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n")
    monkeypatch.setattr(series, "FIXES", fixes)
    few = {name: operator for name, operator in OPERATORS.items() if operator.module in MODULES}
    monkeypatch.setattr(series, "OPERATORS", few)
    return checkout, LINE._replace(base=git(checkout, "rev-parse", "HEAD").strip())
