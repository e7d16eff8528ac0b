# SPDX-License-Identifier: Apache-2.0
"""Every accuracy test runs with poison: an element that no kernel wrote, or that a load left undefined, shows as NaN
(integers: -1)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import backend
import pytest

# Operators that differ from others in what they combine, not in how: one case of so many is enough, others for each.
THIN = 6
THINNED = ("sum", "mean", "any", "all", "count_nonzero", "vector_norm")


def operator(item: pytest.Item) -> str:
    """The operator's name, as in a test's id, which may add an order to it; empty if it is no operator's."""
    op = getattr(getattr(item, "callspec", None), "params", {}).get("op")
    return getattr(op, "name", "").partition("-")[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def is_kept(item: pytest.Item) -> bool:
        return not operator(item).startswith(THINNED) or zlib.crc32(item.nodeid.encode()) % THIN == 0

    kept = [item for item in items if is_kept(item)]
    if backend.PATCHED:
        kept = _of_patches(kept)
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def _of_patches(items: list[pytest.Item]) -> list[pytest.Item]:
    """With fixes alone the tests that call what they changed; where an answer is known to differ, it must."""
    import patched

    if not patched.fixes_alone(backend.PATCHED):
        return items
    for item in items:
        reason = patched.difference(item.nodeid)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=not backend.on_gpu()))
    return [item for item in items if patched.concerned(item.module, operator(item))]


@pytest.fixture(autouse=True)
def counters_left_zero(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a GPU the next launch counts with what this one leaves behind."""
    from flag_gems_overrides.ops.launch import workspace

    given = []

    def counters(*args):
        given.append(_workspace_counters(*args))
        return given[-1]

    _workspace_counters = workspace.counters
    monkeypatch.setattr(workspace, "counters", counters)
    yield
    for tensor in given:
        assert not tensor.any(), "counters are not left zero"


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from flag_gems_overrides import interpreter
    from flag_gems_overrides.perf.poison import poisoned

    with poisoned(), interpreter.undefined_lanes():
        yield
        # What a test put in an allocator's place goes first: undone later, it would bring the poison back.
        monkeypatch.undo()


@pytest.fixture
def device_with(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that makes the device another, by the fields of its limits."""
    from kernels import forget_launches

    from flag_gems_overrides.ops.launch import devices

    def device_with(**changes: int) -> None:
        limits = devices.limits(0)._replace(**changes)
        monkeypatch.setattr(devices, "limits", lambda index: limits)
        forget_launches()

    yield device_with
    forget_launches()
