# SPDX-License-Identifier: Apache-2.0
"""Puts overrides into flag_gems and takes them out again.

One function switches from any set of overrides to any other. Installing, excluding, nesting and undoing all use it.
Each override has one wrapper for the life of the process. A switch changes where the wrapper is bound and whether it
is on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

from flag_gems_overrides.operators import OPERATORS, Operator, select
from flag_gems_overrides.registration import compat, upstream

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager

    from flag_gems_overrides.registration.host import HostPath

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Choice:
    names: tuple[str, ...] = ()


_lock = threading.RLock()
_installation: _Installation | None = None
# The last choice is in force. The first belongs to install(); each block of use_overrides adds its own choice and
# removes that same one, so blocks of several threads may end in any order.
_choices = [_Choice()]


def install(include: Iterable[str] | None = None, exclude: Iterable[str] | None = None) -> tuple[str, ...]:
    """Let flag_gems use these overrides and no others; a repeated call replaces the previous choice.

    Afterwards ``flag_gems.enable()``, ``only_enable()`` and ``use_gems()`` register them, and
    ``flag_gems.<op>`` and ``flag_gems.ops.<op>``, or ``flag_gems.fused.<op>``, are them. Where flag_gems is
    enabled already they take effect at once. Names that other packages imported from flag_gems before stay as
    they are. Holds for all threads.

    Args:
        include: upstream function names, such as ``["softmax", "max_dim"]``; all of the catalog if None.
        exclude: names to leave to upstream.

    Returns:
        The names of the overrides in force. One that the installed flag_gems cannot have is left out with a
        logged warning (no warning if it is older than the function); :func:`catalog` says why.

    Raises:
        ValueError: a name is not in the catalog.
        RuntimeError: there is no GPU and the interpreter is not active; the message says what to do.
    """
    names = select(include, exclude)
    with _lock:
        _choices[-1].names = _switch(names)
        return _choices[-1].names


def uninstall() -> None:
    """Restore every name, registration row and dispatcher entry of flag_gems.

    If flag_gems was enabled while overrides were installed it stays enabled, with upstream's functions. On a
    Triton that these do not know they need ``compat.apply()`` then, which ends with the last override. Does
    nothing if nothing is installed.
    """
    with _lock:
        _choices[-1].names = _switch(())


def use_overrides(
    include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
) -> _GeneratorContextManager[tuple[str, ...]]:
    """Exactly these overrides inside a ``with`` block or decorated function; then again those before it.

    ``use_overrides(include=[])`` switches all of them off. Arguments, exceptions and the value of ``as`` are
    those of :func:`install`. Like that it holds for all threads, not for the block's alone.
    """
    return _use(select(include, exclude))


@contextmanager
def _use(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    choice = _Choice()
    with _lock:
        choice.names = _switch(names)
        _choices.append(choice)
    try:
        yield choice.names
    finally:
        with _lock:
            _choices.remove(choice)
            _switch(_choices[-1].names)


def catalog() -> tuple[Operator, ...]:
    """All overrides: what each stands for and fixes, whether it is in force, and why if it cannot be."""
    with _lock:
        names = () if _installation is None else _installation.names
        left_out = upstream.left_out() if upstream.is_loaded() else {}
        return tuple(
            replace(override, installed=name in names, left_out=left_out.get(name))
            for name, override in OPERATORS.items()
        )


def _switch(names: tuple[str, ...]) -> tuple[str, ...]:
    global _installation
    if _installation is None:
        if not names:
            return ()
        _installation = _Installation(upstream.load())
    before = _installation.names
    try:
        _installation.switch(names)
    except BaseException:
        _installation.switch(before)
        raise
    return _installation.names


class _Installation:
    """The loaded flag_gems, a wrapper for every override that it can have, and which of them are in force."""

    def __init__(self, gems: ModuleType) -> None:
        # Here and not above, so that importing the package does not import torch.
        from flag_gems_overrides.registration import dispatcher
        from flag_gems_overrides.registration.native import native_function
        from flag_gems_overrides.registration.wrapper import Wrapper

        self.names: tuple[str, ...] = ()
        self._gems = gems
        self._dispatch_key = gems.runtime.device.dispatch_key
        self._rows = upstream.Rows(gems)
        self._live = dispatcher.LiveRegistrations()
        self._left_out = upstream.left_out()
        self._repaired = False
        self._host_paths: list[HostPath] = []

        rows = upstream.rows(gems)
        overrides = [override for name, override in OPERATORS.items() if name not in self._left_out]
        self._wrappers: dict[str, Wrapper] = {}
        self._overloads: dict[str, list[str]] = {}
        # PyTorch's own kernels of all overrides at once, whichever are asked for: flag_gems hides them while
        # enabled.
        with dispatcher.lifted(
            gems, rows, for_overloads={override.overload for override in overrides if override.overload}
        ):
            for override in overrides:
                function = upstream.find(override)
                assert function is not None
                native = native_function(override, self._dispatch_key, gems.device)
                self._wrappers[override.name] = Wrapper(*override.load(), native, function)
                # Not always the catalog's: from 5.3.4 on a function of another name is registered, and calls
                # this one.
                self._overloads[override.name] = [key for key, value in rows.items() if value is function]
        if gems.device == "cuda":
            self._add_host_paths()

    def _add_host_paths(self) -> None:
        from flag_gems_overrides.registration import host

        for name, wrapper in self._wrappers.items():
            overload = OPERATORS[name].overload
            if overload and self._overloads[name] == [overload]:
                path = host.HostPath(self._gems, wrapper, overload, self._dispatch_key)
                wrapper.call_first(path.notice)
                self._host_paths.append(path)

    def switch(self, names: tuple[str, ...]) -> None:
        """Let exactly ``names``, less those that this flag_gems cannot have, be in force."""
        for name in names:
            if name in self._left_out:
                level = logging.INFO if upstream.predates(OPERATORS[name], self._gems) else logging.WARNING
                logger.log(level, "%s is left out: %s", name, self._left_out[name])
        names = tuple(name for name in names if name in self._wrappers)
        if names and not self._repaired:
            compat.apply()
            self._repaired = True

        for path in self._host_paths:
            path.stop()
        on = [self._wrappers[name] for name in names]
        off = [wrapper for name, wrapper in self._wrappers.items() if name not in names]
        for wrapper in on:
            wrapper.turn_on()
        replacements = {wrapper.upstream: wrapper.function for wrapper in on}
        replacements |= {wrapper.function: wrapper.upstream for wrapper in off}
        upstream.replace_names(replacements)
        self._rows.replace(replacements)
        wanted = {key: self._wrappers[name].function for name in names for key in self._overloads[name]}
        self._live.update(self._gems, wanted, self._dispatch_key)
        for wrapper in off:
            wrapper.turn_off()
        for path in self._host_paths:
            path.stop()  # once more, for what calls of other threads have registered meanwhile

        if self._repaired and not names:
            compat.undo()
            self._repaired = False
        self.names = names
