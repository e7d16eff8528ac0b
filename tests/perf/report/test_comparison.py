# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report import comparison
from flag_gems_overrides.perf.report.tables import Column, Line

from .. import rows
from .made import KEYS
from .test_pages import rendered


def session(factors=(1.0, 1.0, 1.0, 1.0), native=2.0, **changes) -> Session:
    made = [rows.timed(key, override=ms, native=native) for key, ms in zip(KEYS, factors, strict=True)]
    return Session(rows.head(**changes), {row["key"]: row for row in made}, ended=True)


def counted(*made) -> Session:
    return Session(rows.head("count"), {row["key"]: row for row in made}, ended=True)


def test_every_case_has_a_verdict_and_the_worst_comes_first():
    difference = comparison.compare(session(), session((1.0, 1.1, 0.8, 1.3)))
    assert [(change.key, change.word) for change in difference.changes] == [
        (KEYS[3], "SLOWER"),
        (KEYS[1], "SLOWER"),
        (KEYS[0], "SAME"),
        (KEYS[2], "FASTER"),
    ]
    assert [change.ratio for change in difference.changes] == pytest.approx([1 / 1.3, 1 / 1.1, 1, 1.25])
    assert difference.worse
    assert comparison.headline(difference) == (
        "4 cases: 2 SLOWER, 1 SAME, 1 FASTER; geomean of speed -3.3 %; all answers right"
    )
    means = comparison.means(difference.changes).lines
    assert means[0].cells == ["prod", "float32", "1", "-23.1 %", "1", "0", "0", "0"]


def test_tables_have_every_case_and_every_op_with_the_least_important_columns_ranked_last():
    cases, means = comparison.tables(comparison.compare(session(), session((1.0, 1.1, 0.8, 1.3))))
    assert (cases.title, means.title) == ("Cases, worst first", "Geometric means of every operator")
    text = ("Op", "Size Detail", "dtype", "Verdict")
    for table, ranks in (
        (cases, {"Op": 0, "Size Detail": 0, "dtype": 0, "Verdict": 0, "Change": 1}),
        (means, {"Op": 0, "dtype": 0, "Cases": 1, "geomean": 0, "worse": 0, "unsure": 1, "same": 1, "better": 0}),
    ):
        ranks |= {"Old (ms)": 3, "New (ms)": 3, "95 % interval": 2} if table is cases else {}
        assert table.columns == [Column(name, rank, name in text) for name, rank in ranks.items()]
        assert {len(line.cells) for line in table.lines} == {len(table.columns)}
    slowest = ["prod", "65536", "float32", "SLOWER", "-23.1 %", "0.9995", "1.299", "[-23.2 %, -22.9 %]"]
    assert cases.lines[0] == Line(slowest, KEYS[3], "SLOWER")
    assert [line.cells[3:] for line in means.lines] == [
        ["-23.1 %", "1", "0", "0", "0"],
        ["-4.7 %", "1", "0", "1", "0"],
        ["+25.0 %", "0", "0", "0", "1"],
    ]


def test_json_has_both_heads_and_every_case():
    new = session((1.0, 1.1, 0.8, 1.3), commit="def")
    new.rows[KEYS[2]]["providers"]["override"]["agrees"] = False
    made = comparison.as_json(comparison.compare(session(), new))
    assert made.keys() == {"old", "new", "noise", "newly_wrong", "cases"}
    assert (made["old"]["commit"], made["new"]["commit"]) == ("abc", "def")
    assert (made["noise"], made["newly_wrong"]) == (0.01, [KEYS[2]])
    assert len(made["cases"]) == 4
    assert made["cases"][0] == {
        "key": KEYS[3],
        "old": "0.9995",
        "new": "1.299",
        "ratio": 0.7692,
        "interval": "[-23.2 %, -22.9 %]",
        "word": "SLOWER",
    }


def test_noise_of_either_session_counts():
    for old, new in ((0.01, 0.2), (0.2, 0.01)):
        difference = comparison.compare(session(noise=old), session((1.1,) * 4, noise=new))
        assert (difference.noise, difference.worse) == (0.2, False)


def test_an_answer_that_was_not_compared_is_not_right():
    new = session()
    del new.rows[KEYS[0]]["providers"]["override"]["agrees"]
    assert comparison.compare(session(), new).newly_wrong == [KEYS[0]]


def test_fewer_launches_alone_are_less():
    (change,) = comparison.compare(counted(rows.counted(launches=2)), counted(rows.counted())).changes
    assert (change.word, change.old, change.new) == ("LESS", "131072 B in 2", "131072 B in 1")
    headline = comparison.headline(comparison.compare(counted(rows.counted(launches=2)), counted(rows.counted())))
    assert headline == "1 case: 1 LESS; geomean of bytes +0.0 %; all answers right"


def test_what_is_only_faster_is_not_worse():
    assert not comparison.compare(session(), session((0.5, 0.5, 1.0, 1.0))).worse


def test_a_difference_that_pytorch_shows_too_is_noise():
    slower = session((1.08, 1.08, 1.08, 1.08), native=2.0)
    assert comparison.compare(session(), slower).worse
    throttled = session((1.08, 1.08, 1.08, 1.08), native=2.3)
    difference = comparison.compare(session(), throttled)
    assert difference.noise == pytest.approx(0.15)
    assert not difference.worse
    other = {**rows.head()["versions"], "torch": "2.13.0"}
    assert comparison.compare(session(), session((1.08,) * 4, native=2.3, versions=other)).worse, (
        "other code of PyTorch"
    )


def test_an_answer_that_became_wrong_is_worse_even_if_faster():
    new = session((0.5,) * 4)
    new.rows[KEYS[0]]["providers"]["override"]["agrees"] = False
    difference = comparison.compare(session(), new)
    assert difference.worse
    assert f"1 answer newly WRONG: {KEYS[0]}" in comparison.headline(difference)
    was_wrong = copy.deepcopy(new)
    assert not comparison.compare(was_wrong, new).worse
    assert comparison.headline(comparison.compare(was_wrong, new)).endswith("1 wrong answer, 1 before")


def test_counts_are_compared_exactly():
    old = counted(rows.counted(), rows.counted("softmax 9x9 dim=1 float32"), rows.counted("max 9 float32"))
    new = counted(
        rows.counted(loaded=65537),
        rows.counted("softmax 9x9 dim=1 float32", launches=2),
        rows.counted("max 9 float32", loaded=0),
    )
    difference = comparison.compare(old, new)
    assert [change.word for change in difference.changes] == ["MORE", "MORE", "LESS"]
    assert (difference.changes[0].old, difference.changes[0].new) == ("131072 B in 1", "131073 B in 1")
    assert difference.worse
    assert not comparison.compare(old, old).worse
    assert [change.word for change in comparison.compare(old, old).changes] == ["SAME"] * 3


def test_what_is_not_compared_is_said():
    new = session()
    new.rows["max 8 int8"] = rows.timed("max 8 int8", override=1.0)
    del new.rows[KEYS[3]]
    new.rows[KEYS[2]]["providers"]["override"] = {"absent": "OutOfMemoryError"}
    notes = " ".join(comparison.notes(comparison.compare(session(), new)))
    assert "Not compared: 1 case of the old record alone." in notes
    assert "Not compared: 1 case of the new record alone." in notes
    assert f"Not compared: 1 case without samples in one record, as {KEYS[2]}." in notes
    assert "Old: code 1111111111111111, commit abc." in notes
    other = {**rows.head()["versions"], "torch": "2.13.0", "triton": "3.7.1"}
    notes = comparison.notes(comparison.compare(session(), session(versions=other)))
    assert notes[-1] == "Other versions: torch 2.11.0 -> 2.13.0, triton 3.6.0 -> 3.7.1"


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (session(device={"name": "NVIDIA A100"}), "device: 'NVIDIA H200' and 'NVIDIA A100' differ"),
        (session(measure="wrapper"), "measure: 'kernel' and 'wrapper' differ"),
        (Session(rows.head(), {}), "the records share no case"),
    ],
)
def test_what_cannot_be_compared_is_refused(new, message):
    with pytest.raises(UserError, match=message):
        comparison.compare(session(), new)


def test_markdown_names_the_worst_three_and_folds_the_rest():
    page = rendered(comparison.markdown(comparison.compare(session(), session((1.4, 1.3, 1.2, 1.1)))))
    assert page.startswith("<p><strong>4 cases: 4 SLOWER;")
    assert "<summary>Every case, worst first</summary>" in page
    worst, moved, means, every = page.split("<table>")[1:]
    assert [each.count("<tr>") for each in (worst, moved, means, every)] == [1 + 3, 1 + 3, 1 + 3, 1 + 4]
    assert "Operators of which a case became better or worse" in worst
    assert "<details>" in moved
    unchanged = rendered(comparison.markdown(comparison.compare(session(), session())))
    assert unchanged.count("<table>") == unchanged.count("<details>") == 2


def test_markdown_shows_an_operator_that_became_better_without_unfolding():
    page = rendered(comparison.markdown(comparison.compare(session(), session((1.0, 1.0, 1.0, 0.7)))))
    shown = page.partition("<details>")[0]
    assert shown.count("<tr>") == 1 + 1
    assert '<td style="text-align:left">prod</td>' in shown


def test_a_cell_is_not_broken_in_a_narrow_column_of_markdown():
    text = comparison.markdown(comparison.compare(session(), session((1.4, 1.3, 1.2, 1.1))))
    interval = next(line for line in text.splitlines() if KEYS[0].split()[1] in line).split(" | ")[-1].rstrip(" |")
    assert "%" in interval
    assert " " not in interval
