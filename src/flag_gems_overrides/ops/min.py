# SPDX-License-Identifier: Apache-2.0
"""The smallest element, of a whole tensor and along a dimension with its position."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from .families.reduction.call import reduce
from .families.reduction.extremum import SMALLEST

logger = logging.getLogger("flag_gems.ops.min")

MIN = replace(SMALLEST, name="min")
MIN_DIM = replace(MIN, positions=True)


def min(inp: torch.Tensor) -> torch.Tensor:
    """The smallest element, as a 0-dim tensor; NaN if there is one.

    Raises:
        RuntimeError: ``inp`` is empty.
    """
    logger.debug("GEMS MIN")
    return reduce(MIN, inp)[0]


def min_dim(inp: torch.Tensor, dim: int, keepdim: bool = False) -> torch.return_types.min:
    """The smallest elements along ``dim`` and, as int64, the position of the first of each; NaN is the smallest.

    Raises:
        IndexError: ``dim`` is out of range or has size 0.
    """
    logger.debug("GEMS MIN DIM")
    return torch.return_types.min(reduce(MIN_DIM, inp, dim, keepdim))
