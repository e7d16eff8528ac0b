# SPDX-License-Identifier: Apache-2.0
"""Runs a suite against a broken file, in a child of a process that has everything imported but the operators."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import flag_gems  # noqa: F401  what takes seconds, once for all children
import pytest
import torch
from faults.mutations import Fault

OPS = "flag_gems_overrides.ops"
# A test that runs longer than this (seconds) waits for something that does not come.
LONGEST_TEST = 60
# What noticed a fault before, by the suite: asked first the next time, the most telling first.
_telling: dict[tuple[str, ...], Counter[str]] = {}


def noticed_by(fault: Fault, suite: tuple[str, ...], directory: Path, seconds: float) -> str | None:
    """The first test of ``suite`` that fails, or how the process ended that ran it; None if all pass.

    Raises:
        RuntimeError: the suite could not be run; what pytest said is in ``directory / "log"``.
    """
    if any(name.startswith(OPS + ".") for name in sys.modules):
        raise RuntimeError("the operators have been imported already, unbroken")
    broken, failed = directory / fault.file, directory / "failed"
    broken.write_text(fault.source, encoding="utf-8")
    telling = _telling.setdefault(suite, Counter())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: threads, and there are none that matter
        child = os.fork()
    if child == 0:
        status = 70
        try:
            _into(directory / "log")
            sys.meta_path.insert(0, _Planted(f"{OPS}.{broken.stem}", broken))
            torch.set_num_threads(1)
            options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", f"timeout={LONGEST_TEST}"]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what the parent has imported
            status = int(pytest.main([*options, *suite], plugins=[_Order(telling, failed)]))
        finally:
            sys.stdout.flush()
            os._exit(status)
    status = _wait(child, seconds)
    if status is None:
        return "the time limit"
    if status < 0:
        return signal.Signals(-status).name
    if status == pytest.ExitCode.OK:
        return None
    if status != pytest.ExitCode.TESTS_FAILED:
        raise RuntimeError(f"pytest ended with {status}:\n{(directory / 'log').read_text()[-2000:]}")
    test = failed.read_text()
    telling[test] += 1
    return test


def _into(log: Path) -> None:
    """Standard output and error go to this file."""
    output = open(log, "w")  # noqa: SIM115  until the process ends
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    sys.stdout = sys.stderr = output


def _wait(child: int, seconds: float) -> int | None:
    """The exit status, negative for a signal, of a child that is killed after so many seconds (None)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class _Planted(importlib.abc.MetaPathFinder):
    """Finds the broken file for the module it belongs to."""

    def __init__(self, module: str, file: Path) -> None:
        self._module, self._file = module, file

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_file_location(name, self._file) if name == self._module else None


class _Order:
    """Puts the telling tests first and the others in an order without pattern, and writes down what failed."""

    def __init__(self, telling: Counter[str], failed: Path) -> None:
        self._telling, self._failed = telling, failed

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        random.Random(0).shuffle(items)
        items.sort(key=lambda item: -self._telling[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.write_text(report.nodeid)
