# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of one launch, and what they add up to for each argument."""

from __future__ import annotations

from typing import Any

import numpy as np

from flag_gems_overrides.interpreter.errors import OutOfBoundsError
from flag_gems_overrides.interpreter.observation import Launch, Traffic, settings
from flag_gems_overrides.interpreter.region import Array, Region
from flag_gems_overrides.interpreter.triton_internals import memory

Index = tuple[int, int, int]


class LaunchMemory:
    """What a launch may address. Addresses come as arrays of any shape, with a mask of that shape or None."""

    def __init__(self, kernel: str, tensors: dict[str, Any]) -> None:
        self._kernel = kernel
        self._regions = []
        # A pointer of unknown extent, an address in place of a tensor, could be meant by any lane.
        self._bounded = True
        for name, tensor in tensors.items():
            tensor = getattr(tensor, "base", tensor)  # Triton's tensor descriptors, and its reinterpreted tensors
            if hasattr(tensor, "untyped_storage"):
                self._regions.append(Region(name, tensor))
            else:
                self._bounded = False
        self._check = settings.check if self._bounded else None
        self._counters = [_Counter(region) for region in self._regions] if settings.observers else None
        self._outside = Traffic()
        self._exact = self._check == "element" or self._counters is not None
        self._views: dict[tuple[int, np.dtype[Any]], Array] = {}

    def load(self, pointers: Array, mask: Array | None, other: Array, program: Index) -> Array:
        """What is in memory, and ``other`` in the lanes that are masked."""
        addresses, mask = _active(pointers, mask)
        which = self.access("load", addresses, other.itemsize, program)
        index = self._elements(which, addresses, other.dtype)
        if index is None:
            every = np.ones(pointers.shape, bool) if mask is None else mask
            return memory.load(pointers, every, other, other.dtype)
        if mask is None:
            return self._view(which, other.dtype).take(index)
        loaded = other.copy()
        loaded[mask] = self._view(which, other.dtype).take(index)
        return loaded

    def store(self, pointers: Array, values: Array, mask: Array | None, program: Index) -> None:
        addresses, mask = _active(pointers, mask)
        which = self.access("store", addresses, values.itemsize, program)
        index = self._elements(which, addresses, values.dtype)
        if index is None:
            every = np.ones(pointers.shape, bool) if mask is None else mask
            memory.store(pointers, values, every)
        else:
            self._view(which, values.dtype)[index] = values if mask is None else values[mask]

    def access(self, operation: str, addresses: Array, itemsize: int, program: Index) -> int:
        """Account for an operation of the lanes with these addresses.

        Returns:
            the number of the argument that all of them address, or -1
        Raises:
            OutOfBoundsError: some address none, and bounds are checked.
        """
        if not addresses.size:
            return -1
        first, last = int(addresses.min()), int(addresses.max()) + itemsize
        for which, region in enumerate(self._regions):
            if region.lo <= first and last <= region.hi and not (self._exact and region.gaps):
                if self._counters:
                    self._counters[which].add(operation, addresses, itemsize)
                return which
        if self._check or self._counters:
            self._account(operation, addresses, itemsize, program)
        return -1

    def _account(self, operation: str, addresses: Array, itemsize: int, program: Index) -> None:
        """The same for addresses in several arguments, between a view's elements, or outside of all arguments."""
        lanes = addresses.size
        for holds in (Region.in_elements, Region.in_storage):
            for which, region in enumerate(self._regions):
                inside = holds(region, addresses, itemsize)
                if self._counters and inside.any():
                    self._counters[which].add(operation, addresses[inside], itemsize)
                addresses = addresses[~inside]
                if not addresses.size:
                    return
            if self._check == "element":
                break
        if self._check:
            raise OutOfBoundsError(self._message(operation, addresses, itemsize, lanes, program))
        _add(self._outside, operation, addresses.size * itemsize)

    def _message(self, operation: str, addresses: Array, itemsize: int, lanes: int, program: Index) -> str:
        message = f"{self._kernel}: tl.{operation} in program {program}: {addresses.size} of {lanes} active lanes are "
        message += "outside every tensor that the kernel was given"
        if not self._regions:
            return message
        address = int(addresses[0])
        nearest = min(self._regions, key=lambda region: abs(region.distance(address, itemsize)))
        distance = nearest.distance(address, itemsize)
        if distance == 0:
            return f"{message}; the first is in the storage of {nearest.name}, but in none of its elements"
        where = "begins before the start" if distance < 0 else "ends past the end"
        size = nearest.storage_hi - nearest.storage_lo
        return f"{message}; the first {where} of {nearest.name} ({size} bytes), by {abs(distance)} bytes"

    def _elements(self, which: int, addresses: Array, dtype: np.dtype[Any]) -> Array | None:
        """Where the addresses are in the argument's view; None if they are not all elements of it."""
        if which < 0:
            return None
        offset = addresses - self._regions[which].storage_lo
        if np.bitwise_or.reduce(offset, axis=None) & (dtype.itemsize - 1):
            return None
        return offset // dtype.itemsize

    def _view(self, which: int, dtype: np.dtype[Any]) -> Array:
        if (which, dtype) not in self._views:
            self._views[which, dtype] = self._regions[which].view(dtype)
        return self._views[which, dtype]

    def finish(self, grid: Index, options: dict[str, Any]) -> None:
        """Report the launch to the observers."""
        if self._counters is None:
            return
        arguments = {counter.region.name: counter.total() for counter in self._counters}
        warps, stages = options.get("num_warps", 4), options.get("num_stages", 3)
        launch = Launch(self._kernel, grid, warps, stages, options, arguments, self._outside)
        for launches in settings.observers:
            launches.append(launch)


class _Counter:
    """The traffic of one argument."""

    _READ, _WRITTEN = 1, 2

    def __init__(self, region: Region) -> None:
        self.region = region
        self._traffic = Traffic()
        self._seen = np.zeros(-((region.storage_lo - region.storage_hi) // region.itemsize), np.uint8)

    def add(self, operation: str, addresses: Array, itemsize: int) -> None:
        _add(self._traffic, operation, addresses.size * itemsize)
        flag = {"load": self._READ, "store": self._WRITTEN}.get(operation, self._READ | self._WRITTEN)
        first = (addresses - self.region.storage_lo) // self.region.itemsize
        for part in range(max(1, itemsize // self.region.itemsize)):
            self._seen[first + part] |= flag

    def total(self) -> Traffic:
        self._traffic.distinct_read = int(np.count_nonzero(self._seen & self._READ)) * self.region.itemsize
        self._traffic.distinct_written = int(np.count_nonzero(self._seen & self._WRITTEN)) * self.region.itemsize
        return self._traffic


def _active(pointers: Array, mask: Array | None) -> tuple[Array, Array | None]:
    """The addresses of the active lanes, and the mask if it masks any."""
    addresses = pointers.view(np.int64)
    if mask is None or mask.all():
        return addresses, None
    return addresses[mask], mask


def _add(traffic: Traffic, operation: str, count: int) -> None:
    if operation == "load":
        traffic.loaded += count
    elif operation == "store":
        traffic.stored += count
    else:
        traffic.updated += count
