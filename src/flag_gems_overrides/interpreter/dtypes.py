# SPDX-License-Identifier: Apache-2.0
"""Triton's types and tensors at a tenth of their price.

They were made for a compiler that sees each operation once. Here every operation of every program makes several, and
their shapes, kept as tuples of constexpr and spelled out in each type's name, took most of the time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl

from flag_gems_overrides.interpreter.triton_internals import core, stock, validate_block_shape


class _Shape(NamedTuple):
    """What every block of one shape can share."""

    sizes: tuple[int, ...]
    of_type: tl.tuple
    of_tensor: tl.tuple
    numel: int
    constexpr_numel: tl.constexpr


@functools.cache
def _shape(sizes: tuple[int, ...]) -> _Shape:
    numel = validate_block_shape(sizes) if sizes else 1
    constexprs = tl.tuple([tl.constexpr(size) for size in sizes])
    shape = _Shape(sizes, tl.tuple(sizes), constexprs, numel, tl.constexpr(numel))
    _shared.update({id(tuple_): shape for tuple_ in (shape.of_type, shape.of_tensor)})
    return shape


# By the identity of the tuples in it, which live as long as the process.
_shared: dict[int, _Shape] = {}
_SCALAR = _shape(())
_TRUE = tl.constexpr(True)
_ARRAY_TYPES = {
    **{name: np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    "int1": np.dtype(bool),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    # numpy has no such types: their bits.
    "bf16": np.dtype(np.uint16),
    **{name: np.dtype(np.uint8) for name in ("fp8e5", "fp8e5b16", "fp8e4nv", "fp8e4b8", "fp8e4b15")},
}


def array_type(dtype: tl.dtype) -> np.dtype[Any]:
    """The numpy type of the data of a tensor of this type."""
    scalar = dtype.scalar
    return np.dtype(np.uint64) if scalar.is_ptr() else _ARRAY_TYPES[scalar.name]


def sizes(type: tl.dtype) -> tuple[int, ...]:
    """The shape of a tensor's type, () for a scalar."""
    return type._shape.sizes if isinstance(type, tl.block_type) else ()


def patch() -> None:
    core.block_type.__init__ = _init_block_type
    core.block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>")
    core.tensor.__init__ = _init_tensor
    core._unwrap_if_constexpr = functools.partial(_unwrap, stock=core._unwrap_if_constexpr)
    core.tuple.__eq__ = functools.partialmethod(_same_tuple, stock=core.tuple.__eq__)
    core.dtype.__eq__ = _same_dtype
    core.dtype.__hash__ = lambda self: hash(self.name)
    stock._get_np_dtype = array_type
    stock.TensorHandle.__init__ = _init_handle


def _init_block_type(self: Any, element_ty: tl.dtype, shape: Iterable[Any]) -> None:
    shared = _shared.get(id(shape))
    if shared is None:
        shared = _shape(tuple([size.value if isinstance(size, tl.constexpr) else size for size in shape]))
    if not shared.sizes:
        raise TypeError("0d block_type is forbidden")
    self.element_ty = element_ty
    self.shape = shared.of_type
    self.numel = shared.numel
    self._shape = shared


def _init_tensor(self: Any, handle: Any, type: tl.dtype) -> None:
    shared = type._shape if isinstance(type, tl.block_type) else _SCALAR
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    self.shape = shared.of_tensor
    self.numel = shared.constexpr_numel


def _init_handle(self: Any, data: Any, dtype: tl.dtype, attr: dict[str, Any] | None = None) -> None:
    # The stock one compares the sizes of the types, each time.
    self.data = data
    self.dtype = dtype
    self.attr = {} if attr is None else attr


def _unwrap(value: Any, stock: Any) -> Any:
    if isinstance(value, tl.tensor):
        return value
    if isinstance(value, tl.constexpr):
        return value.value
    return stock(value) if isinstance(value, (list, tuple, tl.tuple)) else value


def _same_dtype(self: Any, other: object) -> bool:
    if self is other:
        return True
    other = other.value if isinstance(other, tl.constexpr) else other
    return isinstance(other, tl.dtype) and self.name == other.name


def _same_tuple(self: Any, other: object, stock: Any) -> tl.constexpr:
    return _TRUE if self is other else stock(self, other)
