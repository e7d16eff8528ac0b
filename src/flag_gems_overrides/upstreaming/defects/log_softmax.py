# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/log_softmax.py."""

from __future__ import annotations

import math

import torch

from flag_gems_overrides.interpreter import undefined_lanes

from ._defect import check_close, check_value, defect, everywhere, sample, since_4_2

aten = torch.ops.aten


def composed(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Log-softmax in float64 from operators that no override stands for; ``x`` must be small."""
    x = x.double()
    return x - x.exp().sum(dim, keepdim=True).log()


@defect(
    "Q1",
    title="a NaN in the first 256 columns is left out of the row's sum",
    pytorch="NaN in the whole row",
    upstream=everywhere("AssertionError"),
)
def q1(device: torch.device) -> None:
    y = torch.log_softmax(torch.tensor([[math.nan, 1.0, 2.0]], device=device), 1)
    assert bool(y.isnan().all()), f"{y.tolist()} instead of NaN"


@defect(
    "Q2",
    title="more than 65535 elements after the dimension: the launch is invalid",
    pytorch="the log-softmax and its gradient",
    references=("#4511",),
    upstream=since_4_2("RuntimeError: log_softmax", "RuntimeError: Triton Error [CUDA]: invalid argument"),
)
def q2(device: torch.device) -> None:
    x = sample(1, 2, 70000, device=device)
    y = torch.log_softmax(x, 1)
    check_close(y, composed(x, 1))
    dx = aten._log_softmax_backward_data(x, y, 1, torch.float32)
    check_close(dx, x - y.exp() * x.sum(1, keepdim=True))


@defect(
    "Q3",
    title="backward reads a non-contiguous output linearly",
    pytorch="the gradient, whatever the strides",
    upstream=everywhere("AssertionError"),
)
def q3(device: torch.device) -> None:
    output, dy = composed(sample(5, 7, device=device), 1).float().t(), sample(7, 5, device=device)
    expected = dy - output.exp() * dy.sum(0)
    check_close(aten._log_softmax_backward_data(dy, output, 0, torch.float32), expected)


@defect(
    "Q4",
    title="an empty input divides by zero",
    pytorch="an empty result",
    upstream=everywhere("ZeroDivisionError"),
)
def q4(device: torch.device) -> None:
    empty = torch.empty(0, 5, device=device)
    assert torch.log_softmax(empty, 1).shape == (0, 5)
    assert aten._log_softmax_backward_data(empty, empty, 1, torch.float32).shape == (0, 5)


@defect(
    "Q5",
    title="float64 is computed in float32, and a 0-dim input fails an assertion",
    pytorch="float64 accuracy; 0",
    upstream=everywhere("AssertionError"),
)
def q5(device: torch.device) -> None:
    x = sample(2, 300, device=device, dtype=torch.float64)
    check_close(torch.log_softmax(x, 1), composed(x, 1), 1e-12)
    check_value(torch.log_softmax(torch.tensor(3.0, device=device), -1), 0.0, torch.float32)


@defect(
    "Q6",
    title="backward sums lanes that it loaded with a mask and no `other`",
    pytorch="a result that depends on the inputs alone",
    references=("#6251", "#4376"),
    upstream=since_4_2("AssertionError", None),
    hidden="Triton leaves such lanes undefined; on NVIDIA they happen to be zero",
)
def q6(device: torch.device) -> None:
    dy, output = torch.ones(2, 4, device=device), torch.full((2, 4), math.log(0.25), device=device)
    with undefined_lanes():
        dx = aten._log_softmax_backward_data(dy, output, 1, torch.float32)
    check_close(dx, torch.zeros_like(dx))
