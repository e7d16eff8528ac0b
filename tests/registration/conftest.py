# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import sys

import backend
import pytest

backend.prepare()  # pytest may import this before any session starts

import flag_gems  # noqa: E402
import torch  # noqa: E402

import flag_gems_overrides  # noqa: E402
from flag_gems_overrides.operators import OPERATORS  # noqa: E402
from flag_gems_overrides.registration import compat, installation, upstream  # noqa: E402

UPSTREAM_FILES = os.path.dirname(flag_gems.__file__) + os.sep


def _disable() -> None:
    """Take back what a test enabled through flag_gems' own library."""
    library = flag_gems.aten_lib
    library.m.reset()
    torch.library._impls.difference_update(library._op_impls)
    library._op_impls.clear()
    flag_gems.current_work_registrar = None


@pytest.fixture(autouse=True)
def as_found(monkeypatch):
    """Each test starts and ends with nothing enabled and nothing installed."""
    # On Triton versions that upstream does not know its functions fail at their second launch. Count on it.
    compat.apply()
    yield
    flag_gems_overrides.uninstall()
    compat.undo()
    _disable()


@pytest.fixture(params=["as it is", "keys taken"])
def torch_library(request, monkeypatch):
    """Up to torch 2.12 ``Library.impl`` refuses a key that Python has overridden; 2.13 does not by itself."""
    if request.param == "keys taken":
        monkeypatch.setitem(torch.library.Library.impl.__kwdefaults__, "allow_override", False)


@pytest.fixture
def enable():
    """Enable nothing but the named upstream functions, through flag_gems' own library or the given one."""

    def enable_only(*names, lib=flag_gems.aten_lib):
        names = upstream.registered_names(flag_gems, names)
        if hasattr(flag_gems, "only_enable"):
            flag_gems.only_enable(lib=lib, include=names)
        else:
            flag_gems.enable(lib=lib, unused=_all_but(names))

    return enable_only


@pytest.fixture
def use_gems():
    """A ``flag_gems.use_gems`` block with nothing but the named upstream functions."""

    def use_only(*names, **options):
        return upstream.use_gems(flag_gems, names, **options)

    return use_only


def _all_but(names):
    return [f.__name__ for f in upstream.rows(flag_gems).values() if f.__name__ not in names]


@pytest.fixture
def who():
    """Call something and say who answered: a list of "ours" and "upstream", empty if it was PyTorch alone."""
    answered: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record):
            # Not those that hand on to each other: native_layer_norm to layer_norm, softmax to softmax_out.
            if record.funcName in OPERATORS:
                answered.append("upstream" if record.pathname.startswith(UPSTREAM_FILES) else "ours")

    listener, logger = Listener(), logging.getLogger("flag_gems")
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.DEBUG)

    def call(function, *args, **kwargs):
        answered.clear()
        function(*args, **kwargs)
        return list(answered)

    yield call
    logger.removeHandler(listener)
    logger.setLevel(level)


class State:
    """Every name, row and dispatcher entry. Equal when all objects are the same ones."""

    def __init__(self) -> None:
        self.names = {
            (module_name, name): value
            for module_name, module in list(sys.modules.items())
            if module_name == "flag_gems" or module_name.startswith("flag_gems.")
            for name, value in vars(module).items()
            if name not in ("_FULL_CONFIG", "current_work_registrar", "major_version", "minor_version")
        }
        self.config = list(getattr(flag_gems, "_FULL_CONFIG", ()))
        by_function = getattr(flag_gems, "FULL_CONFIG_BY_FUNC", {})
        self.lists = dict(by_function)
        self.rows = {(name, i): row for name, rows in by_function.items() for i, row in enumerate(rows)}
        self.handles = list(flag_gems.aten_lib._registration_handles)
        self.keys = set(torch.library._impls)
        self.dispatcher = {o: dispatch(o) for o in upstream.rows(flag_gems)}

    def differences(self, other: State) -> list[object]:
        found: list[object] = []
        for ours, theirs in (
            (self.names, other.names),
            (dict(enumerate(self.config)), dict(enumerate(other.config))),
            (self.lists, other.lists),
            (self.rows, other.rows),
            (dict(enumerate(self.handles)), dict(enumerate(other.handles))),
        ):
            keys = set(ours) | set(theirs)
            found += [key for key in keys if ours.get(key, keys) is not theirs.get(key, keys)]
        found += self.keys ^ other.keys
        return found + [o for o, text in self.dispatcher.items() if text != other.dispatcher[o]]


def dispatch(overload: str) -> str:
    name = f"aten::{overload}"
    return torch._C._dispatch_dump(name) + torch._C._dispatch_dump_table(name)


@pytest.fixture
def state():
    """Call it to take a :class:`State`."""
    return State


@pytest.fixture
def overload_dump():
    """The dispatcher's own words on one aten overload."""
    return dispatch


@pytest.fixture
def names():
    """The overrides that the installed flag_gems can have."""
    return tuple(name for name, override in OPERATORS.items() if not upstream.predates(override, flag_gems))


@pytest.fixture
def x(device):
    return torch.randn(2, 3, device=device)


@pytest.fixture
def fresh(monkeypatch):
    """As if nothing had been installed in this process yet."""
    monkeypatch.setattr(installation, "_installation", None)
