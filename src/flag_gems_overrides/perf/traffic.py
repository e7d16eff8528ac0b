# SPDX-License-Identifier: Apache-2.0
"""What a call does to memory, counted in Triton's interpreter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from flag_gems_overrides import interpreter
from flag_gems_overrides.ops.launch import workspace
from flag_gems_overrides.perf.host_work import HostWork


class Traffic(NamedTuple):
    """Of one call: its Triton kernels and the aten operators around them."""

    loaded: int
    """Bytes, each as often as a lane that was not masked loaded it: what L2 has to deliver, at least."""
    stored: int
    atomic: int
    launches: int
    allocations: int
    allocated: int


def count(call: Callable[[], Any]) -> tuple[Any, Traffic]:
    """The result of ``call`` and its traffic. Needs the interpreter to be active.

    Raises:
        interpreter.OutOfBoundsError: a kernel left its arguments; nothing was written there.
    """
    with _kept_counters(), interpreter.check_bounds(), interpreter.observe() as launches, HostWork() as host:
        result = call()
    traffic = Traffic(
        host.loaded + sum(launch.loaded for launch in launches),
        host.stored + sum(launch.stored for launch in launches),
        sum(launch.updated for launch in launches),
        host.launches + len(launches),
        host.allocations,
        host.allocated,
    )
    return result, traffic


@contextlib.contextmanager
def _kept_counters() -> Iterator[None]:
    """Counters are not counted: on a GPU they are kept from call to call, and cost nothing but the first time."""
    counters = workspace.counters

    def uncounted(like: torch.Tensor, count: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        with _disable_current_modes():
            return counters(like, count, dtype)

    workspace.counters = uncounted
    try:
        yield
    finally:
        workspace.counters = counters
