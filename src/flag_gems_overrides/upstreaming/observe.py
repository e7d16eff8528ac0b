# SPDX-License-Identifier: Apache-2.0
"""What bare upstream does on the reproductions of its defects.

Upstream writes out of bounds there, so the reproductions run in a process of their own, this module's
``__main__``, and in a further one from where a process or its GPU context died.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO
from unittest import mock

import torch

from flag_gems_overrides import interpreter
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.upstreaming.defects import DEFECTS, FIXED, Defect


def observe(ids: Iterable[str], source: Path | None = None) -> dict[str, str]:
    """``FIXED``, or the exception's ``Class: text``, of each reproduction on the installed flag_gems alone, or on the
    one in the folder ``source``.

    Raises:
        RuntimeError: the process did not reach the first reproduction, e.g. flag_gems cannot be imported.
    """
    search = os.pathsep.join(filter(None, [str(source or ""), os.environ.get("PYTHONPATH")]))
    left = list(ids)
    outcomes: dict[str, str] = {}
    while left:
        process = subprocess.run(
            [sys.executable, "-m", __name__, *left],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": search},
        )
        began, *lines = process.stdout.splitlines() or [""]
        if not began:
            raise RuntimeError(f"the reproductions did not start:\n{process.stderr}")
        for outcome in map(json.loads, lines):
            outcomes[left.pop(0)] = outcome
        if left and process.returncode:
            outcomes[left.pop(0)] = f"the process ended with status {process.returncode}"
    return outcomes


def _run(ids: list[str], report: TextIO) -> None:
    """Report a line at the start, then JSON for each reproduction; end early if the GPU context is dead."""
    device = _device()
    from flag_gems_overrides.registration import compat

    # On a Triton that LibEntry does not know nothing else of upstream could be seen.
    compat.apply()
    print("started", file=report, flush=True)
    for id in ids:
        row = DEFECTS[id]
        outcome = _outcome(row, device)
        print(json.dumps(outcome), file=report, flush=True)
        if device.type == "cuda":
            try:
                torch.cuda.synchronize()
            except RuntimeError:
                return


def _device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    interpreter.activate()
    return torch.device("cpu")


def _outcome(row: Defect, device: torch.device) -> str:
    try:
        with dispatched(row.functions), interpreter.check_bounds():
            row.reproduce(device)
        if device.type == "cuda":
            torch.cuda.synchronize()
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
    return FIXED


@contextlib.contextmanager
def dispatched(functions: Iterable[str]) -> Iterator[None]:
    """Let PyTorch call flag_gems' functions of these names, as they are now, inside the block.

    What ``flag_gems.use_gems(include=...)`` does, which 4.2.0 does not have; and PyTorch's functions that are none of
    aten's, whose place flag_gems does not take, are flag_gems' for as long.
    """
    import flag_gems

    library = torch.library.Library("aten", "IMPL")
    with contextlib.ExitStack() as stack:
        stack.callback(library._destroy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is overridden
            for name in functions:
                operator, function = OPERATORS[name], getattr(flag_gems, name)
                if operator.composition:
                    continue  # reproductions call flag_gems' function itself
                if operator.overload is None:
                    stack.enter_context(mock.patch(operator.native, function))
                else:
                    library.impl(operator.overload, function, flag_gems.runtime.device.dispatch_key)
        yield


@contextlib.contextmanager
def composed(functions: Iterable[str]) -> Iterator[None]:
    """Let flag_gems' functions of these names be what PyTorch composes, where it has no function for them."""
    import flag_gems

    from flag_gems_overrides.registration.native import outside_aten

    with contextlib.ExitStack() as stack:
        for operator in (OPERATORS[name] for name in functions):
            if operator.composition:
                stack.enter_context(mock.patch.object(flag_gems, operator.name, outside_aten(operator)))
        yield


if __name__ == "__main__":
    outcomes = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        _run(sys.argv[1:], outcomes)
