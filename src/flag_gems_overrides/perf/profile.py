# SPDX-License-Identifier: Apache-2.0
"""A look inside one case: profiler table, trace, stacks, and ranges for NVIDIA's tools."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from flag_gems_overrides.ops.launch.prepared import Launch
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.cases import Case

CALLS = 20


def trace(case: Case, folder: Path) -> str:
    """Profile some calls of the override on the current GPU.

    Writes ``trace.json`` (for chrome://tracing or Perfetto) and ``stacks.txt`` (for flame graphs) into ``folder``.
    Every call and every launch is in a range of its own, for torch.profiler and as NVTX for Nsight; the first call,
    which plans and compiles, is in a range named "plan".

    Returns:
        The profiler's table, by time on the device.
    """
    override = op_inputs.override(case.op)
    arguments = op_inputs.arguments(case, "cuda")
    folder.mkdir(parents=True, exist_ok=True)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.no_grad(), _launches_in_ranges():
        with _range(f"plan {case.op}"):
            override(*arguments)
        torch.cuda.synchronize()
        # Without "verbose" the profiler collects stacks and does not export them.
        stacks = torch._C._profiler._ExperimentalConfig(verbose=True)
        with profile(activities=activities, with_stack=True, experimental_config=stacks, acc_events=True) as profiler:
            for _ in range(CALLS):
                with _range(case.op):
                    override(*arguments)
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    profiler.export_stacks(str(folder / "stacks.txt"), "self_cpu_time_total")
    return str(profiler.key_averages().table(sort_by="self_device_time_total", row_limit=15))


@contextlib.contextmanager
def _range(name: str) -> Iterator[None]:
    with torch.cuda.nvtx.range(name), record_function(name):
        yield


@contextlib.contextmanager
def _launches_in_ranges() -> Iterator[None]:
    plain: Callable[..., Any] = Launch.__call__

    def in_a_range(self: Launch, *tensors: torch.Tensor | None) -> None:
        with _range(f"launch {self._entry.fn.__name__}"):
            plain(self, *tensors)

    Launch.__call__ = in_a_range  # type: ignore[method-assign]
    try:
        yield
    finally:
        Launch.__call__ = plain  # type: ignore[method-assign]
