# SPDX-License-Identifier: Apache-2.0
"""What makes one reduction to pairs a particular one, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton.language as tl
from triton import JITFunction

from .policy import TRITON, Compiled


@dataclass(frozen=True)
class Pairing(Compiled):
    """The part of a policy that kernels are compiled with, for the dtypes of one launch. They take it as ``OP``."""

    lift: JITFunction
    fold: JITFunction
    fold_lanes: JITFunction
    merge: JITFunction
    epilogue: JITFunction | None
    identity: int | float
    first: int | float
    second: int | float
    converted: tl.dtype
    accumulator: tl.dtype
    prologue: None = None


# Compared by identity: a policy is part of the key of every call.
@dataclass(frozen=True, eq=False)
class PairPolicy:
    """One reduction operator that keeps a pair of numbers. Results have the dtype of the input."""

    name: str
    """As PyTorch's error messages say it."""
    lift: JITFunction
    """``(x, mask, OP)``: the pairs of single elements; where ``mask`` is false, of none."""
    fold: JITFunction
    """``(a, b, AXIS, OP)``: one pair of all along an axis."""
    fold_lanes: JITFunction
    """``(a, b, OP)``: of tuples of what ``lift`` made of elements, the pair of each lane."""
    merge: JITFunction
    """``(a, b, c, d, OP)``: the pairs (a, b) and (c, d) as one."""
    identity: Callable[[torch.dtype], int | float]
    """By dtype, what is loaded in the place of elements that are not there."""
    nothing: Callable[[torch.dtype], tuple[int | float, int | float]]
    """By the dtype of the input, the pair of no element."""
    epilogue: JITFunction | None = None
    """``(a, b, OP)``: the result; without it both numbers are results."""
    tiled: bool = True
    """Whether a column of elements may be several tiles, each without rows that do not exist; not where it takes more
    to merge pairs than to fold them."""
    empty: Callable[[str, int | None], Exception] | None = None
    """As in :class:`.policy.Policy`."""

    def pairing(self, dtype: torch.dtype, elements: torch.dtype, accumulator: torch.dtype, last: bool) -> Pairing:
        """For a launch that reads tensors of dtype ``elements``, of a reduction of ``dtype``."""
        first, second = self.nothing(dtype)
        return Pairing(
            lift=self.lift,
            fold=self.fold,
            fold_lanes=self.fold_lanes,
            merge=self.merge,
            epilogue=self.epilogue if last else None,
            identity=self.identity(elements),
            first=first,
            second=second,
            converted=TRITON[accumulator],
            accumulator=TRITON[accumulator],
        )
