# SPDX-License-Identifier: Apache-2.0
"""Where patches stand, and upstream's own checks of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.upstreaming import checks, exchange, formatting, observe, rehearsal, standing
from flag_gems_overrides.upstreaming.defects import FIXED
from flag_gems_overrides.upstreaming.git import git
from flag_gems_overrides.upstreaming.lines import LINES, Line


@pytest.mark.usefixtures("unformatted")
def test_each_patch_applies_or_not_or_is_merged(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    monkeypatch.setitem(LINES, "v5.0.2", line)
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    (checkout / "src/flag_gems/ops/max.py").write_text("one\nmine\nthree\n")
    git(checkout, "commit", "--quiet", "--all", "--message=moved on")
    outcomes = {"bare": "AssertionError: wrong"}
    monkeypatch.setattr(observe, "observe", lambda ids, source: dict.fromkeys(ids, outcomes["bare"]))

    def verdicts(commit: str) -> dict[str, str]:
        rows = standing.standings(line, tmp_path / "patches", checkout, [commit])
        return {row.patch.id: row.verdicts[commit] for row in rows}

    assert set(verdicts(line.base).values()) == {"applies"}
    moved = verdicts("HEAD")
    assert moved.pop("max-fix") == "does not apply"
    assert set(moved.values()) == {"applies"}
    outcomes["bare"] = FIXED
    assert verdicts("HEAD")["max-fix"] == "merged"
    assert git(checkout, "status", "--porcelain") == ""
    assert len(git(checkout, "worktree", "list").splitlines()) == 1

    command = ["patches", "status", "--line=v5.0.2", f"--checkout={checkout}", f"--folder={tmp_path / 'patches'}"]
    result = CliRunner().invoke(app, [*command, "--on=HEAD"])
    assert result.exit_code == 0, result.output
    assert "v5.0.2 max-fix: 2 lines, " in result.output
    assert "merged at HEAD" in result.output
    assert "    resolves #4543" in result.output
    assert "v5.0.2 softmax-fix: only NVIDIA's kernel answers its defects; not written yet" in result.output


def test_lines_of_code_and_of_tests_are_counted_apart(tmp_path: Path) -> None:
    patch = tmp_path / "0001-max-fix.patch"
    patch.write_text(
        "- what was wrong\n---\n"
        "diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n-x\n+y\n z\n"
        "diff --git a/tests/b.py b/tests/b.py\n--- /dev/null\n+++ b/tests/b.py\n@@ -0,0 +1 @@\n+x\n"
    )
    assert exchange.size(patch) == (2, 1)


CONFIG = """
repos:
- repo: local
  hooks:
  - id: black
  - id: {}
  - id: flake8
    args: ["--max-line-length=20"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "conf/operators.yaml").write_text("ops:\n  - id: max\n  - name: softmax\n")
    (tmp_path / checks.CONFIG).write_text(CONFIG.format("isort"))
    return tmp_path


def test_a_mark_that_is_no_operator_is_found(tree: Path) -> None:
    text = "import pytest\n@pytest.mark.{}\n@pytest.mark.parametrize('x', [1])\ndef test_a(x): pass\n"
    for mark, wrong in (("max", 0), ("softmax", 0), ("maximal", 1)):
        (tree / "tests/test_a.py").write_text(text.format(mark))
        assert len(list(checks.operator_errors(tree, ["tests/test_a.py"]))) == wrong, mark
    (tree / "tests/test_own.py").write_text(text.format("maximal"))  # one of upstream's own
    assert list(checks.operator_errors(tree, ["tests/test_a.py"])) == []
    assert len(list(checks.operator_errors(tree, ["tests/test_a.py", "tests/test_own.py"]))) == 2


def test_files_are_held_to_the_hooks_of_the_tree(tree: Path) -> None:
    (tree / "a.txt").write_text("one \ntwo")
    (tree / "b.yaml").write_text("[\n")
    found = list(checks.hook_errors(tree, ["a.txt", "b.yaml"]))
    assert [error.partition(":")[0] for error in found] == ["end-of-file-fixer", "trailing-whitespace", "check-yaml"]
    (tree / "c.yml").write_text("{\n")
    assert [error.partition(":")[0] for error in checks.hook_errors(tree, ["c.yml"])] == ["check-yaml"]
    (tree / checks.CONFIG).write_text(CONFIG.format("clang-format"))
    assert list(checks.hook_errors(tree, [])) == [], "it looks at what no patch has"
    (tree / checks.CONFIG).write_text(CONFIG.format("pylint"))
    assert list(checks.hook_errors(tree, [])) == [f"{checks.CONFIG}: its hook 'pylint' is not known here"]


@pytest.mark.usefixtures("unformatted")
def test_upstreams_checks_of_a_patched_tree_decide_the_exit_status(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    (checkout / "conf").mkdir()
    (checkout / "conf/operators.yaml").write_text("ops:\n" + "".join(f"  - id: {name}\n" for name in OPERATORS))
    (checkout / checks.CONFIG).write_text(CONFIG.format("isort"))
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=lists")
    line = line._replace(base=git(checkout, "rev-parse", "HEAD").strip())
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    for name in ("v5.0.2", "main"):  # the second line is as the first
        monkeypatch.setitem(LINES, name, line._replace(name="v5.0.2"))
    monkeypatch.delitem(LINES, "v5.3.4")
    runs, outcome = [], rehearsal.Outcome("passed")

    def run(tree, files, variant, words, seconds):
        applied = [(tree / path).exists() for path in ("tests/test_max_as_pytorch.py", "tests/test_max_sizes.py")]
        runs.append((files, variant, words, applied))
        # The first line's alone, if anything.
        return {"test_a": outcome if len(runs) < 3 else rehearsal.Outcome("skipped")}

    monkeypatch.setattr(rehearsal, "run_tests", run)
    command = ["patches", "upstream", f"--checkout={checkout}", f"--folder={tmp_path / 'patches'}"]

    result = CliRunner().invoke(app, [*command, "--kind=fix", "--", "-n", "2"])
    assert (result.exit_code, result.output) == (0, "v5.0.2: passes upstream's checks\n" * 2)
    fix = ["tests/test_max_as_pytorch.py"]
    assert runs[:2] == [
        (fix, "patched", ["-n", "2"], [True, False]),
        (fix, "patched", ["-n", "2", "--ref=cpu", "--quick"], [True, False]),
    ]

    runs.clear()
    outcome = rehearsal.Outcome("failed", "AssertionError: no")
    result = CliRunner().invoke(app, [*command, "--kind=fix"])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "v5.0.2: pytest: test_a: failed AssertionError: no",
        "v5.0.2: pytest --ref=cpu --quick: test_a: failed AssertionError: no",
        "v5.0.2: passes upstream's checks",
    ]

    runs.clear()
    CliRunner().invoke(app, command)
    assert runs[0][3] == [True, True], "all patches"
    assert {"tests/test_max_as_pytorch.py", "tests/test_max_sizes.py"} < set(runs[0][0])
    assert all(path.startswith("tests/") for path in runs[0][0])
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


def test_files_are_formatted_by_both_with_upstreams_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda words, **options: ran.append((words[1:], options["cwd"])))
    monkeypatch.setattr(formatting, "_formatted", {})
    formatting.format_files(tmp_path, [])
    assert ran == []
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "b.py").write_text("b = 1\n")
    formatting.format_files(tmp_path, ["a.py", "b.py"], "--fast")
    isort = ["-m", "isort", "--profile", "black", "--project", "flag_gems", "--quiet", "a.py", "b.py"]
    assert ran == [(isort, tmp_path), (["-m", "black", "--fast", "--quiet", "a.py", "b.py"], tmp_path)]


@pytest.mark.skipif(bool(formatting.missing()), reason=f"needs {formatting.missing()}")
def test_a_text_is_formatted_once_whatever_its_license(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatting, "_formatted", {})
    texts = {"a.py": "a=1\n", "b.py": "b=1\n", "c.py": "#c\n\na=1\n", "d.py": "# d\n\n", "e.py": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    formatting.format_files(tmp_path, ["a.py", "d.py", "e.py"])
    monkeypatch.setattr(subprocess, "run", lambda words, **options: pytest.fail(f"{words}"))
    formatting.format_files(tmp_path, ["c.py"])
    found = {name: (tmp_path / name).read_text() for name in texts}
    assert found == {"a.py": "a = 1\n", "b.py": "b=1\n", "c.py": "#c\n\na = 1\n", "d.py": "# d\n", "e.py": ""}


def test_a_formatter_of_another_version_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"black": formatting.PINS["black"]}
    monkeypatch.setattr(formatting, "installed", there.get)
    assert formatting.missing() == "isort==5.12.0"
    there |= {"isort": "5.13.0", "black": "1.0"}
    assert formatting.missing() == f"black=={formatting.PINS['black']} isort==5.12.0"
    there |= formatting.PINS
    assert formatting.missing() == ""


def test_on_another_vendor_there_is_nothing_of_nvidia() -> None:
    program = (
        "from flag_gems_overrides.upstreaming import other_vendor\n"
        "other_vendor.activate()\n"
        "import flag_gems, importlib\n"
        "assert flag_gems.vendor_name == 'amd'\n"
        "for name in ('triton.backends.nvidia.driver', 'triton.language.extra.cuda'):\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError as error: print(name, type(error).__name__)\n"
        "properties = flag_gems.runtime.torch_device_fn.get_device_properties(0)\n"
        "assert not hasattr(properties, 'L2_cache_size') and properties.multi_processor_count\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row.split()[0] for row in done.stdout.splitlines() if row.startswith("triton")] == [
        "triton.backends.nvidia.driver",
        "triton.language.extra.cuda",
    ]
