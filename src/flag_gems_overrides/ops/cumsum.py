# SPDX-License-Identifier: Apache-2.0
"""Running sums along a dimension."""

from __future__ import annotations

import logging

import torch

from .families.scan.call import cumsum as scan
from .families.scan.call import cumsum_out as scan_into

logger = logging.getLogger("flag_gems.ops.cumsum")


def cumsum(inp: torch.Tensor, dim: int = 1, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The sums of the elements up to each one along ``dim``.

    Args:
        inp: any shape and strides, bool, integer or floating.
        dim: negative from the end.
        dtype: what the elements are converted to first, and the dtype of the result; by default that of ``inp``, and
            int64 for bool and integers. Halves are added in float32.

    Returns:
        A contiguous tensor of the shape of ``inp``. The same bits in every call.

    Raises:
        IndexError: ``dim`` is out of range.
    """
    logger.debug("GEMS CUMSUM")
    return scan(inp, dim, dtype)


def cumsum_out(inp: torch.Tensor, dim: int = 1, *, dtype: torch.dtype | None = None, out: torch.Tensor) -> torch.Tensor:
    """:func:`cumsum` into ``out``, of any strides, which may be ``inp``. Elements are converted to its dtype first.

    Raises:
        IndexError: ``dim`` is out of range.
        RuntimeError: ``out`` does not have the dtype that is asked for.
    """
    logger.debug("GEMS CUMSUM_OUT")
    return scan_into(inp, dim, dtype, out)
