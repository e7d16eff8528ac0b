# SPDX-License-Identifier: Apache-2.0
"""Patches on their way: from this package to files, and from files to a FlagGems checkout."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.upstreaming import checks, formatting, imports, vendors
from flag_gems_overrides.upstreaming.git import apply_mail, git, read_mail, worktree
from flag_gems_overrides.upstreaming.imports import UpstreamError
from flag_gems_overrides.upstreaming.lines import LINES, Edit, Line
from flag_gems_overrides.upstreaming.message import message
from flag_gems_overrides.upstreaming.series import Kind, Patch, series, without_fix

# Pull requests of a line that are written as they would be posted, beside its patches.
_SHOWN = {"main": ("sum-fix", "softmax-kernel")}


class PatchesError(UserError):
    """Patches that cannot be made or used; the message names file and remedy."""


class Size(NamedTuple):
    """Changed lines of a patch: of code, and of tests and benchmarks."""

    code: int
    tests: int


def export(line: Line, checkout: Path, folder: Path, records: Path) -> list[Path]:
    """Write the patches of a line, ``series``, and a table of them into ``folder/<line>``; other patches there go.

    Args:
        checkout: a clone of FlagGems that has the line's base. Its work tree is not touched.
        records: folder of records of measurements, for the tables of performance.

    Raises:
        PatchesError: a formatter is missing.
        UpstreamError: the base is not as the patches expect it.
    """
    if formatting.missing():
        raise PatchesError(f"to format the patches: pip install {formatting.missing()}")
    with worktree(checkout, line.base) as tree, tempfile.TemporaryDirectory() as scratch:
        for patch in series(line):
            _write(patch, line, tree)
            git(tree, "add", "--all")
            text = message(patch, line, tree, records)
            git(tree, "commit", "--quiet", "--no-verify", "--file=-", text=text)
        git(
            tree,
            *("-c", "format.useAutoBase=false", "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false"),
            *("-c", "diff.algorithm=myers", "-c", "diff.renames=false"),
            # Upstream adds imports every week. With the usual three lines around a change, what is made at the base
            # of `main` does not apply at 5.3.4, 166 commits before it; with one line it does.
            "-c",
            "diff.context=1",
            *("format-patch", "--quiet", "--zero-commit", "--no-signature", "--full-index", "--numbered"),
            *(f"--base={line.base}", f"--output-directory={scratch}", line.base),
        )
        made = sorted(Path(scratch).glob("*.patch"))
        target = folder / line.name
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob("*.patch"):
            old.unlink()
        names = [f"{number:04}-{patch.id}.patch" for number, patch in enumerate(series(line), 1)]
        for path, name in zip(made, names, strict=True):
            (target / name).write_bytes(path.read_bytes())
        for patch, name in zip(series(line), names, strict=True):
            if patch.id in _SHOWN.get(line.name, ()):
                title, body = read_mail(checkout, target / name)
                body = body[: body.index("Origin: other, ")].rstrip()
                (target / f"{patch.id}.md").write_text(f"# {title}\n\n{body}\n")
    (target / "series").write_text("".join(f"{name}\n" for name in names))
    (target / "README.md").write_text(table(line, folder))
    return patch_files(line, folder)


def table(line: Line, folder: Path) -> str:
    """What each pull request changes, and which others have to be merged before, as a page."""
    patches = paired(line, folder)
    rows = [
        f"| [{patch.id}]({path.name}) | {size(path).code} | {size(path).tests} | {', '.join(patch.stands_on) or '-'} |"
        for patch, path in patches
    ]
    missing = without_fix(line)
    lack = "These have no fix, and only NVIDIA's kernels answer as PyTorch does:\n\n" if missing else ""
    lack += "".join(f"- {module}: {why}.\n" for module, why in missing.items())
    return (
        f"# Pull requests for FlagGems {line.name}\n\nMade at {line.base} by `gems-overrides patches export`. "
        "Lines are those added and removed.\n\n| patch | lines of code | of tests and benchmarks | stands on |\n"
        f"|:---|---:|---:|:---|\n{chr(10).join(rows)}\n\n{lack}"
    )


def size(path: Path) -> Size:
    """The lines that a patch file adds and removes."""
    counts = {"code": 0, "tests": 0}
    kind = ""
    for line in path.read_text().splitlines():
        if line.startswith("diff --git "):
            kind = "tests" if line.split(" b/")[-1].startswith(("tests/", "benchmark/")) else "code"
        elif kind and line[:1] in ("+", "-") and not line.startswith(("+++ ", "--- ")):
            counts[kind] += 1
    return Size(**counts)


def _write(patch: Patch, line: Line, tree: Path) -> None:
    for path, text in patch.added.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    formatting.format_files(tree, [path for path in patch.added if path.endswith(".py")])
    if patch.changes is not None:
        git(tree, "apply", str(patch.changes.resolve()))
    if patch.exports:
        entry = tree / imports.PATH
        entry.write_text(imports.register(entry.read_text(), patch.exports))
    for edit in line.edits.get(patch.id, ()):
        _edit(tree, edit)


def _edit(tree: Path, edit: Edit) -> None:
    text = (tree / edit.path).read_text()
    if text.count(edit.old) != 1:
        raise UpstreamError(f"{edit.path}: has {edit.old.strip()!r} {text.count(edit.old)} times, not once")
    (tree / edit.path).write_text(text.replace(edit.old, edit.new))


def patch_files(line: Line, folder: Path) -> list[Path]:
    """The patches of a line in their order.

    Raises:
        PatchesError: there are none.
    """
    listing = folder / line.name / "series"
    if not listing.exists():
        raise PatchesError(f"{listing}: is not there; write it with `gems-overrides patches export`")
    return [listing.parent / name for name in listing.read_text().split()]


def paired(line: Line, folder: Path) -> list[tuple[Patch, Path]]:
    """Each patch of a line, and the file that has it.

    Raises:
        PatchesError: there are none, or not those that there would be now.
    """
    patches, paths = series(line), patch_files(line, folder)
    wanted, there = [patch.id for patch in patches], [path.stem[5:] for path in paths]
    if wanted != there:
        differing = ", ".join(sorted(set(wanted) ^ set(there))) or "their order"
        raise PatchesError(
            f"{folder / line.name / 'series'}: is not what the operators make now ({differing}); write it anew with "
            "`gems-overrides patches export`"
        )
    return list(zip(patches, paths, strict=True))


def drift(line: Line, folder: Path) -> list[str]:
    """In which files the patches of a line differ from what they would be made of now.

    Where the formatters are installed, every byte counts; elsewhere, the syntax trees without the order of imports and
    the space that ends docstrings.
    """
    with tempfile.TemporaryDirectory() as scratch:
        stored, now = Path(scratch, "stored"), Path(scratch, "now")
        stored.mkdir()
        git(stored, "init", "--quiet")
        files = patch_files(line, folder)
        for file in files:
            # All that a patch adds and nothing that it changes: upstream's files are not here.
            added = [f"--include={name}" for name in _added(file.read_text())]
            if added:
                git(stored, "apply", *added, str(file.resolve()))
        patches = series(line)
        wanted = {path: text for patch in patches for path, text in patch.added.items()}
        for path, text in wanted.items():
            (now / path).parent.mkdir(parents=True, exist_ok=True)
            (now / path).write_text(text)
        exact = not formatting.missing()
        if exact:
            # What black made was compared with what it was made of when it was exported.
            formatting.format_files(now, [path for path in wanted if path.endswith(".py")], "--fast")
        added_to = [stored / name for name in ("src", "tests", "benchmark")]
        there = {str(path.relative_to(stored)) for root in added_to for path in root.rglob("*") if path.is_file()}
        changed = {
            path
            for path in there | set(wanted)
            if path not in there or path not in wanted or not _same(stored / path, now / path, exact)
        }
    names = {path.stem[5:]: path for path in files}
    for patch in patches:
        if patch.id not in names:
            changed.add(patch.id)
        elif patch.changes is not None and _lines(patch.changes.read_text()) != _lines(names[patch.id].read_text()):
            changed.add(f"{patch.id}: {patch.changes.name}")
    return sorted(changed)


def _lines(patch: str) -> list[str]:
    """The lines that a patch takes from and puts into files that are there already."""
    found = []
    changes = False  # not in the message
    for before, line in itertools.pairwise(["", *patch.splitlines()]):
        if line.startswith("+++ "):
            changes = before != "--- /dev/null"
        elif line[:1] in ("+", "-") and not line.startswith("--- ") and changes:
            found.append(line)
    return found


def _added(patch: str) -> list[str]:
    lines = patch.splitlines()
    return [
        after.removeprefix("+++ b/")
        for before, after in itertools.pairwise(lines)
        if before == "--- /dev/null" and after.startswith("+++ b/")
    ]


def _same(one: Path, other: Path, exact: bool) -> bool:
    texts = one.read_text(), other.read_text()
    return texts[0] == texts[1] if exact or one.suffix != ".py" else _meaning(texts[0]) == _meaning(texts[1])


def _meaning(text: str) -> tuple[set[str], str]:
    """A file's imports in no order, and all the rest."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Constant(str() as docstring)):
                node.value = ast.Constant(docstring.rstrip())
    imported = set()
    rest = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            where = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            imported |= {f"{where} {alias.name} {alias.asname}" for alias in node.names}
        else:
            rest.append(node)
    return imported, ast.dump(ast.Module(rest, []))


def check(line: Line, folder: Path, checkout: Path) -> list[str]:
    """Apply the patches of a line at its base: all, and each with what it stands on alone. Return what upstream's
    formatters, as far as installed, say, which files outside of ``_nvidia`` speak of NVIDIA, and what vendors' files
    import that is no longer there.

    Raises:
        GitError: a patch does not apply.
    """
    patches = paired(line, folder)
    with worktree(checkout, line.base) as tree:
        for patch, _ in patches:
            for each, path in together(patches, [patch.id]):
                put(tree, each, path)
            git(tree, "reset", "--quiet", "--hard")
        for _, path in patches:
            apply_mail(tree, path)
        touched = git(tree, "diff", "--name-only", line.base, "HEAD", "--", "*.py").split()
        named = vendors.named(git(tree, "diff", line.base, "HEAD"))
        return [*checks.formatting_errors(tree, touched), *named, *vendors.dangling(tree)]


def apply(folder: Path, target: Path, kind: Kind | None = None) -> Path:
    """Copy the installed flag_gems to ``target/src``, apply its line's patches there, and return that folder.

    On ``sys.path`` before the installed one it is flag_gems with the patches merged: all, or those of a kind.

    Raises:
        PatchesError: no flag_gems is installed, or one that no line is made for; or ``target`` is there already.
        GitError: a patch does not apply.
    """
    package = importlib.util.find_spec("flag_gems")
    if package is None or package.origin is None:
        raise PatchesError("no flag_gems is installed")
    release = version("flag_gems")
    lines = [line for line in LINES.values() if Version(line.release) <= Version(release)]
    if not lines:
        raise PatchesError(f"flag_gems {release}: no patches are made for it; there are for {', '.join(LINES)}")
    if target.exists():
        raise PatchesError(f"{target}: is there already; name a new folder")
    patches = paired(max(lines, key=lambda line: Version(line.release)), folder)
    source = Path(target, "src")
    shutil.copytree(Path(package.origin).parent, source / "flag_gems", ignore=shutil.ignore_patterns("__pycache__"))
    git(target, "init", "--quiet")
    for patch, path in patches:
        if patch.kind != "tests" and kind in (None, patch.kind):
            # An installed package has no tests and benchmarks to change.
            git(target, "apply", "--include=src/*", str(path.resolve()))
    return source


def together(patches: list[tuple[Patch, Path]], chosen: Iterable[str]) -> list[tuple[Patch, Path]]:
    """Those patches of a line that are chosen, by their ids, and those that they stand on, in the line's order."""
    known = {patch.id: patch for patch, _ in patches}
    left, wanted = list(chosen), set()
    while left:
        wanted.add(left[-1])
        left += set(known[left.pop()].stands_on) - wanted
    return [(patch, path) for patch, path in patches if patch.id in wanted]


def put(tree: Path, patch: Patch, path: Path) -> None:
    """Change a tree and its index as a patch does, with or without the patches before it that it does not need.

    All kernels add their lines to one file, and a patch would not find its neighbours' there.

    Raises:
        GitError: the patch does not apply.
    """
    elsewhere = [f"--exclude={imports.PATH}"] if patch.exports else []
    git(tree, "apply", "--index", *elsewhere, str(path.resolve()))
    if patch.exports:
        entry = tree / imports.PATH
        entry.write_text(imports.register(entry.read_text(), patch.exports))
        git(tree, "add", imports.PATH)


def branch(
    line: Line, folder: Path, checkout: Path, op: str | None = None, kind: Kind | None = None, onto: str | None = None
) -> Iterator[tuple[str, str]]:
    """Make a branch per pull request in a checkout, with the patches that it stands on: its name, and the body.

    The checkout may be on any branch and have any changes. When a patch does not apply, no branch stays.

    Args:
        op: a patch's name; only its branches are made.
        kind: ``"fix"``, ``"kernel"`` or ``"tests"``, likewise.
        onto: a commit of the checkout; the line's base if it is None.

    Raises:
        PatchesError: no such patch, or there are not those that there would be now.
        GitError: a patch does not apply, or a branch is there already.
    """
    patches = paired(line, folder)
    chosen = [patch for patch, _ in patches if op in (None, patch.name) and kind in (None, patch.kind)]
    if not chosen:
        known = ", ".join(patch.id for patch, _ in patches)
        raise PatchesError(f"--op {op} --kind {kind}: no such patch; there are {known}")
    made: list[tuple[str, str]] = []
    try:
        for patch in chosen:
            name = f"planned-{patch.id}"
            with worktree(checkout, onto or line.base) as tree:
                for each, path in together(patches, [patch.id]):
                    put(tree, each, path)
                    subject, body = read_mail(tree, path)
                    git(tree, "commit", "--quiet", "--no-verify", "--file=-", text=f"{subject}\n\n{body}")
                git(tree, "branch", name, "HEAD")
                made.append((name, git(tree, "log", "-1", "--format=%B")))
    except BaseException:
        for name, _ in made:
            git(checkout, "branch", "--quiet", "--delete", "--force", name)
        raise
    yield from made
