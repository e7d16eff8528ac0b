# SPDX-License-Identifier: Apache-2.0
"""The smallest elements over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch

from .families.reduction.call import reduce
from .families.reduction.extremum import SMALLEST

logger = logging.getLogger("flag_gems.ops.amin")

AMIN = replace(SMALLEST, name="amin")


def amin(inp: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """The smallest elements over ``dim``, one or several; NaN is the smallest. None or () means all dimensions.

    Raises:
        IndexError: a dimension is out of range or has size 0.
        RuntimeError: a dimension comes twice; ``inp`` is empty and ``dim`` is not given.
    """
    logger.debug("GEMS AMIN")
    return reduce(AMIN, inp, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim)[0]
