# SPDX-License-Identifier: Apache-2.0
"""Whether all booleans are true."""

from __future__ import annotations

import logging

import torch

from .families.reduction.call import reduce
from .families.reduction.nonzero import ALL

logger = logging.getLogger("flag_gems.ops._is_all_true")


def _is_all_true(inp: torch.Tensor) -> torch.Tensor:
    """Whether all elements of a tensor of bool are true, as a 0-dim tensor; of none they are."""
    logger.debug("GEMS _IS_ALL_TRUE")
    return reduce(ALL, inp)[0]
