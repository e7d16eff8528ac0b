# SPDX-License-Identifier: Apache-2.0
"""Standard deviations, over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.moments import deviation
from .families.reduction.moments_call import moments

logger = logging.getLogger("flag_gems.ops.std")


def std(
    x: torch.Tensor, dim: int | Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    """The standard deviations over ``dim``, one or several; None or () means all dimensions.

    Args:
        x: floating, any strides. Halves are computed in float32.
        correction: what the number of elements is diminished by; None is 1. NaN or inf where nothing is left of it.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice.
    """
    logger.debug("GEMS STD")
    dims = dim if dim is None or isinstance(dim, int) else tuple(dim)
    return moments(deviation, x, dims, correction, keepdim)[0]
