# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Norms of vectors, by their order."""

from __future__ import annotations

import functools
import math

import torch
import triton
import triton.language as tl
from flag_gems.utils import tl_extra_shim

from ...launch.products import product
from .extremum import larger, smaller
from .nonzero import is_nonzero
from .policy import Dtypes, Policy, accumulator
from .sum import add, zero

_pow = tl_extra_shim.pow


@triton.jit
def magnitude(x, OP: tl.constexpr):
    return tl.abs(x.to(OP.accumulator))


@triton.jit
def square(x, OP: tl.constexpr):
    x = x.to(OP.accumulator)
    return product(x, x)


@triton.jit
def root(result, count, OP: tl.constexpr):
    if OP.accumulator == tl.float32:
        return tl.sqrt_rn(result)
    else:
        return tl.sqrt(result)


@triton.jit
def power(x, OP: tl.constexpr):
    x = tl.abs(x.to(OP.accumulator))
    return _pow(x, tl.full(x.shape, OP.parameter, x.dtype))


@triton.jit
def inverse_power(result, count, OP: tl.constexpr):
    return _pow(result, tl.full(result.shape, 1 / OP.parameter, result.dtype))


def _infinite(dtype: torch.dtype) -> float:
    return math.inf


def _floating(dtype: torch.dtype, requested: torch.dtype | None, count: int) -> Dtypes:
    converted = requested or dtype
    return Dtypes(converted, accumulator(converted), converted)


def _without_identity(order: str, dim: int | None) -> Exception:
    where = (
        "an empty tensor because the" if dim is None else f"the dimension {dim}because this dimension is empty and the"
    )
    return RuntimeError(
        f"linalg.vector_norm cannot compute the {order} norm on {where} operation does not have an identity"
    )


_LARGEST = Policy("inf", larger, zero, _floating, prologue=magnitude, empty=_without_identity)


@functools.cache
def norm_of(order: float) -> Policy:
    """The policy of the norm of this order, which is not NaN."""
    if order == 0:
        return Policy("0", add, zero, _floating, prologue=is_nonzero)
    if order == 1:
        return Policy("1", add, zero, _floating, prologue=magnitude)
    if order == 2:
        return Policy("2", add, zero, _floating, prologue=square, epilogue=root, single=_LARGEST)
    if order == math.inf:
        return _LARGEST
    if order == -math.inf:
        return Policy("-inf", smaller, _infinite, _floating, prologue=magnitude, empty=_without_identity)
    return Policy(
        f"{order:g}",
        add,
        zero if order > 0 else _infinite,
        _floating,
        prologue=power,
        epilogue=inverse_power,
        parameter=order,
        single=_LARGEST,
        empty=None if order > 0 else _without_identity,
    )
