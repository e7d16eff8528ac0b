# SPDX-License-Identifier: Apache-2.0
"""What differs between versions of Triton, for the kernels and their launches. Asked by feature where there is one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import triton
from packaging.version import Version
from triton import knobs
from triton.compiler import CompiledKernel

# Triton's coalescing lays threads along the last dimension, then along the first (3.6) or the one before the last
# (from 3.7 on). With the two exchanged, 64 x 512 x 512 float32 spills 1200 bytes. Only compiling a kernel shows which
# of the two this Triton does, so the version decides.
LANES_BEFORE_DEPTH = Version(triton.__version__) < Version("3.7")

# The kernels were measured, and judged accurate, with multiplications and additions fused, Triton's default so far.
# 3.9 warns where nobody says so, and 3.10 is to fuse no longer.
COMPILE_OPTIONS = {"enable_fp_fusion": True}

_GRID = ("self", "gridX", "gridY", "gridZ", "stream", "function")
_HOOKS = ("kernel_metadata", "launch_metadata", "launch_enter_hook", "launch_exit_hook")


def launcher(kernel: CompiledKernel) -> tuple[Callable[..., None], tuple] | None:
    """What launches ``kernel``, and the arguments it takes between the stream and the kernel's own.

    None if this Triton's launchers are called in a way that is not known here: then only Triton can launch it.
    """
    run: Any = kernel.run
    parameters = _parameters(run.__class__)
    if parameters[:6] != _GRID or parameters[6:] not in (("args",), (*_HOOKS, "args")):
        return None
    if not hasattr(knobs.runtime.launch_enter_hook, "calls"):
        return None
    hooks = (kernel.packed_metadata, None, None, None)
    # Where the launcher has a C function of its own for each signature, that function can be called directly. The
    # method around it spends 0.8 us to find that no scratch is needed (H200, Triton 3.6: 4.4 us and 3.7 us).
    if (
        parameters[6:] == ("args",)
        and hasattr(run, "launch_pdl")
        and not (run.global_scratch_size or run.profile_scratch_size)
    ):
        return run.launch, (kernel.function, run.launch_cooperative_grid, run.launch_pdl, None, None, *hooks)
    return run, (kernel.function, *hooks)


@functools.cache
def _parameters(launcher: Any) -> tuple[str, ...]:
    """The names of what a launcher is called with; the last is all that the kernel takes."""
    return tuple(inspect.signature(launcher.__call__).parameters)
