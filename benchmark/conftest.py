# SPDX-License-Identifier: Apache-2.0
"""Benchmarks in upstream's manner. On a GPU they time; on a machine without one they count what kernels do."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

if not torch.cuda.is_available():
    from flag_gems_overrides import interpreter

    interpreter.activate()

from flag_gems_overrides.perf import baselines, gates, resources, run
from flag_gems_overrides.perf.cases import DTYPES, MODES, PEERS, Case, CaseError, Shapes
from flag_gems_overrides.perf.records import Recorder, RecordError
from flag_gems_overrides.perf.report import terminal
from flag_gems_overrides.perf.report.summary import summary
from flag_gems_overrides.perf.report.view import view

HERE = Path(__file__).parent
SHAPES = Shapes(HERE / "core_shapes.yaml")
HUNTED = Shapes(HERE / "hunted_shapes.yaml")
UNDER_XDIST = (
    "benchmarks do not run under pytest-xdist: processes beside each other on one GPU would time each other, and a "
    "record is written by one. Leave out -n (or give -n 0); the accuracy tests are the ones to run in parallel."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("flag-gems-overrides benchmarks")
    group.addoption("--level", choices=["core", "comprehensive"], default="core", help="which shapes to time")
    group.addoption(
        "--mode",
        choices=MODES,
        default="kernel",
        help="what to time: the kernels on the device, the operator end to end, or its wrapper on the host",
    )
    group.addoption("--dtypes", action="append", choices=DTYPES, help="only these dtypes (repeat for several)")
    group.addoption(
        "--peers", action="append", choices=PEERS, default=[], help="also time this, where installed (repeat)"
    )
    group.addoption("--record", choices=["none", "json"], default="none", help="append the results to --output")
    group.addoption("--output", type=Path, default=Path("benchmark_result.jsonl"), help="the record to append to")


def _mark(op: str) -> str:
    """Its mark, which pytest lets begin with no underscore."""
    return op.lstrip("_")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(UNDER_XDIST)
    for op in SHAPES.ops:
        config.addinivalue_line("markers", f"{_mark(op)}: benchmarks {op}")
    config.stash[_BENCH] = Bench(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            # A benchmark takes what it takes; and what compilers and peers warn of is no failure of ours.
            item.add_marker(pytest.mark.timeout(0))
            item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_collection_finish(session: pytest.Session) -> None:
    try:
        session.config.stash[_BENCH].choose(session.items)
    except CaseError as error:
        raise pytest.UsageError(str(error)) from None


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """What is wrong with the record ends the run with one line and status 2."""
    try:
        yield
    except RecordError as error:
        pytest.exit(f"error: {error}", returncode=2)


class Bench:
    """Measures ops for the tests and keeps their rows for the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._options = config.option
        self._meter: run.Meter | None = None
        self._recorder: Recorder | None = None
        self._cases: dict[str, list[Case]] = {}
        self.rows: list[dict[str, Any]] = []
        self.resumed = 0

    @property
    def meter(self) -> run.Meter:
        if self._meter is None:
            self._meter = run.meter(self._options.mode, self._level, self._options.peers)
        return self._meter

    @property
    def _level(self) -> str:
        return self._options.level if run.is_timed() else "interpreter"

    def choose(self, items: list[pytest.Item]) -> None:
        """The cases of the ops that the items are marked with are to be measured."""
        dtypes = self._options.dtypes or run.dtypes()
        marks = {mark.name for item in items if HERE in item.path.parents for mark in item.iter_markers()}
        self._cases = {op: SHAPES.cases(op, self._level, dtypes) for op in SHAPES.ops if _mark(op) in marks}
        if run.is_timed():
            for op in self._cases.keys() & HUNTED.ops:
                hunted = HUNTED.cases(op, "core", dtypes)
                self._cases[op] += [case for case in hunted if case not in self._cases[op]]

    def run(self, record_property: Callable[[str, str], None], op: str) -> None:
        """Measure ``op`` over its shapes and hold the results to the accepted baseline. Means go to JUnit's report."""
        if self._options.record == "json" and self._recorder is None:
            keys = [case.key for cases in self._cases.values() for case in cases]
            with _one_line():
                self._recorder = Recorder(self._options.output, self.meter.head, keys)
            self.resumed = len(self._recorder.session.rows)
        with _one_line():
            rows = run.measure(self._cases[op], self.meter, self._recorder)
        self.rows += rows
        for means in summary(view(self.meter.head, rows))[:1]:
            for line in means.lines:
                for column, cell in zip(means.columns[2:], line.cells[2:], strict=True):
                    record_property(f"{line.cells[1]} {column.name}", cell)
        failures = gates.judge(rows, self._baseline(op), self.meter.head.get("noise", gates.MIN_NOISE))
        if failures:
            pytest.fail("\n".join(map(str, failures)), pytrace=False)

    def _baseline(self, op: str) -> gates.Baseline | None:
        if self.meter.head["measure"] not in ("count", "kernel"):
            return None
        return baselines.load(HERE / "baselines", self.meter.head["device"]["name"], op)

    def finish(self) -> None:
        if self._recorder:
            with _one_line():
                self._recorder.close()

    @property
    def unknown_device(self) -> str | None:
        """The name of a device that nothing was ever accepted for."""
        device: str = self.meter.head["device"]["name"]
        return None if baselines.is_known(HERE / "baselines", device) else device


@pytest.fixture(scope="session")
def shapes() -> Shapes:
    return SHAPES


@pytest.fixture(scope="session")
def surveyed() -> list[resources.Row]:
    """The recorded survey of compiled kernels."""
    return resources.load(HERE / "baselines" / "resources.jsonl")


_BENCH = pytest.StashKey[Bench]()


@pytest.fixture
def bench(request: pytest.FixtureRequest, record_property: Callable[[str, str], None]) -> Callable[[str], None]:
    """Call it with the name of an op."""
    return functools.partial(request.config.stash[_BENCH].run, record_property)


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[_BENCH].finish()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    bench = config.stash[_BENCH]
    if not bench.rows:
        return
    terminalreporter.section("performance")
    if bench.resumed:
        terminalreporter.line(f"Resumed: {bench.resumed} cases were in {config.option.output} already.")
    if bench.unknown_device:
        terminalreporter.line(
            f"No baseline for {bench.unknown_device}: answers were checked, speed was measured but not judged."
        )
    terminal.show(view(bench.meter.head, bench.rows), Console(file=terminalreporter._tw._file))
