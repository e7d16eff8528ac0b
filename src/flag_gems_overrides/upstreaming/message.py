# SPDX-License-Identifier: Apache-2.0
"""What a patch says of itself: the body of its pull request, and where it was forwarded (DEP-3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import baselines as accepted
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.upstreaming.git import DATE
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.series import Patch
from flag_gems_overrides.upstreaming.templates import render

DEVICE = "NVIDIA H200"

# Upstream's issue about the cost of a launch.
_SHARED = ("#4812",)


class _Speed(NamedTuple):
    function: str
    size: str
    dtype: str
    ms: float
    ratio: float


def message(patch: Patch, line: Line, baselines: Path) -> str:
    """The commit message of a patch.

    Args:
        baselines: folder of accepted baselines, for the table of performance.
    """
    from flag_gems_overrides.upstreaming.defects import FIXED  # imports PyTorch; see series()

    operators = [OPERATORS[name] for name in patch.functions]
    resolves = {issue for operator in operators for issue in operator.resolves}
    references = {reference for row in patch.defects for reference in row.references}
    references |= {request for operator in operators for request in operator.overlaps}
    references |= set(_SHARED) if patch.name == "shared" else set()
    speeds, origin = _performance(patch, baselines)
    return render(
        "message.md.j2",
        patch=patch,
        line=line,
        defects=[row for row in patch.defects if row.recorded(line.release, "cuda") != FIXED],
        overrides=operators,
        resolves=sorted(resolves),
        associated=sorted(references - resolves, key=lambda reference: int(reference[1:])),
        tested=any(path.startswith("tests/") for path in patch.added),
        device=DEVICE,
        speeds=speeds,
        origin=origin,
        date=DATE[:10],
    )


def _performance(patch: Patch, folder: Path) -> tuple[list[_Speed], dict[str, Any]]:
    speeds: list[_Speed] = []
    origin: dict[str, Any] = {}
    for name in patch.functions:
        baseline = accepted.load(folder, DEVICE, name)
        if baseline is None:
            continue
        origin = baseline["accepted_from"]
        for key, entry in baseline["cases"].items():
            case = parse(key)
            speeds.append(_Speed(name, case.size, case.dtype, entry["ms"], entry["ratio"]))
    return speeds, origin
