# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

from flag_gems_overrides.perf.files import WriteError, make_folder, write


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "deep" / "a.json"
    write(path, "one")
    write(path, "two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_what_fails_leaves_the_old_text_and_no_part(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write(path, "one")

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"a\.json: No space left on device; name a file that can be written"):
        write(path, "two")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_made_or_named(tmp_path, monkeypatch):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"file: File exists; name a folder that can be written"):
        make_folder(tmp_path / "file")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(WriteError, match=r"a: Permission denied; name a folder"):
        make_folder(tmp_path / "a")
