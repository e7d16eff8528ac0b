# SPDX-License-Identifier: Apache-2.0
"""The same tests run on a GPU and, where there is none, in Triton's interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import pynvml


def _gpus() -> list[str]:
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if gpu]
    try:
        pynvml.nvmlInit()
        return [str(gpu) for gpu in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


# Each xdist worker takes a GPU of its own, before anything imports torch; the process that starts them takes none away.
worker, gpus = os.environ.get("PYTEST_XDIST_WORKER"), _gpus()
if worker and gpus:
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker.removeprefix("gw")) % len(gpus)]

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

# A kernel's first launch compiles it, so there is no deadline. "long" is for a night: HYPOTHESIS_PROFILE=long.
_shared = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("quick", max_examples=30, derandomize=True, database=None, **_shared)
hypothesis.settings.register_profile("long", max_examples=3000, **_shared)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

PATCHED = os.environ.get("FLAGGEMS_PATCHED")
if PATCHED:
    sys.path.insert(0, PATCHED)

if not torch.cuda.is_available():
    from flag_gems_overrides import interpreter

    interpreter.activate()

if PATCHED:
    import patched

    patched.stand_in(PATCHED)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if DEVICE == "cpu" and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def device() -> str:
    """Where the test's tensors live: "cuda", or "cpu" under the interpreter."""
    return DEVICE


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """In the interpreter an active lane outside the tensors of its launch is an error."""
    with contextlib.nullcontext() if DEVICE == "cuda" else interpreter.check_bounds(strict=True):
        yield


@pytest.fixture(autouse=True)
def memory_given_back() -> Iterator[None]:
    """What a large test leaves in its process's cache is missing to the other processes on the GPU."""
    yield
    if DEVICE == "cuda" and torch.cuda.memory_reserved() > 2**30:
        torch.cuda.empty_cache()


@pytest.fixture
def overridden():
    """A context manager in which PyTorch dispatches to the overrides: all of them, and nothing else of flag_gems.

    With a patched flag_gems, to its own functions of these names, and no override is installed.
    """
    import flag_gems

    import flag_gems_overrides
    from flag_gems_overrides import upstream

    @contextlib.contextmanager
    def overridden():
        names = [override.name for override in flag_gems_overrides.catalog()]
        ours = contextlib.nullcontext() if PATCHED else flag_gems_overrides.use_overrides()
        with ours, upstream.use_gems(flag_gems, names):
            yield

    return overridden
