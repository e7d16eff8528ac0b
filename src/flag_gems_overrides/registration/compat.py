# SPDX-License-Identifier: Apache-2.0
"""Triton versions that upstream's ``LibEntry`` does not know.

From its second launch on, ``LibEntry`` passes a kernel's constexprs only if Triton's version lies in a range
that it tests for: 3.3 to 3.5 in flag_gems 4.2.0, 3.3 to 3.6 in 5.0.2. On a newer Triton, which wants them
just the same, the arguments shift: a wrong result or a crash (FlagGems issues 3353 and 4626). The remedy lets
``LibEntry`` see the newest version in its range. All of this needs flag_gems to be importable.
"""

from __future__ import annotations

import importlib
import inspect
import re
import threading
from types import ModuleType

_RANGE = re.compile(r"major_version == 3 and 3 <= minor_version <= (\d+)")
_lock = threading.Lock()
_applied = 0
_as_found: tuple[int, int] | None = None


def apply() -> bool:
    """Make ``LibEntry`` right on a Triton newer than it knows. :func:`undo` must follow as often as this was
    called.

    Returns whether the running Triton needs it.
    """
    global _applied, _as_found
    with _lock:
        if _applied == 0:
            version, newest = running(), newest_known()
            if newest is not None and version > newest:
                _as_found = version
                _show(newest)
        _applied += 1
        return _as_found is not None


def undo() -> None:
    """Take back one :func:`apply`; the last one restores what ``LibEntry`` found by itself."""
    global _applied, _as_found
    with _lock:
        if _applied == 0:
            raise RuntimeError("compat.undo() without compat.apply()")
        _applied -= 1
        if _applied == 0 and _as_found is not None:
            _show(_as_found)
            _as_found = None


def newest_known() -> tuple[int, int] | None:
    """The newest Triton version in the range that ``LibEntry`` tests for; None if it tests for none."""
    minors = _RANGE.findall(inspect.getsource(_libentry()))
    return (3, min(map(int, minors))) if minors else None


def running() -> tuple[int, int]:
    """The Triton version that ``LibEntry`` found when flag_gems was imported."""
    libentry = _libentry()
    return _as_found or (libentry.major_version, libentry.minor_version)


def _show(version: tuple[int, int]) -> None:
    libentry = _libentry()
    vars(libentry).update(major_version=version[0], minor_version=version[1])


def _libentry() -> ModuleType:
    # Not `from flag_gems.utils import libentry`: that is the decorator of the same name.
    return importlib.import_module("flag_gems.utils.libentry")
