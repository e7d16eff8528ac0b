# SPDX-License-Identifier: Apache-2.0
"""The negative log likelihood loss with its gradient, of batches of scores and of images of them."""

from __future__ import annotations

import logging

import torch

from .families.gather.call import backward, forward

logger = logging.getLogger("flag_gems.ops.nllloss")


def nll_loss_forward(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten::nll_loss_forward``: -weight[target] * self[target] for each row, or their sum or mean.

    Args:
        self: [N, C] or [C], of any strides; float16, bfloat16, float32 or float64.
        target: [N] or one class, int64 or uint8.
        weight: [C], of the dtype of ``self``; ones if None.
        reduction: 0 for none, 1 for the mean, 2 for the sum.
        ignore_index: rows of this target are left out. It need not be a class.

    Returns:
        output: [N] without a reduction, else []. The mean of no rows is NaN.
        total_weight: [], the sum of the weights of the rows that are not left out; 0 without a reduction.

    Raises:
        RuntimeError, ValueError: the shapes do not go together. A target that is no class ends the kernel with a
            device-side assertion.
    """
    logger.debug("GEMS NLL Loss FWD")
    return forward(self, target, weight, reduction, ignore_index, False)


def nll_loss_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    total_weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """``aten::nll_loss_backward``: the gradient by ``self``, which is not read.

    Args:
        grad_output: [N] without a reduction, else one element.
        total_weight: one element, what the forward returned; only the mean needs it.

    The others, and errors, are as in :func:`nll_loss_forward`.
    """
    logger.debug("GEMS NLL Loss BWD")
    return backward(grad_output, self, target, weight, reduction, ignore_index, total_weight, False)


def nll_loss2d_forward(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten::nll_loss2d_forward``: as :func:`nll_loss_forward`, of [N, C, H, W] and targets of [N, H, W]."""
    logger.debug("GEMS NLL Loss2d FWD")
    return forward(self, target, weight, reduction, ignore_index, True)


def nll_loss2d_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    total_weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """``aten::nll_loss2d_backward``: as :func:`nll_loss_backward`, of [N, C, H, W] and targets of [N, H, W]."""
    logger.debug("GEMS NLL Loss2d BWD")
    return backward(grad_output, self, target, weight, reduction, ignore_index, total_weight, True)
