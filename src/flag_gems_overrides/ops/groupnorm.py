# SPDX-License-Identifier: Apache-2.0
"""Group normalization, forward and backward."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.group_norm.call import compute_backward, compute_forward

logger = logging.getLogger("flag_gems.ops.groupnorm")


def group_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float = 1e-05,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``aten::native_group_norm``: normalize each of ``group`` groups of neighbouring channels of each sample.

    Args:
        input: floating-point tensor of N samples of C channels of HxW elements each.
        weight, bias: [C], or None for ones and zeros.
        group: number of groups; it divides C.
        eps: added to the variance.

    Returns:
        (output, mean, rstd): output as input, contiguous. The statistics are [N, group] and of the input's dtype, or of
        weight's where that is another.

    Raises:
        RuntimeError: as PyTorch, when the sizes do not fit.
    """
    logger.debug("GEMS GROUPNORM FORWARD")
    return compute_forward(input, weight, bias, N, C, HxW, group, eps)


def group_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """``aten::native_group_norm_backward``: gradients of the input, weight and bias of :func:`group_norm`.

    The same input gives the same bits in every process.

    Args:
        grad_out: gradient of the output, of input's shape.
        mean, rstd: what :func:`group_norm` returned, in any floating-point dtype.
        output_mask: which of the three gradients to compute.

    Returns:
        The gradients, those of weight and bias in weight's dtype, or input's without weight; None where
        ``output_mask`` does not ask.

    Raises:
        RuntimeError: as PyTorch, when the sizes do not fit.
    """
    logger.debug("GEMS GROUPNORM BACKWARD")
    return compute_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
