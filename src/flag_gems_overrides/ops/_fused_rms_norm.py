# SPDX-License-Identifier: Apache-2.0
"""RMS normalization with its statistic, and its gradient: what PyTorch makes of ``rms_norm`` on CUDA."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .families.norm.rms_call import compute_backward, compute_forward

logger = logging.getLogger("flag_gems.ops._fused_rms_norm")


def _fused_rms_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten::_fused_rms_norm``: divide by the root mean square over the last ``len(normalized_shape)`` dimensions.

    Through PyTorch's dispatcher its gradient is PyTorch's, which calls :func:`_fused_rms_norm_backward`; called by
    itself, as upstream's may be, it has one of its own.

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
    if (
        torch.is_grad_enabled()
        and (x.requires_grad or (weight is not None and weight.requires_grad))
        and not torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)
    ):
        return _FusedRmsNorm.apply(x, normalized_shape, weight, eps)
    return compute_forward(x, normalized_shape, weight, eps)


class _FusedRmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None, eps: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, rstd = compute_forward(x, normalized_shape, weight, eps)
        ctx.save_for_backward(x, rstd, weight)
        ctx.mark_non_differentiable(rstd)
        ctx.normalized_shape = tuple(normalized_shape)
        return output, rstd

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, rstd, weight = ctx.saved_tensors
        want = ctx.needs_input_grad[0], ctx.needs_input_grad[2]
        dx, dweight = compute_backward(dy, x, rstd, ctx.normalized_shape, weight, want)
        return dx, None, dweight, None


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
