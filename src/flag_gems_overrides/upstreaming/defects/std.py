# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/std.py."""

from __future__ import annotations

import torch

from ._defect import check_close, defect, everywhere, sample


@defect(
    "D1",
    title="of elements with a NaN the deviation is 0",
    pytorch="NaN",
    upstream=everywhere("AssertionError"),
)
def d1(device: torch.device) -> None:
    x = torch.tensor([[float("nan"), 1.0, 2.0]], device=device)
    assert torch.std(x, [1]).isnan().all()


@defect(
    "D2",
    title="beside a large mean the deviation is lost",
    pytorch="the deviation",
    upstream=everywhere("AssertionError: 1 of 1"),
)
def d2(device: torch.device) -> None:
    x = sample(4, 4096, device=device) + 1e4
    check_close(torch.std(x), torch.ones((), device=device), 0.1)
