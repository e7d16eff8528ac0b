# SPDX-License-Identifier: Apache-2.0
"""A suite that stands ready: a process that has collected it, and whose forks break a kernel and run what may notice.

For a fault it forks; the child puts the broken function in the place of the right one and runs the tests, those first
that noticed a fault before, then the others, more often than not the short ones before the long ones, until one fails.
Tests that are known not to use the function are left out. A test that notices something for the first time must pass
without a fault.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import json
import math
import multiprocessing
import os
import random
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import TextIO

import pytest
import torch
from faults.mutations import Fault

OPS = "flag_gems_overrides.ops"
BROKEN = "broken_"  # before the name of a module that was broken
# A test that runs longer than this waits for a value that is never published.
MAX_TEST_SECONDS = 60
# Parts of the names of tests that are likely to notice, and of which only few are needed.
LIKELY = re.compile(r"wherever|\(2,700,64\)-1|\(9,1027\)")


class Suite:
    """Accuracy tests, in a process of their own."""

    def __init__(self, files: tuple[str, ...], directory: Path) -> None:
        """What the tests print goes to ``directory / "log"``."""
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(files, directory, theirs), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: fork and threads, which it has not
            self._process.start()
        theirs.close()
        self._log = directory / "log"

    def noticed_by(self, fault: Fault, seconds: float) -> str | None:
        """The first test that fails, or how the process ended that ran it; None if all pass."""
        try:
            self._connection.send((fault, seconds))
            return self._connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(f"the suite is not green as it is:\n{self._log.read_text()[-3000:]}") from None


def _serve(files: tuple[str, ...], directory: Path, connection: Connection) -> None:
    output = open(directory / "log", "w")  # noqa: SIM115  until the process ends
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    sys.stdout = sys.stderr = output
    sys.meta_path[:] = [finder for finder in sys.meta_path if not hasattr(finder, "mark_rewrite")]  # the outer pytest's
    torch.set_num_threads(1)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "-o", f"timeout={MAX_TEST_SECONDS}"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what the outer pytest has imported
    pytest.main([*options, *files], plugins=[_Server(directory, connection)])


class _Server:
    """The loop of a pytest session that runs its tests again and again."""

    def __init__(self, directory: Path, connection: Connection) -> None:
        self._directory = directory
        self._connection = connection
        self._failed = False
        self._seconds: dict[str, float] = {}
        self._uses: dict[str, set[str]] = {}
        self._telling: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        # Each test function once, here: what kernels and imports need before their first run, the forks then have.
        warm = {item.originalname: item for item in sorted(session.items, key=self._cost, reverse=True)}
        self._run([*warm.values()], io.StringIO())
        with contextlib.suppress(EOFError):
            while not self._failed:
                fault, seconds = self._connection.recv()
                noticed = self._judge(fault, session.items, seconds)
                if noticed in self._seconds and not self._telling[noticed]:
                    (item,) = (item for item in session.items if item.nodeid == noticed)
                    if self._judge(None, [item], seconds) is not None:
                        return True
                self._telling[noticed] += 1
                self._connection.send(noticed)
        return True

    def _judge(self, fault: Fault | None, items: list[pytest.Item], seconds: float) -> str | None:
        if fault is not None and any(fault.function in used for used in self._uses.values()):
            items = [item for item in items if fault.function in self._uses.get(item.nodeid, [fault.function])]
        chance = random.Random(0)
        costs = {item: (0.1 + self._cost(item)) / (50 if LIKELY.search(item.nodeid) else 1) for item in items}
        items = sorted(items, key=lambda item: (-self._telling[item.nodeid], chance.random() * costs[item]))
        notes = self._directory / "notes"
        notes.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            status = 70
            try:
                with open(notes, "w", buffering=1) as notes:
                    if fault is not None:
                        _plant(fault, self._directory)
                    self._run(items, notes)
                status = 1 if self._failed else 0
            finally:
                sys.stdout.flush()
                os._exit(status)
        status = _wait(child, seconds)
        for line in notes.read_text().splitlines():
            nodeid, taken, uses = json.loads(line)
            self._seconds[nodeid] = taken
            if uses is not None:
                self._uses.setdefault(nodeid, set(uses))
        if status is None:
            return "the time limit"
        if status < 0:
            return signal.Signals(-status).name
        if status > 1:
            raise RuntimeError(f"{fault} could not be tried")
        return nodeid if status else None

    def _run(self, items: list[pytest.Item], notes: TextIO) -> None:
        """Until one fails, which is then the last of the notes."""
        for item in items:
            start = time.perf_counter()
            with _launched() as kernels:
                item._initrequest()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            # What a failing test would have used after its failure is not known.
            uses = None if self._failed else sorted(kernels)
            print(json.dumps([item.nodeid, time.perf_counter() - start, uses]), file=notes)
            if self._failed:
                return

    def _cost(self, item: pytest.Item) -> float:
        """Seconds, or a guess: 10 us for each unit of the sizes in the name, 3 s at most."""
        sizes = re.findall(r"(?<![a-z\d])\d{2,}", item.nodeid)
        return self._seconds.get(item.nodeid, min(math.prod(map(int, sizes)) / 10**5, 3.0))


@contextlib.contextmanager
def _launched() -> Iterator[set[str]]:
    """Collects the kernels, and the functions that they call, that run inside the block."""
    from flag_gems_overrides.interpreter.launch import InterpretedKernel

    names: set[str] = set()

    def noting(method):
        def note(self, *args, **kwargs):
            names.add(f"{place(self.fn.__module__)}/{self.fn.__name__}")
            return method(self, *args, **kwargs)

        return note

    with pytest.MonkeyPatch.context() as patch:
        for name in ("__call__", "run"):
            patch.setattr(InterpretedKernel, name, noting(getattr(InterpretedKernel, name)))
        yield names


def place(module: str) -> str:
    """Where a module of the operators, or a broken copy of it, is, as a fault's name says it: ``softmax/forward``."""
    return module.removeprefix(f"{OPS}.").removeprefix("families.").replace(BROKEN, "").replace(".", "/")


def _plant(fault: Fault, directory: Path) -> None:
    """Put the broken function in the place of the right one, for all modules that have imported that."""
    file = directory / "fault.py"
    file.write_text(fault.source(), encoding="utf-8")
    package, _, stem = fault.module.rpartition(".")
    spec = importlib.util.spec_from_file_location(f"{package}.{BROKEN}{stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    name = fault.function.rpartition("/")[2]
    right, broken = (getattr(m, name) for m in (sys.modules[fault.module], module))
    if isinstance(inspect.unwrap(right), FunctionType):
        inspect.unwrap(right).__code__ = inspect.unwrap(broken).__code__
    else:
        vars(right).update(vars(broken))
    for name, module in list(sys.modules.items()):
        if name.startswith(OPS + "."):
            for function in vars(module).values():
                if hasattr(function, "cache_clear"):
                    function.cache_clear()


def _wait(child: int, seconds: float) -> int | None:
    """The exit status, negative for a signal, of a child that is killed after so many seconds (None)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
