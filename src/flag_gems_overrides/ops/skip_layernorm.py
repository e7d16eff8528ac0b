# SPDX-License-Identifier: Apache-2.0
"""Layer normalization of a sum, as one function with its gradient: upstream's fused/skip_layernorm.py."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from .families.norm.call import backward, forward_of_sum

logger = logging.getLogger("flag_gems.fused.skip_layernorm")


def skip_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """``layer_norm(x + residual)`` over the last ``len(normalized_shape)`` dimensions.

    Args:
        x: floating-point tensor of any strides whose shape ends in ``normalized_shape``.
        residual: of the shape and dtype of ``x``.
        weight, bias: tensors of ``normalized_shape``, or None for ones and zeros.
        eps: added to the variance.

    Returns:
        As x, contiguous. The sum is rounded to their dtype, and kept if a gradient is needed.

    Raises:
        RuntimeError: as PyTorch, when the shapes do not fit.
    """
    logger.debug("GEMS SKIP LAYERNORM FORWARD")
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, residual, weight, bias)):
        output: torch.Tensor = _SkipLayerNorm.apply(x, residual, weight, bias, tuple(normalized_shape), eps)[0]
        return output
    return forward_of_sum(x, residual, normalized_shape, weight, bias, eps, False)[0]


class _SkipLayerNorm(torch.autograd.Function):
    """Returns the sum too, so that a gradient of the gradient finds its way to x and residual."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        normalized_shape: tuple[int, ...],
        eps: float,
    ) -> tuple[torch.Tensor | None, ...]:
        output, total, mean, rstd = forward_of_sum(x, residual, normalized_shape, weight, bias, eps, True)
        ctx.save_for_backward(total, mean, rstd, weight, bias)
        ctx.normalized_shape = normalized_shape
        ctx.set_materialize_grads(False)
        return output, total

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor | None, dtotal: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        total, mean, rstd, weight, bias = ctx.saved_tensors
        want_x, want_residual, *want_parameters = ctx.needs_input_grad[:4]
        gradients: tuple[torch.Tensor | None, ...] = (None, None, None)
        if dy is not None:
            mask = [want_x or want_residual, *want_parameters]
            # Of a gradient that may have one itself, PyTorch's operator knows it.
            compute = torch.ops.aten.native_layer_norm_backward if torch.is_grad_enabled() else backward
            gradients = compute(dy, total, list(ctx.normalized_shape), mean, rstd, weight, bias, mask)
        dx, dweight, dbias = gradients
        if dtotal is not None:
            dx = dtotal if dx is None else dx + dtotal
        return dx if want_x else None, dx if want_residual else None, dweight, dbias, None, None
