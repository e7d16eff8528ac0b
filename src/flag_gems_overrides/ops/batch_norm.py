# SPDX-License-Identifier: Apache-2.0
"""Batch normalization, forward and backward."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.batch_norm.call import compute_backward, compute_forward

logger = logging.getLogger("flag_gems.ops.batch_norm")


def batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``aten::native_batch_norm``: normalize each channel over all other dimensions.

    Args:
        input: floating-point tensor [N, C, ...] of two or more dimensions and any strides.
        weight, bias: [C], or None for ones and zeros.
        running_mean, running_var: [C], or None. Training updates them in place, evaluation normalizes by them.
        momentum: the share of the new statistics in the running ones.
        eps: added to the variance.

    Returns:
        (output, mean, rstd): output with input's shape and order in memory. The statistics are [C], float32 for half
        inputs; in evaluation they are those of the running statistics.

    Raises:
        IndexError, RuntimeError, ValueError: as PyTorch, when the shapes do not fit or one running statistic is absent.
    """
    logger.debug("GEMS BATCHNORM FORWARD")
    return compute_forward(input, weight, bias, running_mean, running_var, training, momentum, eps)


def batch_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None = None,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    save_mean: torch.Tensor | None = None,
    save_invstd: torch.Tensor | None = None,
    train: bool = False,
    eps: float = 1e-05,
    output_mask: Sequence[bool] = (True, True, True),
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """``aten::native_batch_norm_backward``: gradients of the input, weight and bias of :func:`batch_norm`.

    The same input gives the same bits in every process.

    Args:
        grad_out: gradient of the output, of input's shape.
        save_mean, save_invstd: what :func:`batch_norm` returned; training goes back from them, evaluation from the
            running statistics.
        output_mask: which of the three gradients to compute.

    Returns:
        The gradients in the dtypes of input and weight (of the input, without a weight); None where ``output_mask``
        does not ask.

    Raises:
        RuntimeError: when sizes do not fit, or the statistics are absent.
    """
    logger.debug("GEMS BATCHNORM BACKWARD")
    center, spread = (save_mean, save_invstd) if train else (running_mean, running_var)
    if center is None or spread is None:
        raise RuntimeError(
            f"{'save_mean and save_invstd' if train else 'running_mean and running_var'} must be defined"
        )
    return compute_backward(grad_out, input, weight, center, spread, train, eps, output_mask)
