# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import colorsys
from itertools import pairwise

import pytest
from matplotlib.colors import to_rgb

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.report import figures

from .. import rows
from .made import counts, lines, session, shown
from .test_summary import nothing


def drawn(*made, **changes):
    return {figure.name: figure.canvas for figure in figures.figures(shown(*made, **changes))}


def test_figures_are_saved_as_png_with_their_titles(tmp_path):
    made = figures.figures(shown(*lines(), rows.timed("prod 1048576 float32", override=1.0, native=2.0)))
    assert [figure.name for figure in made] == [
        "roofline", "heatmap-softmax", "latency-softmax", "heatmap-prod", "latency-prod",
    ]  # fmt: skip
    for figure in made:
        assert figure.save(tmp_path).read_bytes().startswith(b"\x89PNG")
    titles = [figure.canvas.axes[0].get_title() for figure in made[:2]]
    assert titles[0] == "Achieved against attainable on NVIDIA H200, 5 cases"
    assert titles[1] == "softmax: times faster than the best of\nTorch, Gems, Liger, 3 cases"
    assert made[2].canvas.get_suptitle() == "softmax: time against the reduced size"


def test_times_of_the_host_have_neither_roofline_nor_bandwidth():
    assert list(drawn(measure="wrapper")) == ["heatmap-softmax"]


def test_counts_and_empty_tensors_have_none():
    assert figures.figures(counts(rows.counted())) == []
    assert drawn(nothing(rows.timed("prod_dim 0x16 dim=1 float32", override=1.0, native=1.5))) == {}


def test_an_op_of_one_size_has_neither_heatmap_nor_lines():
    one, other = ("softmax 64x64 dim=1 float32", "softmax 64x128 dim=1 float32")
    alone = rows.timed(one, override=1.0, native=1.5)
    assert list(drawn(alone, rows.timed(one.replace("float32", "bfloat16"), override=1.0))) == ["roofline"]
    assert list(drawn(alone, rows.timed(other, override=1.0))) == ["roofline", "latency-softmax"]


@pytest.mark.parametrize(("count", "figures_of"), [(1, [1]), (12, [12]), (13, [6, 7]), (53, [10, 11, 10, 11, 11])])
def test_each_op_has_a_hue_of_its_own_and_within_a_figure_a_marker(count, figures_of):
    styles = figures._styles([f"op{i}" for i in range(count)])
    assert [len(some) for some in styles] == figures_of
    assert [op for some in styles for op in some] == [f"op{i}" for i in range(count)]
    every = set()
    for some in styles:
        hues = sorted(round(colorsys.rgb_to_hsv(*to_rgb(colour))[0], 3) for colour, _ in some.values())
        assert len({marker for _, marker in some.values()}) == len(some)
        assert all(b - a > 0.07 for a, b in pairwise(hues)), hues
        every |= set(hues)
    assert len(every) == count


def test_many_ops_are_drawn_in_several_rooflines():
    names = [op for op, row in OPERATORS.items() if row.arguments == ("dim",) and "float32" in row.dtypes][:14]
    made = figures.figures(shown(*(rows.timed(f"{op} 64x64 dim=1 float32", override=1.0) for op in names)))
    assert [figure.name for figure in made] == ["roofline", "roofline-2"]
    for i, figure in enumerate(made, 1):
        axes = figure.canvas.axes[0]
        assert axes.get_title() == f"Achieved against attainable on NVIDIA H200, 7 cases ({i} of 2)"
        legend = [text.get_text().strip() for text in axes.get_legend().get_texts()]
        assert legend == [*names[7 * i - 7 : 7 * i], "copy 4243 GB/s", "read 4600 GB/s"]


def test_an_op_whose_name_begins_with_an_underscore_is_in_the_legend():
    axes = drawn(rows.timed("_is_all_true 1024 bool", override=1.0, native=1.5))["roofline"].axes[0]
    assert axes.get_legend().get_texts()[0].get_text() == " _is_all_true"


def test_the_smallest_cases_are_left_out_of_the_lines_if_there_are_larger_ones():
    one, two, three = (rows.timed(f"softmax 64x{n} dim=1 float32", override=1.0) for n in (64, 128, 256))
    one["compulsory"] = {"read": 1 << 21, "written": (1 << 21) - 1}
    assert [len(line.get_xdata()) for line in drawn(one, two, three)["latency-softmax"].axes[0].lines[:1]] == [2]
    assert "latency-softmax" not in drawn(one, two)


def test_each_provider_has_a_colour_and_a_marker_of_its_own():
    assert len(set(figures._COLOURS.values())) == len(set(figures._LINES.values())) == len(figures._COLOURS)
    assert len(set(figures._COLOURS.values())) == len(set(figures._LINES.values())) == len(figures._COLOURS)


def test_marks_stand_out_from_a_white_and_from_a_dark_page():
    assert [figures.relative_luminance(to_rgb(name)) for name in ("black", "white")] == pytest.approx([0, 1])
    assert figures.relative_luminance(to_rgb("#777777")) == pytest.approx(0.184, abs=0.001)
    white, dark = (figures.relative_luminance(to_rgb(page)) for page in ("#fff", "#14181d"))
    for colour, _ in (style for some in figures._styles([f"op{i}" for i in range(53)]) for style in some.values()):
        luminance = figures.relative_luminance(to_rgb(colour))
        assert (white + 0.05) / (luminance + 0.05) >= 3
        assert (luminance + 0.05) / (dark + 0.05) >= 3


def test_ops_of_one_intensity_are_drawn_apart():
    same = [rows.timed(f"{op} 4096x4096 dim=1 bfloat16", override=1.0, native=1.5) for op in ("softmax", "log_softmax")]
    xs = [line.get_xdata()[0] for line in drawn(*same)["roofline"].axes[0].lines[:2]]
    assert xs[1] / xs[0] == pytest.approx(1.04)


def test_latency_lines_join_cases_that_differ_in_n_alone():
    keys = [
        f"softmax {shape} dim={dim} float32"
        for shape, dim in (("64x128", 1), ("64x512", 1), ("32x512", 1), ("128x64", 0))
    ]
    axes = drawn(*(rows.timed(key, override=1.0) for key in keys))["latency-softmax"].axes[0]
    joined = sorted(list(line.get_xdata()) for line in axes.lines if line.get_linestyle() == "-")
    assert joined == [[128], [128, 512], [512]]


def test_latencies_are_microseconds_for_a_megabyte():
    row = rows.timed("softmax 4096x4096 dim=1 bfloat16", override=1.0)
    [result] = shown(row).results
    other = rows.timed("softmax 4096x8192 dim=1 bfloat16", override=1.0)
    line = drawn(row, other)["latency-softmax"].axes[0].lines[0]
    assert line.get_ydata()[0] == pytest.approx(1e3 / result.gbps("override"))


def test_roofs_are_the_bandwidths_of_the_session():
    head = rows.head()
    copy, read = drawn()["roofline"].axes[0].lines[-2:]
    for line, gbps in ((copy, head["copy_gbps"]), (read, head["read_gbps"])):
        assert list(line.get_ydata()) == pytest.approx([gbps * x for x in line.get_xdata()])


def test_a_heatmap_has_a_colour_bar_and_one_label_for_each_size():
    keys = [f"softmax 8192x{n} dim=1 float32" for n in (50257, 50304, 65536)]
    canvas = drawn(*(rows.timed(key, override=1.0, native=1.5) for key in keys))["heatmap-softmax"]
    axes, bar = canvas.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["50257", "50304", "64 K"]
    assert [label.get_text() for label in bar.get_yticklabels()] == ["0.5x", "0.7x", "1x", "1.4x", "2x"]


def test_a_heatmap_is_of_the_worst_against_any_right_answer():
    made = [row for row in lines() if row["key"].startswith("softmax")]
    texts = {text.get_text() for text in drawn(*made)["heatmap-softmax"].axes[0].texts}
    assert texts == {"1.00", "0.50"}


def test_ticks_do_not_collide():
    many = [rows.timed(f"softmax 64x{1 << n} dim=1 float32", override=1.0) for n in range(4, 26)]
    canvas = drawn(*many)["latency-softmax"]
    axes = canvas.axes[0]
    canvas.draw_without_rendering()
    left, right = axes.get_xlim()
    boxes = [
        label.get_window_extent()
        for label, place in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)
        if left <= place <= right
    ]
    assert len(boxes) >= 3
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_a_page_gets_text_of_its_own_colour():
    text = figures.figures(shown())[0].svg()
    assert "currentColor" in text
    assert figures._INK not in text


@pytest.mark.parametrize(
    ("n", "text"),
    [(64, "64"), (1024, "1 K"), (65536, "64 K"), (50257, "49.1 K"), (1 << 20, "1 M"), (3 << 30, "3 G")],
)
def test_sizes_have_one_unit(n, text):
    assert figures.count(n) == text


def test_history_is_relative_to_the_first_session():
    slower, faster = session(), session(commit="def")
    for row in faster.rows.values():
        row["providers"]["override"]["samples_ms"] = [
            ms / 2 for ms in slower.rows[row["key"]]["providers"]["override"]["samples_ms"]
        ]
    [figure] = figures.history([slower, faster])
    assert [list(line.get_ydata()) for line in figure.canvas.axes[0].lines] == [pytest.approx([1, 2])] * 2
    assert figures.history([slower]) == []
