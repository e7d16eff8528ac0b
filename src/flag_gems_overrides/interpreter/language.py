# SPDX-License-Identifier: Apache-2.0
"""``triton.language`` for kernels that run instead of being compiled."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from flag_gems_overrides.interpreter import dtypes
from flag_gems_overrides.interpreter.builder import Builder
from flag_gems_overrides.interpreter.launch import InterpretedKernel
from flag_gems_overrides.interpreter.reductions import Reduction, Scan
from flag_gems_overrides.interpreter.semantic import Semantic
from flag_gems_overrides.interpreter.syntax import loop, rewritten
from flag_gems_overrides.interpreter.triton_internals import autotuner, replace_builtins, stock


def patch() -> None:
    """For good: kernels are made and run at any later time, in this process always by the interpreter."""
    dtypes.patch()
    language: Any = tl
    stock.interpreter_builder = Builder()
    stock.interpreter_semantic = Semantic(stock.interpreter_builder)
    stock.ReduceOps, stock.ScanOps = Reduction, Scan

    replace_builtins(_builtin)
    language.range = loop
    # The stock ones warn about the array of one element that every scalar is.
    language.tensor.__index__ = lambda self: int(self.handle.data.item())
    # The compiler wraps a dtype argument in a constexpr, the interpreter does not, and kernels ask for its value.
    language.dtype.value = property(lambda self: self)

    stock.InterpretedFunction.__call__ = lambda self, *args, **kwargs: rewritten(self.fn)(*args, **kwargs)
    # @triton.jit looks the class up when it is called.
    stock.InterpretedFunction = InterpretedKernel

    # Nothing can be timed without a driver, and time here says nothing: all configurations tie and the first one wins.
    tuner: Any = autotuner.Autotuner
    tuner._bench = lambda self, *args, config, **kwargs: [0.0, 0.0, 0.0]


def _builtin(builtin: Any) -> Any:
    """A builtin with the semantic that the compiler would pass it. The stock interpreter also copies its keyword
    arguments, and the builtin then checks that it got one."""
    implementation = getattr(builtin, "__wrapped__", builtin)
    semantic = stock.interpreter_semantic

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return implementation(*args, **kwargs)

    return call
