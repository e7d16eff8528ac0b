# SPDX-License-Identifier: Apache-2.0
"""``tl.reduce`` and ``tl.associative_scan``.

As in hardware a reduction is a tree: log2(n) steps, each on whole blocks. The stock interpreter calls a kernel's own
combine function once for every element instead, and for Triton's own it has numpy's reductions, which treat NaN and
the rounding of intermediate results in their own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from flag_gems_overrides.interpreter.bfloat16 import Array, handle, numbers
from flag_gems_overrides.interpreter.triton_internals import ReduceOps, ScanOps, TensorHandle, standard

Parts = list[Array]


class Reduction(ReduceOps):
    def apply_impl(self, input: tuple[tl.tensor, ...]) -> list[tl.tensor]:
        along = tl.core._unwrap_if_constexpr(self.axis)  # a global one
        axis = 0 if along is None else along
        rank = input[0].handle.data.ndim
        parts = [x.handle.data for x in input]
        if along is None:
            parts = [x.reshape(-1) for x in parts]
        parts = self._reduced(parts, axis, [x.dtype for x in input])
        if along is None:
            parts = [x.reshape((1,) * (rank if self.keep_dims else 1)) for x in parts]
        elif rank > 1 and not self.keep_dims:
            parts = [x.squeeze(axis) for x in parts]
        is_block = self.keep_dims or (along is not None and rank > 1)
        return [_tensor(TensorHandle(x, old.dtype), is_block) for x, old in zip(parts, input, strict=True)]

    def _reduced(self, parts: Parts, axis: int, dtypes: list[tl.dtype]) -> Parts:
        """``parts`` with one element left along ``axis``."""
        known = _KNOWN.get(self.combine_fn)
        if known is not None:
            values = [numbers(TensorHandle(x, dtype)) for x, dtype in zip(parts, dtypes, strict=True)]
            return [handle(x, dtype).data for x, dtype in zip(known(values, axis, dtypes[0]), dtypes, strict=True)]
        return _tree(parts, axis, lambda left, right: _combined(self.combine_fn, left, right, dtypes))


class Scan(ScanOps):
    def generic_scan(self, input: tuple[tl.tensor, ...]) -> list[tl.tensor]:
        """After the step over a distance each element has combined that many neighbours before it, and itself."""
        axis = tl.core._unwrap_if_constexpr(self.axis)
        dtypes = [x.dtype for x in input]
        parts = [x.handle.data for x in input]
        n = parts[0].shape[axis]
        for distance in (2**step for step in range((n - 1).bit_length())):
            earlier = [np.roll(x, distance, axis) for x in parts]
            combined = _combined(self.combine_fn, earlier, parts, dtypes)
            first = _at(axis, slice(0, distance))
            for x, part in zip(parts, combined, strict=True):
                part[first] = x[first]
            parts = combined
        return [_tensor(TensorHandle(x, dtype)) for x, dtype in zip(parts, dtypes, strict=True)]

    def cumsum(self, input: tl.tensor) -> list[tl.tensor]:
        return self._along(input, np.cumsum)

    def cumprod(self, input: tl.tensor) -> list[tl.tensor]:
        return self._along(input, np.cumprod)

    def _along(self, input: tl.tensor, scan: Callable[..., Array]) -> list[tl.tensor]:
        axis = tl.core._unwrap_if_constexpr(self.axis)
        return [_tensor(handle(scan(numbers(input.handle), axis=axis), input.dtype))]


def _combined(combine_fn: Any, left: Parts, right: Parts, dtypes: list[tl.dtype]) -> Parts:
    operands = [_tensor(TensorHandle(x, dtype)) for x, dtype in zip(left + right, dtypes + dtypes, strict=True)]
    results = combine_fn(*operands)
    return [x.handle.data for x in (results if isinstance(results, (tuple, tl.tuple)) else (results,))]


def _at(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)


def _tree(parts: Parts, axis: int, combine: Callable[[Parts, Parts], Parts]) -> Parts:
    """Combine neighbours, for a combine function need not be commutative, until one element is left."""
    while (n := parts[0].shape[axis]) > 1:
        left, right = ([x[_at(axis, slice(first, n, 2))] for x in parts] for first in (0, 1))
        parts = combine(left, right)
    return parts


def _sum(parts: Parts, axis: int, dtype: tl.dtype) -> Parts:
    (x,) = parts
    while (n := x.shape[axis]) > 1:
        x = x[_at(axis, slice(0, n // 2))] + x[_at(axis, slice(n // 2, n))]
        if dtype == tl.bfloat16:
            x = numbers(handle(x, dtype))
    return [x]


def _extremum(extremum: np.ufunc) -> Callable[[Parts, int, tl.dtype], Parts]:
    return lambda parts, axis, dtype: [extremum.reduce(parts[0], axis, keepdims=True)]


def _with_index(
    precedes: Callable[[Array, Array], Array], extremum: np.ufunc
) -> Callable[[Parts, int, tl.dtype], Parts]:
    def choose(left: Parts, right: Parts) -> Parts:
        first = precedes(left[0], right[0]) | ((left[0] == right[0]) & (left[1] < right[1]))
        return [np.where(first, *pair) for pair in zip(left, right, strict=True)]

    def reduced(parts: Parts, axis: int, dtype: tl.dtype) -> Parts:
        values, indices = parts
        best = extremum.reduce(values, axis, keepdims=True)
        if np.isnan(best).any():
            # No comparison with a NaN holds, and its fate depends on its place in the tree.
            return _tree(parts, axis, choose)
        last = np.iinfo(indices.dtype).max
        return [best, np.where(values == best, indices, last).min(axis, keepdims=True)]

    return reduced


# Without propagate_nan Triton's maximum and minimum return the other operand for a NaN.
_KNOWN: dict[Any, Callable[[Parts, int, tl.dtype], Parts]] = {
    standard._sum_combine: _sum,
    standard._elementwise_max: _extremum(np.fmax),
    standard._elementwise_min: _extremum(np.fmin),
    standard._argmax_combine_tie_break_left: _with_index(np.greater, np.maximum),
    standard._argmin_combine_tie_break_left: _with_index(np.less, np.minimum),
}


def _tensor(result: TensorHandle, is_block: bool = True) -> tl.tensor:
    return tl.tensor(result, tl.block_type(result.dtype, list(result.data.shape)) if is_block else result.dtype)
