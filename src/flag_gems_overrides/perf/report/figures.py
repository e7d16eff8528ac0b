# SPDX-License-Identifier: Apache-2.0
"""Figures of timed sessions, as SVG text or PNG files."""

from __future__ import annotations

import colorsys
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, PEERS, UPSTREAM, Case
from flag_gems_overrides.perf.files import write
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report.view import LABELS, View
from flag_gems_overrides.perf.results import Timed
from flag_gems_overrides.perf.roofline import extent, flops, intensity
from flag_gems_overrides.perf.statistics import geomean
from flag_gems_overrides.words import many

# Override, native, upstream, peers: Okabe and Ito's colours, which the colour-blind can tell apart, on white and black.
_COLOURS = dict(
    zip(
        (OVERRIDE, NATIVE, UPSTREAM, *PEERS),
        ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8c8c00"),
        strict=True,
    )
)
_LINES = dict(zip(_COLOURS, "osD^vP*", strict=True))
# One can tell no more by colour and marker than these.
_MARKERS = "osD^vP*X<>hp"
_MAX_OPS = len(_MARKERS)
# What ops of one intensity are drawn apart by.
_ASIDE = 1.04
# Bytes; smaller cases only show what a launch costs.
_WORTH_A_LINE = 4 << 20
# Drawn where the page's own text colour is to be.
_INK = "#1f2329"


# Colour and marker by op.
Styles = Mapping[str, tuple[Any, str]]


class Figure(NamedTuple):
    """A drawn figure."""

    name: str
    caption: str
    canvas: Canvas

    def svg(self) -> str:
        """An ``<svg>`` element for a page, with its text colour and background; the same for the same figure."""
        text = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": self.name, "svg.fonttype": "none"}):
            self.canvas.savefig(text, format="svg", metadata={"Date": None}, bbox_inches="tight", transparent=True)
        element = text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]
        return element.replace(_INK, "currentColor")

    def save(self, folder: Path) -> Path:
        image = io.BytesIO()
        self.canvas.savefig(image, format="png", dpi=150, bbox_inches="tight")
        path = folder / f"{self.name}.png"
        write(path, image.getvalue())
        return path


def figures(shown: View) -> list[Figure]:
    """Rooflines of all ops, then a heatmap and latency lines for each that has several sizes; none of counts or of
    empty tensors, which have no place on logarithmic axes. Times of the host have heatmaps alone."""
    if shown.counted:
        return []
    results = [r for r in shown.results if math.prod(r.case.shape) and r.ms(OVERRIDE)]
    if not results:
        return []
    kernels = shown.head["measure"] == "kernel"
    ops = dict.fromkeys(result.case.op for result in results)
    made = []
    if kernels and "copy_gbps" in shown.head:
        styles = _styles(ops)
        made += [roofline(shown.head, results, styles, i) for i in range(len(styles))]
    for op in ops:
        same = [result for result in results if result.case.op == op]
        compared = [result for result in same if result.competitors()]
        if _sizes(compared) > 1:
            made.append(heatmap(op, compared))
        large = [r for r in same if sum(r.row["compulsory"].values()) >= _WORTH_A_LINE] or same
        if kernels and _sizes(large) > 1:
            made.append(latency(shown.head, op, large))
    return made


def _sizes(results: Iterable[Timed]) -> int:
    """How many places the cases have on the axes of a heatmap."""
    return len({extent(result.case) for result in results})


def roofline(head: Mapping[str, Any], results: Iterable[Timed], figures: Sequence[Styles], which: int) -> Figure:
    """Operations per second against operations per byte, under the bandwidth measured in the same session.

    Args:
        figures: the ops of each roofline.
        which: of these is drawn.
    """
    canvas, axes = _axes(7.5, 4.8)
    styles = figures[which]
    results = [result for result in results if result.case.op in styles]
    for i, (op, (colour, marker)) in enumerate(styles.items()):
        # Ops of one intensity lie beside each other, not on each other.
        aside = _ASIDE ** (i - (len(styles) - 1) / 2)
        points = [
            (aside * intensity(r.case, r.row["compulsory"]), flops(r.case) / ms / 1e6)
            for r in results
            if r.case.op == op and (ms := r.ms(OVERRIDE))
        ]
        axes.plot(*zip(*points, strict=True), marker, color=colour, ms=4, alpha=0.8, ls="", label=_label(op))
    axes.set(xscale="log", yscale="log", xlabel="operations per compulsory byte", ylabel="Gop/s")
    left, right = axes.get_xlim()
    left, right = left / 1.3, right * 1.3
    for name, gbps, style in (("copy", head["copy_gbps"], "-"), ("read", head["read_gbps"], "--")):
        axes.plot(
            [left, right], [gbps * left, gbps * right], style, color="gray", lw=1, label=f"{name} {gbps:.0f} GB/s"
        )
    axes.set_xlim(left, right)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    part = f" ({which + 1} of {len(figures)})" if len(figures) > 1 else ""
    _title(axes, f"Achieved against attainable on {head['device']['name']}, {many(len(results), 'case')}{part}")
    caption = f"Every case of the override. Ops of one intensity are drawn side by side, {_ASIDE - 1:.0%} apart."
    return Figure(f"roofline-{which + 1}" if which else "roofline", caption, canvas)


def heatmap(op: str, results: Sequence[Timed]) -> Figure:
    """Speedup against the best other provider over rows and reduced size; the worst of the dtypes."""
    ratios: dict[tuple[int, int], float] = {}
    names = dict.fromkeys(each.name for result in results for each in result.competitors())
    for result in results:
        place = extent(result.case)
        lowest = min(each.comparison.ratio for each in result.competitors())
        ratios[place] = min(ratios.get(place, math.inf), lowest)
    rows, columns = (sorted({place[axis] for place in ratios}) for axis in (0, 1))
    canvas, axes = _axes(2.6 + 0.5 * len(columns), 1.6 + 0.32 * len(rows))
    grid = [[ratios.get((m, n), math.nan) for n in columns] for m in rows]
    image = axes.imshow(grid, cmap="RdYlGn", norm=LogNorm(0.5, 2), aspect="auto")
    for (m, n), ratio in ratios.items():
        place = columns.index(n), rows.index(m)
        text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
        dark = not 2**-0.7 < ratio < 2**0.7  # both ends of the colours
        axes.text(*place, text, color="white" if dark else "black", ha="center", va="center", fontsize=7)
    axes.set_xticks(range(len(columns)), _labels(columns), rotation=60, fontsize=7)
    axes.set_yticks(range(len(rows)), _labels(rows), fontsize=7)
    axes.set(xlabel="N, reduced", ylabel="M, rows")
    axes.grid(False)
    # Limits are colours: what is beyond has the last.
    bar = canvas.colorbar(image, ax=axes, extend="both", ticks=[0.5, 0.7, 1, 1.4, 2], pad=0.03)
    bar.ax.set_yticklabels(["0.5x", "0.7x", "1x", "1.4x", "2x"], fontsize=7)
    bar.ax.minorticks_off()
    _recolour(bar.ax)
    others = ", ".join(LABELS[name] for name in names)
    _title(axes, f"{op}: times faster than the best of\n{others}, {many(len(results), 'case')}")
    return Figure(f"heatmap-{op}", "1 K is 1024; the worst of the dtypes where several have the place.", canvas)


def latency(head: Mapping[str, Any], op: str, results: Sequence[Timed]) -> Figure:
    """Time of every provider against N, one panel a dtype; per MB, since every N comes with other rows. A line joins
    cases that differ in N alone."""
    dtypes = list(dict.fromkeys(result.case.dtype for result in results))
    canvas = Canvas(figsize=(max(4.6, 3.4 * len(dtypes)), 3.4), layout="constrained")
    panels = canvas.subplots(1, len(dtypes), sharey=True, squeeze=False)[0]
    for axes, dtype in zip(panels, dtypes, strict=True):
        same = [r for r in results if r.case.dtype == dtype]
        for name, colour in _COLOURS.items():
            label = LABELS[name]
            for line in _lines(same, name):
                axes.plot(
                    *zip(*line, strict=True), color=colour, marker=_LINES[name], ms=3, lw=1, alpha=0.8, label=label
                )
                label = ""
        if "copy_gbps" in head:
            axes.axhline(1e3 / head["copy_gbps"], color="gray", ls="--", lw=1, label="copy")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set(xlabel="N, reduced")
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=7))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.tick_params(labelsize=7)
        axes.set_title(f"{dtype}, {many(len(same), 'case')}", fontsize=8, color=_INK)
        axes.grid(alpha=0.3)
        _recolour(axes)
    panels[0].set_ylabel("us per compulsory MB")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, fontsize=7, loc="outside right center", frameon=False, labelcolor=_INK)
    canvas.suptitle(f"{op}: time against the reduced size", fontsize=10, color=_INK)
    return Figure(f"latency-{op}", "Lower is faster. Lines join cases that differ in N alone; 1 K is 1024.", canvas)


def _lines(results: Iterable[Timed], name: str) -> list[list[tuple[int, float]]]:
    """N and microseconds per MB of a provider, cases that share all but N together."""
    alike: dict[tuple, list[tuple[int, float]]] = {}
    for result in results:
        gbps = result.gbps(name)
        if gbps:
            place = extent(result.case)[1], 1e3 / gbps
            alike.setdefault(_all_but_n(result.case), []).append(place)
    return [sorted(points) for points in alike.values()]


def _all_but_n(case: Case) -> tuple:
    # Batches grow by their size; classes are beside the batch.
    axis = {"batch_norm": 0, "gather": 1}.get(OPERATORS[case.op].family, case.get("dim", -1)) % max(1, len(case.shape))
    return (*case.arguments, len(case.shape), *case.shape[:axis], *case.shape[axis + 1 :])


def history(sessions: Sequence[Session]) -> list[Figure]:
    """Geometric mean of the override's milliseconds by op over the sessions of one device, relative to the first."""
    ops = dict.fromkeys(key.split()[0] for session in sessions for key in session.rows)
    lines = {op: points for op in ops if len(points := list(_relative(sessions, op))) > 1}
    return [_history(sessions, lines, styles, i) for i, styles in enumerate(_styles(lines))]


def _history(
    sessions: Sequence[Session], lines: Mapping[str, list[tuple[int, float]]], styles: Styles, which: int
) -> Figure:
    canvas, axes = _axes(7.5, 3.4)
    labels = [f"{i + 1}: {(s.head['commit'] or s.head.get('started', '?'))[:9]}" for i, s in enumerate(sessions)]
    for op, (colour, marker) in styles.items():
        axes.plot(*zip(*lines[op], strict=True), color=colour, marker=marker, ms=4, lw=1, label=_label(op))
    axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=7)
    axes.set_ylabel("times faster than the first")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    _title(axes, "Over the sessions of the record")
    caption = "Geometric mean over the cases that a session shares with the first."
    return Figure(f"history-{which + 1}" if which else "history", caption, canvas)


def _relative(sessions: Sequence[Session], op: str) -> Iterator[tuple[int, float]]:
    first: dict[str, float] = {}
    for i, session in enumerate(sessions):
        times = {
            key: ms for key, row in session.rows.items() if key.split()[0] == op and (ms := Timed(row).ms(OVERRIDE))
        }
        first = first or times
        shared = first.keys() & times.keys()
        if shared:
            yield i, geomean(first[key] / times[key] for key in shared)


def _styles(ops: Iterable[str]) -> list[Styles]:
    """A hue of its own for each op, and within a figure a marker; for as many figures as it takes to tell them apart.

    The hues of a figure are evenly spaced, and lie between those of the others. Shades have a contrast of 3 and more to
    a white and a dark page.
    """
    names = list(ops)
    count = math.ceil(len(names) / _MAX_OPS)
    chosen = [names[i * len(names) // count : (i + 1) * len(names) // count] for i in range(count)]
    made: list[Styles] = []
    for which, some in enumerate(chosen):
        hues = [(i + which / count) / max(map(len, chosen)) for i in range(len(some))]
        shades = [_shade(hue, 0.27 if i % 2 else 0.16) for i, hue in enumerate(hues)]
        made.append(dict(zip(some, zip(shades, _MARKERS, strict=False), strict=True)))
    return made


def _label(op: str) -> str:
    """For a legend; matplotlib leaves out what begins with an underscore."""
    return f" {op}"


def _shade(hue: float, luminance: float) -> tuple[float, float, float]:
    """The colour of this hue that has the luminance, as WCAG defines it."""
    steps = [colorsys.hls_to_rgb(hue, step / 100, 0.8) for step in range(101)]
    return min(steps, key=lambda colour: abs(relative_luminance(colour) - luminance))


def relative_luminance(colour: Sequence[float]) -> float:
    """0 of black, 1 of white; the contrast of two is (a + 0.05) / (b + 0.05)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _axes(width: float, height: float) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=(width, height))
    axes = canvas.subplots()
    axes.grid(alpha=0.3)
    _recolour(axes)
    return canvas, axes


def _recolour(axes: Axes) -> None:
    axes.tick_params(colors=_INK, which="both", labelsize=7)
    for spine in axes.spines.values():
        spine.set_edgecolor(_INK)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=10, color=_INK)
    legend = axes.get_legend()
    if legend:
        for entry in legend.get_texts():
            entry.set_color(_INK)


def _labels(sizes: Sequence[int]) -> list[str]:
    """One for each size; in full where two would read alike."""
    short = [count(size) for size in sizes]
    return [text if short.count(text) == 1 else str(size) for text, size in zip(short, sizes, strict=True)]


def count(n: float) -> str:
    """65536 as 64 K, with three digits where it is none of these: 50257 is 49.1 K."""
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:g}"
