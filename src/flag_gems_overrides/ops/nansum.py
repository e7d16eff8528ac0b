# SPDX-License-Identifier: Apache-2.0
"""Sums of what is not NaN, of a whole tensor and over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.call import reduce, reduce_into
from .families.reduction.policy import Policy
from .families.reduction.sum import NANSUM, SUM
from .launch import outputs

logger = logging.getLogger("flag_gems.ops.nansum")


def _policy(inp: torch.Tensor) -> Policy:
    return NANSUM if inp.is_floating_point() else SUM


def nansum(
    inp: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The sums over ``dim``, one or several, of the elements that are not NaN; None or () means all dimensions.

    Args:
        inp: bool, integer or floating, any strides.
        dtype: what the elements are converted to first, and the dtype of the result; by default that of ``inp``, and
            int64 for bool and integers. Halves are added in float32. Floating for a floating ``inp``.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice.
    """
    logger.debug("GEMS NANSUM")
    return reduce(_policy(inp), inp, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim, dtype)[0]


def nansum_out(
    inp: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor,
) -> torch.Tensor:
    """:func:`nansum` into ``out``, of any strides, whose dtype the elements are converted to first.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice, or ``out`` does not have the dtype that is asked for.
    """
    logger.debug("GEMS NANSUM_OUT")
    outputs.check_dtype(out, dtype)
    dims = dim if dim is None or isinstance(dim, int) else tuple(dim)
    return reduce_into(out, _policy(inp), inp, dims, keepdim, out.dtype)
