# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ rungs: compiled by nvcc into a shared library each, and called through ctypes.

A rung's C function ``run`` takes the pointers of the input tensors, that of the result (which has the first input's
shape), that shape as two integers M and N (all dimensions but the last, and the last), the inputs that are no tensors
as integers, and the stream. It launches and returns ``cudaGetLastError()``. PyTorch's headers are not needed, so that
compiling one takes two seconds.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from flag_gems_overrides.perf.ladder import Ladder, LadderError

NO_NVCC = "nvcc is not installed (it comes with the CUDA toolkit; set CUDA_HOME or add it to PATH)"


@functools.cache
def nvcc() -> str | None:
    """The compiler, from CUDA_HOME or PATH."""
    home = os.environ.get("CUDA_HOME")
    return shutil.which(os.path.join(home, "bin", "nvcc")) if home else shutil.which("nvcc")


def version() -> str:
    """The compiler's version, as in "13.0.88"; "not installed" without one."""
    compiler = nvcc()
    if compiler is None:
        return "not installed"
    text = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release [\d.]+, V([\d.]+)", text)
    return found[1] if found else "unknown"


def build(sources: Iterable[Path]) -> dict[Path, Path]:
    """Compile every source that is not in the cache, at the same time; gives the library of each.

    Raises:
        LadderError: there is no nvcc, or it found an error.
    """
    chosen = list(sources)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(chosen, pool.map(_library, chosen), strict=True))


def function(ladder: Ladder, rung: str) -> Callable[..., torch.Tensor]:
    """A rung as a function of tensors on the current GPU."""
    library = ctypes.CDLL(str(build([ladder.source(rung)])[ladder.source(rung)]))
    entry = library.run
    entry.restype = ctypes.c_int

    def run(x: torch.Tensor, *others: Any) -> torch.Tensor:
        y = torch.empty_like(x)
        tensors = [x, *(o for o in others if isinstance(o, torch.Tensor)), y]
        numbers = [x.numel() // x.shape[-1], x.shape[-1], *(o for o in others if not isinstance(o, torch.Tensor))]
        stream = torch.cuda.current_stream(x.device).cuda_stream
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
        status = entry(*pointers, *map(ctypes.c_longlong, numbers), ctypes.c_void_p(stream))
        if status:
            raise LadderError(f"{ladder.name} {rung}: CUDA error {status} at the launch for {tuple(x.shape)}")
        return y

    return run


def _library(source: Path) -> Path:
    compiler = nvcc()
    if compiler is None:
        raise LadderError(NO_NVCC)
    command = [compiler, "-shared", "-Xcompiler", "-fPIC", "-O3", "-lineinfo", f"-arch={_architecture()}"]
    headers = b"".join(path.read_bytes() for path in sorted(source.parent.parent.glob("*.cuh")))
    digest = hashlib.sha256(" ".join(command).encode() + headers + source.read_bytes()).hexdigest()[:16]
    library = _cache() / f"{source.parent.name}-{source.stem}-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        part = library.with_suffix(f".{os.getpid()}")
        done = subprocess.run([*command, "-o", part, source], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LadderError(f"{source}: nvcc: {(done.stderr or done.stdout).strip()[:2000]}")
        part.replace(library)
    return library


def _architecture() -> str:
    """Of the GPU that is here; without one, the one that the records were measured on."""
    if not torch.cuda.is_available():
        return "sm_90"
    return "sm_{}{}".format(*torch.cuda.get_device_capability())


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gems-overrides" / "ladders"
