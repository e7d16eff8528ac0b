# SPDX-License-Identifier: Apache-2.0
"""One measurement of ``gems-overrides ablate``, in a process of its own: ``python -m ... FOLDER``.

It imports the modules that FOLDER/modules.json names, reads a job such as ``{"step": ...}`` from its standard input and
writes FOLDER/row.json. Without a variant it looks which of flag_gems' operators the step reaches. With one it runs the
first steps under it for their losses, then times native and variant in turn in the order A B B A.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from flag_gems_overrides import environment, registration
from flag_gems_overrides.perf import ablate, steps
from flag_gems_overrides.registration import compat, enabling, upstream

PACKAGES = ("torch", "triton", "flag_gems")
Contexts = Callable[[], AbstractContextManager]


def main() -> None:
    folder = Path(sys.argv[1])
    try:
        gems = environment.load()
        _import(json.loads((folder / "modules.json").read_text()))
        result = _run(gems, json.loads(sys.stdin.read()))
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    output = folder / "row.json"
    unfinished = output.with_suffix(".part")
    unfinished.write_text(json.dumps(result))
    os.replace(unfinished, output)
    # After an error of the device its clean-up may hang or abort; the answer is written.
    sys.stdout.flush()
    os._exit(0)


def _import(modules: list[str]) -> None:
    """What the step's module will import. What fails here fails, or does not, when it is needed."""
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)


def _run(gems: ModuleType, job: dict[str, Any]) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    step = steps.load(job["step"])
    if job["variant"] is None:
        return _look(gems, step)
    # What flag_gems needs on a Triton that is newer than it, with or without overrides.
    compat.apply()
    context = _context(gems, job["variant"])
    with context():
        losses = [_loss(step()) for _ in range(job["steps"])]
    times: dict[str, list[float]] = {"native_ms": [], "ms": []}
    for _ in range(job["rounds"]):
        first, second, third, fourth = (
            _timed(step, each, job["steps"]) for each in (nullcontext, context, context, nullcontext)
        )
        times["native_ms"].append((first + fourth) / 2)
        times["ms"].append((second + third) / 2)
    return {**times, "losses": [loss for loss in losses if loss is not None]}


def _look(gems: ModuleType, step: Callable[[], Any]) -> dict[str, Any]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    seen: dict[str, set[str]] = {}
    for event in profiled.events():
        seen.setdefault(event.name, set()).add(getattr(event, "overload_name", "") or "")
    return {
        "reached": _reached(gems, seen),
        "modules": _installed_modules(),
        "exclude_argument": enabling.exclude_argument(gems),
        "versions": {package: environment._version(package) for package in PACKAGES},
        "device": "cpu" if gems.device == "cpu" else torch.cuda.get_device_name(),
    }


def _installed_modules() -> list[str]:
    """Those that were imported from packages: the user's own may allocate memory of the device when imported."""
    folders = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    return [name for name, module in sys.modules.items() if str(getattr(module, "__file__", "")).startswith(folders)]


def _reached(gems: ModuleType, seen: dict[str, set[str]]) -> list[str]:
    """Names of flag_gems' functions whose overload ran. A profile without overloads counts all of a name."""
    names = []
    for overload, function in upstream.rows(gems).items():
        packet, _, variant = overload.partition(".")
        variants = seen.get(f"aten::{packet}", set())
        if variants and (variant in variants or not any(variants)):
            names.append(function.__name__)
    return list(dict.fromkeys(names))


def _context(gems: ModuleType, variant: str) -> Contexts:
    if variant == ablate.NATIVE:
        return nullcontext
    if variant == ablate.ALL:
        return lambda: _without_overrides(gems, None)
    if variant == ablate.ALL_WITH_OVERRIDES:
        return lambda: _with_overrides(gems, None, None)
    if variant == ablate.ENABLED:
        return registration.enable
    if variant.endswith(ablate.OVERRIDE):
        name = variant.removesuffix(ablate.OVERRIDE)
        return lambda: _with_overrides(gems, [name], upstream.registered_names(gems, [name])[0])
    return lambda: _without_overrides(gems, variant)


@contextmanager
def _without_overrides(gems: ModuleType, name: str | None) -> Iterator[None]:
    with registration.use_overrides(include=[]), _gems(gems, name):
        yield


@contextmanager
def _with_overrides(gems: ModuleType, overrides: list[str] | None, name: str | None) -> Iterator[None]:
    with registration.use_overrides(include=overrides), _gems(gems, name):
        yield


def _gems(gems: ModuleType, name: str | None) -> AbstractContextManager:
    """flag_gems with one function, or with all."""
    if name is None:
        every: AbstractContextManager = gems.use_gems()
        return every
    if hasattr(gems, "only_enable"):
        return gems.use_gems(include=[name])
    return gems.use_gems(unused=[f.__name__ for f in upstream.rows(gems).values() if f.__name__ != name])


def _timed(step: Callable[[], Any], context: Contexts, steps: int) -> float:
    """Milliseconds a step."""
    import torch

    with context():
        step()  # what is registered anew is noticed by the first call
        _synchronize(torch)
        start = time.perf_counter()
        for _ in range(steps):
            step()
        _synchronize(torch)
        return (time.perf_counter() - start) / steps * 1e3


def _synchronize(torch: ModuleType) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _loss(value: Any) -> float | None:
    return None if value is None else float(value)


if __name__ == "__main__":
    main()
