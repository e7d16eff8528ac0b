# SPDX-License-Identifier: Apache-2.0
"""Compiles for a GPU that is not here every kernel that given cases launch on it; :mod:`resources` runs it.

It has a process of its own because Triton either compiles or interprets, for the life of a process. The overrides are
called on tensors without data and with the limits of the GPU, so that they plan as they would there; their launches
are caught and the kernels compiled, through Triton's own launcher, with exactly the specialization of that launch.

Reads JSON {"gpu", "cases", "known", "folder", "parameters", "offset", "sass"} from standard input, writes a JSON line
for each configuration of a kernel, and into the folder, if there is one, what the compiler made of it at each stage.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import triton
from torch.utils._pytree import tree_map_only
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from flag_gems_overrides.ops.launch.triton_versions import COMPILE_OPTIONS
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.perf.devices import Gpu, occupancy

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class _Driver:
    """What Triton's launcher asks of a driver before it compiles."""

    def __init__(self, arch: int) -> None:
        self._arch = arch

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._arch, 32)


def main() -> None:
    task = json.load(sys.stdin)
    gpu = Gpu(*task["gpu"])
    from flag_gems_overrides.interpreter import vendor

    vendor.import_flag_gems(extra_name="cuda")
    # Not before: from 5.3 on flag_gems asks the active driver, while it is imported, how to measure.
    driver.set_active(_Driver(gpu.arch))
    known = {row["digest"]: row for row in task["known"]}
    folder = Path(task["folder"]) if task["folder"] else None
    for digest, launch in _launches(task["cases"], gpu, task["parameters"], task["offset"]).items():
        row = known.get(digest) or _compiled(digest, launch, gpu, folder, task["sass"])
        print(json.dumps({**row, "case": launch["case"]}), flush=True)


def _launches(cases: list[str], gpu: Gpu, parameters: bool = True, offset: int = 0) -> dict[str, dict[str, Any]]:
    """The launches of the overrides, by a digest of all that the compiler sees."""
    from flag_gems_overrides.ops.launch import devices
    from flag_gems_overrides.ops.launch.allocation import Allocation
    from flag_gems_overrides.ops.launch.prepared import Entry
    from flag_gems_overrides.perf import op_inputs

    limits = devices.Limits(
        gpu.sm_count,
        gpu.l2_bytes,
        gpu.registers_per_sm,
        gpu.threads_per_sm,
        gpu.shared_bytes,
        (gpu.arch // 10, gpu.arch % 10),
    )
    devices.limits = lambda device: limits  # type: ignore[assignment]
    launches: dict[str, dict[str, Any]] = {}

    def catch(self: Entry, *args: Any, grid: Any, **options: Any) -> tuple[None, dict]:
        launch = {"kernel": self.fn, "args": args, "options": options, "case": case}
        launches.setdefault(_digest(launch, gpu), launch)
        return None, {}

    Entry.run = catch  # type: ignore[method-assign]
    # A gradient has to be where its input is.
    Allocation.__call__ = lambda self: torch.empty_strided(  # type: ignore[method-assign]
        self.shape, self.stride, dtype=self.dtype, device="meta"
    )
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        for case in cases:
            op = parse(case).op
            arguments = tree_map_only(
                torch.Tensor, lambda x: _moved(x, offset), op_inputs.arguments(parse(case), "meta")
            )
            given = arguments if parameters else op_inputs.without_parameters(op, arguments)
            op_inputs.override(op)(*(given or arguments))
    return launches


def _moved(x: torch.Tensor, offset: int) -> torch.Tensor:
    """One like ``x`` that begins ``offset`` elements after its memory does."""
    return torch.empty(offset + x.numel(), dtype=x.dtype, device=x.device)[offset:].view(x.shape)


def _digest(launch: dict[str, Any], gpu: Gpu) -> str:
    def seen(value: Any) -> str:
        """Triton specializes on types, on alignment, and on integers that are 1 or multiples of 16."""
        if isinstance(value, torch.Tensor):
            return f"{value.dtype}{' unaligned' if value.data_ptr() % 16 else ''}"
        return f"{type(value).__name__} {value == 1} {value % 16 == 0}" if isinstance(value, int) else str(type(value))

    what = [
        launch["kernel"].cache_key,
        triton.__version__,
        gpu.arch,
        *map(seen, launch["args"]),
        *sorted(_plain(launch["options"]).items()),
        # Of functions among the options, and what they call.
        *(value.cache_key for value in launch["options"].values() if hasattr(value, "cache_key")),
    ]
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: infinities, dtypes and functions by name."""
    return {
        name: value if _is_plain(value) else getattr(value, "__name__", str(value)) for name, value in options.items()
    }


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))


def _compiled(digest: str, launch: dict[str, Any], gpu: Gpu, folder: Path | None, sass: bool) -> dict[str, Any]:
    row = {
        "digest": digest,
        "kernel": launch["kernel"].__name__,
        "arch": gpu.arch,
        "triton": triton.__version__,
        "options": _plain(launch["options"]),
    }
    try:
        kernel = launch["kernel"].run(*launch["args"], grid=(1,), warmup=True, **COMPILE_OPTIONS, **launch["options"])
    except Exception as error:
        return {**row, "error": f"{type(error).__name__}: {error}"[-1000:]}
    if folder:
        _write_stages(folder / f"{row['kernel']}-{digest}", kernel.asm, sass)
    registers, stack = _resources(kernel.asm["cubin"])
    shared = kernel.metadata.shared
    return {
        **row,
        "registers": registers,
        "spilled_bytes": stack,
        "shared_bytes": shared,
        "occupancy": round(occupancy(gpu, kernel.metadata.num_warps, registers, shared), 3),
    }


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers per thread, and bytes of its stack: what the kernel spills, for Triton puts nothing else there."""
    text = _cuobjdump("-res-usage", cubin)
    match = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if match is None:
        raise RuntimeError(f"cuobjdump said nothing of registers:\n{text}")
    return int(match[1]), int(match[2])


def _write_stages(stem: Path, stages: Mapping[str, Any], sass: bool) -> None:
    """TTIR, TTGIR, LLVM IR, PTX and, if it is asked for, SASS as text."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    for stage, text in stages.items():
        if isinstance(text, str):
            stem.with_suffix(f".{stage}").write_text(text)
    if sass:
        stem.with_suffix(".sass").write_text(_cuobjdump("-sass", stages["cubin"]))


def _cuobjdump(option: str, cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [os.fspath(_TOOLS / "cuobjdump"), option, os.fspath(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout + result.stderr


if __name__ == "__main__":
    main()
