# SPDX-License-Identifier: Apache-2.0
"""Opens up the rungs of a ladder on a GPU: what each one launches and what the compiler made of it.

In the folder, for each rung at its target shape: ``LADDER/RUNG.txt`` (the profiler's table), ``LADDER/RUNG.ptx`` and
``.sass``, and a line of ``rungs.jsonl``: its kernels with grid, registers, shared memory and occupancy, and how many
loads and stores of which width its PTX has.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import triton
from torch.profiler import ProfilerActivity, profile, record_function
from triton.runtime import JITFunction

from flag_gems_overrides.perf import devices, ladder_cuda
from flag_gems_overrides.perf.files import write as write_text
from flag_gems_overrides.perf.ladder import Ladder, Shape
from flag_gems_overrides.perf.ladder_climb import runnable
from flag_gems_overrides.perf.launches import captured

CALLS = 5
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_ACCESS = re.compile(r"\b(ld|st)\.global[\w.:]*?(\.v\d)?(\.[bfsu]\d+)\b")


def write(folder: Path, chosen: Mapping[Ladder, list[str]]) -> None:
    """Profile and disassemble the rungs; a line of ``rungs.jsonl`` for each."""
    lines = []
    for ladder, rungs in chosen.items():
        for rung in rungs:
            shape = ladder.rungs[rung].target or ladder.target
            try:
                call = runnable(ladder, rung, shape)
                found = {"absent": call} if isinstance(call, str) else _opened(folder, ladder, rung, call, shape)
            except Exception as error:  # whatever a compiler may raise: the other rungs are opened
                found = {"absent": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
            lines.append({"ladder": ladder.name, "rung": rung, "shape": shape} | found)
    write_text(folder / "rungs.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))


def _opened(folder: Path, ladder: Ladder, rung: str, call: Callable[..., Any], shape: Shape) -> dict[str, Any]:
    inputs = ladder.inputs(shape, "cuda")
    stem = folder / ladder.name / rung
    with torch.no_grad():
        kernels, table = _profiled(f"{ladder.name} {rung}", call, inputs)
        write_text(stem.with_suffix(".txt"), table)
        is_cuda = ladder.source(rung).suffix == ".cu"
        code = dict(_cuda_code(ladder, rung) if is_cuda else _triton_code(ladder, rung, call, inputs))
    for suffix, text in code.items():
        write_text(stem.with_suffix(f".{suffix}"), text)
    return {"kernels": kernels, "accesses": accesses(code.get("ptx", ""))}


def accesses(ptx: str) -> dict[str, int]:
    """Global loads and stores of a PTX text by their width: {"ld.v4.b32": 2, ...}; "cp.async" goes to shared memory."""
    found = Counter(f"{m[1]}{m[2] or ''}{m[3]}" for m in _ACCESS.finditer(ptx))
    found["cp.async"] = len(re.findall(r"\bcp\.async\.c[ag]\b", ptx))
    return dict(sorted((+found).items()))


def _profiled(name: str, call: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[list[dict[str, Any]], str]:
    """The kernels of one call, and the profiler's table of several. Each call is an NVTX range of the rung's name."""
    call(*inputs)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(CALLS):
            with torch.cuda.nvtx.range(name), record_function(name):
                call(*inputs)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    launches = [event for event in events if event.get("cat") == "kernel"]
    table = profiler.key_averages().table(sort_by="self_device_time_total", row_limit=15)
    return [_kernel(event) for event in launches[-(len(launches) // CALLS) :]], str(table)


def _kernel(event: Mapping[str, Any]) -> dict[str, Any]:
    found = event["args"]
    threads = found["block"][0] * found["block"][1] * found["block"][2]
    registers, shared = found["registers per thread"], found["shared memory"]
    return {
        "kernel": event["name"][:120],
        "grid": found["grid"],
        "threads": threads,
        "registers": registers,
        "shared_bytes": shared,
        "occupancy": round(devices.occupancy(devices.here(), -(-threads // 32), registers, shared), 3),
        "us": event["dur"],
    }


def _triton_code(
    ladder: Ladder, rung: str, call: Callable[..., Any], inputs: tuple[Any, ...]
) -> Iterator[tuple[str, str]]:
    """PTX and SASS of the Triton kernels that a rung launches."""
    functions = [value for value in vars(ladder.module(rung)).values() if isinstance(value, JITFunction)]
    for function in functions:
        function.device_caches.clear()
    with captured() as launches:
        call(*inputs)
    compiled = [launch.compiled for launch in launches]
    for function in functions:
        compiled += [kernel for caches in function.device_caches.values() for kernel in caches[0].values()]
    if compiled:
        yield "ptx", "\n".join(kernel.asm["ptx"] for kernel in compiled)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.cubin"
            yield "sass", "\n".join(_dumped("-sass", path, kernel.asm["cubin"]) for kernel in compiled)


def _cuda_code(ladder: Ladder, rung: str) -> Iterator[tuple[str, str]]:
    source = ladder.source(rung)
    library = ladder_cuda.build([source])[source]
    for what in ("ptx", "sass"):
        yield what, _dumped(f"-{what}", library)


def _dumped(option: str, path: Path, binary: bytes | None = None) -> str:
    if binary is not None:
        path.write_bytes(binary)
    done = subprocess.run([_TOOLS / "cuobjdump", option, path], capture_output=True, text=True, check=True)
    return done.stdout
