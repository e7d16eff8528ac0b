# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Largest and smallest elements and their positions. NaN is more extreme than any number."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from .policy import Policy, unchanged

# GPUs have no maximum of float64; what LLVM makes of it also orders 0.0 and -0.0, at twice the instructions.


@triton.jit
def larger(a, b):
    if a.dtype == tl.float64:
        return tl.where((a <= b) | (b != b), b, a)
    else:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(a, b):
    if a.dtype == tl.float64:
        return tl.where((a >= b) | (b != b), b, a)
    else:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


# A NaN replaces every number and nothing replaces a NaN: no comparison with a NaN holds.


@triton.jit
def replaces_largest(x, best):
    return (best == best) & ~(x <= best)


@triton.jit
def replaces_smallest(x, best):
    return (best == best) & ~(x >= best)


def lowest(dtype: torch.dtype) -> int | float:
    if dtype.is_floating_point:
        return -math.inf
    return 0 if dtype is torch.bool else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> int | float:
    if dtype.is_floating_point:
        return math.inf
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


def without_value(name: str, dim: int | None) -> Exception:
    """What PyTorch raises where a result would be an element, and there is none."""
    if dim is not None:
        return _without_element(name, dim)
    return RuntimeError(
        f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
        "Specify the reduction dim with the 'dim' argument."
    )


def without_position(name: str, dim: int | None) -> Exception:
    """What PyTorch raises where a result would be a position, and there is none."""
    if dim is not None:
        return _without_element(name, dim)
    return IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")


def _without_element(name: str, dim: int) -> Exception:
    return IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


# Each operator gives its name.
LARGEST = Policy("", larger, lowest, unchanged, empty=without_value, replaces=replaces_largest)
SMALLEST = Policy("", smaller, highest, unchanged, empty=without_value, replaces=replaces_smallest)
