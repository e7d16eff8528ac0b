# SPDX-License-Identifier: Apache-2.0
"""RMS normalization with its statistic, and its gradient: what PyTorch makes of ``rms_norm`` on CUDA."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.norm.rms_call import compute_backward, compute_forward

logger = logging.getLogger("flag_gems.ops._fused_rms_norm")


def _fused_rms_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten::_fused_rms_norm``: divide by the root mean square over the last ``len(normalized_shape)`` dimensions.

    Its gradient is PyTorch's, which calls :func:`_fused_rms_norm_backward`.

    Args:
        x: floating-point tensor whose shape ends in ``normalized_shape``.
        weight: tensor of ``normalized_shape`` in any floating-point dtype, or None for ones.
        eps: added to the mean square; None for the machine epsilon of the type computed in (float32 for half inputs).

    Returns:
        (output, rstd): output as x, contiguous; rstd is 1 / root mean square of each row, in x's shape with ones for
        the normalized dimensions, float32 for half inputs.

    Raises:
        RuntimeError, ValueError: as PyTorch, when the shapes do not fit.
    """
    logger.debug("GEMS _FUSED_RMS_NORM FORWARD")
    return compute_forward(x, normalized_shape, weight, eps)


def _fused_rms_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    rstd: torch.Tensor,
    weight: torch.Tensor | None = None,
    output_mask: Sequence[bool] = (True, True),
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """``aten::_fused_rms_norm_backward``: gradients of input and weight of :func:`_fused_rms_norm`.

    The same input gives the same bits in every process.

    Args:
        grad_out: gradient of the output, of input's shape.
        rstd: what :func:`_fused_rms_norm` returned beside the output.
        output_mask: which of the two gradients to compute.

    Returns:
        The gradients in the dtypes of input and weight; None where ``output_mask`` does not ask, or there is no weight.

    Raises:
        RuntimeError, ValueError: as PyTorch, when the shapes do not fit.
    """
    logger.debug("GEMS _FUSED_RMS_NORM BACKWARD")
    return compute_backward(grad_out, input, rstd, normalized_shape, weight, output_mask)
