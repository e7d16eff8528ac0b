# SPDX-License-Identifier: Apache-2.0
"""How many elements are not zero, of a whole tensor and along a dimension."""

from __future__ import annotations

import logging

import torch

from .families.reduction.call import reduce
from .families.reduction.nonzero import COUNT

logger = logging.getLogger("flag_gems.ops.count_nonzero")


def count_nonzero(x: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """How many elements are not zero, as int64, along ``dim`` or of all. NaN is not zero.

    Args:
        x: any shape and strides, bool, integer or floating.

    Raises:
        IndexError: ``dim`` is out of range.
    """
    logger.debug("GEMS COUNT NONZERO")
    return reduce(COUNT, x, dim)[0]
