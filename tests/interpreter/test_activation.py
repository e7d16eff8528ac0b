# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import flag_gems
import pytest
import torch
import triton
import triton.language as tl
from flag_gems.runtime import torch_device_fn
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError

from flag_gems_overrides import interpreter

COLUMNS = [[0.5, 0.5], [0.5, 0.5]]
# What flag_gems does when a seam is missing.
ERRORS = {
    "after_flag_gems": r"RuntimeError: flag_gems has been imported already.*before the first `import flag_gems`",
    "after_compiling_triton": r"RuntimeError: triton has been imported already.*before the first `import triton`",
    "without_the_vendors_module": r"ModuleNotFoundError: import of _nvidia halted",
    "without_the_device": r"AttributeError: '_Driver' object has no attribute 'utils'",  # of a driver
    "without_libdevice": r"AttributeError: module 'triton.language.math' has no attribute '(pow|asin)'",
    "without_jit_functions": r"AttributeError: 'function' object has no attribute 'fn'",
}


def test_activation_and_what_each_seam_is_for(tmp_path: Path):
    """In one process that forks for each, for starting one takes seconds."""
    process = subprocess.run(
        [sys.executable, Path(__file__).with_name("activations.py"), tmp_path],
        env={
            name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "FLAGGEMS_CACHE_DIR")
        },
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    outcomes = json.loads(process.stdout)

    whole = outcomes.pop("whole")
    added = dict(whole.pop("environment"))
    assert added.pop("TRITON_INTERPRET") == "1"
    assert set(added) <= {"FLAGGEMS_SOURCE_DIR"}  # flag_gems' own
    assert whole == {
        "imported by the package": [],
        "torch.cpu is back": True,
        "device": "cpu",
        "vendors": ["nvidia"],
        "softmax": COLUMNS,
        "home": [],
    }
    bare = outcomes.pop("without_the_environment")
    assert (bare["home"], bare["softmax"]) == ([".flaggems"], COLUMNS)
    assert len(bare["vendors"]) > 1
    assert outcomes.keys() == ERRORS.keys()
    for name, error in ERRORS.items():
        assert re.match(error, outcomes[name], re.DOTALL), f"{name}: {outcomes[name]}"


def test_heuristics_ask_torch_cuda(monkeypatch: pytest.MonkeyPatch):
    flag_gems.softmax(torch.ones(2, 3), 0)
    monkeypatch.setattr(sys.modules["_nvidia.heuristics_config_utils"], "torch", torch)
    with pytest.raises((AssertionError, RuntimeError), match=r"Torch not compiled with CUDA enabled|no NVIDIA driver"):
        flag_gems.softmax(torch.ones(2, 4), 0)


def test_kernels_ask_a_dtype_for_its_value(monkeypatch: pytest.MonkeyPatch):
    flag_gems.max(torch.ones(2, 3))
    monkeypatch.delattr(tl.dtype, "value")
    with pytest.raises(InterpreterError, match="'dtype' object has no attribute 'value'"):
        flag_gems.max(torch.ones(2, 3))


def test_tuners_ask_a_driver_for_the_time(monkeypatch: pytest.MonkeyPatch):
    kernel = triton.autotune([triton.Config({"BLOCK": 2}), triton.Config({"BLOCK": 4})], key=["n"])(_ones)
    y = torch.zeros(4)
    kernel[lambda meta: (4 // meta["BLOCK"],)](y, 4)
    assert y.all()
    spec = importlib.util.find_spec("triton.runtime.autotuner")
    stock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stock)
    monkeypatch.setattr(Autotuner, "_bench", stock.Autotuner._bench)
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        kernel[lambda meta: (4 // meta["BLOCK"],)](y, 5)


@triton.jit
def _ones(y_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1)


def test_the_device():
    properties = torch_device_fn.get_device_properties(0)
    assert torch_device_fn.device_count() == 1
    assert torch_device_fn.current_device() == 0
    assert torch_device_fn.get_device_name() == properties.name
    assert torch_device_fn.get_device_capability() == (properties.major, properties.minor) == (9, 0)
    assert properties.multi_processor_count == 4
    for name in (
        "total_memory",
        "L2_cache_size",
        "regs_per_multiprocessor",
        "max_threads_per_multi_processor",
        "warp_size",
    ):
        assert getattr(properties, name) > 0
    block, opt_in, sm = (
        properties.shared_memory_per_block,
        properties.shared_memory_per_block_optin,
        properties.shared_memory_per_multiprocessor,
    )
    assert 0 < block < opt_in < sm
    with torch_device_fn.device(torch.device("cpu")), torch_device_fn.device(0):
        torch_device_fn.set_device(0)
    torch_device_fn.synchronize()
    assert torch_device_fn.current_stream() is not None
    assert torch_device_fn.is_available()


def test_again_changes_nothing():
    assert interpreter.is_active()
    cpu = torch.cpu
    interpreter.activate()
    assert torch.cpu is cpu


def test_what_torch_cpu_has_is_still_there():
    assert torch_device_fn.amp is torch.cpu.amp
    with pytest.raises(AttributeError):
        _ = torch_device_fn.no_such_thing
