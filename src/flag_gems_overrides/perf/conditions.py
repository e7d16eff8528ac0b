# SPDX-License-Identifier: Apache-2.0
"""Where and with what a measurement is made: the head of a session."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

from flag_gems_overrides.perf.clocks import Clocks

INTERPRETER = "interpreter"


def head(measure: str, level: str) -> dict[str, Any]:
    """What a session line says before anything is measured.

    Args:
        measure: "count", or the mode of timing.
        level: the level of the shape file, or another word for the choice of cases.
    """
    return {
        "measure": measure,
        "level": level,
        "device": device(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "triton", "flag_gems")},
        "digests": {name: digest(name) for name in ("flag_gems", "flag_gems_overrides")},
        "commit": commit(),
    }


def device() -> dict[str, Any]:
    """The GPU in use, or Triton's interpreter on a machine without one."""
    if not torch.cuda.is_available():
        return {"name": INTERPRETER}
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "sm_count": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        **Clocks(index).describe(),
    }


def version(package: str) -> str:
    if package == "torch":
        return torch.__version__  # with the local part, as in 2.11.0+cu130, which the metadata may lack
    return importlib.metadata.version(package)


@cache
def digest(package: str) -> str:
    """A fingerprint of a package's Python files: measurements of other code are other measurements."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    sha = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        sha.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return sha.hexdigest()[:16]


def commit() -> str | None:
    """The commit checked out in the current folder, "-dirty" behind it if tracked files differ from it; without git
    the one that a GitHub workflow runs for; None if neither."""
    found = _git("rev-parse", "HEAD")
    if not found:
        return os.environ.get("GITHUB_SHA")
    return f"{found}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else found


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
