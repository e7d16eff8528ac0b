# SPDX-License-Identifier: Apache-2.0
"""Builds and loads the C++ kernel. The build runs in the background, once for a version of PyTorch and of Python."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from types import ModuleType

import torch

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernel.cpp")
OFF = "GEMS_OVERRIDES_CPP"
# torch.utils.cpp_extension would need ninja and setuptools at run time, and imports the latter.
TORCH = Path(torch.__file__).parent
INCLUDES = (TORCH / "include", TORCH / "include" / "torch" / "csrc" / "api" / "include")
# torch's own build of extensions leaves -O3 out: the same code takes 10.8 us instead of 6.7 (H200 machine, softmax).
FLAGS = ("-O3", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
LIBRARIES = ("c10", "torch", "torch_cpu", "torch_python")


class BuildError(RuntimeError):
    """The kernel cannot be built here; the message says why."""


class Extension:
    """The loaded kernel, once there is one, and in words why there is none."""

    def __init__(self) -> None:
        self.module: ModuleType | None = None
        self.state = "not asked for"
        self._started = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Load the kernel if it is built, else build it in a thread of its own. Only the first call does anything."""
        if self._started:
            return
        self._started = True
        if os.environ.get(OFF) == "0":
            self.state = f"switched off by {OFF}=0"
        elif location().exists():
            self._load(location())
        else:
            self.state = "being built"
            logger.info("the C++ host path is being built, for half a minute; until then calls go through Python")
            self._thread = threading.Thread(target=self._build, name="host path build", daemon=True)
            self._thread.start()

    def wait(self) -> ModuleType | None:
        """The kernel when a build that was started has ended; None if there is none."""
        if self._thread is not None:
            self._thread.join()
        return self.module

    def _build(self) -> None:
        try:
            self._load(build())
        except BuildError as error:
            self.state = str(error)
            logger.warning("calls go through Python: %s", error)

    def _load(self, path: Path) -> None:
        try:
            module = load(path)
            use_cuda(module)
        except (ImportError, OSError, AttributeError) as error:
            self.state = f"{path} cannot be loaded: {error}"
            logger.warning("calls go through Python: %s", self.state)
        else:
            self.state = f"in use, from {path}"
            self.module = module


def location() -> Path:
    """Where the built kernel is kept: by source, PyTorch, Python."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flag_gems_overrides"
    text = repr((SOURCE.read_bytes(), FLAGS, torch.__version__, sys.implementation.cache_tag))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return folder / f"torch-{torch.__version__}-{sys.implementation.cache_tag}-{digest}" / "kernel.so"


def compiler() -> str:
    """The C++ compiler: ``CXX``, or the first of the usual names.

    Raises:
        BuildError: there is none.
    """
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else ("g++", "c++", "clang++"):
        found = shutil.which(name)
        if found:
            return found
    raise BuildError(f"no C++ compiler: {chosen or 'g++'} is not found; install one, or name one in CXX")


def build(path: Path | None = None) -> Path:
    """Compile the kernel into ``path``, unless another process has done so meanwhile.

    Raises:
        BuildError: there is no compiler, no folder to write to, or the compiler refuses.
    """
    path = path or location()
    command = [compiler(), *FLAGS, "-DTORCH_EXTENSION_NAME=kernel", str(SOURCE)]
    command += [f"-isystem{folder}" for folder in (*INCLUDES, sysconfig.get_path("include"))]
    command += [f"-L{TORCH / 'lib'}", *(f"-l{name}" for name in LIBRARIES)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path
            unfinished = path.with_suffix(f".{os.getpid()}")
            result = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True)
            (path.parent / "build.log").write_text(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
            if result.returncode:
                raise BuildError(
                    f"{command[0]} failed with status {result.returncode}; see {path.parent / 'build.log'}"
                )
            os.replace(unfinished, path)
    except OSError as error:
        raise BuildError(f"{path}: {error.strerror}; XDG_CACHE_HOME names another folder") from None
    return path


def load(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader("kernel", str(path))
    spec = importlib.util.spec_from_loader("kernel", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def use_cuda(module: ModuleType) -> None:
    """Give the kernel CUDA's driver, and PyTorch's function for the handle of a stream."""
    driver = ctypes.CDLL("libcuda.so.1")
    streams = ctypes.CDLL("libc10_cuda.so")
    module.set_driver(
        *map(
            _address,
            (
                driver.cuLaunchKernelEx,
                driver.cuCtxGetCurrent,
                driver.cuStreamIsCapturing,
                driver.cuGetErrorString,
                # c10::cuda::CUDAStream::stream() const
                streams._ZNK3c104cuda10CUDAStream6streamEv,
            ),
        )
    )


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


EXTENSION = Extension()
