# SPDX-License-Identifier: Apache-2.0
"""The largest element, of a whole tensor and along a dimension with its position."""

from __future__ import annotations

import logging

import torch

from .families.reduction.call import reduce, reduce_with_index

logger = logging.getLogger("flag_gems.ops.max")


def max(inp: torch.Tensor) -> torch.Tensor:
    """The largest element, as a 0-dim tensor; NaN if there is one.

    Raises:
        RuntimeError: ``inp`` is empty.
    """
    logger.debug("GEMS MAX")
    return reduce("max", inp)


def max_dim(inp: torch.Tensor, dim: int, keepdim: bool = False) -> torch.return_types.max:
    """The largest elements along ``dim`` and, as int64, the position of the first of each; NaN is the largest.

    Raises:
        IndexError: ``dim`` is out of range or has size 0.
    """
    logger.debug("GEMS MAX DIM")
    return torch.return_types.max(reduce_with_index("max", inp, dim, keepdim))
