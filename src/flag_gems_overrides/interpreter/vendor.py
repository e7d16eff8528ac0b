# SPDX-License-Identifier: Apache-2.0
"""Import flag_gems on a machine without a device, as if it had found a GPU called "cpu", an NVIDIA one by default."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from flag_gems_overrides.interpreter.device import DeviceModule
from flag_gems_overrides.interpreter.libdevice import EXTRA_NAME


def import_flag_gems(extra_name: str = EXTRA_NAME, vendor: str = "nvidia") -> None:
    """Import it, with Triton's math library of this name: "cuda" where kernels are to be compiled, not interpreted."""
    import torch
    from triton.runtime import driver

    device = DeviceModule(torch.cpu)
    driver.set_active(driver._active or _Driver())
    # GEMS_VENDOR: flag_gems accepts vendors of its own enumeration only, and the one with a CPU is not in there.
    # FLAGGEMS_DB_URL: its tuner would keep what it "measured" in a file in the home directory.
    with (
        _environment(GEMS_VENDOR=vendor, FLAGGEMS_DB_URL="sqlite://"),
        _attribute(torch, "cpu", device),
    ):
        # flag_gems evaluates `torch.<device name>` once, while it is being imported, and keeps the module.
        sys.modules[f"_{vendor}"] = _vendor(vendor, extra_name)
        importlib.import_module("flag_gems")
    # These heuristics ask torch.cuda, not flag_gems' own device module, for the number of SMs.
    for name in dict.fromkeys((vendor, "nvidia")):
        heuristics: Any = sys.modules.get(f"_{name}.heuristics_config_utils")
        if heuristics is not None:
            heuristics.torch = _TorchWithDevice(torch, device)


def _vendor(name: str, extra_name: str) -> ModuleType:
    """flag_gems' back end under its own name, so that its configurations and heuristics are the GPU's, but with the
    device "cpu" and, having no ARCH_MAP, without operators of its own for one architecture."""
    vendor: Any = ModuleType(f"_{name}")
    package = importlib.util.find_spec("flag_gems")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'flag_gems'", name="flag_gems")
    # Its parts, such as _nvidia.ops, are imported from here.
    vendor.__path__ = [str(Path(package.origin).parent / "runtime" / "backend" / f"_{name}")]
    vendor.vendor_info = SimpleNamespace(
        vendor_name=name,
        device_name="cpu",
        dispatch_key="CPU",
        device_query_cmd="true",
        triton_extra_name=extra_name,
        # From 5.3 on it asks for these too.
        trademark=None,
        fp64_enabled=True,
        bf16_enabled=True,
        int64_enabled=True,
        tle_enabled=False,
    )
    vendor.CUSTOMIZED_UNUSED_OPS = ("add", "cos", "cumsum")
    return vendor


class _Driver:
    """What a tuner of flag_gems, from 5.3 on, asks how to measure, and never does (see language.patch)."""

    __module__ = "triton.backends.nvidia.driver"  # by this the tuner knows that there are CUDA graphs, or it warns

    def get_benchmarker(self) -> None:
        return None


class _TorchWithDevice(ModuleType):
    def __init__(self, torch: ModuleType, device: DeviceModule) -> None:
        super().__init__("torch")
        self._torch = torch
        self.cuda = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_torch"], name)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _attribute(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
