# SPDX-License-Identifier: Apache-2.0
"""git, with nothing of the user's configuration in what it makes."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flag_gems_overrides.errors import UserError

AUTHOR = "flag-gems-overrides authors"
EMAIL = "flag-gems-overrides@users.noreply.github.com"
DATE = "2026-11-20T12:00:00+00:00"

_SAME_EVERYWHERE = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", AUTHOR), ("EMAIL", EMAIL), ("DATE", DATE))
    },
}


class GitError(UserError):
    """git refused; the message is its own."""


def git(folder: Path, *words: str, text: str | None = None) -> str:
    """Run git in a folder, with ``text`` as its input, and return what it prints.

    Raises:
        GitError: it ended with another status than 0.
    """
    if not folder.is_dir():
        raise GitError(f"{folder}: no such folder; name a clone of FlagGems, as by --checkout")
    # A hook of git's sets these, and they would send us to another repository than the folder's.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *words], cwd=folder, input=text, capture_output=True, text=True, env=kept | _SAME_EVERYWHERE
    )
    if done.returncode:
        raise GitError(f"{folder}: git {words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


@contextmanager
def worktree(checkout: Path, commit: str) -> Iterator[Path]:
    """A scratch work tree of a checkout at a commit, gone afterwards; the checkout's own files stay untouched."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "tree")
        git(checkout, "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            git(checkout, "worktree", "remove", "--force", str(tree))


def apply_mail(tree: Path, patch: Path) -> None:
    """Commit a patch as ``git am`` does, which requires an exact match of the context."""
    git(tree, "am", "--quiet", str(patch.resolve()))


def read_mail(tree: Path, patch: Path) -> tuple[str, str]:
    """The subject and the body of a patch's message."""
    with tempfile.TemporaryDirectory() as scratch:
        body = Path(scratch, "body")
        head = git(tree, "mailinfo", str(body), str(Path(scratch, "diff")), text=patch.read_text())
        subject = next(line for line in head.splitlines() if line.startswith("Subject: "))
        return subject.removeprefix("Subject: "), body.read_text()
