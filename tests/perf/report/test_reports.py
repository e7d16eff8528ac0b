# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report import figures, html, markdown, terminal
from flag_gems_overrides.perf.report.summary import summaries
from flag_gems_overrides.perf.report.tables import size, tables

from .. import rows

KEYS = (
    "softmax 4096x4096 dim=1 bfloat16",
    "softmax 64x64 dim=1 bfloat16",
    "softmax 64x64 dim=1 float32",
    "prod 65536 float32",
)


def lines() -> list[dict]:
    made = [rows.timed(key, override=1.0, native=1.5, upstream=1.0, liger=3.0) for key in KEYS]
    made[1]["providers"]["override"]["samples_ms"] = rows.samples(2.0)
    made[3]["providers"]["liger"] = {"absent": "liger has no prod"}
    made[3]["providers"]["upstream"]["agrees"] = False
    made[3]["rounds"]["dropped"] = 3
    return made


def session(**changes) -> Session:
    return Session(rows.head(**changes), {line["key"]: line for line in lines()}, ended=True)


def test_one_table_for_each_op_and_dtype_in_upstreams_columns():
    made = tables(rows.head(), lines())
    assert [table.title for table in made] == [
        f"Operator: {op}  Performance Test (dtype={dtype}, mode=kernel, level=core)"
        for op, dtype in (("softmax", "bfloat16"), ("softmax", "float32"), ("prod", "float32"))
    ]
    first = made[0]
    assert first.columns[:4] == ["Size Detail", "Torch Latency (ms)", "Gems Latency (ms)", "Override Latency (ms)"]
    assert "liger Latency (ms)" in first.columns
    assert "liger Latency (ms)" not in made[2].columns
    slow = dict(zip(first.columns, first.rows[1], strict=True))
    assert slow["Size Detail"] == "64x64 dim=1"
    assert slow["Verdict"].startswith("SLOWER: 0.50x [")
    assert (slow["vs Torch"], slow["vs Gems"]) == ("0.75x", "0.50x")
    assert (slow["Override GBPS"], slow["of copy"]) == ("34", "1%")
    assert "geomean 1.06x Torch, 0.71x Gems" in first.summary
    assert "1 SAME, 1 SLOWER" in first.summary


def test_a_record_with_cold_copies_has_the_share_of_one():
    (softmax, _, prod) = tables(rows.head(cold=rows.COLD), lines())
    for table in (softmax, prod):
        assert table.columns[-3:] == ["of read", "of cold copy", "Verdict"]
        assert {len(line) for line in table.rows} == {len(table.columns)}
    # 64 MiB take 68 us, the cases 1 and 2 ms.
    assert [line[-2] for line in softmax.rows] == ["7%", "3%"]
    assert "of cold copy" not in tables(rows.head(), lines())[0].columns
    small = lines()[0] | {"compulsory": {"read": 8, "written": 8}}
    assert tables(rows.head(cold=rows.COLD), [small])[0].rows[0][-2] == "-"

    text = io.StringIO()
    terminal.show(rows.head(cold=rows.COLD), lines(), Console(file=text, width=240))
    assert "of cold copy" in text.getvalue()
    assert "| of cold copy |" in markdown.markdown(rows.head(cold=rows.COLD), lines())


def test_a_wrong_answer_and_dropped_rounds_are_said():
    last = tables(rows.head(), lines())[-1]
    assert last.rows[0][2].endswith(" *")
    assert "* another answer than PyTorch's" in last.summary
    assert "3 rounds dropped" in last.summary


def test_counts_have_a_table_of_their_own():
    line = rows.counted(loaded=65536 * 2, launches=3, allocations=2, allocated=3 << 20)
    line["providers"]["upstream"]["agrees"] = False
    (table,) = tables(rows.head("count"), [line])
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (cells["Gems Passes"], cells["Override Passes"]) == ("1.00", "1.50")
    assert (cells["Override Loaded"], cells["Override Stored"]) == ("1.00", "0.50")
    assert cells["Override Allocations"] == "2 (3.0 MiB)"
    assert cells["Size Detail"] == "64x256 dim=1 *"
    assert "upstream has no answer here, or a wrong one" in table.summary


def test_summary_counts_the_verdicts():
    summary = summaries(rows.head(), lines())
    line = dict(zip(summary.columns, summary.rows[0].cells, strict=True))
    assert (line["vs Torch"], line["worst"], line["SLOWER"], line["SAME"]) == ("1.06x", "0.50x", "1", "1")
    counts = summaries(rows.head("count"), [rows.counted(launches=2)])
    assert counts.rows[0].cells == ["1.00", "1.00", "1", "2"]


def nothing(row: dict) -> dict:
    """The row as of an empty tensor, of which nobody moves a byte."""
    for provider in row["providers"].values():
        provider.update({name: 0 for name in ("loaded", "stored", "launches") if name in provider})
    return row | {"compulsory": {"read": 0, "written": 0}}


def test_an_empty_tensor_is_in_no_mean_of_passes():
    empty = nothing(rows.counted("softmax 0x16 dim=1 float32"))
    assert summaries(rows.head("count"), [empty]).rows[0].cells == ["-", "-", "0", "0"]
    both = [empty, rows.counted(loaded=3 * 65536)]
    assert summaries(rows.head("count"), both).rows[0].cells == ["1.00", "2.00", "1", "1"]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("measure", ["count", "kernel"])
def test_a_record_of_an_empty_tensor_is_shown_by_every_writer(tmp_path, measure, alone):
    row = rows.counted if measure == "count" else functools.partial(rows.timed, override=1.0, native=1.5, upstream=1.0)
    made = [nothing(row("prod_dim 0x16 dim=1 float32")), row("prod_dim 8x16 dim=1 float32")][: 1 if alone else 2]
    head = rows.head(measure)
    text = io.StringIO()
    terminal.show(head, made, Console(file=text, width=240))
    page = html.html([Session(head, {line["key"]: line for line in made}, ended=True)])
    for shown in (text.getvalue(), page, markdown.markdown(head, made)):
        assert "0x16 dim=1" in shown
    drawn = figures.figures(head, made)
    assert bool(drawn) == (measure == "kernel" and not alone)
    for figure in drawn:
        figure.save(tmp_path)


def test_terminal_shows_conditions_and_every_case():
    text = io.StringIO()
    terminal.show(rows.head(), lines(), Console(file=text, width=240))
    assert "NVIDIA H200; python 3.12.3" in text.getvalue()
    assert "copies at 4243 GB/s" in text.getvalue()
    for key in KEYS:
        assert key.partition(" ")[2].rpartition(" ")[0] in text.getvalue()


def test_markdown_is_whole_tables():
    text = markdown.markdown(rows.head(), lines())
    assert text.count("<details>") == text.count("</details>") == 3
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {line.count("|") - line.count("\\|") for line in block.splitlines()}
        assert len(widths) == 1, block
    assert "| softmax | bfloat16 | 2 | 1.06x |" in text


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs


def test_the_page_needs_nothing_beside_it_and_shows_every_figure():
    made = session()
    page = Page()
    text = html.html([session(commit="0123456789"), made])
    page.feed(text)
    assert page.tags.count("svg") == page.tags.count("figure") == len(figures.figures(made.head, lines())) + 1
    links = [value for name, value in page.attributes if name in ("src", "href", "xlink:href")]
    outside = [link for link in links if not link.startswith(("#", "data:"))]
    assert not outside
    assert not re.search(r"url\((?!#)|@import", text)
    assert "script" not in page.tags
    for key in KEYS:
        assert key.split()[1] in text


def test_the_page_says_how_well_an_estimate_orders_the_cases():
    made = session()
    for programs, row in enumerate(made.rows.values(), 1):
        row["launches"] = [{"kernel": "k", "grid": [programs, 1, 1], "options": {}, "registers": 32, "shared_bytes": 0}]
    assert "rank\ncorrelation of" in html.html([made])
    assert "correlation" not in html.html([session()])


def test_the_same_record_makes_the_same_page():
    assert html.html([session()]) == html.html([session()])


def test_words_from_a_record_do_not_become_markup():
    text = html.html([session(device={"name": "<script>alert(1)</script>"})])
    assert "<script>" not in text


def test_counts_make_a_page_without_figures():
    text = html.html([Session(rows.head("count"), {rows.counted()["key"]: rows.counted()}, ended=True)])
    assert "<svg" not in text
    assert "Override Passes" in text


def test_figures_are_saved_as_png(tmp_path):
    made = figures.figures(rows.head(), lines())
    assert [figure.name for figure in made] == [
        "roofline", "heatmap-softmax", "latency-softmax", "heatmap-prod", "latency-prod",
    ]  # fmt: skip
    for figure in made:
        assert figure.save(tmp_path).read_bytes().startswith(b"\x89PNG")


def test_history_is_relative_to_the_first_session():
    slower, faster = session(), session(commit="def")
    for row in faster.rows.values():
        row["providers"]["override"]["samples_ms"] = [
            ms / 2 for ms in slower.rows[row["key"]]["providers"]["override"]["samples_ms"]
        ]
    (line, *_) = figures.history([slower, faster]).canvas.axes[0].lines
    assert list(line.get_ydata()) == pytest.approx([1, 2])
    assert figures.history([slower]) is None


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes_read_well(count, text):
    assert size(count) == text
