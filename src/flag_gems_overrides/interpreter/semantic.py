# SPDX-License-Identifier: Apache-2.0
"""The operands of a binary operation, without what the compiler needs and numpy does not."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import triton.language as tl

from flag_gems_overrides.interpreter.dtypes import sizes
from flag_gems_overrides.interpreter.triton_internals import TensorHandle, TritonSemantic

_NUMBER = (int, float)


class Semantic(TritonSemantic):
    def load(self, ptr: Any, mask: Any, other: Any, *rest: Any) -> tl.tensor:
        # The stock one takes a scalar `other` of zero for none, by its truth.
        self.builder.has_other = other is not None
        return super().load(ptr, mask, other, *rest)

    def binary_op_type_checking_impl(
        self,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> tuple[tl.tensor, tl.tensor]:
        """The operands with their common type and shape. The stock one fills a whole block with a scalar; here only
        the type says so, for every operation that comes next broadcasts by itself."""
        options = allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod
        if isinstance(lhs, _NUMBER) or isinstance(rhs, _NUMBER):
            lhs, rhs = self._with_number(lhs, rhs, options)
        elif lhs.dtype.is_ptr() or rhs.dtype.is_ptr():
            self.check_ptr_type_impl(lhs.dtype, rhs.dtype, allow_lhs_ptr)
            self.check_ptr_type_impl(rhs.dtype, lhs.dtype, allow_rhs_ptr)
        elif arithmetic_check and (lhs.dtype is not rhs.dtype or div_or_mod):
            common = self._common(lhs.dtype, rhs.dtype, div_or_mod)
            lhs, rhs = self.cast(lhs, common), self.cast(rhs, common)
        left, right = sizes(lhs.type), sizes(rhs.type)
        if left == right:
            return lhs, rhs
        shape = _broadcast(left, right)
        return _typed(lhs, left, shape), _typed(rhs, right, shape)

    def broadcast_impl_value(self, lhs: tl.tensor, rhs: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
        left, right = sizes(lhs.type), sizes(rhs.type)
        if left == right:
            return lhs, rhs
        shape = _broadcast(left, right)
        return _filled(lhs, left, shape), _filled(rhs, right, shape)

    @functools.cache  # noqa: B019 (there is one Semantic, for good)
    def _common(self, left: tl.dtype, right: tl.dtype, div_or_mod: bool) -> tl.dtype:
        return self.computation_type_impl(left, False, right, False, div_or_mod)

    def _with_number(self, lhs: Any, rhs: Any, options: tuple[bool, ...]) -> tuple[tl.tensor, tl.tensor]:
        tensor = rhs if isinstance(lhs, _NUMBER) else lhs
        if isinstance(tensor, _NUMBER) or tensor.dtype.is_ptr():
            return super().binary_op_type_checking_impl(lhs, rhs, *options)
        if tensor is lhs:
            dtype, number = self._number_right(tensor.dtype, rhs, options)
            return self.cast(lhs, dtype), number
        dtype, number = self._number_left(lhs, tensor.dtype, options)
        return number, self.cast(rhs, dtype)

    @functools.lru_cache(maxsize=4096, typed=True)  # noqa: B019
    def _number_right(self, dtype: tl.dtype, number: Any, options: tuple[bool, ...]) -> tuple[tl.dtype, tl.tensor]:
        any_tensor = self.scalar_constant(0, dtype)
        tensor, constant = super().binary_op_type_checking_impl(any_tensor, number, *options)
        return tensor.dtype, constant

    @functools.lru_cache(maxsize=4096, typed=True)  # noqa: B019
    def _number_left(self, number: Any, dtype: tl.dtype, options: tuple[bool, ...]) -> tuple[tl.dtype, tl.tensor]:
        any_tensor = self.scalar_constant(0, dtype)
        constant, tensor = super().binary_op_type_checking_impl(number, any_tensor, *options)
        return tensor.dtype, constant


@functools.cache
def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (left, right)]
    if any(a != b and 1 not in (a, b) for a, b in zip(*padded, strict=True)):
        raise ValueError(f"Cannot make_shape_compatible: incompatible dimensions: {left} and {right}")
    return tuple(b if a == 1 else a for a, b in zip(*padded, strict=True))


def _typed(x: tl.tensor, shape: tuple[int, ...], wanted: tuple[int, ...]) -> tl.tensor:
    return x if shape == wanted else tl.tensor(x.handle, tl.block_type(x.dtype, wanted))


def _filled(x: tl.tensor, shape: tuple[int, ...], wanted: tuple[int, ...]) -> tl.tensor:
    if shape == wanted:
        return x
    data = np.empty(wanted, x.handle.data.dtype)
    data[...] = x.handle.data
    return tl.tensor(TensorHandle(data, x.dtype), tl.block_type(x.dtype, wanted))
