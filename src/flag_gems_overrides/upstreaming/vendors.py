# SPDX-License-Identifier: Apache-2.0
"""What other vendors have of their own beside the generic files, and which of the defects that has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

BACKENDS = "src/flag_gems/runtime/backend"

# By module, then vendor: read at upstream's ed2508bcb, not run.
_READ: Mapping[str, Mapping[str, str]] = {}


def copies(tree: Path, module: str) -> list[str]:
    """The vendors with a file of this name in their ops."""
    found = (tree / BACKENDS).glob(f"_*/ops/{module}.py")
    return sorted(path.parts[-3].removeprefix("_") for path in found if path.parts[-3] != "_nvidia")


def alike(module: str) -> Mapping[str, str]:
    """Which of this module's defects the vendors' own files have too."""
    return _READ.get(module, {})


# What a file that all vendors run has no business with.
_NVIDIA = re.compile(
    r"cuda|nvidia|hopper|ampere|capability|ptx|inline_asm|launch_cooperative_grid|gdc_|L2_cache_size", re.IGNORECASE
)
_ELSEWHERE = ("tests/", "benchmark/", f"{BACKENDS}/_nvidia/")


def named(diff: str) -> Iterator[str]:
    """The lines that a diff adds to a file outside of ``_nvidia`` and that speak of NVIDIA's devices."""
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif line.startswith("+") and not path.startswith(_ELSEWHERE) and _NVIDIA.search(line):
            yield f"{path}: speaks of NVIDIA, and all vendors run it: {line[1:].strip()}"
