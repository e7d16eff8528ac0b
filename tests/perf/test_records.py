# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flag_gems_overrides.perf.records import Recorder, RecordError, dumps, read

from . import rows


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "record.jsonl"


KEYS = ("max 8 int8", "max 9 int8", "max 10 int8")


def record(path, *measured: str, keys: tuple[str, ...] = KEYS, **changes) -> None:
    recorder = Recorder(path, rows.head(**changes), keys)
    for key in measured:
        recorder.row(rows.timed(key, override=1.0, native=1.1))
    recorder.close()


def test_what_is_written_is_read(path):
    row = rows.timed(override=1.0, native=1.1)
    recorder = Recorder(path, rows.head(), [row["key"]])
    recorder.row(row)
    assert not read(path)[-1].ended, "every line is on disk before the session ends"
    recorder.close()
    (session,) = read(path)
    assert session.head == rows.head(cases=session.head["cases"], total=1)
    assert session.rows == {row["key"]: row}
    assert session.ended
    assert session.device == "NVIDIA H200"


def test_an_interrupted_session_is_resumed(path):
    record(path, "max 8 int8", cold=rows.COLD)
    measured_anew = {**rows.COLD, "copy_us": [5.1, 9.1, 17.1]}
    record(path, "max 9 int8", started="2026-11-20T13:00:00+00:00", noise=0.02, cold=measured_anew)
    (session,) = read(path)
    assert list(session.rows) == ["max 8 int8", "max 9 int8"]
    assert not session.ended, "a case is missing"
    record(path, "max 10 int8", keys=KEYS[::-1], cold=rows.COLD)
    (session,) = read(path)
    assert session.ended


@pytest.mark.parametrize(
    ("measured", "changes"),
    [
        (KEYS, {}),
        (KEYS[:1], {"commit": "def"}),
        (KEYS[:1], {"device": {"name": "NVIDIA A100"}}),
        (KEYS[:1], {"level": "all"}),
        (KEYS[:1], {"peers": ["quack"]}),
        (KEYS[:1], {"keys": KEYS[:2]}),
    ],
)
def test_another_session_follows_an_ended_one_or_one_of_other_conditions_or_cases(path, measured, changes):
    record(path, *measured)
    record(path, **changes)
    first, second = read(path)
    assert tuple(first.rows) == measured
    assert not second.rows
    assert not second.ended


def test_a_session_that_does_not_say_of_which_cases_it_is_is_read_but_not_continued(path):
    path.parent.mkdir()
    path.write_text(f"{dumps(rows.head())}\n{dumps(rows.timed('max 8 int8', override=1.0))}\n")
    record(path)
    first, second = read(path)
    assert list(first.rows) == ["max 8 int8"]
    assert not second.rows


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_line_cut_off_by_a_crash_is_dropped(path, cut):
    record(path, "max 8 int8", "max 9 int8")
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(read(path)[-1].rows) == ["max 8 int8"]
    record(path, "max 10 int8")
    assert list(read(path)[-1].rows) == ["max 8 int8", "max 10 int8"]


def test_the_same_rows_make_the_same_bytes(tmp_path):
    record(tmp_path / "a", "max 8 int8")
    record(tmp_path / "b", "max 8 int8")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def broken(change) -> dict:
    row = rows.timed(override=1.0)
    change(row)
    return row


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda row: row.pop("l2"), "'l2' is a required property"),
        (lambda row: row["providers"]["override"]["samples_ms"].__setitem__(3, -1), r"samples_ms\[3\].*-1"),
        (
            lambda row: row["providers"]["override"].__setitem__("agrees", "yes"),
            "providers.override.*agrees",
        ),
        (lambda row: row["compulsory"].__setitem__("read", 1.5), r"compulsory\.read"),
        (lambda row: row.__setitem__("key", "softmax"), "key"),
        (lambda row: row.__setitem__("notes", ""), "notes"),
    ],
)
def test_a_wrong_field_is_named_on_writing_and_reading(path, change, field):
    row = broken(change)
    recorder = Recorder(path, rows.head(), ["max 8 int8"])
    with pytest.raises(RecordError, match=field):
        recorder.row(row)
    recorder.close()
    with path.open("a") as file:
        file.write(dumps(row) + "\n")
    with pytest.raises(RecordError, match=f"record.jsonl line 2: .*{field}"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no session"),
        ("{\n", "line 1: not JSON"),
        ("[]\n", "line 1: expected an object, not list"),
        ('{"kind": "end"}\n', "line 1: a end before any session"),
        (
            json.dumps(rows.head(schema=1)) + "\n",
            "line 1: schema: 1 cannot be read, 2 can; .*`contenders` ",
        ),
        (json.dumps(rows.head(schema=3)) + "\n", "line 1: schema: 3 cannot be read, 2 can; read it with the version"),
        (json.dumps({"benchmarks": []}) + "\n", "line 1: .*'kind' is a required property"),
        (json.dumps(rows.head(cold={**rows.COLD, "copy_us": [0]})) + "\n", r"line 1: cold.copy_us\[0\]"),
        (json.dumps(rows.head(device={})) + "\n", "line 1: device: 'name' is a required property"),
    ],
)
def test_a_foreign_or_broken_file_is_named(tmp_path, text, message):
    path = tmp_path / "foreign.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=f"foreign.json:? ?{message}"):
        read(path)


def test_a_missing_file_is_named_with_what_writes_one(tmp_path):
    with pytest.raises(RecordError, match=r"No such file.*gems-overrides bench"):
        read(tmp_path / "none")


def fill(path, limit: int) -> subprocess.CompletedProcess:
    """Write a record in a process whose files cannot grow beyond ``limit`` bytes: a write is cut short there, as on a
    full disk."""
    code = f"""
        import pathlib, resource, signal, sys
        from flag_gems_overrides.perf.records import Recorder, RecordError
        from perf import rows
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        try:
            recorder = Recorder(pathlib.Path({str(path)!r}), rows.head(), {KEYS[:2]!r})
            try:
                for key in {KEYS[:2]!r}:
                    recorder.row(rows.timed(key, override=1.0, native=1.1))
            finally:
                recorder.close()
        except RecordError as error:
            sys.exit(str(error))
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment
    )


def test_a_full_disk_is_said_and_leaves_whole_lines(tmp_path):
    path = tmp_path / "record.jsonl"
    assert fill(path, 1 << 20).stderr == ""
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 4
    for kept in range(4):
        path.unlink()
        before = "".join(lines[:kept])
        done = fill(path, len(before) + 10)
        message = f"{path}: File too large; the lines before are whole: make room, and the same command resumes\n"
        assert (done.returncode, done.stderr) == (1, message)
        assert path.read_text() == before


@pytest.mark.parametrize("size", [1, 7])
def test_a_short_write_is_completed(path, monkeypatch, size):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, text: write(file, text[:size]))
    record(path, *KEYS)
    monkeypatch.undo()
    (session,) = read(path)
    assert session.ended
    assert not session.torn
    assert list(session.rows) == list(KEYS)


def test_what_cannot_be_truncated_is_no_place_for_a_record(tmp_path):
    with pytest.raises(RecordError, match="/dev/full: Invalid argument; give a path that can be written"):
        record(Path("/dev/full"))


def test_a_torn_record_says_so_on_reading(path):
    record(path, "max 8 int8", "max 9 int8")
    assert not read(path)[-1].torn
    path.write_bytes(path.read_bytes()[:-40])
    assert read(path)[-1].torn
    assert list(read(path)[-1].rows) == ["max 8 int8"]


def test_a_row_that_was_not_written_is_not_in_the_session(path, monkeypatch):
    recorder = Recorder(path, rows.head(), KEYS)

    def full(file, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RecordError, match="No space left on device"):
        recorder.row(rows.timed("max 8 int8", override=1.0))
    assert not recorder.session.rows
    recorder.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(recorder._file)


def test_benchmarks_say_in_one_line_that_a_record_cannot_be_written():
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "benchmark", "-m", "prod"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, "--record", "json", "--output", "/dev/full"],
        capture_output=True,
        text=True,
        cwd=root,
        env=environment,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "error: /dev/full: Invalid argument; give a path that can be written" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_line_is_the_same_for_the_same_value_and_no_nan_is_in_it():
    assert dumps({"b": 1, "a": [1, 2]}) == dumps({"a": [1, 2], "b": 1}) == '{"a": [1, 2], "b": 1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(float("nan"))


def test_everybody_may_read_a_record(path):
    before = os.umask(0o027)
    try:
        record(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_line_of_no_kind_is_named_as_a_whole(path):
    path.parent.mkdir()
    path.write_text('{"schema": 2}\n')
    with pytest.raises(RecordError, match=r"line 1: line: 'kind' is a required property"):
        read(path)


def test_a_session_without_a_schema_lacks_a_field(path):
    path.parent.mkdir()
    path.write_text('{"kind": "session"}\n')
    with pytest.raises(RecordError, match="is a required property"):
        read(path)


def test_a_row_is_of_a_case_without_saying_so(path):
    row = {name: value for name, value in rows.timed("max 8 int8", override=1.0).items() if name != "kind"}
    recorder = Recorder(path, rows.head(), ["max 8 int8"])
    recorder.row(row)
    recorder.close()
    assert read(path)[0].rows["max 8 int8"]["kind"] == "case"
