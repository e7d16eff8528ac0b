# SPDX-License-Identifier: Apache-2.0
"""Whether all elements are not zero, of a whole tensor and over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.call import reduce
from .families.reduction.nonzero import ALL

logger = logging.getLogger("flag_gems.ops.all")


def all(inp: torch.Tensor) -> torch.Tensor:
    """Whether all elements are not zero, as a 0-dim tensor of bool, or of uint8 where ``inp`` is.

    NaN is not zero. Of no element the result is True.
    """
    logger.debug("GEMS ALL")
    return reduce(ALL, inp)[0]


def all_dim(inp: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """As :func:`all`, along ``dim``; None means all dimensions.

    Raises:
        IndexError: ``dim`` is out of range.
    """
    logger.debug("GEMS ALL DIM")
    return reduce(ALL, inp, dim, keepdim)[0]


def all_dims(inp: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """As :func:`all`, over one or several dimensions; None means all. A list of none, where nothing is reduced, is
    native's.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice.
    """
    logger.debug("GEMS ALL DIMS")
    return reduce(ALL, inp, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim)[0]
