# SPDX-License-Identifier: Apache-2.0
"""Whether any element is not zero, of a whole tensor and over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.call import reduce
from .families.reduction.nonzero import ANY

logger = logging.getLogger("flag_gems.ops.any")


def any(inp: torch.Tensor) -> torch.Tensor:
    """Whether any element is not zero, as a 0-dim tensor of bool, or of uint8 where ``inp`` is.

    NaN is not zero. Of no element the result is False.
    """
    logger.debug("GEMS ANY")
    return reduce(ANY, inp)[0]


def any_dim(inp: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """As :func:`any`, along ``dim``; None means all dimensions.

    Raises:
        IndexError: ``dim`` is out of range.
    """
    logger.debug("GEMS ANY DIM")
    return reduce(ANY, inp, dim, keepdim)[0]


def any_dims(inp: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """As :func:`any`, over one or several dimensions; None means all. A list of none, where nothing is reduced, is
    native's.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice.
    """
    logger.debug("GEMS ANY DIMS")
    return reduce(ANY, inp, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim)[0]
