# SPDX-License-Identifier: Apache-2.0
"""flag_gems with the overrides, without what it is known to do wrong: one call."""

from __future__ import annotations

import inspect
import logging
import threading
import warnings
from collections.abc import Iterable
from types import ModuleType, TracebackType
from typing import Any

from flag_gems_overrides import harmful
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.registration import installation, upstream

logger = logging.getLogger(__name__)

_said: set[tuple[str, ...]] = set()
_lock = threading.Lock()


def enable(exclude: Iterable[str] = ()) -> Enabled:
    """Install the overrides and enable flag_gems, less the operators that are known to be harmful here.

    What is left out stays PyTorch's; it is logged once, and listed with reasons by ``gems-overrides doctor``. Holds
    until :meth:`Enabled.disable`, or inside of a block::

        with flag_gems_overrides.enable():
            train()

    Args:
        exclude: flag_gems' functions, by name, to leave out as well, such as ``["to_copy", "add"]``.

    Raises:
        TypeError: ``exclude`` is a string instead of a list of names.
        ValueError: flag_gems registers no function of such a name.
        RuntimeError: there is no GPU and the interpreter is not active; the message says what to do.
    """
    return Enabled(exclude)


class Enabled:
    """What :func:`enable` has done, until it is undone.

    Attributes:
        overrides: names of the overrides in force.
        left_out: the operators that are left out because they are harmful.
    """

    def __init__(self, exclude: Iterable[str]) -> None:
        if isinstance(exclude, str):
            raise TypeError(f"exclude must be a list of names, like [{exclude!r}], not a string")
        exclude = set(exclude)
        self._gems = gems = upstream.load()
        self._before = tuple(override.name for override in installation.catalog() if override.installed)
        self._registrar = vars(gems).get("current_work_registrar")
        _check(gems, exclude)
        self.overrides = installation.install(exclude=exclude & set(OPERATORS))
        self.left_out = harmful.known(gems.__version__, capability(gems), self.overrides)
        without = exclude | {each.name for each in self.left_out}
        _say(gems, self.left_out)

        from torch.library import Library

        self._library: Any = Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")
            gems.enable(lib=self._library, **{exclude_argument(gems): sorted(without)})

    def disable(self) -> None:
        """As it was before. Does nothing the second time."""
        if self._library is None:
            return
        self._library._destroy()
        self._library = None
        vars(self._gems)["current_work_registrar"] = self._registrar
        installation.install(include=self._before)

    def __enter__(self) -> Enabled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disable()


def exclude_argument(gems: ModuleType) -> str:
    """What ``enable`` of this flag_gems calls the names that it leaves out."""
    return "exclude" if "exclude" in inspect.signature(gems.enable).parameters else "unused"


def capability(gems: ModuleType) -> tuple[int, int] | None:
    """The compute capability of the current device, None where there is none."""
    if gems.device != "cuda":
        return None
    import torch

    return torch.cuda.get_device_capability()


def _check(gems: ModuleType, names: set[str]) -> None:
    registered = {function.__name__ for function in upstream.rows(gems).values()}
    unknown = sorted(names - registered - set(OPERATORS))
    if unknown:
        raise ValueError(f"exclude: flag_gems {gems.__version__} registers no function named {unknown}")


def _say(gems: ModuleType, left_out: tuple[harmful.Harmful, ...]) -> None:
    names = tuple(each.name for each in left_out)
    with _lock:
        if names and names not in _said:
            _said.add(names)
            logger.warning(
                "left to PyTorch, because flag_gems %s does them wrong here: %s (gems-overrides doctor says why)",
                gems.__version__,
                ", ".join(names),
            )
