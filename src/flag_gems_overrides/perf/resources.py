# SPDX-License-Identifier: Apache-2.0
"""Registers, spills, shared memory and occupancy of the kernels that cases launch, for GPUs that need not be here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.beforehand import processes
from flag_gems_overrides.perf.cases import Case, Shapes
from flag_gems_overrides.perf.devices import Gpu
from flag_gems_overrides.perf.files import write
from flag_gems_overrides.perf.gates import Failure

Row = dict[str, Any]

_FIELDS = {
    *("digest", "kernel", "arch", "triton", "options", "case"),
    *("registers", "spilled_bytes", "shared_bytes", "occupancy"),
}


class ResourceError(UserError):
    """The kernels could not be compiled, or a survey cannot be read or written; the message names the file."""


def cases(shapes: Shapes, ops: Iterable[str], level: str, dtypes: Sequence[str]) -> list[Case]:
    """What is compiled for a level: its cases, and the small ones that are counted in the interpreter.

    Those take each path through the plans: a name that changes its type in a loop, which the interpreter lets pass,
    shows here.
    """
    levels = (level, "interpreter")
    return [case for op in ops for each in levels for case in shapes.cases(op, each, dtypes)]


def survey(
    chosen: Sequence[Case],
    gpus: Iterable[Gpu],
    known: Iterable[Row] = (),
    folder: Path | None = None,
    compiled: Callable[[Row], object] = lambda row: None,
    parameters: bool = True,
    offset: int = 0,
    sass: bool = True,
) -> list[Row]:
    """One row for each configuration in which the overrides' kernels are launched for the ``chosen`` cases.

    Args:
        gpus: each is planned and compiled for in processes of its own, as many as there are cores for.
        known: rows of earlier surveys. A configuration among them, of the same source and Triton, is not compiled.
        folder: where to put what the compiler made of each kernel, from TTIR to SASS.
        compiled: called with each row as soon as it is there, from several threads.
        parameters: whether norms are called with weight and bias.
        offset: in elements, of every input from an aligned address.
        sass: whether it is put into ``folder`` too; a kernel takes half a second to disassemble.

    Raises:
        ResourceError: a process failed.
    """
    gpus = list(gpus)
    keys = [case.key for case in chosen]
    task = {
        "known": list(known),
        "folder": folder and str(folder),
        "parameters": parameters,
        "offset": offset,
        "sass": sass,
    }
    shares = max(1, min(processes() // len(gpus), len(keys)))
    tasks = [task | {"gpu": gpu, "cases": keys[share::shares]} for gpu in gpus for share in range(shares)]
    # The processes end with this block: an interrupt does not wait for them.
    with ThreadPoolExecutor(processes()) as pool, ExitStack() as started:
        found = [row for rows in pool.map(lambda task: _compile(task, compiled, started), tasks) for row in rows]
    # Two processes may have compiled the same.
    return list({row["digest"]: row for row in found}.values())


def _compile(task: dict[str, Any], compiled: Callable[[Row], object], started: ExitStack) -> list[Row]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    rows = []
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as log:
        json.dump(task, asked)
        asked.seek(0)
        command = [sys.executable, "-m", "flag_gems_overrides.perf.compile_only"]
        with subprocess.Popen(
            command, stdin=asked, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        ) as process:
            started.callback(process.kill)
            assert process.stdout is not None
            for line in process.stdout:
                rows.append(json.loads(line))
                compiled(rows[-1])
        if process.returncode:
            log.seek(0)
            raise ResourceError(f"compiling for {task['gpu'].name} failed:\n{log.read()[-2000:]}")
    return rows


def load(path: Path) -> list[Row]:
    """The rows of an earlier survey; none if there was none.

    Raises:
        ResourceError: the file is not a survey, or cannot be read.
    """
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ResourceError(f"{path}: {error.strerror}; name a survey, or a new file") from None
    return [_row(line, f"{path} line {number}") for number, line in enumerate(lines, 1)]


def _row(line: str, where: str) -> Row:
    try:
        row: Row = json.loads(line)
    except ValueError as error:
        raise ResourceError(f"{where}: not JSON ({error}); name a survey, or a new file") from None
    missing = _FIELDS - row.keys() if isinstance(row, dict) else _FIELDS
    if missing:
        raise ResourceError(f"{where}: has no {', '.join(sorted(missing))}; name a survey, or a new file")
    return row


def merged(known: Iterable[Row], rows: Iterable[Row], ops: Iterable[str]) -> list[Row]:
    """``rows``, and of ``known`` what is of another Triton or of other ops than these, which were surveyed whole."""
    rows, ops = list(rows), set(ops)
    versions = {row["triton"] for row in rows}
    kept = {row["digest"]: row for row in known if row["case"].split()[0] not in ops or row["triton"] not in versions}
    return list((kept | {row["digest"]: row for row in rows}).values())


def save(path: Path, rows: Iterable[Row]) -> None:
    """Write a survey, one row a line, in an order of its own, without what did not compile.

    Raises:
        WriteError: the file cannot be written.
    """
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
