# SPDX-License-Identifier: Apache-2.0
"""What to look at while kernels run: their bounds, their traffic, what their loads leave undefined."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Literal


@dataclasses.dataclass
class Traffic:
    """Bytes of one argument, each counted as often as a lane that was not masked accessed it."""

    loaded: int = 0
    stored: int = 0
    updated: int = 0
    """By atomic operations."""
    distinct_read: int = 0
    """Bytes that were loaded or updated at least once."""
    distinct_written: int = 0
    """Bytes that were stored or updated at least once."""


@dataclasses.dataclass
class Launch:
    """One launch of a kernel, as :func:`observe` saw it."""

    kernel: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    options: dict[str, Any]
    """Constexpr parameters and launch options by name."""
    arguments: dict[str, Traffic]
    """By the name of the parameter, every tensor among the arguments. An address that several tensors hold counts for
    the first of them."""
    outside: Traffic
    """What lay in none of them; only without :func:`check_bounds`."""

    @property
    def loaded(self) -> int:
        """Bytes loaded by all arguments together."""
        return sum(traffic.loaded for traffic in self.arguments.values())

    @property
    def stored(self) -> int:
        """Bytes stored to all arguments together."""
        return sum(traffic.stored for traffic in self.arguments.values())

    @property
    def updated(self) -> int:
        """Bytes updated atomically in all arguments together."""
        return sum(traffic.updated for traffic in self.arguments.values())


@dataclasses.dataclass
class _Settings:
    check: Literal["storage", "element"] | None = None
    observers: list[list[Launch]] = dataclasses.field(default_factory=list)
    undefined: bool = False


settings = _Settings()


@contextlib.contextmanager
def check_bounds(*, strict: bool = False) -> Iterator[None]:
    """Inside the block an active lane outside the arguments of its launch raises an :class:`OutOfBoundsError`.

    A lane may address any byte of the storage of a tensor that was passed; with ``strict``, only elements of the tensor
    itself, so that a kernel is caught that leaves a view but not what the view was taken from.
    """
    with _setting(check="element" if strict else "storage"):
        yield


@contextlib.contextmanager
def undefined_lanes() -> Iterator[None]:
    """Inside the block the lanes that a load masks off, without saying what they hold (``other``), hold NaN in a
    floating-point block and -1 in one of integers: a GPU leaves them undefined, and the stock interpreter has zeros."""
    with _setting(undefined=True):
        yield


@contextlib.contextmanager
def observe() -> Iterator[list[Launch]]:
    """Collects the launches inside the block, each with the bytes that it moved."""
    launches: list[Launch] = []
    with _setting(observers=[*settings.observers, launches]):
        yield launches


@contextlib.contextmanager
def _setting(**values: Any) -> Iterator[None]:
    before = {name: getattr(settings, name) for name in values}
    vars(settings).update(values)
    try:
        yield
    finally:
        vars(settings).update(before)
