# SPDX-License-Identifier: Apache-2.0
"""What the tuner has measured outlives it."""

from __future__ import annotations

import errno
import os

import pytest

from flag_gems_overrides.perf.tune import journal as journals
from perf.tune.made import row


def test_an_interrupted_journal_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = journals.Journal(path, {"device": "a"})
    journal.add(journals.Measured("fake", row(64)))
    journal.add(journals.Measured("fake", row(128, None)))
    journal.close()
    with path.open("a") as file:
        file.write('{"family": "fa')
    again = journals.Journal(path, {"device": "a"})
    assert again.measured == {
        "fake": {each.problem: journals.Measured("fake", each) for each in (row(64), row(128, None))}
    }
    again.add(journals.Measured("fake", row(256)))
    again.close()
    last = journals.Journal(path, {"device": "a"})
    last.close()
    assert len(last.measured["fake"]) == 3


def test_a_full_disk_leaves_a_journal_of_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    journal = journals.Journal(path, {"device": "a"})
    journal.add(journals.Measured("fake", row(64)))
    before, write, room = path.read_bytes(), os.write, [20]

    def until_full(file, text):
        """Writes what there is room for, as file systems do, and fails when asked for the rest."""
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, text[: room.pop()])

    monkeypatch.setattr(os, "write", until_full)
    message = r"journal\.jsonl: No space left on device; the lines before are whole: make room, and the same command"
    with pytest.raises(journals.JournalError, match=message):
        journal.add(journals.Measured("fake", row(128)))
    journal.close()
    assert path.read_bytes() == before
    monkeypatch.undo()
    again = journals.Journal(path, {"device": "a"})
    again.close()
    assert again.measured == journal.measured == {"fake": {row(64).problem: journals.Measured("fake", row(64))}}


def test_a_journal_of_other_conditions_or_none_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    journals.Journal(path, {"device": "a"}).close()
    with pytest.raises(journals.JournalError, match=r"journal\.jsonl: was measured under other conditions"):
        journals.Journal(path, {"device": "b"})
    path.write_text("what\n")
    with pytest.raises(journals.JournalError, match=r"journal\.jsonl line 1: not JSON"):
        journals.Journal(path, {"device": "a"})
    path.write_text('{"head": {"device": "a"}}\n{"family": "x"}\n')
    with pytest.raises(journals.JournalError, match=r"journal\.jsonl line 2: 'row'"):
        journals.Journal(path, {"device": "a"})
