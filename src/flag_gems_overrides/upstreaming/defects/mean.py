# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/mean.py."""

from __future__ import annotations

import torch

from ._defect import check_raises, check_value, defect, everywhere


@defect(
    "E1",
    title="partial sums of halves are kept in half: the mean is inf",
    pytorch="the mean",
    references=("#6333",),
    upstream=everywhere("AssertionError: inf"),
)
def e1(device: torch.device) -> None:
    x = torch.full((2**18,), 200.0, dtype=torch.float16, device=device)
    check_value(torch.mean(x), 200.0, torch.float16)


@defect(
    "E2",
    title="integers are not refused",
    pytorch="RuntimeError",
    upstream=everywhere("AssertionError: answered 1"),
)
def e2(device: torch.device) -> None:
    x = torch.ones(2, 3, dtype=torch.int32, device=device)
    check_raises(RuntimeError, "could not infer output dtype", lambda: torch.mean(x))


@defect(
    "E3",
    title="an empty input divides by zero",
    pytorch="NaN",
    upstream=everywhere("ZeroDivisionError"),
)
def e3(device: torch.device) -> None:
    assert torch.mean(torch.empty(0, device=device)).isnan().item()


@defect(
    "E4",
    title="integers are not refused along a dimension",
    pytorch="RuntimeError",
    upstream=everywhere("AssertionError: answered"),
)
def e4(device: torch.device) -> None:
    x = torch.ones(2, 3, dtype=torch.int32, device=device)
    check_raises(RuntimeError, "could not infer output dtype", lambda: torch.mean(x, 1))


@defect(
    "E5",
    title="without a dimension it raises",
    pytorch="the mean of all elements",
    upstream=everywhere("TypeError: dim must be"),
)
def e5(device: torch.device) -> None:
    check_value(torch.mean(torch.ones(2, 3, device=device), None), 1.0, torch.float32)


@defect(
    "E6",
    title="a 0-dim input raises",
    pytorch="the element",
    upstream=everywhere("ZeroDivisionError"),
)
def e6(device: torch.device) -> None:
    check_value(torch.mean(torch.tensor(3.0, device=device), 0), 3.0, torch.float32)
