# SPDX-License-Identifier: Apache-2.0
"""Kernels are launched through flag_gems' and Triton's own wrappers, as they are."""

from __future__ import annotations

import inspect

import pytest
import torch
import triton
import triton.language as tl
from flag_gems.utils.libentry import LibEntry, libentry, libtuner

from flag_gems_overrides import interpreter


@triton.jit
def _count_up(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(y_ptr + i, mask=i < n) + 1, mask=i < n)


def _counted(launch) -> list[float]:
    y = torch.zeros(10)
    launch(y)
    return y.unique().tolist()


def _launches(kernel, **options):
    return lambda y: kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](y, 10, **options)


def test_grids():
    assert _counted(lambda y: _count_up[(3,)](y, 10, BLOCK=4)) == [1]
    assert _counted(_launches(_count_up, BLOCK=4)) == [1]
    assert _counted(lambda y: _count_up[(0,)](y, 10, BLOCK=4)) == [0]


def test_a_grid_is_computed_from_plain_numbers():
    seen = {}
    _count_up[lambda meta: seen.update(meta) or (1,)](torch.zeros(4), 4, BLOCK=4)
    assert type(seen["n"]) is type(seen["BLOCK"]) is int


@pytest.mark.parametrize("grid", [(1, 65536), (1, 1, 65536), (2**31,)])
def test_a_grid_that_cuda_does_not_have(grid: tuple[int, ...]):
    with pytest.raises(RuntimeError, match="CUDA has no grid"):
        _count_up[grid](torch.zeros(4), 4, BLOCK=4)


@triton.jit
def _three_axes(y_ptr):
    i = (tl.program_id(0) * 3 + tl.program_id(1)) * 4 + tl.program_id(2)
    tl.store(y_ptr + i, tl.num_programs(0) * 100 + tl.num_programs(1) * 10 + tl.num_programs(2))


def test_three_axes():
    y = torch.zeros(24)
    _three_axes[(2, 3, 4)](y)
    assert y.tolist() == [234] * 24


def test_run_returns_what_launches_again():
    y = torch.zeros(8)
    compiled = _count_up.run(y, 8, grid=(2,), warmup=False, BLOCK=4, num_warps=8)
    compiled[(2, 1, 1)](y, 8, 4)
    assert y.tolist() == [2] * 8


def test_warmup_launches_nothing():
    y = torch.zeros(8)
    compiled = _count_up.run(y, 8, grid=(2,), warmup=True, BLOCK=4)
    assert not y.any()
    compiled[(2,)](y, 8, 4)
    assert y.all()


def test_the_second_launch_has_the_options_of_the_first():
    with interpreter.observe() as launches:
        compiled = _count_up.run(torch.zeros(4), 4, grid=(1,), warmup=False, BLOCK=4, num_warps=2)
        compiled[(1,)](torch.zeros(4), 4, 4)
    assert [launch.num_warps for launch in launches] == [2, 2]


def test_hooks_before_a_run():
    @triton.jit
    def kernel(y_ptr):
        tl.store(y_ptr, 1)

    seen = []
    kernel.add_pre_run_hook(lambda *args, **options: seen.append((args, options)))
    y = torch.zeros(1)
    kernel[(1,)](y, num_warps=2)
    assert seen == [((y,), {"num_warps": 2})]


def test_libentry():
    entry = libentry()(_count_up)
    for _ in range(3):
        assert _counted(_launches(entry, BLOCK=4)) == [1]
    assert [len(cache) for cache in entry.kernel_cache] == [1]


def test_a_subclass_of_libentry():
    class Entry(LibEntry):
        def run(self, *args, **kwargs):
            return self.jit_function.run(*args, **kwargs), {}

    assert _counted(_launches(Entry(_count_up), BLOCK=4)) == [1]


CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((8, 4), (4, 2))]


def test_autotune_takes_the_first_configuration():
    kernel = triton.autotune(configs=CONFIGS, key=["n"])(_count_up)
    assert _counted(_launches(kernel)) == [1]
    assert kernel.best_config is CONFIGS[0]


@pytest.mark.filterwarnings("ignore:warmup, rep, and use_cuda_graph:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This declarative base already contains a class")  # flag_gems 4.2.0
def test_libtuner_inside_libentry():
    entry = libentry()(libtuner(configs=CONFIGS, key=["n"])(_count_up))
    for _ in range(3):
        assert _counted(_launches(entry)) == [1]


def test_heuristics():
    kernel = triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["n"])})(_count_up)
    for _ in range(2):
        assert _counted(lambda y: libentry()(kernel)[(1,)](y, 10)) == [1]


def test_triton_language_is_not_scanned_again(monkeypatch: pytest.MonkeyPatch):
    """The stock interpreter does it at every launch and call of a device function: half of all time."""

    def scan(*_):
        raise AssertionError("scanned")

    monkeypatch.setattr(inspect, "getmembers", scan)
    assert _counted(_launches(_count_up, BLOCK=4)) == [1]
