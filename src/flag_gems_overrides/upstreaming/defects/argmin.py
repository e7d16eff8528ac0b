# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/argmin.py."""

from __future__ import annotations

import torch

from ._defect import check_raises, check_value, defect, everywhere, since_4_2


@defect(
    "A5",
    title="an empty input divides by zero",
    pytorch="IndexError",
    upstream=everywhere("ZeroDivisionError"),
)
def a5(device: torch.device) -> None:
    whole = "Expected reduction dim to be specified for input.numel() == 0"
    check_raises(IndexError, whole, lambda: torch.argmin(torch.empty(0, device=device)))
    along = "Expected reduction dim 1 to have non-zero size"
    check_raises(IndexError, along, lambda: torch.argmin(torch.empty(3, 0, device=device), 1))


@defect(
    "A6",
    title="along the last dimension nothing is masked: loads beyond the row count, and stores go astray",
    pytorch="an index within the row",
    upstream=since_4_2("OutOfBoundsError", "AssertionError"),
)
def a6(device: torch.device) -> None:
    x = torch.tensor([[3.0, 2.0, 1.0], [0.0, 5.0, 4.0]], device=device)
    for index, expected in zip(torch.argmin(x, 1), (2, 0), strict=True):
        check_value(index, expected, torch.int64)


@defect(
    "A7",
    title="along a dimension before the last, half of the rows are not written when the tuner chooses blocks of 4 rows",
    pytorch="an index for every row",
    upstream=since_4_2(None, "AssertionError"),
    hidden="without a clock to tune by, the first configuration wins, and it has blocks of 8 rows",
)
def a7(device: torch.device) -> None:
    rows = 1 << 14 if device.type == "cuda" else 16
    # So many that half of the work takes half of the time, and the tuner chooses it. It tunes in the first call, in
    # which other configurations write what the chosen one leaves out.
    for place in (3, 5):
        x = torch.ones(rows, 64, 32, device=device)
        x[:, place] = 0
        index = torch.argmin(x, 1)
        wrong = int((index != place).sum())
        assert wrong == 0, f"{wrong} of {index.numel()} indices wrong"
