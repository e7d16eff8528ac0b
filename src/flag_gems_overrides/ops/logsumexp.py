# SPDX-License-Identifier: Apache-2.0
"""Logarithms of sums of exponentials."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from .families.reduction.logsumexp import LOGSUMEXP
from .families.reduction.pairs_call import reduce_pairs

logger = logging.getLogger("flag_gems.ops.logsumexp")


def logsumexp(inp: torch.Tensor, dim: int | Sequence[int], keepdim: bool = False) -> torch.Tensor:
    """``log(sum(exp(inp)))`` over ``dim``, one or several, without overflow, of one reading.

    Args:
        inp: floating, any strides. Halves are computed in float32. Of -inf alone and of nothing the result is -inf, of
            what has inf it is inf, and NaN where there is one.

    Raises:
        IndexError: a dimension is out of range.
        RuntimeError: a dimension comes twice.
    """
    logger.debug("GEMS LOGSUMEXP")
    return reduce_pairs(LOGSUMEXP, inp, dim if isinstance(dim, int) else tuple(dim), keepdim)[0]
