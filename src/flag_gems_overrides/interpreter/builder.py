# SPDX-License-Identifier: Apache-2.0
"""Executes what ``triton.language`` asks the compiler's builder to emit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from flag_gems_overrides.interpreter.bfloat16 import BFloat16Builder
from flag_gems_overrides.interpreter.dtypes import array_type
from flag_gems_overrides.interpreter.memory import LaunchMemory
from flag_gems_overrides.interpreter.observation import settings
from flag_gems_overrides.interpreter.region import Array
from flag_gems_overrides.interpreter.triton_internals import InterpreterOptions, TensorHandle, is_volatile, memory


class Builder(BFloat16Builder):
    def __init__(self) -> None:
        super().__init__()
        # The stock interpreter repeats each integer operation in 64 bits and then drops the comparison: ten times the
        # work, for a check that only `debug` turns on.
        self.options = InterpreterOptions(sanitize_overflow=False)
        self.memory: LaunchMemory
        """Of the launch that is running."""
        self.yield_program: Callable[[bool], None] | None = None
        """In a cooperative launch: let other programs run, after an operation that did or did not change memory."""
        self.has_other = False
        """Whether the kernel gave the load that comes next an `other`: one of zero does not arrive here."""

    def create_load(self, ptr: TensorHandle, *options: Any, **named: Any) -> TensorHandle:
        return self.create_masked_load(ptr, None, None, *options, **named)

    def create_store(self, ptr: TensorHandle, val: TensorHandle, *options: Any) -> None:
        self.create_masked_store(ptr, val, None)

    def create_masked_load(
        self, ptrs: TensorHandle, mask: Any, other: TensorHandle | None, *options: Any, **named: Any
    ) -> TensorHandle:
        dtype = ptrs.get_element_ty()
        masked = self._masked(ptrs.data.shape, array_type(dtype)) if other is None else other.data
        loaded = self.memory.load(ptrs.data, _array(mask), masked, self.grid_idx)
        if self.yield_program is not None and is_volatile(options, named):
            self.yield_program(False)
        return TensorHandle(loaded, dtype)

    def _masked(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """What a load leaves in the lanes that are masked when it does not say."""
        if not settings.undefined or self.has_other:
            return np.zeros(shape, dtype)
        data = np.empty(shape, dtype)
        data.view(np.uint8).fill(0xFF)
        return data

    def create_masked_store(self, ptrs: TensorHandle, value: TensorHandle, mask: Any, *options: Any) -> None:
        self.memory.store(ptrs.data, value.data, _array(mask), self.grid_idx)

    def create_atomic_rmw(
        self, operation: Any, ptr: TensorHandle, val: TensorHandle, mask: TensorHandle, sem: Any, scope: Any
    ) -> TensorHandle:
        # The integer comparisons that Triton turns those of floats into are not for the kernel's author to know.
        name = operation.name.lower().removeprefix("u").removeprefix("f")
        self._before_atomic(f"atomic_{name}", ptr, mask.data)
        old = super().create_atomic_rmw(operation, ptr, val, mask, sem, scope)
        self._after_atomic(ptr, mask.data, old)
        return old

    def create_atomic_cas(
        self, ptr: TensorHandle, cmp: TensorHandle, val: TensorHandle, sem: Any, scope: Any
    ) -> TensorHandle:
        every = np.ones(ptr.data.shape, bool)
        self._before_atomic("atomic_cas", ptr, every)
        old = super().create_atomic_cas(ptr, cmp, val, sem, scope)
        self._after_atomic(ptr, every, old)
        return old

    def _before_atomic(self, name: str, ptr: TensorHandle, mask: Array) -> None:
        itemsize = array_type(ptr.get_element_ty()).itemsize
        self.memory.access(name, ptr.data.view(np.int64)[mask], itemsize, self.grid_idx)

    def _after_atomic(self, ptr: TensorHandle, mask: Array, old: TensorHandle) -> None:
        if self.yield_program is not None:
            now = memory.load(ptr.data, mask, old.data, old.data.dtype)
            self.yield_program(now.tobytes() != old.data.tobytes())

    def create_splat(self, ret_ty: tl.dtype, arg: TensorHandle) -> TensorHandle:
        data = np.empty(tuple(ret_ty.shape), arg.data.dtype)
        data.fill(arg.data.item())
        return TensorHandle(data, arg.dtype.scalar)

    def create_expand_dims(self, arg: TensorHandle, axis: int) -> TensorHandle:
        shape = arg.data.shape
        return TensorHandle(arg.data.reshape(*shape[:axis], 1, *shape[axis:]), arg.dtype.scalar)

    def create_addptr(self, ptr: TensorHandle, offset: TensorHandle) -> TensorHandle:
        size = array_type(ptr.get_element_ty()).itemsize
        bytes_ = np.multiply(offset.data, size, dtype=np.int64, casting="unsafe")
        return TensorHandle((ptr.data.view(np.int64) + bytes_).view(np.uint64), ptr.dtype)

    def create_ashr(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        """The stock one changes the type of its operands in place."""
        left, right = (TensorHandle(x.data.copy(), x.dtype) for x in (lhs, rhs))
        return super().create_ashr(left, right)


def _array(mask: Any) -> Array | None:
    # Block pointers and descriptors come with a plain array.
    return mask.data if isinstance(mask, TensorHandle) else mask
