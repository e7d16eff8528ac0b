# SPDX-License-Identifier: Apache-2.0
"""Writes the page about the ladders: text from ``benchmark/ladders/page.md.j2`` and the rungs' own docstrings, every
figure from what a climb recorded.
"""

from __future__ import annotations

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
from flag_gems_overrides.perf.files import make_folder
from flag_gems_overrides.perf.files import write as write_text
from flag_gems_overrides.perf.ladder import FOLDER, NATIVE, LadderError, Rung, Shape, load, names
from flag_gems_overrides.perf.ladder_climb import Row, Step, steps
from flag_gems_overrides.perf.verdict import FASTER, SAME

TEMPLATE = "page.md.j2"
COMMAND = "gems-overrides ladder all --open FOLDER"


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
    try:
        text = environment.get_template(TEMPLATE).render(tour=tour, command=COMMAND)
    except jinja2.UndefinedError as error:
        raise LadderError(
            f"{ladders}: the page's templates ask for what is not there, as for a step's why: {error}"
        ) from None
    make_folder(pictures)
    for name, figure in tour.pictures().items():
        figure.savefig(pictures / f"{name}.png", dpi=140, bbox_inches="tight", metadata={"Software": None})
    write_text(page, text)


class Tour:
    """What the template asks: ladders, and any figure of the record by ladder, rung and shape."""

    def __init__(self, folder: Path, ladders: Path) -> None:
        sessions = records.read(folder / "record.jsonl")
        cold = [session for session in sessions if session.head["level"] == "ladder"]
        if not cold or any(session.head["measure"] != "kernel" for session in cold):
            raise LadderError(
                f"{folder / 'record.jsonl'}: holds no session that timed all rungs; run {COMMAND} on a GPU"
            )
        self.head: dict[str, Any] = cold[0].head
        for session in cold[1:]:
            if any(session.head[field] != self.head[field] for field in ("device", "versions")):
                raise LadderError(
                    f"{folder / 'record.jsonl'}: sessions of different devices or versions; keep those of one"
                )
        self._cold: dict[str, Row] = {}
        self._hot: dict[str, Row] = {}
        for session in sessions:  # a ladder that was climbed again replaces what was measured of it before
            rows = self._hot if "L2 not flushed" in session.head["level"] else self._cold
            rows |= session.rows
        self.again = sorted({key.split()[0] for session in cold[1:] for key in session.rows})
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
                    found.append(
                        (name, rung, f"{step.after[2].word} against `{step.after[0]}`: {step.after[2].reason}")
                    )
        return found

    def pictures(self) -> dict[str, Figure]:
        softmax = self.ladders["softmax"]
        return {
            "softmax-n": self._scan("softmax", softmax.shapes["N at M = 4096"], -1, "N, at M = 4096"),
            "softmax-m": self._scan("softmax", softmax.shapes["M at N = 4096"], 0, "M, at N = 4096", False),
            "roofline": self._roofline("softmax"),
            "gelu": self._scan("gelu", self.ladders["gelu"].shapes["elements"], -1, "columns, at 4096 rows"),
        }

    def _scan(self, name: str, shapes: list[Shape], axis: int, label: str, relative: bool = True) -> Figure:
        """Time of every rung over one dimension: CUDA C++ in one panel, the others in another, native in both.

        Args:
            relative: as a multiple of what a copy of the same bytes takes at full bandwidth, not in microseconds.
        """
        figure = Figure(figsize=(11, 4.2))
        panels = figure.subplots(1, 2, sharey=True)
        colors = mpl.color_sequences["tab10"]
        copies = [self._copy_us(name, shape) for shape in shapes]
        units = copies if relative else [1.0] * len(shapes)
        for axes, title, is_cuda in zip(panels, ("PyTorch and Triton", "CUDA C++"), (False, True), strict=True):
            rungs = [r for r in self.ladders[name].rungs if r == NATIVE or r.startswith("cuda") == is_cuda]
            for rung in rungs:
                times = [self.step(name, rung, shape).us for shape in shapes]
                points = [(s[axis], us / unit) for s, us, unit in zip(shapes, times, units, strict=True) if us]
                if points:
                    color = "black" if rung == NATIVE else colors[rungs.index(rung)]
                    axes.plot(*zip(*points, strict=True), "o-", ms=3, lw=1.4, color=color, label=rung)
            copy = [(s[axis], us / unit) for s, us, unit in zip(shapes, copies, units, strict=True)]
            axes.plot(*zip(*copy, strict=True), ":", color="gray", lw=1, label="copy")
            axes.set(xscale="log", yscale="log", xlabel=label, title=title)
            axes.set_xticks([shape[axis] for shape in shapes], [str(shape[axis]) for shape in shapes])
            if relative:
                axes.set_yticks(*zip(*((t, f"{t}x") for t in (1, 2, 5, 10, 20, 50)), strict=True))
            axes.minorticks_off()
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
        if not relative:
            panels[0].set_ylim(bottom=2)  # below a launch, where only the copy's line would be
        panels[0].set_ylabel("time, over that of a copy" if relative else "us")
        return figure

    def _copy_us(self, name: str, shape: Shape) -> float:
        return sum(self.row(name, shape)["compulsory"].values()) / self.head["copy_gbps"] / 1e3

    def _roofline(self, name: str) -> Figure:
        """Each rung by the bytes that it asks for; an arrow to it from the one that it must beat at this shape."""
        ladder = self.ladders[name]
        operations = ladder.operations * math.prod(ladder.target)
        intensity = operations / sum(self.row(name)["compulsory"].values())
        points = {
            step.rung: (intensity / passes, operations / step.us / 1e3)
            for step in self.steps(name)
            if step.us and (passes := ladder.rungs[step.rung].passes)
        }
        figure = Figure(figsize=(9, 5.6))
        axes: Axes = figure.subplots()
        ends = (0.8 * intensity / 4, 1.5 * intensity)
        axes.plot(ends, [self.head["copy_gbps"] * x for x in ends], color="black", lw=1)
        axes.text(
            ends[0], self.head["copy_gbps"] * ends[0] * 1.5, f"copy: {self.head['copy_gbps']:.0f} GB/s", fontsize=8
        )
        for rung, point in points.items():
            axes.plot(*point, "o", color=_color(rung), ms=5)
            after = ladder.rungs[rung].after
            if after in points and ladder.rungs[rung].target is None:
                arrow = {"arrowstyle": "->", "color": _color(rung), "alpha": 0.6}
                axes.annotate("", point, points[after], arrowprops=arrow)
        ticks = [(intensity / passes, f"{intensity / passes:.3g}\n({passes:g} passes)") for passes in (4, 2, 1.5, 1)]
        axes.set(xscale="log", yscale="log", xlabel="operations per byte that the rung asks for", ylabel="Gop/s")
        axes.set_xticks(*zip(*ticks, strict=True))
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        _label(axes, points)
        return figure


def _color(rung: str) -> str:
    return {"triton": "tab:orange", "cuda": "tab:green"}.get(rung.split("_")[0], "tab:blue")


def _label(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Names beside the points: CUDA's on the left, the others' on the right, none over another."""
    lowest: dict[tuple[float, bool], float] = {}
    for rung, (x, y) in sorted(points.items(), key=lambda item: item[1][1]):
        left = rung.startswith("cuda")
        place = axes.transData.transform((x, y))[1] * 72 / axes.figure.dpi
        free = max(place, lowest.get((x, left), -math.inf) + 9)
        lowest[x, left] = free
        axes.annotate(
            rung,
            (x, y),
            textcoords="offset points",
            xytext=(-7 if left else 7, free - place - 3),
            ha="right" if left else "left",
            fontsize=7,
            color=_color(rung),
        )


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
