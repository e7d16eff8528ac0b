# SPDX-License-Identifier: Apache-2.0
"""What the tests run on: a GPU or, where there is none, Triton's interpreter."""

from __future__ import annotations

import functools
import os
import sys

import pynvml

# With the patches in place of the overrides: where they have been applied to flag_gems.
PATCHED = os.environ.get("FLAGGEMS_PATCHED")
# One of several processes that share the tests.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")


@functools.cache
def prepare() -> None:
    """Once, before anything imports torch or flag_gems."""
    gpus = _gpus()
    if WORKER and gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(WORKER.removeprefix("gw")) % len(gpus)]
    if PATCHED:
        sys.path.insert(0, PATCHED)
    if not on_gpu():
        from flag_gems_overrides import interpreter

        interpreter.activate()
    if PATCHED:
        import patched

        patched.stand_in(PATCHED)


@functools.cache
def on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _gpus() -> list[str]:
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if gpu]
    try:
        pynvml.nvmlInit()
        return [str(gpu) for gpu in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
