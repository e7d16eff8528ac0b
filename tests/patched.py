# SPDX-License-Identifier: Apache-2.0
"""A flag_gems with our patches in place of our overrides: what tests/accuracy calls when FLAGGEMS_PATCHED is set."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from flag_gems_overrides.operators import OPERATORS, Operator
from flag_gems_overrides.registration import compat, upstream
from flag_gems_overrides.upstreaming.series import FIXES
from flag_gems_overrides.upstreaming.series import PACKAGE as THEIRS

OURS = "flag_gems_overrides.ops"


def fixed() -> list[Operator]:
    """The operators of the loaded flag_gems that a fix of the generic file is written for."""
    import flag_gems

    rows = [operator for operator in OPERATORS.values() if (FIXES / f"{operator.module}.patch").exists()]
    return [operator for operator in rows if not upstream.predates(operator, flag_gems)]


def stand_in(folder: str) -> None:
    """Let ``flag_gems_overrides.ops`` be what the patches made of the flag_gems in ``folder``.

    Kernels that they added take our files' place, and a function that this flag_gems has not yet is ours, on the
    patched one's helpers. If they are fixes alone, our modules get the functions of the files that these changed.
    """
    import flag_gems

    home = Path(flag_gems.__file__).parent
    assert home.parent == Path(folder).resolve(), f"flag_gems is {home}, not the one in {folder}"
    if not (home / "runtime/backend" / THEIRS.replace(".", "/") / "launch").exists():
        compat.apply()  # these go through LibEntry, and the Triton may be newer than it knows
        for operator in fixed():
            setattr(
                importlib.import_module(f"{OURS}.{operator.module}"), operator.name, getattr(flag_gems, operator.name)
            )
        return
    ours, theirs = importlib.import_module(OURS), importlib.import_module(THEIRS)
    theirs.__path__ = [*theirs.__path__, *ours.__path__]
    for name in [name for name in sys.modules if name.startswith(f"{OURS}.")]:
        del sys.modules[name]
    sys.modules[OURS] = theirs
    for module in dict.fromkeys(operator.module for operator in OPERATORS.values()):
        importlib.import_module(f"{THEIRS}.{module}")
    for name in [name for name in sys.modules if name.startswith(f"{THEIRS}.")]:
        sys.modules[name.replace(THEIRS, OURS)] = sys.modules[name]
    for override in OPERATORS.values():
        if not upstream.predates(override, flag_gems):
            function = getattr(sys.modules[f"{THEIRS}.{override.module}"], override.name)
            assert getattr(flag_gems, override.name) is function, f"flag_gems.{override.name} is not the patched one"
