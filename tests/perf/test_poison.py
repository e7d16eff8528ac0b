# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch
from torch._C._dynamo import guards

from flag_gems_overrides.perf.host_work import HostWork
from flag_gems_overrides.perf.poison import poisoned

ALLOCATORS = {
    "empty": lambda like: torch.empty(like.shape, dtype=like.dtype, device=like.device),
    "empty_like": lambda like: torch.empty_like(like),  # looked up when it is called
    "empty_strided": lambda like: torch.empty_strided((2, 3), (1, 4), dtype=like.dtype, device=like.device),
    "new_empty": lambda like: like.new_empty(2, 3),
    "new_empty_strided": lambda like: like.new_empty_strided((2, 3), (3, 1)),
    "Allocation": lambda like: (
        guards._empty_strided_cuda((2, 3), (3, 1), like.dtype) if like.is_cuda else torch.empty(2, 3, dtype=like.dtype)
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8])
@pytest.mark.parametrize("allocate", ALLOCATORS.values(), ids=ALLOCATORS)
def test_what_nobody_wrote_is_nan_or_minus_one(allocate, dtype, device):
    like = torch.zeros(2, 3, dtype=dtype, device=device)
    with poisoned():
        tensor = allocate(like)
    assert bool((tensor.isnan() if dtype.is_floating_point else tensor == -1).all())


def test_it_ends_with_the_block():
    before = torch.empty, torch.Tensor.new_empty, guards._empty_strided_cuda

    def fail():
        assert torch.empty is not before[0]
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"), poisoned():
        fail()
    assert (torch.empty, torch.Tensor.new_empty, guards._empty_strided_cuda) == before


def test_it_is_no_work_of_the_function_that_is_counted():
    with HostWork() as plain:
        torch.empty(3, 4)
    with poisoned(), HostWork() as host:
        torch.empty(3, 4)
    assert (host.launches, host.stored, host.allocations) == (plain.launches, plain.stored, plain.allocations)


def test_tensors_without_memory_stay_so():
    with poisoned():
        assert torch.empty(3, device="meta").is_meta
