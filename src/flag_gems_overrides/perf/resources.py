# SPDX-License-Identifier: Apache-2.0
"""Registers, spills, shared memory and occupancy of the kernels that cases launch, for GPUs that need not be here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flag_gems_overrides.perf.baselines import write
from flag_gems_overrides.perf.cases import Case, Shapes
from flag_gems_overrides.perf.devices import Gpu
from flag_gems_overrides.perf.gates import Failure

Row = dict[str, Any]


class ResourceError(RuntimeError):
    """The kernels could not be compiled."""


def cases(shapes: Shapes, ops: Iterable[str], level: str, dtypes: Sequence[str]) -> list[Case]:
    """What is compiled for a level: its cases, and the small ones that are counted in the interpreter.

    Those take each path through the plans: a name that changes its type in a loop, which the interpreter lets pass,
    shows here.
    """
    levels = (level, "interpreter")
    return [case for op in ops for each in levels for case in shapes.cases(op, each, dtypes)]


def survey(
    chosen: Sequence[Case], gpus: Iterable[Gpu], known: Iterable[Row] = (), folder: Path | None = None
) -> list[Row]:
    """One row for each configuration in which the overrides' kernels are launched for the ``chosen`` cases.

    Args:
        gpus: each is planned and compiled for in a process of its own.
        known: rows of earlier surveys. A configuration among them, of the same source and Triton, is not compiled.
        folder: where to put what the compiler made of each kernel, from TTIR to SASS.
    """
    known = list(known)
    keys = [case.key for case in chosen]
    tasks = [{"gpu": gpu, "cases": keys, "known": known, "folder": folder and str(folder)} for gpu in gpus]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [row for rows in pool.map(_compile, tasks) for row in rows]


def _compile(task: dict[str, Any]) -> list[Row]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, "-m", "flag_gems_overrides.perf.compile_only"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if result.returncode:
        raise ResourceError(f"compiling for {task['gpu'].name} failed:\n{result.stderr[-2000:]}")
    return [json.loads(line) for line in result.stdout.splitlines()]


def load(path: Path) -> list[Row]:
    """The rows of an earlier survey; none if there was none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def merged(known: Iterable[Row], rows: Iterable[Row], ops: Iterable[str]) -> list[Row]:
    """``rows``, and of ``known`` what is of other ops or another Triton."""
    rows, ops = list(rows), set(ops)
    versions = {row["triton"] for row in rows}
    kept = {row["digest"]: row for row in known if row["case"].split()[0] not in ops or row["triton"] not in versions}
    return list((kept | {row["digest"]: row for row in rows}).values())


def save(path: Path, rows: Iterable[Row]) -> None:
    """Write a survey, one row a line, in an order of its own, without what did not compile."""
    lines = sorted(json.dumps(row, sort_keys=True) for row in rows if "error" not in row)
    write(path, "".join(f"{line}\n" for line in lines))


def failures(rows: Iterable[Row]) -> Iterator[Failure]:
    """Configurations that do not compile, or that spill: no shipped one may."""
    for row in rows:
        which = f"{row['kernel']} for sm_{row['arch']}"
        if "error" in row:
            yield Failure("compiles", row["case"], f"{which}: {row['error']}", f"its options are {row['options']}")
        elif row["spilled_bytes"]:
            yield Failure(
                "spills",
                row["case"],
                f"{which} spills {row['spilled_bytes']} bytes per thread at {row['registers']} registers, not 0",
                f"plan a smaller tile or more warps than {row['options']}",
            )
