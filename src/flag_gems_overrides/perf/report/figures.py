# SPDX-License-Identifier: Apache-2.0
"""Figures of timed sessions, as SVG text or PNG files."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullFormatter

from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, PEERS, UPSTREAM
from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report.summary import LABELS
from flag_gems_overrides.perf.results import Row, Timed, is_counted
from flag_gems_overrides.perf.roofline import extent, flops, intensity
from flag_gems_overrides.perf.statistics import geomean
from flag_gems_overrides.perf.verdict import LEAST_NOISE

_COLORS = dict(zip((OVERRIDE, NATIVE, UPSTREAM, *PEERS), mpl.color_sequences["tab10"], strict=False))
_WORTH_A_CURVE = 4 << 20  # bytes
_MARKERS = "osD^vP*X<>h"


class Figure(NamedTuple):
    """A drawn figure."""

    name: str
    caption: str
    canvas: Canvas

    def svg(self) -> str:
        """An ``<svg>`` element to put into a page; the same for the same figure."""
        text = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": self.name, "svg.fonttype": "none"}):
            self.canvas.savefig(text, format="svg", metadata={"Date": None}, bbox_inches="tight")
        return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]

    def save(self, folder: Path) -> Path:
        path = folder / f"{self.name}.png"
        self.canvas.savefig(path, dpi=150, bbox_inches="tight")
        return path


def figures(head: Mapping[str, Any], rows: Iterable[Row]) -> list[Figure]:
    """Roofline of all ops, then a heatmap and latency curves for each; none of counts, nor of empty tensors, which have
    no place on logarithmic axes."""
    timed = (Timed(row, head.get("noise", LEAST_NOISE)) for row in rows if not is_counted(row))
    results = [result for result in timed if math.prod(result.case.shape)]
    if not results:
        return []
    made = [roofline(head, results)] if "copy_gbps" in head else []
    for op in dict.fromkeys(result.case.op for result in results):
        same = [result for result in results if result.case.op == op and result.ms(OVERRIDE)]
        if same:
            made += [heatmap(op, same), latency(head, op, same)]
    return made


def roofline(head: Mapping[str, Any], results: Sequence[Timed]) -> Figure:
    """Operations per second against operations per byte, under the bandwidth measured in the same session."""
    with _axes(7.5, 4.5) as (canvas, axes):
        ops = list(dict.fromkeys(result.case.op for result in results))
        for i, op in enumerate(ops):
            points = [
                (intensity(r.case, r.row["compulsory"]), flops(r.case) / ms / 1e6)
                for r in results
                if r.case.op == op and (ms := r.ms(OVERRIDE))
            ]
            axes.plot(*zip(*points, strict=True), _MARKERS[i % len(_MARKERS)], ms=4, alpha=0.7, label=op)
        left, right = axes.get_xlim()
        left, right = left / 1.5, right * 1.5
        for name, gbps, style in (("copy", head["copy_gbps"], "-"), ("read", head["read_gbps"], "--")):
            label = f"{name} {gbps:.0f} GB/s"
            axes.plot([left, right], [gbps * left, gbps * right], style, color="gray", lw=1, label=label)
        axes.set(xscale="log", yscale="log", xlabel="operations per compulsory byte", ylabel="Gop/s")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))  # beside: small cases are all over
    return Figure("roofline", "Achieved against attainable: every case of the override", canvas)


def heatmap(op: str, results: Sequence[Timed]) -> Figure:
    """Speedup against the better of native and upstream over rows and reduced size; the worst of the dtypes."""
    ratios: dict[tuple[int, int], float] = {}
    for result in results:
        best = result.against_best()
        if best:
            place = extent(result.case)
            ratios[place] = min(ratios.get(place, math.inf), best.comparison.ratio)
    rows, columns = (sorted({place[axis] for place in ratios}) for axis in (0, 1))
    with _axes(1.5 + 0.55 * len(columns), 1.2 + 0.32 * len(rows)) as (canvas, axes):
        grid = [[ratios.get((m, n), math.nan) for n in columns] for m in rows]
        axes.imshow(grid, cmap="RdYlGn", norm=LogNorm(0.5, 2), aspect="auto")
        for (m, n), ratio in ratios.items():
            place = columns.index(n), rows.index(m)
            text = f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}"
            dark = not 2**-0.7 < ratio < 2**0.7  # both ends of the colours
            axes.text(*place, text, color="white" if dark else "black", ha="center", va="center", fontsize=7)
        axes.set_xticks(range(len(columns)), [_count(n) for n in columns], rotation=60, fontsize=7)
        axes.set_yticks(range(len(rows)), [_count(m) for m in rows], fontsize=7)
        axes.set(xlabel="N", ylabel="M")
        axes.grid(False)
    return Figure(f"heatmap-{op}", f"{op}: times faster than the better of Torch and Gems", canvas)


def latency(head: Mapping[str, Any], op: str, results: Sequence[Timed]) -> Figure:
    """Latency of every contender against N, one panel a dtype; per MB, since every N comes with other rows. Without the
    smallest cases, which only show what a launch costs."""
    results = [r for r in results if sum(r.row["compulsory"].values()) >= _WORTH_A_CURVE] or results
    dtypes = list(dict.fromkeys(result.case.dtype for result in results))
    canvas = Canvas(figsize=(3.6 * len(dtypes), 3.2))
    panels = canvas.subplots(1, len(dtypes), sharey=True, squeeze=False)[0]
    for axes, dtype in zip(panels, dtypes, strict=True):
        for name in (OVERRIDE, NATIVE, UPSTREAM, *PEERS):
            same = [r for r in results if r.case.dtype == dtype and r.gbps(name)]
            points = sorted((extent(r.case)[1], 1e3 / (r.gbps(name) or 1)) for r in same)
            if points:
                axes.plot(*zip(*points, strict=True), "o-", ms=3, lw=1, color=_COLORS[name], label=LABELS[name])
        if "copy_gbps" in head:
            axes.axhline(1e3 / head["copy_gbps"], color="gray", ls="--", lw=1)
        axes.set(xscale="log", yscale="log", xlabel="N", title=dtype)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("us per compulsory MB")
    panels[-1].legend(fontsize=7)
    return Figure(f"latency-{op}", f"{op}: latency against N; the dashed line is a copy", canvas)


def history(sessions: Sequence[Session]) -> Figure | None:
    """Geometric mean of the override's milliseconds by op over the sessions of one device, relative to the first."""
    with _axes(7.5, 3.2) as (canvas, axes):
        labels = [(s.head["commit"] or s.head.get("started", "?"))[:9] for s in sessions]
        drawn = False
        for op in dict.fromkeys(key.split()[0] for session in sessions for key in session.rows):
            points = list(_relative(sessions, op))
            if len(points) > 1:
                axes.plot(*zip(*points, strict=True), "o-", ms=3, lw=1, label=op)
                drawn = True
        if not drawn:
            return None
        axes.set_xticks(range(len(labels)), labels, rotation=60, fontsize=7)
        axes.set_ylabel("times faster than the first")
        axes.legend(fontsize=7, ncols=2)
    return Figure("history", "Over commits: geometric mean over the cases that both have", canvas)


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


@contextmanager
def _axes(width: float, height: float) -> Iterator[tuple[Canvas, Axes]]:
    canvas = Canvas(figsize=(width, height))
    axes = canvas.subplots()
    axes.grid(alpha=0.3)
    yield canvas, axes


def _count(n: int) -> str:
    """65536 as 64K: shorter than the number, where it is one of these."""
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if n >= size and n % size == 0:
            return f"{n // size}{unit}"
    return str(n)
