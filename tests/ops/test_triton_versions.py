# SPDX-License-Identifier: Apache-2.0
"""How kernels are launched, by what this Triton's launchers look like."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.backends.nvidia.driver import CudaLauncher
from triton.compiler import CompiledKernel

from flag_gems_overrides.ops.launch import prepared
from flag_gems_overrides.ops.launch.prepared import Launch
from flag_gems_overrides.ops.launch.triton_versions import launcher


class OfOneSignature:
    """As in Triton 3.6: its ``launch`` takes what the kernel takes."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid, launch_pdl = True, False

    def launch(self, *args: Any) -> None: ...

    def __call__(self, gridX, gridY, gridZ, stream, function, *args): ...


class OfAnySignature:
    def __call__(
        self,
        gridX,
        gridY,
        gridZ,
        stream,
        function,
        kernel_metadata,
        launch_metadata,
        launch_enter_hook,
        launch_exit_hook,
        *args,
    ): ...


class Unknown:
    def __call__(self, grid, stream, function, *args): ...


HOOKS = ("metadata", None, None, None)


def kernel(run: Any) -> Any:
    return SimpleNamespace(run=run, function="function", packed_metadata="metadata")


def test_a_function_of_one_signature_is_called_directly():
    run = OfOneSignature()
    assert launcher(kernel(run)) == (run.launch, ("function", True, False, None, None, *HOOKS))


@pytest.mark.parametrize("scratch", ["global_scratch_size", "profile_scratch_size"])
def test_a_kernel_that_needs_scratch_memory_gets_it_from_triton(scratch):
    run = OfOneSignature()
    setattr(run, scratch, 16)
    assert launcher(kernel(run)) == (run, ("function", *HOOKS))


def test_one_of_any_signature_is_called_as_triton_does():
    run = OfAnySignature()
    assert launcher(kernel(run)) == (run, ("function", *HOOKS))


def test_another_is_not_called():
    assert launcher(kernel(Unknown())) is None


def test_with_another_every_launch_goes_through_the_entry():
    compiled = CompiledKernel.__new__(CompiledKernel)
    compiled.module, compiled._run = None, Unknown()
    launches = []

    class Entry:
        def run(self, *args: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
            launches.append(args)
            return compiled, {}

    launch = Launch(Entry(), 0, (1,), (), {})  # type: ignore[arg-type]
    launch(torch.zeros(4))
    launch(torch.zeros(4))
    assert len(launches) == 2


def test_a_kernel_is_launched_for_the_alignment_it_was_compiled_for(monkeypatch):
    streams = SimpleNamespace(active=SimpleNamespace(get_current_stream=lambda device: 0))
    monkeypatch.setattr(prepared, "driver", streams)
    monkeypatch.setattr(prepared, "current_device", lambda: 0)
    launches: list[str] = []

    class Entry:
        """Triton: a kernel of its own for each alignment."""

        jit_function = SimpleNamespace(params=[])

        def run(self, *tensors: torch.Tensor, **options: Any) -> tuple[Any, dict[str, Any]]:
            name = "".join("u" if tensor.data_ptr() % 16 else "a" for tensor in tensors)
            launches.append(f"{name} by triton")
            made = CompiledKernel.__new__(CompiledKernel)
            made.module, made.function, made.packed_metadata = None, name, "metadata"
            made._run = Run()
            return made, {}

    class Run(OfAnySignature):
        def __call__(
            self,
            gridX,
            gridY,
            gridZ,
            stream,
            function,
            kernel_metadata,
            launch_metadata,
            launch_enter_hook,
            launch_exit_hook,
            *args,
        ):
            launches.append(function)

    launch = Launch(Entry(), 0, (1,), (), {})  # type: ignore[arg-type]
    aligned = torch.zeros(16)
    unaligned = torch.zeros(17)[1:]
    for tensors in [(aligned, aligned), (unaligned, aligned), (aligned, unaligned)] * 2:
        launch(*tensors)
    assert launches == ["aa by triton", "ua by triton", "au by triton", "aa", "ua", "au"]
    assert launch.compiled((unaligned, aligned)).function == "ua"
    assert launch.compiled((unaligned, unaligned)) is None


def test_this_triton_is_known():
    run = CudaLauncher.__new__(CudaLauncher)
    run.global_scratch_size = run.profile_scratch_size = 0
    run.launch, run.launch_cooperative_grid, run.launch_pdl = print, False, False
    assert launcher(kernel(run)) is not None
