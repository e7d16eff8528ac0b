# SPDX-License-Identifier: Apache-2.0
"""flag_gems in Triton's interpreter as on a vendor that is not NVIDIA, to see whether its files need one.

Triton's NVIDIA backend and its CUDA functions are gone and cannot be imported, the device has no L2 size to tell, and
flag_gems takes this vendor for its own by the switch that it has, ``GEMS_VENDOR``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

# It has no operators of its own, so that all of flag_gems/ops is what it runs.
VENDOR = "amd"

_ABSENT = ("triton.backends.nvidia", "triton.language.extra.cuda")


class _Absent:
    """A finder that finds nothing, and lets no other find it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _absent(name):
            raise ModuleNotFoundError(f"No module named {name!r}, as on other vendors", name=name)
        return None


def _absent(name: str) -> bool:
    return name.startswith(tuple(f"{module}." for module in _ABSENT)) or name in _ABSENT


def activate() -> None:
    """:func:`flag_gems_overrides.interpreter.activate` with this vendor; before anything imports flag_gems."""
    os.environ["TRITON_INTERPRET"] = "1"
    import triton

    from flag_gems_overrides import interpreter
    from flag_gems_overrides.interpreter import device, libdevice

    libdevice.provide()  # takes the names of CUDA's functions for its own, while they are there
    triton.backends.backends.pop("nvidia", None)
    for name in [name for name in sys.modules if _absent(name)]:
        del sys.modules[name]
    for name in _ABSENT:
        package, _, attribute = name.rpartition(".")
        vars(importlib.import_module(package)).pop(attribute, None)
    sys.meta_path.insert(0, _Absent())
    device.PROPERTIES = device.Other()
    interpreter.activate(vendor=VENDOR)
