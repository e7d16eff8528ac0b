# SPDX-License-Identifier: Apache-2.0
"""``@triton.jit`` in the interpreter: a ``JITFunction`` that runs instead of compiling."""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from flag_gems_overrides.interpreter import arguments, cooperative
from flag_gems_overrides.interpreter.errors import DeadlockError, OutOfBoundsError
from flag_gems_overrides.interpreter.memory import LaunchMemory
from flag_gems_overrides.interpreter.syntax import rewritten
from flag_gems_overrides.interpreter.triton_internals import LAUNCH_OPTIONS, InterpreterError, JITFunction, stock

# There is one builder, and it knows the program that is running.
_one_launch = threading.RLock()
# Along the second and third axis of CUDA's grids.
_MAX_PROGRAMS = 65535


class InterpretedKernel(JITFunction):
    """What ``@triton.jit`` makes. The stock one is no JITFunction, and it returns nothing from ``run``; LibEntry and
    LibTuner look for a JITFunction inside their kernel, for its parameters, and keep the compiled kernel that ``run``
    returns."""

    __hash__ = object.__hash__

    @property
    def cache_key(self) -> str:
        """LibTuner names its tables by it. The real one depends on what the compiler sees."""
        return hashlib.sha256(self._src.encode()).hexdigest()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As a device function, from inside a kernel."""
        return rewritten(self.fn)(*args, **kwargs)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> CompiledKernel:
        if not warmup:
            for hook in self.pre_run_hooks:
                hook(*args, **options)
            self._execute(grid, arguments.bind(self, args, options), options)
        return CompiledKernel(self, {name: options[name] for name in options if name not in self.arg_names})

    def _execute(self, grid: Any, bound: dict[str, Any], options: dict[str, Any]) -> None:
        unknown = options.keys() - bound.keys() - LAUNCH_OPTIONS
        if unknown:
            raise KeyError(f"Keyword argument {min(unknown)} was specified but unrecognised")
        grid = grid(bound) if callable(grid) else grid
        x, y, z = (*map(int, grid), 1, 1)[:3]
        size = x, y, z
        if max(y, z) > _MAX_PROGRAMS or x >= 2**31:
            raise RuntimeError(f"{self.__name__}: CUDA has no grid of {size} programs: invalid argument")
        program = functools.partial(rewritten(self.fn), **arguments.values(self, bound))
        builder = stock.interpreter_builder
        with _one_launch, np.errstate(all="ignore"):
            builder.set_grid_dim(*size)
            builder.memory = memory = LaunchMemory(self.__name__, arguments.tensors(bound))
            builder.options = replace(builder.options, debug=bool(options.get("debug")))
            try:
                indices = itertools.product(range(x), range(y), range(z))
                if options.get("launch_cooperative_grid"):
                    cooperative.run(builder, self.__name__, program, indices)
                else:
                    for builder.grid_idx in indices:
                        program()
            except (InterpreterError, OutOfBoundsError, DeadlockError):
                raise
            except Exception as error:
                raise InterpreterError(f"{self.__name__}: {error!r}") from error
        constexprs = {p.name: bound[p.name] for p in self.params if p.is_constexpr}
        memory.finish(size, constexprs | options)


class CompiledKernel:
    """Stands for the kernel that Triton would have compiled: ``kernel[grid](*arguments)``, with all parameters
    by position, launches it again."""

    def __init__(self, kernel: InterpretedKernel, options: dict[str, Any]) -> None:
        self._kernel = kernel
        self._options = options

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        return lambda *args: self._kernel.run(*args, grid=grid, **self._options)
