# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/var_mean.py."""

from __future__ import annotations

import torch

from ._defect import FIXED, Seen, check_close, check_value, defect, everywhere, sample


@defect(
    "J1",
    title="beside a large mean the variance is lost, or negative",
    pytorch="the variance",
    upstream={**everywhere("AssertionError: 4 of 4"), "5.3.1": Seen(FIXED, FIXED)},
)
def j1(device: torch.device) -> None:
    x = sample(4, 4096, device=device) + 1e4
    expected = torch.full((4,), 1.0, device=device)
    check_close(torch.var_mean(x, [1])[0], expected, 0.1)


@defect(
    "J2",
    title="partial sums of halves are kept in half: the variance is inf",
    pytorch="the variance, when that is in range",
    upstream=everywhere("AssertionError: inf"),
)
def j2(device: torch.device) -> None:
    x = torch.full((4096,), 200.0, dtype=torch.float16, device=device)
    x[::2] = -200.0
    check_value(torch.var_mean(x, correction=0)[0], 40000.0, torch.float16)
