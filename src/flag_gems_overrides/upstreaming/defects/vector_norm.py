# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/vector_norm.py."""

from __future__ import annotations

import math

import torch

from ._defect import Seen, check_close, check_value, defect, everywhere


@defect(
    "V1",
    title="partial sums of halves are kept in half: the norm is inf",
    pytorch="the norm, when that is in range",
    upstream=everywhere("AssertionError: inf"),
)
def v1(device: torch.device) -> None:
    x = torch.full((4096,), 40.0, dtype=torch.float16, device=device)
    check_value(torch.linalg.vector_norm(x), 2560.0, torch.float16)


@defect(
    "V2",
    title="a negative order gives 0",
    pytorch="the norm",
    references=("#4600",),
    upstream=everywhere("AssertionError: 3 of 3 elements wrong"),
)
def v2(device: torch.device) -> None:
    x = torch.ones(3, 4, device=device)
    check_close(torch.linalg.vector_norm(x, -1, 1), torch.full((3,), 0.25, device=device))


@defect(
    "V3",
    title="of the norms of order inf and -inf NaN is dropped",
    pytorch="NaN",
    references=("#4600",),
    upstream=everywhere("AssertionError: no NaN"),
)
def v3(device: torch.device) -> None:
    x = torch.tensor([[float("nan"), 1.0, 2.0]], device=device)
    for order in float("inf"), -float("inf"):
        assert torch.linalg.vector_norm(x, order, 1).isnan().all(), f"no NaN, order {order}"


@defect(
    "V4",
    title="float64 is refused, and since 5.3.1 computed in float32",
    pytorch="float64 accuracy",
    upstream={**everywhere("NotImplementedError"), "5.3.1": Seen("AssertionError", "AssertionError")},
)
def v4(device: torch.device) -> None:
    x = torch.tensor([[0.1, 0.2]], dtype=torch.float64, device=device)
    check_close(torch.linalg.vector_norm(x), torch.tensor(math.sqrt(0.05), dtype=torch.float64, device=device), 1e-12)
    expected = torch.tensor([0.009 ** (1 / 3)], dtype=torch.float64, device=device)
    check_close(torch.linalg.vector_norm(x, 3, 1), expected, 1e-12)


@defect(
    "V5",
    title="an empty input divides by zero",
    pytorch="0",
    upstream=everywhere("ZeroDivisionError"),
)
def v5(device: torch.device) -> None:
    check_value(torch.linalg.vector_norm(torch.empty(0, device=device)), 0.0, torch.float32)
