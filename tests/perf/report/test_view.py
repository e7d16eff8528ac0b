# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.report.view import of, select

from .. import rows
from .made import KEYS, counts, session, shown


def keys(made) -> list[str]:
    return [result.case.key for result in made.results]


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ({}, KEYS),
        ({"ops": ["softmax"]}, KEYS[:3]),
        ({"ops": ["softmax", "prod"], "dtypes": ["float32"]}, KEYS[2:]),
        ({"verdicts": ["slower"]}, KEYS[1:2]),
        ({"verdicts": ["FASTER", "SAME"]}, (KEYS[0], *KEYS[2:])),
        ({"verdicts": ["UNSURE"]}, ()),
    ],
)
def test_cases_are_chosen_by_op_dtype_and_verdict(chosen, left):
    made = select(shown(), **chosen)
    assert keys(made) == list(left)
    assert made.notes == ((f"{len(left)} of 4 cases, as chosen.",) if len(left) < 4 else ())


def test_an_unknown_op_is_named_by_its_option():
    with pytest.raises(UserError, match="--op 'gelu' is not known; known: softmax, prod"):
        select(shown(), ops=["gelu"])


def test_the_worst_or_the_slowest_come_first():
    assert keys(select(shown(), order="worst"))[0] == KEYS[1]
    assert keys(select(shown(), order="worst"))[-1] == KEYS[3]
    assert keys(select(shown(), order="slowest"))[0] == KEYS[1]
    small, large = rows.counted(), rows.counted("softmax 9x9 dim=1 float32", loaded=9 * 65536)
    assert keys(select(counts(small, large), order="slowest"))[0] == large["key"]
    assert keys(select(counts(small, large), order="worst"))[0] == large["key"]


def test_a_partial_session_says_so_and_how_much_of_it_is_there():
    partial = session(total=9)
    partial.ended = False
    assert of([partial], None, "r").notes == ("Partial: the session was not ended; it has 4 of 9 cases.",)
    partial.torn = True
    cut = "The last line of the record was cut off while it was written, and is left out."
    assert of([partial], None, "r").notes[1] == cut
    older = session()
    older.ended = False
    assert of([older], None, "r").notes == ("Partial: the session was not ended; it has 4 cases.",)
    assert of([session()], None, "r").notes == ()


def test_of_several_sessions_the_last_is_shown_unless_another_is_chosen():
    sessions = [session(commit="abc"), session(commit="def")]
    assert of(sessions, None, "r").head["commit"] == "def"
    assert of(sessions, 1, "r").head["commit"] == "abc"
    assert of(sessions, 1, "r").notes[0].startswith("Session 1 of 2 in this record")
    for number in (0, 3):
        with pytest.raises(UserError, match=f"r: --session {number}: the record has 2"):
            of(sessions, number, "r")
