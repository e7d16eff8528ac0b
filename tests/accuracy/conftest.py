# SPDX-License-Identifier: Apache-2.0
"""Every accuracy test runs with poison: an element that no kernel wrote, or that a load left undefined, shows as NaN
(integers: -1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._C._dynamo import guards

from flag_gems_overrides import interpreter


def _poisoned(allocate):
    def allocate_and_fill(*args, **kwargs):
        tensor = allocate(*args, **kwargs)
        if not tensor.is_meta:
            tensor.untyped_storage().fill_(0xFF)
        return tensor

    return allocate_and_fill


@pytest.fixture(autouse=True)
def counters_left_zero(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a GPU the next launch counts with what this one leaves behind."""
    from flag_gems_overrides.ops import _scratch, _softmax

    given = []

    def counters(*args):
        given.append(_scratch_counters(*args))
        return given[-1]

    _scratch_counters = _scratch.counters
    monkeypatch.setattr(_scratch, "counters", counters)
    monkeypatch.setattr(_softmax, "counters", counters)
    yield
    for tensor in given:
        assert not tensor.any(), "counters are not left zero"


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch, "empty", _poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", _poisoned(torch.empty_like))
    monkeypatch.setattr(torch, "empty_strided", _poisoned(torch.empty_strided))
    monkeypatch.setattr(torch.Tensor, "new_empty", _poisoned(torch.Tensor.new_empty))
    monkeypatch.setattr(guards, "_empty_strided_cuda", _poisoned(guards._empty_strided_cuda))
    with interpreter.undefined_lanes():
        yield
