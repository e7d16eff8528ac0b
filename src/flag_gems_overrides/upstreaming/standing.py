# SPDX-License-Identifier: Apache-2.0
"""Where each patch of a line stands: its size, what it applies to, and whether upstream has it already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from flag_gems_overrides.upstreaming import observe
from flag_gems_overrides.upstreaming.defects import FIXED
from flag_gems_overrides.upstreaming.exchange import Size, paired, put, size, together
from flag_gems_overrides.upstreaming.git import GitError, git, worktree
from flag_gems_overrides.upstreaming.imports import UpstreamError
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.message import issues
from flag_gems_overrides.upstreaming.series import Patch
from flag_gems_overrides.upstreaming.status import backend, visible

Verdict = Literal["applies", "merged", "does not apply"]


class Standing(NamedTuple):
    """One patch."""

    patch: Patch
    size: Size
    verdicts: Mapping[str, Verdict]
    """By commit, as it was named."""
    resolves: list[str]
    associated: list[str]


def standings(line: Line, folder: Path, checkout: Path, commits: Iterable[str]) -> list[Standing]:
    """Where the patches of a line stand on these commits of a checkout.

    A fix is merged where the reproductions of all its defects that can show on this machine find nothing, a kernel
    where its files are there. The reproductions take 10 s a commit in the interpreter.

    Raises:
        PatchesError: there are no patches, or not those that there would be now.
        RuntimeError: flag_gems cannot be imported at one of the commits.
    """
    patches = paired(line, folder)
    verdicts: dict[str, dict[str, Verdict]] = {patch.id: {} for patch, _ in patches}
    for commit in commits:
        with worktree(checkout, commit) as tree:
            mended = _mended(tree, line)
            for patch, _ in patches:
                verdicts[patch.id][commit] = _verdict(patch, patches, tree, mended)
    return [Standing(patch, size(path), verdicts[patch.id], *issues(patch, line)) for patch, path in patches]


def _mended(tree: Path, line: Line) -> dict[str, bool]:
    (tree / "src/flag_gems/_version.py").write_text(f'version = "{line.release}"\ncommit_id = None\n')
    outcomes = observe.observe(visible(line.release, backend()), tree / "src")
    return {id: outcome == FIXED for id, outcome in outcomes.items()}


def _verdict(patch: Patch, patches: list[tuple[Patch, Path]], tree: Path, mended: Mapping[str, bool]) -> Verdict:
    if patch.kind == "fix":
        known = [mended[row.id] for row in patch.defects if row.id in mended]
        if known and all(known):
            return "merged"
    elif patch.added and all((tree / name).exists() for name in patch.added):
        return "merged"
    try:
        for each, path in together(patches, [patch.id]):
            put(tree, each, path)
    except (GitError, UpstreamError):
        return "does not apply"
    finally:
        git(tree, "reset", "--quiet", "--hard")
    return "applies"
