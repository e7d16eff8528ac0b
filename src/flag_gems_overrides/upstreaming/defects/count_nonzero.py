# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/count_nonzero.py."""

from __future__ import annotations

import torch

from ._defect import FIXED, Seen, check_close, check_value, defect, everywhere


@defect(
    "K1",
    title="a negative dimension stops with an error",
    pytorch="the counts along it",
    upstream={**everywhere("RuntimeError: permute("), "5.3.1": Seen(FIXED, FIXED)},
)
def k1(device: torch.device) -> None:
    x = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0]], device=device)
    check_close(torch.count_nonzero(x, -1), torch.tensor([2, 1], device=device), 0)


@defect(
    "K2",
    title="a 0-dim input fails an assertion",
    pytorch="the count",
    upstream=everywhere("AssertionError: Invalid dim"),
)
def k2(device: torch.device) -> None:
    check_value(torch.count_nonzero(torch.tensor(3.0, device=device), 0), 1, torch.int64)
