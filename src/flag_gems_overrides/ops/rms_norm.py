# SPDX-License-Identifier: Apache-2.0
"""RMS normalization, forward and backward."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from .families.norm.rms_call import compute_backward, compute_forward, compute_forward_alone

logger = logging.getLogger("flag_gems.ops.rms_norm")


def rms_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """``aten::rms_norm``: divide by the root mean square over the last ``len(normalized_shape)`` dimensions.

    flag_gems registers it below autograd, where PyTorch has no gradient for it: this function brings its own.

    Args:
        x: floating-point tensor whose shape ends in ``normalized_shape``.
        weight: tensor of ``normalized_shape`` in any floating-point dtype, or None for ones.
        eps: added to the mean square; None for the machine epsilon of the type computed in (float32 for half inputs).

    Returns:
        As x, contiguous.

    Raises:
        RuntimeError, ValueError: as PyTorch, when the shapes do not fit.
    """
    if torch.is_grad_enabled() and (x.requires_grad or (weight is not None and weight.requires_grad)):
        output: torch.Tensor = _RmsNorm.apply(x, normalized_shape, weight, eps)
        return output
    logger.debug("GEMS RMS_NORM FORWARD")
    return compute_forward_alone(x, normalized_shape, weight, eps)


def rms_norm_forward(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`rms_norm` and, for its gradient, 1 / root mean square of each row.

    That has x's shape with ones for the normalized dimensions, and is float32 for half inputs.
    """
    logger.debug("GEMS RMS_NORM FORWARD")
    return compute_forward(x, normalized_shape, weight, eps)


def rms_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    inv_rms: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
    output_mask: Sequence[bool] = (True, True),
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of x and weight of :func:`rms_norm`. The same input gives the same bits in every process.

    Args:
        dy: gradient of the output, of x's shape.
        inv_rms: what :func:`rms_norm_forward` returned beside the output.
        eps: not used, it is in inv_rms.
        output_mask: which of the two gradients to compute.

    Returns:
        The gradients in the dtypes of x and weight; None where ``output_mask`` does not ask, or there is no weight.
    """
    logger.debug("GEMS RMS_NORM BACKWARD")
    return compute_backward(dy, x, inv_rms, normalized_shape, weight, output_mask)


def rms_norm_out(
    result: torch.Tensor,
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """:func:`rms_norm` into ``result``, which is returned."""
    logger.debug("GEMS RMS_NORM FORWARD")
    return result.copy_(compute_forward_alone(x, normalized_shape, weight, eps))


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None, eps: float | None
    ) -> torch.Tensor:
        output, rstd = rms_norm_forward(x, normalized_shape, weight, eps)
        ctx.save_for_backward(x, rstd, weight)
        ctx.normalized_shape = tuple(normalized_shape)
        ctx.eps = eps
        return output

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, rstd, weight = ctx.saved_tensors
        want = ctx.needs_input_grad[0], ctx.needs_input_grad[2]
        if torch.is_grad_enabled():  # a gradient of the gradient may be asked for
            return _composed_gradients(dy, x, weight, len(ctx.normalized_shape), ctx.eps)
        dx, dweight = rms_norm_backward(dy, x, rstd, ctx.normalized_shape, weight, output_mask=want)
        return dx, None, dweight, None


def _composed_gradients(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, dims: int, eps: float | None
) -> tuple[torch.Tensor | None, ...]:
    """What :meth:`_RmsNorm.backward` returns, from PyTorch's operators, which have gradients themselves."""
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    over = tuple(range(-dims, 0))
    wide_x, wide_dy = x.to(wide), dy.to(wide)
    mean_square = (wide_x * wide_x).mean(over, keepdim=True)
    rstd = torch.rsqrt(mean_square + (torch.finfo(wide).eps if eps is None else eps))
    xhat = wide_x * rstd
    wdy = wide_dy if weight is None else wide_dy * weight.to(wide)
    dx = (wdy - xhat * (xhat * wdy).mean(over, keepdim=True)) * rstd
    if weight is None:
        return dx.to(x.dtype), None, None, None
    dweight = (wide_dy * xhat).reshape(-1, *weight.shape).sum(0)
    return dx.to(x.dtype), None, dweight.to(weight.dtype), None
