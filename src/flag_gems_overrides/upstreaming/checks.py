# SPDX-License-Identifier: Apache-2.0
"""Upstream's own checks of a pull request: pre-commit's hooks, the list of operators, the tests that it changes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from flag_gems_overrides.upstreaming import formatting
from flag_gems_overrides.upstreaming.git import git

CONFIG = ".pre-commit-config.yaml"
OPERATORS = "conf/operators.yaml"


def run(line: Any, folder: Path, checkout: Path, kind: str | None, words: Iterable[str]) -> Iterator[str]:
    """What upstream's checks say of a line's base with its patches, all or those of a kind; nothing if all is well.

    Raises:
        GitError: a patch does not apply.
        PatchesError: pytest did not get to the tests.
    """
    from flag_gems_overrides.upstreaming import rehearsal
    from flag_gems_overrides.upstreaming.exchange import paired, put

    with rehearsal.built(line, checkout) as tree:
        for patch, path in paired(line, folder):
            if kind in (None, patch.kind, "tests"):
                put(tree, patch, path)
        touched = git(tree, "diff", "--cached", "--name-only").split()
        yield from hook_errors(tree, touched)
        tests = [path for path in touched if path.startswith("tests/")]
        yield from operator_errors(tree, [*tests, *(path for path in touched if path.startswith("benchmark/"))])
        # tools/test-op.sh: each changed file, and again beside the CPU.
        for mode in ([], ["--ref=cpu", "--quick"]):
            outcomes = rehearsal.run_tests(tree, tests, "patched", [*words, *mode], None)
            yield from (f"{' '.join(['pytest', *mode])}: {error}" for error in rehearsal.failures(outcomes))


def hook_errors(tree: Path, touched: list[str]) -> Iterator[str]:
    """What the hooks of the tree's pre-commit configuration say, with the versions that are installed here; a hook
    that is not known here is named."""
    for path in touched:
        text = (tree / path).read_text() if (tree / path).exists() else "\n"
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            yield f"end-of-file-fixer: {path}"
        if any(row != row.rstrip() for row in text.splitlines()):
            yield f"trailing-whitespace: {path}"
        if path.endswith((".yaml", ".yml")):
            try:
                yaml.safe_load(text)
            except yaml.YAMLError as error:
                yield f"check-yaml: {path}: {error}"
    yield from formatting_errors(tree, [path for path in touched if path.endswith(".py")])
    hooks = {hook["id"] for repo in yaml.safe_load((tree / CONFIG).read_text())["repos"] for hook in repo["hooks"]}
    known = {"check-yaml", "end-of-file-fixer", "trailing-whitespace", "flake8", "isort", "black"}
    # These look at C++ and notebooks, which no patch has.
    for hook in sorted(hooks - known - {"clang-format", "black-jupyter"}):
        yield f"{CONFIG}: its hook {hook!r} is not known here"


def formatting_errors(tree: Path, touched: list[str]) -> Iterator[str]:
    """What black, isort and flake8 say, as far as installed, with the arguments of the tree's configuration."""
    arguments: dict[str, list[str]] = {}
    if (tree / CONFIG).exists():
        for repo in yaml.safe_load((tree / CONFIG).read_text())["repos"]:
            arguments |= {hook["id"]: [str(word) for word in hook.get("args", ())] for hook in repo["hooks"]}
    for name, always in (("black", ["--check"]), ("isort", ["--check"]), ("flake8", [])):
        if formatting.installed(name) is None or not touched:
            continue
        command = [sys.executable, "-m", name, *always, *arguments.get(name, ())]
        done = subprocess.run([*command, *touched], cwd=tree, capture_output=True, text=True)
        if done.returncode:
            # Not what black says of all files together, or of the Python that it runs on.
            said = [
                row for row in (done.stdout + done.stderr).splitlines() if re.match(r"would |error|ERROR|.+:\d+:", row)
            ]
            yield from (f"{name}: {row}" for row in said or [f"ended with status {done.returncode}"])


def operator_errors(tree: Path, files: list[str]) -> Iterator[str]:
    """The marks of new tests and benchmarks that are no operator of the tree's list, and that no other test of the tree
    has: 5.0.2 tests operators that its list lacks."""
    rows = yaml.safe_load((tree / OPERATORS).read_text())["ops"]
    known = {row.get("id", row.get("name")) for row in rows}
    for other in set((tree / "tests").glob("test_*.py")) - {tree / path for path in files}:
        known |= set(re.findall(r"^@pytest\.mark\.(\w+)$", other.read_text(), re.MULTILINE))
    for path in files:
        if not path.endswith(".py") or not (tree / path).exists():
            continue
        for node in ast.walk(ast.parse((tree / path).read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marks = [ast.unparse(mark).removeprefix("pytest.mark.") for mark in node.decorator_list]
                names = [mark for mark in marks if "(" not in mark]
                if not set(names) & known:
                    yield f"{path}: {node.name} has no mark that is in {OPERATORS}: {', '.join(names) or 'none'}"
