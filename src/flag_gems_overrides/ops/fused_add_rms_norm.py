# SPDX-License-Identifier: Apache-2.0
"""RMS normalization of a sum in place, as one function with its gradient: upstream's fused/fused_add_rms_norm.py."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from .families.norm.rms_call import compute_backward, compute_forward_of_sum

logger = logging.getLogger("flag_gems.fused.fused_add_rms_norm")


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``residual += x``, and ``x = rms_norm(residual)`` over the last ``len(normalized_shape)`` dimensions.

    Args:
        x: floating-point tensor of any strides whose shape ends in ``normalized_shape``; is written to.
        residual: of the shape and dtype of ``x``, without memory in common; is written to.
        weight: tensor of ``normalized_shape``, or None for ones.
        eps: added to the mean square.

    Returns:
        (x, residual). The sum is rounded to their dtype before it is normalized. If a gradient is needed, a copy of it
        is kept: residual is written to again in the next layer.

    Raises:
        RuntimeError, ValueError: as PyTorch, when the shapes do not fit, or a leaf that needs a gradient is written to.
    """
    logger.debug("GEMS FUSED_ADD_RMS_NORM FORWARD")
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, residual, weight)):
        if any(t.requires_grad and t.is_leaf for t in (x, residual)):
            # Autograd says so too, but after it was written to.
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if not x._is_view() and not residual._is_view():
            return _FusedAddRmsNorm.apply(x, residual, weight, tuple(normalized_shape), eps)
        # Autograd refuses a function of two results that writes to a view.
        y, total = _FusedAddRmsNorm.apply(x.clone(), residual.clone(), weight, tuple(normalized_shape), eps)
        return x.copy_(y), residual.copy_(total)
    compute_forward_of_sum(x, residual, normalized_shape, weight, eps, False)
    increment_version((x, residual))
    return x, residual


class _FusedAddRmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor | None,
        normalized_shape: tuple[int, ...],
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total, rstd = compute_forward_of_sum(x, residual, normalized_shape, weight, eps, True)
        ctx.mark_dirty(x, residual)
        ctx.save_for_backward(total, rstd, weight)
        ctx.normalized_shape = normalized_shape
        ctx.set_materialize_grads(False)
        return x, residual

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor | None, dtotal: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        total, rstd, weight = ctx.saved_tensors
        want_x, want_residual, want_weight = ctx.needs_input_grad[:3]
        dx = dweight = None
        if dy is not None:
            mask = [want_x or want_residual, want_weight]
            dx, dweight = compute_backward(dy, total, rstd, ctx.normalized_shape, weight, mask)
        if dtotal is not None:
            dx = dtotal if dx is None else dx + dtotal
        return dx if want_x else None, dx if want_residual else None, dweight, None, None
