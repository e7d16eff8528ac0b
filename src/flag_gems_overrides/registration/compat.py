# SPDX-License-Identifier: Apache-2.0
"""What flag_gems needs on Triton versions that it does not know.

``LibEntry`` passes a kernel's constexprs, from its second launch on, only if Triton's version lies in a range that it
tests for: 3.3 to 3.5 in flag_gems 4.2.0, 3.3 to 3.6 in 5.0.2 and 5.3.4. A newer Triton wants them just the same: the
arguments shift, which is a wrong result or a crash (FlagGems issues 3353 and 4626). Here ``LibEntry`` is shown the
newest version in its range.

The pointwise kernels that flag_gems generates read their outputs' element type from block pointers. Triton 3.8's block
pointers do not have it, and 3.9 has no block pointers. Here flag_gems generates its other kernels, without them.

All of this needs flag_gems to be importable.
"""

from __future__ import annotations

import importlib
import inspect
import re
import threading
from contextlib import ExitStack
from types import ModuleType
from typing import Any

_RANGE = re.compile(r"major_version == 3 and 3 <= minor_version <= (\d+)")
_lock = threading.Lock()
_applied = 0
_as_found = ExitStack()
_real: tuple[int, int] | None = None


def apply() -> None:
    """Make flag_gems right on a Triton newer than it knows. :func:`undo` must follow as often as this was called."""
    global _applied, _real
    with _lock:
        if _applied == 0:
            version, newest = running(), newest_known()
            if newest is not None and version > newest:
                _real = version
                _show(newest)
                _as_found.callback(_show, version)
            config = _pointwise_config()
            if config.prefer_block_pointer and not _has_typed_block_pointers():
                config.prefer_block_pointer = False
                _as_found.callback(setattr, config, "prefer_block_pointer", True)
        _applied += 1


def undo() -> None:
    """Take back one :func:`apply`; the last one restores what flag_gems found by itself."""
    global _applied, _real
    with _lock:
        if _applied == 0:
            raise RuntimeError("compat.undo() without compat.apply()")
        _applied -= 1
        if _applied == 0:
            _as_found.close()
            _real = None


def repairs() -> list[str]:
    """What :func:`apply` repairs here, a sentence each."""
    found = []
    newest = newest_known()
    if newest is not None and running() > newest:
        found.append(
            "its LibEntry drops constexprs on Triton {}.{}; install() lets it see {}.{}".format(*running(), *newest)
        )
    if not _has_typed_block_pointers():
        found.append(
            "its pointwise kernels use block pointers as this Triton no longer has them; install() makes it generate "
            "others. Its attention, group_gemm and FLA functions are written with block pointers, and are not repaired"
        )
    return found


def newest_known() -> tuple[int, int] | None:
    """The newest Triton version in the range that ``LibEntry`` tests for; None if it tests for none."""
    minors = _RANGE.findall(inspect.getsource(_libentry()))
    return (3, min(map(int, minors))) if minors else None


def running() -> tuple[int, int]:
    """The Triton version that ``LibEntry`` found when flag_gems was imported."""
    libentry = _libentry()
    return _real or (libentry.major_version, libentry.minor_version)


def _has_typed_block_pointers() -> bool:
    """Whether a block pointer is a pointer to a type, as it was while the compiler knew such pointers."""
    # Imported here: a program that imports this module may still choose between Triton's compiler and its interpreter.
    return hasattr(importlib.import_module("triton.language.semantic").TritonSemantic, "make_block_ptr")


def _pointwise_config() -> Any:
    return importlib.import_module("flag_gems.utils.codegen_config_utils").get_codegen_config()


def _show(version: tuple[int, int]) -> None:
    libentry = _libentry()
    vars(libentry).update(major_version=version[0], minor_version=version[1])


def _libentry() -> ModuleType:
    # Not `from flag_gems.utils import libentry`: that is the decorator of the same name.
    return importlib.import_module("flag_gems.utils.libentry")
