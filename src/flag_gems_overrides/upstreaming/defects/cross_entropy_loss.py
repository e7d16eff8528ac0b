# SPDX-License-Identifier: Apache-2.0
"""Upstream's fused/cross_entropy_loss.py."""

from __future__ import annotations

import math

import torch

from ._defect import check_close, check_raises, check_value, defect, everywhere, sample


@defect(
    "CE1",
    title="of logits that are all below -103 the loss is infinite or NaN, and the gradient NaN",
    pytorch="what it is of the logits less their maximum",
    upstream=everywhere("AssertionError"),
)
def ce1(device: torch.device) -> None:
    x = torch.full((2, 4), -200.0, device=device, requires_grad=True)
    target = torch.tensor([0, 3], device=device)
    loss = torch.nn.functional.cross_entropy(x, target)
    check_close(loss, torch.full((), math.log(4.0), device=device))
    (grad,) = torch.autograd.grad(loss, x)
    check_close(grad, torch.full((2, 4), 0.125, device=device) - 0.5 * torch.eye(4, device=device)[target])
    check_close(torch.nn.functional.cross_entropy(x, target, label_smoothing=0.1), loss)
    check_close(torch.nn.functional.cross_entropy(x, torch.full((2, 4), 0.25, device=device)), loss)


@defect(
    "CE2",
    title="the logit of a target that is ignored is read, outside of its row, and multiplied by 0",
    pytorch="a row that is ignored counts for nothing",
    upstream=everywhere("AssertionError: nan"),
)
def ce2(device: torch.device) -> None:
    memory = torch.full((108,), math.nan, device=device)
    x = memory[100:].view(2, 4).zero_()
    loss = torch.nn.functional.cross_entropy(x, torch.tensor([-100, 3], device=device))
    assert math.isclose(loss.item(), math.log(4.0), rel_tol=1e-6), f"{loss.item()}"


@defect(
    "CE3",
    title="logits that are not contiguous have no gradient",
    pytorch="the gradient, of any strides",
    upstream=everywhere("ValueError: not enough values to unpack"),
)
def ce3(device: torch.device) -> None:
    x = sample(4, 3, device=device).requires_grad_()
    loss = torch.nn.functional.cross_entropy(x.T, torch.tensor([0, 3, 1], device=device))
    (grad,) = torch.autograd.grad(loss, x)
    expected = torch.softmax(x.detach(), 0)
    expected[[0, 3, 1], [0, 1, 2]] -= 1
    check_close(grad, expected / 3)


@defect(
    "CE4",
    title="an empty batch raises",
    pytorch="NaN for the mean, 0 for the sum",
    upstream=everywhere("ZeroDivisionError"),
)
def ce4(device: torch.device) -> None:
    x, target = torch.empty(0, 4, device=device), torch.empty(0, dtype=torch.int64, device=device)
    check_value(torch.nn.functional.cross_entropy(x, target, reduction="sum"), 0.0, torch.float32)
    assert torch.nn.functional.cross_entropy(x, target).isnan().item()


@defect(
    "CE5",
    title="float64 is computed in float32",
    pytorch="float64",
    upstream=everywhere("AssertionError"),
)
def ce5(device: torch.device) -> None:
    x, target = sample(5, 7, device=device, dtype=torch.float64), torch.tensor([0, 6, 3, 2, 2], device=device)
    expected = torch.logsumexp(x.cpu(), 1) - x.cpu()[range(5), target.cpu()]
    check_close(torch.nn.functional.cross_entropy(x, target, reduction="none"), expected.to(device), 1e-12)


@defect(
    "CE6",
    title="a weight for other classes and targets of another batch are accepted",
    pytorch="an error that names both sizes",
    upstream=everywhere("AssertionError: answered"),
)
def ce6(device: torch.device) -> None:
    x, target = sample(2, 4, device=device), torch.tensor([0, 3, 1], device=device)
    text = "weight tensor should be defined either for all 4 classes or no classes"
    weight = torch.ones(5, device=device)
    check_raises(RuntimeError, text, lambda: torch.nn.functional.cross_entropy(x, target[:2], weight))
    text = "Expected input batch_size (2) to match target batch_size (3)"
    check_raises(ValueError, text, lambda: torch.nn.functional.cross_entropy(x, target))


@defect(
    "CE7",
    title="a smoothing above 1, and an index to ignore among probabilities, are accepted",
    pytorch="RuntimeError",
    upstream=everywhere("AssertionError: answered"),
)
def ce7(device: torch.device) -> None:
    x, target = sample(2, 4, device=device), torch.tensor([0, 3], device=device)
    text = "label_smoothing must be between 0.0 and 1.0"
    check_raises(RuntimeError, text, lambda: torch.nn.functional.cross_entropy(x, target, label_smoothing=2.0))
    p = torch.full((2, 4), 0.25, device=device)
    text = "ignore_index is not supported for floating point target"
    check_raises(RuntimeError, text, lambda: torch.nn.functional.cross_entropy(x, p, ignore_index=1))


@defect(
    "CE8",
    title="probabilities and weights have no gradient",
    pytorch="the gradient by each",
    upstream=everywhere("ValueError: not enough values to unpack"),
)
def ce8(device: torch.device) -> None:
    x, p = torch.zeros(2, 4, device=device), torch.full((2, 4), 0.25, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad(torch.nn.functional.cross_entropy(x, p), p)
    check_close(grad, torch.full((2, 4), math.log(4.0) / 2, device=device))


@defect(
    "CE9",
    title="the gradient has no gradient",
    pytorch="the second derivative",
    upstream=everywhere("RuntimeError: element 0 of tensors does not require grad"),
)
def ce9(device: torch.device) -> None:
    x = torch.zeros(1, 4, device=device, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(x, torch.tensor([1], device=device))
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    (second,) = torch.autograd.grad(grad[0, 0], x)
    check_close(second, torch.tensor([[0.1875, -0.0625, -0.0625, -0.0625]], device=device))
