# SPDX-License-Identifier: Apache-2.0
"""Layer normalization, forward and backward."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.norm.call import backward, forward

logger = logging.getLogger("flag_gems.ops.layernorm")


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``aten::native_layer_norm``: normalize over the last ``len(normalized_shape)`` dimensions.

    Args:
        input: floating-point tensor whose shape ends in ``normalized_shape``.
        weight, bias: tensors of ``normalized_shape``, or None for ones and zeros.
        eps: added to the variance.

    Returns:
        (output, mean, rstd): output as input, contiguous. The statistics have input's shape with ones for the
        normalized dimensions, and are float32 for half inputs.

    Raises:
        RuntimeError: as PyTorch, when the shapes do not fit.
    """
    logger.debug("GEMS LAYERNORM FORWARD")
    return forward(input, normalized_shape, weight, bias, eps)


def layer_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    output_mask: Sequence[bool] = (True, True, True),
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """``aten::native_layer_norm_backward``: gradients of the input, weight and bias of :func:`layer_norm`.

    The same input gives the same bits in every process.

    Args:
        grad_out: gradient of the output, of input's shape.
        mean, rstd: what :func:`layer_norm` returned, in any floating-point dtype.
        output_mask: which of the three gradients to compute.

    Returns:
        The gradients in the dtypes of input, weight and bias; None where ``output_mask`` does not ask.

    Raises:
        RuntimeError: as PyTorch, when the sizes do not fit, or when the gradient of an absent tensor is asked for.
    """
    logger.debug("GEMS LAYERNORM BACKWARD")
    return backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
