# SPDX-License-Identifier: Apache-2.0
"""What holds a kernel, by the device's own counters: Nsight Compute around one call of an override.

``python -m flag_gems_overrides.perf.counters "softmax 8192x32768 dim=1 bfloat16" ...`` writes a JSON line for each
kernel that the cases launch, on a machine with a GPU, ``ncu`` in PATH and leave to read counters.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.cases import Case, parse

SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "Occupancy", "LaunchStats")
# Our names, with units, and ncu's columns.
COLUMNS = {
    "us": "gpu__time_duration.sum",
    "dram_percent": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "compute_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_hit_percent": "l1tex__t_sector_hit_rate.pct",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
}
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")


class CountersError(UserError):
    """ncu is not there, or may not read the counters."""


def count(case: Case) -> list[dict[str, Any]]:
    """One row for each kernel of a call, with cold caches: ``COLUMNS``, and for what warps waited, in percent.

    Raises:
        CountersError: with what ncu says.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise CountersError("ncu, of the CUDA toolkit or Nsight Compute, is not in PATH")
    sections = [word for name in SECTIONS for word in ("--section", name)]
    printed = ["--csv", "--page", "raw", "--print-units", "base"]
    # The clock as in benchmarks; ncu would lock it to the base clock.
    profiled = ["--clock-control", "none", "--profile-from-start", "off"]
    child = [sys.executable, "-m", __spec__.name, "--once", case.key]
    result = subprocess.run([ncu, *printed, *profiled, *sections, *child], capture_output=True, text=True)
    rows = list(_rows(result.stdout))
    if result.returncode or not rows:
        raise CountersError(f"{case.key}: ncu: {(result.stdout + result.stderr)[-2000:].strip()}")
    return [{"key": case.key, **row} for row in rows]


def _rows(printed: str) -> Iterator[dict[str, Any]]:
    """From the table among what ncu printed, whose second line has the units."""
    table = list(csv.reader(line for line in printed.splitlines() if line.startswith('"')))
    if len(table) < 3:
        return
    names = table[0]
    for values in table[2:]:
        row = dict(zip(names, values, strict=True))
        counted: dict[str, Any] = {"kernel": row["Kernel Name"].split("(")[0], "grid": row.get("Grid Size")}
        for name, column in COLUMNS.items():
            value = _number(row.get(column, ""))
            counted[name] = value / 1000 if name == "us" and value is not None else value
        stalls = {match[1]: _number(value) or 0.0 for name, value in row.items() if (match := _STALL.fullmatch(name))}
        total = sum(stalls.values())
        longest = sorted(stalls, key=lambda name: -stalls[name])[:5]
        counted["waits_percent"] = {name: round(100 * stalls[name] / total, 1) for name in longest} if total else {}
        yield counted


def _number(text: str) -> float | None:
    try:
        return round(float(text.replace(",", "")), 2)
    except ValueError:
        return None


def _once(case: Case) -> None:
    """A call that only prepares, and one between the marks that ncu waits for."""
    import torch

    from flag_gems_overrides.perf import op_inputs

    override = op_inputs.override(case.op)
    arguments = op_inputs.arguments(case, "cuda")
    with torch.no_grad():
        override(*arguments)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        override(*arguments)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    if sys.argv[1] == "--once":
        _once(parse(sys.argv[2]))
    else:
        for key in sys.argv[1:]:
            for line in count(parse(key)):
                print(json.dumps(line), flush=True)
