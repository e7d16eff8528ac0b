# SPDX-License-Identifier: Apache-2.0
"""What is counted of the faults in judges: which are drawn, and what makes the run fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import unnoticed
from faults.judges import Fault, differing, drawn, refresh, report

FAULT = Fault("flag_gems_overrides.perf.gates.x__times__mutmut_1", "return a < b", "return a <= b", "survived")


def test_a_fault_is_named_by_its_function_and_what_it_changes() -> None:
    assert FAULT.show() == "perf.gates._times: return a < b -> return a <= b"
    of_a_method = FAULT._replace(name="flag_gems_overrides.perf.results.xǁResultǁratio__mutmut_3")
    assert of_a_method.function == "perf.results.Result.ratio"
    before = ["def f_orig():", "    x = 1", "    y = g(", "        x,", "    )", "    return y"]
    after = ["def f_1():", "    x = 1", "    y = g(", "        None,", "    )", "    return y"]
    assert differing(before[1:], after[1:]) == ("x,", "None,")
    assert differing(["a", "b", "a"], ["a", "a"]) == ("b", "")


def test_an_edited_template_is_copied_again_and_code_with_faults_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("src/a", "mutants/src/a"):
        Path(folder).mkdir(parents=True)
        for name in ("page.md.j2", "code.py"):
            (Path(folder) / name).write_text(folder)
    Path("src/a/new.json").write_text("{}")
    refresh()
    assert Path("mutants/src/a/page.md.j2").read_text() == "src/a"
    assert Path("mutants/src/a/code.py").read_text() == "mutants/src/a"
    assert Path("mutants/src/a/new.json").exists()


def test_what_is_drawn_does_not_depend_on_what_else_there_is() -> None:
    known = [FAULT._replace(name=f"flag_gems_overrides.a.x_f__mutmut_{number}") for number in range(100)]
    few = drawn(known, 10, 1)
    assert few == drawn(known[::-1], 10, 1)
    assert few != drawn(known, 10, 2)
    left = [fault for fault in known if fault not in few[5:]]
    assert drawn(left, 10, 1)[:5] == few[:5]


@pytest.mark.parametrize(
    ("status", "patterns", "unexplained"),
    [
        ("survived", (), 1),
        ("no tests", (), 1),
        ("not checked", (), 1),
        ("survived", ("perf.gates._times: * < * -> * <= *",), 0),
        ("survived", ("perf.gates.*: * -> None",), 1),
        ("killed", (), 0),
        ("timeout", (), 0),
    ],
)
def test_what_no_test_notices_needs_a_reason(
    status: str,
    patterns: tuple[str, ...],
    unexplained: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(unnoticed, "REASONS", {"both are the same": patterns})
    assert report([FAULT._replace(status=status), FAULT._replace(status="killed")]) == unexplained
    output = capsys.readouterr().out
    assert (FAULT.show() in output) == bool(unexplained)
    assert ("both are the same" in output) == (
        status == "survived" and "perf.gates._times: * < * -> * <= *" in patterns
    )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('say("no such case")', 'say("XXno such caseXX")', True),
        ('say("No such case")', 'say("no such case")', True),
        ('say("no such case", "a")', 'say("no such case", "XXaXX")', False),
        ('say("no such case", "a")', 'say("no such case", "A")', False),
        ('say("no such case", x)', "say(None, x)", False),
        ('say("no such case") + 1', 'say("no such case") - 1', False),
        ('if line.startswith("diff --git "):', 'if line.startswith("XXdiff --git XX"):', False),
        ('if "no such" in text:', 'if "NO SUCH" in text:', False),
        ('row["samples_ms"]', 'row["XXsamples_msXX"]', False),
    ],
)
def test_prose_is_told_from_words_that_are_looked_for(before: str, after: str, words: bool) -> None:
    assert unnoticed.in_words(FAULT._replace(before=before, after=after)) is words
