# SPDX-License-Identifier: Apache-2.0
"""The host path in C++: what a call costs on the host beside its kernels.

A Python function under the dispatcher costs 2.6 to 6.2 us before it does anything. So a C++ kernel is registered on
top of flag_gems' registration of an override, for as long as that is in force. It repeats what Python did for an
earlier call of the same description (recipes.py), and calls Python for everything else: the first call of a
description, inputs that the override does not support, a Triton launch hook, a log level that wants the call logged.
Python alone decides what a call does; without a compiler it also does it each time.
"""

from __future__ import annotations

import logging
import threading
import warnings
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.library import Library
from triton import knobs

from flag_gems_overrides.ops.launch.recording import recording
from flag_gems_overrides.ops.launch.workspace import Counters
from flag_gems_overrides.registration import dispatcher, retired
from flag_gems_overrides.registration.host.extension import EXTENSION, Extension
from flag_gems_overrides.registration.host.recipes import OtherWork, recipe

if TYPE_CHECKING:
    from flag_gems_overrides.registration.wrapper import Wrapper


class HostPath:
    """One override's way through C++."""

    def __init__(
        self, gems: ModuleType, wrapper: Wrapper, overload: str, key: str, extension: Extension = EXTENSION
    ) -> None:
        self._source = extension
        self._gems = gems
        self._wrapper = wrapper
        self._overload = overload
        self._key = key
        # One of our own: only this class asks it, so nothing else fills its cache of levels.
        self._logger = logging.getLogger(f"{wrapper.function.__module__}.host_path")
        self._extension: ModuleType | None = None
        self._operator: Any = None
        self._on: WeakKeyDictionary[Library, _Registered] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._stops = 0
        packet, _, variant = overload.partition(".")
        self._op = getattr(getattr(torch.ops.aten, packet), variant or "default")
        self._keys = torch._C.DispatchKeySet(torch._C._dispatch_key_parse(key))
        self._arguments = self._op._schema.arguments
        self._probing = threading.local()

    @property
    def replayed(self) -> int:
        """How many calls C++ has answered by itself."""
        return 0 if self._operator is None else self._operator.replayed

    def notice(self, *args: Any, **kwargs: Any) -> None:
        """The override runs, with these arguments: have C++ on top wherever flag_gems has registered it.

        flag_gems says nothing when it registers, so every call that reaches Python looks.
        """
        if getattr(self._probing, "on", False):
            raise _ReachedError
        if self._extension is None and not self._load():
            return
        name = f"aten/{self._overload}/{self._key}"
        for library in dispatcher.active_libraries(self._gems):
            if name in library._op_impls and library not in self._on:
                self._register(library, args, kwargs)

    def _load(self) -> bool:
        self._source.start()
        extension = self._source.module
        hooks = getattr(knobs.runtime.launch_enter_hook, "calls", None)
        if extension is None or hooks is None:
            return False
        levels = vars(self._logger)["_cache"]
        self._operator = extension.Operator(self._call, hooks, levels)
        self._extension = extension
        self._look_at_level()
        return True

    def stop(self) -> None:
        """Take C++ away. What it knows stays: it holds whenever the override is on."""
        with self._lock:
            self._stops += 1
            for library, registered in list(self._on.items()):
                registered.remove(library)
            self._on.clear()

    def _look_at_level(self) -> None:
        self._operator.set_quiet(not self._logger.isEnabledFor(logging.DEBUG))

    def _register(self, library: Library, args: tuple, kwargs: dict[str, Any]) -> None:
        assert self._extension is not None
        if not self._lock.acquire(blocking=False):
            return  # another thread is at it
        try:
            if not self._wrapper.is_on:
                return  # it was when this call began
            on_top = self._is_on_top(args, kwargs)
            if on_top is None:
                return
            registered = kernel = None
            if on_top:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    registered = self._extension.register_kernel(self._overload, self._key, self._operator)
                kernel = retired.kernel(self._overload, self._key)
            self._on[library] = _Registered(library, registered, kernel)
        finally:
            self._lock.release()

    def _is_on_top(self, args: tuple, kwargs: dict[str, Any]) -> bool | None:
        """Whether the dispatcher calls the override: someone may have registered over flag_gems, and call it.

        None if these arguments cannot tell: they are not aten's.
        """
        # The override may take by position what aten has by name only, as aminmax its dim.
        named = {declared.name for declared in self._arguments if declared.kwarg_only}
        given = {name: kwargs[name] for name in named & kwargs.keys()}
        given |= {a.name: arg for a, arg in zip(self._arguments, args, strict=False) if a.kwarg_only}
        self._probing.on = True
        try:
            self._op.redispatch(self._keys, *args[: len(self._arguments) - len(named)], **given)
        except _ReachedError as reached:
            # Called by the dispatcher itself: between this frame and the override's there is no other.
            trace = reached.__traceback__
            frames = []
            while trace is not None:
                frames.append(trace.tb_frame.f_code)
                trace = trace.tb_next
            return self._wrapper.function.__code__ in frames[:3]
        except Exception:
            return None
        finally:
            self._probing.on = False
        return False

    def _call(self, key: bytes | None, *args: Any, **kwargs: Any) -> Any:
        """What C++ calls when it has no answer: with the call's description if it wants one for the next time."""
        self._look_at_level()
        if key is None:
            return self._wrapper.function(*args, **kwargs)
        stops = self._stops
        if not self._wrapper.is_supported(*args, **kwargs):
            self._put(key, None, stops)
            return self._wrapper.function(*args, **kwargs)
        with recording() as events, OtherWork() as work:
            result = self._wrapper.function(*args, **kwargs)
        buffers = [made for maker, made in events if isinstance(maker, Counters)]
        if buffers and buffers[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return result  # these are the graph's
        assert self._extension is not None
        for buffer in buffers:
            self._extension.keep_buffer(buffer)
        arguments = [*args, *(kwargs[declared.name] for declared in self._arguments[len(args) :])]
        self._put(key, recipe(self._extension, events, work, arguments, result), stops)
        return result

    def _put(self, key: bytes, answer: Any | None, stops: int) -> None:
        """Keep it, unless the override may have been switched off meanwhile and upstream has answered."""
        if stops == self._stops and self._wrapper.is_on:
            self._operator.put(key, answer)


class _Registered:
    """C++ on top of a library's registration. Ends with it."""

    def __init__(self, under: Library, registered: Any | None, kernel: object | None) -> None:
        self._registered = registered
        self._kernel = kernel
        # Called by Library._destroy and when the library is collected, the two ways in which use_gems ends.
        under._registration_handles.append(self)  # type: ignore[arg-type]

    def destroy(self) -> None:
        if self._registered is not None:
            retired.keep([self._kernel])
            self._kernel = None
            self._registered.destroy()

    def remove(self, under: Library) -> None:
        with suppress(ValueError):  # the library has ended, and this with it
            under._registration_handles.remove(self)  # type: ignore[arg-type]
        self.destroy()


class _ReachedError(BaseException):
    """The override was reached. Only this module catches it."""


def forget() -> None:
    """Have Python decide anew what each call does: for those who change plans or kernels under a running process."""
    if EXTENSION.module is not None:
        EXTENSION.module.forget()
