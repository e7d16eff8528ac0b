# SPDX-License-Identifier: Apache-2.0
"""Kernels that were taken out of the dispatcher, kept for calls of other threads that have found them already.

PyTorch's dispatcher holds no reference for a call. A Python kernel waits for the GIL first, so that another thread may
take it out, and free it, before it begins: ``interpreter == pyinterpreter_ INTERNAL ASSERT FAILED`` or a crash, on
torch 2.13 to 2.15 (docs/limits.md has a reproduction).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable

import torch

# Much longer than a thread waits for the GIL; short enough that switching in a loop does not fill the memory.
SECONDS = 10.0

_lock = threading.RLock()
_kept: deque[tuple[float, object]] = deque()


def kernel(overload: str, dispatch_key: str) -> object:
    """The kernel that calls reach now. It lives as long as the object that is returned."""
    return torch.library.get_kernel(f"aten::{overload}", dispatch_key)


def keep(kernels: Iterable[object]) -> None:
    """Keep ``kernels``, which are taken out now, for the calls that are under way."""
    now = time.monotonic()
    with _lock:
        while _kept and _kept[0][0] < now - SECONDS:
            _kept.popleft()
        _kept.extend((now, each) for each in kernels)
