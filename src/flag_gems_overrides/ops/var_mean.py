# SPDX-License-Identifier: Apache-2.0
"""Variances and means, over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.moments import variance
from .families.reduction.moments_call import moments

logger = logging.getLogger("flag_gems.ops.var_mean")


def var_mean(
    x: torch.Tensor, dim: int | Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The variances over ``dim``, one or several, and the means; None or () means all dimensions.

    Args:
        x: floating, any strides. Halves are computed in float32.
        correction: what the number of elements is diminished by, for the variance; None is 1. NaN or inf where nothing
            is left of it.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice.
    """
    logger.debug("GEMS VAR MEAN")
    dims = dim if dim is None or isinstance(dim, int) else tuple(dim)
    return moments(variance, x, dims, correction, keepdim, means=True)  # type: ignore[return-value]
