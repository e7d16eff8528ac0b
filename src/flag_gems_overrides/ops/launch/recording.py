# SPDX-License-Identifier: Apache-2.0
"""What a call allocates and launches, recorded so that it can be repeated without Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# By thread, only while one records. What can be noted looks first whether this is empty: 15 ns of a call.
recordings: dict[int, list[tuple[Any, Any]]] = {}


def note(maker: Any, made: Any) -> None:
    """An allocation with its tensor, counters with theirs, or a launch with the tensors that it takes."""
    events = recordings.get(threading.get_ident())
    if events is not None:
        events.append((maker, made))


@contextmanager
def recording() -> Iterator[list[tuple[Any, Any]]]:
    """The events of this thread inside the block, in order."""
    thread = threading.get_ident()
    outer = recordings.get(thread)
    events = recordings[thread] = []
    try:
        yield events
    finally:
        if outer is None:
            del recordings[thread]
        else:
            recordings[thread] = outer
