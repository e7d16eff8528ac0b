# SPDX-License-Identifier: Apache-2.0
"""The versions that were tried, and what to do about others. Code asks for features; versions are named here alone."""

from __future__ import annotations

import functools
import importlib.metadata
import os
from collections.abc import Mapping

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

PAIRS = (("2.11", "3.6"), ("2.13", "3.7"), ("2.14", "3.8"), ("2.15", "3.9"))
"""PyTorch and the Triton that belongs to it."""
FLAG_GEMS = ("4.2.0", "5.0.2", "5.3.4")
ANY_TRITON = "FLAG_GEMS_OVERRIDES_ANY_TRITON"
"""Set in the environment, it lets any Triton pass."""

TRY_IT = "To try it, run `tox run -e newest` in a checkout of flag-gems-overrides"


@functools.cache  # 1.5 ms, at every installation
def check_triton() -> None:
    """Launches and the interpreter use Triton's internals, which differ between versions.

    Raises:
        RuntimeError: the installed Triton is none that this package asks for; the message says how to go on.
    """
    asked = _triton_asked_for()
    if asked is None or os.environ.get(ANY_TRITON):
        return
    found = importlib.metadata.version("triton")
    if asked.contains(found, prereleases=True):
        return
    wanted = f"pip install 'triton{asked}', with the torch that belongs to it"
    anyway = f"to use it at your own risk, set {ANY_TRITON}=1 in the environment"
    if any(Version(found) < Version(limit.version) for limit in asked if limit.operator == ">="):
        raise RuntimeError(
            f"flag_gems_overrides needs triton{asked} and triton {found} is installed: {wanted}; {anyway}"
        )
    raise RuntimeError(f"triton {found} has not been tried with flag_gems_overrides yet: {wanted}. {TRY_IT}; {anyway}")


def cautions(versions: Mapping[str, str]) -> list[str]:
    """What of the installed ``torch``, ``triton`` and ``flag_gems`` has not been tried, a sentence each."""
    torch, triton, gems = versions["torch"], versions["triton"], versions["flag_gems"]
    found = []
    if not any(torch.startswith(f"{t}.") and triton.startswith(f"{r}.") for t, r in PAIRS):
        pairs = ", ".join(f"{t} + {r}" for t, r in PAIRS)
        found.append(f"torch {torch} + triton {triton} have not been tried together, only {pairs}. {TRY_IT}")
    if gems not in FLAG_GEMS:
        found.append(f"flag_gems {gems} has not been tried, only {', '.join(FLAG_GEMS)}. {TRY_IT}")
    return found


def _triton_asked_for() -> SpecifierSet | None:
    """What this package's metadata say; None where nothing was installed: a source folder in PYTHONPATH."""
    try:
        asked = importlib.metadata.requires("flag-gems-overrides") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    (triton,) = (wanted for wanted in map(Requirement, asked) if wanted.name == "triton")
    return triton.specifier
