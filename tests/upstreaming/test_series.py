# SPDX-License-Identifier: Apache-2.0
"""The patches for FlagGems: what they hold, that they are up to date, and their way through git."""

from __future__ import annotations

import ast
import dataclasses
import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import baselines
from flag_gems_overrides.upstreaming import exchange, formatting, regression, rehearsal, series
from flag_gems_overrides.upstreaming.git import git
from flag_gems_overrides.upstreaming.imports import PATH, UpstreamError, redirect
from flag_gems_overrides.upstreaming.lines import LINES, Line
from flag_gems_overrides.upstreaming.message import DEVICE, message

PATCHES = Path(__file__).parents[2] / "patches"
LINE = LINES["v5.0.2"]

every_line = pytest.mark.parametrize("line", LINES.values(), ids=LINES)


@every_line
def test_the_patches_in_this_repository_are_what_export_would_write(line: Line) -> None:
    assert exchange.drift(line, PATCHES) == [], "gems-overrides patches export"


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this package's operators that patches are made from in this test."""
    copy = tmp_path / "ops"
    shutil.copytree(series.OPS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(series, "OPS", copy)
    return copy


@pytest.fixture
def unformatted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches of files as they are, made and checked without formatters."""
    monkeypatch.setattr(formatting, "missing", lambda: "")
    monkeypatch.setattr(formatting, "installed", lambda name: None)
    monkeypatch.setattr(formatting, "format_files", lambda root, paths: None)


@pytest.mark.usefixtures("unformatted")
def test_a_line_edited_in_an_operator_is_a_drift(ops: Path, upstream: tuple[Path, Line], tmp_path: Path) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    assert exchange.drift(line, tmp_path / "patches") == []
    amax = ops / "amax.py"
    amax.write_text(amax.read_text().replace('logger.debug("GEMS AMAX")', 'logger.debug("GEMS AMAXIMUM")'))
    assert exchange.drift(line, tmp_path / "patches") == ["src/flag_gems/ops/planned/amax.py"]


def test_without_formatters_layout_and_the_order_of_imports_do_not_count_and_all_else_does(
    ops: Path, upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    with monkeypatch.context() as patched:
        patched.setattr(formatting, "missing", lambda: "")
        patched.setattr(formatting, "format_files", lambda root, paths: None)
        exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    monkeypatch.setattr(formatting, "missing", lambda: "black")
    shape = ops / "launch" / "shape.py"
    text = shape.read_text()
    future = "from __future__ import annotations\n"
    shape.write_text(text.replace(future, future + "\n\n").replace("import math\n", "import math  # so\n"))
    assert exchange.drift(line, tmp_path / "patches") == []
    shape.write_text(text.replace("import math\n", "import math\nimport cmath\n"))
    assert exchange.drift(line, tmp_path / "patches") == ["src/flag_gems/ops/planned/launch/shape.py"]


@pytest.mark.usefixtures("unformatted")
def test_an_operator_that_no_patch_has_is_a_drift(ops: Path, upstream: tuple[Path, Line], tmp_path: Path) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    (ops / "launch" / "more.py").write_text('"""More."""\n')
    (ops / "amax.py").write_text((ops / "amax.py").read_text() + "\nfrom .launch.more import more\n")
    drifted = exchange.drift(line, tmp_path / "patches")
    assert drifted == ["src/flag_gems/ops/planned/amax.py", "src/flag_gems/ops/planned/launch/more.py"]


@every_line
def test_each_function_is_replaced_once_and_each_file_added_once(line: Line) -> None:
    patches = series.series(line)
    functions = [name for patch in patches for name in patch.functions]
    left_out = {"amin"} if line.name == "v5.0.2" else set()
    assert sorted(functions) == sorted(set(OPERATORS) - left_out)
    paths = [path for patch in patches for path in patch.added]
    assert len(paths) == len(set(paths))


@every_line
def test_a_patch_imports_what_is_there_and_nothing_of_ours(line: Line) -> None:
    there: set[Path] = set()
    for patch in series.series(line):
        there |= {Path(path) for path in patch.added}
        for path, text in patch.added.items():
            assert "flag_gems_overrides" not in text, path
            if path.startswith(series.FOLDER):
                assert _imported(Path(path), text) <= there, path


def _imported(path: Path, text: str) -> set[Path]:
    """The files behind the relative imports of a file, and the packages that these are in."""
    files: set[Path] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            whole_modules = node.module is None or module.name in ("launch", "families", "plans")
            files |= {module / f"{alias.name}.py" for alias in node.names} if whole_modules else {Path(f"{module}.py")}
    packages = {file.parent / "__init__.py" for file in files}
    return files | packages


@every_line
def test_tests_are_of_the_defects_that_can_show_on_a_gpu(line: Line) -> None:
    for patch in series.series(line):
        tests = patch.added.get(f"tests/test_{patch.name}_as_pytorch.py", "")
        for row in patch.defects:
            shows = any(seen.cuda for seen in row.upstream.values())
            assert (f"def test_{row.id.lower()}()" in tests) == shows
    marked = {"v5.0.2": "log_softmax_backward", "main": "log_softmax_backward_data"}[line.name]
    softmax = next(patch for patch in series.series(line) if patch.name == "log_softmax")
    assert f"@pytest.mark.{marked}\n" in softmax.added["tests/test_log_softmax_as_pytorch.py"]


@every_line
def test_each_function_has_a_benchmark_in_the_manner_of_the_line(line: Line) -> None:
    for patch in series.series(line):
        for name in patch.functions:
            text = patch.added[line.benchmark.path.format(patch.name)]
            mark = line.marks.get(name, name)
            assert f"@pytest.mark.{mark}\ndef test_{mark}_sizes():" in text
            assert f"torch_op=torch.ops.aten.{OPERATORS[name].overload}" in text
            assert set(line.benchmark.imports) <= set(text.splitlines())


def test_new_tests_for_main_call_flag_gems_functions_themselves() -> None:
    dispatched = []
    for patch in series.series(LINES["main"]):
        text = patch.added.get(f"tests/test_{patch.name}_as_pytorch.py", "")
        found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        for test in [node for node in found if node.name.startswith("test_")]:
            body = ast.unparse(test)
            if "use_gems" in body:
                dispatched.append(test.name)
            else:
                called = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
                assert called & {*OPERATORS, "native_layer_norm"}, test.name
                assert not any(f"{call}(" in body for call in regression.explicit_calls(LINES["main"])), test.name
    assert dispatched == ["test_l1"]  # it goes through autograd


UPSTREAM = (
    "from flag_gems.ops.softmax import (\n    softmax,\n    softmax_out,\n)\nfrom flag_gems.ops.zeros import zeros\n"
)
NAMES = "\n__all__ = []\n"


def test_imports_move_to_the_end_and_the_others_of_the_module_stay() -> None:
    once = redirect(UPSTREAM + NAMES, "softmax", ("softmax",))
    rest = "from flag_gems.ops.softmax import softmax_out\nfrom flag_gems.ops.zeros import zeros\n"
    assert once == f"{rest}\nfrom .planned.softmax import softmax\n{NAMES}"
    twice = redirect(once, "zeros", ("zeros",))
    kept, _, planned = twice.partition("\n\n")
    assert kept == "from flag_gems.ops.softmax import softmax_out"
    assert planned == f"from .planned.softmax import softmax\nfrom .planned.zeros import zeros\n{NAMES}"


def test_an_upstream_without_the_function_is_refused() -> None:
    with pytest.raises(UpstreamError, match=r"ops/__init__.py: has no import of softmin from flag_gems.ops.softmax"):
        redirect(UPSTREAM + NAMES, "softmax", ("softmin",))


@pytest.fixture
def upstream(tmp_path: Path) -> tuple[Path, Line]:
    """A repository with as much of FlagGems as the patches change, and the line that it is the base of."""
    checkout = tmp_path / "FlagGems"
    entry = checkout / PATH
    entry.parent.mkdir(parents=True)
    patches = series.series(LINE)
    rows = sorted(f"from flag_gems.ops.{p.name} import {', '.join(p.functions)}\n" for p in patches if p.functions)
    entry.write_text("".join(rows) + "from flag_gems.ops.zeros import zeros\n" + NAMES)
    git(checkout, "init", "--quiet", "--initial-branch=master")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=base")
    return checkout, LINE._replace(base=git(checkout, "rev-parse", "HEAD").strip())


@pytest.mark.usefixtures("unformatted")
def test_export_writes_the_same_bytes_again_and_they_apply(upstream: tuple[Path, Line], tmp_path: Path) -> None:
    checkout, line = upstream
    first, second = (exchange.export(line, checkout, tmp_path / name, tmp_path) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert all(f"base-commit: {line.base}" in path.read_text() for path in first[:1])
    assert len(first) == len(series.series(line))
    assert exchange.check(line, tmp_path / "one", checkout) == []
    assert git(checkout, "status", "--porcelain") == ""
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


@pytest.mark.usefixtures("unformatted")
def test_branches_stand_on_each_other_and_the_checkout_stays_as_it_is(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    monkeypatch.setitem(LINES, "v5.0.2", line)
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    command = ["patches", "branch", "--line=v5.0.2", f"--checkout={checkout}", f"--folder={tmp_path / 'patches'}"]

    result = CliRunner().invoke(app, [*command, "--op=softmax"])
    assert result.exit_code == 0, result.output
    assert "branch planned-softmax" in result.output
    assert "### PR Category" in result.output
    assert git(checkout, "branch", "--format=%(refname:short)").split() == ["master", "planned-softmax"]
    assert git(checkout, "rev-list", "--count", "master..planned-softmax").strip() == "3"

    result = CliRunner().invoke(app, [*command, "--op=softmin"])
    assert (result.exit_code, "no patch of 'softmin'" in result.output) == (2, True)

    (checkout / "notes").write_text("mine")
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, "has changes that are not committed" in result.output) == (2, True)
    assert git(checkout, "rev-parse", "HEAD").strip() == line.base


@pytest.mark.usefixtures("unformatted")
def test_after_each_patch_the_tests_that_it_brings_are_run(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    (checkout / "src/flag_gems").mkdir(exist_ok=True)
    runs = []

    def run(tree, files, variant, words, seconds):
        runs.append((variant, *files))
        assert all((tree / file).exists() for file in files)
        assert (tree / "src/flag_gems/_version.py").exists()
        verdict = "failed" if "prod" in files[0] else "passed"
        return {"test_a": rehearsal.Outcome(verdict, "AssertionError: no"), "test_b": rehearsal.Outcome("skipped")}

    monkeypatch.setattr(rehearsal, "_run", run)
    found = list(rehearsal.one_after_the_other(line, tmp_path / "patches", checkout))
    with_tests = [p for p in series.series(line) if any(path.startswith("tests/") for path in p.added)]
    assert runs == [("patched", f"tests/test_{patch.name}_as_pytorch.py") for patch in with_tests]
    (problem,) = found
    assert problem.endswith(": test_a: failed AssertionError: no")
    assert "-prod-" in problem


@pytest.mark.usefixtures("unformatted")
def test_check_says_which_patch_does_not_apply(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    (checkout / PATH).write_text("from flag_gems.ops.zeros import zeros\n")
    git(checkout, "commit", "--quiet", "--all", "--message=moved on")
    monkeypatch.setitem(LINES, "v5.0.2", line._replace(base=git(checkout, "rev-parse", "HEAD").strip()))
    command = ["patches", "check", "--line=v5.0.2", f"--checkout={checkout}", f"--folder={tmp_path / 'patches'}"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "patch failed: src/flag_gems/ops/__init__.py" in result.output
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


@pytest.mark.usefixtures("unformatted")
def test_check_says_what_export_would_write_otherwise_and_tries_nothing_else(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    monkeypatch.setitem(LINES, "v5.0.2", line)
    monkeypatch.setitem(OPERATORS, "amin", dataclasses.replace(OPERATORS["amin"], since=None))  # a patch more
    command = [f"--checkout={checkout}", f"--folder={tmp_path / 'patches'}"]
    result = CliRunner().invoke(app, ["patches", "check", "--line=v5.0.2", *command])
    assert result.exit_code == 1, result.output
    assert "v5.0.2: src/flag_gems/ops/planned/amin.py is not what export would write" in result.output

    stored, now = (len(exchange.patch_files(line, tmp_path / "patches")), len(series.series(line)))
    assert now == stored + 1
    result = CliRunner().invoke(app, ["patches", "branch", "--line=v5.0.2", *command])
    assert result.exit_code == 2, result.output
    assert f"series: has {stored} patches and the operators make {now}" in result.output
    assert "gems-overrides patches export" in result.output
    assert git(checkout, "branch", "--format=%(refname:short)").split() == ["master"]
    with pytest.raises(exchange.PatchesError, match=f"has {stored} patches"):
        next(rehearsal.one_after_the_other(line, tmp_path / "patches", checkout))


def test_outside_the_project_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["patches", "check", "--line=v5.0.2"], env={"FLAGGEMS_CHECKOUT": ""})
    assert result.exit_code == 2
    assert "patches/v5.0.2/series: is not there; write it with `gems-overrides patches export`" in result.output


@pytest.mark.skipif(
    Version(version("flag_gems")) < Version(LINE.release), reason="no patches are made for this release"
)
def test_applied_to_a_copy_of_the_installed_package_they_are_what_it_calls(tmp_path: Path) -> None:
    command = ["patches", "apply", str(tmp_path / "copy"), f"--folder={PATCHES}"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    source = Path(result.output.strip())
    assert source == tmp_path / "copy" / "src"
    text = (source / "flag_gems/ops/__init__.py").read_text()
    assert "from .planned.softmax import softmax, softmax_backward\n" in text
    assert (source / "flag_gems/ops/planned/softmax.py").exists()
    assert (source / "flag_gems/runtime/backend/_nvidia/tune_configs.yaml").exists()
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, "is there already" in result.output) == (2, True)


@pytest.mark.parametrize("words", [["--line=v9"], ["--folder=missing"]])
def test_bad_words_end_with_status_2_and_a_remedy(words: list[str]) -> None:
    result = CliRunner().invoke(app, ["patches", "check", *words], env={"FLAGGEMS_CHECKOUT": ""})
    assert result.exit_code == 2
    assert "v5.0.2, main" in result.output or "gems-overrides patches export" in result.output


def test_the_table_of_performance_comes_from_the_accepted_record(tmp_path: Path) -> None:
    patch = next(patch for patch in series.series(LINE) if patch.name == "amax")
    assert "filled from the NVIDIA H200 record" in message(patch, LINE, tmp_path)
    baseline = {
        "schema": baselines.SCHEMA,
        "device": DEVICE,
        "measure": "kernel",
        "accepted_from": {"versions": {"torch": "2.11.0", "flag_gems": "5.0.2"}},
        "cases": {"amax 64x64 dim=1 float16": {"ms": 0.00512, "ratio": 1.25, "floor": 0.97}},
    }
    (tmp_path / "nvidia-h200").mkdir()
    (tmp_path / "nvidia-h200" / "amax.json").write_text(json.dumps(baseline))
    text = message(patch, LINE, tmp_path)
    assert "torch 2.11.0, flag_gems 5.0.2" in text
    assert "| amax | 64x64 dim=1 | float16 | 0.0051 | 1.25 |" in text
