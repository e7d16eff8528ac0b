# SPDX-License-Identifier: Apache-2.0
"""The same tests run on a GPU and, where there is none, in Triton's interpreter."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import backend
import hypothesis
import pytest

# A kernel's first launch compiles it, so there is no deadline. "long" is for a night: HYPOTHESIS_PROFILE=long.
_shared = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("quick", max_examples=30, derandomize=True, database=None, **_shared)
hypothesis.settings.register_profile("long", max_examples=3000, **_shared)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Not in the process that only hands out tests: its workers need not wait for torch and flag_gems there too."""
    if backend.WORKER or session.config.getoption("dist", "no") == "no":
        backend.prepare()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not backend.on_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        if item.get_closest_marker("no_gpu") and backend.on_gpu():
            item.add_marker(pytest.mark.skip(reason="runs where there is no GPU"))


@pytest.fixture
def device() -> str:
    """Where the test's tensors live: "cuda", or "cpu" under the interpreter."""
    return "cuda" if backend.on_gpu() else "cpu"


@pytest.fixture(autouse=True)
def seeded() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """In the interpreter an active lane outside the tensors of its launch is an error."""
    from flag_gems_overrides import interpreter

    with contextlib.nullcontext() if backend.on_gpu() else interpreter.check_bounds(strict=True):
        yield


@pytest.fixture(autouse=True)
def memory_given_back() -> Iterator[None]:
    """What a large test leaves in its process's cache is missing to the other processes on the GPU."""
    import torch

    yield
    if backend.on_gpu() and torch.cuda.memory_reserved() > 2**30:
        torch.cuda.empty_cache()


@pytest.fixture
def overridden():
    """A context manager in which PyTorch dispatches to the overrides: all of them, and nothing else of flag_gems.

    With a patched flag_gems, to its own functions of these names, and no override is installed.
    """
    import flag_gems

    import flag_gems_overrides
    from flag_gems_overrides.operators import OPERATORS
    from flag_gems_overrides.registration import upstream

    @contextlib.contextmanager
    def overridden():
        ours = contextlib.nullcontext() if backend.PATCHED else flag_gems_overrides.use_overrides()
        with ours, upstream.use_gems(flag_gems, OPERATORS):
            yield

    return overridden
