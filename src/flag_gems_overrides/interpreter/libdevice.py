# SPDX-License-Identifier: Apache-2.0
"""CUDA's libdevice in numpy: the real one is linked bitcode, which the interpreter cannot call."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import triton.language as tl

from flag_gems_overrides.interpreter.dtypes import array_type
from flag_gems_overrides.interpreter.triton_internals import TensorHandle

EXTRA_NAME = "flag_gems_overrides_interpreter"

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _divide_towards_zero(x: Any, y: Any) -> Any:
    quotient = np.divide(x, y)
    exact = np.divide(x, y, dtype=np.longdouble)
    return np.where(np.abs(quotient) > np.abs(exact), np.nextafter(quotient, np.zeros_like(quotient)), quotient)


_FLOATS: dict[str, Callable[..., Any]] = {
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "div_rn": np.divide,
    "div_rz": _divide_towards_zero,
    "erf": _erf,
    "exp": np.exp,
    "exp2": np.exp2,
    "fast_erf": _erf,
    "fast_tanh": np.tanh,
    "fmod": np.fmod,
    "log": np.log,
    "pow": np.power,
    "rint": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
_PREDICATES: dict[str, Callable[..., Any]] = {
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
}


def provide() -> None:
    """flag_gems imports ``triton.language.extra.<name of the vendor>.libdevice``."""
    if f"triton.language.extra.{EXTRA_NAME}" in sys.modules:
        return
    from triton.language.extra.cuda import libdevice as of_cuda

    names = frozenset(name for name in dir(of_cuda) if not name.startswith("_"))
    libdevice = ModuleType(f"triton.language.extra.{EXTRA_NAME}.libdevice")
    vars(libdevice).update({name: _elementwise(function) for name, function in _FLOATS.items()})
    vars(libdevice).update({name: _elementwise(function, tl.int1) for name, function in _PREDICATES.items()})
    vars(libdevice)["__getattr__"] = partial(_not_here, names)
    package: Any = ModuleType(f"triton.language.extra.{EXTRA_NAME}")
    package.__path__ = []
    package.libdevice = libdevice
    sys.modules[package.__name__], sys.modules[libdevice.__name__] = package, libdevice


def _not_here(names: frozenset[str], name: str) -> Callable[..., Any]:
    """CUDA's functions of which there is none in numpy's clothes: flag_gems names them while it is imported."""
    if name not in names:
        raise AttributeError(f"CUDA's libdevice has no {name!r}", name=name)

    def call(*operands: Any) -> Any:
        raise NotImplementedError(f"libdevice.{name}: the interpreter has no such function")

    call.__name__ = name
    return call


def _elementwise(function: Callable[..., Any], result: Any = None) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        first = next(x for x in operands if isinstance(x, tl.tensor))
        dtype = tl.float32 if first.dtype in (tl.float16, tl.bfloat16) else first.dtype
        data = function(*(x.to(dtype).handle.data if isinstance(x, tl.tensor) else x for x in operands))
        out = result or dtype
        handle = TensorHandle(np.asarray(data).astype(array_type(out)), out)
        is_block = any(x.type.is_block() for x in operands if isinstance(x, tl.tensor))
        return tl.tensor(handle, tl.block_type(out, list(handle.data.shape)) if is_block else out)

    return call
