# SPDX-License-Identifier: Apache-2.0
"""Norms of vectors, of a whole tensor and over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.call import reduce
from .families.reduction.norm import norm_of

logger = logging.getLogger("flag_gems.ops.vector_norm")


def vector_norm(
    x: torch.Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``sum(abs(x) ** ord) ** (1 / ord)`` over ``dim``; None or () means all dimensions.

    Args:
        x: floating, any strides.
        ord: any number but NaN. inf means the largest magnitude, -inf the smallest, 0 how many are not zero.
        dim: one or several.
        dtype: what the elements are converted to first, without loss, and the dtype of the result; by default that of
            ``x``. Halves are computed in float32.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice; there is no element, and ``ord`` is negative or inf.
    """
    logger.debug("GEMS VECTOR NORM")
    dims = dim if dim is None or isinstance(dim, int) else tuple(dim)
    return reduce(norm_of(ord), x, dims, keepdim, dtype)[0]
