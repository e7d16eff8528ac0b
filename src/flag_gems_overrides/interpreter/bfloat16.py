# SPDX-License-Identifier: Apache-2.0
"""bfloat16 arithmetic.

The stock interpreter keeps a bfloat16 as the uint16 of its bits, does its arithmetic on those integers, and converts
from float32 by cutting bits off. Hardware computes in float32 and rounds to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from flag_gems_overrides.interpreter.dtypes import array_type
from flag_gems_overrides.interpreter.triton_internals import InterpreterBuilder, TensorHandle, ir

Array = np.ndarray[Any, Any]
_NAN = np.uint16(0x7FC0)


def widen(bits: Array) -> Array:
    """bfloat16 bits as float32; exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: Array) -> Array:
    """float32 as bfloat16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), _NAN, rounded)


def numbers(handle: TensorHandle) -> Array:
    """The values of a handle, whose data are bits if its type is bfloat16."""
    return widen(handle.data) if handle.dtype.scalar == tl.bfloat16 else handle.data


def handle(values: Array, dtype: tl.dtype) -> TensorHandle:
    """The handle of ``values`` rounded to ``dtype``."""
    if dtype == tl.bfloat16:
        return TensorHandle(narrow(values), dtype)
    return TensorHandle(values.astype(array_type(dtype), copy=False), dtype)


class BFloat16Builder(InterpreterBuilder):
    """Replaces the builder's methods that look at the data of floating-point handles."""

    def get_bf16(self, value: float) -> TensorHandle:
        return handle(np.array([value], np.float32), tl.bfloat16)

    def cast_impl(self, src: TensorHandle, dst_type: tl.dtype) -> TensorHandle:
        return handle(numbers(src), dst_type.scalar)

    def create_fp_to_fp(self, src: TensorHandle, dst_type: tl.dtype, rounding_mode: Any) -> TensorHandle:
        down_to_bfloat16 = dst_type.scalar == tl.bfloat16 and src.dtype.scalar == tl.float32
        if down_to_bfloat16 and rounding_mode == ir.ROUNDING_MODE.RTNE:
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    def binary_op(self, lhs: TensorHandle, rhs: TensorHandle, op: Callable[..., Array]) -> TensorHandle:
        dtype = lhs.dtype.scalar
        result = op(lhs.data, rhs.data) if dtype != tl.bfloat16 else op(widen(lhs.data), widen(rhs.data))
        # The stock interpreter gives a comparison's result the type of its operands.
        return TensorHandle(result, tl.int1) if result.dtype == np.bool_ else handle(result, dtype)

    def unary_op(self, arg: TensorHandle, op: Callable[..., Array]) -> TensorHandle:
        return handle(op(numbers(arg)), arg.dtype.scalar)

    def create_fma(self, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        if z.dtype.scalar == tl.float32:
            # Rounded once, as good as: a product of two float32 is exact in float64.
            wide = numbers(x).astype(np.float64) * numbers(y) + numbers(z)
            return handle(wide.astype(np.float32), tl.float32)
        return handle(numbers(x) * numbers(y) + numbers(z), z.dtype.scalar)

    def create_clampf(self, arg: TensorHandle, lo: TensorHandle, hi: TensorHandle, propagate_nan: Any) -> TensorHandle:
        x = numbers(arg)
        # Two minNum/maxNum instructions, which drop NaN.
        result = np.fmin(np.fmax(x, numbers(lo)), numbers(hi))
        if propagate_nan == ir.PROPAGATE_NAN.ALL:
            result = np.where(np.isnan(x), x, result)
        return handle(result, arg.dtype.scalar)

    def create_maxnumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        """Hardware's maximum returns the other operand for a NaN; numpy's ``maximum`` would return the NaN."""
        return self.binary_op(lhs, rhs, np.fmax)

    def create_minnumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_dot(self, a: TensorHandle, b: TensorHandle, *rest: Any) -> TensorHandle:
        a, b = (self.cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return super().create_dot(a, b, *rest)
