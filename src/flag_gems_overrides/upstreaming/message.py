# SPDX-License-Identifier: Apache-2.0
"""What a patch says of itself: the body of its pull request, and where it was forwarded (DEP-3)."""

from __future__ import annotations

import functools
import re
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import records
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.upstreaming import vendors
from flag_gems_overrides.upstreaming.git import DATE
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.series import Patch
from flag_gems_overrides.upstreaming.templates import render

DEVICE = "NVIDIA H200"
RECORDS = Path("benchmark/records/nvidia-h200")

# Upstream's issue about the cost of a launch.
_SHARED = ("#4812",)


class Speed(NamedTuple):
    """One case in the columns that upstream's benchmarks print, and flag_gems' own time before the patch."""

    function: str
    size: str
    dtype: str
    torch_ms: float
    before_ms: float
    ms: float


def message(patch: Patch, line: Line, tree: Path, folder: Path = RECORDS) -> str:
    """The commit message of a patch.

    Args:
        tree: FlagGems at the line's base, for what other vendors have of their own.
        folder: records of measurements, for the table of performance; those in ``core*.jsonl`` count.
    """
    from flag_gems_overrides.upstreaming import reproduction
    from flag_gems_overrides.upstreaming.defects import FIXED  # imports PyTorch; see series()

    operators = [OPERATORS[name] for name in patch.functions]
    defects = [row for row in patch.defects if row.recorded(line.release, "cuda") not in (FIXED, None)]
    hidden = [row for row in patch.defects if row.recorded(line.release, "cuda") is None and row.hidden]
    speeds, versions = performance(patch, folder) if patch.kind == "kernel" else ([], {})
    resolves, associated = issues(patch, line)
    return render(
        "message.md.j2",
        patch=patch,
        line=line,
        defects=defects if patch.kind == "kernel" else defects + hidden,
        logs=[operator.log for operator in operators],
        reproduction=reproduction.script(defects, line) if patch.kind == "fix" else "",
        copies=vendors.copies(tree, patch.name),
        alike=vendors.alike(patch.name),
        resolves=resolves,
        associated=associated,
        tests=[path for path in patch.added if path.startswith("tests/")],
        changed=re.findall(r"^\+\+\+ b/(tests/\S+)", patch.changes.read_text(), re.MULTILINE) if patch.changes else [],
        shared=any(set(row.functions) - set(patch.functions) for row in defects),
        benchmarks=[path for path in patch.added if path.startswith("benchmark/")],
        device=DEVICE,
        speeds=speeds,
        summary=summary(speeds),
        versions=versions,
        date=DATE[:10],
    )


def summary(speeds: list[Speed]) -> list[str]:
    """For each function, how the cases of its table compare: with the generic kernel, and with PyTorch's."""
    lines = []
    for function in dict.fromkeys(speed.function for speed in speeds):
        rows = [speed for speed in speeds if speed.function == function]
        said = []
        for name, ratios in (
            ("the generic kernel", [row.before_ms / row.ms for row in rows]),
            ("torch", [row.torch_ms / row.ms for row in rows]),
        ):
            slower = sum(ratio < 0.97 for ratio in ratios)
            mean = statistics.geometric_mean(ratios)
            said.append(f"{mean:.2f} times as fast as {name} (geometric mean; slower by over 3% in {slower})")
        lines.append(f"{function}, {len(rows)} cases: {' and '.join(said)}")
    return lines


def issues(patch: Patch, line: Line) -> tuple[list[str], list[str]]:
    """Upstream's issues that a patch of a line resolves, and its issues and pull requests about the same."""
    from flag_gems_overrides.upstreaming.defects import FIXED

    operators = [OPERATORS[name] for name in patch.functions]
    resolves = {issue for operator in operators for issue in operator.resolves}
    present = [row for row in patch.defects if row.recorded(line.release, "cuda") != FIXED]
    references = {reference for row in present for reference in row.references}
    references |= {request for operator in operators for request in operator.overlaps}
    references |= set(_SHARED) if patch.name == "shared" else set()
    return sorted(resolves), sorted(references - resolves, key=lambda reference: int(reference[1:]))


def performance(patch: Patch, folder: Path) -> tuple[list[Speed], dict[str, Any]]:
    """The newest kernel times of each case, and the versions; only of sessions with the versions of ``core.jsonl``."""
    if not (folder / "core.jsonl").exists():
        return [], {}
    versions, sessions = _sessions(folder)
    speeds: dict[str, Speed] = {}
    for session in sessions:
        for key, row in session.rows.items():
            case, providers = parse(key), row["providers"]
            times = [providers.get(name, {}).get("samples_ms") for name in ("native", "upstream", "override")]
            if case.op in patch.functions and case.dtype in ("float16", "float32", "bfloat16") and all(times):
                speeds[key] = Speed(case.op, case.size, case.dtype, *map(statistics.median, times))
    return [speeds[key] for key in sorted(speeds)], versions


@functools.cache
def _sessions(folder: Path) -> tuple[dict[str, Any], list[records.Session]]:
    versions = records.read(folder / "core.jsonl")[-1].head["versions"]
    sessions = [
        session
        for path in folder.glob("core*.jsonl")
        for session in records.read(path)
        if session.head["versions"] == versions and session.head["measure"] == "kernel"
    ]
    return versions, sorted(sessions, key=lambda session: session.head["started"])
