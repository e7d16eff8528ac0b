# SPDX-License-Identifier: Apache-2.0
"""The smallest and the largest element together, of a whole tensor and along a dimension."""

from __future__ import annotations

import logging

import torch

from .families.reduction.extremes import EXTREMES
from .families.reduction.pairs_call import reduce_pairs
from .launch import outputs

logger = logging.getLogger("flag_gems.ops.aminmax")


def aminmax(
    inp: torch.Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.return_types.aminmax:
    """The smallest and the largest elements along ``dim``, of one reading; None means all dimensions.

    Args:
        inp: any shape and strides, bool, integer or floating. Where there is a NaN both results are NaN.
        out: tensors of any strides that the results go to, resized if they have other shapes.

    Raises:
        IndexError: ``dim`` is out of range or has size 0.
        RuntimeError: ``inp`` is empty, without ``dim``; ``out`` has another dtype.
    """
    logger.debug("GEMS AMINMAX")
    smallest, largest = reduce_pairs(EXTREMES, inp, dim, keepdim)
    assert largest is not None
    if out is None:
        return torch.return_types.aminmax((smallest, largest))
    for given, made in zip(out, (smallest, largest), strict=True):
        outputs.check_dtype(given, made.dtype)
        outputs.resize(given, made.shape)
        given.copy_(made)
    return torch.return_types.aminmax(out)
