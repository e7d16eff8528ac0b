# SPDX-License-Identifier: Apache-2.0
"""Group normalization, forward and backward."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.norm.group_call import Sizes, prepare_backward, prepare_forward

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
    new_output, new_statistic, compute = prepare_forward(
        input.shape,
        input.dtype,
        None if weight is None else (weight.shape, weight.dtype),
        None if bias is None else (bias.shape, bias.dtype),
        Sizes(N, C, HxW, group),
        eps,
        input.get_device(),
    )
    output = new_output()
    mean = new_statistic()
    rstd = new_statistic()
    compute(
        input.contiguous(),
        None if weight is None else weight.contiguous(),
        None if bias is None else bias.contiguous(),
        output,
        mean,
        rstd,
    )
    return output, mean, rstd


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
    want_input, want_weight, want_bias = output_mask
    new_dx, new_parameter, compute = prepare_backward(
        input.shape,
        (input.dtype, mean.dtype, rstd.dtype),
        (grad_out.numel(), mean.numel(), rstd.numel()),
        None if weight is None else (weight.shape, weight.dtype),
        Sizes(N, C, HxW, group),
        (want_input, want_weight, want_bias),
        input.get_device(),
    )
    dx = new_dx() if want_input else None
    dweight = new_parameter() if want_weight else None
    dbias = new_parameter() if want_bias else None
    compute(
        grad_out.contiguous(),
        input.contiguous(),
        None if weight is None else weight.contiguous(),
        mean.contiguous(),
        rstd.contiguous(),
        dx,
        dweight,
        dbias,
    )
    return dx, dweight, dbias
