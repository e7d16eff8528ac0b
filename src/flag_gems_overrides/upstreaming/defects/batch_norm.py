# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/batch_norm.py."""

from __future__ import annotations

import torch

from ._defect import check_close, defect, everywhere, sample

aten = torch.ops.aten
OTHERS = (0, 2)


def normalized(x: torch.Tensor) -> torch.Tensor:
    """Batch norm of [N, C, L] in training, from operators that no override stands for."""
    centred = x - x.mean(OTHERS, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(OTHERS, keepdim=True) + 1e-5)


def running(channels: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return sample(channels, device=device), sample(channels, device=device).square() + 1


@defect(
    "B1",
    title="training without running statistics overwrites the input",
    pytorch="the input as it was, and its normalization",
    references=("#6332", "#6435"),
    upstream=everywhere("AssertionError"),
)
def b1(device: torch.device) -> None:
    x = sample(4, 3, 8, device=device)
    before = x.clone()
    y, _, _ = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    check_close(x, before, 0)
    check_close(y, normalized(before))


@defect(
    "B2",
    title="the statistics that evaluation returns are never written",
    pytorch="the running mean and 1 / sqrt(running_var + eps)",
    upstream=everywhere("AssertionError"),
    native_cpu="returns two empty tensors",
)
def b2(device: torch.device) -> None:
    mean, variance = running(3, device)
    for _ in range(2):
        _, save_mean, save_invstd = torch.native_batch_norm(
            sample(4, 3, 8, device=device), None, None, mean, variance, False, 0.1, 1e-5
        )
        check_close(save_mean, mean)
        check_close(save_invstd, torch.rsqrt(variance + 1e-5))
        # What these are allocated in next held something else.
        del save_mean, save_invstd
        torch.full((2, 3), 7.0, device=device)


@defect(
    "B3",
    title="the gradient of evaluation is computed as that of training, from statistics that were never written",
    pytorch="dy * weight / sqrt(running_var + eps)",
    upstream=everywhere("AssertionError"),
)
def b3(device: torch.device) -> None:
    x, dy, weight = (sample(*size, device=device) for size in ((4, 3, 8), (4, 3, 8), (3,)))
    mean, variance = running(3, device)
    rstd = torch.rsqrt(variance + 1e-5)
    rest = weight, mean, variance, mean, rstd, False, 1e-5, [True] * 3
    dx, _, _ = aten.native_batch_norm_backward(dy, x, *rest)
    check_close(dx, dy * (weight * rstd)[:, None])


@defect(
    "B4",
    title="the gradients of weight and bias alone raise",
    pytorch="None and the two gradients",
    upstream=everywhere("AttributeError"),
)
def b4(device: torch.device) -> None:
    x, dy = (sample(4, 3, 8, device=device) for _ in range(2))
    mean, variance = running(3, device)
    rest = variance, mean, variance, mean, variance, True, 1e-5, [False, True, True]
    dx, dweight, dbias = aten.native_batch_norm_backward(dy, x, *rest)
    assert dx is None
    check_close(dweight, (dy * (x - mean[:, None])).sum(OTHERS) * variance)
    check_close(dbias, dy.sum(OTHERS))


@defect(
    "B5",
    title="statistics of half inputs, and gradients of their float32 weights, are kept in half",
    pytorch="float32 for all of them",
    upstream=everywhere("AssertionError"),
)
def b5(device: torch.device) -> None:
    x = sample(4, 3, 8, device=device, dtype=torch.float16)
    weight, bias = (sample(3, device=device) for _ in range(2))
    y, mean, rstd = torch.native_batch_norm(x, weight, bias, *running(3, device), True, 0.1, 1e-5)
    assert mean.dtype == rstd.dtype == torch.float32, f"statistics of float16 are {mean.dtype}"
    rest = weight, None, None, mean, rstd, True, 1e-5, [True] * 3
    for gradient in aten.native_batch_norm_backward(torch.ones_like(y), x, *rest)[1:]:
        assert gradient.dtype == torch.float32, f"the gradient of a float32 tensor is {gradient.dtype}"


@defect(
    "B6",
    title="the statistics of more than 2048 rows are wrong where tiles are not full",
    pytorch="mean and variance of all elements",
    upstream=everywhere("AssertionError"),
)
def b6(device: torch.device) -> None:
    x = sample(2050, 2, 13, device=device)
    x[2048:] += 1000
    _, mean, _ = torch.native_batch_norm(x, None, None, *running(2, device), True, 0.1, 1e-5)
    check_close(mean, x.mean(OTHERS))


@defect(
    "B7",
    title="float64 is computed in float32",
    pytorch="float64 accuracy",
    upstream=everywhere("AssertionError"),
)
def b7(device: torch.device) -> None:
    x = sample(20, 3, 15, device=device, dtype=torch.float64)
    mean, variance = running(3, device)
    y, _, _ = torch.native_batch_norm(x, None, None, mean.double(), variance.double(), True, 0.1, 1e-5)
    check_close(y, normalized(x), 1e-12)


@defect(
    "B8",
    title="weight, bias and running statistics are read and written as if they were contiguous",
    pytorch="the elements that their strides say",
    upstream=everywhere("AssertionError"),
)
def b8(device: torch.device) -> None:
    x = sample(4, 3, 8, device=device)
    mean, variance = (t[::2] for t in running(6, device))
    before = mean.clone()
    torch.native_batch_norm(x, None, None, mean, variance, True, 0.1, 1e-5)
    check_close(mean, 0.9 * before + 0.1 * x.mean(OTHERS))
