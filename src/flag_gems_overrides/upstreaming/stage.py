# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin under which upstream's own tests run: ``-p flag_gems_overrides.upstreaming.stage``.

On a GPU or, where there is none, in Triton's interpreter; with the overrides if ``GEMS_STAGE`` says "overrides", as on
a vendor that is not NVIDIA if it says "other vendor". To the file
``GEMS_STAGE_OUTCOMES`` goes a line of JSON for each test, ``[test, verdict, why]``: "unfinished" for all of them at
first, and then what became of it, as soon as that is known.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import math
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from flag_gems_overrides import install, interpreter
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.registration import compat
from flag_gems_overrides.upstreaming import other_vendor
from flag_gems_overrides.upstreaming.defects import DEFECTS

if os.environ.get("GEMS_STAGE") == "other vendor":
    other_vendor.activate()
elif not torch.cuda.is_available():
    interpreter.activate()

# On a Triton that LibEntry does not know nothing else of upstream could be seen.
compat.apply()
if os.environ.get("GEMS_STAGE") == "overrides":
    install()

# Elements of the largest parameter; the interpreter takes minutes for upstream's largest shapes.
LIMIT = int(os.environ.get("GEMS_STAGE_LIMIT", "0" if torch.cuda.is_available() else "60000"))


WORKER = os.environ.get("PYTEST_XDIST_WORKER")


def pytest_plugin_registered(plugin: Any) -> None:
    # The conftest.py of 5.0.2 looks up what it noted when a test began, and with xdist that was in another process.
    if type(getattr(plugin, "TEST_RESULTS", None)) is dict:
        plugin.TEST_RESULTS = collections.defaultdict(dict)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    large = {f"test_{row.id.lower()}" for row in DEFECTS.values() if row.needs_gpu}
    for item in items:
        if LIMIT and (item.name in large or max(_sizes(item), default=0) > LIMIT):
            item.add_marker(pytest.mark.skip(reason="too large for the interpreter"))
        elif LIMIT and item.name.partition("[")[0] in _beside_cuda():
            item.add_marker(pytest.mark.skip(reason="PyTorch has no kernel to compare with without a GPU"))


@functools.cache
def _beside_cuda() -> set[str]:
    """The tests whose expected answers, or whose arguments, come from a kernel that PyTorch has for CUDA alone."""
    there = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    rows = [row for row in OPERATORS.values() if row.overload is not None and not there(f"aten::{row.overload}", "CPU")]
    # The one of upstream's own calls cuDNN's forward.
    return {f"test_{row.name.lstrip('_')}_sizes" for row in rows} | {"test_cudnn_batch_norm_backward"}


def pytest_collection_finish(session: pytest.Session) -> None:
    if WORKER in (None, "gw0"):  # xdist runs nothing before all workers have collected
        for item in session.items:
            _say(item.nodeid, "unfinished", "")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if WORKER is None and (report.when == "call" or report.outcome != "passed"):
        _say(report.nodeid, report.outcome, _why(report))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    torch.manual_seed(0)
    # Upstream writes beyond its tensors here and there; interpreted, that ends the process sooner or later.
    with interpreter.check_bounds() if interpreter.is_active() else contextlib.nullcontext():
        yield
    if torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            # The context is dead, and no other test can run in this process. xdist starts another one.
            if WORKER:
                os._exit(1)
            item.session.shouldstop = "the GPU's context is dead"
            raise


def _say(test: str, verdict: str, why: str) -> None:
    path = os.environ.get("GEMS_STAGE_OUTCOMES")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps([test.removeprefix("tests/").replace(".py::", "::", 1), verdict, why]) + "\n")


def _why(report: pytest.TestReport) -> str:
    """The first line of it."""
    if report.outcome == "passed":
        return ""
    cause = report.longrepr
    if isinstance(cause, tuple):  # of a skipped one: path, line, reason
        cause = cause[2].removeprefix("Skipped: ")
    crash = getattr(cause, "reprcrash", None)
    return (str(crash.message if crash else cause).splitlines() or [""])[0][:200]


def _sizes(item: pytest.Item) -> Iterator[int]:
    spec = getattr(item, "callspec", None)
    for value in spec.params.values() if spec else ():
        if isinstance(value, (tuple, list)) and all(type(size) is int for size in value):
            yield math.prod(value)
