# SPDX-License-Identifier: Apache-2.0
"""Activates the interpreter in several ways, each in a process of its own, and prints what came of it as JSON.

All are forks of one process that has imported torch, which takes most of the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from types import ModuleType


def whole() -> object:
    from flag_gems_overrides import interpreter

    imported = [name for name in ("triton", "flag_gems") if name in sys.modules]
    before = dict(os.environ)
    cpu = sys.modules["torch"].cpu
    interpreter.activate()
    interpreter.activate()
    return {
        "imported by the package": imported,
        "environment": sorted(os.environ.items() - before.items()),
        "torch.cpu is back": sys.modules["torch"].cpu is cpu,
        "device": sys.modules["flag_gems"].device,
        "vendors": _vendors(),
        "softmax": _softmax_of_columns(),
        "home": _home(),
    }


def after_flag_gems() -> None:
    sys.modules["flag_gems"] = ModuleType("flag_gems")
    _activate()


def after_compiling_triton() -> None:
    import triton  # noqa: F401

    _activate()


def without_the_environment() -> object:
    """But for TRITON_INTERPRET, which may also have been there before anything else."""
    os.environ["TRITON_INTERPRET"] = "1"
    import triton  # noqa: F401

    from flag_gems_overrides.interpreter import vendor

    vendor._environment = lambda **values: contextlib.nullcontext()
    _activate()
    return {"vendors": _vendors(), "home": _home(), "softmax": _softmax_of_columns()}


def without_the_vendors_module() -> None:
    _interpret()
    from flag_gems_overrides.interpreter import vendor

    vendor._vendor = lambda name, extra_name: None
    _activate()


def without_the_device() -> None:
    _interpret()
    from flag_gems_overrides.interpreter import vendor

    vendor.DeviceModule = lambda cpu: cpu
    _activate()


def without_libdevice() -> None:
    _interpret()
    from flag_gems_overrides.interpreter import libdevice

    libdevice.provide = lambda: None
    _activate()


def without_jit_functions() -> None:
    _interpret()
    from triton.runtime.interpreter import InterpretedFunction

    from flag_gems_overrides.interpreter import language

    language.InterpretedKernel = InterpretedFunction
    _activate()


def _interpret() -> None:
    """So that the modules that import Triton can be imported before activate() does it."""
    os.environ["TRITON_INTERPRET"] = "1"


def _activate() -> None:
    from flag_gems_overrides import interpreter

    interpreter.activate()


def _vendors() -> list[str]:
    """The back ends of flag_gems that have been imported."""
    from flag_gems.runtime.common import vendors

    return sorted(name for name in vendors.get_all_vendors() if f"_{name}" in sys.modules)


def _home() -> list[str]:
    return sorted(os.listdir(os.environ["HOME"]))


def _softmax_of_columns() -> list[list[float]]:
    import flag_gems
    import torch

    return flag_gems.softmax(torch.tensor([[1.0, 2.0], [1.0, 2.0]]), 0).tolist()


def _run(case: Callable[[], object], home: str) -> object:
    """What the case returns, or its error, from a process of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.environ["HOME"] = home
        os.makedirs(home)
        try:
            outcome = case()
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        with os.fdopen(write, "w") as pipe:
            json.dump(outcome, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        outcome = json.load(pipe)
    os.waitpid(pid, 0)
    return outcome


CASES = [
    whole,
    after_flag_gems,
    after_compiling_triton,
    without_the_environment,
    without_the_vendors_module,
    without_the_device,
    without_libdevice,
    without_jit_functions,
]

if __name__ == "__main__":
    (folder,) = sys.argv[1:]
    from flag_gems_overrides import interpreter  # noqa: F401

    assert not {"torch", "triton", "flag_gems"} & set(sys.modules)
    import torch  # noqa: F401

    outcomes = {case.__name__: _run(case, os.path.join(folder, case.__name__)) for case in CASES}
    json.dump(outcomes, sys.__stdout__)
