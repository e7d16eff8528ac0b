# SPDX-License-Identifier: Apache-2.0
"""Compiles what will be measured, on many cores, before one process times it.

What the workers leave behind are Triton's and Inductor's caches on disk.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf import workers
from flag_gems_overrides.perf.cases import OVERRIDE, UPSTREAM, Case, parse
from flag_gems_overrides.perf.problems import Problem

if TYPE_CHECKING:
    from flag_gems_overrides.perf import op_inputs

COMPILE = "compile"
# Milliseconds that upstream's tuner warms up and measures for each configuration. Its own are 25 and 100, 3 s for each
# new shape of a layer_norm gradient.
_TUNER_WARM_UP_MS, _TUNER_MS = 1, 3
# Memory that a worker keeps between tasks.
_KEPT_BYTES = 1 << 30
# A launch found no memory: of a GPU with thirty other workers, not of the one that measures.
_CROWDED = "CUDA error: out of memory"

Timings = dict[str, list[float]]
"""What a tuner of upstream's measured, by kernel and configuration."""


class Prepared(NamedTuple):
    """What the workers found out about a problem."""

    died: dict[str, str]
    """Why a provider ended its process, by the name of the provider."""
    timings: Timings


class ContextLostError(UserError):
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
    os.environ["FLAGGEMS_DB_URL"] = "sqlite://"


def compiled(problems: Sequence[Problem], seconds: float) -> Iterator[tuple[Problem, Prepared]]:
    """Each problem after every one of its providers has been called once; last those for which there was no time.

    On the only GPU of its kind the first comes after all are compiled, or half of the time is over: what workers
    launch would delay what is timed. Where there is another, workers use that, and each comes when it is compiled.

    Raises:
        WorkerError: no process can be started.
    """
    beside = gpu_beside()
    if beside is None:
        yield from list(_compiled(problems, processes(), seconds / 2, {}))
    else:
        # One core is left to who measures.
        yield from _compiled(problems, processes() - 1, seconds, {"CUDA_VISIBLE_DEVICES": beside})


def _compiled(
    problems: Sequence[Problem], count: int, seconds: float, environment: Mapping[str, str]
) -> Iterator[tuple[Problem, Prepared]]:
    """Problems as workers complete them, and after so many seconds the others."""
    by_key = {problem.case.key: problem for problem in problems}
    names = {key: {OVERRIDE, UPSTREAM, *([COMPILE] if problem.compiled else [])} for key, problem in by_key.items()}
    found = {key: Prepared({}, {}) for key in by_key}
    tasks = [(key, name) for key, group in names.items() for name in sorted(group)]
    for answer in workers.run(f"{__name__}:compiler", tasks, count, seconds, {"OMP_NUM_THREADS": "1", **environment}):
        key, name = answer.task
        if answer.died:
            if _CROWDED not in answer.died:
                found[key].died[name] = answer.died
        elif name == UPSTREAM:
            found[key].timings.update(answer.value)
        names[key].remove(name)
        if not names[key]:
            yield by_key[key], found.pop(key)
    for key, prepared in found.items():
        yield by_key[key], prepared


def gpu_beside() -> str | None:
    """Another GPU like the current one, as CUDA_VISIBLE_DEVICES has it."""
    import torch

    count, current = torch.cuda.device_count(), torch.cuda.current_device()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(index) for index in range(count)]
    kinds = [torch.cuda.get_device_name(index) for index in range(count)]
    return next((names[i] for i in range(count) if i != current and kinds[i] == kinds[current]), None)


def compiler() -> Callable[[list[str]], Timings]:
    """In a worker: what calls a provider once, and returns what tuners measured in it."""
    from flag_gems_overrides import environment

    environment.load()
    import torch
    from torch._inductor import config

    from flag_gems_overrides.perf import providers

    # Which configuration of several is the fastest, the process that has the GPU to itself will find out.
    config.autotune_local_cache = False
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def call(task: list[str]) -> Timings:
        key, name = task
        case = parse(key)
        timings: Timings = {}
        inputs = inputs_or_none(case, device)
        if inputs is None:
            return timings
        peers = [COMPILE] if name == COMPILE else []
        with providers.for_case(case, peers) as (functions, _), torch.no_grad(), tuning(timings):
            if name in functions:
                call_or_end(functions[name], inputs)
        free(_KEPT_BYTES)
        return timings

    return call


def inputs_or_none(case: Case, device: str) -> op_inputs.Arguments | None:
    """None where the workers' other cases fill the GPU: what none of them compiled is compiled when it is timed."""
    import torch

    from flag_gems_overrides.perf import op_inputs

    try:
        return op_inputs.arguments(case, device)
    except torch.OutOfMemoryError:
        free(0)
        return None


def call_or_end(function: Callable, arguments: Sequence[Any]) -> None:
    """Call it; end the process if it can no longer use its GPU then. Other failures will be seen when it is timed."""
    try:
        function(*arguments)
        synchronize()
    except Exception as error:
        reason = first_line(error)
        try:
            check_context(reason)
        except ContextLostError:
            print(reason, file=sys.stderr, flush=True)
            os._exit(1)


@contextlib.contextmanager
def tuning(timings: Timings) -> Iterator[None]:
    """Triton's tuners, which upstream's kernels have, take what is known of a configuration, or a few milliseconds to
    measure it; then that is known.

    The shortest of the times counts: others work on the GPU too.
    """
    from triton import testing
    from triton.runtime.autotuner import Autotuner

    do_bench, bench = testing.do_bench, Autotuner._bench

    def briefly(function: Callable, **options: Any) -> Any:
        if "quantiles" in options:
            options["quantiles"] = (0.0, *options["quantiles"][1:])
        return do_bench(function, **{**options, "warmup": _TUNER_WARM_UP_MS, "rep": _TUNER_MS})

    def known_or_measured(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        name = f"{self.base_fn.__name__} {config}"
        if name not in timings:
            timings[name] = list(bench(self, *args, config=config, **meta))
        return timings[name]

    testing.do_bench, Autotuner._bench = briefly, known_or_measured
    try:
        yield
    finally:
        testing.do_bench, Autotuner._bench = do_bench, bench


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
