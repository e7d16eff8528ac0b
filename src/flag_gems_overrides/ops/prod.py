# SPDX-License-Identifier: Apache-2.0
"""Products, of a whole tensor and along a dimension."""

from __future__ import annotations

import logging

import torch

from .families.reduction.call import reduce
from .families.reduction.product import PRODUCT

logger = logging.getLogger("flag_gems.ops.prod")


def prod(inp: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The product of all elements, as a 0-dim tensor.

    Args:
        inp: any shape and strides, bool, integer or floating.
        dtype: what the elements are converted to first, and the dtype of the result; by default that of ``inp``, and
            int64 for bool and integers. Halves are multiplied in float32.
    """
    logger.debug("GEMS PROD")
    return reduce(PRODUCT, inp, None, False, dtype)[0]


def prod_dim(
    inp: torch.Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The products along ``dim``; otherwise as :func:`prod`.

    Raises:
        IndexError: ``dim`` is out of range.
    """
    logger.debug("GEMS PROD DIM")
    return reduce(PRODUCT, inp, dim, keepdim, dtype)[0]
