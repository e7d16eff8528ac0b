# SPDX-License-Identifier: Apache-2.0
"""Kernels whose launches are prepared once and then cost little more than the driver call.

``LibEntry`` rebuilds its key, a dictionary of arguments and the argument list on every call, about 20 us of Python
(FlagGems issue 4812). For one shape all of that is the same each time, so it is bound once:

    @entry()
    @triton.jit
    def kernel(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr): ...

    launch = kernel.bind(device_index, grid, M, N, num_warps=4, BLOCK=1024)   # once for a shape, dtype and device
    launch(x, y)                                                              # every time
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
from flag_gems.runtime import torch_device_fn
from flag_gems.utils.libentry import LibEntry
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime import driver

from .devices import current_device
from .recording import note, recordings
from .triton_versions import COMPILE_OPTIONS, launcher

# Triton's compiler is not thread-safe. A lock held by another thread at a fork would never be free in the child.
_compiling = threading.RLock()


def _renew_lock() -> None:
    global _compiling
    _compiling = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class Launch:
    """A kernel with everything but its tensors decided. Made by :meth:`Entry.bind`.

    Call it with the kernel's tensors in the order of its parameters, ``None`` for an absent one. Which tensors are
    absent, and their dtypes, must be the same in every call: a cache of launches has them in its keys.
    """

    __slots__ = ("_device", "_dtypes", "_entry", "_grid", "_options", "_scalars", "_variants")

    def __init__(self, entry: Entry, device: int, grid: tuple[int, ...], scalars: tuple, options: dict[str, Any]):
        self._entry = entry
        self._device = device
        self._grid = (*grid, 1, 1)[:3]
        self._scalars = scalars
        self._options = options
        self._dtypes: tuple[torch.dtype | None, ...] | None = None
        self._variants: dict[tuple[int, ...], _Variant] = {}

    def __call__(self, *tensors: torch.Tensor | None) -> None:
        if recordings:
            note(self, tensors)
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        variant = self._variants.get(_unaligned(pointers))
        if variant is None or knobs.runtime.launch_enter_hook.calls:
            self._launch_through_entry(tensors, pointers)
            return
        device = self._device
        if current_device() == device:
            variant.run(*self._grid, variant.stream(device), *variant.before, *pointers, *variant.after)
        else:
            with torch_device_fn.device(device):
                variant.run(*self._grid, variant.stream(device), *variant.before, *pointers, *variant.after)

    def compiled(self, tensors: Sequence[torch.Tensor | None]) -> CompiledKernel | None:
        """The kernel for tensors that are aligned like these; None before it was compiled."""
        variant = self._variants.get(_unaligned([None if tensor is None else tensor.data_ptr() for tensor in tensors]))
        return None if variant is None else variant.kernel

    def parts(self) -> tuple[int, tuple[int, ...], tuple[int | float, ...]]:
        """The device, the grid, the scalars."""
        return self._device, self._grid, self._scalars

    def _launch_through_entry(self, tensors: tuple[torch.Tensor | None, ...], pointers: list[int | None]) -> None:
        # The interpreter launches all this way: there a cache whose keys lack something is noticed, at no cost.
        dtypes = tuple(None if tensor is None else tensor.dtype for tensor in tensors)
        if self._dtypes not in (None, dtypes):
            raise RuntimeError(
                f"{self._entry.jit_function.__name__}: prepared for {self._dtypes}, called with {dtypes}"
            )
        self._dtypes = dtypes
        with torch_device_fn.device(self._device):
            kernel, _ = self._entry.run(*tensors, *self._scalars, grid=self._grid, **self._options)
        # Triton's interpreter hands out no CompiledKernel; there every launch takes this way.
        known = launcher(kernel) if isinstance(kernel, CompiledKernel) else None
        if known is not None:
            run, before = known
            constexprs = [self._options[p.name] for p in self._entry.jit_function.params if p.is_constexpr]
            after = (*self._scalars, *constexprs)
            self._variants[_unaligned(pointers)] = _Variant(
                kernel, run, before, after, driver.active.get_current_stream
            )


class _Variant(NamedTuple):
    """A kernel, compiled for pointers of which some are no multiples of 16 bytes, and what launches it."""

    kernel: CompiledKernel
    run: Callable[..., None]
    before: tuple  # between the stream and the pointers
    after: tuple
    stream: Callable[[int], int]


def _unaligned(pointers: Sequence[int | None]) -> tuple[int, ...]:
    """The places of those that are no multiples of 16 bytes, which is what Triton compiles a kernel for."""
    bits = 0
    for pointer in pointers:
        bits |= pointer or 0
    return () if not bits & 15 else tuple(place for place, pointer in enumerate(pointers) if (pointer or 0) & 15)


class Entry(LibEntry):
    """A ``LibEntry`` for kernels without tuner or heuristics: their configurations are planned before the launch.

    ``entry[grid](...)`` works as on any Triton kernel. The key is left to Triton's own launcher, which builds it in
    C++ from the same facts (dtypes, alignment, divisibility by 16) and holds on every Triton version; ``LibEntry``'s
    key has the exact value of each integer in it, one entry for every shape, never evicted.
    """

    def run(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        with _compiling:
            kernel = self.fn.run(*args, **{**COMPILE_OPTIONS, **kwargs, "warmup": False})
        return kernel, {}

    def bind(
        self, device: int, grid: tuple[int, ...], *scalars: int | float | None, num_warps: int = 4, **options: Any
    ) -> Launch:
        """Decide all of a launch but its tensors.

        Args:
            device: index of the device to launch on (what ``tensor.get_device()`` says; -1 on the CPU).
            grid: programs along up to three axes.
            scalars: the kernel's runtime parameters that follow its tensors.
            num_warps, options: every constexpr parameter by name, and launch options (``num_stages``, ``maxnreg``,
                ``launch_cooperative_grid``).
        """
        return Launch(self, max(device, 0), grid, scalars, {"num_warps": num_warps, **options})


def entry():
    """Decorator that turns a ``@triton.jit`` function into an :class:`Entry`."""

    def decorate(kernel: triton.runtime.JITFunction) -> Entry:
        return Entry(kernel)

    return decorate
