# SPDX-License-Identifier: Apache-2.0
"""Writes the page about the ladders: text from ``benchmark/ladders/page.md.j2`` and the rungs' own docstrings, every
figure from what a climb recorded.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.baselines import write as write_text
from flag_gems_overrides.perf.ladder import FOLDER, NATIVE, LadderError, Rung, Shape, load, names
from flag_gems_overrides.perf.ladder_climb import Row, Step, steps
from flag_gems_overrides.perf.verdict import FASTER, SAME

TEMPLATE = "page.md.j2"
COMMAND = "gems-overrides ladder all --open FOLDER"
_DASHES = {"cuda": "--", "triton": "-", "override": "-"}


def write(page: Path, folder: Path, ladders: Path = FOLDER) -> None:
    """Write the page, and its pictures into a folder beside it that has its name.

    Args:
        folder: what ``gems-overrides ladder all --open`` wrote: record.jsonl and rungs.jsonl.

    Raises:
        LadderError: a file is missing, or lacks what the page shows.
    """
    tour = Tour(folder, ladders)
    pictures = page.with_suffix("")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ladders), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percent": lambda value: f"{value * 100:.0f} %", "times": lambda value: f"{value:.2f}"}
    text = environment.get_template(TEMPLATE).render(tour=tour, command=COMMAND, pictures=pictures.name)
    pictures.mkdir(parents=True, exist_ok=True)
    for name, figure in tour.pictures().items():
        figure.savefig(pictures / f"{name}.png", dpi=140, bbox_inches="tight", metadata={"Software": None})
    write_text(page, text)


class Tour:
    """What the template asks: ladders, and any figure of the record by ladder, rung and shape."""

    def __init__(self, folder: Path, ladders: Path) -> None:
        sessions = records.read(folder / "record.jsonl")
        cold = [session for session in sessions if session.head["level"] == "ladder"]
        if not cold or cold[-1].head["measure"] != "kernel":
            raise LadderError(
                f"{folder / 'record.jsonl'}: holds no session that timed all rungs; run {COMMAND} on a GPU"
            )
        self.head: dict[str, Any] = cold[-1].head
        self._cold = cold[-1].rows
        self._hot: dict[str, Row] = {}
        for session in sessions:
            self._hot |= session.rows if "L2 not flushed" in session.head["level"] else {}
        self.ladders = {name: load(name, ladders) for name in names(ladders)}
        self._opened = _opened(folder / "rungs.jsonl")

    def row(self, name: str, shape: Shape | None = None, variant: int = 0, hot: bool = False) -> Row:
        ladder = self.ladders[name]
        key = ladder.key(tuple(shape or ladder.target), variant)
        rows = self._hot if hot else self._cold
        if key not in rows:
            raise LadderError(f"record.jsonl has no case {key!r}; run {COMMAND} again")
        return rows[key]

    def steps(self, name: str, shape: Shape | None = None, variant: int = 0, hot: bool = False) -> list[Step]:
        return steps(self.ladders[name], self.head, self.row(name, shape, variant, hot))

    def step(self, name: str, rung: str, shape: Shape | None = None, variant: int = 0, hot: bool = False) -> Step:
        """A rung, at its own target unless told otherwise."""
        chosen = shape or self.rung(name, rung).target or self.ladders[name].target
        return next(step for step in self.steps(name, chosen, variant, hot) if step.rung == rung)

    def us(self, name: str, rung: str, shape: Shape | None = None, variant: int = 0, hot: bool = False) -> str:
        return _microseconds(self.step(name, rung, shape, variant, hot).us)

    def share(self, name: str, rung: str, shape: Shape | None = None, variant: int = 0, hot: bool = False) -> str:
        share = self.step(name, rung, shape, variant, hot).share
        return "-" if share is None else f"{share:.0%}".replace("%", " %")

    def ratio(self, name: str, slow: str, fast: str, shape: Shape | None = None, variant: int = 0) -> str:
        """How many times as long one rung takes as another."""
        chosen = shape or self.ladders[name].target
        times = [self.step(name, rung, chosen, variant).us for rung in (slow, fast)]
        if None in times:
            raise LadderError(
                f"record.jsonl: {slow} or {fast} of {name} was not timed at {chosen}; run {COMMAND} again"
            )
        return f"{(times[0] or 0) / (times[1] or 1):.2g}"

    def rung(self, name: str, rung: str) -> Rung:
        return self.ladders[name].rungs[rung]

    def shape(self, name: str, rung: str | None = None) -> str:
        ladder = self.ladders[name]
        return " x ".join(map(str, (rung and ladder.rungs[rung].target) or ladder.target))

    def opened(self, name: str, rung: str) -> dict[str, Any]:
        """Kernels and PTX of a rung."""
        return self._opened.get((name, rung), {})

    def kernel(self, name: str, rung: str) -> dict[str, Any]:
        """The kernel of a rung that takes longest; empty if the rung was not opened."""
        return max(self.opened(name, rung).get("kernels", []), key=lambda kernel: kernel["us"], default={})

    def source(self, name: str, rung: str) -> str:
        return f"{name}/{self.ladders[name].source(rung).name}"

    def text(self, name: str, rung: str) -> str:
        return self.ladders[name].describe(rung)[1]

    def title(self, name: str, rung: str) -> str:
        return self.ladders[name].describe(rung)[0]

    def measured(self, name: str, rung: str) -> str:
        """What was measured of a rung at its target, in one line."""
        step = self.step(name, rung)
        if step.us is None:
            return f"Not measured: {step.absent}."
        parts = [f"**{_microseconds(step.us)}** at {self.shape(name, rung)}, {self.share(name, rung)} of a copy"]
        if step.of_native is not None and rung != NATIVE:
            parts.append(f"{step.of_native * 100:.0f} % of native's speed")
        if step.after is not None:
            before, ratio, verdict = step.after
            parts.append(f"{_compared(ratio, verdict.word)} `{before}`")
        kernel = self.kernel(name, rung)
        if kernel:
            parts.append(f"{kernel['registers']} registers, occupancy {kernel['occupancy'] * 100:.0f} %")
        return "; ".join(parts) + "."

    def table(self, name: str, shape: Shape | None = None, variant: int = 0) -> str:
        """The climb at one shape."""
        ladder = self.ladders[name]
        chosen = tuple(shape or ladder.target)
        lines = [
            "| rung | passes | time | of a copy | of native | Gop/s | launches | registers | occupancy |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        elements = math.prod(chosen)
        for step in self.steps(name, chosen, variant):
            if step.us is None:
                continue
            opened = self.opened(name, step.rung)
            at_target = tuple(opened.get("shape", ())) == chosen and variant == 0
            kernels = opened.get("kernels", []) if at_target else []
            kernel = max(kernels, key=lambda found: found["us"], default=None)
            passes = ladder.rungs[step.rung].passes
            cells = [
                f"`{step.rung}`",
                "-" if passes is None else f"{passes:g}",
                _microseconds(step.us),
                f"{(step.share or 0) * 100:.0f} %",
                "-" if step.of_native is None else f"{step.of_native * 100:.0f} %",
                f"{ladder.operations * elements / step.us / 1e3:.0f}",
                str(len(kernels)) if kernels else "-",
                str(kernel["registers"]) if kernel else "-",
                f"{kernel['occupancy'] * 100:.0f} %" if kernel else "-",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    def cold_and_hot(self, name: str) -> str:
        """Bandwidth with and without flushing L2, for the shapes that were measured both ways."""
        ladder = self.ladders[name]
        shapes = [shape for shape in ladder.hot if ladder.key(shape) in self._hot]
        head = " | ".join(f"{'x'.join(map(str, shape))}, {_mib(self.row(name, shape))}" for shape in shapes)
        lines = [f"| rung | {head} |", "|---|" + "--:|" * len(shapes)]
        for rung in ladder.rungs:
            cells = []
            for shape in shapes:
                pair = [self.step(name, rung, shape, hot=hot).gbps for hot in (False, True)]
                cells.append(" -> ".join("-" if gbps is None else f"{gbps:.0f}" for gbps in pair))
            lines.append(f"| `{rung}` | {' | '.join(cells)} |")
        return "\n".join(lines)

    def slower(self) -> list[tuple[str, str, str]]:
        """Rungs that are not faster than the one before on their target: (ladder, rung, what was found)."""
        found = []
        for name, ladder in self.ladders.items():
            for rung, described in ladder.rungs.items():
                step = self.step(name, rung) if described.after else None
                if step and step.after and step.after[2].word not in (FASTER, SAME):
                    found.append((name, rung, f"{step.after[2].word} than `{step.after[0]}`: {step.after[2].reason}"))
        return found

    def pictures(self) -> dict[str, Figure]:
        softmax = self.ladders["softmax"]
        return {
            "softmax-n": self._scan("softmax", softmax.shapes["N at M = 4096"], -1, "N, at M = 4096"),
            "softmax-m": self._scan("softmax", softmax.shapes["M at N = 4096"], 0, "M, at N = 4096"),
            "roofline": self._roofline("softmax"),
            "gelu": self._scan("gelu", self.ladders["gelu"].shapes["elements"], -1, "columns, at 4096 rows"),
        }

    def _scan(self, name: str, shapes: list[Shape], axis: int, label: str) -> Figure:
        """Time of every rung over one dimension, as a multiple of what a copy of the same bytes takes at full speed."""
        figure = Figure(figsize=(8.5, 4.6))
        axes: Axes = figure.subplots()
        colors = mpl.color_sequences["tab20"]
        for i, rung in enumerate(self.ladders[name].rungs):
            points = [(shape[axis], step.us) for shape in shapes if (step := self.step(name, rung, shape)).us]
            if points:
                style = _DASHES.get(rung.split("_")[0], ":")
                axes.plot(*zip(*points, strict=True), style, marker="o", ms=3, lw=1.4, color=colors[i], label=rung)
        copy = [(shape[axis], self._copy_us(name, shape)) for shape in shapes]
        axes.plot(*zip(*copy, strict=True), color="black", lw=1, label="copy at full bandwidth")
        axes.set(xscale="log", yscale="log", xlabel=label, ylabel="us")
        axes.set_xticks([shape[axis] for shape in shapes], [str(shape[axis]) for shape in shapes])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
        return figure

    def _copy_us(self, name: str, shape: Shape) -> float:
        return sum(self.row(name, shape)["compulsory"].values()) / self.head["copy_gbps"] / 1e3

    def _roofline(self, name: str) -> Figure:
        """Each rung by the bytes that it moves; arrows from each rung to the next of its language."""
        ladder = self.ladders[name]
        row = self.row(name)
        operations = ladder.operations * math.prod(ladder.target)
        compulsory = sum(row["compulsory"].values())
        figure = Figure(figsize=(8.5, 5.2))
        axes: Axes = figure.subplots()
        for track, color in (("triton", "tab:orange"), ("cuda", "tab:green"), ("", "tab:blue")):
            points = []
            for step in self.steps(name):
                passes, language = ladder.rungs[step.rung].passes, step.rung.split("_")[0]
                mine = language == track or (not track and language not in ("triton", "cuda"))
                if step.us and passes and mine:
                    points.append((operations / compulsory / passes, operations / step.us / 1e3, step.rung))
            _draw_climb(axes, points, color, arrows=bool(track))
        low, high = 0.9 * operations / compulsory / 4, 1.35 * operations / compulsory
        axes.plot([low, high], [self.head["copy_gbps"] * x for x in (low, high)], color="black", lw=1)
        axes.text(low, self.head["copy_gbps"] * low * 1.08, f"copy: {self.head['copy_gbps']:.0f} GB/s", fontsize=8)
        axes.axvline(operations / compulsory, color="gray", lw=0.8, ls=":")
        axes.set(xscale="log", yscale="log", xlabel="operations per byte that the rung asks for", ylabel="Gop/s")
        ticks = [operations / compulsory / passes for passes in (4, 2, 1.5, 1)]
        axes.set_xticks(ticks, [f"{tick:.3g}\n({p:g} passes)" for tick, p in zip(ticks, (4, 2, 1.5, 1), strict=True)])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        return figure


def _draw_climb(axes: Axes, points: list[tuple[float, float, str]], color: str, arrows: bool) -> None:
    for x, y, rung in points:
        axes.plot(x, y, "o", color=color, ms=5)
        axes.annotate(rung, (x, y), textcoords="offset points", xytext=(6, -3), fontsize=7, color=color)
    if arrows:
        for (x0, y0, _), (x1, y1, _) in itertools.pairwise(points):
            axes.annotate("", (x1, y1), (x0, y0), arrowprops={"arrowstyle": "->", "color": color, "alpha": 0.6})


def _opened(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    try:
        lines = path.read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return {(row["ladder"], row["rung"]): row for row in rows}
    except OSError as error:
        raise LadderError(f"{path}: {error.strerror}; {COMMAND} writes it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LadderError(f"{path}: no list of rungs ({error}); {COMMAND} writes it") from None


def _compared(ratio: float, word: str) -> str:
    if word == SAME:
        return "as fast as"
    much = f"{ratio:.2f} times the speed of" if ratio > 1 else f"takes {1 / ratio:.2f} times as long as"
    return much if word != "UNSURE" else f"{much} (unsure)"


def _microseconds(us: float | None) -> str:
    if us is None:
        return "-"
    return f"{us:.1f} us" if us < 1000 else f"{us / 1000:.2f} ms"


def _mib(row: Mapping[str, Any]) -> str:
    return f"{sum(row['compulsory'].values()) / 2**20:.0f} MiB"
