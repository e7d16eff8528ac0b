# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""The operations that the reductions combine with: product, maximum, minimum."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _multiply(a, b):
    return a * b


# GPUs have no maximum of float64; what LLVM makes of it also orders 0.0 and -0.0, at twice the instructions.


@triton.jit
def _larger(a, b):
    if a.dtype == tl.float64:
        return tl.where((a <= b) | (b != b), b, a)
    else:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _smaller(a, b):
    if a.dtype == tl.float64:
        return tl.where((a >= b) | (b != b), b, a)
    else:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


# Functions as constexpr parameters would do instead of names, but tl.reduce takes none (Triton 3.6).


@triton.jit
def combine(a, b, COMBINE: tl.constexpr):
    if COMBINE == "multiply":
        return _multiply(a, b)
    elif COMBINE == "larger":
        return _larger(a, b)
    else:
        return _smaller(a, b)


@triton.jit
def fold(x, axis: tl.constexpr, COMBINE: tl.constexpr):
    if COMBINE == "multiply":
        return tl.reduce(x, axis, _multiply)
    elif COMBINE == "larger":
        return tl.reduce(x, axis, _larger)
    else:
        return tl.reduce(x, axis, _smaller)


@triton.jit
def beats(x, best, COMBINE: tl.constexpr):
    """Whether ``x`` replaces ``best``. A NaN beats every number and nothing beats a NaN, which compares to nothing."""
    if COMBINE == "larger":
        return (best == best) & ~(x <= best)
    else:
        return (best == best) & ~(x >= best)


@triton.jit
def is_best(x, best):
    """Whether ``x`` is what ``best`` was found among; of elements with a NaN, NaN is."""
    return (x == best) | (x != x)


@triton.jit
def combine_neighbours(x, GROUP: tl.constexpr, COMBINE: tl.constexpr):
    if GROUP == 1:
        return x
    else:
        return fold(tl.reshape(x, [x.shape[0], x.shape[1] // GROUP, GROUP]), 2, COMBINE)
