# SPDX-License-Identifier: Apache-2.0
"""The ways of benchmark/partial_sums.py compute the same gradients."""

from __future__ import annotations

import pytest
import scripts
import torch

partial_sums = scripts.load("partial_sums")


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
