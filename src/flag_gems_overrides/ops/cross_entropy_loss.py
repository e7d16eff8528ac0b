# SPDX-License-Identifier: Apache-2.0
"""The cross entropy of logits, as one function with its gradient: upstream's fused/cross_entropy_loss.py."""

from __future__ import annotations

import logging

import torch
from torch.nn import _reduction

from .families.gather.logits import CrossEntropy

logger = logging.getLogger("flag_gems.fused.cross_entropy_loss")


def cross_entropy_loss(
    inp: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """``torch.nn.functional.cross_entropy``. The logits are read once, and once more for their gradient.

    Args:
        inp: [C] or [N, C, ...], of any strides; float16, bfloat16, float32 or float64.
        target: classes of [] or [N, ...], int64 or uint8; or probabilities of the shape and dtype of ``inp``.
        weight: [C], of the dtype of ``inp``; ones if None.
        reduction: "none", "mean" or "sum". The mean of classes is weighted, and NaN if all of them are ignored.
        ignore_index: targets of this class are left out. It need not be a class.
        label_smoothing: from 0 to 1.

    Returns:
        The losses, of the shape that classes have, or one element.

    Raises:
        ValueError: ``reduction`` is none of these. A target that is no class ends the kernel with a device-side
            assertion.
    """
    logger.debug("GEMS CrossEntropyLoss")
    # Classes last: [..., C].
    logits = inp if inp.dim() < 3 else inp.movedim(1, -1)
    shape, C = logits.shape[:-1], logits.shape[-1]
    x = logits.reshape(-1, C).contiguous()
    if target.is_floating_point():
        rows = (target if target.dim() < 3 else target.movedim(1, -1)).reshape(-1, C)
    else:
        rows = target.reshape(-1)
    loss = CrossEntropy.apply(
        x,
        rows.contiguous(),
        None if weight is None else weight.contiguous(),
        _reduction.get_enum(reduction),
        ignore_index,
        label_smoothing,
        inp.requires_grad and torch.is_grad_enabled(),
    )
    return loss.view(shape) if reduction == "none" else loss
