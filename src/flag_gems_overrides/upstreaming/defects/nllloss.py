# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/nllloss.py."""

from __future__ import annotations

import torch
from torch.nn.functional import nll_loss

from ._defect import check_close, check_raises, check_value, defect, everywhere, sample

aten = torch.ops.aten


@defect(
    "NL1",
    title="the mean of no rows is 0",
    pytorch="NaN",
    upstream=everywhere("AssertionError: 0.0, not NaN"),
)
def nl1(device: torch.device) -> None:
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    for loss in (
        nll_loss(torch.empty(0, 4, device=device), nothing),
        nll_loss(torch.empty(0, 4, 1, 2, device=device), nothing.view(0, 1, 2)),
    ):
        assert loss.isnan().item(), f"{loss.item()}, not NaN"


@defect(
    "NL2",
    title="the total weight of a sum is never written",
    pytorch="the sum of the weights",
    upstream=everywhere("AssertionError"),
)
def nl2(device: torch.device) -> None:
    target = torch.tensor([1, 0, 1], device=device)
    weight = torch.tensor([3.0, 7.5], device=device)
    _, total = aten.nll_loss_forward(sample(3, 2, device=device), target, weight, 2, -100)
    check_value(total, 18.0, torch.float32)
    x = sample(3, 2, 1, 1, device=device)
    _, total = aten.nll_loss2d_forward(x, target.view(3, 1, 1), weight, 2, -100)
    check_value(total, 18.0, torch.float32)


@defect(
    "NL3",
    title="a weight for other classes is accepted",
    pytorch="RuntimeError: one weight for each class",
    upstream=everywhere("AssertionError: answered"),
)
def nl3(device: torch.device) -> None:
    x, target = sample(3, 4, device=device), torch.tensor([1, 0, 3], device=device)
    weight = torch.ones(5, device=device)
    text = "weight tensor should be defined either for all 4 classes or no classes"
    check_raises(RuntimeError, text, lambda: aten.nll_loss_forward(x, target, weight, 1, -100))
    spatial = x.view(3, 4, 1, 1), target.view(3, 1, 1)
    text = "weight tensor should be defined either for all"
    check_raises(RuntimeError, text, lambda: aten.nll_loss2d_forward(*spatial, weight, 1, -100))


@defect(
    "NL4",
    title="of one row and a target of size 1 the loss has size 1",
    pytorch="a 0-dim loss",
    upstream=everywhere("AssertionError: shape (1,), not ()"),
)
def nl4(device: torch.device) -> None:
    x = sample(5, device=device)
    loss, _ = aten.nll_loss_forward(x, torch.tensor([3], device=device), None, 0, -100)
    check_close(loss, -x[3])


@defect(
    "NL5",
    title="a row that is ignored stores a 0 at its start plus ignore_index, outside of it",
    pytorch="the gradients of other rows, and other tensors, stay as they are",
    references=("#5026",),
    upstream=everywhere("AssertionError: the first row's gradient is 0.0"),
)
def nl5(device: torch.device) -> None:
    target = torch.tensor([10, -100], device=device)
    one = torch.ones((), device=device)
    grad = aten.nll_loss_backward(one, torch.zeros(2, 110, device=device), target, None, 2, -100, one)
    assert grad[0, 10].item() == -1, f"the first row's gradient is {grad[0, 10].item()}"
    x, target = torch.zeros(2, 110, 1, 1, device=device), target.view(2, 1, 1)
    grad = aten.nll_loss2d_backward(one, x, target, None, 2, -100, one)
    assert grad[0, 10].item() == -1, f"the first image's gradient is {grad[0, 10].item()}"


@defect(
    "NL6",
    title="of a gradient of several elements one is used for all",
    pytorch="RuntimeError: the gradient of a sum or a mean is one element",
    upstream=everywhere("AssertionError: answered"),
)
def nl6(device: torch.device) -> None:
    x, target = sample(3, 4, device=device), torch.tensor([1, 0, 3], device=device)
    three, one = torch.ones(3, device=device), torch.ones((), device=device)
    text = "Expected a single element grad_output tensor, but got: [3]"
    check_raises(RuntimeError, text, lambda: aten.nll_loss_backward(three, x, target, None, 1, -100, one))
    spatial = x.view(3, 4, 1, 1), target.view(3, 1, 1)
    check_raises(RuntimeError, text, lambda: aten.nll_loss2d_backward(three, *spatial, None, 1, -100, one))
