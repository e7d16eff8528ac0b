# SPDX-License-Identifier: Apache-2.0
"""What flag_gems has registered with PyTorch's dispatcher, and our registrations on top of it.

flag_gems registers through a ``torch.library.Library``: ``flag_gems.aten_lib`` for ``enable`` and
``only_enable``, one of its own for each ``use_gems``, the caller's for ``enable(lib=...)``. Each of them gets
a library of ours that lives as long as it does and no longer; nothing here keeps one alive.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from torch.library import Library

from flag_gems_overrides.registration import retired

Functions = Mapping[str, Callable[..., Any]]


def active_libraries(gems: ModuleType) -> list[Library]:
    """The libraries through which flag_gems has operators registered now, oldest first."""
    registrar = getattr(gems, "current_work_registrar", None)
    libraries = [gems.aten_lib]
    if registrar is not None and registrar.lib not in (None, gems.aten_lib):
        libraries.append(registrar.lib)
    return [library for library in libraries if library.m is not None and library._op_impls]


@contextmanager
def lifted(gems: ModuleType, functions: Functions, for_overloads: set[str]) -> Iterator[None]:
    """Take flag_gems' registrations out of the dispatcher inside the block and put them back after it.

    ``functions`` says what was registered for an overload. A library that has none of ``for_overloads``
    stays. Other threads meet PyTorch's own kernels meanwhile.

    Raises:
        RuntimeError: a library holds a registration that flag_gems did not make, so it could not be put back.
    """
    held = []
    for library in active_libraries(gems):
        entries = [entry.split("/")[1:] for entry in sorted(library._op_impls)]
        if for_overloads.isdisjoint(overload for overload, _ in entries):
            continue
        for overload, dispatch_key in entries:
            if overload not in functions:
                raise RuntimeError(
                    f"flag_gems is enabled through a library that also holds {overload} for {dispatch_key}, "
                    "which is not flag_gems'. Call install() before enabling flag_gems through it."
                )
            held.append((library, overload, functions[overload], dispatch_key))
    retired.keep([retired.kernel(overload, dispatch_key) for _, overload, _, dispatch_key in held])
    for library in {id(library): library for library, *_ in held}.values():
        if library.m is not None:
            library.m.reset()
    try:
        yield
    finally:
        for registration in held:
            _register(*registration)


class LiveRegistrations:
    """Our functions, in force for operators that flag_gems had registered before it had ours."""

    def __init__(self) -> None:
        self._on: WeakKeyDictionary[Library, _OnTop] = WeakKeyDictionary()

    def update(self, gems: ModuleType, wanted: Functions, dispatch_key: str) -> None:
        """Register ``wanted`` over those of its overloads that flag_gems has registered; remove our other functions."""
        for library in {*active_libraries(gems), *self._on}:
            functions = {o: f for o, f in wanted.items() if f"aten/{o}/{dispatch_key}" in library._op_impls}
            before = self._on.get(library)
            if before is not None and before.functions == functions and before.in_force:
                continue
            after = _OnTop(library, functions, dispatch_key) if functions and library.m is not None else None
            if before is not None:
                before.remove(library)
                del self._on[library]
            if after is not None:
                self._on[library] = after


class _OnTop:
    """Registrations that end with those of the library they were made over."""

    def __init__(self, under: Library, functions: Functions, dispatch_key: str) -> None:
        self.functions = functions
        self._library = Library("aten", "IMPL")
        self._kernels: list[object] = []
        try:
            for overload, function in functions.items():
                _register(self._library, overload, function, dispatch_key)
                self._kernels.append(retired.kernel(overload, dispatch_key))
        except BaseException:
            self.destroy()
            raise
        # Called by Library._destroy and when the library is collected, the two ways in which use_gems ends.
        under._registration_handles.append(self)  # type: ignore[arg-type]

    @property
    def in_force(self) -> bool:
        return self._library.m is not None

    def destroy(self) -> None:
        retired.keep(self._kernels)
        self._kernels.clear()
        # torch notes once that a key is overridden from Python, and the library underneath still does that.
        self._library._op_impls.clear()
        self._library._destroy()

    def remove(self, under: Library) -> None:
        if self.in_force:
            under._registration_handles.remove(self)  # type: ignore[arg-type]
            self.destroy()


def _register(library: Library, overload: str, function: Callable[..., Any], dispatch_key: str) -> None:
    with warnings.catch_warnings():
        # "Overriding a previously registered kernel": that is the purpose, and an error filter must not stop
        # it midway.
        warnings.simplefilter("ignore")
        library.impl(overload, function, dispatch_key, allow_override=True)
