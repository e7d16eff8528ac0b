# SPDX-License-Identifier: Apache-2.0
"""Dimensions as PyTorch reads them."""

from __future__ import annotations

import math


def wrap_dim(dim: int, ndim: int) -> int:
    """``dim`` counted from the front; a 0-dim tensor counts as having one dimension, as in PyTorch.

    Raises:
        IndexError: with PyTorch's text, when ``dim`` is out of range.
    """
    ndim = max(ndim, 1)
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    return dim % ndim


def split_at(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """(M, N, K) of a contiguous tensor: sizes before, at and behind ``dim`` (already wrapped)."""
    if not shape:
        return 1, 1, 1
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
