# SPDX-License-Identifier: Apache-2.0
"""The installed flag_gems: loading it, and the places where it keeps its functions.

Three lines of it are known. 4.2.0 builds its registration rows inside ``enable`` from its module's names.
5.0.2 has them in ``_FULL_CONFIG`` as ``(key, function[, condition])``, and once more by function name in
``FULL_CONFIG_BY_FUNC``. 5.3.4 and later append extra dispatch keys to a row.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from packaging.version import Version

from flag_gems_overrides import requirements
from flag_gems_overrides.operators import OPERATORS, Operator

Replacements = Mapping[Callable[..., Any], Callable[..., Any]]

NO_DEVICE = """\
flag_gems needs a GPU, and PyTorch finds none here. To run it in Triton's interpreter instead, call

    from flag_gems_overrides import interpreter
    interpreter.activate()

before anything imports triton or flag_gems. With TRITON_INTERPRET=1 in the environment triton may come first.
"""


def is_loaded() -> bool:
    return "flag_gems" in sys.modules


def load() -> ModuleType:
    """Import flag_gems.

    Raises:
        RuntimeError: there is no device to run it on, or a Triton of another version; the message says what to do.
    """
    requirements.check_triton()
    if not is_loaded():
        import torch

        # Its import would fail halfway, and the modules already imported would prevent the interpreter's activation.
        if not torch.accelerator.is_available():
            raise RuntimeError(NO_DEVICE)
    return importlib.import_module("flag_gems")


def find(override: Operator) -> Callable[..., Any] | None:
    """The upstream function that ``override`` stands for, or None if this flag_gems has none of that name."""
    try:
        return getattr(importlib.import_module(f"flag_gems.ops.{override.module}"), override.name, None)
    except ModuleNotFoundError:
        return None


def left_out() -> dict[str, str]:
    """Why the loaded flag_gems cannot have an override, by name, for all that it cannot have."""
    gems = load()
    reasons = {name: _reason_to_leave_out(override, gems) for name, override in OPERATORS.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def predates(override: Operator, gems: ModuleType) -> bool:
    """Whether the loaded flag_gems is older than the upstream function: it has none, or one of other parameters."""
    if override.since is None or _has(override):
        return False
    # The release alone: the whole may not be a version, as in "5.3.4.post1.dev166+ged2508bcb+ged2508bcb" of one
    # installed from git, or "unknown" of a bare source folder.
    release = re.match(r"\d+(\.\d+)*", gems.__version__)
    return release is not None and Version(release[0]) < Version(override.since)


def _has(override: Operator) -> bool:
    function = find(override)
    return function is not None and _parameters(function) == _parameters(override.load()[0])


def _reason_to_leave_out(override: Operator, gems: ModuleType) -> str | None:
    function = find(override)
    where = f"flag_gems {gems.__version__}"
    if predates(override, gems):
        return f"{where} has no {override.name} yet, it came with {override.since}"
    if function is None:
        return f"{where} has no function {override.name} in ops/{override.module}.py"
    if override.overload in gems.config.aten_patch_list:
        return f"{where} registers {override.overload} from its C++ extension (USE_C_EXTENSION)"
    theirs, ours = (_parameters(f) for f in (function, override.load()[0]))
    if theirs != ours:
        return f"{override.name} takes ({', '.join(theirs)}) in {where}, the override ({', '.join(ours)})"
    return None


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def replace_names(replacements: Replacements) -> None:
    """Bind the replacement to every name of flag_gems' modules that is bound to a function in
    ``replacements``.

    By identity: flag_gems copies functions into several modules, and not the same ones in every version.
    """
    by_id = {id(old): new for old, new in replacements.items()}
    for module_name, module in list(sys.modules.items()):
        if module_name == "flag_gems" or module_name.startswith("flag_gems."):
            for name, value in list(vars(module).items()):
                if id(value) in by_id:
                    setattr(module, name, by_id[id(value)])


class Rows:
    """The registration rows, where flag_gems keeps them. What was replaced comes back as the same objects."""

    def __init__(self, gems: ModuleType) -> None:
        self._gems = gems
        self._as_found: tuple[Any, ...] | None = getattr(gems, "_FULL_CONFIG", None)
        self._twins: dict[int, tuple[Any, ...]] = {}

    def replace(self, replacements: Replacements) -> None:
        """Put the replacement into every row that has a function in ``replacements``, and keep the other fields."""
        if self._as_found is None:
            return
        config = tuple(self._replaced(row, replacements) for row in self._gems._FULL_CONFIG)
        same = [known for known in (self._gems._FULL_CONFIG, self._as_found) if _same_rows(config, known)]
        vars(self._gems)["_FULL_CONFIG"] = same[0] if same else config
        for rows in self._gems.FULL_CONFIG_BY_FUNC.values():
            rows[:] = [self._replaced(row, replacements) for row in rows]

    def _replaced(self, row: tuple[Any, ...], replacements: Replacements) -> tuple[Any, ...]:
        key, function, *tail = row
        new = replacements.get(function)
        if new is None:
            return row
        twin = self._twins.get(id(row))
        if twin is None or twin[1] is not new:
            twin = (key, new, *tail)
            self._twins[id(row)], self._twins[id(twin)] = twin, row
        return twin


def _same_rows(some: Sequence[object], others: Sequence[object]) -> bool:
    return [id(row) for row in some] == [id(row) for row in others]


def rows(gems: ModuleType) -> dict[str, Callable[..., Any]]:
    """The function that ``enable()`` would register now for each aten overload."""
    config = getattr(gems, "_FULL_CONFIG", None)
    return {row[0]: row[1] for row in (_rows_inside_enable(gems) if config is None else config)}


def use_gems(gems: ModuleType, names: Collection[str], **options: Any) -> AbstractContextManager:
    """``gems.use_gems`` with only these operators. flag_gems 4.2.0 takes a list of all others instead."""
    registered = registered_names(gems, names)
    if hasattr(gems, "only_enable"):
        return gems.use_gems(include=registered, **options)
    others = [function.__name__ for function in rows(gems).values() if function.__name__ not in registered]
    return gems.use_gems(unused=others, **options)


def registered_names(gems: ModuleType, names: Collection[str]) -> list[str]:
    """What ``include`` and ``exclude`` of flag_gems call these operators: the names of the functions that it registers.

    From 5.3.4 on that is ``native_layer_norm`` for ``layer_norm``, which it calls.
    """
    functions = rows(gems)
    return [getattr(functions.get(OPERATORS[name].overload), "__name__", name) for name in names]


def _rows_inside_enable(gems: ModuleType) -> list[tuple[Any, ...]]:
    collected: list[tuple[Any, ...]] = []
    kept = {name: vars(gems)[name] for name in ("current_work_registrar",) if name in vars(gems)}
    gems.enable(registrar=lambda config, **_: collected.extend(config))
    del gems.current_work_registrar
    vars(gems).update(kept)
    return collected
