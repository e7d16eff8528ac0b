# SPDX-License-Identifier: Apache-2.0
"""Where the smallest element is, of a whole tensor and along a dimension."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from .families.reduction.call import reduce
from .families.reduction.extremum import SMALLEST, without_position

logger = logging.getLogger("flag_gems.ops.argmin")

ARGMIN = replace(SMALLEST, name="argmin", values=False, positions=True, empty=without_position)


def argmin(
    inp: torch.Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The position, as int64, of the first of the smallest elements along ``dim``; a NaN is the smallest.

    Args:
        inp: integer or floating, any strides.
        dim: ``None`` for the position in ``inp`` read row by row.
        keepdim: whether ``dim``, or every dimension, stays with size 1.
        dtype: not used; upstream's signature has it.

    Raises:
        IndexError: ``dim`` is out of range or has size 0; without ``dim``, ``inp`` is empty.
        NotImplementedError: ``inp`` is bool. PyTorch before 2.15 raises a plain RuntimeError, which this is too.
    """
    logger.debug("GEMS ARGMIN")
    if inp.dtype is torch.bool:
        raise NotImplementedError("argmin(): does not support bool input")
    return reduce(ARGMIN, inp, dim, keepdim)[1]
