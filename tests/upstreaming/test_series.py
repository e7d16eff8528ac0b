# SPDX-License-Identifier: Apache-2.0
"""The patches for FlagGems: what they hold, that they are up to date, and their way through git."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import re
import shutil
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from packaging.version import Version
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.upstreaming import (
    checks,
    exchange,
    formatting,
    regression,
    rehearsal,
    reproduction,
    series,
    vendors,
)
from flag_gems_overrides.upstreaming.defects import DEFECTS, FIXED
from flag_gems_overrides.upstreaming.git import git
from flag_gems_overrides.upstreaming.imports import PATH, UpstreamError, register
from flag_gems_overrides.upstreaming.lines import LINES, Line
from flag_gems_overrides.upstreaming.message import message, performance

PATCHES = Path(__file__).parents[2] / "patches"
LINE = LINES["v5.0.2"]
aten = torch.ops.aten

every_line = pytest.mark.parametrize("line", LINES.values(), ids=LINES)


@functools.cache
def made(line: str) -> list[series.Patch]:
    """The patches of this package's operators for a line, which take some seconds to make."""
    return series.series(LINES[line])


def test_the_patches_in_this_repository_are_what_export_would_write() -> None:
    # In one test, for one process formats what lines share once.
    drifts = {line.name: exchange.drift(line, PATCHES) for line in LINES.values()}
    assert drifts == {name: [] for name in drifts}, "gems-overrides patches export"


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this package's operators that patches are made from in this test."""
    copy = tmp_path / "ops"
    shutil.copytree(series.OPS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(series, "OPS", copy)
    return copy


@pytest.mark.usefixtures("unformatted")
def test_a_line_edited_in_an_operator_is_a_drift(ops: Path, upstream: tuple[Path, Line], tmp_path: Path) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    assert exchange.drift(line, tmp_path / "patches") == []
    amax = ops / "amax.py"
    amax.write_text(amax.read_text().replace('logger.debug("GEMS AMAX")', 'logger.debug("GEMS AMAXIMUM")'))
    assert exchange.drift(line, tmp_path / "patches") == [f"{series.FOLDER}/amax.py"]


def test_without_formatters_layout_and_the_order_of_imports_do_not_count_and_all_else_does(
    ops: Path, upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    with monkeypatch.context() as patched:
        patched.setattr(formatting, "missing", lambda: "")
        patched.setattr(formatting, "format_files", lambda root, paths, *options: None)
        exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    monkeypatch.setattr(formatting, "missing", lambda: "black")
    shape = ops / "launch" / "shape.py"
    text = shape.read_text()
    future = "from __future__ import annotations\n"
    shape.write_text(text.replace(future, future + "\n\n").replace("import math\n", "import math  # so\n"))
    assert exchange.drift(line, tmp_path / "patches") == []
    shape.write_text(text.replace("import math\n", "import math\nimport cmath\n"))
    assert exchange.drift(line, tmp_path / "patches") == [f"{series.FOLDER}/launch/shape.py"]


@pytest.mark.usefixtures("unformatted")
def test_an_operator_that_no_patch_has_is_a_drift(ops: Path, upstream: tuple[Path, Line], tmp_path: Path) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    (ops / "launch" / "more.py").write_text('"""More."""\n')
    (ops / "amax.py").write_text((ops / "amax.py").read_text() + "\nfrom .launch.more import more\n")
    drifted = exchange.drift(line, tmp_path / "patches")
    assert drifted == [f"{series.FOLDER}/amax.py", f"{series.FOLDER}/launch/more.py"]


@every_line
def test_each_function_is_replaced_once_and_each_file_added_once(line: Line) -> None:
    patches = made(line.name)
    functions = [name for patch in patches if patch.kind == "kernel" for name in patch.functions]
    left_out = {
        "v5.0.2": {
            "amin",
            "nansum",
            "nansum_out",
            "logsumexp",
            "cudnn_batch_norm_backward",
            "_fused_rms_norm",
            "_fused_rms_norm_backward",
        },
        "v5.3.4": {"_fused_rms_norm_backward"},
        "main": set(),
    }[line.name]
    assert sorted(functions) == sorted(set(OPERATORS) - left_out)
    fixed = [name for patch in patches if patch.kind == "fix" for name in patch.functions]
    modules = series.without_fix(line)
    assert set(modules) == set(series.KERNEL_ALONE)
    without = {name for name in functions if OPERATORS[name].module in modules}
    assert sorted(fixed) == sorted(set(functions) - without)
    paths = [path for patch in patches for path in patch.added]
    assert len(paths) == len(set(paths))


@every_line
def test_a_patch_imports_what_is_there_and_nothing_of_ours(line: Line) -> None:
    there: set[Path] = set()
    for patch in made(line.name):
        there |= {Path(path) for path in patch.added}
        for path, text in patch.added.items():
            assert "flag_gems_overrides" not in text, path
            if path.startswith(series.FOLDER):
                assert _imported(Path(path), text, there) <= there | {Path(PATH)}, path


def _imported(path: Path, text: str, there: set[Path]) -> set[Path]:
    """The files behind the relative imports of a file, and the packages that these are in."""
    files: set[Path] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            whole_modules = node.module is None or module / "__init__.py" in there
            files |= {module / f"{alias.name}.py" for alias in node.names} if whole_modules else {Path(f"{module}.py")}
    packages = {file.parent / "__init__.py" for file in files}
    return files | packages


@every_line
def test_tests_are_of_the_defects_that_can_show_on_a_gpu(line: Line) -> None:
    fixes = [patch for patch in made(line.name) if patch.kind == "fix"]
    tests = "".join(patch.added.get(f"tests/test_{patch.name}_as_pytorch.py", "") for patch in fixes)
    for patch in fixes:
        for row in patch.defects:
            shows = any(seen.cuda for seen in row.upstream.values())
            assert tests.count(f"def test_{row.id.lower()}()") == shows
    marked = "log_softmax_backward" if line.name == "v5.0.2" else "log_softmax_backward_data"
    softmax = next(patch for patch in fixes if patch.name == "log_softmax")
    assert f"@pytest.mark.{marked}\n" in softmax.added["tests/test_log_softmax_as_pytorch.py"]


@every_line
def test_each_function_has_a_benchmark_in_the_manner_of_the_line(line: Line) -> None:
    for patch in [patch for patch in made(line.name) if patch.kind == "kernel"]:
        for name in patch.functions:
            text = patch.added[line.benchmark.path.format(patch.name)]
            mark = line.marks.get(name, name)
            assert f"@pytest.mark.{mark}\ndef test_{mark}_sizes():" in text
            assert f"torch_op={OPERATORS[name].native.removesuffix('.default')}" in text
            assert set(line.benchmark.imports) <= set(text.splitlines())


def test_new_tests_for_main_call_flag_gems_functions_themselves() -> None:
    dispatched = []
    for patch in made("main"):
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


@every_line
def test_no_file_belongs_to_a_fix_and_to_a_kernel(line: Line) -> None:
    """Either can be merged without the other."""
    files: dict[str, set[str]] = {"fix": set(), "kernel": set(), "tests": set()}
    for patch in made(line.name):
        files[patch.kind] |= patch.added.keys()
        files[patch.kind] |= {edit.path for edit in line.edits.get(patch.id, ())}
        if patch.changes is not None:
            files[patch.kind] |= set(re.findall(r"^\+\+\+ b/(.*)$", patch.changes.read_text(), re.MULTILINE))
    for one, other in itertools.combinations(files.values(), 2):
        assert not one & other
    assert all(path.startswith(("src/flag_gems/ops/", "tests/")) for path in files["fix"])
    elsewhere = {
        path
        for path in files["kernel"]
        if not path.startswith((f"{vendors.BACKENDS}/_nvidia/", "tests/", "benchmark/"))
    }
    assert elsewhere == ({"src/flag_gems/runtime/__init__.py"} if line.name == "v5.0.2" else set())


@every_line
def test_a_fix_is_small_and_in_words_that_all_vendors_have(line: Line) -> None:
    for patch in made(line.name):
        if patch.changes is not None:
            text = patch.changes.read_text()
            changed = [row for row in text.splitlines() if re.match(r"[+-](?![+-])", row)]
            assert len(changed) < 200, patch.id
            assert list(vendors.named(text)) == [], patch.id


def test_a_line_that_speaks_of_nvidia_outside_of_its_folder_is_found() -> None:
    diff = (
        "+++ b/src/flag_gems/ops/planned/launch/prepared.py\n+from triton.backends.nvidia.driver import CudaLauncher\n"
        "+++ b/src/flag_gems/runtime/backend/_nvidia/ops/max.py\n+torch._C._cuda_getDevice\n"
        "+++ b/src/flag_gems/ops/max.py\n-cuda\n+    properties.L2_cache_size\n+x = 1\n"
    )
    assert [found.partition(":")[0] for found in vendors.named(diff)] == [
        "src/flag_gems/ops/planned/launch/prepared.py",
        "src/flag_gems/ops/max.py",
    ]


HEAD = '"""Example.\n\nfrom .add import add\n"""\n'


def test_functions_are_registered_beside_those_that_are_there() -> None:
    once = register(HEAD, (("softmax", ("softmax_backward", "softmax")),))
    listed = '__all__ = [\n    "softmax",\n    "softmax_backward",\n]\n'
    assert once == f"{HEAD}\nfrom .softmax import softmax, softmax_backward\n\n{listed}"
    twice = register(once, (("max", ("max",)),))
    assert twice.startswith(f"{HEAD}\nfrom .max import max\nfrom .softmax import softmax, softmax_backward\n")
    assert twice.endswith('__all__ = [\n    "max",\n    "softmax",\n    "softmax_backward",\n]\n')


def test_a_file_of_vendor_functions_with_more_than_imports_is_refused() -> None:
    with pytest.raises(UpstreamError, match=r"_nvidia/ops/__init__.py: has 'import os'"):
        register("import os\n", (("softmax", ("softmax",)),))


@pytest.mark.usefixtures("unformatted")
def test_export_writes_the_same_bytes_again_and_they_apply(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formatted = []
    monkeypatch.setattr(checks, "formatting_errors", lambda tree, touched: formatted.append(touched) or ())
    checkout, line = upstream
    first, second = (exchange.export(line, checkout, tmp_path / name, tmp_path) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert all(f"base-commit: {line.base}" in path.read_text() for path in first[:1])
    assert len(first) == len(series.series(line))
    assert exchange.check(line, tmp_path / "one", checkout) == []
    (touched,) = formatted
    assert {"src/flag_gems/ops/max.py", "tests/test_max_as_pytorch.py", f"{series.FOLDER}/amax.py"} < set(touched)
    assert all(path.endswith(".py") and "/" in path for path in touched)
    assert git(checkout, "status", "--porcelain") == ""
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


@pytest.mark.usefixtures("unformatted")
def test_branches_stand_on_what_they_need_and_the_checkout_stays_as_it_is(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    monkeypatch.setitem(LINES, "v5.0.2", line)
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    command = ["patches", "branch", "--line=v5.0.2", f"--checkout={checkout}", f"--folder={tmp_path / 'patches'}"]

    # Whatever the clone is at.
    (checkout / "notes").write_text("mine")
    git(checkout, "checkout", "--quiet", "-b", "other")
    result = CliRunner().invoke(app, [*command, "--op=log_softmax", "--kind=kernel"])
    assert result.exit_code == 0, result.output
    assert "branch planned-log_softmax-kernel" in result.output
    assert "### PR Category" in result.output
    subject = git(checkout, "log", "-1", "--format=%s", "planned-log_softmax-kernel").strip()
    assert f"branch planned-log_softmax-kernel\n\n{subject}\n" in result.output
    assert _branches(checkout) == {"master", "other", "planned-log_softmax-kernel"}
    # Its family came with softmax.
    subjects = git(checkout, "log", "--format=%s", "--reverse", "master..planned-log_softmax-kernel").splitlines()
    assert [subject.split()[1] for subject in subjects] == ["launches", "softmax", "log_softmax"]

    result = CliRunner().invoke(app, [*command, "--op=max", "--kind=fix"])
    assert git(checkout, "show", "planned-max-fix:src/flag_gems/ops/max.py") == "one\n2\nthree\n"

    result = CliRunner().invoke(app, [*command, "--op=softmin"])
    assert (result.exit_code, "no such patch; there are " in result.output) == (2, True)

    # One of all is there already: nothing is made.
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, "already exists" in result.output) == (2, True)
    assert _branches(checkout) == {"master", "other", "planned-log_softmax-kernel", "planned-max-fix"}
    assert git(checkout, "rev-parse", "--abbrev-ref", "HEAD").strip() == "other"
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


def _branches(checkout: Path) -> set[str]:
    return set(git(checkout, "branch", "--format=%(refname:short)").split())


@pytest.mark.usefixtures("unformatted")
def test_fixes_are_tried_on_another_vendor_and_kernels_on_nvidia(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    runs = []

    def run(tree, files, variant, words, seconds):
        fixed = "2" in (tree / "src/flag_gems/ops/max.py").read_text()
        kernels = (tree / series.FOLDER / "max.py").exists()
        assert all((tree / file).exists() for file in files)
        assert (tree / "src/flag_gems/_version.py").exists()
        runs.append(
            (variant, fixed, kernels, "tests/test_max_as_pytorch.py" in files, "tests/test_max_sizes.py" in files)
        )
        if variant == "other vendor" and kernels:
            raise exchange.PatchesError("other vendor: upstream's tests did not run:\nModuleNotFoundError: no")
        verdict = "passed" if fixed else "failed"
        return {"test_a": rehearsal.Outcome(verdict, "AssertionError: no"), "test_b": rehearsal.Outcome("skipped")}

    monkeypatch.setattr(rehearsal, "run_tests", run)
    assert list(rehearsal.proofs(line, tmp_path / "patches", checkout)) == [
        "kernel patches, NVIDIA: test_a: failed AssertionError: no",
        "fix and kernel patches, other vendor: ModuleNotFoundError: no",
    ]
    assert runs == [
        ("other vendor", True, False, True, False),
        ("patched", False, True, True, True),
        ("other vendor", True, True, True, False),
        ("patched", True, True, True, True),
    ]


@pytest.mark.usefixtures("unformatted")
def test_check_says_which_patch_does_not_apply(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    (checkout / "src/flag_gems/ops/max.py").write_text("three\n")
    git(checkout, "commit", "--quiet", "--all", "--message=moved on")
    monkeypatch.setitem(LINES, "v5.0.2", line._replace(base=git(checkout, "rev-parse", "HEAD").strip()))
    command = ["patches", "check", "--line=v5.0.2", f"--checkout={checkout}", f"--folder={tmp_path / 'patches'}"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "patch failed: src/flag_gems/ops/max.py" in result.output
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


@pytest.mark.usefixtures("unformatted")
def test_check_says_what_export_would_write_otherwise_and_tries_nothing_else(
    upstream: tuple[Path, Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    monkeypatch.setitem(LINES, "v5.0.2", line)
    monkeypatch.setitem(series.OPERATORS, "amin", dataclasses.replace(OPERATORS["amin"], since=None))  # a patch more
    command = [f"--checkout={checkout}", f"--folder={tmp_path / 'patches'}"]
    result = CliRunner().invoke(app, ["patches", "check", "--line=v5.0.2", *command])
    assert result.exit_code == 1, result.output
    assert f"v5.0.2: {series.FOLDER}/amin.py is not what export would write" in result.output

    result = CliRunner().invoke(app, ["patches", "branch", "--line=v5.0.2", *command])
    assert result.exit_code == 2, result.output
    assert "series: is not what the operators make now (amin-kernel)" in result.output
    assert "gems-overrides patches export" in result.output
    assert git(checkout, "branch", "--format=%(refname:short)").split() == ["master"]
    with pytest.raises(exchange.PatchesError, match="amin-kernel"):
        next(rehearsal.proofs(line, tmp_path / "patches", checkout))


@pytest.mark.usefixtures("unformatted")
def test_another_line_in_a_fix_is_a_drift(upstream: tuple[Path, Line], tmp_path: Path) -> None:
    checkout, line = upstream
    exchange.export(line, checkout, tmp_path / "patches", tmp_path)
    fix = series.FIXES / "max.patch"
    fix.write_text(fix.read_text().replace("+2", "+2.0"))
    assert exchange.drift(line, tmp_path / "patches") == ["max-fix: max.patch"]


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
    ops = source / "flag_gems/runtime/backend/_nvidia/ops"
    assert "from .softmax import softmax, softmax_backward\n" in (ops / "__init__.py").read_text()
    assert (ops / "softmax.py").exists()
    assert "def wrap_dim(" in (source / "flag_gems/ops/softmax.py").read_text()
    assert (source / "flag_gems/runtime/backend/_nvidia/tune_configs.yaml").exists()
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, "is there already" in result.output) == (2, True)


@pytest.mark.parametrize("words", [["--line=v9"], ["--folder=missing"]])
def test_bad_words_end_with_status_2_and_a_remedy(words: list[str]) -> None:
    result = CliRunner().invoke(app, ["patches", "check", *words], env={"FLAGGEMS_CHECKOUT": ""})
    assert result.exit_code == 2
    # The lines in any order: other tests take some out, and put them back at the end.
    assert all(name in result.output for name in LINES) or "gems-overrides patches export" in result.output


def test_the_table_of_performance_comes_from_the_records(tmp_path: Path) -> None:
    patch = next(patch for patch in made(LINE.name) if patch.id == "amax-kernel")
    assert "No record of these functions yet." in message(patch, LINE, tmp_path, tmp_path)
    records = PATCHES.parent / "benchmark/records/nvidia-h200"
    speeds, versions = performance(patch, records)
    assert {speed.function for speed in speeds} == {"amax"}
    assert len(speeds) == len({(speed.size, speed.dtype) for speed in speeds})
    text = message(patch, LINE, tmp_path, records)
    assert f"torch {versions['torch']}" in text
    first = speeds[0]
    ratios = [speed.before_ms / speed.ms for speed in speeds]
    mean = math.prod(ratios) ** (1 / len(ratios))
    slower = len([ratio for ratio in ratios if ratio < 0.97])
    said = f"{mean:.2f} times as fast as the generic kernel (geometric mean; slower by over 3% in {slower})"
    assert f"- amax, {len(speeds)} cases: {said} and " in text
    assert f"| amax | {first.dtype} | {first.torch_ms:.6f} | {first.ms:.6f} | {first.torch_ms / first.ms:.3f} |" in text


def test_a_fix_names_each_defect_of_its_release_once_and_its_tests(tmp_path: Path) -> None:
    fixes = [patch for patch in made(LINE.name) if patch.kind == "fix"]
    for patch in fixes:
        text = message(patch, LINE, tmp_path, tmp_path)
        for row in patch.defects:
            recorded = row.recorded(LINE.release, "cuda")
            wrong = bool(row.hidden) if recorded is None else recorded != FIXED
            said = f"- {', '.join(row.functions)}: {row.title}; PyTorch: {row.pytorch}"
            assert text.splitlines().count(said) == wrong, (patch.id, row.id)
        assert all(path in text for path in patch.added if path.startswith("tests/")), patch.id


@every_line
def test_the_reproduction_of_a_fix_runs_and_is_short(line: Line, device: str) -> None:
    found = 0
    for patch in made(line.name):
        defects = [row for row in patch.defects if row.recorded(line.release, "cuda")]
        text = reproduction.script(defects, line) if patch.kind == "fix" else ""
        if text:
            found += 1
            compile(text, patch.id, "exec")
            assert "flag_gems.use_gems" in text
            assert len(text.splitlines()) <= reproduction.MAX_LINES
    assert found >= 8


def test_a_reproduction_prints_what_its_checks_compare() -> None:
    text = reproduction.script([DEFECTS["P5"]], LINES["main"])
    assert text == (
        "import torch, flag_gems\n"
        "device = flag_gems.device\n"
        "with flag_gems.use_gems(include=['prod']):\n"
        "    print(torch.prod(torch.empty(0, device=device)), 'PyTorch:', 1.0, torch.float32)"
    )


def test_a_reproduction_has_every_kind_of_check() -> None:
    def reproduce(device: str) -> None:
        check_close(aten.sum(sample(2)), 2.0)  # noqa: F821
        check_raises(ValueError, "no dimension", lambda: torch.prod(device))  # noqa: F821
        assert device

    row = SimpleNamespace(reproduce=reproduce, functions=("prod",))
    assert reproduction._script(row, LINES["main"]).splitlines() == [
        "import torch, flag_gems",
        "device = flag_gems.device",
        "aten = torch.ops.aten",
        "with flag_gems.use_gems(include=['prod']):",
        "    print(aten.sum(torch.randn(2)), 'PyTorch:', 2.0)",
        "    print(torch.prod(device), 'PyTorch: ValueError')",
        "    print(device, 'PyTorch: True')",
    ]


def test_a_test_defines_aten_and_imports_modules() -> None:
    def uses_both() -> object:
        return aten, torch

    imports: set[str] = set()
    helpers: dict[str, str] = {}
    regression._gather(uses_both, imports, helpers)
    assert (imports, helpers) == ({"import torch"}, {"aten": "aten = torch.ops.aten"})
