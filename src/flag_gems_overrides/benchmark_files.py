# SPDX-License-Identifier: Apache-2.0
"""Files that commands read from the project's folder ``benchmark``."""

from __future__ import annotations

from pathlib import Path


def benchmark_file(name: str) -> Path:
    """``benchmark/<name>`` of the current folder if that is a checkout, else the copy that the wheel has."""
    here = Path("benchmark", name)
    package = Path(__file__).parent
    # The wheel has the folder in the package; in a source tree it is beside src.
    candidates = (here, package / "benchmark" / name, package.parents[1] / "benchmark" / name)
    return next((path for path in candidates if path.exists()), here)
