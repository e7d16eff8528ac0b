# SPDX-License-Identifier: Apache-2.0
"""Compiles what will be measured, on all cores, before one process times it.

What the workers leave behind are Triton's and Inductor's caches on disk.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flag_gems_overrides.perf import workers
from flag_gems_overrides.perf.cases import OVERRIDE, UPSTREAM, parse
from flag_gems_overrides.perf.problems import Problem

COMPILE = "compile"
# Milliseconds that upstream's tuner warms up and measures for each configuration. Its own are 25 and 100, 3 s for each
# new shape of a layer_norm gradient.
_TUNER_WARM_UP_MS, _TUNER_MS = 1, 4
# Memory that a worker keeps between tasks.
_KEPT_BYTES = 1 << 30

Died = Mapping[tuple[str, str], str]
"""Why a provider ended its process, by the key of the case and the name of the provider."""


class ContextLostError(RuntimeError):
    """A kernel failed so that this process cannot use its GPU any more; the message names op and provider."""


def processes() -> int:
    """One for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_caches() -> None:
    """Let all processes find what one has compiled, and keep to ourselves what upstream's tuner finds in a hurry.

    Must come before flag_gems is imported and torch.compile is used.
    """
    # Inductor would give Triton a folder of its own.
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path.home() / ".triton" / "cache"))
    # Each of our processes compiles for itself.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    folder = tempfile.TemporaryDirectory(prefix="flag_gems_")
    atexit.register(folder.cleanup)
    os.environ["FLAGGEMS_CACHE_DIR"] = folder.name


def compile_all(problems: Sequence[Problem], seconds: float) -> Died:
    """Call every provider of the problems once, for so many seconds at most.

    Raises:
        WorkerError: no process can be started.
    """
    providers = [
        (problem.case.key, name)
        for problem in problems
        for name in (OVERRIDE, UPSTREAM, *([COMPILE] if problem.compiled else []))
    ]
    # What upstream's tuner finds while all cores compile is not kept.
    separate = {"FLAGGEMS_CACHE_DIR": "{folder}", "OMP_NUM_THREADS": "1"}
    answers = workers.run(f"{__name__}:compiler", providers, processes(), seconds, separate)
    return {answer.task: answer.died for answer in answers if answer.died}


def compiler() -> Callable[[list[str]], str | None]:
    """In a worker: what calls a provider once, and says why it cannot be called."""
    from flag_gems_overrides import environment

    environment.load()
    import torch
    from torch._inductor import config

    from flag_gems_overrides.perf import contenders, subjects

    # Which configuration of several is the fastest, the process that has the GPU to itself will find out.
    config.autotune_local_cache = False
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def call(task: list[str]) -> str | None:
        key, name = task
        case = parse(key)
        inputs = subjects.arguments(case, device)
        peers = [COMPILE] if name == COMPILE else []
        with contenders.field(case, peers) as (functions, absent), torch.no_grad(), _any_configuration():
            if name not in functions:
                return absent[name]["absent"]
            try:
                functions[name](*inputs)
                synchronize()
            except Exception as error:
                reason = first_line(error)
                try:
                    check_context(reason)
                except ContextLostError:
                    print(reason, file=sys.stderr, flush=True)
                    os._exit(1)
                return reason
        free(_KEPT_BYTES)
        return None

    return call


@contextlib.contextmanager
def tuner_budget() -> Iterator[None]:
    """Triton's tuners, which upstream's kernels have, take little time."""

    def briefly(do_bench: Callable, function: Callable, options: dict[str, Any]) -> Any:
        return do_bench(function, **{**options, "warmup": _TUNER_WARM_UP_MS, "rep": _TUNER_MS})

    with _benchmark(briefly):
        yield


@contextlib.contextmanager
def _any_configuration() -> Iterator[None]:
    """Triton's tuners call each configuration once and take any."""

    def once(do_bench: Callable, function: Callable, options: dict[str, Any]) -> Any:
        function()
        return [1.0] * len(options["quantiles"]) if "quantiles" in options else 1.0

    with _benchmark(once):
        yield


@contextlib.contextmanager
def _benchmark(replacement: Callable[[Callable, Callable, dict[str, Any]], Any]) -> Iterator[None]:
    import triton

    do_bench = triton.testing.do_bench
    triton.testing.do_bench = lambda function, **options: replacement(do_bench, function, options)
    try:
        yield
    finally:
        triton.testing.do_bench = do_bench


def synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def check_context(after: str) -> None:
    """Raise ContextLostError where this process can no longer use its GPU."""
    try:
        synchronize()
    except Exception as error:
        raise ContextLostError(f"the GPU cannot be used any more after {after}") from error


def free(kept_bytes: int) -> None:
    """Give memory back where the allocator keeps more than this."""
    import torch

    if torch.cuda.is_available() and torch.cuda.memory_reserved() > kept_bytes:
        torch.cuda.empty_cache()


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
