# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""The smallest and the largest element together. A NaN is both."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .extremum import highest, larger, lowest, smaller
from .pair_policy import PairPolicy
from .sum import zero


@triton.jit
def twice(x, mask, OP: tl.constexpr):
    return tl.where(mask, x, tl.full([], OP.first, x.dtype)), tl.where(mask, x, tl.full([], OP.second, x.dtype))


@triton.jit
def fold_extremes(a, b, AXIS: tl.constexpr, OP: tl.constexpr):
    return tl.reduce(a, AXIS, smaller), tl.reduce(b, AXIS, larger)


@triton.jit
def fold_extremes_of_lanes(a, b, OP: tl.constexpr):
    low, high = a[0], b[0]
    for i in tl.static_range(1, len(a)):
        low, high = smaller(low, a[i]), larger(high, b[i])
    return low, high


@triton.jit
def merge_extremes(a, b, c, d, OP: tl.constexpr):
    return smaller(a, c), larger(b, d)


def _no_elements(name: str, dim: int | None) -> Exception:
    if dim is None:
        return RuntimeError(
            f"{name}(): cannot compute {name} over an empty dimension as the operation has no identity."
        )
    return IndexError(f"{name}: Expected reduction dim {dim} to have non-zero size.")


def _of_none(dtype: torch.dtype) -> tuple[int | float, int | float]:
    return highest(dtype), lowest(dtype)


EXTREMES = PairPolicy(
    "aminmax", twice, fold_extremes, fold_extremes_of_lanes, merge_extremes, zero, _of_none, empty=_no_elements
)
