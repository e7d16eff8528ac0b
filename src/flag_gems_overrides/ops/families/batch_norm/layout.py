# SPDX-License-Identifier: Apache-2.0
"""A tensor of shape [N, C, ...] as [A, C, B] in the order of its memory, whatever that order is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class View(NamedTuple):
    """Sizes of what lies around the channels in memory.

    Contiguous images [N, C, H, W] are [N, C, H * W]; channels last, or [N, C], they are [N * H * W, C, 1].
    """

    A: int
    C: int
    B: int


def view(shape: Sequence[int], strides: Sequence[int]) -> View | None:
    """None if the elements are not those of one block of memory, each once."""
    C = shape[1]
    total = math.prod(shape)
    if total == 0 or C == 1:
        dense = total == 0 or is_dense(shape, strides)
        return View(1, C, total // C if C else 0) if dense else None
    if not is_dense(shape, strides):
        return None
    inner = math.prod(
        size
        for dim, (size, stride) in enumerate(zip(shape, strides, strict=True))
        if dim != 1 and stride < strides[1] and size > 1
    )
    return View(total // (C * inner), C, inner)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the dimensions, in some order, are those of a contiguous tensor."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def same_order(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Whether tensors of these strides have their elements in the same order."""
    return all(size == 1 or stride == other for size, stride, other in zip(shape, strides, others, strict=True))
