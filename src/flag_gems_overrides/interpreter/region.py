# SPDX-License-Identifier: Apache-2.0
"""Where in memory an argument of a launch is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Region:
    """The memory of one tensor: its storage [storage_lo, storage_hi), and in it the span [lo, hi) of its elements."""

    def __init__(self, name: str, tensor: Any) -> None:
        """``tensor`` may be anything that has a tensor's size, strides, data_ptr() and storage."""
        self.name = name
        self.itemsize: int = tensor.element_size()
        storage = tensor.untyped_storage()
        self.storage_lo: int = storage.data_ptr()
        self.storage_hi: int = self.storage_lo + storage.nbytes()
        start = tensor.data_ptr()
        if 0 in tensor.shape:
            self.lo, self.hi, self.gaps = start, start, False
            return
        steps = [(n, stride * self.itemsize) for n, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        steps = [(n, step) for n, step in steps if n > 1 and step]
        self.lo = start + sum((n - 1) * min(step, 0) for n, step in steps)
        self.hi = start + sum((n - 1) * max(step, 0) for n, step in steps) + self.itemsize
        self._steps = sorted(steps, key=lambda dimension: dimension[1], reverse=True)
        self.gaps = self._has_gaps()
        """Whether there is memory between the elements that is not the tensor's."""

    def _has_gaps(self) -> bool:
        extent = self.itemsize
        for size, step in reversed(self._steps):
            if step < extent:
                # Elements that overlap, as they can in as_strided; or negative strides. Take the span for the tensor.
                return False
            extent += step * (size - 1)
        return extent > self.itemsize * math.prod(size for size, _ in self._steps)

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The storage as a vector. Valid as long as the tensor is."""

        count = (self.storage_hi - self.storage_lo) // dtype.itemsize
        return np.asarray(_Memory(self.storage_lo, count, dtype))

    def in_storage(self, addresses: Array, itemsize: int) -> Array:
        """Which accesses of ``itemsize`` bytes lie in the storage."""
        return (addresses >= self.storage_lo) & (addresses + itemsize <= self.storage_hi)

    def in_elements(self, addresses: Array, itemsize: int) -> Array:
        """Which accesses of ``itemsize`` bytes lie in elements of the tensor."""
        inside = (addresses >= self.lo) & (addresses + itemsize <= self.hi)
        if self.gaps:
            inside &= self._is_element(addresses) & self._is_element(addresses + (itemsize - 1))
        return inside

    def _is_element(self, addresses: Array) -> Array:
        offset = addresses - self.lo
        is_element = np.ones(addresses.shape, bool)
        for size, step in self._steps:
            index, offset = np.divmod(offset, step)
            is_element &= index < size
        return is_element & (offset < self.itemsize)

    def distance(self, address: int, itemsize: int) -> int:
        """How many bytes an access begins before the storage, as a negative number, or ends past it."""
        return min(address - self.storage_lo, 0) or max(address + itemsize - self.storage_hi, 0)


class _Memory:
    def __init__(self, address: int, count: int, dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (count,), "typestr": dtype.str}
