# SPDX-License-Identifier: Apache-2.0
"""What an environment may have come to after the installation, which asked for the right versions."""

from __future__ import annotations

import functools
import importlib.metadata

from packaging.requirements import Requirement


@functools.cache  # 1.5 ms, at every installation
def check_triton() -> None:
    """Launches and the interpreter reach into Triton, where other versions differ.

    Raises:
        RuntimeError: the installed Triton is none that this package asks for; the message names both.
    """
    try:
        asked = importlib.metadata.requires("flag-gems-overrides") or []
    except importlib.metadata.PackageNotFoundError:
        return  # nothing was installed: a source folder in PYTHONPATH
    (triton,) = (wanted for wanted in map(Requirement, asked) if wanted.name == "triton")
    found = importlib.metadata.version("triton")
    if not triton.specifier.contains(found, prereleases=True):
        raise RuntimeError(
            f"flag_gems_overrides works with triton{triton.specifier} and triton {found} is installed: "
            f"pip install 'triton{triton.specifier}', with the torch that belongs to it"
        )
