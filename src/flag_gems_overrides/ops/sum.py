# SPDX-License-Identifier: Apache-2.0
"""Sums, of a whole tensor and over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.call import reduce, reduce_into
from .families.reduction.nonzero import ANY
from .families.reduction.policy import Policy
from .families.reduction.sum import SUM
from .launch import outputs

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


def sum_out(inp: torch.Tensor, *, dtype: torch.dtype | None = None, out: torch.Tensor) -> torch.Tensor:
    """:func:`sum` into ``out``, of any strides, which is resized if it has another shape.

    Raises:
        RuntimeError: ``out`` does not have the dtype of the sum.
    """
    logger.debug("GEMS SUM_OUT")
    summed = dtype or (inp.dtype if inp.dtype.is_floating_point else torch.int64)
    outputs.check_dtype(out, summed)
    return reduce_into(out, _policy(summed), inp, None, False, summed)


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


def sum_dim_out(
    inp: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor,
) -> torch.Tensor:
    """:func:`sum_dim` into ``out``, of any strides, whose dtype the elements are converted to first.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice, or ``out`` does not have the dtype that is asked for.
    """
    logger.debug("GEMS SUM_DIM_OUT")
    outputs.check_dtype(out, dtype)
    dims = dim if dim is None or isinstance(dim, int) else tuple(dim)
    return reduce_into(out, _policy(out.dtype), inp, dims, keepdim, out.dtype)
