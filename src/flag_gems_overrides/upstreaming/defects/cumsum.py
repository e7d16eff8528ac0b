# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/cumsum.py."""

from __future__ import annotations

import torch

from ._defect import FIXED, Seen, check_close, check_raises, check_value, defect, everywhere, sample, since_4_2


@defect(
    "CU1",
    title="int32 along a dimension that is not the last wraps, in a result of int64",
    pytorch="the sums, as int64",
    references=("#4543",),
    upstream=everywhere("AssertionError: -2147483648, not 2147483648"),
)
def cu1(device: torch.device) -> None:
    x = torch.full((4, 2), 2**30, dtype=torch.int32, device=device)
    check_value(torch.cumsum(x, 0)[1, 1], 2**31, torch.int64)


@defect(
    "CU2",
    title="along a dimension that is not the last, more than 65535 columns are refused",
    pytorch="the sums",
    upstream=since_4_2("RuntimeError: scan_part_sum_abc_kernel: CUDA has no grid", "RuntimeError: Triton Error [CUDA]"),
)
def cu2(device: torch.device) -> None:
    x = torch.ones(1, 2, 65536, dtype=torch.int8, device=device)
    check_value(torch.cumsum(x, 1)[0, 1, 65535], 2, torch.int64)


@defect(
    "CU3",
    title="elements are added in the dtype of the input, and converted to the one asked for after that",
    pytorch="converts them first",
    upstream=everywhere("AssertionError: 1, not 0"),
)
def cu3(device: torch.device) -> None:
    x = torch.tensor([0.6, 0.6], device=device)
    check_value(torch.cumsum(x, 0, dtype=torch.int64)[1], 0, torch.int64)
    small = torch.tensor([1.0, 1e-9], device=device)
    assert torch.cumsum(small, 0, dtype=torch.float64)[1].item() > 1, "float32 sums as float64"


@defect(
    "CU4",
    title="a 0-dim input fails an assertion",
    pytorch="the element",
    upstream=everywhere("AssertionError: Invalid dim"),
)
def cu4(device: torch.device) -> None:
    check_value(torch.cumsum(torch.tensor(3.0, device=device), 0), 3.0, torch.float32)


@defect(
    "CU5",
    title="an empty input divides by zero",
    pytorch="an empty result",
    upstream={**everywhere("ZeroDivisionError"), "5.3.4": Seen(FIXED, FIXED)},
)
def cu5(device: torch.device) -> None:
    assert torch.cumsum(torch.empty(0, 3, device=device), 0).shape == (0, 3)


@defect(
    "CU6",
    title="a strided out is written as if it were contiguous",
    pytorch="the sums, in its strides",
    upstream=everywhere("AssertionError"),
)
def cu6(device: torch.device) -> None:
    x = sample(3, 4, device=device)
    out = torch.zeros(4, 3, device=device).T
    torch.cumsum(x, 1, out=out)
    check_close(out, x.double().cpu().cumsum(1).to(device))


@defect(
    "CU7",
    title="an out of another dtype than the one asked for is accepted",
    pytorch="RuntimeError: Expected out tensor to have another dtype",
    upstream=everywhere("AssertionError: answered"),
)
def cu7(device: torch.device) -> None:
    x, out = sample(3, 4, device=device), torch.zeros(3, 4, device=device)
    text = "Expected out tensor to have dtype double, but got float instead"
    check_raises(RuntimeError, text, lambda: torch.cumsum(x, 1, dtype=torch.float64, out=out))
