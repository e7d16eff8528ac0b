# SPDX-License-Identifier: Apache-2.0
"""Sums, of a whole tensor and over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.call import reduce
from .families.reduction.nonzero import ANY
from .families.reduction.policy import Policy
from .families.reduction.sum import SUM

logger = logging.getLogger("flag_gems.ops.sum")


def _policy(dtype: torch.dtype | None) -> Policy:
    return ANY if dtype is torch.bool else SUM


def sum(inp: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The sum of all elements, as a 0-dim tensor; that of none is 0.

    Args:
        inp: any shape and strides, bool, integer or floating.
        dtype: what the elements are converted to first, and the dtype of the result; by default that of ``inp``, and
            int64 for bool and integers. Halves are added in float32. Asked for in bool: whether any is not zero.
    """
    logger.debug("GEMS SUM")
    return reduce(_policy(dtype), inp, None, False, dtype)[0]


def sum_dim(
    inp: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The sums over ``dim``, one or several; None or () means all dimensions. Otherwise as :func:`sum`.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice.
    """
    logger.debug("GEMS SUM_DIM")
    return reduce(_policy(dtype), inp, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim, dtype)[0]
