# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess

import pytest

from flag_gems_overrides.perf.conditions import commit


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for variable, value in {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    for command in ("init --quiet", "add file", "commit --quiet --message=one"):
        (tmp_path / "file").write_text("one")
        subprocess.run(["git", *command.split()], check=True)
    return tmp_path


def test_a_clean_checkout_is_its_commit(repository):
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    (repository / "untracked").write_text("")
    assert commit() == head


def test_a_changed_checkout_says_so(repository):
    (repository / "file").write_text("two")
    assert commit().endswith("-dirty")


def test_without_git_it_is_the_commit_of_the_workflow(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GITHUB_SHA", "abc")
    assert commit() == "abc"
    monkeypatch.delenv("GITHUB_SHA")
    assert commit() is None
