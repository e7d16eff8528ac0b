# SPDX-License-Identifier: Apache-2.0
"""Means, of a whole tensor and over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.call import reduce
from .families.reduction.sum import MEAN

logger = logging.getLogger("flag_gems.ops.mean")


def mean(inp: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The mean of all elements, as a 0-dim tensor; that of none is NaN.

    Args:
        inp: any shape and strides; with a ``dtype`` bool and integers too.
        dtype: floating; what the elements are converted to first, and the dtype of the result, by default that of
            ``inp``. Halves are added and divided in float32.

    Raises:
        RuntimeError: the result would be an integer or a bool.
    """
    logger.debug("GEMS MEAN")
    _refuse_integers(inp, dtype)
    return reduce(MEAN, inp, None, False, dtype)[0]


def mean_dim(
    inp: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The means over ``dim``, one or several; None or () means all dimensions. Otherwise as :func:`mean`.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice.
    """
    logger.debug("GEMS MEAN_DIM")
    _refuse_integers(inp, dtype)
    return reduce(MEAN, inp, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim, dtype)[0]


def _refuse_integers(inp: torch.Tensor, dtype: torch.dtype | None) -> None:
    """Raise as PyTorch does; flag_gems calls these functions with any dtype where no predicate stands before them."""
    if not (dtype or inp.dtype).is_floating_point:
        which = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"mean(): could not infer output dtype. {which} dtype must be either a floating point or complex dtype. "
            f"Got: {dtype or inp.dtype}"
        )
