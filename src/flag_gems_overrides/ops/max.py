# SPDX-License-Identifier: Apache-2.0
"""The largest element, of a whole tensor and along a dimension with its position."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from .families.reduction.call import reduce
from .families.reduction.extremum import LARGEST

logger = logging.getLogger("flag_gems.ops.max")

MAX = replace(LARGEST, name="max")
MAX_DIM = replace(MAX, positions=True)


def max(inp: torch.Tensor) -> torch.Tensor:
    """The largest element, as a 0-dim tensor; NaN if there is one.

    Raises:
        RuntimeError: ``inp`` is empty.
    """
    logger.debug("GEMS MAX")
    return reduce(MAX, inp)[0]


def max_dim(inp: torch.Tensor, dim: int, keepdim: bool = False) -> torch.return_types.max:
    """The largest elements along ``dim`` and, as int64, the position of the first of each; NaN is the largest.

    Raises:
        IndexError: ``dim`` is out of range or has size 0.
    """
    logger.debug("GEMS MAX DIM")
    return torch.return_types.max(reduce(MAX_DIM, inp, dim, keepdim))
