# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/softmax.py."""

from __future__ import annotations

import math

import torch

from ._defect import FIXED, Seen, check_close, check_value, defect, everywhere, sample, since_4_2

aten = torch.ops.aten


def composed(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Softmax in float64 from operators that no override stands for; ``x`` must be small."""
    e = x.double().exp()
    return e / e.sum(dim, keepdim=True)


@defect(
    "S1",
    title="the result keeps a transposed input's strides, the kernel writes it linearly",
    pytorch="the softmax, whatever the strides",
    references=("#5723",),
    upstream={"4.2.0": Seen(FIXED, FIXED), "5.3.4": Seen("AssertionError", "AssertionError")},
)
def s1(device: torch.device) -> None:
    x = sample(5, 7, device=device).t()
    check_close(torch.softmax(x, 0), composed(x, 0))


@defect(
    "S2",
    title="backward reads a non-contiguous output linearly",
    pytorch="the gradient, whatever the strides",
    references=("#5723",),
    upstream=everywhere("AssertionError"),
)
def s2(device: torch.device) -> None:
    output, dy = composed(sample(5, 7, device=device), 1).float().t(), sample(7, 5, device=device)
    expected = output * (dy - (output * dy).sum(0))
    check_close(aten._softmax_backward_data(dy, output, 0, torch.float32), expected)


@defect(
    "S3",
    title="a 0-dim input fails an assertion",
    pytorch="1",
    upstream=everywhere("AssertionError: Invalid dim"),
)
def s3(device: torch.device) -> None:
    check_value(torch.softmax(torch.tensor(3.0, device=device), 0), 1.0, torch.float32)


@defect(
    "S4",
    title="an empty input ignores half_to_float (forward) or divides by zero (backward)",
    pytorch="an empty float32 result; an empty gradient",
    upstream={
        "4.2.0": Seen("ZeroDivisionError", "ZeroDivisionError"),
        "5.0.2": Seen("AssertionError: dtype torch.float16", "AssertionError: dtype torch.float16"),
    },
    native_cpu="has no half_to_float",
)
def s4(device: torch.device) -> None:
    empty = torch.empty(0, 3, device=device)
    y = aten._softmax(empty.half(), 1, True)
    assert y.dtype == torch.float32, f"dtype {y.dtype} for half_to_float"
    assert y.shape == aten._softmax_backward_data(empty, empty, 1, torch.float32).shape == (0, 3)


@defect(
    "S5",
    title="float64 rows of more than 32768 elements do not compile",
    pytorch="the softmax in float64",
    upstream=since_4_2(None, "CompilationError"),
    hidden="the interpreter does not type-check a loop's carried values, and computes in float64",
)
def s5(device: torch.device) -> None:
    x = sample(1, 40000, device=device, dtype=torch.float64)
    check_close(torch.softmax(x, 1), composed(x, 1), 1e-12)


@defect(
    "S6",
    title="rows of more than 32768 elements lose a NaN that a lane sees first",
    pytorch="NaN in the whole row",
    upstream=everywhere("AssertionError"),
)
def s6(device: torch.device) -> None:
    x = sample(1, 33000, device=device)
    x[0, 7] = math.nan
    y = torch.softmax(x, 1)
    assert bool(y.isnan().all()), f"{int(y.isnan().sum())} of 33000 elements are NaN"


@defect(
    "S7",
    title="offsets along a dimension that is not the last are 32-bit: wrong from 2^31 elements on",
    pytorch="the softmax for any size",
    upstream=since_4_2(None, "AcceleratorError"),
    hidden="needs more than 2^31 elements, which the interpreter would take hours for",
    needs_gpu=True,
)
def s7(device: torch.device) -> None:
    y = torch.softmax(torch.zeros(9, 1 << 28, device=device, dtype=torch.float16), 0)
    some = y[:, :: 1 << 16]
    check_close(some, torch.full_like(some, 1 / 9), 1e-3)
