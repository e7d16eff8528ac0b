# SPDX-License-Identifier: Apache-2.0
"""The ways of benchmark/partial_sums.py compute the same gradients."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("partial_sums", ROOT / "benchmark/partial_sums.py")
assert _spec is not None
assert _spec.loader is not None
partial_sums = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(partial_sums)


@pytest.mark.parametrize(("M", "N"), [(1, 1024), (37, 1024), (9, 4096)])
def test_every_way_is_right_each_time(M, N, device):
    inputs = partial_sums.inputs(M, N, device)
    right = partial_sums.exact(*inputs)
    dx = {}
    for way, call in partial_sums.ways(*inputs).items():
        for _ in range(2):
            result = call()
            assert partial_sums.error(result, right) < 2**-8, way
        dx[way] = result[0]
    assert torch.equal(dx["last program"], dx["two launches"])
    assert torch.equal(dx["atomics"], dx["two launches"])
