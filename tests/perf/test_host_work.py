# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch

from flag_gems_overrides.perf.host_work import HostWork

X = torch.ones(4, 8)
SIZE = 4 * 8 * 4


@pytest.mark.parametrize(
    ("work", "loaded", "stored", "launches", "allocated"),
    [
        (lambda: torch.empty(4, 8), 0, 0, 0, [SIZE]),
        (lambda: torch.empty_like(X), 0, 0, 0, [SIZE]),
        (lambda: X.new_empty(2), 0, 0, 0, [8]),
        (lambda: torch.zeros(4, 8), 0, SIZE, 1, [SIZE]),
        (lambda: X.t(), 0, 0, 0, []),
        (lambda: X.view(32)[3:], 0, 0, 0, []),
        (lambda: X.contiguous(), 0, 0, 0, []),
        (lambda: X.t().contiguous(), SIZE, SIZE, 1, [SIZE]),
        (lambda: X.to(torch.float16), SIZE, SIZE // 2, 1, [SIZE // 2]),
        (lambda: X.sum(0), SIZE, 32, 1, [32]),
        (lambda: X.mul_(1), SIZE, SIZE, 1, []),
        (lambda: X.fill_(1), 0, SIZE, 1, []),
        (lambda: X.copy_(X.clone()), 2 * SIZE, 2 * SIZE, 2, [SIZE]),
        (lambda: torch.max(X, 1), SIZE, 4 * (4 + 8), 1, [16, 32]),
        (lambda: X.expand(3, 4, 8), 0, 0, 0, []),
        (lambda: torch.empty(4, 8, device="meta").t().contiguous(), 0, 0, 0, []),
    ],
)
def test_data_that_moves_is_counted_and_views_are_not(work, loaded, stored, launches, allocated):
    with HostWork() as counted:
        work()
    assert (counted.loaded, counted.stored, counted.launches) == (loaded, stored, launches)
    assert (counted.allocations, counted.allocated) == (len(allocated), sum(allocated))
