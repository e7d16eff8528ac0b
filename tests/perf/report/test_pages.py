# SPDX-License-Identifier: Apache-2.0
"""HTML and Markdown, as a browser and GitHub read them."""

from __future__ import annotations

import functools
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report import figures, html, markdown, performance
from flag_gems_overrides.perf.report.view import view

from .. import rows
from .made import KEYS, counts, lines, session, shown
from .test_summary import nothing

ROOT = Path(__file__).parents[3]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[bool] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "details":
            self.open.append("open" in dict(attrs))

    def all(self, *names) -> list[str]:
        return [value or "" for name, value in self.attributes if name in names]


@functools.cache
def page_of_all() -> str:
    return html.html(shown())


def test_the_page_needs_nothing_beside_it_and_shows_every_figure():
    text = html.html(shown(), [session(commit="0123456789"), session()])
    page = Page(text)
    assert page.tags.count("svg") == page.tags.count("figure") == len(figures.figures(shown())) + 1
    outside = [link for link in page.all("src", "href", "xlink:href") if not link.startswith(("#", "data:"))]
    assert not outside
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttp", text)
    assert page.tags.count("script") == 1
    for key in KEYS:
        assert key.split()[1] in text


def test_the_worst_cases_are_linked_to_their_rows():
    page = Page(page_of_all())
    links = [link for link in page.all("href") if link.startswith(("#softmax", "#prod"))]
    assert links[0] == "#softmax-64x64-dim-1-bfloat16"
    assert {link[1:] for link in links} <= set(page.all("id"))


def test_tables_with_slow_rows_are_open():
    assert Page(page_of_all()).open == [True, False, False]
    slow = lines()
    slow[3]["providers"]["override"]["samples_ms"] = rows.samples(9.0)
    assert Page(html.html(shown(*slow))).open == [True, False, True]


def test_one_can_filter_by_op_dtype_and_verdict():
    text = page_of_all()
    for name, words in (
        ("op", ["softmax", "prod"]),
        ("dtype", ["bfloat16", "float32"]),
        ("verdict", ["FASTER", "SAME", "SLOWER"]),
    ):
        select = re.search(rf'<select name="{name}".*?</select>', text, re.DOTALL).group()
        assert re.findall(r"<option>(\w+)</option>", select) == words
    assert text.count("data-verdict=") == len(KEYS)


def test_a_wide_figure_scrolls_inside_its_frame_and_says_so():
    text = page_of_all()
    drawn = len(figures.figures(shown()))
    assert text.count('<figure><div class="scroll"><svg') == text.count("This figure scrolls sideways.") == drawn
    narrow = re.search(r"@media \(max-width: 600px\) \{\n(.*?)\n\}", text, re.DOTALL).group(1)
    assert "figure { margin-right: 0; }" in narrow, "a margin beside a figure as wide as the page widens the page"
    assert "figure svg { max-width: none; }" in narrow


def test_the_page_follows_a_dark_screen():
    assert "prefers-color-scheme: dark" in page_of_all()


def test_the_page_says_how_well_an_estimate_orders_the_cases():
    made = lines()
    for programs, row in enumerate(made, 1):
        row["launches"] = [{"kernel": "k", "grid": [programs, 1, 1], "options": {}, "registers": 32, "shared_bytes": 0}]
    assert "rank\ncorrelation of" in html.html(shown(*made))
    assert "correlation" not in page_of_all()
    assert "correlation" not in html.html(shown(*made, measure="wrapper"))


def test_the_same_record_makes_the_same_page():
    assert html.html(shown()) == page_of_all()


def test_words_from_a_record_do_not_become_markup():
    text = html.html(shown(device={"name": "<script>alert(1)</script>"}))
    assert "<script>alert" not in text
    row = lines()[0]
    row["providers"]["upstream"] = {"absent": "Error: | a </details> [x](http://x) `y`"}
    text = markdown.markdown(shown(row))
    assert r"Error: \| a \</details\> [x\](http://x) \`y\`" in text


def test_a_page_without_figures_has_no_history():
    empty = shown(nothing(rows.timed("prod_dim 0x16 dim=1 float32", override=1.0, native=1.5)))
    assert "<svg" in html.html(shown(), [session(commit="0123456789"), session()])
    assert "<svg" not in html.html(empty, [session(commit="0123456789"), session()])


def test_counts_make_a_page_without_figures():
    text = html.html(counts(rows.counted()))
    assert "<svg" not in text
    assert "Override Passes" in text


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("measure", ["count", "kernel"])
def test_a_record_of_an_empty_tensor_is_shown_by_every_writer(measure, alone):
    row = rows.counted if measure == "count" else functools.partial(rows.timed, override=1.0, native=1.5, upstream=1.0)
    made = [nothing(row("prod_dim 0x16 dim=1 float32")), row("prod_dim 8x16 dim=1 float32")][: 1 if alone else 2]
    of_them = view(rows.head(measure), made)
    for text in (html.html(of_them), markdown.markdown(of_them)):
        assert "0x16 dim=1" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert bool(figures.figures(of_them)) == (measure == "kernel" and not alone)


def rendered(text: str) -> str:
    """As GitHub renders it: CommonMark with tables and HTML."""
    return MarkdownIt("commonmark").enable("table").render(text)


def test_markdown_is_whole_tables():
    text = markdown.markdown(shown())
    page = rendered(text)
    assert page.count("<details>") == page.count("</details>") == 3
    assert page.count("<table>") == 6
    assert page.count("<tr>") == 6 + 3 + 3 + 10 + 4
    assert "|" not in re.sub(r"<[^>]*>", "", page), "no row fell out of its table"
    assert "| softmax | bfloat16 | 2 | 1.06x |" in text


def test_notes_come_first():
    text = markdown.markdown(view(rows.head(), lines(), ["Partial: 3 of 9."]))
    assert text.index("Partial") < text.index("| Op |")
    assert "Partial" in html.html(view(rows.head(), lines(), ["Partial: 3 of 9."]))


def test_a_summary_takes_a_case_of_several_records_from_the_last(tmp_path):
    old, new = session(), session(digests={"flag_gems": "0" * 16, "flag_gems_overrides": "2" * 16})
    for row in new.rows.values():
        row["providers"]["override"]["samples_ms"] = rows.samples(0.5)
    only_old = Session(rows.head(), {"max 8 int8": rows.timed("max 8 int8", override=1.0, native=3.0)}, ended=True)
    several = {tmp_path / "old": [old, only_old], tmp_path / "new": [new]}
    page = rendered(performance.page(several, (), "made so"))
    assert "<p>5 cases, each" in page
    assert "code 2222222222222222" in page
    assert "code 1111111111111111" in page, "one case is of it alone"
    text = performance.short(several, ("float32",))
    assert "| softmax | 1 | 3.00x | 2.00x | - |" in text
    assert "Geometric means of the speedup in float32; " in text
    assert "int8" not in text
    assert "| softmax | float32 | 1 | 3.00x | 2.00x | - |" in performance.short(several, ("float32", "bfloat16"))


def test_a_record_without_noise_is_in_the_summary_too(tmp_path):
    made = session()
    del made.head["noise"]
    assert "| 0.0% |" in performance.page({tmp_path / "a": [made]}, (), "made so")


def test_a_session_that_was_ended_early_is_named_partial():
    made = session(total=9)
    made.ended = False
    assert "| a | core | 4 of 9 |" in performance.page({Path("a"): [made]}, (), "made so").replace("\xa0", " ")
    made.ended = True
    assert "| a | core | 4 |" in performance.page({Path("a"): [made]}, (), "made so").replace("\xa0", " ")


def test_the_readmes_table_is_what_its_command_writes(monkeypatch):
    monkeypatch.chdir(ROOT)
    readme = Path("README.md").read_text()
    words = shlex.split(re.search(r"`gems-overrides (summary [^`]* --short)`", readme)[1])
    assert words[-3:] == ["--dtype", "bfloat16", "--short"]
    paths = [path for pattern in words[1:-3] for path in sorted(Path().glob(pattern))]
    assert performance.short({path: records.read(path) for path in paths}, ("bfloat16",)).strip() in readme


def test_the_committed_page_is_what_its_command_writes(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = Path("docs/performance.md").read_text()
    command = shlex.split(re.search(r"^    gems-overrides (summary .*)$", page, re.MULTILINE)[1])
    assert command[-2:] == ["--output", "docs/performance.md"]
    found = {Path(path): records.read(Path(path)) for path in command[1:-2]}
    assert performance.page(found, (), shlex.join(["gems-overrides", *command])) == page
