# SPDX-License-Identifier: Apache-2.0
"""The largest elements over any dimensions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch

from .families.reduction.call import reduce
from .families.reduction.extremum import LARGEST

logger = logging.getLogger("flag_gems.ops.amax")

AMAX = replace(LARGEST, name="amax")


def amax(inp: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """The largest elements over ``dim``, one or several; NaN is the largest. None or () means all dimensions.

    Raises:
        IndexError: a dimension is out of range or has size 0.
        RuntimeError: a dimension comes twice; ``inp`` is empty and ``dim`` is not given.
    """
    logger.debug("GEMS AMAX")
    return reduce(AMAX, inp, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim)[0]
