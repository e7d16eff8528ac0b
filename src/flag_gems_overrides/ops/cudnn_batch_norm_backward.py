# SPDX-License-Identifier: Apache-2.0
"""The gradient of ``F.batch_norm`` where its forward is cuDNN's."""

from __future__ import annotations

import logging

import torch

from .families.batch_norm.call import compute_backward

logger = logging.getLogger("flag_gems.ops.cudnn_batch_norm_backward")


def cudnn_batch_norm_backward(
    input: torch.Tensor,
    grad_output: torch.Tensor,
    weight: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    save_mean: torch.Tensor | None = None,
    save_var: torch.Tensor | None = None,
    epsilon: float = 1e-5,
    reserveSpace: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``aten::cudnn_batch_norm_backward``: gradients of the input, weight and bias, of a forward call in training.

    The same input gives the same bits in every process.

    Args:
        grad_output: gradient of the output, of input's shape.
        save_mean, save_var: what ``aten::cudnn_batch_norm`` returned: mean and 1 / standard deviation of each channel.
        running_mean, running_var, epsilon, reserveSpace: not used.

    Returns:
        The gradients in the dtypes of input and weight.

    Raises:
        RuntimeError: when sizes do not fit, or the statistics are absent.
    """
    logger.debug("GEMS CUDNN_BATCH_NORM_BACKWARD")
    if save_mean is None or save_var is None:
        raise RuntimeError("save_mean and save_var must be defined")
    dx, dweight, dbias = compute_backward(
        grad_output, input, weight, save_mean, save_var, True, epsilon, (True, True, True)
    )
    assert dx is not None
    assert dweight is not None
    assert dbias is not None
    return dx, dweight, dbias
